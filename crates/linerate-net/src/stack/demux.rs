//! Maps 4-tuples to their owners in constant time. It uses open addressing with linear probing, and
//! deletes by shifting back, so that millions of short connections leave no tombstones.

/// The owner of a 4-tuple: a kind and an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A connection's slot.
    Flow(u32),
    /// A handshake in progress.
    Half(u32),
    /// An entry of TIME_WAIT.
    Wait(u32),
}

/// Indices must be smaller.
pub(crate) const MAX_INDEX: u32 = 1 << 30;

impl Owner {
    fn pack(self) -> u32 {
        match self {
            Owner::Flow(i) => i,
            Owner::Half(i) => i | 1 << 30,
            Owner::Wait(i) => i | 2 << 30,
        }
    }

    fn unpack(packed: u32) -> Owner {
        let index = packed & (MAX_INDEX - 1);
        match packed >> 30 {
            0 => Owner::Flow(index),
            1 => Owner::Half(index),
            _ => Owner::Wait(index),
        }
    }
}

/// Marks an empty place.
const EMPTY: u32 = u32::MAX;
const FIRST: usize = 64;

#[derive(Clone, Copy)]
struct FlowPlace {
    /// The upper half of the hash: it rules out most other connections without reading the 4-tuple.
    tag: u32,
    owner: u32,
}

/// The table. It stores hashes and owners; the owners store the 4-tuples.
pub(crate) struct Demux {
    places: Vec<FlowPlace>,
    len: usize,
}

impl Demux {
    pub(crate) fn new() -> Demux {
        Demux { places: vec![FlowPlace { tag: 0, owner: EMPTY }; FIRST], len: 0 }
    }

    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    /// A place depends on the tag alone, so growing needs no hashes.
    fn home(&self, tag: u32) -> usize {
        tag as usize & self.mask()
    }

    fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    /// The owner with this hash that satisfies `is`.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(Owner) -> bool) -> Option<Owner> {
        let tag = Demux::tag(hash);
        let mut at = self.home(tag);
        loop {
            let place = self.places[at];
            if place.owner == EMPTY {
                return None;
            }
            let owner = Owner::unpack(place.owner);
            if place.tag == tag && is(owner) {
                return Some(owner);
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Adds an owner; its 4-tuple must not have one yet.
    pub(crate) fn insert(&mut self, hash: u64, owner: Owner) {
        // At most half full, so that probes stay short.
        if (self.len + 1) * 2 > self.places.len() {
            self.grow();
        }
        self.place(Demux::tag(hash), owner.pack());
        self.len += 1;
    }

    fn place(&mut self, tag: u32, owner: u32) {
        let mut at = self.home(tag);
        while self.places[at].owner != EMPTY {
            at = (at + 1) & self.mask();
        }
        self.places[at] = FlowPlace { tag, owner };
    }

    fn grow(&mut self) {
        let larger = vec![FlowPlace { tag: 0, owner: EMPTY }; self.places.len() * 2];
        for place in std::mem::replace(&mut self.places, larger) {
            if place.owner != EMPTY {
                self.place(place.tag, place.owner);
            }
        }
    }

    fn position(&self, tag: u32, owner: u32) -> Option<usize> {
        let mut at = self.home(tag);
        loop {
            match self.places[at].owner {
                EMPTY => return None,
                found if found == owner => return Some(at),
                _ => at = (at + 1) & self.mask(),
            }
        }
    }

    /// Gives the 4-tuple to another owner.
    pub(crate) fn replace(&mut self, hash: u64, owner: Owner, by: Owner) {
        if let Some(at) = self.position(Demux::tag(hash), owner.pack()) {
            self.places[at].owner = by.pack();
        }
    }

    /// Removes an owner.
    pub(crate) fn remove(&mut self, hash: u64, owner: Owner) {
        let Some(mut hole) = self.position(Demux::tag(hash), owner.pack()) else { return };
        self.len -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask();
            let place = self.places[at];
            if place.owner == EMPTY {
                break;
            }
            // It may move back if the hole lies between its home and its place.
            let from_home = at.wrapping_sub(self.home(place.tag)) & self.mask();
            if from_home >= at.wrapping_sub(hole) & self.mask() {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole].owner = EMPTY;
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with the standard library's table, on hashes that collide.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u32..200, 0u8..3), 0..600), few: bool) {
            let hash = |key: u32| {
                let spread = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if few { spread & 0x0000_0003_0000_0000 } else { spread }
            };
            let (mut demux, mut model) = (Demux::new(), HashMap::new());
            for (key, kind) in steps {
                let owner = [Owner::Flow(key), Owner::Half(key), Owner::Wait(key)][usize::from(kind)];
                match model.remove(&key) {
                    None => {
                        demux.insert(hash(key), owner);
                        model.insert(key, owner);
                    }
                    Some(old) if kind == 2 => {
                        let new = Owner::Half(key);
                        demux.replace(hash(key), old, new);
                        model.insert(key, new);
                    }
                    Some(old) => demux.remove(hash(key), old),
                }
                prop_assert_eq!(demux.len(), model.len());
                for key in 0..200 {
                    let mine = |o: Owner| matches!(o, Owner::Flow(k) | Owner::Half(k) | Owner::Wait(k) if k == key);
                    prop_assert_eq!(demux.find(hash(key), mine), model.get(&key).copied());
                }
            }
        }
    }
}
