//! Outsiders who open connections and send single bytes behind gaps that they never fill, or who
//! read nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use linerate_net::link::Link;
use linerate_net::link::sim::SimEnd;

/// Their address.
pub(crate) const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const CONNECTIONS: u16 = 64;
pub(crate) const GAPS: u32 = 24;
/// Those who read nothing are sent this many pieces of so many bytes, if there is room.
pub(crate) const PIECES: usize = 512;
pub(crate) const PIECE: usize = 4096;
/// How often they retry without an answer.
const ROUNDS: u32 = 10;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A segment, IP header included (RFC 791, RFC 9293 section 3.1).
fn segment(to: SocketAddr, port: u16, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let IpAddr::V4(ip) = to.ip() else { unreachable!("they have no other address") };
    let len = (40 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&len.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend_from_slice(&FROM.octets());
    packet.extend_from_slice(&ip.octets());
    packet.extend_from_slice(&port.to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&seq.to_be_bytes());
    packet.extend_from_slice(&ack.to_be_bytes());
    packet.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend_from_slice(payload);
    let header = sum(&packet[..20], 0);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let whole = sum(&packet[12..], 6 + u32::from(len) - 20);
    packet[36..38].copy_from_slice(&whole.to_be_bytes());
    packet
}

fn sum(bytes: &[u8], more: u32) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>() + more;
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// Runs all of them, on an end of the network of their own.
pub(crate) fn run(mut end: SimEnd, to: SocketAddr, seed: u64, gaps: u32) {
    let apart = 2 + (seed % 7) as u32;
    let mut answered = [false; CONNECTIONS as usize];
    for _ in 0..ROUNDS {
        let mut out = Vec::new();
        for port in (0..CONNECTIONS).filter(|port| !answered[usize::from(*port)]) {
            out.push(segment(to, 1000 + port, 7, 0, SYN, &[]));
        }
        let until = end.now() + Duration::from_millis(200);
        while end.now() < until {
            for packet in out.drain(..) {
                end.transmit(to.ip(), packet.len(), |bytes| bytes.copy_from_slice(&packet));
            }
            if end.wait(Some(until)).is_err() {
                return;
            }
            end.receive(usize::MAX, |packet| {
                if packet.len() < 40 || packet[33] != SYN | ACK {
                    return;
                }
                let port = u16::from_be_bytes([packet[22], packet[23]]);
                let number = u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]]);
                let Some(place) = answered.get_mut(usize::from(port.wrapping_sub(1000))) else { return };
                *place = true;
                let ack = number.wrapping_add(1);
                out.push(segment(to, port, 8, ack, ACK, &[]));
                out.extend((1..=gaps).map(|gap| segment(to, port, 8 + gap * apart, ack, ACK, b"x")));
            });
        }
    }
}
