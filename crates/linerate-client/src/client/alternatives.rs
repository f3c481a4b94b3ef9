//! Where a server may be reached by HTTP/3 too: what its responses announced (RFC 7838), and what did not work. It reads
//! no clock.

use std::time::Duration;

use linerate_http::client::{ALT_SERVICES, AltServices};
use linerate_net::Time;

use super::limits::{ALT_FAILURES, ALT_FIRST_PAUSE, ALT_LONGEST_PAUSE};

/// The protocol of alternatives that the client can use (RFC 9114 section 3.1).
const H3: &[u8] = b"h3";

/// Where an alternative is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AltPlace {
    /// Empty: the host of the origin.
    pub(super) host: String,
    pub(super) port: u16,
}

#[derive(Clone, Debug)]
struct KnownAlternative {
    place: AltPlace,
    until: Time,
}

/// An alternative that did not work.
#[derive(Clone, Debug)]
struct BrokenAlternative {
    place: AltPlace,
    /// It is not tried before.
    until: Time,
    /// After the next failure it is not tried for so long.
    pause: Duration,
}

/// The alternatives of one origin.
#[derive(Debug, Default)]
pub(super) struct AltMemory {
    host: String,
    /// Only those at the host of the origin count.
    own_host_only: bool,
    /// In the order of preference.
    known: Vec<KnownAlternative>,
    broken: Vec<BrokenAlternative>,
}

impl AltMemory {
    /// Of the origin at this host.
    pub(super) fn new(host: &str, own_host_only: bool) -> AltMemory {
        let host = host.to_ascii_lowercase();
        AltMemory { host, own_host_only, known: Vec::new(), broken: Vec::new() }
    }

    /// A response of the origin, or of an alternative, announced these. `age`: how old it was.
    pub(super) fn heard(&mut self, services: &AltServices, age: Duration, now: Time) {
        self.known.clear();
        let AltServices::Listed(services) = services else { return };
        for service in services.iter().filter(|service| service.protocol == H3) {
            let host = if service.host == self.host { "" } else { &service.host };
            let left = Duration::from_secs(service.max_age).saturating_sub(age);
            if (host.is_empty() || !self.own_host_only) && self.known.len() < ALT_SERVICES {
                let place = AltPlace { host: host.to_owned(), port: service.port };
                self.known.push(KnownAlternative { place, until: now + left });
            }
        }
    }

    /// Whether an alternative is announced, and fresh.
    pub(super) fn is_known(&self, place: &AltPlace, now: Time) -> bool {
        self.known.iter().any(|known| known.place == *place && now < known.until)
    }

    /// The alternative to use: the first that is fresh and did not fail lately.
    pub(super) fn next(&self, now: Time) -> Option<&AltPlace> {
        let is_broken = |place: &AltPlace| self.broken.iter().any(|b| b.place == *place && now < b.until);
        let usable = |known: &&KnownAlternative| now < known.until && !is_broken(&known.place);
        self.known.iter().find(usable).map(|known| &known.place)
    }

    /// It could not be reached, or its connection died: it is not tried for a while, each time twice as long.
    pub(super) fn failed(&mut self, place: &AltPlace, now: Time) {
        if let Some(broken) = self.broken.iter_mut().find(|broken| broken.place == *place) {
            broken.until = now + broken.pause;
            broken.pause = (broken.pause * 2).min(ALT_LONGEST_PAUSE);
            return;
        }
        if self.broken.len() >= ALT_FAILURES {
            let soonest = (0..self.broken.len()).min_by_key(|at| self.broken[*at].until);
            soonest.map(|at| self.broken.swap_remove(at));
        }
        let (place, until) = (place.clone(), now + ALT_FIRST_PAUSE);
        self.broken.push(BrokenAlternative { place, until, pause: 2 * ALT_FIRST_PAUSE });
    }

    /// It answered a request.
    pub(super) fn worked(&mut self, place: &AltPlace) {
        self.broken.retain(|broken| broken.place != *place);
    }

    /// It does not answer for the origin (421): it is not one any more (RFC 7838 section 6).
    pub(super) fn misdirected(&mut self, place: &AltPlace, now: Time) {
        self.known.retain(|known| known.place != *place);
        self.failed(place, now);
    }
}

#[cfg(test)]
mod tests {
    use linerate_base::Random;
    use linerate_http::client::alt_services;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn place(host: &str, port: u16) -> AltPlace {
        AltPlace { host: host.to_owned(), port }
    }

    fn heard(memory: &mut AltMemory, value: &str, now: Time) {
        memory.heard(&alt_services(value.as_bytes()).unwrap(), Duration::ZERO, now);
    }

    #[test]
    fn rfc7838_3_1_alternatives_are_fresh_for_their_age_and_replace_each_other() {
        let mut memory = AltMemory::new("A.example", false);
        assert_eq!(memory.next(at(0)), None);
        heard(&mut memory, r#"h2=":1", h3-29=":2", h3="b.example:3"; ma=10, h3="a.example:4"; ma=20"#, at(5));
        assert_eq!(memory.next(at(14)), Some(&place("b.example", 3)));
        assert_eq!(memory.next(at(15)), Some(&place("", 4)), "its own host");
        assert!(memory.is_known(&place("", 4), at(24)) && !memory.is_known(&place("", 4), at(25)));
        assert_eq!(memory.next(at(25)), None);
        heard(&mut memory, r#"h3=":5""#, at(30));
        assert_eq!(memory.next(at(30)), Some(&place("", 5)));
        heard(&mut memory, "clear", at(31));
        assert_eq!(memory.next(at(31)), None);
        // A response that a cache kept for so long.
        let old = alt_services(br#"h3=":5"; ma=60"#).unwrap();
        memory.heard(&old, 50 * SECOND, at(40));
        assert!(memory.next(at(49)).is_some() && memory.next(at(50)).is_none());
    }

    #[test]
    fn other_hosts_do_not_count_where_the_program_says_where_connections_go() {
        let mut memory = AltMemory::new("a.example", true);
        heard(&mut memory, r#"h3="b.example:1", h3=":2""#, at(0));
        assert_eq!(memory.next(at(0)), Some(&place("", 2)));
    }

    /// RFC 9114 section 3.1, RFC 7838 section 2.4.
    #[test]
    fn failures_are_remembered_for_a_time_that_grows_to_a_limit() {
        let mut memory = AltMemory::new("a.example", false);
        let mut now = at(0);
        let mut waited = Vec::new();
        for _ in 0..16 {
            // A response that announces it again changes nothing.
            heard(&mut memory, r#"h3=":1"; ma=1000000"#, now);
            let tried = memory.next(now).cloned().unwrap();
            memory.failed(&tried, now);
            heard(&mut memory, r#"h3=":1"; ma=1000000"#, now);
            let since = now;
            while memory.next(now).is_none() {
                now = now + SECOND;
            }
            waited.push(now - since);
        }
        assert_eq!(waited[0], ALT_FIRST_PAUSE);
        assert!(waited.windows(2).all(|pair| pair[1] == (pair[0] * 2).min(ALT_LONGEST_PAUSE)), "{waited:?}");
        assert_eq!(waited.last(), Some(&ALT_LONGEST_PAUSE));
        memory.worked(&place("", 1));
        memory.failed(&place("", 1), now);
        assert_eq!(memory.next(now + ALT_FIRST_PAUSE), Some(&place("", 1)), "it worked meanwhile");
    }

    #[test]
    fn another_alternative_takes_the_place_of_one_that_failed() {
        let mut memory = AltMemory::new("a.example", false);
        heard(&mut memory, r#"h3=":1", h3="b.example:2""#, at(0));
        memory.failed(&place("", 1), at(0));
        assert_eq!(memory.next(at(0)), Some(&place("b.example", 2)));
        memory.misdirected(&place("b.example", 2), at(0));
        assert!(memory.next(at(0)).is_none() && !memory.is_known(&place("b.example", 2), at(0)));
        assert!(memory.is_known(&place("", 1), at(0)));
    }

    #[test]
    fn whatever_a_server_announces_what_is_kept_has_limits() {
        let mut random = Random::new(1);
        let mut memory = AltMemory::new("a.example", false);
        for step in 0..5_000 {
            let ports: Vec<String> =
                (0..random.below(40)).map(|_| format!("h3=\":{}\"", 1 + random.below(60_000))).collect();
            heard(&mut memory, &ports.join(","), at(step));
            if let Some(tried) = memory.next(at(step)).cloned() {
                match random.below(3) {
                    0 => memory.worked(&tried),
                    1 => memory.misdirected(&tried, at(step)),
                    _ => memory.failed(&tried, at(step)),
                }
                assert!(
                    memory.next(at(step)) != Some(&tried) || memory.broken.iter().all(|b| b.place != tried)
                );
            }
            assert!(memory.known.len() <= ALT_SERVICES && memory.broken.len() <= ALT_FAILURES);
        }
    }
}
