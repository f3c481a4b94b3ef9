//! What this machine can give: local ports, descriptors, source addresses. Asked before anything is sent.

use std::net::UdpSocket;

use linerate_load::Plan;
use linerate_load::plan::Way;
use linerate_report::units::count;

use crate::fault::{CommandFault, said};

/// Descriptors we need beside the connections': standard streams, event loops, timers, libraries.
const OTHER_DESCRIPTORS: u64 = 64;

/// What the kernel grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// First and last local port for outgoing connections.
    ports: (u64, u64),
    /// Those of them that are set aside.
    reserved: u64,
    /// Most descriptors a process may have.
    descriptors: u64,
}

impl Machine {
    /// Reads it from `/proc`; what cannot be read does not limit.
    pub(super) fn read() -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let ports = parse_range(&text("/proc/sys/net/ipv4/ip_local_port_range")).unwrap_or((1, 65_535));
        Machine {
            ports,
            reserved: count_reserved(&text("/proc/sys/net/ipv4/ip_local_reserved_ports"), ports),
            descriptors: parse_descriptors(&text("/proc/self/limits")).unwrap_or(u64::MAX),
        }
    }

    /// Whether the plan's connections can exist.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), CommandFault> {
        let connections = if plan.way == Way::Poll { 1 } else { u64::from(plan.connections) };
        if plan.io.is_user_space() {
            // No descriptors, and ports and addresses of its own; what it needs of the machine is found when it starts.
            return Ok(());
        }
        self.check_ports(connections, plan)?;
        let connections = connections.saturating_mul(plan.host_count() as u64);
        let most = self.descriptors.saturating_sub(OTHER_DESCRIPTORS);
        if connections > most {
            let (s, them) =
                if connections == 1 { ("", "a file descriptor") } else { ("s", "as many file descriptors") };
            let message = format!(
                "{} connection{s} need{} {them} beside {OTHER_DESCRIPTORS} for other things, and this process may have {}",
                count(connections),
                if connections == 1 { "s" } else { "" },
                count(self.descriptors)
            );
            let fewer = match most {
                0 => String::new(),
                1 => ", or use 1 connection".to_owned(),
                most => format!(", or use at most {most} connections"),
            };
            let hint = format!("raise the limit (ulimit -n, up to its hard limit){fewer}");
            return Err(CommandFault::input(message).hint(hint));
        }
        plan.from.iter().try_for_each(|address| {
            let bound = UdpSocket::bind((*address, 0));
            bound.map(drop).map_err(|e| {
                CommandFault::input(format!(
                    "--from {address}: this machine cannot send from it: {}",
                    said(&e)
                ))
                .hint("ip address lists the addresses there are")
            })
        })
    }

    fn check_ports(&self, connections: u64, plan: &Plan) -> Result<(), CommandFault> {
        if plan.route.unix.is_some() {
            return Ok(());
        }
        let (first, last) = self.ports;
        let free = (last.saturating_sub(first) + 1).saturating_sub(self.reserved);
        // A port can be used once for each pair of source address and target address.
        let pairs = (plan.from.len().max(1) * plan.target.addresses.len().max(1)) as u64;
        let most = free * pairs;
        if connections <= most {
            return Ok(());
        }
        let message = format!(
            "{} connections to {} need as many local ports, and there are {} (net.ipv4.ip_local_port_range is {first} to {last}{})",
            count(connections),
            plan.target.authority,
            count(most),
            if pairs > 1 { format!(", for {pairs} pairs of addresses") } else { String::new() },
        );
        let mut fault = CommandFault::input(message);
        if first > 1_024 || last < 65_535 {
            fault = fault.hint("more ports: sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"");
        }
        let needed = connections.div_ceil(free.max(1) * plan.target.addresses.len().max(1) as u64);
        let example = if plan.target.addresses.iter().all(|a| a.ip().is_loopback() && a.is_ipv4()) {
            ": --from 127.0.0.1,127.0.0.2 and so on"
        } else {
            ""
        };
        Err(fault
            .hint(format!("more source addresses: {needed} of them would do{example}"))
            .hint(format!("or fewer connections: -c {most}")))
    }
}

/// `"32768\t60999\n"`.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// How many ports of a range `"8080,9000-9010"` sets aside.
fn count_reserved(text: &str, range: (u64, u64)) -> u64 {
    let within = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some((last.min(range.1) + 1).saturating_sub(first.max(range.0)))
    };
    text.trim().split(',').filter_map(within).sum()
}

/// The hard limit: the engine raises the soft one to it.
fn parse_descriptors(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { ports: (32_768, 60_999), reserved: 0, descriptors: 1 << 20 };

    fn plan(connections: u32, from: &[&str]) -> Plan {
        Plan {
            connections,
            from: from.iter().map(|a| a.parse().unwrap()).collect(),
            ..super::super::testing::plan("http://127.0.0.1:8080/")
        }
    }

    #[test]
    fn both_sides_of_the_ports() {
        assert_eq!(MACHINE.check(&plan(28_232, &[])), Ok(()));
        let fault = MACHINE.check(&plan(28_233, &[])).unwrap_err();
        assert_eq!(fault.exit, crate::fault::Exit::BadInput);
        insta::assert_snapshot!(MACHINE.check(&plan(70_000, &[])).unwrap_err());
    }

    #[test]
    fn each_source_address_brings_its_ports() {
        assert_eq!(MACHINE.check(&plan(70_000, &["127.0.0.1", "127.0.0.2", "127.0.0.3"])), Ok(()));
        assert!(MACHINE.check(&plan(70_000, &["127.0.0.1", "127.0.0.2"])).is_err());
    }

    #[test]
    fn reserved_ports_are_not_free() {
        assert_eq!(count_reserved("8080,40000-40009,60990-61010\n", (32_768, 60_999)), 20);
        assert_eq!(count_reserved("\n", (32_768, 60_999)), 0);
        let machine = Machine { reserved: 1, ..MACHINE };
        assert!(machine.check(&plan(28_232, &[])).is_err());
    }

    #[test]
    fn both_sides_of_the_descriptors() {
        let machine = Machine { descriptors: 1_024, ..MACHINE };
        assert_eq!(machine.check(&plan(960, &[])), Ok(()));
        assert!(machine.check(&plan(961, &[])).unwrap_err().to_string().contains("ulimit -n"));
    }

    #[test]
    fn polling_has_one_connection() {
        let polling = Plan { way: Way::Poll, ..plan(70_000, &[]) };
        assert_eq!(MACHINE.check(&polling), Ok(()));
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        // TEST-NET-1 (RFC 5737) belongs to no machine.
        let fault = MACHINE.check(&plan(1, &["192.0.2.1"])).unwrap_err().to_string();
        assert!(fault.contains("--from 192.0.2.1"), "{fault}");
    }

    #[test]
    fn what_proc_says_is_understood() {
        assert_eq!(parse_range("32768\t60999\n"), Some((32_768, 60_999)));
        assert_eq!(parse_range(""), None);
        let limits = "Max processes             7812  7812  processes\nMax open files            1024                 524288               files\n";
        assert_eq!(parse_descriptors(limits), Some(524_288));
        assert_eq!(parse_descriptors("Max open files  unlimited unlimited files"), None);
        assert!(Machine::read().ports.1 > 0);
    }
}
