//! A call whose bodies are streams: Python gives pieces of its request and takes those of its response.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response as HttpResponse;
use http_body::{Body as HttpBody, Frame};
use linerate_client::client::{Body, Error};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

use crate::caller::Caller;
use crate::error::raise;
use crate::limits::{SIGNALS_EVERY, UPLOAD_PIECES};
use crate::message::{Response, bytes_of};
use crate::ready::Ready;

/// The request's body came to no end.
#[derive(Debug)]
struct UploadBroken;

impl std::fmt::Display for UploadBroken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the program's iterator ended by an exception")
    }
}

impl std::error::Error for UploadBroken {}

type UploadPiece = Result<Bytes, UploadBroken>;

/// What has come of the response.
#[derive(Default)]
struct Download {
    head: Option<HttpResponse<()>>,
    /// Python takes it before the next one is read.
    piece: Option<Bytes>,
    over: bool,
    error: Option<Error>,
    /// Futures that wait for a change.
    waiters: Vec<Py<PyAny>>,
}

impl Download {
    fn has_news(&self) -> bool {
        self.head.is_some() || self.piece.is_some() || self.over
    }
}

/// What the client's thread and Python share.
struct StreamShared {
    download: Mutex<Download>,
    changed: Condvar,
    taken: Notify,
    ready: Arc<Ready>,
}

impl StreamShared {
    fn lock(&self) -> MutexGuard<'_, Download> {
        self.download.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Download)) {
        let mut download = self.lock();
        change(&mut download);
        let waiters = std::mem::take(&mut download.waiters);
        drop(download);
        self.changed.notify_all();
        for waiter in waiters {
            self.ready.push(waiter, None);
        }
    }
}

/// However the task ends, nobody waits for it for ever.
struct StreamEnding(Arc<StreamShared>);

impl Drop for StreamEnding {
    fn drop(&mut self) {
        self.0.change(|download| {
            if !download.over {
                download.error = Some(Error::Closed);
            }
            download.over = true;
        });
    }
}

/// The body of the request, from Python's thread.
struct Upload {
    pieces: Receiver<UploadPiece>,
    shared: Arc<StreamShared>,
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = UploadBroken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadBroken>>> {
        let piece = self.pieces.poll_recv(cx);
        if piece.is_ready() {
            // There is room for another one.
            self.shared.change(|_| {});
        }
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// Nothing reads it any more.
impl Drop for Upload {
    fn drop(&mut self) {
        self.pieces.close();
        self.shared.change(|_| {});
    }
}

/// A call whose bodies are streams.
#[pyclass(frozen)]
pub(crate) struct Stream {
    upload: Mutex<Option<Sender<UploadPiece>>>,
    shared: Arc<StreamShared>,
    task: AbortHandle,
}

async fn carry<B>(client: Caller, request: http::Request<B>, ending: StreamEnding)
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let shared = &ending.0;
    let end = |error| {
        shared.change(|download| (download.over, download.error) = (true, error));
    };
    let (head, mut body) = match client.send_streaming(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => return end(Some(error)),
    };
    shared.change(|download| download.head = Some(HttpResponse::from_parts(head, ())));
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                shared.change(|download| download.piece = Some(piece));
                shared.taken.notified().await;
            }
            Err(error) => return end(Some(error)),
        }
    }
    end(None);
}

impl Stream {
    /// Begins the call. `uploads`: the body of the request follows.
    pub(crate) fn start(
        client: Caller,
        runtime: &Handle,
        ready: Arc<Ready>,
        request: http::Request<Bytes>,
        uploads: bool,
    ) -> Stream {
        let shared = Arc::new(StreamShared {
            download: Mutex::default(),
            changed: Condvar::new(),
            taken: Notify::new(),
            ready,
        });
        let ending = StreamEnding(Arc::clone(&shared));
        let (upload, task) = if uploads {
            let (sender, pieces) = channel(UPLOAD_PIECES);
            let body = Upload { pieces, shared: Arc::clone(&shared) };
            (Some(sender), runtime.spawn(carry(client, request.map(|_| body), ending)))
        } else {
            (None, runtime.spawn(carry(client, request.map(Body::from), ending)))
        };
        Stream { upload: Mutex::new(upload), shared, task: task.abort_handle() }
    }

    fn upload(&self) -> MutexGuard<'_, Option<Sender<UploadPiece>>> {
        self.upload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Stream {
    /// Whether the body of the request takes another piece now.
    fn has_room(&self) -> bool {
        self.upload().as_ref().is_some_and(|upload| upload.capacity() > 0)
    }

    /// Whether the request takes pieces at all: it does until its end, or until nothing reads them any more.
    fn uploads(&self) -> bool {
        self.upload().as_ref().is_some_and(|upload| !upload.is_closed())
    }

    /// Gives a piece of the request's body. There has to be room.
    fn push(&self, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        let piece = bytes_of(piece)?;
        if let Some(upload) = &*self.upload() {
            // Closed: the server has answered, and reads no more.
            let _ = upload.try_send(Ok(piece));
        }
        Ok(())
    }

    /// The body of the request is whole.
    fn end(&self) {
        self.upload().take();
    }

    /// The body of the request breaks off.
    fn fail(&self) {
        if let Some(upload) = self.upload().take() {
            // Full: the task ends the call.
            if upload.try_send(Err(UploadBroken)).is_err() {
                self.task.abort();
            }
        }
    }

    /// The head of the response, once it has come.
    fn head(&self, py: Python<'_>) -> PyResult<Option<Response>> {
        let mut download = self.shared.lock();
        if let Some(head) = download.head.take() {
            return Ok(Some(Response(head.map(|()| Bytes::new()))));
        }
        match download.error.take() {
            Some(error) => Err(raise(py, error)),
            None => Ok(None),
        }
    }

    /// The next piece of the response's body, if it has come; empty: that was all.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut download = self.shared.lock();
        if let Some(piece) = download.piece.take() {
            drop(download);
            self.shared.taken.notify_one();
            return Ok(Some(PyBytes::new(py, &piece)));
        }
        match download.error.take() {
            Some(error) => Err(raise(py, error)),
            None => Ok(download.over.then(|| PyBytes::new(py, b""))),
        }
    }

    /// Waits until something has come, or until the request takes a piece if `for_room`. Other threads of Python run
    /// meanwhile.
    fn wait(&self, py: Python<'_>, for_room: bool) -> PyResult<()> {
        loop {
            let is_there = py.detach(|| {
                let download = self.shared.lock();
                let waits =
                    |download: &mut Download| !download.has_news() && !(for_room && self.takes_or_ended());
                let waited = self.shared.changed.wait_timeout_while(download, SIGNALS_EVERY, waits);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            });
            if is_there {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Settles a future of asyncio once something has come, or once the request takes a piece if `for_room`.
    fn notify(&self, future: Py<PyAny>, for_room: bool) {
        let mut download = self.shared.lock();
        let is_there = if for_room { self.takes_or_ended() } else { download.has_news() };
        if is_there {
            drop(download);
            self.shared.ready.push(future, None);
        } else {
            download.waiters.push(future);
        }
    }

    /// Gives the call up, if it has not ended.
    fn close(&self) {
        self.upload().take();
        self.task.abort();
    }
}

impl Stream {
    fn takes_or_ended(&self) -> bool {
        self.has_room() || !self.uploads()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
