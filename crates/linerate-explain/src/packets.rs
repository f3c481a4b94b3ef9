//! The packets of our own calls, beside what the calls themselves saw. Pure: who captures is
//! [`crate::driver`].

use std::collections::HashSet;
use std::net::SocketAddr;

use crate::call::Call;
use crate::limits::{CALLS, LANES};
use crate::parts::PacketDoubt;
use crate::passive::packet::{Packet, segment};
use crate::passive::{self, CaptureLimits, LateSegments, Marks, Observation, Observer};
use crate::rule::Cause;
use crate::shown::Arms;

/// Packets of our own calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packets {
    /// The call that stands for all.
    pub call: Option<passive::ObservedCall>,
    /// The calls of the deciding experiment, without the change and with it.
    pub arms: [Option<passive::ObservedCall>; 2],
    /// Packets of our calls.
    pub packets: u64,
    /// Packets that found no room in the ring.
    pub dropped: u64,
    /// SYNs that were answered by a bare ACK of another connection.
    pub collisions: u64,
    /// The marks of the segments in words, each with its count.
    pub marks: Vec<(&'static str, u64)>,
    /// Segments that came late, by what became of them.
    pub late: LateSegments,
}

impl Packets {
    /// The packets' evidence for `cause`, in the call that represents all, in words.
    pub fn seen_of(&self, cause: &Cause) -> Option<&str> {
        let calls = self.call.iter().chain(self.arms.iter().flatten());
        calls.flat_map(|c| &c.notes).find(|n| n.cause == cause).map(|n| n.text.as_str())
    }
}

impl Packets {
    /// Signs, in the packets of our calls, of a cause that experiments ruled out. They are enough
    /// to doubt that exclusion.
    pub(crate) fn shown_of(&self, cause: &Cause) -> Option<String> {
        match cause.packets?.doubts {
            PacketDoubt::None => None,
            PacketDoubt::LostSegments => {
                let lost = self.late.lost;
                (lost > 0).then(|| format!("that segments were lost and sent again: {lost}"))
            }
            PacketDoubt::Note => self.seen_of(cause).map(str::to_owned),
        }
    }
}

/// Keeps the packets of our connections and drops all others.
#[derive(Debug)]
pub(crate) struct Sorter {
    ours: HashSet<SocketAddr>,
    observer: Observer,
    packets: u64,
    dropped: u64,
}

impl Sorter {
    pub(crate) fn new() -> Sorter {
        // Each call is wanted with its segments, and there are few.
        let limits = CaptureLimits {
            connections: 4 * CALLS + LANES,
            slowest: 2 * CALLS,
            listed: CALLS,
            ..CaptureLimits::default()
        };
        Sorter { ours: HashSet::new(), observer: Observer::new(limits), packets: 0, dropped: 0 }
    }

    /// `local` is an end of one of our connections.
    pub(crate) fn ours(&mut self, local: SocketAddr) {
        self.ours.insert(local);
    }

    pub(crate) fn packet(&mut self, packet: &Packet<'_>) {
        let ours = |s: &passive::packet::Segment<'_>| {
            self.ours.contains(&s.src.addr()) || self.ours.contains(&s.dst.addr())
        };
        if segment(packet).is_ok_and(|s| ours(&s)) {
            self.packets += 1;
            self.observer.packet(packet);
        }
    }

    pub(crate) fn dropped(&mut self, packets: u64) {
        self.dropped += packets;
    }

    /// No more will come.
    pub(crate) fn finish(self) -> Seen {
        Seen { seen: self.observer.finish(), packets: self.packets, dropped: self.dropped }
    }
}

/// What all packets of our calls show.
#[derive(Debug)]
pub(crate) struct Seen {
    seen: Observation,
    packets: u64,
    dropped: u64,
}

impl Seen {
    /// What became of a call's segments that came late; `None`: its packets were not seen, or not all.
    pub(crate) fn late(&self, call: &Call) -> Option<LateSegments> {
        let found = find(&self.seen, call).filter(|_| self.dropped == 0)?;
        Some(found.late)
    }

    /// All of it, for these calls.
    pub(crate) fn of(&self, call: &Call, arms: Option<&Arms>) -> Packets {
        let seen = &self.seen;
        let marks = Marks::ALL.into_iter().map(|(mark, _, words)| (words, seen.marks.of(mark)));
        Packets {
            call: find(seen, call).cloned(),
            arms: arms.map_or([None, None], |a| [&a.without, &a.with].map(|call| find(seen, call).cloned())),
            packets: self.packets,
            dropped: self.dropped,
            collisions: seen
                .connections
                .iter()
                .filter_map(|c| c.handshake)
                .map(|h| u64::from(h.collisions))
                .sum(),
            marks: marks.filter(|(_, n)| *n > 0).collect(),
            late: seen.late,
        }
    }
}

/// The call as the packets show it: on its connection, begun at its time.
fn find<'a>(seen: &'a Observation, call: &Call) -> Option<&'a passive::ObservedCall> {
    let off = |c: &passive::ObservedCall| c.start_ns.abs_diff(call.began_ns);
    let ours =
        |c: &&passive::ObservedCall| call.local.is_some() && c.ends.map(|(client, _)| client) == call.local;
    let nearest = seen.slowest.iter().filter(ours).min_by_key(|c| off(c))?;
    // Calls on a connection follow one another: one that began half a call away is another.
    let most = call.total.as_nanos() as u64 / 2 + 5_000_000;
    (off(nearest) <= most && !nearest.segments.is_empty()).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passive::LinkType;

    /// An IPv4 packet with a TCP segment.
    fn packet(src: u16, dst: u16, seq: u32, ack: u32, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut p = vec![0x45, 0];
        p.extend((40 + data.len() as u16).to_be_bytes());
        p.extend([0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        p.extend(src.to_be_bytes());
        p.extend(dst.to_be_bytes());
        p.extend(seq.to_be_bytes());
        p.extend(ack.to_be_bytes());
        p.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        p.extend(data);
        p
    }

    #[test]
    fn only_our_connections_count_and_each_call_is_found() {
        let mut sorter = Sorter::new();
        sorter.ours(([127, 0, 0, 1], 40000).into());
        let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let mut give = |at_ms: i64, src, dst, seq, ack, data: &[u8]| {
            let data = packet(src, dst, seq, ack, 0x18, data);
            let wire_len = data.len() as u32;
            let time_ns = 1_700_000_000_000_000_000 + at_ms * 1_000_000;
            sorter.packet(&Packet { time_ns, link: LinkType::Raw, data: &data, wire_len });
        };
        let (q, a) = (request.len() as u32, answer.len() as u32);
        give(0, 40000, 80, 1, 1, request);
        give(7, 80, 40000, 1, 1 + q, answer);
        give(8, 50000, 80, 1, 1, request);
        give(20, 40000, 80, 1 + q, 1 + a, request);
        give(40, 80, 40000, 1 + a, 1 + 2 * q, answer);
        let second = Call {
            local: Some(([127, 0, 0, 1], 40000).into()),
            began_ns: 1_700_000_000_000_000_000 + 20_100_000,
            total: std::time::Duration::from_millis(20),
            ..Call::default()
        };
        let seen = sorter.finish().of(&second, None);
        assert_eq!(seen.packets, 4, "another program's are not ours");
        assert_eq!(seen.call.map(|c| c.total_ns), Some(20_000_000));
        let elsewhere = Call { local: Some(([127, 0, 0, 1], 1).into()), ..second };
        assert!(Sorter::new().finish().of(&elsewhere, None).call.is_none());
    }
}
