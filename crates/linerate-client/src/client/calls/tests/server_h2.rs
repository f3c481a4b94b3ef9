//! A server that does anything over HTTP/2 that a server may do wrong, by seed: beside what `server` does, it refuses
//! and resets streams, goes away, starves uploads, and breaks the rules on one stream or on the connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use linerate_base::Random;
use linerate_http::h2::{Code, Decoder, FRAME_HEAD, FrameHead, PREFACE, field, flag, kind};
use linerate_net::Time;
use linerate_net::mem::{Accept, PeerConn};

use super::random_up_to;
use super::server::{Arrivals, Faults, TAG, accept, body_of};
use super::wire::{Acts, Hostile};

/// The window of each side before any SETTINGS or WINDOW_UPDATE (RFC 9113 section 6.9.2).
const FIRST_WINDOW: i64 = 65_535;

/// Per thousand of the requests, what only streams can meet with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamFaults {
    all: Faults,
    refuses: u64,
    goes_away: u64,
    resets: u64,
    stalls: u64,
    malformed: u64,
    early: u64,
    starves: u64,
}

impl StreamFaults {
    pub(super) fn of(random: &mut Random, tagged: bool) -> StreamFaults {
        // On a stream of its own an earlier response cannot pass for the next: repeats need no tag.
        let mut all = Faults::of(random, tagged);
        let mut some = |most| if random_up_to(random, 1) == 0 { 0 } else { random_up_to(random, most) };
        all.repeats = some(60);
        StreamFaults {
            all,
            refuses: some(60),
            goes_away: some(20),
            resets: some(40),
            stalls: some(6),
            malformed: some(40),
            early: some(300),
            starves: some(10),
        }
    }
}

/// A request as the server reads it.
#[derive(Clone, Debug, Default)]
struct Asked {
    method: String,
    number: u64,
    tag: String,
    length: Option<usize>,
    came: usize,
    /// It got its response before it was whole.
    is_answered: bool,
    /// Bytes that the client may send of its body.
    window: i64,
}

#[derive(Default)]
struct Side {
    received: Vec<u8>,
    decoder: Decoder,
    begun: bool,
    /// The last stream that was opened.
    last: u32,
    /// Streams above it are not processed.
    away: Option<u32>,
    /// Streams at once, and the client knows it.
    most: u32,
    acknowledged: bool,
    /// The largest first window of a stream that was announced.
    initial: i64,
    /// Bytes that the client may send on all streams.
    window: i64,
    /// Streams on which something is expected: of the client, or of the server.
    open: BTreeMap<u32, Asked>,
    /// A request whose response is swapped with the next.
    held: Option<(u32, Asked)>,
    answered: u32,
    /// Nothing more is sent.
    silent: bool,
}

/// The fault that a request meets on its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnStream {
    Stalls,
    Resets,
    Malformed,
    TooLarge,
    Swaps,
    Repeats,
    Well,
}

pub(super) struct StreamServer {
    random: Random,
    faults: StreamFaults,
    arrivals: Arrivals,
    sides: HashMap<PeerConn, Side>,
    well_from: Time,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.bytes(), payload].concat()
}

pub(super) fn reset(stream: u32, code: Code) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes())
}

fn go_away(last: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

fn grant(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A field block in as many frames as it takes.
pub(super) fn in_frames(stream: u32, ends: u8, block: &[u8]) -> Vec<u8> {
    let mut frames = block.chunks(16_384).peekable();
    let (mut all, mut kind, mut flags) = (Vec::new(), kind::HEADERS, ends);
    while let Some(piece) = frames.next() {
        let last = if frames.peek().is_none() { flag::END_HEADERS } else { 0 };
        all.extend(frame(kind, flags | last, stream, piece));
        (kind, flags) = (kind::CONTINUATION, 0);
    }
    all
}

fn settings(most: u32, window: u32) -> Vec<u8> {
    let of = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(kind::SETTINGS, 0, 0, &[of(3, most), of(4, window)].concat())
}

impl StreamServer {
    pub(super) fn new(
        random: Random,
        faults: StreamFaults,
        arrivals: &Arrivals,
        well_from: Time,
    ) -> StreamServer {
        StreamServer { random, faults, arrivals: Arc::clone(arrivals), sides: HashMap::new(), well_from }
    }

    fn happens(&mut self, per_thousand: u64) -> bool {
        random_up_to(&mut self.random, 999) < per_thousand
    }

    fn faults(&self, now: Time) -> StreamFaults {
        if now >= self.well_from { StreamFaults::default() } else { self.faults }
    }

    fn delay(&mut self, now: Time) -> Duration {
        let most = self.faults(now).all.slow_us;
        Duration::from_micros(random_up_to(&mut self.random, most))
    }

    fn headers(&mut self, now: Time, conn: PeerConn, head: FrameHead, block: &[u8], out: &mut Acts) {
        let faults = self.faults(now);
        let refused = self.happens(faults.refuses);
        let goes = self.happens(faults.goes_away);
        let Some(side) = self.sides.get_mut(&conn) else { return };
        assert!(head.stream > side.last && head.stream % 2 == 1, "stream {} again", head.stream);
        assert!(head.has(flag::END_HEADERS), "a small block in one frame");
        let before = std::mem::replace(&mut side.last, head.stream);
        let asked = asked(&mut side.decoder, block, side.initial);
        if side.away.is_some_and(|last| head.stream > last) || side.silent {
            return;
        }
        let most = if side.acknowledged { side.most } else { side.most.max(100) };
        assert!((side.open.len() as u32) < most, "{} streams of {most}", side.open.len() + 1);
        if refused {
            return out.send_after(Duration::ZERO, conn, reset(head.stream, Code::REFUSED_STREAM));
        }
        if goes {
            // It processes what came before this one, and says so in one step or in two.
            side.away = Some(before);
            if random_up_to(&mut self.random, 1) == 0 {
                out.send_after(Duration::ZERO, conn, go_away((1 << 31) - 1));
            }
            out.send_after(Duration::ZERO, conn, go_away(before));
            return out.close_after(Duration::from_millis(random_up_to(&mut self.random, 40)), conn);
        }
        let mut arrivals = self.arrivals.lock().unwrap();
        arrivals.entry(asked.number).or_insert((asked.method.clone(), 0)).1 += 1;
        drop(arrivals);
        side.open.insert(head.stream, asked);
        if head.has(flag::END_STREAM) {
            return self.whole(now, conn, head.stream, out);
        }
        if !self.happens(faults.starves) {
            self.grant(conn, head.stream, 40_000, out);
        }
        if self.happens(faults.early) {
            self.answer_early(now, conn, head.stream, out);
        }
    }

    fn grant(&mut self, conn: PeerConn, stream: u32, bytes: u32, out: &mut Acts) {
        let Some(side) = self.sides.get_mut(&conn) else { return };
        match side.open.get_mut(&stream) {
            _ if stream == 0 => side.window += i64::from(bytes),
            Some(asked) => asked.window += i64::from(bytes),
            None => return,
        }
        out.send_after(Duration::ZERO, conn, grant(stream, bytes));
    }

    fn data(&mut self, now: Time, conn: PeerConn, head: FrameHead, body: &[u8], out: &mut Acts) {
        let Some(side) = self.sides.get_mut(&conn) else { return };
        side.window -= i64::from(head.len);
        assert!(side.window >= 0, "the client heeds the connection's window");
        if let Some(asked) = side.open.get_mut(&head.stream) {
            asked.window -= i64::from(head.len);
            asked.came += body.len();
            assert!(asked.window >= 0, "the client heeds the window of stream {}", head.stream);
            assert!(body.iter().all(|b| *b == b'b'), "the body of {} is not its own", asked.number);
        }
        if !side.silent && head.len > 0 {
            self.grant(conn, 0, head.len, out);
        }
        if head.has(flag::END_STREAM) {
            self.whole(now, conn, head.stream, out);
        }
    }

    /// A whole request has come.
    fn whole(&mut self, now: Time, conn: PeerConn, stream: u32, out: &mut Acts) {
        let Some(side) = self.sides.get_mut(&conn) else { return };
        let Some(asked) = side.open.get(&stream) else { return };
        assert!(asked.length.is_none_or(|length| length == asked.came), "the body of {}", asked.number);
        if asked.is_answered {
            side.open.remove(&stream);
        } else if !side.silent {
            self.answer(now, conn, stream, out);
        }
    }

    /// RFC 9113 section 8.1: a response may come before its request is whole, which is then not needed.
    fn answer_early(&mut self, now: Time, conn: PeerConn, stream: u32, out: &mut Acts) {
        let after = self.delay(now);
        let asks_to_stop = self.happens(500);
        let Some(side) = self.sides.get_mut(&conn) else { return };
        let Some(asked) = side.open.get_mut(&stream) else { return };
        asked.is_answered = true;
        let asked = asked.clone();
        self.respond(after, conn, stream, &asked, out);
        if asks_to_stop {
            out.send_after(after + Duration::from_millis(5), conn, reset(stream, Code::NO_ERROR));
        }
    }

    fn answer(&mut self, now: Time, conn: PeerConn, stream: u32, out: &mut Acts) {
        let (faults, after) = (self.faults(now), self.delay(now));
        let Some(side) = self.sides.get_mut(&conn) else { return };
        side.answered += 1;
        let (answered, last) = (side.answered, side.last);
        let Some(asked) = side.open.remove(&stream) else { return };
        let all = faults.all;
        let dice = random_up_to(&mut self.random, 999);
        let mut limit = 0;
        let mut is = |share: u64| {
            limit += share;
            dice < limit
        };
        let mut silent = true;
        if all.closes_after.is_some_and(|n| answered >= n) || is(all.announces) {
            out.send_after(after, conn, go_away(last));
            self.respond(after, conn, stream, &asked, out);
            out.close_after(after + Duration::from_millis(3), conn);
        } else if is(all.closes) {
            out.close_after(after, conn);
        } else if is(all.resets) {
            out.reset_after(after, conn);
        } else if is(all.stalls) {
            // Nothing more ever comes, and the connection stays open.
        } else if is(all.half_closes) {
            self.respond(after, conn, stream, &asked, out);
            out.end_after(after + Duration::from_millis(3), conn);
        } else if is(all.breaks_off) {
            let (mut whole, body) = (self.head(stream, &asked, &[]), body_of(asked.number));
            whole.extend(frame(kind::DATA, 0, stream, &body[..body.len().min(9_000)]));
            let at = random_up_to(&mut self.random, whole.len() as u64 - 1) as usize;
            out.send_after(after, conn, &whole[..at]);
            out.close_after(after, conn);
        } else if is(all.corrupts) {
            let nonsense = self.nonsense(stream, last);
            out.send_after(after, conn, nonsense);
        } else {
            silent = false;
            let what = match () {
                () if is(faults.stalls) => OnStream::Stalls,
                () if is(faults.resets) => OnStream::Resets,
                () if is(faults.malformed) => OnStream::Malformed,
                () if is(all.too_large) => OnStream::TooLarge,
                () if is(all.swaps) => OnStream::Swaps,
                () if is(all.repeats) => OnStream::Repeats,
                () => OnStream::Well,
            };
            self.answer_stream(after, (conn, stream), asked, what, out);
        }
        if let Some(side) = self.sides.get_mut(&conn) {
            side.silent |= silent;
        }
    }

    /// Faults of one stream.
    fn answer_stream(
        &mut self,
        after: Duration,
        (conn, stream): (PeerConn, u32),
        asked: Asked,
        what: OnStream,
        out: &mut Acts,
    ) {
        match what {
            OnStream::Stalls => {
                let Some(side) = self.sides.get_mut(&conn) else { return };
                side.open.insert(stream, asked);
            }
            OnStream::Resets => {
                let codes = [Code::INTERNAL_ERROR, Code::CANCEL, Code(77)];
                let code = codes[random_up_to(&mut self.random, 2) as usize];
                if self.happens(500) {
                    let head = self.head(stream, &asked, &[]);
                    out.send_after(after, conn, head);
                }
                out.send_after(after, conn, reset(stream, code));
            }
            OnStream::Malformed => {
                let malformed = self.malformed(stream, &asked);
                out.send_after(after, conn, malformed);
            }
            OnStream::TooLarge if asked.method != "HEAD" => {
                let head = self.head(stream, &asked, &[]);
                out.send_after(after, conn, head);
                for piece in 0..20 {
                    let last = if piece == 19 { flag::END_STREAM } else { 0 };
                    out.send_after(after, conn, frame(kind::DATA, last, stream, &[b'.'; 15_000]));
                }
            }
            _ => {
                let Some(side) = self.sides.get_mut(&conn) else { return };
                match side.held.take() {
                    // HEAD's response has another end.
                    Some((other, held)) if held.method != "HEAD" && asked.method != "HEAD" => {
                        self.respond(after, conn, other, &asked, out);
                        self.respond(after, conn, stream, &held, out);
                        return;
                    }
                    Some((other, held)) => self.respond(after, conn, other, &held, out),
                    None if what == OnStream::Swaps => return side.held = Some((stream, asked)),
                    None => {}
                }
                self.respond(after, conn, stream, &asked, out);
                if what == OnStream::Repeats {
                    self.respond(after, conn, stream, &asked, out);
                }
            }
        }
    }

    /// The head of the response to a request, in one or two frames; `more` are fields behind the others.
    fn head(&mut self, stream: u32, asked: &Asked, more: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        field(b":status", b"200", &mut block);
        self.fields(&mut block, asked);
        more.iter().for_each(|(name, value)| field(name, value, &mut block));
        let ends = if asked.method == "HEAD" { flag::END_STREAM } else { 0 };
        self.in_frames(stream, ends, &block)
    }

    fn fields(&mut self, block: &mut Vec<u8>, asked: &Asked) {
        field(TAG.as_bytes(), asked.tag.as_bytes(), block);
        field(b"x-number", asked.number.to_string().as_bytes(), block);
    }

    fn in_frames(&mut self, stream: u32, ends: u8, block: &[u8]) -> Vec<u8> {
        if self.happens(900) {
            return frame(kind::HEADERS, ends | flag::END_HEADERS, stream, block);
        }
        let at = random_up_to(&mut self.random, block.len() as u64) as usize;
        let first = [&[3, 0, 0, 0, 0, 7], &block[..at], &[0; 3]].concat();
        let first = frame(kind::HEADERS, ends | flag::PADDED | flag::PRIORITY, stream, &first);
        [first, frame(kind::CONTINUATION, flag::END_HEADERS, stream, &block[at..])].concat()
    }

    fn respond(&mut self, after: Duration, conn: PeerConn, stream: u32, asked: &Asked, out: &mut Acts) {
        let body = if asked.method == "HEAD" { Vec::new() } else { body_of(asked.number) };
        let length = body_of(asked.number).len().to_string();
        if self.happens(20) {
            let mut hints = Vec::new();
            field(b":status", b"103", &mut hints);
            field(b"link", b"</x>", &mut hints);
            out.send_after(after, conn, frame(kind::HEADERS, flag::END_HEADERS, stream, &hints));
            out.send_after(after, conn, frame(kind::PING, 0, 0, &[0; 8]));
        }
        let announced = [(&b"content-length"[..], length.as_bytes())];
        let announced = if self.happens(700) { &announced[..] } else { &[] };
        let head = self.head(stream, asked, announced);
        out.send_after(after, conn, head);
        if asked.method == "HEAD" {
            return;
        }
        // Its pieces may come one by one, between those of others.
        let step =
            Duration::from_micros(random_up_to(&mut self.random, 1) * random_up_to(&mut self.random, 900));
        let mut at = after;
        for piece in body.chunks(1 + random_up_to(&mut self.random, 9_000) as usize) {
            let padded = self.happens(100);
            out.send_after(
                at,
                conn,
                match padded {
                    true => frame(kind::DATA, flag::PADDED, stream, &[&[2], piece, &[0; 2]].concat()),
                    false => frame(kind::DATA, 0, stream, piece),
                },
            );
            at += step;
        }
        let ends = flag::END_STREAM;
        if self.happens(100) {
            let mut trailers = Vec::new();
            field(b"x-end", b"1", &mut trailers);
            return out.send_after(
                at,
                conn,
                frame(kind::HEADERS, ends | flag::END_HEADERS, stream, &trailers),
            );
        }
        out.send_after(at, conn, frame(kind::DATA, ends, stream, b""));
    }

    /// A response that breaks the rules on its stream alone (RFC 9113 section 8.1.1), or whose head is too long.
    fn malformed(&mut self, stream: u32, asked: &Asked) -> Vec<u8> {
        let mut block = Vec::new();
        let which = random_up_to(&mut self.random, 6);
        if which == 0 {
            // No status.
            self.fields(&mut block, asked);
            return self.in_frames(stream, flag::END_STREAM, &block);
        }
        field(b":status", b"200", &mut block);
        self.fields(&mut block, asked);
        match which {
            1 => field(b"X-Upper", b"1", &mut block),
            2 => field(b":status", b"200", &mut block),
            3 => field(b"connection", b"close", &mut block),
            4 => field(b":path", b"/", &mut block),
            5 => {
                field(b"x-long", &[b'~'; 70_000], &mut block);
                return in_frames(stream, flag::END_STREAM, &block);
            }
            _ => {
                field(b"content-length", b"7", &mut block);
                let head = frame(kind::HEADERS, flag::END_HEADERS, stream, &block);
                return [head, frame(kind::DATA, flag::END_STREAM, stream, b"12345678")].concat();
            }
        }
        self.in_frames(stream, flag::END_STREAM, &block)
    }

    /// Faults that end a connection (RFC 9113 section 5.4.1).
    fn nonsense(&mut self, stream: u32, last: u32) -> Vec<u8> {
        match random_up_to(&mut self.random, 11) {
            0 => frame(kind::DATA, 0, stream, &[0; 20_000]),
            1 => frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x80"),
            2 => frame(kind::DATA, 0, 0, b"x"),
            3 => frame(kind::HEADERS, flag::END_HEADERS, stream + 1, b"\x88"),
            4 => frame(kind::SETTINGS, 0, 0, &[0; 5]),
            5 => grant(0, 0),
            6 => frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, &[0, 0, 0, 2, 0x82]),
            7 => frame(kind::CONTINUATION, flag::END_HEADERS, stream, b"\x88"),
            8 => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            9 => frame(kind::DATA, flag::PADDED, stream, &[9, 0]),
            10 => [go_away(last), go_away(last + 2)].concat(),
            _ => reset(stream + 10_000, Code::CANCEL),
        }
    }

    fn next_frame(side: &mut Side) -> Option<(FrameHead, Vec<u8>)> {
        if !side.begun {
            if side.received.len() < PREFACE.len() {
                return None;
            }
            assert_eq!(side.received.drain(..PREFACE.len()).collect::<Vec<_>>(), PREFACE);
            side.begun = true;
        }
        let head = FrameHead::read(side.received.first_chunk::<FRAME_HEAD>()?);
        let end = FRAME_HEAD + head.len as usize;
        let payload = side.received.get(FRAME_HEAD..end)?.to_vec();
        side.received.drain(..end);
        Some((head, payload))
    }

    fn handle(&mut self, now: Time, conn: PeerConn, (head, payload): (FrameHead, Vec<u8>), out: &mut Acts) {
        match head.kind {
            kind::HEADERS => self.headers(now, conn, head, &payload, out),
            kind::DATA => self.data(now, conn, head, &payload, out),
            kind::SETTINGS if head.has(flag::ACK) => {
                if let Some(side) = self.sides.get_mut(&conn) {
                    side.acknowledged = true;
                }
            }
            kind::SETTINGS => out.send_after(Duration::ZERO, conn, frame(kind::SETTINGS, flag::ACK, 0, b"")),
            kind::RST_STREAM => {
                let Some(side) = self.sides.get_mut(&conn) else { return };
                side.open.remove(&head.stream);
                if side.held.as_ref().is_some_and(|(held, _)| *held == head.stream) {
                    side.held = None;
                }
            }
            kind::WINDOW_UPDATE | kind::PING | kind::GOAWAY => {}
            other => panic!("a client sends no frame of kind {other}"),
        }
    }
}

/// Reads a request's block.
fn asked(decoder: &mut Decoder, block: &[u8], window: i64) -> Asked {
    let mut asked = Asked { window, ..Asked::default() };
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    decoder
        .decode(block, 1 << 16, |name, value| match name {
            b":method" => asked.method = text(value),
            b":path" => asked.number = text(value).trim_start_matches('/').parse().unwrap(),
            b":authority" => assert_eq!(value, b"server"),
            b"content-length" => asked.length = Some(text(value).parse().unwrap()),
            _ if name == TAG.as_bytes() => asked.tag = text(value),
            _ => {}
        })
        .unwrap();
    asked
}

impl Hostile for StreamServer {
    fn accept(&mut self, now: Time) -> Accept {
        let refuses = self.faults(now).all.refuses;
        accept(&mut self.random, refuses)
    }

    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut Acts) {
        let most = 1 + random_up_to(&mut self.random, 40) as u32;
        let window = [0, 300, 5_000, 65_535, 1 << 20][random_up_to(&mut self.random, 4) as usize];
        let side =
            Side { most, initial: FIRST_WINDOW.max(window.into()), window: FIRST_WINDOW, ..Side::default() };
        self.sides.insert(conn, side);
        out.send_after(Duration::ZERO, conn, settings(most, window));
    }

    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut Acts) {
        let Some(side) = self.sides.get_mut(&conn) else { return };
        side.received.extend_from_slice(bytes);
        while let Some(frame) = self.sides.get_mut(&conn).and_then(StreamServer::next_frame) {
            self.handle(now, conn, frame, out);
        }
    }

    fn gone(&mut self, conn: PeerConn) {
        self.sides.remove(&conn);
    }
}
