//! The classic BPF program by which the kernel selects packets. It sees each packet from its IP
//! header on.

use crate::sys::packet_ring::Instruction;

/// Opcodes in use (linux/bpf_common.h).
mod code {
    pub(super) const LD_WORD: u16 = 0x20;
    pub(super) const LD_HALF: u16 = 0x28;
    pub(super) const LD_BYTE: u16 = 0x30;
    /// Loads relative to X.
    pub(super) const LD_HALF_X: u16 = 0x48;
    /// Sets X to the length of the IPv4 header at this offset.
    pub(super) const LDX_HEADER: u16 = 0xb1;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const IF_EQUAL: u16 = 0x15;
    pub(super) const IF_ANY_BIT: u16 = 0x45;
    pub(super) const RETURN: u16 = 0x06;
}

/// Offset at which the kernel puts what it knows besides the packet's bytes (linux/filter.h,
/// SKF_AD_OFF).
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const INTERFACE: u32 = 0xffff_f000 + 8;
const OUTGOING: u32 = 4;
const TCP: u32 = 6;
/// IPv6 extension headers that TCP may follow: hop-by-hop, routing, fragment, destination.
const EXTENSIONS: [u32; 4] = [0, 43, 44, 60];

/// A jump target. Resolved after the last instruction is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Next,
    V4,
    V6,
    Keep,
    Drop,
    At(usize),
}

/// TCP over IP, limited to `port` if one is given, `snap` bytes of each packet. On the loopback
/// interface each packet counts once.
pub(super) fn program(port: Option<u16>, loopback: u32, snap: u32) -> Vec<Instruction> {
    use To::{At, Drop, Keep, Next, V4, V6};
    use code::{IF_ANY_BIT, IF_EQUAL, LD_BYTE, LD_HALF, LD_HALF_X, LD_WORD, LDX_HEADER, SHIFT_RIGHT};
    let port = port.map(u32::from);
    let mut p: Vec<(u16, To, To, u32)> = vec![
        (LD_WORD, Next, Next, PACKET_TYPE),
        (IF_EQUAL, Next, At(4), OUTGOING),
        (LD_WORD, Next, Next, INTERFACE),
        (IF_EQUAL, Drop, Next, loopback),
        (LD_BYTE, Next, Next, 0),
        (SHIFT_RIGHT, Next, Next, 4),
        (IF_EQUAL, V4, Next, 4),
        (IF_EQUAL, V6, Drop, 6),
    ];
    let v4 = p.len();
    p.push((LD_BYTE, Next, Next, 9));
    p.push((IF_EQUAL, if port.is_some() { Next } else { Keep }, Drop, TCP));
    if let Some(port) = port {
        // A later fragment has no ports. It is kept, so that it is counted.
        p.push((LD_HALF, Next, Next, 6));
        p.push((IF_ANY_BIT, Keep, Next, 0x1fff));
        p.push((LDX_HEADER, Next, Next, 0));
        for at in [0, 2] {
            p.push((LD_HALF_X, Next, Next, at));
            p.push((IF_EQUAL, Keep, if at == 0 { Next } else { Drop }, port));
        }
    }
    let v6 = p.len();
    p.push((LD_BYTE, Next, Next, 6));
    let ports = v6 + 2 + EXTENSIONS.len();
    p.push((IF_EQUAL, if port.is_some() { At(ports) } else { Keep }, Next, TCP));
    for (i, extension) in EXTENSIONS.into_iter().enumerate() {
        // Packets with TCP behind an extension header are rare: user space tests their ports.
        p.push((IF_EQUAL, Keep, if i + 1 == EXTENSIONS.len() { Drop } else { Next }, extension));
    }
    if let Some(port) = port {
        for at in [40, 42] {
            p.push((LD_HALF, Next, Next, at));
            p.push((IF_EQUAL, Keep, if at == 40 { Next } else { Drop }, port));
        }
    }
    let end = p.len();
    let mut out: Vec<Instruction> = Vec::with_capacity(end + 2);
    for (i, (code, yes, no, k)) in p.into_iter().enumerate() {
        let jump = |to: To| {
            let target = match to {
                Next => i + 1,
                V4 => v4,
                V6 => v6,
                Keep => end,
                Drop => end + 1,
                At(n) => n,
            };
            (target - i - 1) as u8
        };
        out.push((code, jump(yes), jump(no), k));
    }
    out.push((code::RETURN, 0, 0, snap.max(1)));
    out.push((code::RETURN, 0, 0, 0));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn keeps(program: &[Instruction], packet: &[u8], kind: u32, interface: u32) -> bool {
        let (mut a, mut x, mut at) = (0u32, 0usize, 0);
        let load = |from: usize, n: usize| {
            packet.get(from..from + n).map(|b| b.iter().fold(0, |sum, b| sum << 8 | u32::from(*b)))
        };
        loop {
            let (code, yes, no, k) = program[at];
            at += 1;
            let loaded = match code {
                code::LD_WORD if k == PACKET_TYPE => Some(kind),
                code::LD_WORD if k == INTERFACE => Some(interface),
                code::LD_HALF => load(k as usize, 2),
                code::LD_BYTE => load(k as usize, 1),
                code::LD_HALF_X => load(x + k as usize, 2),
                code::LDX_HEADER => {
                    x = usize::from(packet[k as usize] & 15) * 4;
                    Some(a)
                }
                code::SHIFT_RIGHT => Some(a >> k),
                code::IF_EQUAL | code::IF_ANY_BIT => {
                    let so = if code == code::IF_EQUAL { a == k } else { a & k != 0 };
                    at += usize::from(if so { yes } else { no });
                    Some(a)
                }
                code::RETURN => return k != 0,
                _ => unreachable!("no other instruction is made"),
            };
            match loaded {
                Some(value) => a = value,
                // Reading beyond the packet ends the program, and the kernel drops the packet.
                None => return false,
            }
        }
    }

    fn v4(port: u16, protocol: u8) -> Vec<u8> {
        let mut p = vec![0x46, 0, 0, 44, 0, 0, 0, 0, 64, protocol, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0];
        p.extend([0x12, 0x34]);
        p.extend(port.to_be_bytes());
        p
    }

    fn v6(port: u16, next: u8) -> Vec<u8> {
        let mut p = vec![0x60, 0, 0, 0, 0, 4, next, 64];
        p.resize(40, 0);
        p.extend(port.to_be_bytes());
        p.extend([0x12, 0x34]);
        p
    }

    #[test]
    fn what_is_kept() {
        let (any, one) = (program(None, 1, u32::MAX), program(Some(8080), 1, u32::MAX));
        for (packet, by_any, by_one) in [
            (v4(8080, 6), true, true),
            (v4(8081, 6), true, false),
            (v4(8080, 17), false, false),
            (v6(8080, 6), true, true),
            (v6(8081, 6), true, false),
            (v6(8080, 60), true, true),
            (v6(8080, 17), false, false),
            (vec![0x00], false, false),
            (vec![], false, false),
        ] {
            assert_eq!(keeps(&any, &packet, 0, 2), by_any, "{packet:?}");
            assert_eq!(keeps(&one, &packet, 0, 2), by_one, "{packet:?}");
        }
        let mut fragment = v4(1, 6);
        fragment[7] = 9;
        assert!(keeps(&one, &fragment, 0, 2), "counted");
    }

    #[test]
    fn loopback_is_seen_once() {
        let p = program(Some(8080), 1, u32::MAX);
        assert!(!keeps(&p, &v4(8080, 6), OUTGOING, 1));
        assert!(keeps(&p, &v4(8080, 6), 0, 1));
        assert!(keeps(&p, &v4(8080, 6), OUTGOING, 2), "elsewhere it does not come in again");
    }
}
