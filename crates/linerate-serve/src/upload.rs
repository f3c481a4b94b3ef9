//! The body of a request that is arriving, as far as it does not matter which protocol frames it.

use std::sync::Arc;
use std::time::Duration;

use linerate_net::Time;

use crate::limits::{BODY_DISCARDED, Limits};
use crate::message::body::{BodyError, SharedUpload};

/// How far the body of a request has come.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    /// Its bytes, for whoever reads them.
    pub(crate) shared: Arc<SharedUpload>,
    /// The client waits for `100 Continue`, which was not sent yet.
    pub(crate) expects_continue: bool,
    pub(crate) received: u64,
    /// Bytes dropped because no handler wanted them.
    discarded: u64,
    pub(crate) began: Time,
    /// The time that its route grants, in place of the server's.
    pub(crate) time: Option<Duration>,
}

impl UploadProgress {
    pub(crate) fn new(shared: &Arc<SharedUpload>, began: Time) -> UploadProgress {
        UploadProgress {
            shared: Arc::clone(shared),
            expects_continue: false,
            received: 0,
            discarded: 0,
            began,
            time: None,
        }
    }

    /// Whether the client has to be told now to send the body, because somebody reads it; once (RFC
    /// 9110 section 10.1.1).
    pub(crate) fn take_continue(&mut self) -> bool {
        let due = self.expects_continue && self.shared.is_wanted();
        self.expects_continue &= !due;
        due
    }

    /// Drops bytes that nobody wants; `true`: these are more than are dropped for the sake of the
    /// connection.
    pub(crate) fn discard(&mut self, bytes: usize) -> bool {
        self.discarded += bytes as u64;
        self.discarded > BODY_DISCARDED
    }

    /// The client sends no more of it.
    pub(crate) fn cut(&self) {
        self.shared.end(Err(BodyError::Ended), Vec::new());
    }

    /// The time that it may take: more, the more of it has come.
    pub(crate) fn granted(&self, limits: &Limits) -> Duration {
        let for_bytes = Duration::from_secs(self.received / limits.least_rate.max(1));
        self.time.unwrap_or(limits.body_time).saturating_add(for_bytes)
    }
}
