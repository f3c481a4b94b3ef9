//! The MAC address that a packet goes to. The kernel's replies are cached for a while. If it does
//! not know, or is asked too often, a packet goes back to where the last frame of that address came
//! from. So the kernel need not resolve every address that a frame came from: those of a flood do
//! not exist, and it would ask the network for each.

use std::net::IpAddr;

use super::ethernet::Mac;
use super::limits::{
    NEIGHBOUR_SETS, NEIGHBOUR_WAYS, QUESTIONS_FOR_UNSEEN, QUESTIONS_PER_EPOCH, RESOLUTIONS_FOR_UNSEEN,
    RESOLUTIONS_PER_EPOCH,
};

/// How packets to an address leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePath {
    /// To this MAC address.
    pub(super) card: Mac,
    /// At most this large, IP header included, bytes; `u16::MAX`: the interface's MTU.
    pub(super) mtu: u16,
}

/// The kernel's reply about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    Known(FramePath),
    /// The kernel is resolving the address; nothing is known yet.
    Asked,
    /// It is on this network and unknown, and the kernel was not to resolve it.
    Unknown,
    /// No route by this interface.
    None,
}

/// What the kernel may be asked about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// What it knows.
    Only,
    /// And to resolve the address if it knows nothing.
    AndResolve,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NeighbourSource {
    Nobody,
    /// From a frame; the kernel was not asked yet.
    Seen,
    /// From the kernel, or from a frame if the kernel did not know.
    Sure,
    /// The kernel does not know, and was not to resolve the address.
    Unknown,
    /// The kernel is resolving the address.
    Asked,
    /// The same, and it is to be asked again. It has an entry already, which costs no other.
    Again,
}

#[derive(Clone, Copy)]
struct NeighbourSlot {
    address: u128,
    /// The epoch in which the entry is valid.
    epoch: u32,
    way: FramePath,
    source: NeighbourSource,
}

const NO_WAY: FramePath = FramePath { card: Mac([0; 6]), mtu: u16::MAX };
const EMPTY: NeighbourSlot =
    NeighbourSlot { address: 0, epoch: 0, way: NO_WAY, source: NeighbourSource::Nobody };

/// The places of an address, the one used last first.
type Set = [NeighbourSlot; NEIGHBOUR_WAYS];

/// A table of fixed size. A new address takes the place that was not used for longest, so that a
/// flood from invented addresses does not displace a peer before its packet is answered.
pub(super) struct Neighbours {
    sets: Box<[Set]>,
    epoch: u32,
    /// Requests to the kernel left in this epoch, and those to resolve an address.
    questions: u32,
    resolutions: u32,
}

fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl Neighbours {
    pub(super) fn new() -> Neighbours {
        Neighbours {
            sets: vec![[EMPTY; NEIGHBOUR_WAYS]; NEIGHBOUR_SETS].into_boxed_slice(),
            epoch: 1,
            questions: QUESTIONS_PER_EPOCH,
            resolutions: RESOLUTIONS_PER_EPOCH,
        }
    }

    /// Invalidates what is cached.
    pub(super) fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        (self.questions, self.resolutions) = (QUESTIONS_PER_EPOCH, RESOLUTIONS_PER_EPOCH);
    }

    /// The entry of an address. A new one says nothing yet.
    #[inline]
    fn slot(&mut self, address: u128) -> &mut NeighbourSlot {
        let folded = (address as u64) ^ ((address >> 64) as u64);
        let hash = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = &mut self.sets[hash as usize % NEIGHBOUR_SETS];
        if set[0].address != address {
            let at = set.iter().position(|slot| slot.address == address);
            set[..=at.unwrap_or(NEIGHBOUR_WAYS - 1)].rotate_right(1);
            if at.is_none() {
                set[0] = NeighbourSlot { address, ..EMPTY };
            }
        }
        &mut set[0]
    }

    /// Records that a frame came from this MAC address with this source address.
    #[inline]
    pub(super) fn seen(&mut self, address: IpAddr, mac: Mac) {
        let (address, epoch) = (key(address), self.epoch);
        let slot = self.slot(address);
        if slot.epoch == epoch && slot.source == NeighbourSource::Sure {
            return;
        }
        *slot = NeighbourSlot {
            address,
            epoch,
            way: FramePath { card: mac, ..NO_WAY },
            source: NeighbourSource::Seen,
        };
    }

    /// The MAC address for packets to an address; `None` while unknown. Calls `ask` if the kernel
    /// must be asked.
    #[inline]
    pub(super) fn find(&mut self, to: IpAddr, ask: impl FnOnce(Question) -> Hop) -> Option<FramePath> {
        let (address, epoch) = (key(to), self.epoch);
        let slot = self.slot(address);
        if slot.epoch == epoch {
            match slot.source {
                NeighbourSource::Sure => return Some(slot.way),
                NeighbourSource::Asked | NeighbourSource::Unknown => return None,
                NeighbourSource::Seen | NeighbourSource::Nobody | NeighbourSource::Again => {}
            }
        }
        self.find_anew(to, ask)
    }

    #[cold]
    fn find_anew(&mut self, to: IpAddr, ask: impl FnOnce(Question) -> Hop) -> Option<FramePath> {
        let (address, epoch) = (key(to), self.epoch);
        let slot = *self.slot(address);
        // An entry of an earlier epoch is better than none.
        let known = matches!(slot.source, NeighbourSource::Seen | NeighbourSource::Sure);
        let again = slot.epoch == epoch && slot.source == NeighbourSource::Again;
        let before = known.then_some(slot.way);
        let may_ask = self.questions > if known { QUESTIONS_FOR_UNSEEN } else { 0 };
        self.questions -= u32::from(may_ask);
        let may_resolve = again || self.resolutions > if known { RESOLUTIONS_FOR_UNSEEN } else { 0 };
        let question = if may_resolve { Question::AndResolve } else { Question::Only };
        let hop = if may_ask { ask(question) } else { Hop::None };
        self.resolutions -= u32::from(hop == Hop::Asked && !again);
        let (way, source) = match hop {
            Hop::Known(way) => (Some(way), NeighbourSource::Sure),
            _ if known => (before, NeighbourSource::Sure),
            Hop::Asked => (None, NeighbourSource::Asked),
            _ if again => (None, NeighbourSource::Asked),
            _ => (None, NeighbourSource::Unknown),
        };
        *self.slot(address) = NeighbourSlot { address, epoch, way: way.unwrap_or(NO_WAY), source };
        way
    }

    /// The network may have answered: lets the kernel be asked again about a pending address.
    pub(super) fn look_again(&mut self, to: IpAddr) {
        let slot = self.slot(key(to));
        slot.source = match slot.source {
            NeighbourSource::Asked => NeighbourSource::Again,
            NeighbourSource::Unknown => NeighbourSource::Nobody,
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    const A: FramePath = FramePath { card: Mac([2, 0, 0, 0, 0, 1]), mtu: u16::MAX };
    const B: FramePath = FramePath { card: Mac([2, 0, 0, 0, 0, 2]), mtu: 1400 };

    fn ip(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, n).into()
    }

    fn never(_: Question) -> Hop {
        panic!("not to be asked")
    }

    #[test]
    fn the_kernel_is_asked_once_in_an_epoch() {
        let mut table = Neighbours::new();
        assert_eq!(table.find(ip(1), |_| Hop::Known(A)), Some(A));
        assert_eq!(table.find(ip(1), never), Some(A));
        table.next_epoch();
        assert_eq!(table.find(ip(1), |_| Hop::Known(B)), Some(B));
        assert_eq!(table.find(ip(1), never), Some(B));
    }

    #[test]
    fn the_kernels_word_goes_before_what_was_seen() {
        let mut table = Neighbours::new();
        table.seen(ip(1), A.card);
        assert_eq!(table.find(ip(1), |_| Hop::Known(B)), Some(B));
        table.seen(ip(1), A.card);
        assert_eq!(table.find(ip(1), never), Some(B));
    }

    #[test]
    fn what_was_seen_helps_where_the_kernel_does_not_know() {
        let mut table = Neighbours::new();
        for answer in [Hop::None, Hop::Asked, Hop::Unknown] {
            table.next_epoch();
            table.seen(ip(1), A.card);
            assert_eq!(table.find(ip(1), |_| answer), Some(A));
            assert_eq!(table.find(ip(1), never), Some(A));
        }
    }

    #[test]
    fn an_unknown_neighbour_is_asked_for_once_and_looked_for_again() {
        let mut table = Neighbours::new();
        assert_eq!(table.find(ip(1), |_| Hop::Asked), None);
        assert_eq!(table.find(ip(1), never), None);
        table.look_again(ip(1));
        assert_eq!(table.find(ip(1), |_| Hop::Known(A)), Some(A));
        table.look_again(ip(1));
        assert_eq!(table.find(ip(1), never), Some(A));
    }

    /// One that never answers must not keep others from being resolved.
    #[test]
    fn a_neighbour_that_is_looked_for_again_costs_one_resolution() {
        let mut table = Neighbours::new();
        for _ in 0..2 * RESOLUTIONS_PER_EPOCH {
            assert_eq!(table.find(ip(1), |_| Hop::Asked), None);
            table.look_again(ip(1));
        }
        assert_eq!(table.resolutions, RESOLUTIONS_PER_EPOCH - 1);
    }

    #[test]
    fn a_flood_of_addresses_is_answered_without_asking_for_each() {
        let mut table = Neighbours::new();
        let mut asked = 0;
        for n in 0..QUESTIONS_PER_EPOCH * 2 {
            let address = IpAddr::from(Ipv4Addr::from(n + 1));
            table.seen(address, A.card);
            let found = table.find(address, |_| {
                asked += 1;
                Hop::Known(B)
            });
            assert!(found.is_some());
        }
        assert_eq!(asked, QUESTIONS_PER_EPOCH - QUESTIONS_FOR_UNSEEN);
        // Some questions are left for peers that sent nothing lately.
        assert_eq!(table.find(ip(1), |_| Hop::Known(B)), Some(B));
    }

    /// The kernel asks the whole network for each address that it is to resolve.
    #[test]
    fn a_flood_from_this_network_is_answered_without_resolving_each() {
        let mut table = Neighbours::new();
        let resolved = Cell::new(0);
        let kernel = |question| match question {
            Question::AndResolve => {
                resolved.set(resolved.get() + 1);
                Hop::Asked
            }
            Question::Only => Hop::Unknown,
        };
        for n in 0..2000 {
            let address = IpAddr::from(Ipv4Addr::from(n + 1000));
            table.seen(address, A.card);
            assert_eq!(table.find(address, kernel), Some(A));
        }
        // The others are left for peers that sent nothing lately: nothing reaches them otherwise.
        for n in 0..250 {
            assert_eq!(table.find(ip(n), kernel), None);
        }
        // Nor are they resolved when they are looked for again.
        for n in 200..250 {
            table.look_again(ip(n));
            assert_eq!(table.find(ip(n), kernel), None);
        }
        assert_eq!(resolved.get(), RESOLUTIONS_PER_EPOCH);
        table.next_epoch();
        assert_eq!(table.find(ip(250), kernel), None);
        assert_eq!(resolved.get(), RESOLUTIONS_PER_EPOCH + 1);
    }

    /// Between a packet and its answer there may be thousands of others, and the kernel is not
    /// asked any more.
    #[test]
    fn a_flood_of_addresses_displaces_no_peer_that_waits_for_an_answer() {
        const BETWEEN: u32 = 1000;
        let mut table = Neighbours::new();
        table.questions = 0;
        let mut invented = (0u32..).map(|n| IpAddr::from(Ipv4Addr::from(0xc612_0000 | (n & 0xffff))));
        for n in 0..=255 {
            table.seen(ip(n), A.card);
            for address in invented.by_ref().take(BETWEEN as usize) {
                table.seen(address, B.card);
                assert!(table.find(address, never).is_some());
            }
            assert_eq!(table.find(ip(n), never), Some(A), "{n}");
        }
    }
}
