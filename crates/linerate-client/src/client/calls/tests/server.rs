//! A server that does anything a server may do wrong, by seed: it closes, resets, stalls, swaps, repeats, half-closes and
//! corrupts responses.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_base::Random;
use linerate_net::Time;
use linerate_net::mem::{Accept, PeerConn};

use super::random_up_to;
use super::wire::{Acts, Hostile};

/// How often a request arrived, by its number, and of which method.
pub(super) type Arrivals = Arc<Mutex<BTreeMap<u64, (String, u32)>>>;

/// The field by which responses name their requests.
pub(super) const TAG: &str = "x-call";

/// A body that only the request of this number gets.
pub(super) fn body_of(number: u64) -> Vec<u8> {
    // One in 16 is large.
    let len = if number.is_multiple_of(16) { 20_000 + number as usize } else { number as usize % 50 };
    let word = format!("<{number}>");
    word.bytes().cycle().take(len.max(word.len())).collect()
}

/// Per thousand of the responses, each kind of trouble.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) closes: u64,
    pub(super) announces: u64,
    pub(super) resets: u64,
    pub(super) stalls: u64,
    pub(super) half_closes: u64,
    pub(super) breaks_off: u64,
    pub(super) corrupts: u64,
    pub(super) swaps: u64,
    pub(super) repeats: u64,
    pub(super) refuses: u64,
    pub(super) too_large: u64,
    /// Longest delay, microseconds.
    pub(super) slow_us: u64,
    /// Responses on each connection before it closes.
    pub(super) closes_after: Option<u32>,
}

impl Faults {
    /// `tagged`: what only tags can tell apart is included.
    pub(super) fn of(random: &mut Random, tagged: bool) -> Faults {
        let mut some = |most| if random_up_to(random, 1) == 0 { 0 } else { random_up_to(random, most) };
        Faults {
            closes: some(40),
            announces: some(40),
            resets: some(40),
            stalls: some(6),
            half_closes: some(30),
            breaks_off: some(30),
            corrupts: some(30),
            swaps: if tagged { some(60) } else { 0 },
            repeats: if tagged { some(60) } else { 0 },
            refuses: some(200),
            too_large: some(10),
            slow_us: some(20_000),
            closes_after: Some(some(40) as u32).filter(|n| *n > 0),
        }
    }
}

#[derive(Debug, Default)]
struct Connection {
    received: Vec<u8>,
    /// Until when earlier responses are in flight: later ones follow them.
    busy_until: Time,
    answered: u32,
    /// A response that waits to be swapped with the next.
    held: Option<Vec<u8>>,
    /// Nothing more is sent.
    silent: bool,
}

pub(super) struct Server {
    random: Random,
    faults: Faults,
    arrivals: Arrivals,
    connections: HashMap<PeerConn, Connection>,
    /// From this time on it does nothing wrong.
    well_from: Time,
}

impl Server {
    pub(super) fn new(random: Random, faults: Faults, arrivals: &Arrivals, well_from: Time) -> Server {
        let arrivals = Arc::clone(arrivals);
        Server { random, faults, arrivals, connections: HashMap::new(), well_from }
    }

    fn happens(&mut self, per_thousand: u64) -> bool {
        random_up_to(&mut self.random, 999) < per_thousand
    }

    fn answer(&mut self, now: Time, conn: PeerConn, request: &Parsed, out: &mut Acts) {
        let number = request.number;
        let mut arrivals = self.arrivals.lock().unwrap();
        arrivals.entry(number).or_insert((request.method.clone(), 0)).1 += 1;
        drop(arrivals);
        let faults = if now >= self.well_from { Faults::default() } else { self.faults };
        let delay = Duration::from_micros(random_up_to(&mut self.random, faults.slow_us));
        let mut connection = self.connections.remove(&conn).unwrap_or_default();
        let at = connection.busy_until.max(now + delay);
        connection.busy_until = at;
        connection.answered += 1;
        self.say(at - now, (conn, &mut connection), request, faults, out);
        self.connections.insert(conn, connection);
    }

    fn say(
        &mut self,
        after: Duration,
        (conn, connection): (PeerConn, &mut Connection),
        request: &Parsed,
        faults: Faults,
        out: &mut Acts,
    ) {
        let whole = self.response(request, "");
        if faults.closes_after.is_some_and(|n| connection.answered >= n) {
            out.send_after(after, conn, whole);
            out.close_after(after, conn);
            connection.silent = true;
            return;
        }
        let dice = random_up_to(&mut self.random, 999);
        let mut limit = 0;
        let mut is = |share: u64| {
            limit += share;
            dice < limit
        };
        let half = whole.len() / 2;
        connection.silent = true;
        if is(faults.closes) {
            out.close_after(after, conn);
        } else if is(faults.announces) {
            out.send_after(after, conn, self.response(request, "Connection: close\r\n"));
            out.close_after(after, conn);
        } else if is(faults.resets) {
            out.reset_after(after, conn);
        } else if is(faults.stalls) {
            // Nothing more ever comes, and the connection stays open.
        } else if is(faults.half_closes) {
            out.send_after(after, conn, whole);
            out.end_after(after, conn);
        } else if is(faults.breaks_off) {
            out.send_after(after, conn, &whole[..half]);
            out.close_after(after, conn);
        } else if is(faults.corrupts) {
            out.send_after(after, conn, corrupted(&mut self.random, whole));
        } else if request.method != "HEAD" && is(faults.too_large) {
            let head = format!("HTTP/1.1 200 OK\r\n{TAG}: {}\r\nContent-Length: 300000\r\n\r\n", request.tag);
            out.send_after(after, conn, [head.as_bytes(), &vec![b'.'; 300_000]].concat());
            connection.silent = false;
        } else {
            connection.silent = false;
            let swaps = is(faults.swaps);
            self.say_well(after, (conn, connection), (whole, swaps), faults, out);
        }
    }

    fn say_well(
        &mut self,
        after: Duration,
        (conn, connection): (PeerConn, &mut Connection),
        (whole, swaps): (Vec<u8>, bool),
        faults: Faults,
        out: &mut Acts,
    ) {
        if let Some(earlier) = connection.held.take() {
            out.send_after(after, conn, whole);
            out.send_after(after, conn, earlier);
        } else if swaps {
            connection.held = Some(whole);
        } else {
            if self.happens(faults.repeats) {
                out.send_after(after, conn, whole.clone());
            }
            out.send_after(after, conn, whole);
        }
    }

    /// In one of the framings.
    fn response(&mut self, request: &Parsed, more: &str) -> Vec<u8> {
        let body = body_of(request.number);
        let number = request.number;
        let interim = if self.happens(20) { "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" } else { "" };
        let head =
            format!("{interim}HTTP/1.1 200 OK\r\n{TAG}: {}\r\nX-Number: {number}\r\n{more}", request.tag);
        if request.method == "HEAD" {
            return format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        }
        if self.happens(700) {
            return [format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat();
        }
        let mut bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for piece in body.chunks(1 + random_up_to(&mut self.random, 9_000) as usize) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }
}

/// In a way that HTTP can notice.
fn corrupted(random: &mut Random, mut whole: Vec<u8>) -> Vec<u8> {
    match random_up_to(random, 3) {
        0 => whole[..9].copy_from_slice(b"HTTQ/1.1 "),
        1 => whole[9..12].copy_from_slice(b"2x0"),
        2 => whole.splice(0..0, b"\0\0\0".iter().copied()).for_each(drop),
        _ => {
            let head = String::from_utf8_lossy(&whole).replacen("X-Number: ", "X Number\u{1}", 1);
            whole = head.into_bytes();
        }
    }
    whole
}

/// Of a thousand attempts to connect, `refuses` are refused, ignored or delayed.
pub(super) fn accept(random: &mut Random, refuses: u64) -> Accept {
    match random_up_to(random, 999) {
        n if n < refuses / 2 => Accept::Refuse,
        n if n < refuses / 2 + refuses / 20 => Accept::Ignore,
        n if n < refuses => Accept::After(Duration::from_millis(n)),
        _ => Accept::Now,
    }
}

/// A request as the server reads it.
struct Parsed {
    method: String,
    number: u64,
    tag: String,
}

/// The first whole request of the bytes, which it leaves.
fn parse(bytes: &mut Vec<u8>) -> Option<Parsed> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let len: usize = field("content-length").map_or(0, |n| n.parse().unwrap());
    if bytes.len() < end + len {
        return None;
    }
    let mut words = head.split(' ');
    let method = words.next().unwrap().to_owned();
    let number = words.next().unwrap().trim_start_matches('/').parse().unwrap();
    assert_eq!(field("host").as_deref(), Some("server"), "{head}");
    let body = &bytes[end..end + len];
    assert!(body.iter().all(|b| *b == b'b'), "the body of {number} is not its own");
    bytes.drain(..end + len);
    Some(Parsed { method, number, tag: field(TAG).unwrap_or_default() })
}

impl Hostile for Server {
    fn accept(&mut self, now: Time) -> Accept {
        let refuses = if now >= self.well_from { 0 } else { self.faults.refuses };
        accept(&mut self.random, refuses)
    }

    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut Acts) {
        self.connections.entry(conn).or_default().received.extend_from_slice(bytes);
        loop {
            let connection = self.connections.entry(conn).or_default();
            if connection.silent {
                return;
            }
            let Some(request) = parse(&mut connection.received) else { return };
            self.answer(now, conn, &request, out);
        }
    }

    fn gone(&mut self, conn: PeerConn) {
        self.connections.remove(&conn);
    }
}
