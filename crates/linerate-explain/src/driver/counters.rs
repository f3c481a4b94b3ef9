//! The kernel's counters of its network stack.

/// A counter of `/proc/net/netstat`: a line of names, then one of values.
pub(super) fn counter(text: &str, name: &str) -> u64 {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        if let Some(at) = names.split_whitespace().position(|n| n == name) {
            return values.split_whitespace().nth(at).and_then(|v| v.parse().ok()).unwrap_or(0);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: A\nIpExt: 4\n";
        assert_eq!((counter(text, "ListenOverflows"), counter(text, "A"), counter(text, "B")), (22, 4, 0));
    }
}
