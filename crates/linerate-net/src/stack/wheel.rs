//! A hierarchical timer wheel (Varghese and Lauck): setting, moving and cancelling a timer takes
//! constant time. It has one timer for each index; the caller sets it to the earliest of its
//! deadlines.

use crate::Time;

/// A tick is 2 to this many nanoseconds, about a quarter of a millisecond. Reason: far below every
/// TCP timer of interest, and coarse enough that a busy turn takes few ticks.
const TICK_SHIFT: u32 = 18;
const LEVELS: usize = 5;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const NONE: u32 = u32::MAX;
/// A timer further ahead is examined early and set again: about three days.
const HORIZON: u64 = 1 << (SLOT_BITS * LEVELS as u32);

#[derive(Clone, Copy)]
struct Node {
    prev: u32,
    next: u32,
    /// The tick it is due at; `u64::MAX`: not set.
    tick: u64,
    /// Its list: level times slots plus slot.
    list: u16,
}

const UNSET: Node = Node { prev: NONE, next: NONE, tick: u64::MAX, list: 0 };

/// A timer wheel.
pub(crate) struct Wheel {
    nodes: Vec<Node>,
    heads: [u32; LEVELS * SLOTS],
    /// A bit for each slot that is not empty.
    filled: [u64; LEVELS],
    /// All timers up to this tick have been returned.
    done: u64,
}

impl Wheel {
    pub(crate) fn new(now: Time) -> Wheel {
        Wheel {
            nodes: Vec::new(),
            heads: [NONE; LEVELS * SLOTS],
            filled: [0; LEVELS],
            done: now.as_nanos() >> TICK_SHIFT,
        }
    }

    /// Sets the timer of `index` to `at`, or cancels it.
    pub(crate) fn set(&mut self, index: u32, at: Option<Time>) {
        let i = index as usize;
        // Rounded up: a timer is never early.
        let tick = at.map_or(u64::MAX, |at| (at.as_nanos() >> TICK_SHIFT).saturating_add(1));
        if i >= self.nodes.len() {
            if at.is_none() {
                return;
            }
            self.nodes.resize(i + 1, UNSET);
        }
        if self.nodes[i].tick == tick {
            return;
        }
        if self.nodes[i].tick != u64::MAX {
            self.unlink(index);
        }
        self.nodes[i].tick = tick;
        if tick != u64::MAX {
            self.link(index);
        }
    }

    /// Sets the timer of `index` so that it is returned at `at` or before: an earlier timer stays.
    /// Reason: deadlines move back with each segment, and an early look per timeout costs less than
    /// moving the timer each time.
    pub(crate) fn set_by(&mut self, index: u32, at: Option<Time>) {
        let Some(at) = at else { return };
        let earlier = |node: &Node| node.tick <= at.as_nanos() >> TICK_SHIFT;
        if !self.nodes.get(index as usize).is_some_and(earlier) {
            self.set(index, Some(at));
        }
    }

    fn link(&mut self, index: u32) {
        let tick = self.nodes[index as usize].tick.clamp(self.done + 1, self.done + HORIZON - 1);
        // The highest bits in which it differs from now decide its level.
        let level = (63 - (tick ^ self.done).leading_zeros()) / SLOT_BITS;
        let level = (level as usize).min(LEVELS - 1);
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let list = level * SLOTS + slot;
        let head = self.heads[list];
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.list) = (NONE, head, list as u16);
        if head != NONE {
            self.nodes[head as usize].prev = index;
        }
        self.heads[list] = index;
        self.filled[level] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let Node { prev, next, list, .. } = self.nodes[index as usize];
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        if prev != NONE {
            self.nodes[prev as usize].next = next;
        } else {
            let list = usize::from(list);
            self.heads[list] = next;
            if next == NONE {
                self.filled[list / SLOTS] &= !(1 << (list % SLOTS));
            }
        }
    }

    /// When to call `pop` next at the latest; a distant timer may need several calls.
    pub(crate) fn next(&self) -> Option<Time> {
        let tick = self.next_tick()?;
        Some(Time::from_nanos(tick << TICK_SHIFT))
    }

    /// The first tick at which a slot must be emptied.
    fn next_tick(&self) -> Option<u64> {
        (0..LEVELS)
            .filter_map(|level| {
                let shift = SLOT_BITS * level as u32;
                let now = self.done >> shift;
                // Slots behind the current one, in the order of time; the current one is due only a
                // full turn later.
                let turned = self.filled[level].rotate_right((now % SLOTS as u64) as u32 + 1);
                if turned == 0 {
                    return None;
                }
                Some((now + 1 + u64::from(turned.trailing_zeros())) << shift)
            })
            .min()
    }

    /// Removes an index whose timer is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<u32> {
        let now = now.as_nanos() >> TICK_SHIFT;
        loop {
            // Due timers are in the first level's slot of the last tick reached.
            let slot = (self.done % SLOTS as u64) as usize;
            let head = self.heads[slot];
            if head != NONE {
                self.unlink(head);
                if self.nodes[head as usize].tick <= self.done {
                    self.nodes[head as usize] = UNSET;
                    return Some(head);
                }
                self.link(head);
                continue;
            }
            let Some(tick) = self.next_tick().filter(|tick| *tick <= now) else {
                self.done = self.done.max(now);
                return None;
            };
            self.advance(tick);
        }
    }

    /// Advances to `tick`: slots of upper levels that begin there are distributed to lower ones.
    fn advance(&mut self, tick: u64) {
        let before = self.done;
        self.done = tick;
        for level in (1..LEVELS).rev() {
            let shift = SLOT_BITS * level as u32;
            if tick >> shift == before >> shift {
                continue;
            }
            let list = level * SLOTS + (tick >> shift) as usize % SLOTS;
            let mut index = std::mem::replace(&mut self.heads[list], NONE);
            self.filled[level] &= !(1 << (list % SLOTS));
            while index != NONE {
                let next = self.nodes[index as usize].next;
                self.relink(index);
                index = next;
            }
        }
    }

    /// Links a node again; one that is due goes into the current slot.
    fn relink(&mut self, index: u32) {
        if self.nodes[index as usize].tick > self.done {
            return self.link(index);
        }
        let slot = (self.done % SLOTS as u64) as usize;
        let head = self.heads[slot];
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.list) = (NONE, head, slot as u16);
        if head != NONE {
            self.nodes[head as usize].prev = index;
        }
        self.heads[slot] = index;
        self.filled[0] |= 1 << slot;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1 << TICK_SHIFT;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        /// No timer is early, more than two ticks late, lost, or returned twice.
        #[test]
        fn each_in_its_time(
            start in 0u64..1 << 50,
            steps in prop::collection::vec((0u32..40, prop::option::of(0u32..45), 0u64..1 << 45, 0u32..40), 1..200),
        ) {
            let mut now = Time::from_nanos(start);
            let (mut wheel, mut model) = (Wheel::new(now), HashMap::new());
            for (index, set, mantissa, wait) in steps {
                let at = set.map(|bits| now + Duration::from_nanos(mantissa >> bits));
                wheel.set(index, at);
                match at {
                    Some(at) => model.insert(index, at),
                    None => model.remove(&index),
                };
                now = now + Duration::from_nanos(1 << wait);
                while let Some(index) = wheel.pop(now) {
                    let at = model.remove(&index);
                    prop_assert!(at.is_some_and(|at| at <= now), "{} was early or is not set", index);
                }
                for at in model.values() {
                    prop_assert!(at.as_nanos() + 2 * TICK > now.as_nanos(), "one is late");
                }
                prop_assert_eq!(wheel.next().is_some(), !model.is_empty());
                if let (Some(next), Some(first)) = (wheel.next(), model.values().min()) {
                    prop_assert!(next > now || now.as_nanos() - next.as_nanos() < TICK);
                    prop_assert!(next.as_nanos() <= first.as_nanos() + 2 * TICK);
                }
            }
        }
    }

    /// A deadline that moves back leaves the timer; one that moves forward takes it along.
    #[test]
    fn an_earlier_timer_stays() {
        let at = |ms: u64| Some(Time::ZERO + Duration::from_millis(ms));
        let mut wheel = Wheel::new(Time::ZERO);
        wheel.set_by(3, None);
        assert_eq!(wheel.next(), None);
        for deadline in [at(100), at(300), None, at(50), at(200)] {
            wheel.set_by(3, deadline);
        }
        assert_eq!((wheel.pop(at(49).expect("a time")), wheel.pop(at(51).expect("a time"))), (None, Some(3)));
        assert_eq!(wheel.next(), None);
    }

    /// Waiting for `next` repeatedly reaches the timer in few steps.
    #[test]
    fn looks_are_few() {
        let mut wheel = Wheel::new(Time::ZERO);
        let at = Time::ZERO + Duration::from_secs(3600);
        wheel.set(3, Some(at));
        let mut looks = 0;
        let found = loop {
            let next = wheel.next().expect("it is set");
            looks += 1;
            if let Some(index) = wheel.pop(next) {
                break (index, next);
            }
        };
        assert_eq!(found.0, 3);
        assert!(found.1 >= at && looks <= LEVELS + 1, "{looks} looks");
    }
}
