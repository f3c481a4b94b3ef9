//! Paths that are narrower than the link: routers that report it (RFC 1191, RFC 8201), and black
//! holes, where they do not (RFC 2923 section 2.1; a simple form of RFC 4821's remedy).

use super::Flow;
use super::TcpState;
use super::parts::Suspicion;
use crate::NetErrorKind;
use crate::stack::wire::Seq;

/// No report reduces packets below this: IPv6's minimum (RFC 8200 section 5), and Linux's minimum
/// for IPv4.
const LEAST_V6: usize = 1280;
const LEAST_V4: usize = 552;
/// Likely MTUs behind a router that does not name its own (RFC 1191 section 7.1, without the
/// rarest).
const PLATEAUS: [usize; 4] = [2002, 1492, 1006, LEAST_V4];

/// Segment sizes to try in a black hole: those of packets of 1280 and 576 bytes, with the longest
/// headers.
const SMALL: [u16; 2] = [1220, 536];
/// Consecutive timeouts before the first of them is tried, and before the second. Reason: one is an
/// ordinary loss, and four take about three seconds.
const SUSPICIOUS: [u8; 2] = [2, 4];
/// How often small segments must get through where large ones did not, before the path counts as
/// narrow. Reason: once, it may have been the end of an outage.
const SURE: u8 = 2;

/// The path MTU, IP header included, that a message about a packet of `len` bytes reports; `None`
/// if it is no smaller or implausible.
pub(crate) fn believable(mtu: usize, len: usize, v4: bool) -> Option<usize> {
    let mtu = if mtu == 0 { PLATEAUS.into_iter().find(|plateau| *plateau < len)? } else { mtu };
    let mtu = mtu.max(if v4 { LEAST_V4 } else { LEAST_V6 });
    (mtu < len).then_some(mtu)
}

impl Flow {
    /// A router reports that our segment with this number was too large; `mss`: what fits, before
    /// options are subtracted. Returns whether it was accepted: the segment must be in flight (RFC
    /// 5927 section 4.1) and too large indeed.
    pub(crate) fn handle_too_big(&mut self, seq: Seq, mss: u16) -> bool {
        let under_way = seq.ge(self.send.una) && seq.lt(self.send.nxt);
        if !under_way || matches!(self.state, TcpState::SynSent | TcpState::SynReceived | TcpState::Closed) {
            return false;
        }
        let before = self.send.mss;
        self.limit_mss(mss);
        if self.send.mss == before {
            return false;
        }
        self.suspicion = Suspicion::default();
        // Congestion did not cause these losses: they are retransmitted at once, and the window
        // stays.
        let largest = u32::from(self.send.mss) + 1;
        for seg in self.send.sent.iter_mut().filter(|seg| seg.len() > largest && !seg.sacked && !seg.lost) {
            seg.lost = true;
            self.send.lost += seg.len();
        }
        true
    }

    /// The destination of our segment with this number cannot be reached. Returns whether that ends
    /// the connection: only an attempt, whose SYN it was.
    pub(crate) fn handle_unreachable(&mut self, seq: Seq, kind: NetErrorKind) -> bool {
        if self.state != TcpState::SynSent || self.send.syn_due || seq != self.send.iss {
            return false;
        }
        self.fail(kind);
        true
    }

    /// Another timeout: segments may be lost because of their size.
    pub(super) fn suspect_black_hole(&mut self) {
        let waits = self.send.sent.iter().find(|seg| !seg.sacked).map_or(0, |seg| seg.len());
        let options = if self.agreed.timestamps { 12 } else { 0 };
        for (small, time_outs) in SMALL.into_iter().zip(SUSPICIOUS) {
            let small = small - options;
            if self.timers.backoff >= time_outs && small < self.send.mss && waits > u32::from(small) {
                if self.suspicion.before == 0 {
                    self.suspicion.before = self.send.mss;
                }
                self.send.mss = small;
                return;
            }
        }
    }

    /// A segment got through after timeouts. Returns whether the path now counts as narrow.
    pub(super) fn settle_suspicion(&mut self) -> bool {
        let before = std::mem::take(&mut self.suspicion.before);
        if before == 0 {
            return false;
        }
        self.suspicion.times += 1;
        if self.suspicion.times < SURE {
            self.send.mss = before;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transport;
    use crate::stack::lab::{Lab, seg};
    use crate::stack::wire::{Message, Options};

    fn lab() -> Lab {
        let options = Options { mss: Some(1460), sack_permitted: true, ..Options::default() };
        let mut lab = Lab::accepted(options);
        lab.send(10);
        lab.drop_out();
        lab.pass_ms(10);
        lab.hears(seg("A", 1, 11, 0));
        lab.drop_out();
        lab
    }

    /// RFC 1191 section 6: segments that were too large are retransmitted at once in smaller
    /// pieces, and later ones are small too.
    #[test]
    fn a_routers_word_makes_segments_smaller_at_once() {
        let mut lab = lab();
        lab.send(4000);
        let first = lab.packets().remove(0);
        assert_eq!(lab.out(), ["A 11:1471 ack 1", "A 1471:2931 ack 1", "PA 2931:4011 ack 1"]);
        lab.hears_bytes(&Message::about(&first, 1300));
        // 1260 bytes fit: the last segment fitted anyway.
        assert_eq!(
            lab.out(),
            ["PA 11:1271 ack 1", "PA 1271:1471 ack 1", "PA 1471:2731 ack 1", "PA 2731:2931 ack 1"]
        );
        lab.hears(seg("A", 1, 4011, 0));
        lab.send(2000);
        assert_eq!(lab.out(), ["A 4011:5271 ack 1", "PA 5271:6011 ack 1"]);
        let stats = lab.net.stats();
        assert_eq!((stats.too_big, stats.too_big_refused, stats.timeouts), (1, 0, 0));
        // The path is remembered: a new connection to the same host begins with small segments.
        lab.peer_port = 10;
        let mut syn = seg("S", 0, 0, 0);
        syn.options = Options { mss: Some(1460), ..Options::default() };
        lab.hears(syn);
        assert_eq!(lab.out(), ["SA 0 ack 1"]);
        lab.hears(seg("A", 1, 1, 0));
        lab.send(2000);
        assert_eq!(lab.out(), ["A 1:1261 ack 1", "PA 1261:2001 ack 1"]);
    }

    /// RFC 5927 section 4: numbers that are not in flight, sizes that are no smaller, and lower
    /// limits.
    #[test]
    fn forged_words_are_not_believed() {
        let mut lab = lab();
        lab.send(4000);
        let first = lab.packets().remove(0);
        lab.drop_out();
        let forged = |change: fn(&mut Vec<u8>)| {
            let mut packet = first.clone();
            change(&mut packet);
            Message::about(&packet, 1300)
        };
        let wrong = [
            forged(|packet| packet[24] ^= 0x80), // the sequence number
            forged(|packet| packet[21] ^= 1),    // our port
            forged(|packet| packet[23] ^= 1),    // the peer's
            Message::about(&first, 1500),
            Message::about(&first, 9000),
        ];
        for (i, message) in (1u64..).zip(&wrong) {
            lab.hears_bytes(message);
            assert!(lab.out().is_empty(), "message {i}");
            assert_eq!((lab.net.stats().too_big, lab.net.stats().too_big_refused), (0, i));
        }
        // No message can make segments tiny.
        lab.hears_bytes(&Message::about(&first, 68));
        assert_eq!(lab.out()[0], "PA 11:523 ack 1");
        // Acknowledged data is not in flight any more.
        lab.hears(seg("A", 1, 4011, 0));
        lab.drop_out();
        lab.hears_bytes(&Message::about(&first, 600));
        assert_eq!(lab.net.stats().too_big, 1);
    }

    #[test]
    fn what_routers_say_within_reason() {
        assert_eq!(believable(1400, 1500, true), Some(1400));
        assert_eq!(believable(1500, 1500, true), None, "no news");
        assert_eq!(believable(0, 1500, true), Some(1492), "RFC 1191 section 5");
        assert_eq!(believable(0, 1492, true), Some(1006));
        assert_eq!(believable(0, 500, true), None);
        assert_eq!(believable(100, 1500, true), Some(552));
        assert_eq!(believable(100, 1500, false), Some(1280));
    }

    /// Large segments are lost without an ICMP message: small ones are tried, and kept after the
    /// second time.
    #[test]
    fn a_black_hole_is_left_by_small_segments() {
        let mut lab = lab();
        lab.send(30_000);
        let mut acked = 11;
        let (mut time, mut largest_at_last) = (0, 0);
        while acked < 30_011 {
            assert!(time < 60_000, "stuck at {acked}");
            // All segments with more than 1300 bytes of payload are lost.
            let mut through: Vec<(u32, u32)> = Vec::new();
            for (header, payload) in lab.take_out() {
                let start = header.seq - lab.first();
                largest_at_last = payload.len();
                if !payload.is_empty() && payload.len() <= 1300 {
                    through.push((start, start + payload.len() as u32));
                }
            }
            through.sort_unstable();
            let before = acked;
            for (start, end) in through {
                acked = if start <= acked { acked.max(end) } else { acked };
            }
            if acked > before {
                lab.hears(seg("A", 1, acked, 0));
            } else {
                lab.pass_ms(10);
                time += 10;
            }
        }
        let stats = lab.net.stats();
        assert_eq!(stats.black_holes, 1);
        assert!(largest_at_last <= 1220 && stats.timeouts <= 6, "{stats:?}");
    }

    /// After an outage, segments are as large as before.
    #[test]
    fn an_outage_is_no_black_hole() {
        let mut lab = lab();
        lab.send(20_000);
        lab.pass_ms(3000);
        lab.drop_out();
        lab.hears(seg("A", 1, 5011, 0));
        lab.hears(seg("A", 1, 8011, 0));
        assert!(lab.take_out().iter().any(|(_, payload)| payload.len() == 1460));
        assert_eq!(lab.net.stats().black_holes, 0);
        let _ = lab.net.now();
    }
}
