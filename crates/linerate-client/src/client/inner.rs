//! State that the clones and calls of a client share.

use std::sync::{Arc, Mutex, PoisonError};

use super::board::SharedBoard;
use super::driver;
use super::error::{Error, ErrorDetail};
use super::options::CallOptions;
use super::secure::Secure;
use super::target::Target;

/// The part of a client that its clones and calls share.
pub(super) struct Inner {
    pub(super) shared: Arc<SharedBoard>,
    /// Calls of one stream under way at once.
    pub(super) window: u64,
    pub(super) options: CallOptions,
    pub(super) target: Target,
    /// With `https`.
    pub(super) secure: Option<Secure>,
    pub(super) started: Mutex<bool>,
}

impl Inner {
    /// Starts the task that moves the bytes, unless it runs.
    pub(super) fn start(&self) -> Result<(), Error> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if *started {
            return Ok(());
        }
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| Error::Connect("no tokio runtime\nhint: await calls inside one".into()))?;
        let (shared, target) = (self.shared.clone(), self.target.clone());
        driver::spawn(&runtime, shared, &self.options, target, self.secure.as_ref())
            .map_err(|e| Error::Connect(ErrorDetail::by(format!("no event loop: {e}"), e)))?;
        *started = true;
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
