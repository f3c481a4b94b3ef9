//! A NAT in the network (RFC 2663, RFC 5382), for IPv4 alone. Hosts behind it share an address and
//! a few ports, and an idle port is reassigned after a while.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::options::Nat;
use crate::Time;

/// Offsets of source, destination and checksum in an IPv4 packet.
const FROM: usize = 12;
const TO: usize = 16;
const IP_CHECKSUM: usize = 10;
/// Offset of the checksum in a TCP segment.
const TCP_CHECKSUM: usize = 16;

type Place = (Ipv4Addr, u16);

struct Mapping {
    inside: Place,
    remote: Place,
    port: u16,
    used: Time,
    /// A FIN or a reset has passed, so the mapping is soon forgotten.
    ends: bool,
}

/// How long a mapping lasts whose connection has not ended. Reason: RFC 5382 asks for hours, but a
/// restarted host leaves its mappings behind, and ports are few.
const OPEN: Duration = Duration::from_secs(10);

impl Mapping {
    fn passes(&mut self, now: Time, flags: u8) {
        const SYN: u8 = 2;
        const FIN_OR_RST: u8 = 5;
        self.used = now;
        self.ends = flags & SYN == 0 && (self.ends || flags & FIN_OR_RST != 0);
    }
}

/// The NAT's current mappings.
#[derive(Default)]
pub(super) struct Mappings(Vec<Mapping>);

impl Mappings {
    /// Translates a packet towards `to` and returns its new destination. `None`: no port is free,
    /// or no mapping matches.
    pub(super) fn pass(&mut self, nat: &Nat, now: Time, to: IpAddr, packet: &mut [u8]) -> Option<IpAddr> {
        let Some((from, dest)) = places(packet) else { return Some(to) };
        let remembered = |m: &Mapping| now - m.used < if m.ends { nat.forgets } else { OPEN };
        let flags = packet[33];
        if nat.is_inside(from.0) {
            let known = |m: &&mut Mapping| (m.inside, m.remote) == (from, dest) && remembered(m);
            if let Some(mapping) = self.0.iter_mut().find(known) {
                mapping.passes(now, flags);
                let port = mapping.port;
                replace(packet, FROM, 0, (nat.outside, port));
                return Some(to);
            }
            self.0.retain(remembered);
            let mut ports = nat.first_port..=nat.last_port;
            let port = ports.find(|port| !self.0.iter().any(|m| m.port == *port && m.remote == dest))?;
            self.0.push(Mapping { inside: from, remote: dest, port, used: now, ends: false });
            replace(packet, FROM, 0, (nat.outside, port));
        } else if dest.0 == nat.outside {
            let known = |m: &&mut Mapping| m.port == dest.1 && m.remote == from && remembered(m);
            let mapping = self.0.iter_mut().find(known)?;
            mapping.passes(now, flags);
            let inside = mapping.inside;
            replace(packet, TO, 2, inside);
            return Some(inside.0.into());
        }
        Some(to)
    }
}

/// Source and destination of a TCP segment, over IPv4 without options.
fn places(packet: &[u8]) -> Option<(Place, Place)> {
    if packet.first() != Some(&0x45) || packet.len() < 40 {
        return None;
    }
    let ip = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    Some(((ip(FROM), port(20)), (ip(TO), port(22))))
}

/// Replaces an address and port. Correct checksums stay correct (RFC 1624), wrong ones stay wrong.
fn replace(packet: &mut [u8], address: usize, port: usize, (ip, number): Place) {
    let mut write = |at: usize, bytes: [u8; 2], checksums: &[usize]| {
        for &sum in checksums {
            let old = u32::from(!u16::from_be_bytes([packet[sum], packet[sum + 1]]));
            let removed = u32::from(!u16::from_be_bytes([packet[at], packet[at + 1]]));
            let mut new = old + removed + u32::from(u16::from_be_bytes(bytes));
            while new > 0xffff {
                new = (new & 0xffff) + (new >> 16);
            }
            packet[sum..sum + 2].copy_from_slice(&(!(new as u16)).to_be_bytes());
        }
        packet[at..at + 2].copy_from_slice(&bytes);
    };
    let [a, b, c, d] = ip.octets();
    write(address, [a, b], &[IP_CHECKSUM, 20 + TCP_CHECKSUM]);
    write(address + 2, [c, d], &[IP_CHECKSUM, 20 + TCP_CHECKSUM]);
    write(20 + port, number.to_be_bytes(), &[20 + TCP_CHECKSUM]);
}
