//! A connection by HTTP/2: requests are read as they should be, and what is sent is the script's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::time::{Duration, Instant};

use linerate_http::h2::{Decoder, FRAME_HEAD, FrameHead, PREFACE};

use crate::frames::{FrameBytes, flag, kind};
use crate::limits::{FIELDS_BYTES, LIFE, REQUEST_BYTES};
use crate::line::BrokenConnection;
use crate::reply::{Reply, Then};
use crate::server::Talk;

/// Makes bytes.
pub type Bytes = fn() -> Vec<u8>;

/// How a server behaves on HTTP/2 connections beside its replies.
#[derive(Clone, Copy, Debug)]
pub struct StreamBehaviour {
    /// Bytes sent first: SETTINGS, in a server that behaves.
    pub greeting: Bytes,
    /// Bytes sent so long after the greeting.
    pub later: Option<(Duration, Bytes)>,
    /// Bodies of requests get new windows as they come.
    pub grants: bool,
    /// The script is asked as soon as the head of a request is there.
    pub early: bool,
}

impl Default for StreamBehaviour {
    fn default() -> StreamBehaviour {
        StreamBehaviour {
            greeting: || FrameBytes::new().settings(&[(3, 100)]).0,
            later: None,
            grants: true,
            early: false,
        }
    }
}

/// Bytes that leave at some time.
struct Due {
    at: Instant,
    order: u64,
    reply: Reply,
    number: Option<u64>,
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

/// One connection.
pub(crate) struct BrokenStreams<'t> {
    talk: &'t Talk,
    http2: StreamBehaviour,
    carry: Vec<u8>,
    begun: bool,
    decoder: Decoder,
    /// Requests whose end has not come.
    open: BTreeMap<u32, String>,
    /// A field block that goes on, and what it belongs to.
    block: Option<(FrameHead, Vec<u8>)>,
    out: Vec<u8>,
    later: BinaryHeap<Reverse<Due>>,
    order: u64,
    on_connection: u64,
}

impl<'t> BrokenStreams<'t> {
    pub(crate) fn new(talk: &'t Talk, http2: StreamBehaviour) -> BrokenStreams<'t> {
        BrokenStreams {
            talk,
            http2,
            carry: Vec::new(),
            begun: false,
            decoder: Decoder::default(),
            open: BTreeMap::new(),
            block: None,
            out: Vec::new(),
            later: BinaryHeap::new(),
            order: 0,
            on_connection: 0,
        }
    }

    /// Responds to requests until the script or the peer ends the connection.
    pub(crate) fn converse(mut self, line: &mut BrokenConnection<'_>) -> Then {
        self.out.extend_from_slice(&(self.http2.greeting)());
        if let Some((after, bytes)) = self.http2.later {
            self.schedule(Reply::with(bytes()).after(after), None);
        }
        let mut buffer = vec![0; 64 << 10];
        while self.carry.len() <= REQUEST_BYTES {
            let (then, next) = match self.flush(line) {
                Ok(done) => done,
                Err(_) => return Then::Close,
            };
            if then != Then::Keep {
                return then;
            }
            let wait = next.map_or(LIFE, |at| at.saturating_duration_since(Instant::now()));
            line.read_within(wait.max(Duration::from_micros(100)));
            match line.read(&mut buffer) {
                Ok(n @ 1..) => self.carry.extend_from_slice(&buffer[..n]),
                Ok(_) => return Then::Close,
                Err(e) if next.is_some() && is_timeout(&e) => continue,
                Err(_) => return Then::Close,
            }
            if !self.read() {
                return Then::Close;
            }
        }
        Then::Close
    }

    /// Sends what is due. Says what becomes of the connection, and when the next bytes are due.
    fn flush(&mut self, line: &mut BrokenConnection<'_>) -> io::Result<(Then, Option<Instant>)> {
        let mut left = Vec::new();
        loop {
            let now = Instant::now();
            let is_due = self.later.peek().is_some_and(|Reverse(due)| due.at <= now);
            if !is_due {
                line.write(&std::mem::take(&mut self.out))?;
                left.into_iter().for_each(|(number, served)| self.talk.note(number, served));
                return Ok((Then::Keep, self.later.peek().map(|Reverse(due)| due.at)));
            }
            let Some(Reverse(Due { mut reply, number, .. })) = self.later.pop() else { continue };
            self.out.extend_from_slice(&reply.bytes);
            if reply.then != Then::Keep {
                line.write(&std::mem::take(&mut self.out))?;
                left.push((number, reply.served));
                left.into_iter().for_each(|(number, served)| self.talk.note(number, served));
                return Ok((reply.then, None));
            }
            match reply.again.take() {
                Some(mut again) if again.times > 0 => {
                    again.times -= 1;
                    let bytes = again.bytes.clone();
                    let next = Reply { bytes, after: again.pause, again: Some(again), ..reply };
                    self.schedule(next, number);
                }
                _ => left.push((number, reply.served)),
            }
        }
    }

    fn schedule(&mut self, reply: Reply, number: Option<u64>) {
        self.order += 1;
        let at = Instant::now() + reply.after;
        self.later.push(Reverse(Due { at, order: self.order, reply, number }));
    }

    /// Reads whole frames; `false`: what came is no HTTP/2.
    fn read(&mut self) -> bool {
        if !self.begun {
            if self.carry.len() < PREFACE.len() {
                return true;
            }
            if !self.carry.starts_with(PREFACE) {
                return false;
            }
            self.carry.drain(..PREFACE.len());
            self.begun = true;
        }
        let carry = std::mem::take(&mut self.carry);
        let mut rest = &carry[..];
        while let Some(head) = rest.first_chunk::<FRAME_HEAD>().map(FrameHead::read) {
            let Some(payload) = rest.get(FRAME_HEAD..FRAME_HEAD + head.len as usize) else { break };
            rest = &rest[FRAME_HEAD + payload.len()..];
            if self.frame(head, payload).is_none() {
                return false;
            }
        }
        self.carry = rest.to_vec();
        true
    }

    fn say(&mut self, frames: FrameBytes) {
        self.out.extend_from_slice(&frames.0);
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) -> Option<()> {
        match head.kind {
            kind::SETTINGS if head.flags & flag::ACK == 0 => {
                self.say(FrameBytes::new().frame(kind::SETTINGS, flag::ACK, 0, b""));
            }
            kind::PING if head.flags & flag::ACK == 0 => {
                self.say(FrameBytes::new().frame(kind::PING, flag::ACK, 0, payload));
            }
            kind::HEADERS => {
                // Padding and priority stand before the block.
                let padded = head.flags & flag::PADDED != 0;
                let pad = if padded { usize::from(*payload.first()?) } else { 0 };
                let from = usize::from(padded) + if head.flags & 0x20 != 0 { 5 } else { 0 };
                let block = payload.get(from..payload.len().checked_sub(pad)?)?;
                self.block = Some((head, block.to_vec()));
                if head.flags & flag::END_HEADERS != 0 {
                    self.request()?;
                }
            }
            kind::CONTINUATION => {
                self.block.as_mut()?.1.extend_from_slice(payload);
                if head.flags & flag::END_HEADERS != 0 {
                    self.request()?;
                }
            }
            kind::DATA => {
                if self.http2.grants && head.len > 0 {
                    self.say(FrameBytes::new().window(0, head.len).window(head.stream, head.len));
                }
                if head.flags & flag::END_STREAM != 0
                    && let Some(text) = self.open.remove(&head.stream)
                    && !self.http2.early
                {
                    self.reply(head.stream, &text);
                }
            }
            kind::RST_STREAM => drop(self.open.remove(&head.stream)),
            _ => {}
        }
        Some(())
    }

    /// The head of a request is whole.
    fn request(&mut self) -> Option<()> {
        let (head, block) = self.block.take()?;
        let (mut line, mut fields) = ([const { String::new() }; 2], String::new());
        let decoded = self.decoder.decode(&block, FIELDS_BYTES, &mut |name: &[u8], value: &[u8]| {
            let value = String::from_utf8_lossy(value);
            match name {
                b":method" => line[0] = value.into_owned(),
                b":path" => line[1] = value.into_owned(),
                _ => fields += &format!("{}: {value}\r\n", String::from_utf8_lossy(name)),
            }
        });
        decoded.ok()?;
        let text = format!("{} {} HTTP/2\r\n{fields}\r\n", line[0], line[1]);
        let ends = head.flags & flag::END_STREAM != 0;
        if ends || self.http2.early {
            self.reply(head.stream, &text);
        }
        if !ends {
            // Its body may never come.
            self.talk.arrived(&text);
            self.open.insert(head.stream, text);
        }
        Some(())
    }

    fn reply(&mut self, stream: u32, head: &str) {
        let (reply, number) = self.talk.ask(head, self.on_connection, stream);
        self.on_connection += 1;
        self.schedule(reply, number);
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
