//! Random clients, and what they received.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_base::Random;
use linerate_net::Time;
use linerate_net::mem::{Peer, PeerActions, PeerConn};

use super::requests::{self, Ask, Ends, Shape};

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Stays until it has all responses, then closes.
    Stays,
    /// Sends a FIN after its last request, and keeps reading.
    HalfCloses,
    /// Resets once it has this many bytes.
    ResetsAt(usize),
    /// Resets or closes this many milliseconds after it connected.
    ResetsAfter(u64),
    ClosesAfter(u64),
    /// Sends a FIN at an arbitrary moment, and keeps reading.
    EndsAfter(u64),
    /// Stops reading at this time, without closing.
    Vanishes(u64),
}

impl Fate {
    fn random(random: &mut Random) -> Fate {
        match random.below(14) {
            0..5 => Fate::Stays,
            5..8 => Fate::HalfCloses,
            8 | 9 => {
                let most = [1, 100, 60_000, 300_000][random.below(4) as usize];
                Fate::ResetsAt(random.below(most) as usize)
            }
            10 => Fate::ResetsAfter(random.few(60)),
            11 => Fate::ClosesAfter(random.few(60)),
            12 => Fate::EndsAfter(random.few(60)),
            _ => Fate::Vanishes(random.few(60)),
        }
    }

    /// Whether its last request may be truncated.
    fn cuts_itself(self) -> bool {
        matches!(self, Fate::EndsAfter(_) | Fate::ClosesAfter(_))
    }

    /// Whether it must get all its responses.
    pub(super) fn stays(self) -> bool {
        matches!(self, Fate::Stays | Fate::HalfCloses)
    }
}

/// The responses that a client received.
#[derive(Debug, Default)]
pub(super) struct SeedResponses {
    pub(super) bytes: Vec<u8>,
    pub(super) ended: bool,
    pub(super) failed: bool,
    /// The end of the last complete response.
    parsed: usize,
    /// The number of complete responses.
    whole: usize,
    /// The last of them ended the connection.
    closes: bool,
    /// The error in one of them.
    wrong: Option<String>,
}

/// A client with its requests.
#[derive(Clone, Debug)]
pub(super) struct SeedClient {
    pub(super) asks: Arc<Vec<Ask>>,
    pub(super) fate: Fate,
    /// The bytes to send and when, in milliseconds.
    pieces: Vec<(u64, Vec<u8>)>,
    /// Reads something, then nothing for this long; several times.
    pauses: Option<Duration>,
    left: u32,
    gone: bool,
    pub(super) seen: Arc<Mutex<SeedResponses>>,
}

impl SeedClient {
    pub(super) fn random(random: &mut Random, number: u64) -> SeedClient {
        let mut asks = Vec::new();
        for i in 0..1 + random.few(12) {
            let ask = requests::random(random, number * 100 + i);
            let is_last = ask.is_last;
            asks.push(ask);
            if is_last {
                break;
            }
        }
        let text: Vec<u8> = asks.iter().flat_map(|ask| ask.text.iter().copied()).collect();
        let fate = Fate::random(random);
        SeedClient {
            pieces: cut(random, &text),
            fate,
            pauses: (random.below(4) == 0).then(|| Duration::from_millis(1 + random.below(30))),
            left: 40,
            gone: false,
            asks: Arc::new(asks),
            seen: Arc::default(),
        }
    }

    fn has_tunnel(&self) -> bool {
        self.asks.last().is_some_and(|ask| ask.shape == Shape::Tunnel)
    }

    /// Whether it has everything that it will get.
    pub(super) fn is_done(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.failed || seen.ended || seen.wrong.is_some() || (seen.whole == self.asks.len())
    }

    /// The error in what it received, if any. `drains`: the server stopped meanwhile, so any
    /// response may be the last.
    pub(super) fn judge(&self, drains: bool) -> Result<(), String> {
        let seen = self.seen.lock().unwrap();
        if let Some(wrong) = &seen.wrong {
            return Err(wrong.clone());
        }
        let (whole, left) = (seen.whole, &seen.bytes[seen.parsed..]);
        if self.fate.cuts_itself() && head(left).is_some_and(|(_, status, _)| status == 400) {
            // The connection was cut, as announced.
            return Ok(());
        }
        let Some(next) = self.asks.get(whole).filter(|_| !seen.closes) else {
            return if left.is_empty() {
                Ok(())
            } else {
                Err(format!("bytes behind the last: {}", show(left)))
            };
        };
        partly(left, next)?;
        // A stream may break off before its head was sent.
        let broken = next.shape == Shape::Broken && (seen.ended || seen.failed);
        let drained = drains && left.is_empty() && (seen.ended || seen.failed);
        if !self.fate.stays() || broken || drained {
            return Ok(());
        }
        let how = (seen.ended, seen.failed);
        let asked = show(&next.text);
        Err(format!("response {whole} is missing (ended, failed: {how:?}): {} to {asked}", show(left)))
    }

    /// Takes the complete responses out of the received bytes.
    fn parse(&self) {
        let mut seen = self.seen.lock().unwrap();
        while let Some(ask) = self.asks.get(seen.whole)
            && !seen.closes
            && seen.wrong.is_none()
        {
            match response(&seen.bytes[seen.parsed..], ask, seen.ended) {
                Err(_) if self.fate.cuts_itself() => return,
                Ok(None) => return,
                Ok(Some(got)) => {
                    seen.closes = got.closes || ask.ends == Ends::Always;
                    seen.parsed += got.len;
                    seen.whole += 1;
                }
                Err(wrong) => {
                    seen.wrong = Some(format!("response {}: {wrong} to {}", seen.whole, show(&ask.text)))
                }
            }
        }
    }
}

/// Cuts the text at random, with pauses.
fn cut(random: &mut Random, text: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut pieces, mut at, mut rest) = (Vec::new(), 0, text);
    let most = [10, 200, 5_000, 1 << 20][random.below(4) as usize];
    while !rest.is_empty() {
        let n = if pieces.len() > 40 { rest.len() } else { 1 + random.below(most) as usize };
        let (piece, behind) = rest.split_at(n.min(rest.len()));
        pieces.push((at, piece.to_vec()));
        at += random.few(8);
        rest = behind;
    }
    pieces
}

impl Peer for SeedClient {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let ms = Duration::from_millis;
        let mut last = 0;
        for (at, bytes) in self.pieces.drain(..) {
            last = at;
            out.send_after(ms(at), conn, bytes);
        }
        match self.fate {
            Fate::HalfCloses => out.end_after(ms(last), conn),
            Fate::ResetsAfter(at) => out.reset_after(ms(at), conn),
            Fate::ClosesAfter(at) => out.close_after(ms(at), conn),
            Fate::EndsAfter(at) => out.end_after(ms(at), conn),
            Fate::Vanishes(at) => out.call_after(ms(at), conn),
            Fate::ResetsAt(0) => out.reset(conn),
            // A connection that was handed over has no timeout: its application has its own.
            Fate::ResetsAt(_) if self.has_tunnel() => out.reset_after(Duration::from_secs(100), conn),
            // A tunnel has no other end.
            Fate::Stays if self.has_tunnel() => {
                out.end_after(ms(last), conn);
            }
            Fate::ResetsAt(_) | Fate::Stays => {}
        }
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let count = {
            let mut seen = self.seen.lock().unwrap();
            seen.bytes.extend_from_slice(bytes);
            seen.bytes.len()
        };
        self.parse();
        if let Some(pause) = self.pauses.filter(|_| !self.gone && self.left > 0) {
            self.left -= 1;
            out.pause(conn);
            out.resume_after(pause, conn);
        }
        match self.fate {
            Fate::ResetsAt(limit) if count >= limit => out.reset(conn),
            Fate::Stays if self.is_done() => out.close(conn),
            _ => {}
        }
    }

    fn ended(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.seen.lock().unwrap().ended = true;
        self.parse();
        out.close(conn);
    }

    fn failed(&mut self, _: Time, _: PeerConn, _: &mut PeerActions) {
        self.seen.lock().unwrap().failed = true;
    }

    fn called(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.gone = true;
        out.pause(conn);
        if self.has_tunnel() {
            out.reset_after(Duration::from_secs(100), conn);
        }
    }
}

/// A complete response.
struct Got {
    len: usize,
    closes: bool,
}

/// The final head after interim ones: its end, its status and its text.
fn head(bytes: &[u8]) -> Option<(usize, u16, String)> {
    let mut from = 0;
    loop {
        let end = from + bytes[from..].windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&bytes[from..end]).to_lowercase();
        let status = text.get(9..12)?.parse().ok()?;
        if status != 100 {
            return Some((end, status, text));
        }
        from = end;
    }
}

/// Finds the response to `ask` at the start of `bytes`, if it is complete.
fn response(bytes: &[u8], ask: &Ask, ended: bool) -> Result<Option<Got>, String> {
    let Some((at, status, text)) = head(bytes) else { return Ok(None) };
    if status != ask.status {
        return Err(format!("status {status} in place of {}: {}", ask.status, show(bytes)));
    }
    let closes = text.contains("\r\nconnection: close\r\n");
    let rest = &bytes[at..];
    let field = |name: &str| text.split_once(name)?.1.split("\r\n").next();
    let whole = |len: usize, body: &[u8]| {
        if ask.status != 500 && ask.status != 400 && body != ask.body {
            return Err(format!("another body: {}", show(body)));
        }
        Ok(Some(Got { len: at + len, closes }))
    };
    if ask.head_only {
        return whole(0, &ask.body);
    }
    if ask.shape == Shape::Tunnel {
        let len = ask.body.len();
        return if ended || rest.len() > len { whole(rest.len(), rest) } else { Ok(None) };
    }
    if let Some(length) = field("\r\ncontent-length: ") {
        let length: usize = length.parse().map_err(|_| format!("a length: {text}"))?;
        return if rest.len() < length { Ok(None) } else { whole(length, &rest[..length]) };
    }
    if text.contains("\r\ntransfer-encoding: chunked\r\n") {
        if !ended && !rest.ends_with(b"0\r\n\r\n") && rest.len() < ask.body.len() {
            return Ok(None);
        }
    } else {
        return if ended { whole(rest.len(), rest) } else { Ok(None) };
    }
    let (mut from, mut body) = (0, Vec::new());
    loop {
        let Some(line) = rest[from..].windows(2).position(|w| w == b"\r\n") else { return Ok(None) };
        let digits = String::from_utf8_lossy(&rest[from..from + line]).into_owned();
        let size = usize::from_str_radix(&digits, 16).map_err(|_| format!("a chunk's size: {digits}"))?;
        let data = from + line + 2;
        if rest.len() < data + size + 2 {
            return Ok(None);
        }
        if size == 0 {
            return whole(data + 2, &body);
        }
        body.extend_from_slice(&rest[data..data + size]);
        from = data + size + 2;
    }
}

/// Whether `bytes` can be the beginning of the response to `ask`.
fn partly(bytes: &[u8], ask: &Ask) -> Result<(), String> {
    let Some((at, status, text)) = head(bytes) else { return Ok(()) };
    if status != ask.status {
        return Err(format!("status {status} in place of {}: {}", ask.status, show(bytes)));
    }
    if status == 200 && !text.contains("chunked") && !ask.body.starts_with(&bytes[at..]) {
        return Err(format!("another body: {}", show(bytes)));
    }
    Ok(())
}

fn show(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    format!("{} bytes: {text:?}", bytes.len())
}
