//! The bare server: responds at once, has no features, and counts. It must never be the limit of a
//! measurement.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::RawFd;
use std::time::{Duration, SystemTime};

use crate::requests::{AfterRequest, Matcher, Partial};
use crate::sys;
use crate::waiting::DelayedResponses;

/// Bytes per read, at most. A pipelining client's whole window fits.
const READ: usize = 256 << 10;

/// Bytes of prepared responses per write, at most: as many responses as one read has requests.
const WRITE: usize = 512 << 10;

/// The text that bodies repeat.
const TEXT: &[u8] = b"Hello, World!\n";

/// Larger bodies repeat one block of this size (a whole number of texts).
const BLOCK: usize = 9_000 * TEXT.len();

/// Bodies from this size on, up to a block, are sent as pages instead of copied: half the cost at
/// 32 kB. (At 1 MB the pages cost the receiver three times as much, so those are copied again.)
const COPY_BELOW: usize = 4 << 10;

/// Connections accepted before open ones get their turn.
const ACCEPTS: usize = 64;

/// How often the server notes how many requests it had, and how many notes it keeps.
const TICK_US: u64 = 50_000;
const TICKS: usize = 20_000;

/// Longest wait, after which the loop checks whether it should stop.
const WAIT: Duration = Duration::from_millis(100);

/// Delayed responses sent in one turn. New requests must be read soon, because their delay begins
/// then.
const ANSWERS: usize = 16;

const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct RawServerOptions {
    /// The listening address; port 0 picks one.
    pub listen: SocketAddrV4,
    /// The fields and the body of each response.
    pub content: RawContent,
    /// Closes a connection after this many responses, as nginx does (`keepalive_requests`).
    pub close_after: Option<u64>,
    /// Stalls for the first time, once in each of the second (counted from the first request).
    pub stall: Option<(Duration, Duration)>,
    /// Delays each response by this time.
    pub wait: Option<Duration>,
    /// The core it runs on.
    pub core: Option<usize>,
    /// Polls for events without ever sleeping: the client then never pays for a wakeup.
    pub spin: bool,
    /// Stops when standard input ends, and so with the process that started it.
    pub until_stdin_ends: bool,
}

/// What is the same in all responses.
#[derive(Clone, Debug)]
pub struct RawContent {
    /// Header fields, each with its line end.
    fields: String,
    /// The text that the body repeats.
    text: Vec<u8>,
    /// Bytes of the body.
    body: usize,
}

impl RawContent {
    /// A text of this many bytes.
    pub fn text(body: usize) -> RawContent {
        RawContent { fields: "Content-Type: text/plain\r\n".into(), text: TEXT.into(), body }
    }

    /// Header fields, an empty line and a body of at most 4,095 bytes.
    ///
    /// # Errors
    /// There is no empty line, or the body is too long.
    pub fn given(file: &str) -> io::Result<RawContent> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let (fields, body) =
            file.split_once("\n\n").ok_or_else(|| wrong("fields, an empty line and a body are needed"))?;
        if body.is_empty() || body.len() >= COPY_BELOW {
            return Err(wrong("the body must have 1 to 4,095 bytes"));
        }
        let fields = fields.lines().map(|line| format!("{line}\r\n")).collect();
        Ok(RawContent { fields, text: body.into(), body: body.len() })
    }
}

/// Counters of the server.
#[derive(Clone, Debug, Default)]
pub struct RawServerCounts {
    /// Complete requests received.
    pub requests: u64,
    /// Connections accepted.
    pub connections: u64,
    /// When the first and the last request arrived, microseconds of the monotonic clock.
    pub first_us: u64,
    /// See `first_us`.
    pub last_us: u64,
    /// Stalls: from, to.
    pub stalls: Vec<(u64, u64)>,
    /// How many requests had come when, microseconds of the same clock.
    pub ticks: Vec<(u64, u64)>,
}

/// The same response repeated, so that any number of responses is a few slices of memory.
struct RepeatedResponse {
    /// Bytes of one response.
    len: usize,
    /// Bytes of its head.
    head: usize,
    /// Many small responses; or the head of a large one, and a block that its body repeats, so that
    /// it stays in the cache.
    bytes: Vec<u8>,
    /// Bytes of the block; 0 if `bytes` holds whole responses.
    block: usize,
    /// The same bytes as a file in memory, for responses so large that copying them would be the
    /// limit.
    file: Option<RawFd>,
}

impl RepeatedResponse {
    fn new(connection: &str, content: &RawContent) -> io::Result<RepeatedResponse> {
        let RawContent { fields, text, body } = content;
        let body = *body;
        // What an origin server must send (RFC 9110 section 6.6.1) and every real one sends: no
        // leaner than real servers.
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\nServer: bare\r\nDate: {}\r\n{fields}Content-Length: {body}\r\n{connection}\r\n",
            httpdate::fmt_http_date(SystemTime::now())
        )
        .into_bytes();
        let (head, block) = (bytes.len(), if body > BLOCK { BLOCK } else { 0 });
        bytes.extend(text.iter().cycle().take(body.min(BLOCK)));
        let len = head + body;
        if block == 0 {
            bytes = bytes.repeat(WRITE / len + 1);
        }
        let file = if body >= COPY_BELOW && block == 0 { Some(sys::memory_file(&bytes)?) } else { None };
        Ok(RepeatedResponse { len, head, bytes, block, file })
    }

    /// Sends the bytes from offset `at` of a response, at most `left` bytes.
    fn send(&self, to: RawFd, at: usize, left: u64, more: bool) -> io::Result<usize> {
        let (from, end) = match self.block {
            0 => (at, self.bytes.len()),
            _ if at < self.head => (at, self.head),
            block => (self.head + (at - self.head) % block, self.bytes.len().min(self.head + block)),
        };
        let in_answer = if self.block > 0 { (self.len - at) as u64 } else { u64::MAX };
        let len = left.min(in_answer).min((end - from) as u64) as usize;
        // The head of a large response waits for its body.
        let more = more || (self.block > 0 && at < self.head);
        match self.file {
            Some(file) if !more => sys::send_file(to, file, from, len),
            _ => sys::send(to, &self.bytes[from..from + len], more),
        }
    }
}

impl Drop for RepeatedResponse {
    fn drop(&mut self) {
        // Pages in flight stay until they are received.
        self.file.into_iter().for_each(sys::close);
    }
}

struct RawResponses {
    keep: RepeatedResponse,
    keep_and_say: RepeatedResponse,
    close: RepeatedResponse,
    /// The second in which they were made, so that the Date is never older.
    second: u64,
}

impl RawResponses {
    fn new(content: &RawContent) -> io::Result<RawResponses> {
        Ok(RawResponses {
            keep: RepeatedResponse::new("", content)?,
            keep_and_say: RepeatedResponse::new("Connection: keep-alive\r\n", content)?,
            close: RepeatedResponse::new("Connection: close\r\n", content)?,
            second: sys::now_us() / 1_000_000,
        })
    }
}

/// Bytes still to be written to a connection: some responses of a row, and possibly the last one.
#[derive(Default)]
struct Owed {
    /// Bytes of the row.
    bytes: u64,
    /// Offset in a response of the row.
    at: usize,
    /// Bytes of the last response.
    last: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RawConnectionState {
    Open,
    /// The last response is due or being written.
    Ending,
    /// Everything is written. Further bytes from the peer are read and dropped, so that no reset
    /// destroys our responses.
    Draining,
}

struct RawServerConnection {
    fd: RawFd,
    state: RawConnectionState,
    say: bool,
    served: u64,
    partial: Partial,
    owed: Owed,
    /// Distinguishes the connections that have used this slot.
    serial: u64,
    /// Its responses are delayed; and whether more requests arrived meanwhile.
    waits: bool,
    more: bool,
}

enum ConnectionFate {
    Stay,
    Gone,
}

/// A running server.
pub struct RawServer {
    options: RawServerOptions,
    listener: RawFd,
    epoll: sys::RawEpoll,
    answers: RawResponses,
    matcher: Matcher,
    connections: Vec<Option<RawServerConnection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
    seen: RawServerCounts,
    next_stall_us: u64,
    waiting: Option<DelayedResponses>,
}

impl std::fmt::Debug for RawServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?}, {:?})", self.options, self.seen)
    }
}

impl RawServer {
    /// Binds; returns the server and the address it got.
    pub fn bind(options: RawServerOptions) -> io::Result<(RawServer, SocketAddrV4)> {
        if let Some(core) = options.core {
            sys::pin(core)?;
        }
        let (listener, at) = sys::listen(options.listen)?;
        let epoll = sys::RawEpoll::new()?;
        epoll.add(listener, libc::EPOLLIN, LISTENER)?;
        if options.until_stdin_ends {
            epoll.add(0, libc::EPOLLIN, STDIN)?;
        }
        let answers = RawResponses::new(&options.content)?;
        let server = RawServer {
            waiting: options.wait.map(DelayedResponses::new),
            options,
            listener,
            epoll,
            answers,
            matcher: Matcher::default(),
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; READ],
            seen: RawServerCounts::default(),
            next_stall_us: u64::MAX,
        };
        Ok((server, at))
    }

    /// Serves until a signal asks for the end.
    pub fn run(mut self) -> io::Result<RawServerCounts> {
        let mut ended = false;
        while !ended && !sys::asked_to_end() {
            let n = self.epoll.wait_for(self.patience())?;
            if let Some(waiting) = &mut self.waiting {
                waiting.look();
            }
            if n == 0 && self.next_stall_us == u64::MAX {
                self.answer_due();
                continue;
            }
            let now = sys::now_us();
            if now / 1_000_000 != self.answers.second {
                // Lengths do not change, so a partly sent response continues in the new one.
                self.answers = RawResponses::new(&self.options.content)?;
            }
            self.maybe_stall(now);
            let before = self.seen.requests;
            for i in 0..n {
                match self.epoll.event(i) {
                    (LISTENER, _) => self.accept(),
                    (STDIN, _) => ended = sys::stdin_ended(),
                    (token, _) => drop(self.serve(token as usize)),
                }
            }
            self.answer_due();
            if self.seen.requests > before {
                self.note_time(now);
            }
        }
        Ok(self.seen)
    }

    fn patience(&self) -> Duration {
        let most = match self.options.spin {
            true => Duration::ZERO,
            false if self.next_stall_us == u64::MAX => WAIT,
            false => WAIT.min(Duration::from_micros(self.next_stall_us.saturating_sub(sys::now_us()) + 1)),
        };
        self.waiting.as_ref().and_then(DelayedResponses::next_in).map_or(most, |due| due.min(most))
    }

    /// Sends the delayed responses that are due.
    fn answer_due(&mut self) {
        for _ in 0..ANSWERS {
            let Some((slot, serial)) = self.waiting.as_mut().and_then(DelayedResponses::due) else { return };
            let Some(mut c) = self.connections[slot].take_if(|c| c.serial == serial) else { continue };
            c.waits = false;
            let next = if c.more { self.turn(slot, &mut c) } else { self.flush(&mut c) };
            self.connections[slot] = Some(c);
            if matches!(next, ConnectionFate::Gone) {
                self.drop_connection(slot);
            }
        }
    }

    fn note_time(&mut self, now: u64) {
        if self.seen.first_us == 0 {
            self.seen.first_us = now;
            if let Some((lasts, every)) = self.options.stall {
                // In the middle of each period, so that a run of whole periods has whole stalls.
                self.next_stall_us = now + ((every - lasts) / 2).as_micros() as u64;
            }
        }
        self.seen.last_us = now;
        let ticks = &mut self.seen.ticks;
        if ticks.len() < TICKS && ticks.last().is_none_or(|(at, _)| now >= at + TICK_US) {
            ticks.push((now, self.seen.requests));
        }
    }

    fn maybe_stall(&mut self, now: u64) {
        let Some((lasts, every)) = self.options.stall.filter(|_| now >= self.next_stall_us) else { return };
        let end = self.next_stall_us + lasts.as_micros() as u64;
        std::thread::sleep(Duration::from_micros(end.saturating_sub(now)));
        self.seen.stalls.push((now, sys::now_us()));
        self.next_stall_us += every.as_micros() as u64;
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Ok(fd) = sys::accept(self.listener) else { return };
            self.seen.connections += 1;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.connections[slot] = Some(RawServerConnection {
                fd,
                state: RawConnectionState::Open,
                say: false,
                served: 0,
                partial: Partial::default(),
                owed: Owed::default(),
                serial: self.seen.connections,
                waits: false,
                more: false,
            });
            // The request has usually arrived already; a short connection then never needs epoll.
            if self.serve(slot) {
                let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
                if self.epoll.add(fd, events, slot as u64).is_err() {
                    self.drop_connection(slot);
                }
            }
        }
    }

    /// Reads and writes as much as possible; returns whether the connection still exists.
    fn serve(&mut self, slot: usize) -> bool {
        let Some(mut c) = self.connections[slot].take() else { return false };
        let next = self.turn(slot, &mut c);
        self.connections[slot] = Some(c);
        match next {
            ConnectionFate::Stay => true,
            ConnectionFate::Gone => {
                self.drop_connection(slot);
                false
            }
        }
    }

    fn drop_connection(&mut self, slot: usize) {
        if let Some(c) = self.connections[slot].take() {
            sys::close(c.fd);
            self.free.push(slot);
        }
    }

    fn turn(&mut self, slot: usize, c: &mut RawServerConnection) -> ConnectionFate {
        if c.waits {
            c.more = true;
            return ConnectionFate::Stay;
        }
        loop {
            if c.state != RawConnectionState::Draining && matches!(self.flush(c), ConnectionFate::Gone) {
                return ConnectionFate::Gone;
            }
            // A peer that does not read gets no more responses: its requests stay in the kernel.
            if c.owed.bytes > 0 || c.owed.last > 0 {
                return ConnectionFate::Stay;
            }
            let n = match sys::recv(c.fd, &mut self.buffer) {
                Ok(0) => return ConnectionFate::Gone,
                Ok(n) => n,
                Err(e) if sys::would_block(&e) => return ConnectionFate::Stay,
                Err(_) => return ConnectionFate::Gone,
            };
            if c.state == RawConnectionState::Open && !self.take(c, n) {
                return ConnectionFate::Gone;
            }
            if let Some(waiting) = &mut self.waiting
                && (c.owed.bytes > 0 || c.owed.last > 0)
            {
                waiting.push(slot, c.serial);
                (c.waits, c.more) = (true, n == self.buffer.len());
                return ConnectionFate::Stay;
            }
            if n < self.buffer.len() && c.state != RawConnectionState::Draining {
                return self.flush(c);
            }
        }
    }

    /// Counts what was read and schedules the responses; `false`: not a request.
    fn take(&mut self, c: &mut RawServerConnection, n: usize) -> bool {
        let Some(mut counted) = self.matcher.count(&mut c.partial, &self.buffer[..n]) else { return false };
        if counted.requests == 0 {
            return true;
        }
        if let Some(limit) = self.options.close_after
            && c.served + counted.requests >= limit
        {
            counted.requests = limit - c.served;
            counted.after = AfterRequest::Close;
        }
        self.seen.requests += counted.requests;
        c.served += counted.requests;
        c.say = counted.after == AfterRequest::KeepAndSay;
        let row = if c.say { &self.answers.keep_and_say } else { &self.answers.keep };
        let closing = counted.after == AfterRequest::Close;
        c.owed.bytes = (counted.requests - u64::from(closing)) * row.len as u64;
        if closing {
            c.owed.last = self.answers.close.len;
            c.state = RawConnectionState::Ending;
        }
        true
    }

    fn flush(&self, c: &mut RawServerConnection) -> ConnectionFate {
        let row = if c.say { &self.answers.keep_and_say } else { &self.answers.keep };
        while c.owed.bytes > 0 {
            match row.send(c.fd, c.owed.at, c.owed.bytes, c.owed.last > 0) {
                Ok(n) => {
                    c.owed.at = (c.owed.at + n) % row.len;
                    c.owed.bytes -= n as u64;
                }
                Err(e) if sys::would_block(&e) => return ConnectionFate::Stay,
                Err(_) => return ConnectionFate::Gone,
            }
        }
        while c.owed.last > 0 {
            let at = self.answers.close.len - c.owed.last;
            // Held back for the FIN that follows at once: one segment instead of two.
            match self.answers.close.send(c.fd, at, c.owed.last as u64, true) {
                Ok(n) => c.owed.last -= n,
                Err(e) if sys::would_block(&e) => return ConnectionFate::Stay,
                Err(_) => return ConnectionFate::Gone,
            }
        }
        if c.state == RawConnectionState::Ending {
            if self.options.close_after.is_none() {
                return ConnectionFate::Gone;
            }
            sys::shutdown_write(c.fd);
            c.state = RawConnectionState::Draining;
        }
        ConnectionFate::Stay
    }
}
