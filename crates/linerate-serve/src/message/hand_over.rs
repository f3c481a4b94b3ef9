//! A connection that is handed over, as its response knows it.

use std::sync::Arc;

use crate::message::body::{BodyError, SharedUpload};

/// A connection that is handed over, with the response that announces it.
#[derive(Debug)]
pub(crate) struct HandOver {
    incoming: Option<Arc<SharedUpload>>,
    /// The handler does not write the response's head into the tunnel itself.
    pub(crate) needs_head: bool,
}

impl HandOver {
    pub(crate) fn new(incoming: Arc<SharedUpload>, needs_head: bool) -> Box<HandOver> {
        Box::new(HandOver { incoming: Some(incoming), needs_head })
    }

    /// Where received bytes go.
    pub(crate) fn take(mut self) -> Arc<SharedUpload> {
        self.incoming.take().unwrap_or_default()
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        // The response is not sent, so no bytes will arrive.
        if let Some(incoming) = self.incoming.take() {
            incoming.end(Err(BodyError::Ended), Vec::new());
        }
    }
}
