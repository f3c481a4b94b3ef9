//! Handlers in tests, without a server and without waiting: a request is built, the handler called, its response read.
//!
//! ```
//! use linerate_serve::{Request, Response, sleep, testing};
//!
//! async fn greet(request: Request) -> Response {
//!     sleep(std::time::Duration::from_secs(3600)).await; // passes at once in a test
//!     Response::text(format!("hello {}\n", request.query().unwrap_or("you")))
//! }
//!
//! let mut response = testing::call(&greet, Request::builder("GET", "/?Ann").build()?);
//! assert_eq!((response.code(), response.field("content-type")), (200, Some("text/plain; charset=utf-8")));
//! assert_eq!(testing::body(&mut response)?, "hello Ann\n");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

use std::cell::RefCell;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::handler::{Handler, IntoResponse};
use crate::threads::runtime::{RuntimeThread, TokioRuntime};
use crate::timers::{self, Timers};
use crate::{Request, Response};

/// Timeout without a wakeup. Reason: a failing test says more than one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that [`body`] reads, at most. Reason: an endless stream must not fill the memory.
const BODY: usize = 64 << 20;

/// Calls a handler and waits for its response, on this thread.
///
/// # Panics
/// As [`block_on`].
pub fn call<H: Handler>(handler: &H, request: Request) -> Response {
    block_on(handler.call(request)).into_response()
}

/// Reads the body of a response, a streamed one to its end.
///
/// # Errors
/// The stream fails, or has more than 64 MiB.
///
/// # Panics
/// As [`block_on`].
pub fn body(response: &mut Response) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
    block_on(response.collect(BODY))
}

/// Runs a handler's future to its end. [`sleep`](crate::sleep) returns at once, in the order of the
/// times. tokio's timers, sockets and tasks use the current runtime, or a new one.
///
/// # Panics
/// Nothing wakes the future for a minute.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let own = if Handle::try_current().is_ok() {
        None
    } else {
        // If no runtime can be started the future has none, and fails if it needs one.
        RuntimeThread::start(&TokioRuntime::PerLoop, 1).ok()
    };
    let _inside = own.as_ref().map(|runtime| runtime.handle().enter());
    let timers: Rc<RefCell<Timers>> = Rc::default();
    let _entered = Entered::new(&timers);
    let signal = Arc::new(Signal { woken: AtomicBool::new(false), thread: std::thread::current() });
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let next = timers.borrow().next();
        if signal.woken.swap(false, Ordering::AcqRel) {
            continue;
        }
        match next {
            Some(at) => timers.borrow_mut().advance(at),
            None => signal.wait(),
        }
    }
}

/// The timers of this call, and those active before it.
struct Entered(Option<Rc<RefCell<Timers>>>);

impl Entered {
    fn new(timers: &Rc<RefCell<Timers>>) -> Entered {
        Entered(timers::replace(Some(Rc::clone(timers))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        timers::replace(self.0.take());
    }
}

struct Signal {
    woken: AtomicBool,
    thread: Thread,
}

impl Signal {
    fn wait(&self) {
        let begun = std::time::Instant::now();
        while !self.woken.swap(false, Ordering::AcqRel) {
            assert!(begun.elapsed() < PATIENCE, "nothing has woken the handler for {PATIENCE:?}");
            std::thread::park_timeout(PATIENCE);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
