//! What a stack counts, in the manner of netstat.

use crate::TcpTotals;

/// Counters since the stack began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Packets taken from the link.
    pub packets_in: u64,
    /// Packets given to the link.
    pub packets_out: u64,
    /// Packets that were not understood: cut short, contradictory, or not TCP.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub bad_checksum: u64,
    /// Connections we asked for.
    pub active_opens: u64,
    /// Connections that were accepted.
    pub passive_opens: u64,
    /// Connections asked for that failed.
    pub failed_opens: u64,
    /// Established connections that the peer reset.
    pub resets_in: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Of them: by RACK or by duplicate ACKs.
    pub fast_retransmits: u64,
    /// Tail loss probes sent.
    pub tail_probes: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Retransmissions that turned out to have been needless.
    pub spurious: u64,
    /// Probes of a window that a peer had closed.
    pub zero_windows: u64,
    /// Segments received that announced a closed window.
    pub zero_windows_in: u64,
    /// Segments sent that announced a closed window.
    pub zero_windows_out: u64,
    /// Segments sent that ended where the peer's window does.
    pub windows_filled: u64,
    /// Duplicate ACKs received.
    pub duplicate_acks_in: u64,
    /// Duplicate ACKs sent.
    pub duplicate_acks_out: u64,
    /// Segments received whose bytes had all been received before.
    pub duplicates_in: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Segments refused since their timestamp was old (PAWS).
    pub paws_refused: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenges: u64,
    /// Replies to strangers that the limit of their rate kept back.
    pub replies_withheld: u64,
    /// SYNs that came when no handshake more could be kept: answered by a cookie.
    pub cookies_sent: u64,
    /// Connections that a cookie made.
    pub cookies_taken: u64,
    /// SYNs dropped since nothing more could be accepted.
    pub syns_dropped: u64,
    /// Connections that entered TIME_WAIT.
    pub time_waits: u64,
    /// TIME_WAIT entries that gave way to newer ones before their time.
    pub time_waits_cut: u64,
    /// TIME_WAIT entries that a new connection took over.
    pub time_waits_reused: u64,
    /// Connections asked for from another port, since the peer did not take the first.
    pub ports_moved: u64,
    /// Bytes dropped since no buffer was left for them, or since too many were kept out of order.
    pub bytes_dropped: u64,
    /// Routers' words that a packet was too large which were believed (RFC 1191, RFC 8201).
    pub too_big: u64,
    /// ... and those that were not: about nothing under way, or no news.
    pub too_big_refused: u64,
    /// Connections whose large segments vanished without a word, and which go on with small ones.
    pub black_holes: u64,
    /// Replies given up since the link knew no way to their peer.
    pub no_way: u64,
    /// Times the link had no room for a packet.
    pub link_full: u64,
}

impl StackStats {
    /// Those that every TCP of our own has.
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
            link_full: self.link_full,
            too_big: self.too_big,
            black_holes: self.black_holes,
            bad_checksum: self.bad_checksum,
            malformed: self.malformed,
            ..TcpTotals::default()
        }
    }
}
