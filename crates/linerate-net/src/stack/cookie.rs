//! SYN cookies (RFC 4987 section 3.6), for when no more handshakes can be kept: the numbers that
//! the peer sends back carry the handshake's state. Window scale, SACK and ECN do not fit into the
//! sequence number. They are in the low bits of the timestamp, if the peer supports timestamps.

use super::flow::Agreed;
use super::tuple::Tuple;
use super::wire::{Seq, TcpHeader};
use crate::Time;
use crate::keyed::Key;

/// Segment sizes that a cookie can encode. It uses the largest one that does not exceed the peer's.
const SIZES: [u16; 8] = [216, 536, 1000, 1220, 1300, 1400, 1440, 1460];
/// A cookie is valid in this period and the next: one to two minutes.
const PERIOD_NS: u64 = 64_000_000_000;
const MAC_BITS: u32 = 24;
/// Mask of the period's low bits in a cookie.
const LOW: u32 = 31;
/// Mask of the low bits of a timestamp that carry options.
const OPTION_BITS: u32 = 63;
const NO_SCALE: u32 = 15;
const SACK: u32 = 16;
const ECN: u32 = 32;

fn mac(key: Key, tuple: &Tuple, irs: Seq, period: u64, size: u32) -> u32 {
    let hash = key.hash([tuple.hash(key), u64::from(irs.0), period, u64::from(size)]);
    (hash as u32) & ((1 << MAC_BITS) - 1)
}

/// The periods whose cookies are still valid, the latest first.
fn periods(now: Time) -> impl Iterator<Item = u64> {
    let period = now.as_nanos() / PERIOD_NS;
    [period, period.wrapping_sub(1)].into_iter()
}

/// The period's low bits, as a cookie carries them.
fn low(period: u64) -> u32 {
    period as u32 & LOW
}

/// The initial sequence number that encodes the agreed options, as far as a cookie can.
pub(crate) fn make(key: Key, now: Time, tuple: &Tuple, agreed: &Agreed) -> Seq {
    let size = SIZES.iter().rposition(|size| *size <= agreed.mss).unwrap_or(0) as u32;
    let period = now.as_nanos() / PERIOD_NS;
    Seq(mac(key, tuple, agreed.irs, period, size) | low(period) << MAC_BITS | size << (MAC_BITS + 5))
}

/// The timestamp of the SYN-ACK: not later than `value`, with the options in its low bits.
pub(crate) fn mark_timestamp(value: u32, agreed: &Agreed) -> u32 {
    let scale = agreed.scale.map_or(NO_SCALE, |(out, _)| u32::from(out));
    let bits = scale | if agreed.sack { SACK } else { 0 } | if agreed.ecn { ECN } else { 0 };
    let marked = (value & !OPTION_BITS) | bits;
    if (marked.wrapping_sub(value) as i32) > 0 { marked.wrapping_sub(OPTION_BITS + 1) } else { marked }
}

/// Whether this may be a cookie of ours, as far as can be checked without the SYN's number.
pub(crate) fn may_be(now: Time, iss: Seq) -> bool {
    periods(now).any(|period| low(period) == iss.0 >> MAC_BITS & LOW)
}

/// The agreed options, from the ACK of a handshake that was not kept; `None` if it has no valid
/// cookie. `shift` is ours.
pub(crate) fn check(key: Key, now: Time, tuple: &Tuple, ack: &TcpHeader, shift: u8) -> Option<Agreed> {
    let (iss, irs) = (ack.ack - 1, ack.seq - 1);
    let size = iss.0 >> (MAC_BITS + 5);
    let period = periods(now).find(|period| low(*period) == iss.0 >> MAC_BITS & LOW)?;
    if mac(key, tuple, irs, period, size) != iss.0 & ((1 << MAC_BITS) - 1) {
        return None;
    }
    let bits = ack.options.timestamps.map(|(_, echo)| echo & OPTION_BITS);
    let scale = bits.map(|bits| bits & 15).filter(|scale| *scale != NO_SCALE);
    Some(Agreed {
        iss,
        irs,
        window: ack.window,
        scale: scale.map(|out| (out.min(14) as u8, shift)),
        sack: bits.is_some_and(|bits| bits & SACK != 0),
        timestamp: ack.options.timestamps.map(|(value, _)| value),
        mss: SIZES[size as usize],
        ecn: bits.is_some_and(|bits| bits & ECN != 0),
        sent_at: None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keyed::Keys;
    use crate::stack::wire::Options;

    fn agreed(mss: u16) -> Agreed {
        Agreed {
            iss: Seq(0),
            irs: Seq(77),
            window: 500,
            scale: Some((9, 7)),
            sack: true,
            timestamp: Some(5),
            mss,
            ecn: true,
            sent_at: None,
        }
    }

    #[test]
    fn a_cookie_comes_back() {
        let key = Keys::new(Some(1), None).cookies;
        let tuple = Tuple { local_port: 80, remote_port: 1234, ..Tuple::default() };
        let now = Time::from_nanos(PERIOD_NS * 1000 + 5);
        let iss = make(key, now, &tuple, &agreed(1448));
        let echo = mark_timestamp(1000, &agreed(1448));
        assert!(echo <= 1000 && echo > 800);
        let options = Options { timestamps: Some((6, echo)), ..Options::default() };
        let ack = TcpHeader { seq: Seq(78), ack: iss + 1, options, ..TcpHeader::default() };
        for later in [0, 50, 70] {
            let now = now + Duration::from_secs(later);
            let found = check(key, now, &tuple, &ack, 7).expect("ours");
            assert_eq!((found.iss, found.irs, found.mss), (iss, Seq(77), 1440));
            assert_eq!((found.scale, found.sack, found.timestamp), (Some((9, 7)), true, Some(6)));
            assert!(found.ecn);
        }
        let old = check(key, now + Duration::from_secs(200), &tuple, &ack, 7);
        assert!(old.is_none(), "it has expired");
        for bit in 0..32 {
            let forged = TcpHeader { ack: Seq((iss.0 ^ (1 << bit)).wrapping_add(1)), ..ack };
            assert!(check(key, now, &tuple, &forged, 7).is_none(), "bit {bit} was changed");
        }
        let other = Tuple { remote_port: 1235, ..tuple };
        assert!(check(key, now, &other, &ack, 7).is_none(), "for another peer");
    }
}
