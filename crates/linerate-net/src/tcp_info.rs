//! What TCP knows of a connection, in one form for every transport.

use serde::{Deserialize, Serialize};

/// Counters of one connection (RFC 9293 terms; Linux: `getsockopt(TCP_INFO)`). A transport without
/// TCP leaves zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments retransmitted over the life of the connection.
    pub retransmits: u32,
    /// Segments received out of order.
    pub out_of_order: u32,
    /// Duplicates of our segments that the peer reported (DSACK).
    pub dsack_dups: u32,
    /// How often the peer's ACKs showed that our segments had been reordered.
    pub reordered: u32,
    /// Microseconds during which the peer's receive window blocked unsent data.
    pub rwnd_limited_us: u64,
    /// Microseconds during which our send buffer was too small to keep the path busy.
    pub sndbuf_limited_us: u64,
    /// The peer's current receive window, bytes; `None` if unknown (Linux before 5.4).
    pub peer_window: Option<u32>,
    /// The receive window that we last announced, bytes; `None` if unknown (Linux before 6.2).
    pub own_window: Option<u32>,
    /// Smallest round-trip time seen, microseconds; 0 before the first sample.
    pub min_rtt_us: u32,
    /// Smoothed round-trip time, microseconds. Delayed ACKs distort it: prefer `min_rtt_us`.
    pub rtt_us: u32,
    /// Segments with data received.
    pub data_segs_in: u32,
    /// Segments with data sent.
    pub data_segs_out: u32,
}

/// Counters of a user-space TCP over all its connections, in the manner of netstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTotals {
    /// Current connections, including closing ones.
    pub connections: u64,
    /// Current handshakes begun by peers.
    pub handshakes: u64,
    /// Current connections in TIME_WAIT.
    pub time_wait: u64,
    /// Connections accepted.
    pub passive_opens: u64,
    /// Connections that we opened.
    pub active_opens: u64,
    /// Connections that we tried to open and that failed.
    pub failed_opens: u64,
    /// Segments received.
    pub segments_in: u64,
    /// Segments sent.
    pub segments_out: u64,
    /// Segments retransmitted, including SYNs.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Resets received.
    pub resets_in: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// SYNs dropped without an answer because there was no room.
    pub syns_dropped: u64,
    /// SYNs answered by a cookie because no more handshakes could be kept.
    pub cookies_sent: u64,
    /// Segments retransmitted before a timeout, by RACK or duplicate ACKs.
    pub fast_retransmits: u64,
    /// Tail loss probes sent (RFC 8985 section 7).
    pub tail_probes: u64,
    /// Retransmissions that turned out to be unnecessary.
    pub spurious: u64,
    /// Probes of a peer's closed window.
    pub zero_windows: u64,
    /// Segments received that announced a closed window.
    pub zero_windows_in: u64,
    /// Segments sent that announced a closed window.
    pub zero_windows_out: u64,
    /// Segments sent that filled the peer's window.
    pub windows_filled: u64,
    /// Duplicate ACKs received (RFC 5681 section 2).
    pub duplicate_acks_in: u64,
    /// Duplicate ACKs sent.
    pub duplicate_acks_out: u64,
    /// Segments received whose bytes had all been received before.
    pub duplicates_in: u64,
    /// Segments refused because of an old timestamp (PAWS, RFC 7323 section 5).
    pub paws_refused: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenges: u64,
    /// Replies to packets of unknown connections that the rate limit withheld.
    pub replies_withheld: u64,
    /// Connections established by a cookie.
    pub cookies_taken: u64,
    /// TIME_WAIT entries ended early in favor of newer ones.
    pub time_waits_cut: u64,
    /// TIME_WAIT entries replaced by a new connection.
    pub time_waits_reused: u64,
    /// Bytes dropped because no buffer was free.
    pub bytes_dropped: u64,
    /// Connections ended because memory was lacking and their peers took nothing.
    pub stalled_ended: u64,
    /// Times the link had no room for a packet.
    pub link_full: u64,
    /// Replies (SYN-ACKs, resets, ACKs of ended connections) dropped because too many waited for
    /// the link.
    pub replies_dropped: u64,
    /// Times the next hop of a packet was unknown.
    pub no_next_hop: u64,
    /// "Packet too big" messages from routers that were accepted (RFC 1191, RFC 8201).
    pub too_big: u64,
    /// Connections whose large segments were lost without an ICMP message.
    pub black_holes: u64,
    /// Segments received that a router had marked because of congestion (RFC 3168).
    pub marks_in: u64,
    /// Times a congestion window was reduced because a router had marked a segment of ours.
    pub marks_heeded: u64,
    /// Segments with a wrong checksum.
    pub bad_checksum: u64,
    /// Packets with a malformed or unknown header.
    pub malformed: u64,
    /// Bytes of buffers in use.
    pub buffer_bytes: u64,
    /// Packets lost on this machine before TCP saw them, because it read the link too slowly.
    pub overrun: u64,
    /// Packets lost on this machine because no frame of the link holds them.
    pub too_large: u64,
}

impl TcpTotals {
    /// The counters that only rise, by the names that documents and metrics show.
    pub fn counters(&self) -> [(&'static str, u64); 41] {
        [
            ("passive_opens", self.passive_opens),
            ("active_opens", self.active_opens),
            ("failed_opens", self.failed_opens),
            ("segments_in", self.segments_in),
            ("segments_out", self.segments_out),
            ("retransmits", self.retransmits),
            ("timeouts", self.timeouts),
            ("out_of_order", self.out_of_order),
            ("resets_in", self.resets_in),
            ("resets_out", self.resets_out),
            ("syns_dropped", self.syns_dropped),
            ("cookies_sent", self.cookies_sent),
            ("fast_retransmits", self.fast_retransmits),
            ("tail_probes", self.tail_probes),
            ("spurious", self.spurious),
            ("zero_windows", self.zero_windows),
            ("zero_windows_in", self.zero_windows_in),
            ("zero_windows_out", self.zero_windows_out),
            ("windows_filled", self.windows_filled),
            ("duplicate_acks_in", self.duplicate_acks_in),
            ("duplicate_acks_out", self.duplicate_acks_out),
            ("duplicates_in", self.duplicates_in),
            ("paws_refused", self.paws_refused),
            ("challenges", self.challenges),
            ("replies_withheld", self.replies_withheld),
            ("cookies_taken", self.cookies_taken),
            ("time_waits_cut", self.time_waits_cut),
            ("time_waits_reused", self.time_waits_reused),
            ("bytes_dropped", self.bytes_dropped),
            ("stalled_ended", self.stalled_ended),
            ("link_full", self.link_full),
            ("replies_dropped", self.replies_dropped),
            ("no_next_hop", self.no_next_hop),
            ("too_big", self.too_big),
            ("black_holes", self.black_holes),
            ("marks_in", self.marks_in),
            ("marks_heeded", self.marks_heeded),
            ("bad_checksum", self.bad_checksum),
            ("malformed", self.malformed),
            ("overrun", self.overrun),
            ("too_large", self.too_large),
        ]
    }

    /// The current values, by the names that documents and metrics show.
    pub fn now(&self) -> [(&'static str, u64); 4] {
        [
            ("connections", self.connections),
            ("handshakes", self.handshakes),
            ("time_wait", self.time_wait),
            ("buffer_bytes", self.buffer_bytes),
        ]
    }

    /// Adds another core's.
    pub fn merge(&mut self, other: &TcpTotals) {
        let mut other = *other;
        for (sum, more) in self.all().into_iter().zip(other.all()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Every field; the array's length makes the compiler catch a forgotten one.
    fn all(&mut self) -> [&mut u64; size_of::<TcpTotals>() / size_of::<u64>()] {
        [
            &mut self.connections,
            &mut self.handshakes,
            &mut self.time_wait,
            &mut self.passive_opens,
            &mut self.active_opens,
            &mut self.failed_opens,
            &mut self.segments_in,
            &mut self.segments_out,
            &mut self.retransmits,
            &mut self.timeouts,
            &mut self.out_of_order,
            &mut self.resets_in,
            &mut self.resets_out,
            &mut self.syns_dropped,
            &mut self.cookies_sent,
            &mut self.fast_retransmits,
            &mut self.tail_probes,
            &mut self.spurious,
            &mut self.zero_windows,
            &mut self.zero_windows_in,
            &mut self.zero_windows_out,
            &mut self.windows_filled,
            &mut self.duplicate_acks_in,
            &mut self.duplicate_acks_out,
            &mut self.duplicates_in,
            &mut self.paws_refused,
            &mut self.challenges,
            &mut self.replies_withheld,
            &mut self.cookies_taken,
            &mut self.time_waits_cut,
            &mut self.time_waits_reused,
            &mut self.bytes_dropped,
            &mut self.stalled_ended,
            &mut self.link_full,
            &mut self.replies_dropped,
            &mut self.no_next_hop,
            &mut self.too_big,
            &mut self.black_holes,
            &mut self.marks_in,
            &mut self.marks_heeded,
            &mut self.bad_checksum,
            &mut self.malformed,
            &mut self.buffer_bytes,
            &mut self.overrun,
            &mut self.too_large,
        ]
    }
}

/// Offsets in the kernel's `struct tcp_info` (linux/tcp.h), which only grows at its end.
mod at {
    pub(super) const RTT: usize = 68;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DATA_SEGS_IN: usize = 152;
    pub(super) const DATA_SEGS_OUT: usize = 156;
    pub(super) const RWND_LIMITED: usize = 176;
    pub(super) const SNDBUF_LIMITED: usize = 184;
    pub(super) const DSACK_DUPS: usize = 216;
    pub(super) const REORD_SEEN: usize = 220;
    pub(super) const RCV_OOOPACK: usize = 224;
    pub(super) const SND_WND: usize = 228;
    pub(super) const RCV_WND: usize = 232;
}

impl TcpInfo {
    /// Parses what the kernel wrote; fields that an older kernel lacks stay zero.
    pub(crate) fn parse(bytes: &[u8]) -> TcpInfo {
        let known = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
        let u32_at = |at: usize| known(at).unwrap_or(0);
        let u64_at =
            |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        // The kernel writes all ones for "no sample yet".
        let min_rtt_us = Some(u32_at(at::MIN_RTT)).filter(|&us| us != u32::MAX).unwrap_or(0);
        TcpInfo {
            retransmits: u32_at(at::TOTAL_RETRANS),
            out_of_order: u32_at(at::RCV_OOOPACK),
            dsack_dups: u32_at(at::DSACK_DUPS),
            reordered: u32_at(at::REORD_SEEN),
            rwnd_limited_us: u64_at(at::RWND_LIMITED),
            sndbuf_limited_us: u64_at(at::SNDBUF_LIMITED),
            peer_window: known(at::SND_WND),
            own_window: known(at::RCV_WND),
            min_rtt_us,
            rtt_us: u32_at(at::RTT),
            data_segs_in: u32_at(at::DATA_SEGS_IN),
            data_segs_out: u32_at(at::DATA_SEGS_OUT),
        }
    }

    /// Adds another connection's counters; keeps the smaller of each round-trip time and window.
    pub fn merge(&mut self, other: &TcpInfo) {
        let smaller = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        let least = |a: u32, b: u32| if a == 0 || (b != 0 && b < a) { b } else { a };
        self.retransmits = self.retransmits.saturating_add(other.retransmits);
        self.out_of_order = self.out_of_order.saturating_add(other.out_of_order);
        self.dsack_dups = self.dsack_dups.saturating_add(other.dsack_dups);
        self.reordered = self.reordered.saturating_add(other.reordered);
        self.rwnd_limited_us = self.rwnd_limited_us.saturating_add(other.rwnd_limited_us);
        self.sndbuf_limited_us = self.sndbuf_limited_us.saturating_add(other.sndbuf_limited_us);
        self.peer_window = smaller(self.peer_window, other.peer_window);
        self.own_window = smaller(self.own_window, other.own_window);
        self.data_segs_in = self.data_segs_in.saturating_add(other.data_segs_in);
        self.data_segs_out = self.data_segs_out.saturating_add(other.data_segs_out);
        self.min_rtt_us = least(self.min_rtt_us, other.min_rtt_us);
        self.rtt_us = least(self.rtt_us, other.rtt_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_at_its_place() {
        let mut bytes = [0u8; 248];
        let mut put = |at: usize, value: u8| bytes[at] = value;
        put(at::RTT, 1);
        put(at::TOTAL_RETRANS, 2);
        put(at::MIN_RTT, 3);
        put(at::DATA_SEGS_IN, 4);
        put(at::DATA_SEGS_OUT, 5);
        put(at::RWND_LIMITED, 6);
        put(at::DSACK_DUPS, 7);
        put(at::RCV_OOOPACK, 8);
        put(at::REORD_SEEN, 9);
        put(at::SNDBUF_LIMITED, 10);
        put(at::SND_WND, 11);
        let expected = TcpInfo {
            retransmits: 2,
            out_of_order: 8,
            dsack_dups: 7,
            reordered: 9,
            rwnd_limited_us: 6,
            sndbuf_limited_us: 10,
            peer_window: Some(11),
            own_window: Some(0),
            min_rtt_us: 3,
            rtt_us: 1,
            data_segs_in: 4,
            data_segs_out: 5,
        };
        if cfg!(target_endian = "little") {
            assert_eq!(TcpInfo::parse(&bytes), expected);
        }
    }

    #[test]
    fn an_older_kernel_leaves_zeros() {
        let info = TcpInfo::parse(&[0xff; 160]);
        assert_eq!((info.rwnd_limited_us, info.dsack_dups, info.out_of_order), (0, 0, 0));
        assert_eq!((info.peer_window, info.own_window), (None, None), "unknown is not closed");
        assert_eq!(info.min_rtt_us, 0, "no sample yet");
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }

    #[test]
    fn merging_adds_counters_and_keeps_the_smallest_times() {
        let mut sum = TcpInfo { retransmits: 1, min_rtt_us: 0, rtt_us: 9, ..TcpInfo::default() };
        sum.merge(&TcpInfo { retransmits: 2, min_rtt_us: 5, rtt_us: 10, ..TcpInfo::default() });
        sum.merge(&TcpInfo { retransmits: 3, min_rtt_us: 7, rtt_us: 0, ..TcpInfo::default() });
        assert_eq!((sum.retransmits, sum.min_rtt_us, sum.rtt_us), (6, 5, 9));
    }
}
