//! A stack with a scripted peer: the script gives segments and times, and reads the answers. For
//! tests and fuzz targets.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::wire::{Addr, Ecn, Flags, Options, Packet, Seq, TcpHeader, emit, headers_len};
use super::{Stack, StackOptions};
use crate::link::{Checksums, Link};
use crate::sys::EventFd;
use crate::{After, Close, Conn, ConnectOptions, Event, ListenOptions, Time, Transport, Waker};

pub(crate) const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The peer's initial sequence number; near the maximum, so that numbers wrap.
const IRS: u32 = u32::MAX - 999;

/// A link whose other end is the script.
pub(crate) struct ScriptLink {
    pub(crate) now: Time,
    /// The cached time, valid until the next call that may take long.
    seen: Option<Time>,
    /// The next flush takes this long.
    pub(crate) stands_still: Duration,
    /// Packets that it takes before it is full.
    pub(crate) room: usize,
    /// How often it was told of a flood.
    pub(crate) floods: usize,
    inbox: VecDeque<Vec<u8>>,
    outbox: Vec<Vec<u8>>,
    mtu: usize,
    wake: Arc<EventFd>,
}

impl Link for ScriptLink {
    fn now(&mut self) -> Time {
        *self.seen.get_or_insert(self.now)
    }

    fn now_anew(&mut self) -> Time {
        self.seen = None;
        self.now()
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let count = max.min(self.inbox.len());
        for mut packet in self.inbox.drain(..count) {
            take(&mut packet);
        }
        count
    }

    fn transmit(&mut self, _to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        let mut packet = vec![0; len];
        fill(&mut packet);
        self.outbox.push(packet);
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        self.now = self.now + std::mem::take(&mut self.stands_still);
        self.seen = None;
        Ok(())
    }

    fn wait(&mut self, _until: Option<Time>) -> io::Result<bool> {
        self.seen = None;
        Ok(false)
    }

    fn expect_flood(&mut self) {
        self.floods += 1;
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn mtu(&mut self, _to: IpAddr) -> usize {
        self.mtu
    }

    fn checksums(&self) -> Checksums {
        Checksums::Full
    }
}

/// A segment from the peer. Numbers are relative to the initial ones of each side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seg {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) len: usize,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) ecn: Ecn,
    pub(crate) options: Options,
}

/// The stack under test, with one connection that is observed.
pub(crate) struct Lab {
    pub(crate) net: Stack<ScriptLink>,
    pub(crate) events: Vec<Event>,
    pub(crate) conn: Option<Conn>,
    pub(crate) ended: bool,
    pub(crate) failed: Option<crate::NetErrorKind>,
    pub(crate) received: Vec<u8>,
    pub(crate) port: u16,
    pub(crate) peer_port: u16,
    iss: Option<Seq>,
    /// Our first timestamp minus the time then.
    offset: u32,
    /// Checks received bytes against their numbers.
    pub(crate) checks: bool,
}

/// The byte with this number in a stream.
pub(crate) fn byte_at(seq: u32) -> u8 {
    (seq.wrapping_mul(31) >> 3) as u8
}

impl Lab {
    pub(crate) fn new(options: StackOptions) -> Lab {
        let link = ScriptLink {
            now: Time::from_nanos(1_000_000_000),
            seen: None,
            stands_still: Duration::ZERO,
            room: usize::MAX,
            floods: 0,
            inbox: VecDeque::new(),
            outbox: Vec::new(),
            mtu: 1500,
            wake: Arc::new(EventFd::new().expect("a descriptor")),
        };
        let options = StackOptions { addresses: vec![OURS], seed: Some(1), ..options };
        Lab {
            net: Stack::new(link, options),
            events: Vec::new(),
            conn: None,
            ended: false,
            failed: None,
            received: Vec::new(),
            port: 80,
            peer_port: 9,
            iss: None,
            offset: 0,
            checks: true,
        }
    }

    /// A listener, and a connection that the peer opened, with a round trip of 10 ms. `options` are
    /// those of its SYN.
    pub(crate) fn accepted(options: Options) -> Lab {
        let mut lab = Lab::listening();
        let mut syn = seg("S", 0, 0, 0);
        syn.options = options;
        lab.hears(syn);
        lab.drop_out();
        lab.pass_ms(10);
        let mut ack = seg("A", 1, 1, 0);
        if let Some((value, _)) = options.timestamps {
            ack.options.timestamps = Some((value, lab.now_ms()));
        }
        lab.hears(ack);
        lab.drop_out();
        assert!(lab.conn.is_some() || !lab.checks, "accepted");
        lab
    }

    pub(crate) fn listening() -> Lab {
        Lab::listening_with(StackOptions::default())
    }

    pub(crate) fn listening_with(options: StackOptions) -> Lab {
        let mut lab = Lab::new(options);
        let at = SocketAddr::new(OURS, 80);
        lab.net.listen(at, &ListenOptions::default()).expect("can listen");
        lab
    }

    /// A connection that we open; our SYN has been sent.
    pub(crate) fn connecting() -> Lab {
        Lab::connecting_with(StackOptions::default())
    }

    pub(crate) fn connecting_with(options: StackOptions) -> Lab {
        let mut lab = Lab::new(options);
        lab.peer_port = 80;
        let conn = lab.net.connect(SocketAddr::new(PEER, 80), &ConnectOptions::default());
        lab.conn = conn.ok();
        lab
    }

    pub(crate) fn now_ms(&self) -> u32 {
        (self.net.link.now.as_nanos() / 1_000_000) as u32
    }

    /// Advances the time and runs what is due.
    pub(crate) fn pass(&mut self, time: Duration) {
        // In steps, so that timers run in their order.
        let until = self.net.link.now + time;
        loop {
            self.turn();
            let next = self.net.core.next_deadline().filter(|next| *next <= until);
            let now = self.net.link.now;
            match next {
                Some(next) => self.net.link.now = next.max(now + Duration::from_micros(1)),
                None => break,
            }
        }
        self.net.link.now = until;
        self.turn();
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    pub(crate) fn turn(&mut self) {
        for _ in 0..2 {
            let mut events = std::mem::take(&mut self.events);
            self.net.turn(Some(Time::ZERO), &mut events).expect("a turn");
            for event in events.drain(..) {
                self.handle(event);
            }
            self.events = events;
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            // A fuzzer may open another connection: only the first is observed.
            Event::Accepted { .. } if !self.checks && self.conn.is_some() => {}
            Event::Accepted { conn, .. } => self.conn = Some(conn),
            Event::Readable { conn, data } if !self.checks && self.conn != Some(conn) => {
                self.net.receive(data, |_| {});
            }
            Event::Readable { data, .. } => {
                let received = &mut self.received;
                match self.net.receive(data, |piece| received.extend_from_slice(piece)) {
                    After::Ended => self.ended = true,
                    After::Failed(error) => self.failed = Some(error.kind),
                    After::Open | After::Gone => {}
                }
            }
            Event::Failed { error, .. } => self.failed = Some(error.kind),
            Event::Connected { .. } | Event::Drained { .. } | Event::Woken => {}
        }
    }

    /// The peer sends a segment, whose payload encodes its numbers.
    pub(crate) fn hears(&mut self, seg: Seg) {
        self.queue(seg);
        self.turn();
    }

    /// The same, but the stack handles it together with the next one.
    pub(crate) fn queue(&mut self, seg: Seg) {
        let iss = self.iss.unwrap_or(Seq(0));
        let mut options = seg.options;
        if let Some((_, echo)) = &mut options.timestamps {
            *echo = echo.wrapping_add(self.offset);
        }
        let tcp = TcpHeader {
            src_port: self.peer_port,
            dst_port: self.port,
            seq: Seq(IRS) + seg.seq,
            ack: if seg.flags & Flags::ACK.0 != 0 { iss + seg.ack } else { Seq(0) },
            flags: Flags(seg.flags),
            window: seg.window,
            urgent: seg.urgent,
            ecn: seg.ecn,
            options: absolute(options, iss),
        };
        let (from, to) = (Addr::from(PEER), Addr::from(OURS));
        let mut packet = vec![0; headers_len(&to, &tcp) + seg.len];
        emit(&from, &to, &tcp, &mut packet, |payload| {
            for (i, byte) in payload.iter_mut().enumerate() {
                *byte = byte_at(seg.seq.wrapping_add(i as u32));
            }
        });
        self.net.link.inbox.push_back(packet);
    }

    /// Delivers bytes that are no segment.
    pub(crate) fn hears_bytes(&mut self, bytes: &[u8]) {
        self.net.link.inbox.push_back(bytes.to_vec());
        self.turn();
    }

    /// The segments sent since the last call, as headers and payloads.
    pub(crate) fn take_out(&mut self) -> Vec<(TcpHeader, Vec<u8>)> {
        let packets = std::mem::take(&mut self.net.link.outbox);
        let read = |bytes: Vec<u8>| {
            let packet = Packet::parse(&bytes, Checksums::Full).expect("what we send is well formed");
            assert!(bytes.len() <= self.net.link.mtu, "not larger than the path takes");
            (packet.tcp, bytes[packet.from..packet.to].to_vec())
        };
        let out: Vec<_> = packets.into_iter().map(read).collect();
        for (tcp, _) in &out {
            if tcp.flags.has(Flags::SYN) {
                self.iss = Some(tcp.seq);
                self.port = tcp.src_port;
                if let Some((value, _)) = tcp.options.timestamps {
                    self.offset = value.wrapping_sub(self.now_ms());
                }
            }
        }
        out
    }

    pub(crate) fn drop_out(&mut self) {
        self.take_out();
    }

    pub(crate) fn send(&mut self, len: usize) {
        if let Some(conn) = self.conn {
            let _ = self.net.send(conn, &vec![7; len]);
            self.turn();
        }
    }

    pub(crate) fn close(&mut self, how: Close) {
        if let Some(conn) = self.conn {
            self.net.close(conn, how);
            self.turn();
        }
    }
}

/// Converts relative blocks to numbers on the wire.
fn absolute(options: Options, iss: Seq) -> Options {
    let mut sack = super::wire::Sack::default();
    for (start, end) in options.sack.blocks() {
        sack.push(iss + start.0, iss + end.0);
    }
    Options { sack, ..options }
}

/// `flags`: letters of S, F, R, P, A, U, E and W.
pub(crate) fn seg(flags: &str, seq: u32, ack: u32, len: usize) -> Seg {
    let bit = |c| match c {
        'F' => Flags::FIN,
        'S' => Flags::SYN,
        'R' => Flags::RST,
        'P' => Flags::PSH,
        'U' => Flags::URG,
        'E' => Flags::ECE,
        'W' => Flags::CWR,
        '-' => Flags(0),
        _ => Flags::ACK,
    };
    let flags = flags.chars().fold(0, |all, c| all | bit(c).0);
    Seg { flags, seq, ack, len, window: 60_000, urgent: 0, ecn: Ecn::NotCapable, options: Options::default() }
}

#[cfg(test)]
impl Seg {
    /// Sets the urgent pointer.
    pub(crate) fn urgent(self, urgent: u16) -> Seg {
        Seg { urgent, ..self }
    }

    /// A router has marked it.
    pub(crate) fn marked(self) -> Seg {
        Seg { ecn: Ecn::Marked, ..self }
    }

    pub(crate) fn win(self, window: u16) -> Seg {
        Seg { window, ..self }
    }

    /// Sets TSval and TSecr, in milliseconds of the script; TSecr is relative to our offset.
    pub(crate) fn ts(mut self, value: u32, echo: u32) -> Seg {
        self.options.timestamps = Some((value, echo));
        self
    }
}

#[cfg(test)]
impl Lab {
    /// The offset of our timestamps from the script's clock.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// The packets sent and not read yet, as bytes.
    pub(crate) fn packets(&self) -> Vec<Vec<u8>> {
        self.net.link.outbox.clone()
    }

    /// The source port of our SYN, which must be the only segment sent.
    pub(crate) fn syn_port(&mut self) -> u16 {
        let out = self.take_out();
        assert_eq!((out.len(), out[0].0.flags), (1, Flags::SYN));
        self.port
    }

    /// Our initial sequence number.
    pub(crate) fn first(&self) -> Seq {
        self.iss.unwrap_or(Seq(0))
    }

    /// The segments sent since the last call as text: flags, first and last number, ACK, relevant
    /// options.
    pub(crate) fn out(&mut self) -> Vec<String> {
        let out = self.take_out();
        let iss = self.iss.unwrap_or(Seq(0));
        out.iter().map(|(tcp, payload)| show(tcp, payload.len(), iss)).collect()
    }
}

#[cfg(test)]
fn show(tcp: &TcpHeader, len: usize, iss: Seq) -> String {
    use std::fmt::Write;

    let mut text = String::new();
    for (flag, letter) in [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, 'A'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
    ] {
        if tcp.flags.has(flag) {
            text.push(letter);
        }
    }
    let seq = tcp.seq - iss;
    let _ = write!(text, " {seq}");
    if len > 0 {
        let _ = write!(text, ":{}", seq.wrapping_add(len as u32));
    }
    if tcp.flags.has(Flags::ACK) {
        let _ = write!(text, " ack {}", tcp.ack - Seq(IRS));
    }
    for (i, (start, end)) in tcp.options.sack.blocks().iter().enumerate() {
        let word = if i == 0 { " sack" } else { "" };
        let _ = write!(text, "{word} {}:{}", *start - Seq(IRS), *end - Seq(IRS));
    }
    if tcp.ecn == Ecn::Capable {
        text.push_str(" ect");
    }
    text
}
