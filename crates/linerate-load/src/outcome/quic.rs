//! What QUIC went through.

use linerate_client::QuicTotals;
use serde::{Deserialize, Serialize};

/// QUIC's counts over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuicFigures {
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Retry packets of the server (RFC 9000, section 8.1.2).
    pub retries: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets of ours that were taken for lost.
    pub lost: u64,
    /// Round-trip times of connections at their end, nanoseconds: the least, the greatest, and their sum.
    pub rtt_min_ns: u64,
    /// The greatest.
    pub rtt_max_ns: u64,
    /// Their sum, over [`rtts`](QuicFigures::rtts) connections.
    pub rtt_sum_ns: u64,
    /// Connections whose round-trip time is known.
    pub rtts: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams received with the mark of congestion (ECN, RFC 3168).
    pub marked: u64,
    /// Datagrams that came, and found no room in our sockets.
    pub dropped: u64,
    /// Datagrams that found no room to leave.
    pub not_sent: u64,
}

impl From<QuicTotals> for QuicFigures {
    fn from(totals: QuicTotals) -> QuicFigures {
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let QuicTotals { handshakes, retries, packets, lost, rtts, datagrams, .. } = totals;
        QuicFigures {
            handshakes,
            retries,
            packets,
            lost,
            rtt_min_ns: totals.rtt_min.map_or(0, ns),
            rtt_max_ns: ns(totals.rtt_max),
            rtt_sum_ns: ns(totals.rtt_sum),
            rtts,
            datagrams_sent: datagrams.sent,
            datagrams_received: datagrams.received,
            marked: datagrams.marked,
            dropped: datagrams.dropped,
            not_sent: datagrams.not_sent,
        }
    }
}

impl QuicFigures {
    /// The mean round-trip time of connections at their end, nanoseconds; `None`: none is known.
    pub fn rtt_mean_ns(&self) -> Option<f64> {
        (self.rtts > 0).then(|| self.rtt_sum_ns as f64 / self.rtts as f64)
    }

    /// Datagrams of both ways for each of so many responses; `None`: there was no response.
    pub fn datagrams_per(&self, responses: u64) -> Option<f64> {
        let datagrams = (self.datagrams_sent + self.datagrams_received) as f64;
        (responses > 0).then(|| datagrams / responses as f64)
    }

    /// Datagrams that this machine had no room for.
    pub fn dropped_here(&self) -> u64 {
        self.dropped + self.not_sent
    }

    /// Adds what another part of the run counted.
    pub fn merge(&mut self, other: &QuicFigures) {
        self.rtt_min_ns = match (self.rtts, other.rtts) {
            (0, _) => other.rtt_min_ns,
            (_, 0) => self.rtt_min_ns,
            _ => self.rtt_min_ns.min(other.rtt_min_ns),
        };
        self.rtt_max_ns = self.rtt_max_ns.max(other.rtt_max_ns);
        for (mine, theirs) in [
            (&mut self.handshakes, other.handshakes),
            (&mut self.retries, other.retries),
            (&mut self.packets, other.packets),
            (&mut self.lost, other.lost),
            (&mut self.rtt_sum_ns, other.rtt_sum_ns),
            (&mut self.rtts, other.rtts),
            (&mut self.datagrams_sent, other.datagrams_sent),
            (&mut self.datagrams_received, other.datagrams_received),
            (&mut self.marked, other.marked),
            (&mut self.dropped, other.dropped),
            (&mut self.not_sent, other.not_sent),
        ] {
            *mine += theirs;
        }
    }
}
