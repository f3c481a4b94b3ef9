//! The dynamic table of HPACK and QPACK (RFC 7541 section 2.3.2, RFC 9204 section 3.2).

use std::collections::VecDeque;

use super::ENTRY_COST;

/// Fields that the peer has inserted, as long as there is room for them.
#[derive(Debug, Default)]
pub(crate) struct DynamicTable {
    /// The newest first: length of the name, then name and value.
    entries: VecDeque<(usize, Box<[u8]>)>,
    size: usize,
    most: usize,
    inserts: u64,
}

impl DynamicTable {
    /// `most`: the size that it may have.
    pub(crate) fn new(most: usize) -> DynamicTable {
        DynamicTable { most, ..DynamicTable::default() }
    }

    /// The size that it may have.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The size that it has.
    pub(crate) fn bytes(&self) -> usize {
        self.size
    }

    /// Entries that were ever inserted.
    pub(crate) fn inserts(&self) -> u64 {
        self.inserts
    }

    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most;
        self.make_room(0);
    }

    /// The field of a number, the newest is 0: name and value.
    pub(crate) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let (name_len, bytes) = self.entries.get(number)?;
        Some(bytes.split_at(*name_len))
    }

    /// Adds a field: name and value one after the other. One that is larger than the table empties it (RFC 7541,
    /// section 4.4), and `false` says so.
    pub(crate) fn add(&mut self, name_len: usize, bytes: &[u8]) -> bool {
        let cost = bytes.len() + ENTRY_COST;
        self.make_room(cost);
        let fits = cost <= self.most;
        if fits {
            self.size += cost;
            self.inserts += 1;
            self.entries.push_front((name_len, bytes.into()));
        }
        fits
    }

    fn make_room(&mut self, cost: usize) {
        while self.size + cost > self.most
            && let Some((_, bytes)) = self.entries.pop_back()
        {
            self.size -= bytes.len() + ENTRY_COST;
        }
    }
}
