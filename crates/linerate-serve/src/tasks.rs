//! Handlers' coroutines: polled inline, parked while they wait, woken from any thread.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use linerate_net::Conn;

use crate::Response;
use crate::handler::IntoResponse;
use crate::limits::TASKS_KEPT;

/// The woken tasks, and how to wake their thread.
pub(crate) struct WokenTasks {
    woken: Mutex<Vec<u32>>,
    /// The loop waits, or is about to.
    asleep: AtomicBool,
    thread: linerate_net::Waker,
}

impl WokenTasks {
    pub(crate) fn new(thread: linerate_net::Waker) -> Arc<WokenTasks> {
        Arc::new(WokenTasks { woken: Mutex::default(), asleep: AtomicBool::new(false), thread })
    }

    fn push(&self, task: u32) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.thread.wake();
        }
    }

    /// Takes the woken tasks, in the order they were woken.
    pub(crate) fn take(&self, into: &mut Vec<u32>) {
        into.clear();
        std::mem::swap(into, &mut self.woken.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Announces that the loop will wait; `false`: it must not, because there is work.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let idle = self.woken.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !idle {
            self.wake_up();
        }
        idle
    }

    /// Announces that the loop runs.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// Stands for a task's number if a body was read after its response, when no task is left, and has
/// room again.
pub(crate) const ROOM_MADE: u32 = u32::MAX;

/// A task's own waker, which remembers whether the task is queued already.
struct Signal {
    task: u32,
    queued: AtomicBool,
    ready: Arc<WokenTasks>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.task);
        }
    }
}

/// The result of a poll.
pub(crate) enum Polled {
    /// The response.
    Ready(Response),
    /// It waits.
    Pending,
    /// It panicked.
    Panicked,
}

struct Task<F> {
    /// Its box outlives the future, for the next one.
    future: Pin<Box<Option<F>>>,
    signal: Arc<Signal>,
    waker: Waker,
    owner: Option<Conn>,
    /// It has no coroutine: a response is polled in its name.
    streams: bool,
}

/// All tasks of a thread.
pub(crate) struct Tasks<F> {
    table: Vec<Option<Task<F>>>,
    free: Vec<u32>,
    ready: Arc<WokenTasks>,
    parked: usize,
    streaming: usize,
    room_made: Arc<Signal>,
}

impl<F: Future<Output: IntoResponse>> Tasks<F> {
    pub(crate) fn new(ready: Arc<WokenTasks>) -> Tasks<F> {
        let room_made =
            Arc::new(Signal { task: ROOM_MADE, queued: AtomicBool::new(false), ready: Arc::clone(&ready) });
        Tasks { table: Vec::new(), free: Vec::new(), ready, parked: 0, streaming: 0, room_made }
    }

    /// Number of waiting handlers.
    pub(crate) fn parked(&self) -> usize {
        self.parked - self.streaming
    }

    /// Number of responses being produced.
    pub(crate) fn streaming(&self) -> usize {
        self.streaming
    }

    /// Creates a coroutine and polls it at once. The number is valid if the task is pending.
    pub(crate) fn start(&mut self, make: impl FnOnce() -> F) -> (u32, Polled) {
        let id = self.take();
        let Some(task) = self.table[id as usize].as_mut() else { return (id, Polled::Panicked) };
        let polled = catch_unwind(AssertUnwindSafe(|| {
            task.future.set(Some(make()));
            poll(task)
        }));
        (id, self.settle(id, polled))
    }

    /// Records the connection of a pending task.
    pub(crate) fn park(&mut self, id: u32, owner: Conn) {
        if let Some(task) = self.table[id as usize].as_mut() {
            task.owner = Some(owner);
            self.parked += 1;
        }
    }

    /// The connection it works for; `None` once it has ended.
    pub(crate) fn owner(&self, id: u32) -> Option<Conn> {
        self.table.get(id as usize)?.as_ref()?.owner
    }

    /// Polls a parked task that was woken.
    pub(crate) fn poll(&mut self, id: u32) -> Polled {
        let Some(task) = self.table[id as usize].as_mut() else { return Polled::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| poll(task)));
        self.settle(id, polled)
    }

    /// Allows a task to be woken again; call it before polling, or if the wakeup came too late.
    pub(crate) fn unqueue(&self, id: u32) {
        if id == ROOM_MADE {
            self.room_made.queued.store(false, Ordering::Release);
        }
        if let Some(Some(task)) = self.table.get(id as usize) {
            task.signal.queued.store(false, Ordering::Release);
        }
    }

    /// The waker of a task, for other things polled in its name.
    pub(crate) fn waker(&self, id: u32) -> Option<Waker> {
        Some(self.table.get(id as usize)?.as_ref()?.waker.clone())
    }

    /// The waker for readers of a body after its response.
    pub(crate) fn room_made(&self) -> Waker {
        Waker::from(Arc::clone(&self.room_made))
    }

    /// Creates a task without a coroutine, in whose name something else is polled.
    pub(crate) fn reserve(&mut self, owner: Conn) -> u32 {
        let id = self.take();
        self.park(id, owner);
        if let Some(task) = self.table[id as usize].as_mut() {
            task.streams = true;
            self.streaming += 1;
        }
        id
    }

    /// Ends a task, whatever it was doing.
    pub(crate) fn cancel(&mut self, id: u32) {
        // A handler's destructors may panic as its code may.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(task) = self.table[id as usize].as_mut() {
                task.future.set(None);
            }
        }));
        self.release(id);
    }

    fn settle(&mut self, id: u32, polled: std::thread::Result<Poll<Response>>) -> Polled {
        match polled {
            Ok(Poll::Pending) => Polled::Pending,
            Ok(Poll::Ready(output)) => {
                self.release(id);
                Polled::Ready(output)
            }
            Err(_) => {
                self.cancel(id);
                Polled::Panicked
            }
        }
    }

    fn release(&mut self, id: u32) {
        debug_assert!(!self.free.contains(&id), "a place that is free twice would have two handlers");
        let slot = &mut self.table[id as usize];
        if let Some(task) = slot
            && task.owner.take().is_some()
        {
            self.parked -= 1;
            self.streaming -= usize::from(std::mem::take(&mut task.streams));
        }
        if self.free.len() >= TASKS_KEPT {
            *slot = None;
        }
        self.free.push(id);
    }

    /// Takes a free task, or creates one.
    fn take(&mut self) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            (self.table.len() - 1) as u32
        });
        let ready = &self.ready;
        self.table[id as usize].get_or_insert_with(|| {
            let signal =
                Arc::new(Signal { task: id, queued: AtomicBool::new(false), ready: Arc::clone(ready) });
            let waker = Waker::from(Arc::clone(&signal));
            Task { future: Box::pin(None), signal, waker, owner: None, streams: false }
        });
        debug_assert!(
            self.table[id as usize].as_ref().is_some_and(|t| t.future.is_none() && t.owner.is_none()),
            "a place that is free has nothing of the handler before"
        );
        id
    }
}

/// Polls a task, and frees it once it is ready. The caller catches panics of both.
fn poll<F: Future<Output: IntoResponse>>(task: &mut Task<F>) -> Poll<Response> {
    let Some(future) = task.future.as_mut().as_pin_mut() else { return Poll::Pending };
    let polled = future.poll(&mut Context::from_waker(&task.waker));
    if polled.is_ready() {
        task.future.set(None);
    }
    polled.map(IntoResponse::into_response)
}
