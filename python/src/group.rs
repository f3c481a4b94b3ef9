//! Many calls whose responses come in the order of the requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use crate::caller::Caller;
use crate::error::{closed, raise};
use crate::limits::{BATCH, BATCH_TIME, SIGNALS_EVERY};
use crate::message::{Response, request_of};
use crate::ready::{CallResult, Ready};

type Batch = Vec<http::Request<Bytes>>;

#[derive(Default)]
struct Arrived {
    results: VecDeque<CallResult>,
    over: bool,
    /// A future that waits for the next.
    waiter: Option<Py<PyAny>>,
}

/// What the client's thread and Python share.
struct Shared {
    arrived: Mutex<Arrived>,
    more: Condvar,
    ready: Arc<Ready>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, results: Vec<CallResult>, over: bool) {
        let mut arrived = self.lock();
        arrived.results.extend(results);
        arrived.over |= over;
        let waiter = arrived.waiter.take();
        drop(arrived);
        self.more.notify_one();
        if let Some(waiter) = waiter {
            self.ready.push(waiter, None);
        }
    }
}

/// However the task ends, nobody waits for it for ever.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.put(Vec::new(), true);
    }
}

/// The calls of one `send_all`.
#[pyclass(frozen)]
pub(crate) struct Group {
    requests: Mutex<Option<UnboundedSender<Batch>>>,
    shared: Arc<Shared>,
    /// Calls whose results Python has not taken.
    outside: AtomicUsize,
    window: usize,
    task: AbortHandle,
}

impl Group {
    pub(crate) fn start(client: Caller, runtime: &Handle, ready: Arc<Ready>, window: usize) -> Group {
        let (requests, batches) = unbounded_channel();
        let shared = Arc::new(Shared { arrived: Mutex::default(), more: Condvar::new(), ready });
        let task = runtime.spawn(carry(client, window, batches, Ending(Arc::clone(&shared)))).abort_handle();
        Group { requests: Mutex::new(Some(requests)), shared, outside: AtomicUsize::new(0), window, task }
    }

    fn submit(&self, py: Python<'_>, batch: Batch) -> PyResult<()> {
        let count = batch.len();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if count == 0 {
            return Ok(());
        }
        if requests.as_ref().is_some_and(|requests| requests.send(batch).is_ok()) {
            self.outside.fetch_add(count, Ordering::Relaxed);
            return Ok(());
        }
        Err(closed(py, "the client is closed"))
    }
}

async fn carry(client: Caller, window: usize, mut batches: UnboundedReceiver<Batch>, ending: Ending) {
    let requests = stream::poll_fn(move |cx| batches.poll_recv(cx)).map(stream::iter).flatten();
    let mut responses = client.send_all(requests, window).ready_chunks(BATCH);
    while let Some(results) = responses.next().await {
        ending.0.put(results, false);
    }
}

#[pymethods]
impl Group {
    /// Takes requests from an iterator, many together, while there is room; from one that is slow until a response is
    /// there. At its end no more can be added.
    fn fill(&self, py: Python<'_>, iterator: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.outside.load(Ordering::Relaxed) > self.window / 2 {
            return Ok(());
        }
        let mut iterator = iterator.cast::<PyIterator>()?.clone();
        let mut batch = Vec::new();
        let mut began = Instant::now();
        while self.outside.load(Ordering::Relaxed) + batch.len() < self.window {
            let Some(request) = iterator.next() else {
                self.submit(py, batch)?;
                self.end();
                return Ok(());
            };
            match request.and_then(|request| request_of(&request)) {
                Ok(request) => batch.push(request),
                Err(error) => {
                    self.submit(py, batch)?;
                    return Err(error);
                }
            }
            if began.elapsed() >= BATCH_TIME {
                self.submit(py, std::mem::take(&mut batch))?;
                if !self.shared.lock().results.is_empty() {
                    return Ok(());
                }
                began = Instant::now();
            }
        }
        self.submit(py, batch)
    }

    /// Adds one request.
    fn push(&self, request: &Bound<'_, PyAny>) -> PyResult<()> {
        self.submit(request.py(), vec![request_of(request)?])
    }

    /// No request follows.
    fn end(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn is_full(&self) -> bool {
        self.outside.load(Ordering::Relaxed) >= self.window
    }

    fn has_ended(&self) -> bool {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Responses and exceptions that are there; `None` after the last.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let (results, over) = {
            let mut arrived = self.shared.lock();
            (std::mem::take(&mut arrived.results), arrived.over)
        };
        if results.is_empty() && over {
            let lost = self.outside.load(Ordering::Relaxed);
            return if lost == 0 { Ok(None) } else { Err(closed(py, "the client is closed")) };
        }
        self.outside.fetch_sub(results.len(), Ordering::Relaxed);
        let list = PyList::empty(py);
        for result in results {
            match result {
                Ok(response) => list.append(Response(response))?,
                Err(error) => list.append(raise(py, error))?,
            }
        }
        Ok(Some(list))
    }

    /// Waits until there is something to take. Other threads of Python run meanwhile.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let there = py.detach(|| {
                let nothing = |arrived: &mut Arrived| arrived.results.is_empty() && !arrived.over;
                let waited = self.shared.more.wait_timeout_while(self.shared.lock(), SIGNALS_EVERY, nothing);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            });
            if there {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Settles this future when there is something to take.
    fn notify(&self, future: Py<PyAny>) {
        let mut arrived = self.shared.lock();
        if arrived.results.is_empty() && !arrived.over {
            arrived.waiter = Some(future);
            return;
        }
        drop(arrived);
        self.shared.ready.push(future, None);
    }

    /// Gives up what is left.
    fn close(&self) {
        self.end();
        self.task.abort();
    }
}
