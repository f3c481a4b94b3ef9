//! What TCP knows of a connection, the same for every transport.

/// Counters of one connection (RFC 9293 terms; Linux: `getsockopt(TCP_INFO)`). A transport without TCP leaves zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments sent again, over the life of the connection.
    pub retransmits: u32,
    /// Segments received out of order.
    pub out_of_order: u32,
    /// Duplicate segments of ours the peer reported (DSACK).
    pub dsack_dups: u32,
    /// Microseconds during which the peer's receive window held us back.
    pub rwnd_limited_us: u64,
    /// Smallest round-trip time seen, microseconds; 0 when none was taken.
    pub min_rtt_us: u32,
    /// Smoothed round-trip time, microseconds (polluted by delayed ACKs: prefer `min_rtt_us`).
    pub rtt_us: u32,
    /// Segments received that carried data.
    pub data_segs_in: u32,
    /// Segments sent that carried data.
    pub data_segs_out: u32,
}

impl TcpInfo {
    /// Adds another connection's counters; the round-trip times keep the smallest.
    pub fn merge(&mut self, other: &TcpInfo) {
        let least = |a: u32, b: u32| if a == 0 || (b != 0 && b < a) { b } else { a };
        self.retransmits += other.retransmits;
        self.out_of_order += other.out_of_order;
        self.dsack_dups += other.dsack_dups;
        self.rwnd_limited_us += other.rwnd_limited_us;
        self.data_segs_in += other.data_segs_in;
        self.data_segs_out += other.data_segs_out;
        self.min_rtt_us = least(self.min_rtt_us, other.min_rtt_us);
        self.rtt_us = least(self.rtt_us, other.rtt_us);
    }
}
