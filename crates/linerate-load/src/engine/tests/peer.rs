//! A scripted server in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::Time;
use linerate_net::mem::{Accept, Peer, PeerActions, PeerConn};

/// The server's record of the test, to compare with the load generator's figures.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<Counts>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: u64,
    pub(super) requests: u64,
    pub(super) answered: u64,
    pub(super) said_close: u64,
    pub(super) truncated: u64,
    /// Requests that came at once on each connection, before its first response.
    pub(super) bursts: Vec<usize>,
    pub(super) heads: Vec<String>,
}

impl Seen {
    pub(super) fn get(&self) -> Counts {
        self.0.lock().unwrap().clone()
    }
}

/// How the server behaves.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) seen: Seen,
    /// Time from a request to its response.
    pub(super) think: Duration,
    /// Closes after this many responses and ignores any further requests.
    pub(super) close_after: Option<u64>,
    /// Whether the last response says `Connection: close`.
    pub(super) says_close: bool,
    /// Sends no response between these times.
    pub(super) stall: Option<(Time, Time)>,
    /// Never sends a response.
    pub(super) silent: bool,
    pub(super) accept: Accept,
    /// One attempt to connect in this many is never answered.
    pub(super) ignore_every: Option<u64>,
    pub(super) attempts: u64,
    /// Between these times the port is closed, and connections are reset.
    pub(super) dead: Option<(Time, Time)>,
    /// In that time connections are accepted and closed at once, as by a balancer without a server.
    pub(super) accepts_dead: bool,
    /// Sent as soon as a connection is there.
    pub(super) banner: Vec<u8>,
    /// Sent again and again after the banner, without end.
    pub(super) endless: Vec<u8>,
    pub(super) status: &'static str,
    pub(super) body: String,
    /// Closes a connection this long after its last response.
    pub(super) idle: Option<Duration>,
    /// Echoes this field of the request.
    pub(super) echo: Option<String>,
    /// One response in this many breaks off.
    pub(super) truncate_every: Option<u64>,
    /// One request in this many gets no response.
    pub(super) swallow_every: Option<u64>,
    /// One response in this many is a 503.
    pub(super) fail_every: Option<u64>,
    /// Sends each response twice.
    pub(super) twice: bool,
    /// Sends pairs of responses in the wrong order.
    pub(super) swap: bool,
    /// Closes so long after its last response.
    pub(super) late_fin: Duration,
    /// Closes its first connection after one response, and no other.
    pub(super) close_first: bool,
    /// Says 408 before it closes an idle connection.
    pub(super) farewell: bool,
    /// Keeps heads of requests for the test to look at.
    pub(super) keep_heads: bool,
    pub(super) conns: HashMap<PeerConn, ConnState>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ConnState {
    carry: Vec<u8>,
    answers: u64,
    closed: bool,
    last: Time,
    held: Option<String>,
}

impl Script {
    pub(super) fn new() -> Script {
        Script {
            seen: Seen::default(),
            think: Duration::ZERO,
            close_after: None,
            says_close: false,
            stall: None,
            silent: false,
            accept: Accept::Now,
            ignore_every: None,
            attempts: 0,
            dead: None,
            accepts_dead: false,
            banner: Vec::new(),
            endless: Vec::new(),
            status: "200 OK",
            body: "hello".to_owned(),
            idle: None,
            echo: None,
            truncate_every: None,
            swallow_every: None,
            fail_every: None,
            twice: false,
            swap: false,
            late_fin: Duration::ZERO,
            close_first: false,
            farewell: false,
            keep_heads: false,
            conns: HashMap::new(),
        }
    }

    fn is_dead(&self, now: Time) -> bool {
        self.dead.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    fn request(&mut self, now: Time, conn: PeerConn, head: &str, out: &mut PeerActions) {
        let mut seen = self.seen.0.lock().unwrap();
        seen.requests += 1;
        if self.keep_heads {
            seen.heads.push(head.to_owned());
        }
        let asked_to_close = head.contains("Connection: close");
        seen.said_close += u64::from(asked_to_close);
        let is_due = |every: Option<u64>| every.is_some_and(|n| seen.requests.is_multiple_of(n));
        if self.silent || is_due(self.swallow_every) {
            return;
        }
        let status = if is_due(self.fail_every) { "503 Service Unavailable" } else { self.status };
        let cut = is_due(self.truncate_every);
        seen.answered += 1;
        seen.truncated += u64::from(cut);
        let first = self.close_first && seen.connections == 1 && seen.answered == 1;
        let state = self.conns.entry(conn).or_default();
        state.last = now;
        if let Some(idle) = self.idle {
            out.call_after(idle, conn);
        }
        state.answers += 1;
        let last = asked_to_close || cut || first || self.close_after.is_some_and(|n| state.answers >= n);
        let mut at = now + self.think;
        if let Some((from, to)) = self.stall
            && at >= from
            && at < to
        {
            at = to;
        }
        let wait = at - now;
        let mut answer = format!("HTTP/1.1 {}\r\nContent-Length: {}\r\n", status, self.body.len());
        if last && !cut && (self.says_close || asked_to_close) {
            answer.push_str("Connection: close\r\n");
        }
        if let Some(name) = &self.echo
            && let Some(line) = head.lines().find(|l| l.starts_with(name.as_str()))
        {
            answer.push_str(line);
            answer.push_str("\r\n");
        }
        answer.push_str("\r\n");
        if !head.starts_with("HEAD ") {
            answer.push_str(&self.body);
        }
        if cut {
            answer.truncate(answer.len() - 2);
        }
        if self.twice {
            answer = answer.repeat(2);
        }
        if self.swap {
            match state.held.take() {
                None => {
                    state.held = Some(answer);
                    return;
                }
                Some(before) => answer.push_str(&before),
            }
        }
        out.send_after(wait, conn, answer);
        if last {
            state.closed = true;
            out.close_after(wait + self.late_fin, conn);
        }
    }
}

impl Peer for Script {
    fn accept(&mut self, now: Time) -> Accept {
        self.attempts += 1;
        match () {
            () if self.is_dead(now) && !self.accepts_dead => Accept::Refuse,
            () if self.ignore_every.is_some_and(|n| self.attempts.is_multiple_of(n)) => Accept::Ignore,
            () => self.accept,
        }
    }

    fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        self.seen.0.lock().unwrap().connections += 1;
        if !self.banner.is_empty() {
            out.send(conn, self.banner.clone());
        }
        if !self.endless.is_empty() {
            out.call_after(Duration::from_millis(1), conn);
        }
        if self.close_after == Some(0) || self.is_dead(now) {
            out.close(conn);
        }
        if let Some((from, _)) = self.dead.filter(|(from, _)| now < *from) {
            out.reset_after(from - now, conn);
        }
    }

    fn called(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        if let Some(idle) = self.idle {
            let state = self.conns.entry(conn).or_default();
            if now - state.last >= idle && !state.closed {
                state.closed = true;
                if self.farewell {
                    let words =
                        "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                    out.send(conn, words);
                }
                out.close(conn);
            }
            return;
        }
        out.send(conn, self.endless.clone());
        out.call_after(Duration::from_millis(1), conn);
    }

    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let state = self.conns.entry(conn).or_default();
        if state.closed || self.close_after == Some(0) || !self.endless.is_empty() {
            return;
        }
        state.carry.extend_from_slice(bytes);
        if state.answers == 0 && state.held.is_none() {
            let heads = memchr::memmem::find_iter(&state.carry, b"\r\n\r\n").count();
            self.seen.0.lock().unwrap().bursts.push(heads);
        }
        loop {
            let state = self.conns.entry(conn).or_default();
            let Some(end) = memchr::memmem::find(&state.carry, b"\r\n\r\n").filter(|_| !state.closed) else {
                break;
            };
            let head: Vec<u8> = state.carry.drain(..end + 4).collect();
            self.request(now, conn, &String::from_utf8_lossy(&head), out);
        }
    }
}
