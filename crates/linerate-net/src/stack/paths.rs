//! Paths that are narrower than the link, as routers reported. There are few, so a short list
//! suffices.

use std::time::Duration;

use super::wire::Addr;
use crate::Time;

/// How long a report is valid. Reason: RFC 1191 section 6.3 and RFC 8201 section 4: larger packets
/// are not tried again before ten minutes.
const HOLDS: Duration = Duration::from_secs(600);
/// Paths remembered; a new one replaces the oldest. Reason: each new connection scans them. A
/// report must be about a segment in flight, so outsiders cannot fill the list.
const MOST: usize = 256;

struct Path {
    to: Addr,
    mtu: u16,
    until: Time,
}

/// Path MTUs by the peer's address.
#[derive(Default)]
pub(super) struct Paths(Vec<Path>);

impl Paths {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn note(&mut self, now: Time, to: Addr, mtu: usize) {
        let path = Path { to, mtu: u16::try_from(mtu).unwrap_or(u16::MAX), until: now + HOLDS };
        self.0.retain(|known| known.to != to && known.until > now);
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(path);
    }

    /// The path MTU towards an address, IP header included, if the path is known to be narrow.
    pub(super) fn mtu(&mut self, now: Time, to: &Addr) -> Option<usize> {
        self.0.retain(|known| known.until > now);
        self.0.iter().find(|known| known.to == *to).map(|known| usize::from(known.mtu))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn a_word_holds_for_ten_minutes_and_the_oldest_gives_way() {
        let to = |n: u32| Addr::from(IpAddr::from(Ipv4Addr::from(n)));
        let mut paths = Paths::default();
        let begun = Time::from_nanos(1);
        paths.note(begun, to(1), 1400);
        paths.note(begun, to(1), 1300);
        assert_eq!(paths.mtu(begun + Duration::from_secs(599), &to(1)), Some(1300));
        assert_eq!(paths.mtu(begun, &to(2)), None);
        assert_eq!(paths.mtu(begun + HOLDS, &to(1)), None);
        assert!(paths.is_empty());
        (0..=MOST as u32).for_each(|n| paths.note(begun, to(n), 1300));
        assert_eq!((paths.mtu(begun, &to(0)), paths.mtu(begun, &to(1))), (None, Some(1300)));
    }
}
