//! Commands that packetdrill and its scripts give to a shell.

use std::net::IpAddr;

use crate::world::DrillWorld;

/// Runs a command and returns its exit code. Only a few commands affect this world.
pub(crate) fn run(world: &mut DrillWorld, command: &str) -> i32 {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["true"] => 0,
        ["ip", "addr", "add", address, ..] => {
            let address = address.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
            address.map_or(1, |address| {
                world.add_address(address);
                0
            })
        }
        // There is only one route.
        ["ip", "route", ..] => 0,
        ["ifconfig", _, "mtu", mtu] => mtu.parse().map_or(1, |mtu| {
            world.set_mtu(mtu);
            0
        }),
        ["sysctl", "-qw", setting] => {
            let value = setting.strip_prefix("net.ipv4.tcp_ecn=").and_then(|value| value.parse().ok());
            value.map_or(1, |value| {
                world.set_ecn(value);
                0
            })
        }
        ["sockstat", state, count] => {
            let right = count.parse().ok().and_then(|count| world.counts(state, count));
            i32::from(right != Some(true))
        }
        _ => 127,
    }
}
