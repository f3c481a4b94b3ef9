//! Where a core publishes its progress and reads the order to stop. The core looks at it once per
//! loop turn. It takes the lock only when a snapshot is requested or a second has passed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use linerate_net::{FlowInfo, TcpTotals, Time};

use super::recorder::Recorder;
use crate::histogram::Histogram;
use crate::outcome::{Bytes, Segments, Snapshot, TcpEvents};
use crate::request_log;

/// Marks kept when they are not collected. Reason: the collector runs ten times a second.
const MARKS: usize = 64;

/// Shared between one core and the thread that watches the run.
#[derive(Debug, Default)]
pub(crate) struct Board {
    stop: AtomicBool,
    given_up: AtomicBool,
    shut: AtomicBool,
    common: Arc<Common>,
    wanted: AtomicBool,
    /// The thread that works, 0 when none does.
    worker: AtomicU32,
    word: Mutex<Word>,
    /// A watcher requests the connections of user-space TCP.
    flows_wanted: AtomicBool,
    flows: Mutex<Vec<FlowInfo>>,
}

/// State that all cores of a run share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// Cores, and those that have given up the server.
    cores: AtomicU32,
    given_up: AtomicU32,
    /// Cores whose connections the server keeps open without admitting a request.
    shut: AtomicU32,
    /// A connection was established (`true`), or all cores had given up before one was: what came first holds, or one
    /// core would end while another begins.
    reached: OnceLock<bool>,
    /// A byte came back.
    heard: AtomicBool,
    /// Attempts to connect got no reply until the end.
    hanging: AtomicBool,
    /// Connections that the server has not accepted, while it has accepted none.
    unaccepted: AtomicU64,
    /// Takes the outcome of each request.
    log: Option<request_log::Sender>,
}

impl Common {
    /// With a log of requests, if there is one.
    pub(crate) fn logging(log: Option<request_log::Sender>) -> Common {
        Common { log, ..Common::default() }
    }

    /// What all cores know about another host.
    pub(crate) fn of_another_host(&self) -> Common {
        Common::logging(self.log.clone())
    }
}

#[derive(Debug, Default)]
struct Word {
    snapshot: Option<Snapshot>,
    marks: Vec<Mark>,
    /// The figures for all further seconds: the core has ended.
    last: Option<Mark>,
}

/// Cumulative figures at the end of a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    pub(crate) bad: u64,
    pub(crate) bytes: Bytes,
    pub(crate) latency: Histogram,
    pub(crate) waited: Histogram,
    pub(crate) tcp: TcpEvents,
    pub(crate) segments: Option<Segments>,
}

impl Mark {
    /// Several cores' together.
    pub(crate) fn sum<'a>(marks: impl Iterator<Item = &'a Mark>) -> Mark {
        let mut sum = Mark::default();
        for mark in marks {
            sum.answered += mark.answered;
            sum.failed += mark.failed;
            sum.unknown += mark.unknown;
            sum.bad += mark.bad;
            sum.bytes.merge(&mark.bytes);
            sum.latency.merge(&mark.latency);
            sum.waited.merge(&mark.waited);
            sum.tcp.merge(&mark.tcp);
            Segments::merge_options(&mut sum.segments, mark.segments.as_ref());
        }
        sum
    }

    fn of(recorder: &Recorder, stack: Option<TcpTotals>) -> Mark {
        Mark {
            answered: recorder.requests.answered,
            failed: recorder.requests.failed,
            unknown: recorder.requests.unknown,
            bad: recorder.bad.total(),
            bytes: recorder.bytes,
            latency: recorder.latency.clone(),
            waited: recorder.waited.clone(),
            tcp: recorder.tcp_events(),
            segments: recorder.segments(stack.as_ref()),
        }
    }
}

impl Board {
    /// One that shares what all cores know.
    pub(crate) fn sharing(common: &Arc<Common>) -> Board {
        common.cores.fetch_add(1, Ordering::Relaxed);
        Board { common: Arc::clone(common), ..Board::default() }
    }

    /// Sets the thread that works for this core now.
    pub(crate) fn work_on(&self, thread: Option<u32>) {
        self.worker.store(thread.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn worker(&self) -> Option<u32> {
        Some(self.worker.load(Ordering::Relaxed)).filter(|thread| *thread > 0)
    }

    pub(crate) fn say_reached(&self) {
        self.common.reached.get_or_init(|| true);
    }

    /// Whether any core ever had a connection.
    pub(crate) fn reached(&self) -> bool {
        self.common.reached.get().is_some_and(|reached| *reached)
    }

    /// This core has tried often enough, or has ended.
    pub(crate) fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::Relaxed) {
            self.common.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether every core has given up a server that none has reached. One that gave up alone would
    /// keep its share of the requests, if a server that is just starting lets the others in.
    pub(crate) fn all_gave_up(&self) -> bool {
        let Common { given_up, cores, reached, .. } = &*self.common;
        let all = given_up.load(Ordering::Relaxed) >= cores.load(Ordering::Relaxed);
        all && !reached.get_or_init(|| false)
    }

    /// Whether the server has admitted no request of this core, although there are connections.
    pub(crate) fn say_shut(&self, is_shut: bool) {
        match (self.shut.swap(is_shut, Ordering::Relaxed), is_shut) {
            (false, true) => drop(self.common.shut.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.common.shut.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Whether the server has admitted no request of any core. One that ended alone would keep its
    /// share of the requests, though the others go on.
    pub(crate) fn all_shut(&self) -> bool {
        self.common.shut.load(Ordering::Relaxed) >= self.common.cores.load(Ordering::Relaxed)
    }

    /// At its end a core says whether it got any response, and whether attempts to connect were
    /// left hanging.
    pub(crate) fn say_at_end(&self, heard: bool, hanging: bool) {
        self.common.heard.fetch_or(heard, Ordering::Relaxed);
        self.common.hanging.fetch_or(hanging, Ordering::Relaxed);
    }

    /// The kernel of the server, where it is this one, says how many connections wait to be
    /// accepted.
    pub(crate) fn say_unaccepted(&self, connections: u64) {
        self.common.unaccepted.store(connections, Ordering::Relaxed);
    }

    pub(crate) fn unaccepted(&self) -> u64 {
        self.common.unaccepted.load(Ordering::Relaxed)
    }

    /// Connections are not accepted: they wait in the listener's queue, or it is full, and no byte
    /// came back on any of them.
    pub(crate) fn never_accepted(&self) -> bool {
        let waiting = self.common.hanging.load(Ordering::Relaxed) || self.unaccepted() > 0;
        waiting && !self.common.heard.load(Ordering::Relaxed)
    }

    /// Where what becomes of each request goes, if anywhere.
    pub(crate) fn log(&self) -> Option<request_log::Sender> {
        self.common.log.clone()
    }

    fn word(&self) -> MutexGuard<'_, Word> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ask_for_flows(&self) {
        self.flows_wanted.store(true, Ordering::Release);
    }

    pub(crate) fn flows_wanted(&self) -> bool {
        self.flows_wanted.load(Ordering::Acquire)
    }

    /// Publishes the requested connections.
    pub(crate) fn show_flows(&self, flows: Vec<FlowInfo>) {
        *self.flows.lock().unwrap_or_else(PoisonError::into_inner) = flows;
        self.flows_wanted.store(false, Ordering::Release);
    }

    /// Those that were shown last.
    pub(crate) fn flows(&self) -> Vec<FlowInfo> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the core to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a watcher requests a snapshot.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Takes the last snapshot and the marks, and asks for the next snapshot. The last: the core's final mark, once it has ended.
    pub(crate) fn collect(&self) -> (Option<Snapshot>, Vec<Mark>, Option<Mark>) {
        let mut word = self.word();
        self.wanted.store(true, Ordering::Relaxed);
        (word.snapshot.take(), std::mem::take(&mut word.marks), word.last.clone())
    }

    /// `stack`: what a TCP of our own counts.
    pub(crate) fn mark(&self, recorder: &Recorder, stack: Option<TcpTotals>) {
        let mark = Mark::of(recorder, stack);
        let mut word = self.word();
        if word.marks.len() < MARKS {
            word.marks.push(mark);
        }
    }

    /// As [`Board::mark`], for all seconds to come: the core ends.
    pub(crate) fn mark_last(&self, recorder: &Recorder, stack: Option<TcpTotals>) {
        self.word().last = Some(Mark::of(recorder, stack));
    }

    /// As [`Board::mark`]; also how many requests are in flight, and how many are due and have not left.
    pub(crate) fn publish(
        &self,
        now: Time,
        recorder: &Recorder,
        (in_flight, overdue): (u64, u64),
        open: u64,
        stack: Option<TcpTotals>,
    ) {
        let snapshot = Snapshot {
            measuring: recorder.measuring(now),
            measured: recorder.measured(now),
            requests: recorder.requests,
            bad: recorder.bad,
            failures: recorder.failures.clone(),
            status: recorder.statuses().collect(),
            in_flight,
            overdue,
            open,
            bytes: recorder.bytes,
            connections: recorder.connections,
            tcp: recorder.tcp_events(),
            looked_at: recorder.tcp.looked_at,
            segments: recorder.segments(stack.as_ref()),
            stack,
            latency: recorder.latency.clone(),
            waited: recorder.waited.clone(),
            by_name: recorder.named_so_far(),
            ..Snapshot::default()
        };
        self.word().snapshot = Some(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that begins to listen just as the last core gives up.
    #[test]
    fn cores_agree_on_whether_the_server_was_reached() {
        for first in [true, false] {
            let common = Arc::new(Common::default());
            let [one, other] = [(); 2].map(|()| Board::sharing(&common));
            one.give_up();
            assert!(!one.all_gave_up() && !one.reached());
            other.give_up();
            if first {
                other.say_reached();
            }
            assert_eq!(one.all_gave_up(), !first, "the first core looks");
            other.say_reached();
            assert_eq!([other.all_gave_up(), other.reached()], [!first, first], "the other agrees");
        }
    }
}
