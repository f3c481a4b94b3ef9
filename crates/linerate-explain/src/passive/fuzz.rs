//! The checks of the fuzz targets; ordinary tests replay their corpora.

use std::sync::Arc;

use super::{CaptureFile, CaptureLimits, KeyLog, LinkType, Observation, Observer, Packet, findings};

/// Limits so small that each of them is met.
fn small() -> CaptureLimits {
    CaptureLimits {
        connections: 4,
        held_bytes: 4096,
        held_bytes_one: 512,
        head_bytes: 256,
        pending: 4,
        trace: 4,
        slowest: 3,
        listed: 3,
    }
}

/// Holds for every observation.
fn check(seen: &Observation) {
    let s = &seen.sums;
    assert!(s.answered + s.unanswered <= s.requests, "no request ends twice: {s:?}");
    assert!(s.opened + s.not_opened <= s.connections);
    let limits = small();
    assert!(seen.slowest.len() <= limits.slowest && seen.connections.len() <= limits.listed);
    for call in &seen.slowest {
        assert!(call.segments.len() <= 2 * limits.trace, "bounded");
        assert!(call.total_ns >= 0 && call.think_ns >= 0 && call.network_ns >= 0 && call.queued_ns >= 0);
    }
    for finding in findings::of(seen) {
        assert!(finding.all_ns >= 0 && finding.calls > 0);
    }
}

/// Holds for the same packets, seen in windows: they add up to what was seen at once.
fn check_windows(whole: Observer, windows: Observer) {
    let (whole, sum) = (whole.finish(), windows.finish());
    assert_eq!(format!("{sum:?}"), format!("{whole:?}"), "windows lose nothing");
    check(&whole);
}

/// The fuzz target for capture files.
pub fn capture(data: &[u8]) {
    let Ok(mut file) = CaptureFile::open(data) else { return };
    let [mut observer, mut windows] = [(); 2].map(|()| Observer::new(small()));
    let mut bytes = 0;
    while let Ok(Some(packet)) = file.next_packet() {
        bytes += packet.data.len();
        observer.packet(&packet);
        windows.packet(&packet);
        windows.end_window(packet.time_ns);
    }
    // A gzip file may be longer than itself.
    assert!(data.starts_with(b"\x1f\x8b") || bytes <= data.len(), "no byte is read twice");
    assert!(file.ending().is_some() || data.starts_with(b"\x1f\x8b"));
    check_windows(observer, windows);
}

/// The fuzz target for sequences of packets. Each byte string is a script of segments on a few
/// connections. Their numbers are close to each other, which causes repetitions, holes, disorder
/// and messages in pieces.
pub fn packets(data: &[u8]) {
    let [mut observer, mut windows] = [(); 2].map(|()| Observer::new(small()));
    let mut now: i64 = 1_000_000_000;
    let mut rest = data;
    while let Some((&[ends, flags, seq, ack, time, len], tail)) = rest.split_first_chunk::<6>() {
        let n = usize::from(len).min(tail.len());
        let (payload, after) = tail.split_at(n);
        rest = after;
        now += (i64::from(time) - 8) * 3_000_000;
        let frame = frame(ends, flags, seq, ack, payload);
        let wire_len = frame.len() as u32;
        let packet = Packet { time_ns: now, link: LinkType::Raw, data: &frame, wire_len };
        observer.packet(&packet);
        windows.packet(&packet);
        if (time ^ seq) & 1 == 1 {
            let window = windows.end_window(now).0;
            assert!(findings::of(&window).iter().all(|finding| finding.all_ns >= 0));
        }
    }
    check_windows(observer, windows);
}

/// The client's random number in the corpus' hellos.
const RANDOM: &str = "1111111111111111111111111111111111111111111111111111111111111111";

/// The fuzz target for TLS in captures: a key log, and behind the first zero byte a script of
/// segments as for [`packets`], but of up to 1020 bytes (lengths in words), so that records go on
/// from one to the next. Whatever the log, the keys of one session are there.
pub fn tls(data: &[u8]) {
    let (log, mut rest) = match data.iter().position(|b| *b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let labels = ["CLIENT_HANDSHAKE", "SERVER_HANDSHAKE", "CLIENT", "SERVER"];
    let mut own: String = format!("CLIENT_RANDOM {RANDOM} {}\n", "33".repeat(48));
    for label in labels {
        let end = if label.contains('_') { "" } else { "_0" };
        own.push_str(&format!("{label}_TRAFFIC_SECRET{end} {RANDOM} {}\n", "22".repeat(32)));
    }
    let keys = KeyLog::parse(log).or_else(|_| KeyLog::parse(own.as_bytes())).ok().map(Arc::new);
    let limits = CaptureLimits { held_bytes: 64 << 10, held_bytes_one: 32 << 10, ..small() };
    let [with_keys, mut windows] = [(); 2].map(|()| Observer::new(limits).with_keys(keys.clone()));
    let mut observers = [with_keys, Observer::new(limits)];
    let mut next = [0u32; 2];
    let mut now: i64 = 1_000_000_000;
    while let Some((&[ends, skip, time, len], tail)) = rest.split_first_chunk::<4>() {
        let n = (usize::from(len) * 4).min(tail.len());
        let (payload, after) = tail.split_at(n);
        rest = after;
        now += i64::from(time) * 1_000_000;
        // The next in order, but for what is skipped.
        let from = usize::from(ends & 1);
        let seq = next[from].wrapping_add(u32::from(skip));
        next[from] = seq.wrapping_add(n as u32);
        let mut frame = frame(ends & 1, 0x10, 0, 0, payload);
        frame[24..28].copy_from_slice(&seq.to_be_bytes());
        frame[28..32].copy_from_slice(&next[1 - from].to_be_bytes());
        let wire_len = frame.len() as u32;
        let packet = Packet { time_ns: now, link: LinkType::Raw, data: &frame, wire_len };
        observers.iter_mut().chain([&mut windows]).for_each(|observer| observer.packet(&packet));
        if skip & 1 == 1 {
            windows.end_window(now);
        }
    }
    let [with_keys, without] = observers;
    check_windows(with_keys, windows);
    check(&without.finish());
}

/// An IPv4 packet. `ends`: bit 0 the direction, bits 1 to 3 the client's port, bit 4 an initial
/// number before the wrap, the rest a window.
fn frame(ends: u8, flags: u8, seq: u8, ack: u8, payload: &[u8]) -> Vec<u8> {
    let (client, server) = (40_000 + u16::from(ends >> 1 & 7), 80u16);
    let (src, dst) = if ends & 1 == 0 { (client, server) } else { (server, client) };
    let base: u32 = if ends & 16 == 0 { 1000 } else { u32::MAX - 50 };
    let number = |n: u8| base.wrapping_add(u32::from(n) * 4).to_be_bytes();
    let total = (40 + payload.len()) as u16;
    let mut frame = vec![0x45, 0];
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, ends & 1, 10, 0, 0, 1 - (ends & 1)]);
    frame.extend(src.to_be_bytes());
    frame.extend(dst.to_be_bytes());
    frame.extend(number(seq));
    frame.extend(number(ack));
    frame.extend([0x50, flags & 0x3f, 0, ends >> 5, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}
