//! tokio, for handlers that use its timers, channels, sockets and crates built on them.
//!
//! The loops do not run inside tokio. A tokio runtime with threads of its own runs beside them, and
//! each serving thread is in its context. So tokio registers a handler's timers and sockets there,
//! and wakes the handler as anything else does. A handler that uses nothing of tokio pays nothing:
//! the runtime's threads sleep.
//!
//! A server with one loop has a runtime with one thread, which is the cheapest for handlers that
//! wait. With 1000 of them in tokio's sleep it uses 0.84 x hyper's CPU per request at its rate
//! (`cargo xtask bench serve --only wait10`). Several loops have as many workers, so that a
//! computing task does not block all others.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// The runtime for handlers' timers, sockets and `tokio::spawn`.
///
/// Handlers are polled inline by the server's loops, whatever is chosen here; the runtime has their
/// timers, their sockets and what they spawn. If the server owns it, tasks still running are dropped
/// once the server has stopped.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum TokioRuntime {
    /// The runtime that the server is started in: `tokio::spawn`, `block_in_place` and timers of
    /// handlers use it. Outside of any, as `PerLoop`. A `new_current_thread` runtime runs only inside
    /// its `block_on`: end the server by [`Handle::stop_on`](crate::Handle::stop_on) there, since
    /// handlers that wait for its timers cannot go on while [`Handle::stop`](crate::Handle::stop)
    /// blocks it.
    #[default]
    Caller,
    /// A runtime owned by the server, with as many workers as loops.
    PerLoop,
    /// A runtime owned by the server, with this many workers; 0 counts as 1. A computing task
    /// blocks its worker for everything else.
    Workers(usize),
    /// Another one. It must be driven: a `new_current_thread` runtime runs only inside its
    /// `block_on`.
    Handle(Handle),
}

/// A runtime that lives as long as its server.
#[derive(Debug)]
pub(crate) struct RuntimeThread {
    handle: Handle,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    /// It belongs to the caller.
    No,
    /// It has workers, or a thread drives it until this is dropped.
    Workers(Option<Runtime>),
    Driven(#[expect(dead_code, reason = "dropping it ends the runtime")] oneshot::Sender<()>),
}

impl RuntimeThread {
    /// Starts the runtime of a server with this many loops.
    ///
    /// # Errors
    /// Its threads or descriptors cannot be created.
    pub(crate) fn start(wanted: &TokioRuntime, loops: usize) -> io::Result<RuntimeThread> {
        let workers = match wanted {
            TokioRuntime::Handle(handle) => {
                return Ok(RuntimeThread { handle: handle.clone(), kept: Kept::No });
            }
            TokioRuntime::Caller => match Handle::try_current() {
                Ok(handle) => return Ok(RuntimeThread { handle, kept: Kept::No }),
                Err(_) => loops,
            },
            TokioRuntime::PerLoop => loops,
            TokioRuntime::Workers(count) => *count,
        };
        if workers > 1 {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(workers).enable_all().thread_name("tokio").build()?;
            let handle = runtime.handle().clone();
            return Ok(RuntimeThread { handle, kept: Kept::Workers(Some(runtime)) });
        }
        let runtime = Builder::new_current_thread().enable_all().thread_name("tokio-blocking").build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("tokio".to_owned()).spawn(move || {
            // It ends when the other end of the channel is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(RuntimeThread { handle, kept: Kept::Driven(end) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        // Does not wait for its tasks: one of them may be dropping the server.
        if let Kept::Workers(runtime) = &mut self.kept
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}
