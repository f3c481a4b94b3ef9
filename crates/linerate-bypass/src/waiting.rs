//! Calls that wait. One of the waiting threads, the driver, waits for packets and handles them; the
//! others wait for it to wake them. Nobody holds the lock meanwhile.

use std::time::{Duration, Instant};

use crate::kernel::{self, SignalMask};
use crate::process;
use crate::waiters::WaitedFor;
use crate::world::BypassWorld;

/// Until when a call waits, and with which signals.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    until: Option<Instant>,
    never: bool,
    signals: SignalMask,
}

impl Patience {
    /// For this time at most (`None`: for any time).
    pub(crate) fn of(limit: Option<Duration>, signals: SignalMask) -> Patience {
        let never = limit == Some(Duration::ZERO);
        let until = limit.filter(|_| !never).and_then(|limit| Instant::now().checked_add(limit));
        Patience { until, never, signals }
    }

    fn left(&self) -> Option<Duration> {
        if self.never {
            return Some(Duration::ZERO);
        }
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

/// Waits until `look` returns something; `for_what` says when it is worth looking. `polled`: the
/// kernel's descriptors, which `look` finds in their state. `None`: the time is over.
pub(crate) fn wait<T>(
    patience: Patience,
    polled: &mut Vec<libc::pollfd>,
    mut for_what: impl FnMut(&mut BypassWorld) -> Result<WaitedFor, i32>,
    mut look: impl FnMut(&mut BypassWorld, &[libc::pollfd]) -> Option<Result<T, i32>>,
) -> Result<Option<T>, i32> {
    let own = polled.len();
    loop {
        polled.truncate(own);
        let mut drives = false;
        let entered = process::with_world(|world| {
            let mut found = look(world, polled);
            if found.is_none() {
                world.turn_now();
                found = look(world, polled);
            }
            if let Some(found) = found {
                world.waiters.hand_over();
                return found.map(Ok);
            }
            let left = patience.left();
            if left == Some(Duration::ZERO) {
                world.waiters.hand_over();
                return Ok(Err(None));
            }
            let for_what = for_what(world)?;
            let (event, is_driver) = world.waiters.enter(for_what)?;
            drives = is_driver;
            let limit = if is_driver { rest(world, polled, left) } else { left };
            polled.push(libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 });
            Ok(Err(Some((event, limit))))
        })?;
        let (event, limit) = match entered {
            Ok(found) => return Ok(Some(found)),
            Err(None) => return Ok(None),
            Err(Some(entered)) => entered,
        };
        let waited = kernel::poll(polled, limit, patience.signals);
        process::with_world(|world| {
            world.waiters.leave(event);
            let link = polled.get(own..polled.len() - 1).unwrap_or_default();
            if waited.is_ok() && link.iter().any(|link| link.revents != 0) {
                world.turn_for_news();
            }
            if waited.is_err() {
                world.waiters.hand_over();
            }
            Ok(())
        })?;
        if drives {
            crate::caretaker::wake();
        }
        waited?;
    }
}

/// The driver's descriptors, and how long it may wait.
fn rest(world: &mut BypassWorld, polled: &mut Vec<libc::pollfd>, left: Option<Duration>) -> Option<Duration> {
    let stack = world.net.stack_mut();
    let until = stack.patience(stack.link().write_due());
    let limit = stack.link_mut().link_mut().rest(until);
    for descriptor in stack.link().link().descriptors() {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
        polled.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }
    [limit, left].into_iter().flatten().min()
}
