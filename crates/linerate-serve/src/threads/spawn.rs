//! Starts a server: its threads, one after the other.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use linerate_http::server::RequestHead;
use linerate_net::link::xdp::Steer;
use linerate_net::open::Prepared;
use linerate_net::share::Companion;

use crate::clients::Clients;
use crate::content::routes::Routes;
use crate::content::site::{SharedContent, Site, SitePlan};
use crate::flows::{Desk, Scans};
use crate::listening::bind_all;
use crate::message::responding::{Responding, Waits};
use crate::notice::{Lack, Misdirected, Notice};
use crate::options::ServerOptions;
use crate::orders::Post;
use crate::stats::counts::{Counts, ThreadCounts};
use crate::threads::handle::{Handle, RunningThread, ThreadsEnd, sum};
use crate::threads::runtime::RuntimeThread;
use crate::threads::secure::Spoken;
use crate::threads::thread::Thread;
use crate::watch::Watchdog;
use crate::{Address, Handler, IntoResponse, Request, RouteLimits};

/// Starts a server with the built-in routes ([`Routes`]).
///
/// ```
/// let server = linerate_serve::spawn(linerate_serve::ServerOptions::default())?;
/// println!("listening on http://{}", server.addr());
/// server.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// An address cannot be listened on, or the kernel lacks a feature.
pub fn spawn(options: ServerOptions) -> io::Result<Handle> {
    spawn_site(options, SharedContent::default())
}

/// Starts a server with files of a directory, the built-in routes, or both.
///
/// ```
/// use linerate_serve::{Content, FileRoot, ServerOptions, SharedContent, spawn_site};
///
/// # let folder = std::env::temp_dir();
/// let content = Content { root: Some(FileRoot::open(&folder)?), routes: false, ..Content::default() };
/// let shared = SharedContent::new(content);
/// let server = spawn_site(ServerOptions::default(), shared.clone())?;
/// // Later, while it serves: other content, without a new connection.
/// shared.replace(Content::default());
/// server.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`spawn`].
pub fn spawn_site(options: ServerOptions, content: SharedContent) -> io::Result<Handle> {
    let own_tcp = options.io.is_user_space();
    spawn_own(options, |counts, flows| {
        let routes = Routes::new(counts);
        let routes = if own_tcp { routes.with_flows(flows) } else { routes };
        let plan = SitePlan::new(routes, content);
        Arc::new(move || OwnHandler::Site(plan.site()))
    })
}

/// The handlers whose loop is compiled here. One type for all of them: the loop is compiled once for each type of
/// handler and transport, and in each crate that names a type, which takes a megabyte for each type of handler.
enum OwnHandler {
    /// A site, with the limits of its routes.
    Site(Site),
    /// The handler of a server that need not be fast.
    Boxed(Box<dyn ErasedHandler>),
}

/// A handler whose future is on the heap.
trait ErasedHandler {
    fn call_boxed(&self, request: Request) -> Waits;
    fn route_limits(&self, head: &RequestHead, listener: Option<&Address>) -> RouteLimits;
}

impl<H: Handler> ErasedHandler for H {
    fn call_boxed(&self, request: Request) -> Waits {
        let future = self.call(request);
        Box::pin(async move { future.await.into_response() })
    }

    fn route_limits(&self, head: &RequestHead, listener: Option<&Address>) -> RouteLimits {
        self.limits(head, listener)
    }
}

impl Handler for OwnHandler {
    type Future = Responding;

    fn call(&self, request: Request) -> Responding {
        match self {
            OwnHandler::Site(site) => site.respond(request),
            OwnHandler::Boxed(handler) => Responding::Waits(handler.call_boxed(request)),
        }
    }

    fn limits(&self, head: &RequestHead, listener: Option<&Address>) -> RouteLimits {
        match self {
            OwnHandler::Site(site) => site.limits(head, listener),
            OwnHandler::Boxed(handler) => handler.route_limits(head, listener),
        }
    }
}

/// Makes each thread's handler, on that thread.
type MakeOwn = Arc<dyn Fn() -> OwnHandler + Send + Sync>;

/// Not generic in what makes the handlers.
fn spawn_own(options: ServerOptions, make: impl FnOnce(CountsFn, Desk) -> MakeOwn) -> io::Result<Handle> {
    spawn_counting(options, |counts, flows| {
        let make = make(counts, flows);
        move || Ok((make(), ()))
    })
}

/// As [`spawn_with`], for a server that need not be fast, such as one for figures of a program: its futures are on
/// the heap, and the loop is not compiled anew for its handler.
///
/// ```
/// use linerate_serve::{Request, Response, ServerOptions, spawn_boxed};
///
/// async fn figures(_: Request) -> Response {
///     Response::text("requests 4\n")
/// }
///
/// let server = spawn_boxed(ServerOptions::default(), || figures)?;
/// server.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`spawn`].
pub fn spawn_boxed<M, H>(options: ServerOptions, make: M) -> io::Result<Handle>
where
    M: Fn() -> H + Send + Sync + 'static,
    H: Handler,
{
    spawn_made(options, Arc::new(move || OwnHandler::Boxed(Box::new(make()))))
}

fn spawn_made(options: ServerOptions, make: MakeOwn) -> io::Result<Handle> {
    spawn_own(options, |_, _| make)
}

/// Starts a server; `make` gives each thread its handler, on that thread.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_with<M, H>(options: ServerOptions, make: M) -> io::Result<Handle>
where
    M: Fn() -> H + Clone + Send + 'static,
    H: Handler,
{
    spawn_counting(options, |_, _| move || Ok((make(), ())))
}

/// Starts a server whose threads have a companion each, such as a client that calls other servers: it works between the
/// turns of the thread's loop, on the loop's transport. `make` gives each thread its handler and its companion, on that
/// thread. The client of `linerate::client` is one: `Builder::build_beside` makes it, with the handle by which handlers call it.
/// `()` is none.
///
/// ```
/// use linerate_serve::{Request, Response, ServerOptions, spawn_beside};
///
/// async fn hello(_: Request) -> Response {
///     Response::text("hello\n")
/// }
///
/// let server = spawn_beside(ServerOptions::default(), || Ok((hello, ())))?;
/// server.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`spawn`], and those of `make`. [`Io::Xdp`](crate::Io::Xdp) has no companions: what other servers send goes to the
/// kernel's TCP there.
pub fn spawn_beside<M, H, C>(options: ServerOptions, make: M) -> io::Result<Handle>
where
    M: Fn() -> io::Result<(H, C)> + Clone + Send + 'static,
    H: Handler,
    C: Companion,
{
    if options.io.is_user_space() {
        let words = "with io xdp only the server's ports are in user space, so that nothing can be called from its \
                     loop\nhint: take io epoll or uring, or a client with a runtime of its own";
        return Err(io::Error::new(io::ErrorKind::Unsupported, words));
    }
    spawn_counting(options, |_, _| make)
}

type CountsFn = Arc<dyn Fn() -> Counts + Send + Sync>;

fn spawn_counting<M, H, C>(
    options: ServerOptions,
    make: impl FnOnce(CountsFn, Desk) -> M,
) -> io::Result<Handle>
where
    M: Fn() -> io::Result<(H, C)> + Clone + Send + 'static,
    H: Handler,
    C: Companion,
{
    let mut options = options;
    let asked = options.listen.clone();
    kernels_alone(&options)?;
    let prepared = prepare(&mut options)?;
    let count = options.threads;
    let counts: Arc<Vec<Arc<ThreadCounts>>> = Arc::new((0..count).map(|_| Arc::default()).collect());
    let desk = Desk::default();
    let make = make(summing(&counts), desk.clone());
    let bound = bind_all(&options.listen)?;
    let tokio = RuntimeThread::start(&options.runtime, count)?;
    let (alive, ending) = mpsc::channel();
    let mut handle = Handle {
        addresses: options.listen.clone(),
        counts,
        stop: Arc::new(AtomicBool::new(false)),
        gate: Arc::default(),
        threads: Vec::new(),
        ending: ThreadsEnd::of(ending),
        drain: options.drain,
        asked,
        bound,
        sockets: options.sockets.clone(),
        spoken: Spoken::new(&options),
        own_tcp: options.io.is_user_space(),
        _tokio: tokio,
    };
    let watchdog = if options.watchdog { Some(Watchdog::spawn(options.notices.clone())?) } else { None };
    let clients = Arc::<Clients>::default();
    let lack = Lack::new(options.notices.clone());
    let misdirected = Misdirected::new(options.notices.clone());
    for (index, transport) in prepared.transports.into_iter().enumerate() {
        let ((tell, told), (orders, inbox)) = (mpsc::channel(), mpsc::channel());
        let thread = Thread {
            index,
            options: ServerOptions { listen: handle.addresses.clone(), ..options.clone() },
            counts: Arc::clone(&handle.counts[index]),
            clients: Arc::clone(&clients),
            stop: Arc::clone(&handle.stop),
            gate: Arc::clone(&handle.gate),
            watchdog: watchdog.clone(),
            lack: lack.clone(),
            misdirected: misdirected.clone(),
            inbox,
            scans: Scans::default(),
            capture: prepared.capture.clone(),
            bound: handle.bound.clone(),
            spoken: handle.spoken.clone(),
            _alive: alive.clone(),
        };
        let (tokio, make) = (handle._tokio.handle().clone(), make.clone());
        let thread = std::thread::Builder::new().name(format!("serve-{index}")).spawn(move || {
            let _inside = tokio.enter();
            thread.run(transport, make, &tell);
        })?;
        let (addresses, waker) = told.recv().map_err(|_| io::Error::other("the server's thread ended"))??;
        handle.addresses = addresses;
        handle.threads.push(RunningThread { thread, post: Post { orders, waker } });
    }
    handle.begin(&desk, alive, options.held);
    Ok(handle)
}

/// Sums the threads' counts at each call.
fn summing(counts: &Arc<Vec<Arc<ThreadCounts>>>) -> CountsFn {
    let counts = Arc::clone(counts);
    Arc::new(move || sum(&counts))
}

/// Refuses options that only the kernel's TCP supports.
fn kernels_alone(options: &ServerOptions) -> io::Result<()> {
    let sockets = !options.sockets.is_empty() || options.listen.iter().any(|at| at.tcp().is_none());
    if options.io.is_user_space() && sockets {
        let words = "Unix sockets and sockets that listen already are the kernel's; with io xdp TCP is not";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    Ok(())
}

/// Prepares a transport for each thread. For user-space TCP it may reduce the threads, and it
/// chooses ports.
fn prepare(options: &mut ServerOptions) -> io::Result<Prepared> {
    let steer = || Steer::Listen(options.listen.iter().filter_map(Address::tcp).collect());
    let mut prepared = options.transport().prepare(options.thread_count(), steer)?;
    for note in prepared.notes.drain(..) {
        options.notices.tell(&Notice::Interface(note));
    }
    options.threads = prepared.transports.len();
    if let Some(listen) = &prepared.listen {
        options.listen = listen.iter().copied().map(Address::Tcp).collect();
    }
    Ok(prepared)
}
