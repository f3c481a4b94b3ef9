//! Blocking work, on a bounded pool of threads.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Threads of the pool. Reason: blocking work waits for disks and other machines; more of it at
/// once helps neither.
const THREADS: usize = 16;
/// Work that waits for a thread; beyond it, [`blocking`] returns [`BlockingError::Busy`] at once.
/// Reason: a response that arrives after its client has given up is worthless.
const QUEUE: usize = 256;
/// Threads that check passwords, and as many that compress, unless the machine has fewer cores.
/// Reason: they use CPU, and each core also runs an event loop.
const COMPUTING: usize = 4;
/// Password checks that wait for such a thread. Reason: as above; each takes 50 ms or more.
const HASHES: usize = 64;
/// Texts that are compressed or wait for it; beyond, texts leave as they are. Reason: a response
/// should not wait for many others' compression.
pub(crate) const COMPRESSIONS: usize = 16;
/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// Why blocking work gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    /// Too much work waits already. As a response: 503 with `Retry-After`.
    #[error("too much blocking work is waiting already")]
    Busy,
    /// The work panicked. As a response: 500.
    #[error("the blocking work panicked")]
    Panicked,
}

/// Runs `work` on the pool while the handler that awaits it is parked.
///
/// ```
/// use linerate_serve::{Request, Response, blocking, testing};
///
/// async fn hosts(_: Request) -> Response {
///     match blocking(|| std::fs::read_to_string("/etc/hosts")).await {
///         Ok(Ok(text)) => Response::text(text),
///         Ok(Err(_)) => Response::status(404),
///         Err(full) => full.into(),
///     }
/// }
///
/// let response = testing::call(&hosts, Request::builder("GET", "/").build()?);
/// assert!([200, 404].contains(&response.code()));
/// # Ok::<(), linerate_serve::BadRequest>(())
/// ```
///
/// # Errors
/// [`BlockingError`] if the pool is full or the work panics; both convert to a response: `Err(e) =>
/// e.into()`.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    on(POOL.get_or_init(|| BlockingPool::new("blocking", THREADS, QUEUE)), work)
}

/// As [`blocking`], for password checks, which have a few threads of their own: in a storm of
/// logins they wait for each other, while files are still read.
pub(crate) fn hashing<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    on(POOL.get_or_init(|| BlockingPool::new("passwords", computing(), HASHES)), work)
}

/// As [`blocking`], for compression, which has a few threads of its own for the same reason.
pub(crate) fn compressing<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    on(POOL.get_or_init(|| BlockingPool::new("compression", computing(), COMPRESSIONS)), work)
}

/// Threads for work that uses CPU.
fn computing() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).clamp(1, COMPUTING)
}

fn on<T: Send + 'static>(
    pool: &'static BlockingPool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Blocking<T> {
    let shared = Arc::new(Mutex::new(BlockingShared { result: None, waker: None }));
    let theirs = Arc::clone(&shared);
    let job = Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(work)).map_err(|_| BlockingError::Panicked);
        let waker = {
            let mut shared = lock(&theirs);
            shared.result = Some(result);
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    if !pool.give(job) {
        lock(&shared).result = Some(Err(BlockingError::Busy));
    }
    Blocking { shared }
}

/// The future of [`blocking`].
#[derive(Debug)]
#[must_use = "the result comes when it is awaited"]
pub struct Blocking<T> {
    shared: Arc<Mutex<BlockingShared<T>>>,
}

#[derive(Debug)]
struct BlockingShared<T> {
    result: Option<Result<T, BlockingError>>,
    waker: Option<Waker>,
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, BlockingError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = lock(&self.shared);
        match shared.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                shared.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

struct BlockingPool {
    name: &'static str,
    threads: usize,
    queue: usize,
    state: Mutex<BlockingState>,
    more: Condvar,
}

#[derive(Default)]
struct BlockingState {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockingPool {
    fn new(name: &'static str, threads: usize, queue: usize) -> BlockingPool {
        BlockingPool { name, threads, queue, state: Mutex::default(), more: Condvar::new() }
    }

    /// Queues a job; false if there was no room.
    fn give(&'static self, job: Job) -> bool {
        let mut state = lock(&self.state);
        if state.queue.len() >= self.queue {
            return false;
        }
        if state.idle <= state.queue.len() && state.threads < self.threads {
            let spawned = std::thread::Builder::new().name(self.name.to_owned()).spawn(|| self.work());
            if spawned.is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                return false;
            }
        }
        state.queue.push_back(job);
        self.more.notify_one();
        true
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A result that is no longer awaited is dropped here, and its destructor may panic.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let (woken, timed_out) =
                self.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timed_out.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Response;
    use std::task::Wake;

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait<T>(mut work: Blocking<T>) -> Result<T, BlockingError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match Pin::new(&mut work).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn results_panics_and_a_full_pool() {
        assert_eq!(wait(blocking(|| 2 + 2)), Ok(4));
        assert_eq!(wait(blocking(|| panic!("as the test wants"))), Err::<(), _>(BlockingError::Panicked));
        // Fills the pool and its queue with work that waits for the test.
        let gate = Arc::new(Mutex::new(()));
        let closed = lock(&gate);
        let waiting: Vec<_> = (0..THREADS + QUEUE)
            .map(|_| {
                let gate = Arc::clone(&gate);
                blocking(move || drop(lock(&gate)))
            })
            .collect();
        // Threads take from the queue at their own pace: with twice the queue's size it is
        // certainly full.
        let more: Vec<_> = (0..QUEUE).map(|_| blocking(|| ())).collect();
        drop(closed);
        let busy = more.into_iter().map(wait).filter(|r| *r == Err(BlockingError::Busy)).count();
        assert!(busy > 0);
        assert!(waiting.into_iter().map(wait).filter(Result::is_ok).count() >= QUEUE);
        // Passwords have a pool of their own.
        let gate = Arc::new(Mutex::new(()));
        let closed = lock(&gate);
        let hashes: Vec<_> = (0..2 * HASHES + COMPUTING)
            .map(|_| {
                let gate = Arc::clone(&gate);
                hashing(move || drop(lock(&gate)))
            })
            .collect();
        assert_eq!(wait(blocking(|| 3)), Ok(3));
        drop(closed);
        let done = hashes.into_iter().map(wait).filter(Result::is_ok).count();
        assert!((HASHES..2 * HASHES + COMPUTING).contains(&done), "{done}");
        let answer = Response::from(BlockingError::Busy);
        assert_eq!(answer.code(), 503);
        assert!(answer.fields.has("retry-after"));
    }
}
