//! The outcome of each request, handed over while the run lasts.
//!
//! Each core collects [`LogEntry`]s and hands them over in chunks. The queue is bounded: if the reader is
//! slower than the responses, entries are left out and counted, and the measurement is not held up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};

use linerate_client::{Failure, Run};
use linerate_net::Time;

use crate::flows::journeys::Journeys;
use crate::limits::{LOG_CHUNK, LOG_CHUNKS};

/// The outcome of a request, or of several whose responses came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Number of the first request in the run (`{{seq}}`).
    pub number: u64,
    /// Distance to the number of the next request.
    pub step: u32,
    /// How many requests it stands for.
    pub count: u32,
    /// Index into the plan's requests.
    pub request: u16,
    /// Sending thread.
    pub thread: u16,
    /// Status of the response; 0 without one.
    pub status: u16,
    /// How it ended.
    pub end: RequestEnd,
    /// When it was due, nanoseconds since measuring began.
    pub due_ns: i64,
    /// When it first left, nanoseconds since measuring began.
    pub sent_ns: i64,
    /// The user of a flow, by its number in the run.
    pub user: Option<u64>,
    /// Times of the response; `None` without one, and where latencies are not measured.
    pub times: Option<ResponseTimes>,
}

impl LogEntry {
    /// The requests one by one.
    pub fn each(self) -> impl Iterator<Item = LogEntry> {
        let number = move |i: u32| self.number + u64::from(i) * u64::from(self.step);
        (0..self.count).map(move |i| LogEntry { number: number(i), count: 1, ..self })
    }
}

/// How many requests these entries stand for.
pub fn requests(entries: &[LogEntry]) -> u64 {
    entries.iter().map(|entry| u64::from(entry.count)).sum()
}

/// Times of a response, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimes {
    /// From sent to its first byte.
    pub first_byte_ns: u64,
    /// From sent to its end.
    pub from_sent_ns: u64,
    /// From due to its end.
    pub from_due_ns: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// By the response that was expected.
    Good,
    /// By another response: what is wrong with it ("bad status").
    Bad(&'static str),
    /// Without a whole response.
    Failed(Failure),
    /// The server may or may not have acted on it.
    Unknown,
}

/// What can be wrong with a response, as [`RequestEnd::Bad`] says it.
pub(crate) const BAD: [&str; 7] =
    ["bad status", "bad encoding", "bad body", "bad trailer", "not as expected", "value missing", "bad tag"];

impl RequestEnd {
    /// As one word or two, for what is written down.
    pub fn word(self) -> &'static str {
        match self {
            RequestEnd::Good => "good",
            RequestEnd::Bad(why) => why,
            RequestEnd::Failed(why) => why.name(),
            RequestEnd::Unknown => "unknown",
        }
    }

    /// The end that a word stands for.
    pub fn of_word(word: &str) -> Option<RequestEnd> {
        let bad = || BAD.into_iter().find(|bad| *bad == word).map(RequestEnd::Bad);
        let failed = || Failure::ALL.into_iter().find(|why| why.name() == word).map(RequestEnd::Failed);
        match word {
            "good" => Some(RequestEnd::Good),
            "unknown" => Some(RequestEnd::Unknown),
            _ => bad().or_else(failed),
        }
    }
}

/// The cores' end of the queue.
#[derive(Clone, Debug)]
pub struct Sender {
    chunks: SyncSender<Vec<LogEntry>>,
    left_out: Arc<AtomicU64>,
}

/// The reader's end of the queue.
#[derive(Debug)]
pub struct Receiver {
    chunks: mpsc::Receiver<Vec<LogEntry>>,
    left_out: Arc<AtomicU64>,
}

/// A queue, for [`start_logged`](crate::start_logged).
pub fn channel() -> (Sender, Receiver) {
    let (to, chunks) = mpsc::sync_channel(LOG_CHUNKS);
    let left_out = Arc::<AtomicU64>::default();
    (Sender { chunks: to, left_out: Arc::clone(&left_out) }, Receiver { chunks, left_out })
}

impl Receiver {
    /// Waits for the next entries; `None` once all cores have ended.
    pub fn next(&self) -> Option<Vec<LogEntry>> {
        self.chunks.recv().ok()
    }

    /// The next entries, if they are there; it does not wait.
    pub fn try_next(&self) -> Option<Vec<LogEntry>> {
        self.chunks.try_recv().ok()
    }

    /// Requests that were left out because the queue was full.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

impl Sender {
    /// Hands entries over, if there is room; else they are left out and counted.
    pub fn hand_over(&self, chunk: Vec<LogEntry>) {
        if let Err(mpsc::TrySendError::Full(chunk) | mpsc::TrySendError::Disconnected(chunk)) =
            self.chunks.try_send(chunk)
        {
            self.left_out.fetch_add(requests(&chunk), Ordering::Relaxed);
        }
    }
}

/// One core's share of the log.
#[derive(Debug)]
pub(crate) struct CoreLog {
    to: Sender,
    held: Vec<LogEntry>,
    /// The core's number and how many there are.
    place: (u64, u64),
    /// Requests of the plan. Kinds beyond are the same ones with a user's cookies.
    requests: u16,
    /// When measuring begins.
    from: Time,
    users: Option<Journeys>,
}

impl CoreLog {
    pub(crate) fn new(to: Sender, place: (u64, u64), requests: u16, from: Time) -> CoreLog {
        let requests = requests.max(1);
        CoreLog { to, held: Vec::with_capacity(LOG_CHUNK), place, requests, from, users: None }
    }

    /// Requests are those of users.
    pub(crate) fn of_users(mut self, users: Option<&Journeys>) -> CoreLog {
        self.users = users.cloned();
        self
    }

    /// The requests of a run have ended.
    #[inline]
    pub(crate) fn note(&mut self, run: &Run, end: RequestEnd, status: u16, times: Option<ResponseTimes>) {
        let (core, cores) = self.place;
        let since = |at: Time| at.as_nanos().wrapping_sub(self.from.as_nanos()).cast_signed();
        self.held.push(LogEntry {
            number: run.first * cores + core,
            step: u32::try_from(cores).unwrap_or(u32::MAX),
            count: run.count,
            request: run.kind % self.requests,
            thread: u16::try_from(core).unwrap_or(u16::MAX),
            status,
            end,
            due_ns: since(run.stamp.due),
            sent_ns: since(run.stamp.sent),
            user: self.users.as_ref().and_then(|users| users.user(run.first)),
            times,
        });
        if self.held.len() >= LOG_CHUNK {
            self.hand_over();
        }
    }

    /// Hands over what is held, if there is room.
    pub(crate) fn hand_over(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let chunk = std::mem::replace(&mut self.held, Vec::with_capacity(LOG_CHUNK));
        self.to.hand_over(chunk);
    }
}

/// The core has ended: now it may wait for room.
impl Drop for CoreLog {
    fn drop(&mut self) {
        let chunk = std::mem::take(&mut self.held);
        if let Err(mpsc::SendError(chunk)) = self.to.chunks.send(chunk) {
            self.to.left_out.fetch_add(requests(&chunk), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_client::Stamp;
    use linerate_http::client::Expect;

    fn run(first: u64, count: u32) -> Run {
        let at = Time::from_nanos(50);
        let stamp = Stamp { sent: at, due: Time::from_nanos(40), in_vain: 0, refused: 0, measured: true };
        Run { stamp, first, count, kind: 1, expect: Expect::default(), idempotent: true }
    }

    #[test]
    fn ends_are_read_back_from_their_words() {
        let failed = Failure::ALL.into_iter().map(RequestEnd::Failed);
        let ends =
            BAD.into_iter().map(RequestEnd::Bad).chain(failed).chain([RequestEnd::Good, RequestEnd::Unknown]);
        for end in ends {
            assert_eq!(RequestEnd::of_word(end.word()), Some(end), "{end:?}");
        }
        assert_eq!(RequestEnd::of_word("worse"), None);
    }

    #[test]
    fn numbers_are_those_of_the_whole_run_and_times_count_from_its_beginning() {
        let (to, from) = channel();
        let mut log = CoreLog::new(to, (1, 4), 4, Time::from_nanos(45));
        log.note(&run(2, 3), RequestEnd::Good, 200, None);
        drop(log);
        let entries = from.next().unwrap();
        let entry = entries[0];
        assert_eq!((entry.number, entry.step, entry.count, entry.thread), (9, 4, 3, 1));
        assert_eq!((entry.due_ns, entry.sent_ns), (-5, 5));
        assert_eq!(from.next(), None);
    }

    #[test]
    fn a_full_queue_holds_nobody_up_and_what_is_left_out_is_counted() {
        let (to, from) = channel();
        let mut log = CoreLog::new(to, (0, 1), 4, Time::ZERO);
        let whole = (LOG_CHUNK * LOG_CHUNKS) as u64;
        for n in 0..whole + LOG_CHUNK as u64 {
            log.note(&run(n, 2), RequestEnd::Unknown, 0, None);
        }
        assert_eq!(from.left_out(), 2 * LOG_CHUNK as u64);
        let reader = std::thread::spawn(move || {
            let mut n = 0;
            while let Some(chunk) = from.next() {
                n += chunk.len() as u64;
            }
            n
        });
        drop(log);
        assert_eq!(reader.join().unwrap(), whole);
    }
}
