//! The parts of an [`Engine`](super::Engine) that know nothing of its handler.

use std::rc::Rc;
use std::sync::Arc;

use linerate_net::{Listener, Time};

use crate::access_log::LogBuffer;
use crate::answer::Asked;
use crate::clients::{ClientRules, Clients};
use crate::connection::Work;
use crate::stats::counts::ThreadCounts;
use crate::watch::{LoopWatch, Watchdog};
use crate::{Address, Draining, limits};

/// Limits for each client, and what all threads know of the clients.
#[derive(Default)]
pub(crate) struct ClientAdmission {
    pub(crate) rules: ClientRules,
    pub(crate) clients: Arc<Clients>,
}

/// Which responses are their connections' last while the server, or a listener, drains.
#[derive(Default)]
pub(crate) struct EngineDrain {
    /// Every further response closes its connection, not only those of listeners that are gone.
    pub(crate) everywhere: bool,
    /// The next response is the last, even if more bytes were received after its request.
    pub(crate) hard: bool,
    /// Signals the drain to handlers.
    pub(crate) signal: Draining,
}

impl EngineDrain {
    /// Whether a response is its connection's last. `leaving`: the connection's listener is gone;
    /// `behind`: bytes received after the request.
    pub(super) fn is_last(&self, leaving: bool, behind: usize) -> bool {
        (self.everywhere || leaving) && (behind == 0 || self.hard)
    }
}

/// The access log of a thread, if it has one.
#[derive(Default)]
pub(crate) struct ResponseLog {
    pub(crate) buffer: Option<LogBuffer>,
    /// Read for durations, in place of the time of the turn.
    pub(crate) clock: Option<fn() -> Time>,
}

/// The addresses of listeners, including removed ones that may still have connections.
#[derive(Default)]
pub(crate) struct ListenerAddresses(Vec<(Listener, Rc<Address>)>);

impl ListenerAddresses {
    pub(crate) fn add(&mut self, listener: Listener, at: Address) {
        self.0.push((listener, Rc::new(at)));
    }

    /// Forgets the listeners that are not wanted any longer.
    pub(crate) fn keep(&mut self, is_wanted: impl Fn(Listener) -> bool) {
        self.0.retain(|(listener, _)| is_wanted(*listener));
    }

    /// The address of a listener. Searches the newest first: a transport may reuse a listener's
    /// number.
    pub(super) fn of(&self, listener: Listener) -> Option<Rc<Address>> {
        self.0.iter().rev().find(|(known, _)| *known == listener).map(|(_, at)| Rc::clone(at))
    }
}

/// Tells the watchdog, if there is one, when a handler runs.
#[derive(Default)]
pub(crate) struct HandlerWatch {
    watch: Option<(Arc<LoopWatch>, Watchdog)>,
    /// Twice the number of handlers that were polled.
    serial: u64,
}

impl HandlerWatch {
    /// Reports to this watchdog about the calling thread.
    pub(crate) fn by(dog: &Watchdog) -> HandlerWatch {
        HandlerWatch { watch: Some((dog.watch(), dog.clone())), serial: 0 }
    }

    /// A handler runs: the watchdog may look.
    #[inline(always)]
    pub(super) fn enter(&mut self) {
        self.serial = self.serial.wrapping_add(2);
        if let Some((watch, _)) = &self.watch {
            watch.enter(self.serial);
        }
    }

    /// The handler has given the thread back.
    #[inline(always)]
    pub(super) fn leave(&self, asked: &Asked, counts: &ThreadCounts) {
        if let Some((watch, dog)) = &self.watch
            && watch.leave()
        {
            blocked(asked, counts, dog);
        }
    }
}

#[cold]
fn blocked(asked: &Asked, counts: &ThreadCounts, dog: &Watchdog) {
    counts.blocked();
    if let Some(head) = &asked.head {
        dog.report(format!("{} {}", head.method_name(), head.path()));
    }
}

/// Empty work areas for the next busy connections.
#[derive(Default)]
pub(crate) struct SpareWorks {
    // Boxed, because they move between here and their connections.
    #[allow(clippy::vec_box)]
    works: Vec<Box<Work>>,
    /// Bytes that their buffers have room for.
    bytes: usize,
}

impl SpareWorks {
    /// An empty work area.
    pub(super) fn take(&mut self) -> Box<Work> {
        let work = self.works.pop().unwrap_or_default();
        self.bytes -= work.capacity();
        work
    }

    /// Keeps a work area, unless there are enough.
    pub(super) fn keep(&mut self, mut work: Box<Work>) {
        if self.works.len() < limits::WORK_KEPT {
            work.reset();
            if self.bytes + work.capacity() > limits::SPARE_TOGETHER {
                *work = Work::default();
            }
            self.bytes += work.capacity();
            self.works.push(work);
        }
    }

    /// How many of them are not empty.
    #[cfg(test)]
    pub(crate) fn unclean(&self) -> usize {
        self.works.iter().filter(|work| !work.is_pristine()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_buffers_keep_to_their_limit() {
        let mut spare = SpareWorks::default();
        let used = || Box::new(Work { input: Vec::with_capacity(200 << 10), ..Work::default() });
        for _ in 0..2 * limits::WORK_KEPT {
            spare.keep(used());
        }
        let bytes = |spare: &SpareWorks| spare.works.iter().map(|work| work.capacity()).sum::<usize>();
        assert_eq!(spare.works.len(), limits::WORK_KEPT);
        assert!(bytes(&spare) <= limits::SPARE_TOGETHER && bytes(&spare) > 0, "{}", bytes(&spare));
        for _ in 0..limits::WORK_KEPT {
            drop(spare.take());
        }
        assert_eq!((bytes(&spare), spare.bytes), (0, 0));
    }
}
