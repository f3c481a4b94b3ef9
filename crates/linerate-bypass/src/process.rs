//! The one world of the process, and what becomes of it in a panic, in children and at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use linerate_net::Time;

use crate::messages::{tell, tell_once};
use crate::world::BypassWorld;
use crate::{kernel, table, tally};

static WORLD: Mutex<Option<BypassWorld>> = Mutex::new(None);
/// This process was forked from one that has asked for receive queues: it must touch nothing of it.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Descriptors that children close: a socket for each queue that one thread can have, the launcher's, two of a
/// detour, and the capture's.
static HELD: [AtomicI32; 68] = [const { AtomicI32::new(-1) }; 68];
/// The hooks of forks and of the end are set.
static HOOKED: Once = Once::new();
/// The longest time for which the end of a process waits for acknowledgements.
const LINGER: Duration = Duration::from_secs(2);

/// Locks a mutex. A panic of ours in another thread ended the connections, and nothing that is locked is left
/// half changed.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the connections. ECONNRESET if there are none any more. A panic ends them all,
/// and leaves the program to the kernel's listeners.
pub(crate) fn with_world<T>(what: impl FnOnce(&mut BypassWorld) -> Result<T, i32>) -> Result<T, i32> {
    if IS_CHILD.load(Ordering::Acquire) {
        return Err(libc::ENOTCONN);
    }
    let mut guard = locked(&WORLD);
    let Some(world) = guard.as_mut() else { return Err(libc::ECONNRESET) };
    let done = catch_unwind(AssertUnwindSafe(|| what(world)));
    world.to_hold.take().into_iter().for_each(hold);
    let is_lost = done.is_err() || world.waiters.is_lost;
    if is_lost && let Some(world) = guard.take() {
        if done.is_err() {
            tell("a fault of ours ended all connections; the program goes on with the kernel's");
        }
        // Their numbers are the program's again.
        hold(Vec::new());
        // The waiters' descriptors wake nobody any more: their calls find no world.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
    }
    done.unwrap_or(Err(libc::ECONNRESET))
}

/// Notes which descriptors children close.
pub(crate) fn hold(descriptors: Vec<i32>) {
    HOOKED.call_once(|| kernel::at_fork_and_exit(in_child, at_exit));
    let all = descriptors.into_iter().chain(std::iter::repeat(-1));
    HELD.iter().zip(all).for_each(|(held, fd)| held.store(fd, Ordering::Release));
}

/// The process has connections from now on.
pub(crate) fn open(world: BypassWorld) {
    *locked(&WORLD) = Some(world);
    crate::caretaker::start();
}

/// Whether the process was forked from one that has asked for receive queues.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// Whether the process can have connections.
pub(crate) fn has_world() -> bool {
    with_world(|_| Ok(())).is_ok()
}

/// An orphan was used: a forked child has none of its parent's connections.
pub(crate) fn tell_orphan() {
    let program = std::env::args().next().unwrap_or_default();
    tell_once(&format!(
        "process {} was forked from {program} and has none of its connections: servers that fork a process \
         per connection cannot run over TCP in user space",
        std::process::id()
    ));
}

extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Release);
    table::disown();
    tally::disown();
    for held in &HELD {
        let fd = held.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            // It may be closed already.
            let _ = kernel::close(fd);
        }
    }
}

extern "C" fn at_exit() {
    let begin = Instant::now();
    let mut closed = false;
    while begin.elapsed() < LINGER {
        let unsent = with_world(|world| {
            if !std::mem::replace(&mut closed, true) {
                world.close_all();
            }
            world.turn_now();
            world.write_capture(Time::NEVER);
            Ok(world.unacknowledged())
        });
        // A child has no world: it must not touch its parent's.
        if unsent.is_err() || unsent == Ok(0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
