//! tokio, for handlers that use its timers, channels, sockets and the crates built on them.
//!
//! The loops don't run inside tokio. A tokio runtime stands beside them, with threads of its own, and each serving thread is in its
//! context: what a handler asks of tokio is registered there, and when it is ready it wakes the handler, as anything else does. A
//! handler that needs nothing of tokio pays nothing for it: its threads sleep.
//!
//! A server with one loop has a runtime with one thread, which costs handlers that wait least: with 1000 of them in tokio's sleep
//! 0.84 x hyper's CPU per request at its rate (`cargo xtask bench serve --only wait10`). Several loops have as many workers, so that a
//! task which computes does not keep every other task waiting.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Where what handlers ask of tokio runs: timers, sockets, `tokio::spawn`.
///
/// Tasks that still run on a runtime of the server's own are dropped once it has stopped.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum TokioRuntime {
    /// A runtime of the server's own, with as many workers as the server has loops.
    #[default]
    PerLoop,
    /// A runtime of the server's own with so many workers; 0 counts as 1. A task that computes keeps its worker from everything
    /// else.
    Workers(usize),
    /// The caller's. It must be driven: one of `new_current_thread` runs only inside its `block_on`.
    Handle(Handle),
}

/// A runtime that lives as long as its server.
#[derive(Debug)]
pub(crate) struct Beside {
    handle: Handle,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    /// It is the caller's.
    No,
    /// It has workers, or a thread drives it until this is dropped.
    Workers(Option<Runtime>),
    Driven(#[expect(dead_code, reason = "dropping it ends the runtime")] oneshot::Sender<()>),
}

impl Beside {
    /// The runtime of a server with so many loops.
    ///
    /// # Errors
    /// When its threads or its descriptors can't be had.
    pub(crate) fn start(wanted: &TokioRuntime, loops: usize) -> io::Result<Beside> {
        let workers = match wanted {
            TokioRuntime::Handle(handle) => return Ok(Beside { handle: handle.clone(), kept: Kept::No }),
            TokioRuntime::PerLoop => loops,
            TokioRuntime::Workers(count) => *count,
        };
        if workers > 1 {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(workers).enable_all().thread_name("tokio").build()?;
            let handle = runtime.handle().clone();
            return Ok(Beside { handle, kept: Kept::Workers(Some(runtime)) });
        }
        let runtime = Builder::new_current_thread().enable_all().thread_name("tokio-blocking").build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("tokio".to_owned()).spawn(move || {
            // It is over when nobody holds the other end.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Beside { handle, kept: Kept::Driven(end) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Without waiting for its tasks: the code that drops the server may be one of them.
        if let Kept::Workers(runtime) = &mut self.kept
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}
