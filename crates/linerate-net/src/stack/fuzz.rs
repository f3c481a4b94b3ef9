//! The code of the fuzz targets, and of the tests that replay their corpus.

use super::lab::{Lab, Seg, byte_at};
use super::wire::{Ecn, Options, Seq};
use crate::{Close, Transport};

/// Reads bytes as packets of a link, each preceded by its length. The stack must not panic, and its
/// answers must be well formed.
pub fn frames(data: &[u8]) {
    let mut lab = Lab::listening();
    lab.checks = false;
    let mut rest = data;
    for _ in 0..64 {
        let Some((len, more)) = rest.split_first() else { break };
        let (packet, more) = more.split_at(usize::from(*len).min(more.len()));
        lab.hears_bytes(packet);
        lab.drop_out();
        rest = more;
    }
    lab.pass_ms(5);
    lab.drop_out();
}

/// Reads bytes as actions of a peer, the application and the clock on one connection. Whatever they
/// are, received data must match the peer's numbers without a gap, and our segments must be well
/// formed.
pub fn segments(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut next = move || bytes.next();
    let setting = next().unwrap_or(0);
    let options = Options {
        mss: (setting & 1 != 0).then_some(1460),
        window_scale: (setting & 2 != 0).then_some(7),
        sack_permitted: setting & 4 != 0,
        timestamps: (setting & 8 != 0).then_some((1000, 0)),
        ..Options::default()
    };
    let mut lab = if setting & 16 != 0 { Lab::connecting() } else { Lab::accepted(options) };
    lab.checks = false;
    let with_timestamps = setting & 8 != 0 && setting & 16 == 0;
    lab.turn();
    lab.drop_out();
    for _ in 0..200 {
        let Some(what) = next() else { break };
        let mut word = || u32::from(next().unwrap_or(0)) << 8 | u32::from(next().unwrap_or(0));
        match what % 16 {
            0..=8 => {
                let (seq, ack, flags) = (word(), word(), word());
                let seg = Seg {
                    flags: (flags & 31) as u8 | ecn_flags(flags) | if what & 64 != 0 { 16 } else { 0 },
                    seq: seq.wrapping_sub(300),
                    ack: ack.wrapping_sub(300),
                    len: (flags >> 8) as usize * 8,
                    window: if what & 128 != 0 { (word() & 0xfff) as u16 } else { 60_000 },
                    urgent: 0,
                    ecn: if flags & 128 != 0 { Ecn::Marked } else { Ecn::NotCapable },
                    options: segment_options(with_timestamps, flags, &mut word, options),
                };
                lab.hears(seg);
            }
            9 => lab.send(word() as usize % 20_000),
            10 => lab.pass_ms(u64::from(word() % 500)),
            11 => lab.pass_ms(u64::from(word())),
            12 => lab.conn.map(|conn| lab.net.pause(conn)).unwrap_or_default(),
            13 => lab.conn.map(|conn| lab.net.resume(conn)).unwrap_or_default(),
            14 => {
                lab.close([Close::Now, Close::AfterPeer, Close::Lingering, Close::Abort][word() as usize % 4])
            }
            _ => lab.turn(),
        }
        lab.drop_out();
    }
    check_received(&lab);
}

/// ECE and CWR.
fn ecn_flags(flags: u32) -> u8 {
    if flags & 64 != 0 { (flags << 1) as u8 & 0xc0 } else { 0 }
}

fn segment_options(timestamps: bool, flags: u32, word: &mut impl FnMut() -> u32, syn: Options) -> Options {
    let mut options = if flags & 2 != 0 { syn } else { Options::default() };
    if timestamps {
        options.timestamps = Some((1000 + (word() & 0xff), word()));
    }
    if flags & 32 != 0 && flags & 2 == 0 {
        let start = word();
        options.sack.push(Seq(start), Seq(start.wrapping_add(word() & 0xfff)));
    }
    options
}

/// The first byte has the number 1; in a connection that we open, the script's SYN decides.
fn check_received(lab: &Lab) {
    if lab.port != 80 {
        return;
    }
    for (i, byte) in lab.received.iter().enumerate() {
        assert_eq!(*byte, byte_at(1 + i as u32), "byte {i} of what was received");
    }
}
