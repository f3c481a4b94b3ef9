//! What this machine's own kernel dropped: its counters before and after a call.

use std::collections::BTreeMap;
use std::fs::read_to_string;

use linerate_net::qdisc;

use super::counters::counter;
use crate::call::DropCount;

/// Segments that a socket had no room for (TcpExt), in words.
const SOCKETS: [(&str, &str); 5] = [
    ("TCPBacklogDrop", "the backlog of a socket whose program was at work (TCPBacklogDrop)"),
    ("RcvPruned", "a receive buffer that was full (RcvPruned)"),
    ("TCPRcvQDrop", "a receive buffer that was full (TCPRcvQDrop)"),
    ("OfoPruned", "a receive buffer full of segments out of order (OfoPruned)"),
    ("TCPOFODrop", "a receive buffer full of segments out of order (TCPOFODrop)"),
];
/// Columns of /proc/net/stat/nf_conntrack, in words.
const TRACKED: [(&str, &str); 3] = [
    ("drop", "the table of tracked connections (nf_conntrack)"),
    ("early_drop", "the table of tracked connections, which was full (nf_conntrack)"),
    ("insert_failed", "the table of tracked connections (nf_conntrack, insert_failed)"),
];

/// All counters by where packets are dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Drops(BTreeMap<String, u64>);

impl Drops {
    /// As they are now. What cannot be read is not there.
    pub(super) fn now() -> Drops {
        let text = |path: &str| read_to_string(path).unwrap_or_default();
        let mut all = BTreeMap::new();
        let netstat = text("/proc/net/netstat");
        for (name, words) in SOCKETS {
            *all.entry(words.to_owned()).or_default() += counter(&netstat, name);
        }
        tracked(&text("/proc/net/stat/nf_conntrack"), &mut all);
        let soft = softnet(&text("/proc/net/softnet_stat"));
        all.insert("the kernel's input queue (softnet, net.core.netdev_max_backlog)".to_owned(), soft);
        interfaces(&text("/proc/net/dev"), &mut all);
        // Where rtnetlink is forbidden, the other counters are known all the same.
        for (name, drops) in qdisc::dropped().ok().into_iter().flatten() {
            all.insert(format!("the queueing discipline of {name} (tc -s qdisc)"), drops);
        }
        Drops(all)
    }

    /// Those that grew since then.
    pub(super) fn since(&self, before: &Drops) -> Vec<DropCount> {
        let grew = |(place, now): (&String, &u64)| {
            let packets = now.saturating_sub(before.0.get(place).copied().unwrap_or(*now));
            (packets > 0).then(|| DropCount { place: place.clone(), packets })
        };
        self.0.iter().filter_map(grew).collect()
    }
}

/// The second column of each processor's line, in hex.
fn softnet(text: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

/// A line of names, then one for each processor, in hex.
fn tracked(text: &str, all: &mut BTreeMap<String, u64>) {
    let mut lines = text.lines();
    let Some(names) = lines.next() else { return };
    for line in lines {
        let columns = names.split_whitespace().zip(line.split_whitespace());
        for (name, value) in columns {
            let known = TRACKED.iter().find(|(column, _)| *column == name);
            let Some(((_, words), value)) = known.zip(u64::from_str_radix(value, 16).ok()) else { continue };
            *all.entry((*words).to_owned()).or_default() += value;
        }
    }
}

/// Of each interface: what was dropped and found no room in its ring as it came, and was dropped as it left.
fn interfaces(text: &str, all: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let Some((name, columns)) = line.split_once(':') else { continue };
        let columns: Vec<u64> = columns.split_whitespace().map_while(|n| n.parse().ok()).collect();
        let (name, of) = (name.trim(), |at: usize| columns.get(at).copied().unwrap_or(0));
        all.insert(format!("{name}, as packets come (ip -s link)"), of(3) + of(4));
        all.insert(format!("{name}, as packets leave (ip -s link)"), of(11) + of(12));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files() {
        assert_eq!(softnet("0001 0000000a 0 0\n0002 00000001 0 0\n"), 11);
        let mut all = BTreeMap::new();
        tracked("entries found drop early_drop\n1 2 0000000b 1\n1 2 1 0\nx", &mut all);
        assert_eq!(all.values().copied().collect::<Vec<_>>(), [12, 1], "{all:?}");
        let mut all = BTreeMap::new();
        let line = "  eth0: 1 2 0 30 4 0 0 0 1 2 0 500 60 0 0 0\nInter-|   Receive\n";
        interfaces(line, &mut all);
        assert_eq!(all.values().copied().collect::<Vec<_>>(), [34, 560], "{all:?}");
        assert!(all.contains_key("eth0, as packets come (ip -s link)"), "{all:?}");
        for bad in ["", "a", "drop", "drop\nzz", ":", "eth0:"] {
            tracked(bad, &mut all);
            interfaces(bad, &mut all);
            softnet(bad);
        }
    }

    #[test]
    fn what_grew_is_told_and_what_is_new_is_not() {
        let drops = |all: &[(&str, u64)]| Drops(all.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect());
        let grew = drops(&[("a", 5), ("b", 2), ("c", 9)]).since(&drops(&[("a", 3), ("b", 2)]));
        assert_eq!(grew, [DropCount { place: "a".to_owned(), packets: 2 }]);
        assert!(Drops::now().0.len() > 3);
    }
}
