//! Counters of a stack, in the manner of netstat.

use crate::TcpTotals;

/// Counters since the stack began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Packets taken from the link.
    pub packets_in: u64,
    /// Packets given to the link.
    pub packets_out: u64,
    /// Packets that were truncated, contradictory, or not TCP.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub bad_checksum: u64,
    /// Connections that we opened.
    pub active_opens: u64,
    /// Connections accepted.
    pub passive_opens: u64,
    /// Connections that we tried to open and that failed.
    pub failed_opens: u64,
    /// Established connections that the peer reset.
    pub resets_in: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Of them, by RACK or by duplicate ACKs.
    pub fast_retransmits: u64,
    /// Tail loss probes sent.
    pub tail_probes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
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
    /// Duplicate ACKs received.
    pub duplicate_acks_in: u64,
    /// Duplicate ACKs sent.
    pub duplicate_acks_out: u64,
    /// Segments received whose bytes had all been received before.
    pub duplicates_in: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Segments refused because of an old timestamp (PAWS).
    pub paws_refused: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenges: u64,
    /// Replies to packets of unknown connections that the rate limit withheld.
    pub replies_withheld: u64,
    /// SYNs answered by a cookie because no more handshakes could be kept.
    pub cookies_sent: u64,
    /// Connections established by a cookie.
    pub cookies_taken: u64,
    /// SYNs dropped because no more connections could be accepted.
    pub syns_dropped: u64,
    /// Connections that entered TIME_WAIT.
    pub time_waits: u64,
    /// TIME_WAIT entries ended early in favor of newer ones.
    pub time_waits_cut: u64,
    /// TIME_WAIT entries replaced by a new connection.
    pub time_waits_reused: u64,
    /// Connections retried from another port because the peer did not accept the first.
    pub ports_moved: u64,
    /// Bytes dropped because no buffer was free, or because too many were held out of order.
    pub bytes_dropped: u64,
    /// Connections ended because memory was lacking and their peers took nothing.
    pub stalled_ended: u64,
    /// "Packet too big" messages from routers that were accepted (RFC 1191, RFC 8201).
    pub too_big: u64,
    /// Such messages that were refused: not about data in flight, or about no smaller size.
    pub too_big_refused: u64,
    /// Attempts to connect that ended by a message that the destination cannot be reached (RFC 792,
    /// RFC 4443).
    pub unreachable: u64,
    /// Such messages that were refused: not about an attempt, or with another number (RFC 5927).
    pub unreachable_refused: u64,
    /// Connections whose large segments were lost without an ICMP message, and which continue with
    /// small ones.
    pub black_holes: u64,
    /// Segments received that a router had marked because of congestion (RFC 3168).
    pub marks_in: u64,
    /// Times the congestion window was reduced because a router had marked a segment of ours.
    pub marks_heeded: u64,
    /// Replies dropped because too many waited for the link.
    pub replies_dropped: u64,
    /// Times the link knew no next hop for a packet.
    pub no_way: u64,
    /// Times the link had no room for a packet.
    pub link_full: u64,
}

impl StackStats {
    /// The counters that every user-space TCP has.
    pub(super) fn totals(&self) -> TcpTotals {
        TcpTotals {
            passive_opens: self.passive_opens,
            active_opens: self.active_opens,
            failed_opens: self.failed_opens,
            segments_in: self.packets_in,
            segments_out: self.packets_out,
            retransmits: self.retransmits,
            timeouts: self.timeouts,
            out_of_order: self.out_of_order,
            resets_in: self.resets_in,
            resets_out: self.resets_out,
            syns_dropped: self.syns_dropped,
            cookies_sent: self.cookies_sent,
            fast_retransmits: self.fast_retransmits,
            tail_probes: self.tail_probes,
            spurious: self.spurious,
            zero_windows: self.zero_windows,
            zero_windows_in: self.zero_windows_in,
            zero_windows_out: self.zero_windows_out,
            windows_filled: self.windows_filled,
            duplicate_acks_in: self.duplicate_acks_in,
            duplicate_acks_out: self.duplicate_acks_out,
            duplicates_in: self.duplicates_in,
            paws_refused: self.paws_refused,
            challenges: self.challenges,
            replies_withheld: self.replies_withheld,
            cookies_taken: self.cookies_taken,
            time_waits_cut: self.time_waits_cut,
            time_waits_reused: self.time_waits_reused,
            bytes_dropped: self.bytes_dropped,
            stalled_ended: self.stalled_ended,
            link_full: self.link_full,
            replies_dropped: self.replies_dropped,
            no_next_hop: self.no_way,
            too_big: self.too_big,
            black_holes: self.black_holes,
            marks_in: self.marks_in,
            marks_heeded: self.marks_heeded,
            bad_checksum: self.bad_checksum,
            malformed: self.malformed,
            ..TcpTotals::default()
        }
    }
}
