//! The threads that wait.

use linerate_net::sockets::{ERR, HUP, PollSetId, SocketId};

use crate::kernel;

/// What a thread waits for.
#[derive(Clone, Debug)]
pub(crate) enum WaitedFor {
    /// Readiness of sockets, by epoll's bits.
    Sockets(Vec<(SocketId, u32)>),
    /// Any socket of a set.
    Set(PollSetId),
}

struct WaitingThread {
    event: i32,
    for_what: WaitedFor,
    is_told: bool,
    is_driver: bool,
}

/// The threads that wait.
#[derive(Default)]
pub(crate) struct Waiters {
    waiting: Vec<WaitingThread>,
    /// Eventfds of those that waited before.
    spare: Vec<i32>,
    /// The link has failed.
    pub(crate) is_lost: bool,
}

impl Waiters {
    pub(crate) fn has_driver(&self) -> bool {
        self.waiting.iter().any(|waiter| waiter.is_driver)
    }

    pub(crate) fn has_any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the eventfd by which the new waiter is known, and whether it is the driver.
    pub(crate) fn enter(&mut self, for_what: WaitedFor) -> Result<(i32, bool), i32> {
        let event = self.spare.pop().map_or_else(kernel::event_fd, Ok)?;
        let is_driver = !self.has_driver();
        self.waiting.push(WaitingThread { event, for_what, is_told: false, is_driver });
        Ok((event, is_driver))
    }

    /// A waiter waits no more.
    pub(crate) fn leave(&mut self, event: i32) {
        let Some(at) = self.waiting.iter().position(|waiter| waiter.event == event) else { return };
        if self.waiting.swap_remove(at).is_told {
            kernel::drain_event(event);
        }
        self.spare.push(event);
    }

    /// Wakes those whose sockets are ready.
    pub(crate) fn tell(
        &mut self,
        readiness: impl Fn(SocketId) -> u32,
        may_have_ready: impl Fn(PollSetId) -> bool,
    ) {
        for waiter in self.waiting.iter_mut().filter(|waiter| !waiter.is_told) {
            let is_ready = match &waiter.for_what {
                WaitedFor::Sockets(sockets) => {
                    sockets.iter().any(|(id, wanted)| readiness(*id) & (wanted | ERR | HUP) != 0)
                }
                WaitedFor::Set(set) => may_have_ready(*set),
            };
            if is_ready {
                waiter.is_told = true;
                kernel::signal_event(waiter.event);
            }
        }
    }

    /// Without a driver, another waiter becomes it.
    pub(crate) fn hand_over(&mut self) {
        if self.has_driver() {
            return;
        }
        if let Some(waiter) = self.waiting.iter_mut().find(|waiter| !waiter.is_told) {
            waiter.is_told = true;
            kernel::signal_event(waiter.event);
        }
    }
}
