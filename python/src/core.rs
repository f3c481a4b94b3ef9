//! A client and the thread that moves its bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use linerate_client::client::{Client, Error, Hosts, Redirects, RequestOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::caller::Caller;
use crate::error::{closed, raise};
use crate::group::Group;
use crate::limits::{SIGNALS_EVERY, STREAM_WINDOW, USUAL_DEPTH, USUAL_PIPES};
use crate::message::{Response, request_of};
use crate::ready::{CallResult, Ready};
use crate::settings::Settings;
use crate::stream::Stream;

/// What ends with the client.
struct Running {
    client: Caller,
    runtime: Handle,
    /// Dropping it ends the thread.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// A client, for both of the package's classes.
#[pyclass(frozen)]
pub(crate) struct Core {
    running: Mutex<Option<Running>>,
    ready: Arc<Ready>,
    window: usize,
    /// A child of fork has no thread.
    process: u32,
}

/// A call for which a thread of Python waits.
#[derive(Default)]
struct Waited {
    result: Mutex<Option<CallResult>>,
    there: Condvar,
}

impl Waited {
    fn put(&self, result: CallResult) {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.there.notify_one();
    }
}

/// However its task ends, nobody waits for it for ever.
struct Ending(Arc<Waited>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.put(Err(Error::Closed));
    }
}

/// A call that a future of asyncio becomes, however its task ends.
struct Awaited {
    ready: Arc<Ready>,
    future: Option<Py<PyAny>>,
}

impl Awaited {
    fn put(&mut self, result: CallResult) {
        if let Some(future) = self.future.take() {
            self.ready.push(future, Some(result));
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.put(Err(Error::Closed));
    }
}

impl Core {
    fn use_it<T>(&self, py: Python<'_>, f: impl FnOnce(Caller, &Handle) -> T) -> PyResult<T> {
        if self.process != std::process::id() {
            return Err(closed(py, "the client belongs to the process before fork\nhint: make one after it"));
        }
        match &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(running) => Ok(f(running.client.clone(), &running.runtime)),
            None => Err(closed(py, "the client is closed")),
        }
    }

    fn end(&self) -> Option<JoinHandle<()>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        drop((running.client, running.stop));
        // In a child of fork the thread is not there.
        (self.process == std::process::id()).then_some(running.thread)
    }
}

/// Where connections to a host go instead of its addresses.
type HostWays<T> = Vec<(String, T)>;

impl Core {
    fn start(client: Caller, pipes: Option<u32>, depth: Option<u32>) -> PyResult<Core> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("linerate".to_owned()).spawn(move || {
            // Dropped or sent, it means the same.
            let _ = runtime.block_on(stopped);
        })?;
        let (pipes, depth) = (pipes.unwrap_or(USUAL_PIPES) as usize, depth.unwrap_or(USUAL_DEPTH) as usize);
        let window = pipes.saturating_mul(depth).saturating_mul(4);
        Ok(Core {
            running: Mutex::new(Some(Running { client, runtime: handle, stop, thread })),
            ready: Arc::new(Ready::new()?),
            window: window.clamp(2, STREAM_WINDOW),
            process: std::process::id(),
        })
    }
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (url, *, pipes, depth, **settings))]
    fn new(
        py: Python<'_>,
        url: &str,
        pipes: Option<u32>,
        depth: Option<u32>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Core> {
        let builder = Settings::of(pipes, depth, settings)?.apply(Client::builder(url));
        let client = builder.build().map_err(|error| raise(py, error))?;
        Core::start(Caller::One(client), pipes, depth)
    }

    /// A client of several servers.
    #[staticmethod]
    #[pyo3(signature = (*, pipes, depth, origins, connections, redirects, resolve, unix_sockets, **settings))]
    #[expect(clippy::too_many_arguments, reason = "Python gives each by its name")]
    fn of_hosts(
        py: Python<'_>,
        pipes: Option<u32>,
        depth: Option<u32>,
        origins: Option<usize>,
        connections: Option<u32>,
        redirects: Option<u32>,
        resolve: HostWays<Vec<String>>,
        unix_sockets: HostWays<String>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Core> {
        let settings = Settings::of(pipes, depth, settings)?;
        let mut builder = Hosts::builder().each(move |client| settings.apply(client));
        if let Some(origins) = origins {
            builder = builder.origins(origins);
        }
        if let Some(connections) = connections {
            builder = builder.connections(connections);
        }
        if let Some(most) = redirects {
            builder = builder.redirects(Redirects::up_to(most));
        }
        for (host, addresses) in resolve {
            let parsed: Result<Vec<SocketAddr>, _> = addresses.iter().map(|text| text.parse()).collect();
            let words = || format!("resolve: {host:?} is at {addresses:?}\nhint: write [\"ADDRESS:PORT\"]");
            builder = builder.resolve(&host, parsed.map_err(|_| raise(py, Error::Builder(words())))?);
        }
        for (host, path) in unix_sockets {
            builder = builder.unix_socket(&host, path);
        }
        let hosts = builder.build().map_err(|error| raise(py, error))?;
        Core::start(Caller::Many(hosts), pipes, depth)
    }

    /// Origins that have connections now, of a client of several servers.
    fn open_origins(&self, py: Python<'_>) -> PyResult<usize> {
        self.use_it(py, |client, _| match client {
            Caller::One(_) => 1,
            Caller::Many(hosts) => hosts.open_origins(),
        })
    }

    /// Sends a request and waits for its response. Other threads of Python run meanwhile.
    #[pyo3(signature = (request, timeout=None))]
    fn send(&self, py: Python<'_>, request: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Response> {
        let request = timed(py, request_of(request)?, timeout)?;
        let waited = Arc::<Waited>::default();
        let ending = Ending(Arc::clone(&waited));
        let task = self.use_it(py, |client, runtime| {
            runtime.spawn(async move {
                let result = client.send(request).await;
                ending.0.put(result);
            })
        })?;
        loop {
            let result = py.detach(|| {
                let result = waited.result.lock().unwrap_or_else(PoisonError::into_inner);
                let result = waited.there.wait_timeout_while(result, SIGNALS_EVERY, |r| r.is_none());
                result.unwrap_or_else(PoisonError::into_inner).0.take()
            });
            match result {
                Some(Ok(response)) => return Ok(Response(response)),
                Some(Err(error)) => return Err(raise(py, error)),
                None => py.check_signals().inspect_err(|_| task.abort())?,
            }
        }
    }

    /// Sends a request whose response this future of asyncio becomes.
    #[pyo3(signature = (future, request, timeout=None))]
    fn send_to(
        &self,
        py: Python<'_>,
        future: Py<PyAny>,
        request: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Call> {
        let request = timed(py, request_of(request)?, timeout)?;
        let mut awaited = Awaited { ready: Arc::clone(&self.ready), future: Some(future) };
        self.use_it(py, |client, runtime| {
            let task = runtime.spawn(async move { awaited.put(client.send(request).await) });
            Call(task.abort_handle())
        })
    }

    /// Begins a call whose bodies are streams; `uploads`: the request's too.
    #[pyo3(signature = (request, uploads, timeout=None))]
    fn stream(
        &self,
        py: Python<'_>,
        request: &Bound<'_, PyAny>,
        uploads: bool,
        timeout: Option<f64>,
    ) -> PyResult<Stream> {
        let request = timed(py, request_of(request)?, timeout)?;
        let ready = Arc::clone(&self.ready);
        self.use_it(py, |client, runtime| Stream::start(client, runtime, ready, request, uploads))
    }

    /// Begins many calls.
    fn group(&self, py: Python<'_>) -> PyResult<Group> {
        self.use_it(py, |client, runtime| Group::start(client, runtime, Arc::clone(&self.ready), self.window))
    }

    /// The descriptor that is readable when futures are ready.
    fn descriptor(&self) -> i32 {
        self.ready.descriptor()
    }

    /// Settles the futures that are ready.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.ready.settle(py)
    }

    /// The client's counts.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.use_it(py, |client, _| match client {
            Caller::One(client) => Some(client.statistics()),
            Caller::Many(_) => None,
        })?;
        let dict = PyDict::new(py);
        let Some(counts) = counts else { return Ok(dict) };
        dict.set_item("calls", counts.calls)?;
        dict.set_item("responses", counts.responses)?;
        dict.set_item("resent", counts.resent)?;
        dict.set_item("discarded", counts.discarded)?;
        dict.set_item("cancelled", counts.cancelled)?;
        dict.set_item("head_of_line", counts.head_of_line)?;
        dict.set_item("connected", counts.connected)?;
        dict.set_item("lost", counts.lost)?;
        dict.set_item("learnt_limit", counts.learnt_limit)?;
        Ok(dict)
    }

    /// Closes all connections and ends the thread.
    fn close(&self, py: Python<'_>) {
        if let Some(thread) = self.end() {
            // A panic there was printed there.
            py.detach(|| drop(thread.join()));
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Nobody waits for the thread, which ends soon.
        drop(self.end());
    }
}

/// A request with the time of its own.
fn timed(
    py: Python<'_>,
    mut request: http::Request<Bytes>,
    seconds: Option<f64>,
) -> PyResult<http::Request<Bytes>> {
    if let Some(seconds) = seconds {
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|e| raise(py, Error::Request(format!("timeout is {seconds}: {e}").into())))?;
        request.extensions_mut().insert(RequestOptions::default().timeout(time));
    }
    Ok(request)
}
