//! TCP_INFO in full: the evidence that an explanation can rest on.

/// The kernel's counters of one connection (`struct tcp_info`). Fields that an older kernel lacks
/// are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named as in linux/tcp.h, without the prefix
pub struct Facts {
    pub state: u8,
    pub rto_us: u32,
    pub ato_us: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub lost: u32,
    pub last_data_recv_ms: u32,
    pub last_ack_recv_ms: u32,
    pub pmtu: u32,
    pub rtt_us: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub rcv_rtt_us: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    /// Zero before the first sample.
    pub min_rtt_us: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub total_rto: u16,
    pub total_rto_time_ms: u32,
}

impl Facts {
    /// Parses what the kernel wrote; the structure only grows at its end.
    pub(crate) fn parse(bytes: &[u8]) -> Facts {
        let u32_at =
            |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let u64_at =
            |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        let u16_at =
            |at: usize| bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes);
        Facts {
            state: bytes.first().copied().unwrap_or(0),
            rto_us: u32_at(8),
            ato_us: u32_at(12),
            snd_mss: u32_at(16),
            rcv_mss: u32_at(20),
            unacked: u32_at(24),
            lost: u32_at(32),
            last_data_recv_ms: u32_at(52),
            last_ack_recv_ms: u32_at(56),
            pmtu: u32_at(60),
            rtt_us: u32_at(68),
            snd_cwnd: u32_at(80),
            advmss: u32_at(84),
            rcv_rtt_us: u32_at(92),
            rcv_space: u32_at(96),
            total_retrans: u32_at(100),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            segs_out: u32_at(136),
            segs_in: u32_at(140),
            notsent_bytes: u32_at(144),
            // The kernel writes all ones for "no sample yet".
            min_rtt_us: Some(u32_at(148)).filter(|&us| us != u32::MAX).unwrap_or(0),
            data_segs_in: u32_at(152),
            data_segs_out: u32_at(156),
            busy_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
            dsack_dups: u32_at(216),
            reord_seen: u32_at(220),
            rcv_ooopack: u32_at(224),
            snd_wnd: u32_at(228),
            rcv_wnd: u32_at(232),
            total_rto: u16_at(240),
            total_rto_time_ms: u32_at(244),
        }
    }

    /// True if the kernel has the peer's FIN (CLOSE_WAIT) or the connection is gone (CLOSE).
    pub fn peer_closed(&self) -> bool {
        matches!(self.state, 7 | 8)
    }

    /// Counters minus those of `before`, on the same connection; times and windows as they are now.
    pub fn since(&self, before: &Facts) -> Facts {
        Facts {
            total_retrans: self.total_retrans.wrapping_sub(before.total_retrans),
            bytes_acked: self.bytes_acked.saturating_sub(before.bytes_acked),
            bytes_received: self.bytes_received.saturating_sub(before.bytes_received),
            segs_out: self.segs_out.wrapping_sub(before.segs_out),
            segs_in: self.segs_in.wrapping_sub(before.segs_in),
            data_segs_in: self.data_segs_in.wrapping_sub(before.data_segs_in),
            data_segs_out: self.data_segs_out.wrapping_sub(before.data_segs_out),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            rwnd_limited_us: self.rwnd_limited_us.saturating_sub(before.rwnd_limited_us),
            sndbuf_limited_us: self.sndbuf_limited_us.saturating_sub(before.sndbuf_limited_us),
            dsack_dups: self.dsack_dups.wrapping_sub(before.dsack_dups),
            reord_seen: self.reord_seen.wrapping_sub(before.reord_seen),
            rcv_ooopack: self.rcv_ooopack.wrapping_sub(before.rcv_ooopack),
            total_rto: self.total_rto.wrapping_sub(before.total_rto),
            total_rto_time_ms: self.total_rto_time_ms.wrapping_sub(before.total_rto_time_ms),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_leaves_zeros() {
        let facts = Facts::parse(&[0xff; 160]);
        assert_eq!((facts.min_rtt_us, facts.rwnd_limited_us, facts.total_rto_time_ms), (0, 0, 0));
        assert_eq!(facts.data_segs_out, u32::MAX);
        assert_eq!(Facts::parse(&[]), Facts::default());
    }

    #[test]
    fn counters_are_told_since_a_moment() {
        let before = Facts { total_retrans: 2, bytes_received: 10, snd_cwnd: 10, ..Facts::default() };
        let after = Facts { total_retrans: 3, bytes_received: 15, snd_cwnd: 12, ..before };
        let since = after.since(&before);
        assert_eq!((since.total_retrans, since.bytes_received, since.snd_cwnd), (1, 5, 12));
    }
}
