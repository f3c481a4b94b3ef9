//! tokio, for handlers that use its timers, channels, sockets and the crates built on them.
//!
//! The loops don't run inside tokio. A tokio runtime stands beside them, driven by one thread of its own, and each serving
//! thread is in its context: what a handler asks of tokio is registered there, and when it is ready it wakes the handler, as
//! anything else does. A handler that needs nothing of tokio pays nothing for it; the thread sleeps. With 1000 handlers in tokio's
//! sleep that is 0.84 x hyper's CPU per request at its rate (`cargo xtask bench serve --only wait10`). A runtime on the loop's own
//! thread, entered only while something waits, has not been measured against it.

use std::io;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

static RUNTIME: OnceLock<Handle> = OnceLock::new();

/// The runtime beside the loops, started when it is first asked for.
///
/// # Errors
/// When its thread or its descriptors can't be had.
pub fn tokio_handle() -> io::Result<Handle> {
    if let Some(handle) = RUNTIME.get() {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().thread_name("tokio-blocking").build()?;
    let handle = runtime.handle().clone();
    if RUNTIME.set(handle.clone()).is_ok() {
        std::thread::Builder::new()
            .name("tokio".to_owned())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    }
    // Another thread may have been first: then its runtime is the one that is driven.
    Ok(RUNTIME.get().cloned().unwrap_or(handle))
}
