//! Source ports: RFC 6056 section 3.3.4, double-hash port selection. Ports towards one peer are
//! used in turn, and one peer learns little about those towards another.

use super::tuple::Tuple;
use crate::keyed::Key;

/// Number of counters. Reason: RFC 6056 suggests ten to a thousand and more.
const COUNTERS: usize = 1024;

/// Selects ports. The default has none.
#[derive(Default)]
pub(crate) struct Ports {
    first: u16,
    count: u32,
    counters: Box<[u32]>,
}

impl Ports {
    pub(crate) fn new((first, last): (u16, u16)) -> Ports {
        let count = u32::from(last.saturating_sub(first)) + 1;
        Ports { first: first.max(1), count, counters: vec![0; COUNTERS].into_boxed_slice() }
    }

    /// The next port for `tuple` (whose own port is ignored) that is `free`.
    pub(crate) fn choose(
        &mut self,
        tuple: &Tuple,
        key: Key,
        mut free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let hash = Tuple { local_port: 0, ..*tuple }.hash(key);
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        for _ in 0..self.count {
            let port = self.first as u32 + (hash as u32).wrapping_add(*counter) % self.count;
            *counter = counter.wrapping_add(1);
            // Below 65536, because first and count are.
            if free(port as u16) {
                return Some(port as u16);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::keyed::Keys;

    #[test]
    fn each_port_is_used_once_before_one_is_used_again() {
        let key = Keys::new(Some(1), None).ports;
        let mut ports = Ports::new((1024, 65535));
        let mut used = HashSet::new();
        for _ in 1024..=65535 {
            let port = ports.choose(&Tuple::default(), key, |p| !used.contains(&p)).expect("one is free");
            assert!(port >= 1024 && used.insert(port));
        }
        assert_eq!(ports.choose(&Tuple::default(), key, |p| !used.contains(&p)), None);
    }
}
