//! TCP events: `TCP_INFO` samples of connections, and segments counted one by one.

use linerate_net::{TcpInfo, TcpTotals};
use serde::{Deserialize, Serialize};

/// Samples of connections (`TCP_INFO`, or the same of user-space TCP). Counters are summed over the
/// sampled connections, each from one sample to the next. A connection's last sample is taken just
/// before it is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpEvents {
    /// Segments that we retransmitted.
    pub retransmits: u64,
    /// Our segments that the server reported as received twice (RFC 2883).
    pub duplicates_reported: u64,
    /// How often the server's ACKs showed that our segments were reordered.
    pub reordered: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Time during which the server's receive window blocked data that was ready, microseconds.
    pub rwnd_limited_us: u64,
    /// Time during which our send buffer was too small, microseconds.
    pub sndbuf_limited_us: u64,
    /// Looks at connections.
    pub looks: u64,
    /// Looks that found the server's window closed.
    pub peer_window_closed: u64,
    /// Looks that found our own window closed.
    pub own_window_closed: u64,
}

impl TcpEvents {
    /// A look at a connection; `before`: what the last one found.
    pub(crate) fn look(&mut self, before: Option<&TcpInfo>, now: &TcpInfo) {
        let zero = TcpInfo::default();
        let before = before.unwrap_or(&zero);
        let grown = |of: fn(&TcpInfo) -> u32| u64::from(of(now).wrapping_sub(of(before)));
        self.retransmits += grown(|i| i.retransmits);
        self.duplicates_reported += grown(|i| i.dsack_dups);
        self.reordered += grown(|i| i.reordered);
        self.out_of_order += grown(|i| i.out_of_order);
        self.rwnd_limited_us += now.rwnd_limited_us.saturating_sub(before.rwnd_limited_us);
        self.sndbuf_limited_us += now.sndbuf_limited_us.saturating_sub(before.sndbuf_limited_us);
        self.looks += 1;
        self.peer_window_closed += u64::from(now.peer_window == Some(0));
        self.own_window_closed += u64::from(now.own_window == Some(0));
    }

    /// Every field; the length sees to it that none is forgotten.
    fn all(&mut self) -> [&mut u64; size_of::<TcpEvents>() / size_of::<u64>()] {
        [
            &mut self.retransmits,
            &mut self.duplicates_reported,
            &mut self.reordered,
            &mut self.out_of_order,
            &mut self.rwnd_limited_us,
            &mut self.sndbuf_limited_us,
            &mut self.looks,
            &mut self.peer_window_closed,
            &mut self.own_window_closed,
        ]
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &TcpEvents) {
        let mut other = *other;
        self.all().into_iter().zip(other.all()).for_each(|(sum, more)| *sum += *more);
    }

    /// The difference to an earlier state.
    #[must_use]
    pub fn since(&self, before: &TcpEvents) -> TcpEvents {
        let (mut since, mut before) = (*self, *before);
        since.all().into_iter().zip(before.all()).for_each(|(n, less)| *n = n.saturating_sub(*less));
        since
    }
}

/// Kinds of segments, by the names of Wireshark's TCP analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentEvent {
    /// Sent again, of whatever kind.
    Retransmission,
    /// Of these: soon after duplicate ACKs, before a timeout.
    FastRetransmission,
    /// Sent again though all its bytes had been acknowledged.
    SpuriousRetransmission,
    /// An ACK that repeats the one before it.
    DuplicateAck,
    /// Overtaken by one that was sent later.
    OutOfOrder,
    /// Announces a closed window.
    ZeroWindow,
    /// Asks whether a closed window is open again.
    ZeroWindowProbe,
    /// Ends where the receiver's window does.
    WindowFull,
}

impl SegmentEvent {
    /// All of them, in the order of reports.
    pub const ALL: [SegmentEvent; 8] = [
        SegmentEvent::Retransmission,
        SegmentEvent::FastRetransmission,
        SegmentEvent::SpuriousRetransmission,
        SegmentEvent::DuplicateAck,
        SegmentEvent::OutOfOrder,
        SegmentEvent::ZeroWindow,
        SegmentEvent::ZeroWindowProbe,
        SegmentEvent::WindowFull,
    ];

    /// The name in JSON, and the singular and plural in words.
    fn names(self) -> [&'static str; 3] {
        match self {
            SegmentEvent::Retransmission => ["retransmission", "retransmission", "retransmissions"],
            SegmentEvent::FastRetransmission => {
                ["fast_retransmission", "fast retransmission", "fast retransmissions"]
            }
            SegmentEvent::SpuriousRetransmission => {
                ["spurious_retransmission", "spurious retransmission", "spurious retransmissions"]
            }
            SegmentEvent::DuplicateAck => ["duplicate_ack", "duplicate ACK", "duplicate ACKs"],
            SegmentEvent::OutOfOrder => ["out_of_order", "out of order", "out of order"],
            SegmentEvent::ZeroWindow => ["zero_window", "zero window", "zero windows"],
            SegmentEvent::ZeroWindowProbe => ["zero_window_probe", "window probe", "window probes"],
            SegmentEvent::WindowFull => ["window_full", "window full", "windows full"],
        }
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }

    /// The noun for `n` of them.
    pub fn words(self, n: u64) -> &'static str {
        self.names()[if n == 1 { 1 } else { 2 }]
    }
}

/// Segments of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounts {
    /// All of them.
    pub segments: u64,
    counts: [u64; SegmentEvent::ALL.len()],
    /// A bit for each event that the source can count.
    counted: u8,
}

impl SegmentCounts {
    /// None yet, of events that are all counted.
    pub fn nothing() -> SegmentCounts {
        SegmentCounts { counted: u8::MAX, ..SegmentCounts::default() }
    }

    /// Counts `n` more.
    pub fn add(&mut self, event: SegmentEvent, n: u64) {
        self.counts[event as usize] += n;
        self.counted |= 1 << event as u8;
    }

    /// The count; `None` if the source does not count this event.
    pub fn of(&self, event: SegmentEvent) -> Option<u64> {
        (self.counted >> event as u8 & 1 == 1).then(|| self.counts[event as usize])
    }

    /// Those that were counted.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentEvent, u64)> + '_ {
        SegmentEvent::ALL.into_iter().filter_map(|event| Some((event, self.of(event)?)))
    }

    fn merge(&mut self, other: &SegmentCounts) {
        self.segments += other.segments;
        self.counted |= other.counted;
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, n)| *sum += n);
    }

    fn since(&self, before: &SegmentCounts) -> SegmentCounts {
        let mut since = *self;
        since.segments = since.segments.saturating_sub(before.segments);
        since.counts.iter_mut().zip(before.counts).for_each(|(n, less)| *n = n.saturating_sub(less));
        since
    }
}

/// Segments counted one by one: by a capture, or by a TCP of our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// Segments that we sent.
    pub sent: SegmentCounts,
    /// The server's.
    pub received: SegmentCounts,
    /// Packets that the source dropped uncounted because a buffer was full. The counts are then
    /// lower bounds.
    pub missed: u64,
}

/// A packet of the run's first connection, as a capture saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedPacket {
    /// Since its first one, nanoseconds.
    pub at_ns: u64,
    /// The server sent it.
    pub from_server: bool,
    /// As in the header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u8,
    /// From the connection's start.
    pub seq: u32,
    /// From the connection's start.
    pub ack: u32,
    /// Bytes of data.
    pub bytes: u32,
    /// As in the header, not scaled.
    pub window: u16,
    /// What is remarkable about it, by Wireshark's names.
    pub marks: Vec<String>,
}

impl Segments {
    /// Counts of user-space TCP.
    pub(crate) fn of_stack(totals: &TcpTotals) -> Segments {
        let mut sent = SegmentCounts { segments: totals.segments_out, ..SegmentCounts::default() };
        sent.add(SegmentEvent::Retransmission, totals.retransmits);
        sent.add(SegmentEvent::FastRetransmission, totals.fast_retransmits);
        sent.add(SegmentEvent::DuplicateAck, totals.duplicate_acks_out);
        sent.add(SegmentEvent::ZeroWindow, totals.zero_windows_out);
        sent.add(SegmentEvent::ZeroWindowProbe, totals.zero_windows);
        sent.add(SegmentEvent::WindowFull, totals.windows_filled);
        let mut received = SegmentCounts { segments: totals.segments_in, ..SegmentCounts::default() };
        received.add(SegmentEvent::SpuriousRetransmission, totals.duplicates_in);
        received.add(SegmentEvent::DuplicateAck, totals.duplicate_acks_in);
        received.add(SegmentEvent::OutOfOrder, totals.out_of_order);
        received.add(SegmentEvent::ZeroWindow, totals.zero_windows_in);
        Segments { sent, received, missed: totals.overrun }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Segments) {
        self.sent.merge(&other.sent);
        self.received.merge(&other.received);
        self.missed += other.missed;
    }

    /// The difference to an earlier state.
    #[must_use]
    pub fn since(&self, before: &Segments) -> Segments {
        Segments {
            sent: self.sent.since(&before.sent),
            received: self.received.since(&before.received),
            missed: self.missed.saturating_sub(before.missed),
        }
    }

    /// Adds up what may be there.
    pub(crate) fn merge_options(sum: &mut Option<Segments>, more: Option<&Segments>) {
        if let Some(more) = more {
            sum.get_or_insert_default().merge(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_add_what_grew_and_count_closed_windows() {
        let first =
            TcpInfo { retransmits: 3, rwnd_limited_us: 10, peer_window: Some(0), ..TcpInfo::default() };
        let second = TcpInfo { retransmits: 5, rwnd_limited_us: 30, peer_window: Some(9), ..first };
        let mut events = TcpEvents::default();
        events.look(None, &first);
        let after_one = events;
        events.look(Some(&first), &second);
        assert_eq!((events.retransmits, events.rwnd_limited_us), (5, 30));
        assert_eq!((events.looks, events.peer_window_closed, events.own_window_closed), (2, 1, 0));
        let since = events.since(&after_one);
        assert_eq!((since.retransmits, since.looks, since.peer_window_closed), (2, 1, 0));
        let mut sum = after_one;
        sum.merge(&since);
        assert_eq!(sum, events);
    }

    #[test]
    fn what_nobody_counted_is_not_zero() {
        let totals =
            TcpTotals { retransmits: 4, segments_out: 100, zero_windows_in: 2, ..TcpTotals::default() };
        let segments = Segments::of_stack(&totals);
        assert_eq!(segments.sent.of(SegmentEvent::Retransmission), Some(4));
        assert_eq!(segments.sent.of(SegmentEvent::OutOfOrder), None);
        assert_eq!(segments.received.of(SegmentEvent::ZeroWindow), Some(2));
        assert!(SegmentEvent::ALL.iter().all(|e| SegmentCounts::nothing().of(*e) == Some(0)));
        let mut twice = segments;
        twice.merge(&segments);
        assert_eq!(twice.since(&segments), segments);
    }
}
