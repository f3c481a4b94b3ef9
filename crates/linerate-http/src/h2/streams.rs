//! The open streams of a client.
//!
//! Requests that leave together open a row: streams whose numbers follow one another, of which no more
//! has to be known than what their owner keeps of all of them. Most servers answer in order, so that a
//! response usually belongs to the first stream of the first row. A stream of which more has to be known,
//! and those before it in its row, stand alone from then on: each is moved once.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::Block;
use super::limits::LAST_STREAM;

/// The owner's data of a stream, or of several that were opened together.
pub trait StreamData {
    /// The data of the stream that was opened `n` after the first of a group, where `self` is the data of
    /// the whole group.
    #[must_use]
    fn nth(&self, n: u32) -> Self;
}

/// Numbers that count up.
macro_rules! numbers_are_kept {
    ($($number:ty),*) => {$(
        impl StreamData for $number {
            fn nth(&self, n: u32) -> Self {
                self + n as $number
            }
        }
    )*};
}

numbers_are_kept!(u32, u64, usize);

/// How much of a response has come.
#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// Nothing, or interim responses alone.
    #[default]
    Waiting,
    /// The head, which was not handed out yet.
    Held(Arc<Block>),
    /// The head was handed out.
    Told,
}

/// An open stream that stands alone; `data` is the owner's.
#[derive(Debug)]
pub(super) struct Stream<S> {
    pub(super) phase: Phase,
    pub(super) data: S,
    pub(super) status: u16,
    pub(super) interim: u8,
    /// The response has no body, since the request is HEAD.
    pub(super) bodiless: bool,
    /// Bytes of the announced content that have not arrived yet.
    pub(super) content_left: Option<u64>,
    /// Bytes received since the last window update.
    pub(super) unreported: u32,
    /// They are not reported: the owner holds the response back.
    pub(super) held: bool,
    /// Bytes of the request's body sent so far, and admitted beyond the initial window.
    pub(super) sent: i64,
    pub(super) granted: i64,
    /// More of the request's body has to be sent.
    pub(super) uploads: bool,
}

impl<S> Stream<S> {
    pub(super) fn new(data: S) -> Stream<S> {
        Stream {
            phase: Phase::Waiting,
            data,
            status: 0,
            interim: 0,
            bodiless: false,
            content_left: None,
            unreported: 0,
            held: false,
            sent: 0,
            granted: 0,
            uploads: false,
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Waiting)
    }

    /// Nothing of its response came, which may have a body, and its request has left.
    fn is_plain(&self) -> bool {
        !(self.has_begun() || self.bodiless || self.uploads)
    }
}

/// The open streams of those that were opened together: `count` from number `first` on.
#[derive(Debug)]
struct StreamRow<S> {
    first: u32,
    count: u32,
    /// How many of them there were before.
    gone: u32,
    data: S,
}

impl<S: StreamData> StreamRow<S> {
    fn has(&self, id: u32) -> bool {
        id >= self.first && (id - self.first) / 2 < self.count
    }

    /// Takes the first one out.
    #[inline]
    fn take_first(&mut self) -> S {
        let data = self.data.nth(self.gone);
        self.first += 2;
        self.count -= 1;
        self.gone += 1;
        data
    }
}

/// Spreads stream numbers, which are odd. They are ours, so that no peer chooses them to collide.
#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number >> 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Rows that may be empty before they are looked for and dropped.
const EMPTY_ROWS: usize = 16;

#[derive(Debug)]
pub(super) struct Streams<S> {
    /// In the order of their numbers. The first has streams; others may have none left.
    rows: VecDeque<StreamRow<S>>,
    alone: HashMap<u32, Stream<S>, BuildHasherDefault<NumberHasher>>,
    open: u32,
    next: u32,
}

impl<S> Default for Streams<S> {
    fn default() -> Self {
        Streams { rows: VecDeque::new(), alone: HashMap::default(), open: 0, next: 1 }
    }
}

impl<S: StreamData> Streams<S> {
    /// Streams that are open.
    #[inline]
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// Whether a stream of this number was opened.
    #[inline]
    pub(super) fn was_opened(&self, id: u32) -> bool {
        id % 2 == 1 && id < self.next
    }

    /// Numbers that are left.
    #[inline]
    pub(super) fn numbers(&self) -> u32 {
        (LAST_STREAM - self.next) / 2
    }

    /// Opens streams of which `data` is kept. Returns the number of the first; the others follow.
    #[inline]
    pub(super) fn open_row(&mut self, data: S, count: u32) -> u32 {
        let first = self.next;
        self.next += 2 * count;
        self.open += count;
        self.rows.push_back(StreamRow { first, count, gone: 0, data });
        first
    }

    /// Opens a stream of which more has to be known. Returns its number.
    pub(super) fn open_alone(&mut self, stream: Stream<S>) -> u32 {
        let id = self.next;
        self.next += 2;
        self.open += 1;
        self.alone.insert(id, stream);
        id
    }

    fn row_of(&self, id: u32) -> Option<usize> {
        let at = self.rows.partition_point(|row| row.first <= id).checked_sub(1)?;
        (id % 2 == 1 && self.rows[at].has(id)).then_some(at)
    }

    /// Takes a stream out of its row. Those before it stand alone from now on.
    fn take_from_row(&mut self, id: u32) -> Option<S> {
        let at = self.row_of(id)?;
        let row = &mut self.rows[at];
        while row.first < id {
            let before = row.first;
            self.alone.insert(before, Stream::new(row.take_first()));
        }
        let data = row.take_first();
        if row.count == 0 {
            self.drop_empty();
        }
        Some(data)
    }

    /// Drops empty rows, those between others when there are many.
    fn drop_empty(&mut self) {
        while self.rows.front().is_some_and(|row| row.count == 0) {
            self.rows.pop_front();
        }
        if self.rows.len() > 2 * self.open as usize + EMPTY_ROWS {
            self.rows.retain(|row| row.count > 0);
        }
    }

    /// A stream of which more has to be known than that it is open.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream<S>> {
        if !self.alone.contains_key(&id) {
            let data = self.take_from_row(id)?;
            self.alone.insert(id, Stream::new(data));
        }
        self.alone.get_mut(&id)
    }

    /// Whether a stream is open.
    pub(super) fn has(&self, id: u32) -> bool {
        self.alone.contains_key(&id) || self.row_of(id).is_some()
    }

    /// A stream that stands alone.
    pub(super) fn get_alone(&self, id: u32) -> Option<&Stream<S>> {
        self.alone.get(&id)
    }

    /// Closes a stream.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream<S>> {
        let stream = self.alone.remove(&id).or_else(|| Some(Stream::new(self.take_from_row(id)?)))?;
        self.open -= 1;
        Some(stream)
    }

    /// Closes a stream of which nothing else is known than that its request has left.
    #[inline]
    pub(super) fn remove_plain(&mut self, id: u32) -> Option<S> {
        if let Some(row) = self.rows.front_mut()
            && row.first == id
        {
            return Some(self.remove_front());
        }
        if let Some(stream) = self.alone.get(&id)
            && !stream.is_plain()
        {
            return None;
        }
        self.remove(id).map(|stream| stream.data)
    }

    /// The same for the stream right behind one that was opened together with it, if that was just closed.
    #[inline]
    pub(super) fn remove_behind(&mut self, id: u32) -> Option<S> {
        let row = self.rows.front()?;
        (row.first == id && row.gone > 0).then(|| self.remove_front())
    }

    /// Closes the first stream of the first row, which there must be.
    #[inline]
    fn remove_front(&mut self) -> S {
        let row = &mut self.rows[0];
        let data = row.take_first();
        self.open -= 1;
        if row.count == 0 {
            self.drop_empty();
        }
        data
    }

    /// The streams that stand alone and the first of each row, with their numbers, in no order.
    pub(super) fn first_ones(&self) -> impl Iterator<Item = (u32, S)> {
        let rows = self.rows.iter().filter(|row| row.count > 0);
        rows.map(|row| (row.first, row.data.nth(row.gone)))
            .chain(self.alone.iter().map(|(id, stream)| (*id, stream.data.nth(0))))
    }

    /// All streams with their numbers, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, S)> {
        let rows = self
            .rows
            .iter()
            .flat_map(|row| (0..row.count).map(move |n| (row.first + 2 * n, row.data.nth(row.gone + n))));
        rows.chain(self.alone.iter().map(|(id, stream)| (*id, stream.data.nth(0))))
    }

    /// The numbers of the streams above one, in order.
    pub(super) fn above(&self, last: u32) -> Vec<u32> {
        let rows = self.rows.iter().flat_map(|row| (0..row.count).map(move |n| row.first + 2 * n));
        let mut ids: Vec<u32> = rows.chain(self.alone.keys().copied()).filter(|id| *id > last).collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Open(u32),
        OpenAlone,
        Know(prop::sample::Index),
        Remove(prop::sample::Index),
        RemovePlain(prop::sample::Index),
        RemoveBehind(prop::sample::Index),
        InOrder(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let any = any::<prop::sample::Index>;
        prop_oneof![
            (1..20u32).prop_map(Step::Open),
            Just(Step::OpenAlone),
            any().prop_map(Step::Know),
            any().prop_map(Step::Remove),
            any().prop_map(Step::RemovePlain),
            any().prop_map(Step::RemoveBehind),
            (0..30usize).prop_map(Step::InOrder),
        ]
    }

    proptest! {
        /// Against a map of all streams.
        #[test]
        fn streams_are_found_whatever_the_order(steps in prop::collection::vec(step(), 0..200)) {
            let mut streams: Streams<usize> = Streams::default();
            // By number: what is kept, and whether more is known.
            let mut model: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
            let mut kept = 0;
            for step in steps {
                let pick = |index: prop::sample::Index| {
                    (!model.is_empty()).then(|| *model.keys().nth(index.index(model.len())).unwrap())
                };
                match step {
                    Step::Open(count) => {
                        let first = streams.open_row(kept, count);
                        for n in 0..count {
                            prop_assert!(model.insert(first + 2 * n, (kept + n as usize, false)).is_none());
                        }
                        kept += count as usize;
                    }
                    Step::OpenAlone => {
                        let id = streams.open_alone(Stream { uploads: true, ..Stream::new(kept) });
                        prop_assert!(model.insert(id, (kept, true)).is_none());
                        kept += 1;
                    }
                    Step::Know(index) => if let Some(id) = pick(index) {
                        let stream = streams.get_mut(id).unwrap();
                        stream.bodiless = true;
                        let known = model.get_mut(&id).unwrap();
                        prop_assert_eq!(stream.data, known.0);
                        known.1 = true;
                    },
                    Step::Remove(index) => if let Some(id) = pick(index) {
                        let known = model.remove(&id).unwrap();
                        prop_assert_eq!(streams.remove(id).unwrap().data, known.0);
                    },
                    Step::RemovePlain(index) => if let Some(id) = pick(index) {
                        let known = model[&id];
                        let expected = (!known.1).then_some(known.0);
                        prop_assert_eq!(streams.remove_plain(id), expected);
                        if expected.is_some() {
                            model.remove(&id);
                        }
                    },
                    Step::RemoveBehind(index) => if let Some(id) = pick(index)
                        && let Some(data) = streams.remove_behind(id) {
                        prop_assert_eq!(model.remove(&id).unwrap().0, data);
                    },
                    Step::InOrder(count) => {
                        let ids: Vec<u32> = model.keys().copied().take(count).collect();
                        for id in ids {
                            let known = model.remove(&id).unwrap();
                            prop_assert_eq!(streams.remove(id).unwrap().data, known.0);
                        }
                    }
                }
                prop_assert_eq!(streams.open() as usize, model.len());
                prop_assert!(streams.rows.len() <= 2 * model.len() + EMPTY_ROWS + 1);
                prop_assert_eq!(streams.above(0), model.keys().copied().collect::<Vec<_>>());
                let all: BTreeMap<u32, usize> = streams.all().collect();
                prop_assert_eq!(all, model.iter().map(|(id, known)| (*id, known.0)).collect());
                let first = streams.first_ones().min();
                prop_assert_eq!(first, model.iter().next().map(|(id, known)| (*id, known.0)));
                for id in [0, 2, streams.next, streams.next + 1] {
                    prop_assert!(streams.get_mut(id).is_none() && streams.remove(id).is_none());
                }
            }
        }
    }
}
