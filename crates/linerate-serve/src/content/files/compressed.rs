//! Texts that are compressed on the fly: kept, and each compressed once at a time, for all threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::watch;

use super::lookup::Identity;
use super::negotiate;
use crate::blocking::{COMPRESSIONS, compressing};

/// Bytes of compressed texts that are kept. Reason: compression is too slow to repeat for each
/// request.
const KEPT: usize = 32 << 20;
/// What an entry counts beside its bytes. Reason: a million tiny texts must not count as nothing.
const ENTRY: usize = 256;

/// The file as it was, and the level.
pub(super) type Key = (Identity, u8);

/// A compressed text, or why there is none.
type Outcome = Result<Bytes, Errno>;

/// What there is of a compressed text.
pub(super) enum Text {
    Ready(Bytes),
    /// Somebody compresses it.
    Awaited(watch::Receiver<Option<Outcome>>),
    /// Too much else is being compressed.
    Busy,
}

/// The text that somebody compresses, once it is there.
pub(super) async fn landed(mut landing: watch::Receiver<Option<Outcome>>) -> Outcome {
    match landing.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or(Err(Errno::IO)),
        Err(_) => Err(Errno::IO),
    }
}

/// All that a process has compressed, and compresses.
#[derive(Default)]
pub(super) struct Compressed {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    texts: HashMap<Key, Bytes>,
    bytes: usize,
    flights: HashMap<Key, watch::Receiver<Option<Outcome>>>,
}

/// That of this process.
pub(super) fn compressed() -> &'static Compressed {
    static ALL: std::sync::LazyLock<Compressed> = std::sync::LazyLock::new(Compressed::default);
    &ALL
}

impl Compressed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text of a file of this size. Compresses it if nobody does.
    pub(super) fn text(&'static self, key: Key, file: &File, size: u64) -> Text {
        let level = key.1;
        self.begin(key, |job| match file.try_clone() {
            Ok(file) => drop(compressing(move || job.run(|| negotiate::gzip(&file, size, level)))),
            Err(error) => job.land(Err(Errno::from_io_error(&error).unwrap_or(Errno::MFILE))),
        })
    }

    /// `start` begins with the work of a text that nobody compresses.
    fn begin(&'static self, key: Key, start: impl FnOnce(Job)) -> Text {
        let mut state = self.state();
        if let Some(text) = state.texts.get(&key) {
            return Text::Ready(text.clone());
        }
        let flying = state.flights.len();
        let landing = match state.flights.entry(key) {
            Entry::Occupied(flight) => return Text::Awaited(flight.get().clone()),
            Entry::Vacant(_) if flying >= COMPRESSIONS => return Text::Busy,
            Entry::Vacant(place) => {
                let (tell, landing) = watch::channel(None);
                place.insert(landing.clone());
                drop(state);
                start(Job { all: self, key, tell });
                landing
            }
        };
        Text::Awaited(landing)
    }
}

/// The work of one text. It lands even if it is dropped or panics, whoever still waits.
struct Job {
    all: &'static Compressed,
    key: Key,
    tell: watch::Sender<Option<Outcome>>,
}

impl Job {
    fn run(self, work: impl FnOnce() -> io::Result<Vec<u8>>) {
        let outcome = work().map(Bytes::from);
        self.land(outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)));
    }

    fn land(self, outcome: Outcome) {
        if let Ok(text) = &outcome {
            let state = &mut *self.all.state();
            if state.bytes + text.len() + ENTRY > KEPT {
                (state.texts, state.bytes) = (HashMap::new(), 0);
            }
            state.bytes += text.len() + ENTRY;
            state.texts.insert(self.key, text.clone());
        }
        self.tell.send_replace(Some(outcome));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.all.state().flights.remove(&self.key);
        self.tell.send_if_modified(|outcome| {
            let failed = outcome.is_none();
            outcome.get_or_insert(Err(Errno::IO));
            failed
        });
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn key(inode: u64) -> Key {
        (Identity { device: 1, inode, size: 300, modified: (5, 0) }, 5)
    }

    fn all() -> &'static Compressed {
        Box::leak(Box::default())
    }

    fn now(text: Text) -> Poll<Result<Option<Bytes>, Errno>> {
        let landing = match text {
            Text::Ready(text) => return Poll::Ready(Ok(Some(text))),
            Text::Busy => return Poll::Ready(Ok(None)),
            Text::Awaited(landing) => landing,
        };
        let landed = std::pin::pin!(landed(landing)).poll(&mut Context::from_waker(Waker::noop()));
        landed.map_ok(Some)
    }

    #[test]
    fn one_compresses_and_the_others_wait_for_it() {
        let all = all();
        let mut jobs = Vec::new();
        let waiting: Vec<Text> = (0..100).map(|_| all.begin(key(1), |job| jobs.push(job))).collect();
        assert_eq!(jobs.len(), 1);
        // One that leaves takes nothing from the others.
        let mut waiting = waiting.into_iter();
        drop(waiting.next());
        jobs.pop().expect("one").run(|| Ok(b"packed".to_vec()));
        assert_eq!(waiting.len(), 99);
        waiting.for_each(|text| assert_eq!(now(text), Poll::Ready(Ok(Some("packed".into())))));
        let kept = all.begin(key(1), |_| panic!("it is kept"));
        assert!(matches!(kept, Text::Ready(text) if text == "packed"));
    }

    #[test]
    fn beyond_so_many_at_once_texts_are_sent_as_they_are() {
        let all = all();
        let mut jobs = Vec::new();
        for n in 0..COMPRESSIONS as u64 {
            assert!(matches!(all.begin(key(n), |job| jobs.push(job)), Text::Awaited(_)));
        }
        assert_eq!(now(all.begin(key(1 << 20), |_| panic!("one too many"))), Poll::Ready(Ok(None)));
        assert!(matches!(all.begin(key(0), |_| panic!("twice")), Text::Awaited(_)));
        jobs.truncate(COMPRESSIONS - 1);
        assert!(matches!(all.begin(key(1 << 20), |job| jobs.push(job)), Text::Awaited(_)));
    }

    #[test]
    fn what_fails_is_told_to_all_and_tried_again() {
        let all = all();
        let mut jobs = Vec::new();
        let mut begin = || all.begin(key(1), |job| jobs.push(job));
        let waiting = [begin(), begin()];
        jobs.pop().expect("one").run(|| Err(Errno::ACCESS.into()));
        waiting.into_iter().for_each(|text| assert_eq!(now(text), Poll::Ready(Err(Errno::ACCESS))));
        let waiting = all.begin(key(1), |job| {
            let panics = std::panic::AssertUnwindSafe(|| job.run(|| panic!("as the test wants")));
            assert!(std::panic::catch_unwind(panics).is_err());
        });
        assert_eq!(now(waiting), Poll::Ready(Err(Errno::IO)));
        assert!(all.state().flights.is_empty() && all.state().texts.is_empty());
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let all = all();
        for n in 0..40 {
            drop(all.begin(key(n), |job| job.run(|| Ok(vec![7; 1 << 20]))));
            let state = all.state();
            assert!(state.bytes <= KEPT && state.texts.contains_key(&key(n)));
            assert_eq!(state.bytes, state.texts.len() * ((1 << 20) + ENTRY));
        }
    }
}
