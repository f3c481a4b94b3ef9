//! Packets that the queueing disciplines of this network namespace dropped, as its kernel counts them
//! (rtnetlink(7), RTM_GETQDISC), without privileges.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sock_diag::{u16_at, u32_at};

/// linux/rtnetlink.h, linux/pkt_sched.h, linux/gen_stats.h
mod kind {
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    pub(super) const NEW_QDISC: u16 = 36;
    pub(super) const GET_QDISC: u16 = 38;
    /// NLM_F_REQUEST | NLM_F_DUMP
    pub(super) const DUMP: u16 = 0x301;
    /// TCA_STATS2, and TCA_STATS_QUEUE within it.
    pub(super) const STATS: u16 = 7;
    pub(super) const QUEUE: u16 = 3;
}

/// Timeout of the kernel's reply. Reason: the kernel replies within the call.
const PATIENCE: Duration = Duration::from_secs(1);
/// Sizes of a netlink message's header and of `struct tcmsg`, bytes.
const HEADER: usize = 16;
const TCMSG: usize = 20;
/// Datagrams that are read. Reason: the kernel puts some hundred disciplines in each.
const DATAGRAMS: usize = 64;

/// Dropped packets by the interface's index, where an interface has a discipline: of several on one
/// interface the most, since the outer ones count what the inner ones drop.
///
/// # Errors
/// The kernel has no rtnetlink, or seccomp forbids it here.
pub fn dropped() -> io::Result<BTreeMap<u32, u64>> {
    let protocol = Protocol::from(libc::NETLINK_ROUTE);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.cloexec(), Some(protocol))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::with_capacity(HEADER + TCMSG);
    request.extend(((HEADER + TCMSG) as u32).to_ne_bytes());
    request.extend(kind::GET_QDISC.to_ne_bytes());
    request.extend(kind::DUMP.to_ne_bytes());
    request.resize(HEADER + TCMSG, 0);
    socket.write_all(&request)?;
    let (mut buffer, mut drops) = (vec![0; 64 << 10], BTreeMap::new());
    for _ in 0..DATAGRAMS {
        let len = socket.read(&mut buffer)?;
        if take(&buffer[..len], &mut drops)? {
            return Ok(drops);
        }
    }
    Err(io::Error::other("the kernel's answer does not end"))
}

/// Parses the messages of one datagram; `true`: it was the last one.
fn take(mut bytes: &[u8], drops: &mut BTreeMap<u32, u64>) -> io::Result<bool> {
    while let Some(len) = u32_at(bytes, 0).map(|len| len as usize) {
        let Some(body) = bytes.get(HEADER..len) else { break };
        match u16_at(bytes, 4) {
            Some(kind::DONE) => return Ok(true),
            Some(kind::ERROR) => {
                return Err(io::Error::from_raw_os_error(-(u32_at(body, 0).unwrap_or(0) as i32)));
            }
            Some(kind::NEW_QDISC) => {
                if let Some((interface, dropped)) = entry(body) {
                    let most: &mut u64 = drops.entry(interface).or_default();
                    *most = (*most).max(dropped);
                }
            }
            _ => {}
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The interface of `struct tcmsg`, and `drops` of `struct gnet_stats_queue` behind it.
fn entry(body: &[u8]) -> Option<(u32, u64)> {
    let queue = attribute(attribute(body.get(TCMSG..)?, kind::STATS)?, kind::QUEUE)?;
    Some((u32_at(body, 4)?, u64::from(u32_at(queue, 8)?)))
}

/// The attribute of that type (`struct rtattr`).
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(bytes, 0)?);
        let content = bytes.get(4..len)?;
        // The upper bits are flags (NLA_F_NESTED).
        if u16_at(bytes, 2)? & 0x3fff == wanted {
            return Some(content);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_its_disciplines() {
        // Each namespace has at least that of its loopback, or none that counts.
        dropped().expect("rtnetlink is there");
    }

    #[test]
    fn drops_are_found_behind_other_attributes() {
        let attribute = |kind: u16, content: &[u8]| {
            let mut bytes = ((content.len() + 4) as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let queue: Vec<u8> = [1u32, 2, 77, 4, 5].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let stats = [attribute(1, &[0; 12]), attribute(kind::QUEUE, &queue)].concat();
        let message = |interface: u32, stats: &[u8]| {
            let mut body = vec![0; TCMSG];
            body[4..8].copy_from_slice(&interface.to_ne_bytes());
            body.extend(attribute(1, b"netem\0"));
            body.extend(attribute(kind::STATS | 0x8000, stats));
            let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend(kind::NEW_QDISC.to_ne_bytes());
            bytes.resize(HEADER, 0);
            bytes.extend(body);
            bytes
        };
        let mut drops = BTreeMap::new();
        assert!(!take(&[message(3, &stats), message(4, &[])].concat(), &mut drops).expect("well formed"));
        assert_eq!(drops, BTreeMap::from([(3, 77)]));
        for len in [0u32, 1, 15, 16, 35, 36, 40, u32::MAX] {
            let mut damaged = message(5, &stats);
            damaged[..4].copy_from_slice(&len.to_ne_bytes());
            let _ = take(&damaged, &mut drops);
        }
        let mut error = 20u32.to_ne_bytes().to_vec();
        error.extend(kind::ERROR.to_ne_bytes());
        error.resize(HEADER, 0);
        error.extend((-13i32).to_ne_bytes());
        assert_eq!(take(&error, &mut drops).expect_err("refused").raw_os_error(), Some(13));
    }
}
