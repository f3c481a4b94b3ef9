//! Futures of asyncio that are ready. The client's thread never waits for the interpreter: it notes what is ready and rings
//! a bell, which is a socket that the event loop watches.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use linerate_client::client::Error;
use pyo3::prelude::*;

use crate::error::raise;
use crate::message::Response;

/// How a call ended.
pub(crate) type CallResult = Result<http::Response<Bytes>, Error>;

/// A future, and what it is about to become; `None` only wakes.
type Entry = (Py<PyAny>, Option<CallResult>);

pub(crate) struct Ready {
    entries: Mutex<Vec<Entry>>,
    bell: UnixStream,
    heard: UnixStream,
}

impl Ready {
    pub(crate) fn new() -> io::Result<Ready> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Ready { entries: Mutex::default(), bell, heard })
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.heard.as_raw_fd()
    }

    /// Rings if nothing was ready before.
    pub(crate) fn push(&self, future: Py<PyAny>, result: Option<CallResult>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push((future, result));
        if entries.len() == 1 {
            // Full: it has been rung often enough.
            let _ = (&self.bell).write(&[1]);
        }
    }

    /// Settles the futures that are ready.
    pub(crate) fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let mut rings = [0; 64];
        while matches!((&self.heard).read(&mut rings), Ok(n) if n > 0) {}
        let entries = std::mem::take(&mut *self.entries.lock().unwrap_or_else(PoisonError::into_inner));
        for (future, result) in entries {
            let future = future.bind(py);
            // It was cancelled meanwhile.
            if future.call_method0("done")?.is_truthy()? {
                continue;
            }
            match result {
                None => future.call_method1("set_result", (py.None(),))?,
                Some(Ok(response)) => future.call_method1("set_result", (Response(response),))?,
                Some(Err(error)) => future.call_method1("set_exception", (raise(py, error),))?,
            };
        }
        Ok(())
    }
}
