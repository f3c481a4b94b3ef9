//! A client of its own on the pool, against scripted servers in memory: which requests are answered, which go out
//! again, and how the others end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;

use linerate_http::client::{Expect, HeadCache, HeadView};
use linerate_net::mem::{Mem, Peer, PeerActions, PeerConn};
use linerate_net::{Close, ConnectOptions, Event, NetErrorKind};

use super::*;
use crate::conversation::{Alike, Fate, Out, Whole, Whose};
use crate::{H1, Stamp};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const BROKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok";
const SECOND: Duration = Duration::from_secs(1);

fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

/// How a server ends a connection.
#[derive(Clone, Copy)]
enum Ends {
    Closes,
    Resets,
    StaysSilent,
}

/// Says one thing on each connection when the first bytes come, and ends it.
struct Script(Mutex<VecDeque<(String, Ends)>>);

impl Peer for Script {
    fn received(&mut self, _: Time, conn: PeerConn, _: &[u8], out: &mut PeerActions) {
        let Some((says, ends)) = self.0.get_mut().unwrap().pop_front() else { return };
        out.send(conn, says);
        match ends {
            Ends::Closes => out.close(conn),
            // After what was said has come.
            Ends::Resets => out.reset_after(SECOND / 10, conn),
            Ends::StaysSilent => {}
        }
    }
}

/// Requests are numbers.
struct Numbers;

impl Requests for Numbers {
    fn write_h1(&mut self, run: &Run, closing: bool, out: &mut impl Out) -> Result<u64, NetError> {
        let last = if closing { "Connection: close\r\n" } else { "" };
        let bytes: String =
            (run.first..run.end()).map(|n| format!("GET /{n} HTTP/1.1\r\n{last}\r\n")).collect();
        out.send(bytes.as_bytes()).map(|()| bytes.len() as u64)
    }
}

/// Outcomes of requests, by their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    answered: Vec<Range<u64>>,
    settled: Vec<(Range<u64>, Settled)>,
    unsolicited: u64,
}

impl Responses for Heard {
    type Reading = ();

    fn wants_parts(&self) -> bool {
        false
    }

    fn received(&mut self, _: usize) {}

    fn head(&mut self, (): &mut (), _: u16, _: &HeadView<'_>) -> Whose {
        Whose::Matched
    }

    fn body(&mut self, (): &mut (), _: u16, _: &[u8]) {}

    fn answered(&mut self, run: &Run, _: u16, (): &mut (), _: &Whole) {
        self.answered.push(run.first..run.end());
    }

    fn alike(&mut self, run: &Run, _: &Alike<'_>) {
        self.answered.push(run.first..run.end());
    }

    fn unsolicited(&mut self, _: Time, _: &[u8], responses: u64) {
        self.unsolicited += responses;
    }
}

impl Settle for Heard {
    fn settled(&mut self, run: &Run, how: Settled, _: &str) {
        self.settled.push((run.first..run.end(), how));
    }
}

impl Heard {
    /// How many were answered, and the ends of the others.
    fn in_short(&self) -> (u64, &[(Range<u64>, Settled)]) {
        (self.answered.iter().map(|r| r.end - r.start).sum(), &self.settled)
    }
}

/// A client with one connection at a time.
struct Client {
    mem: Mem,
    pool: Pool<H1<()>, ()>,
    heard: Heard,
}

impl Client {
    fn new(resend: Resend, script: &[(&str, Ends)]) -> Client {
        let mut mem = Mem::default();
        let script = script.iter().map(|(says, ends)| ((*says).to_owned(), *ends)).collect();
        mem.serve(server(), Script(Mutex::new(script))).unwrap();
        let options =
            PoolOptions { connections: 1, depth: 10, per_connection: None, timeout: SECOND, resend };
        Client { mem, pool: Pool::new(options, HeadCache::new()), heard: Heard::default() }
    }

    fn open(&mut self) -> Conn {
        let conn = self.mem.connect(server(), &ConnectOptions::default()).unwrap();
        let now = self.mem.now();
        self.pool.add(conn, now);
        let mut events = Vec::new();
        while events.is_empty() {
            self.mem.turn(Some(now + SECOND), &mut events).unwrap();
        }
        assert!(matches!(events[..], [Event::Connected { .. }]), "{events:?}");
        assert_eq!(self.pool.established(conn, now), Some(now));
        conn
    }

    fn send(&mut self, conn: Conn, run: Run) {
        self.pool.begin(conn, run, &mut Numbers, &mut self.mem).unwrap();
    }

    /// New requests, of which none is in vain yet.
    fn send_new(&mut self, conn: Conn, numbers: Range<u64>, idempotent: bool) {
        let sent = self.mem.now();
        let stamp = Stamp { sent, due: sent, in_vain: 0, refused: 0, measured: true };
        let count = (numbers.end - numbers.start) as u32;
        self.send(
            conn,
            Run { stamp, first: numbers.start, count, kind: 0, expect: Expect::Usual, idempotent },
        );
    }

    /// Until nothing is in flight.
    fn hear_all(&mut self) {
        let mut events = Vec::new();
        while self.pool.in_flight() > 0 {
            self.mem.turn(None, &mut events).unwrap();
            for event in events.drain(..) {
                let Event::Readable { data, .. } = event else { continue };
                let now = self.mem.now();
                self.pool.receive(data, now, &mut self.mem, &mut self.heard);
            }
        }
    }

    /// Until the connection is lost, for the requests on it have waited too long at the latest.
    fn listen(&mut self, conn: Conn) {
        let mut events = Vec::new();
        let loss = loop {
            let now = self.mem.now();
            if self.pool.expire(conn.slot(), now, &mut self.heard) == Expired::Connection {
                break Loss::TimedOut;
            }
            self.mem.turn(Some(now + SECOND / 10), &mut events).unwrap();
            let now = self.mem.now();
            let next = events.drain(..).map(|event| match event {
                Event::Readable { data, .. } => {
                    self.pool.receive(data, now, &mut self.mem, &mut self.heard).next
                }
                Event::Failed { error, .. } => PoolAction::Lose(Loss::Net(error)),
                _ => PoolAction::Fill,
            });
            if let Some(loss) =
                next.filter_map(|next| if let PoolAction::Lose(l) = next { Some(l) } else { None }).next()
            {
                break loss;
            }
        };
        let mut connection = self.pool.remove(conn).unwrap();
        self.pool.settle(&mut connection, &loss, &loss.words(), self.mem.now(), &mut self.heard);
        self.mem.close(conn, Close::Now);
        assert_eq!(self.pool.in_flight(), 0);
    }

    /// Ten requests on one connection; then, on another, what has to go out again.
    fn ten(resend: Resend, idempotent: bool, script: &[(&str, Ends)]) -> (Client, Vec<u64>) {
        let mut client = Client::new(resend, script);
        let conn = client.open();
        client.send_new(conn, 0..10, idempotent);
        client.listen(conn);
        let mut again = Vec::new();
        while let Some(run) = client.pool.pop_again(u32::MAX) {
            again.extend(run.first..run.end());
        }
        (client, again)
    }
}

fn numbers(numbers: Range<u64>) -> Vec<u64> {
    numbers.collect()
}

fn failed(numbers: Range<u64>, why: Failure) -> (Range<u64>, Settled) {
    (numbers, Settled::Failed(why))
}

/// RFC 9112 section 8.
#[test]
fn a_response_that_breaks_off_has_failed_and_those_behind_it_go_out_again() {
    for ends in [Ends::Closes, Ends::Resets] {
        let says = OK.repeat(3) + BROKEN;
        let (client, again) = Client::ten(Resend::Idle, true, &[(&says, ends)]);
        assert_eq!(client.heard.in_short(), (3, &[failed(3..4, Failure::Truncated)][..]));
        assert_eq!(again, numbers(4..10));
        let (client, again) = Client::ten(Resend::Idle, false, &[(&says, ends)]);
        let settled = [failed(3..4, Failure::Truncated), (4..10, Settled::Unknown)];
        assert_eq!((client.heard.in_short(), again.len()), ((3, &settled[..]), 0));
    }
}

/// RFC 9112 section 9.6.
#[test]
fn behind_an_announced_close_nothing_was_processed_whatever_the_method() {
    let says = OK.repeat(3) + LAST;
    for idempotent in [true, false] {
        let (client, again) = Client::ten(Resend::Idle, idempotent, &[(&says, Ends::Closes)]);
        assert_eq!((client.heard.in_short(), again), ((4, &[][..]), numbers(4..10)));
    }
    // It was announced by the response that broke off.
    let says = OK.to_owned() + &LAST[..LAST.len() - 1];
    let (client, again) = Client::ten(Resend::Idle, false, &[(&says, Ends::Closes)]);
    assert_eq!(client.heard.in_short(), (1, &[failed(1..2, Failure::Truncated)][..]));
    assert_eq!(again, numbers(2..10));
    let (client, again) = Client::ten(Resend::Never, true, &[(&(OK.repeat(3) + LAST), Ends::Closes)]);
    assert_eq!(client.heard.in_short(), (4, &[failed(4..10, Failure::ClosedEarly)][..]));
    assert!(again.is_empty());
}

/// RFC 9112 section 9.3.1.
#[test]
fn idempotent_requests_go_out_again_where_the_server_had_answered() {
    for (ends, why) in [(Ends::Closes, Failure::ClosedEarly), (Ends::Resets, Failure::Reset)] {
        for (says, idempotent, again, settled) in [
            (OK, true, numbers(1..10), vec![]),
            (OK, false, vec![], vec![(1..10, Settled::Unknown)]),
            ("", true, vec![], vec![failed(0..10, why)]),
            ("", false, vec![], vec![(0..10, Settled::Unknown)]),
        ] {
            let (client, found) = Client::ten(Resend::Idle, idempotent, &[(says, ends)]);
            assert_eq!((found, &client.heard.settled), (again, &settled), "{says} {idempotent}");
        }
    }
}

/// RFC 9112 section 6.3: such a body ends with the connection.
#[test]
fn a_response_that_lasts_until_the_close_is_whole() {
    let says = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let (client, again) = Client::ten(Resend::Idle, true, &[(says, Ends::Closes)]);
    assert_eq!((client.heard.in_short(), again), ((1, &[][..]), numbers(1..10)));
    let (client, _) = Client::ten(Resend::Idle, true, &[(says, Ends::Resets)]);
    assert_eq!(client.heard.in_short(), (0, &[failed(0..1, Failure::Truncated)][..]));
}

#[test]
fn what_is_no_response_fails_the_request_it_came_for() {
    let (client, again) =
        Client::ten(Resend::Idle, true, &[("SSH-2.0-OpenSSH_9.2p1\r\n", Ends::StaysSilent)]);
    let settled = [failed(0..1, Failure::Malformed), failed(1..10, Failure::Malformed)];
    assert_eq!((client.heard.in_short(), again.len()), ((0, &settled[..]), 0));
    let says = OK.to_owned() + "SSH-2.0-OpenSSH_9.2p1\r\n";
    let (client, again) = Client::ten(Resend::Idle, true, &[(&says, Ends::StaysSilent)]);
    assert_eq!(client.heard.in_short(), (1, &[failed(1..2, Failure::Malformed)][..]));
    assert_eq!(again, numbers(2..10));
}

#[test]
fn requests_that_wait_too_long_time_out() {
    let (client, again) = Client::ten(Resend::Idle, true, &[(OK, Ends::StaysSilent)]);
    assert_eq!((client.heard.in_short(), again.len()), ((1, &[(1..10, Settled::TimedOut)][..]), 0));
}

/// A later request on the same connection has time left: the server had its turn, and the next one may be better.
#[test]
fn what_has_not_waited_too_long_goes_out_again() {
    let mut client = Client::new(Resend::Idle, &[(OK, Ends::StaysSilent)]);
    let conn = client.open();
    client.send_new(conn, 0..3, true);
    let (begun, mut events) = (client.mem.now(), Vec::new());
    while client.mem.now() < begun + SECOND / 2 {
        client.mem.turn(Some(begun + SECOND / 2), &mut events).unwrap();
        for event in events.drain(..) {
            let Event::Readable { data, .. } = event else { continue };
            let now = client.mem.now();
            client.pool.receive(data, now, &mut client.mem, &mut client.heard);
        }
    }
    client.send_new(conn, 3..5, true);
    client.send_new(conn, 5..7, false);
    client.listen(conn);
    let settled = [(1..3, Settled::TimedOut), (5..7, Settled::Unknown)];
    assert_eq!(client.heard.in_short(), (1, &settled[..]));
    assert_eq!(client.pool.pop_again(1).map(|run| run.first..run.end()), Some(3..4));
    assert_eq!(client.pool.pop_again(9).map(|run| run.first..run.end()), Some(4..5));
}

/// RFC 9112 section 9.3.2: behind a connection that failed nothing is pipelined before the first response.
#[test]
fn after_a_connection_that_failed_the_next_one_begins_with_one_request() {
    let mut client = Client::new(Resend::Idle, &[(&OK.repeat(2), Ends::Closes), (OK, Ends::StaysSilent)]);
    let conn = client.open();
    assert_eq!(client.pool.get_mut(conn).unwrap().room(), 10);
    client.send_new(conn, 0..10, true);
    client.listen(conn);
    let conn = client.open();
    assert_eq!(client.pool.get_mut(conn).unwrap().room(), 1);
    let (run, _) = client.pool.next_again(conn, 1, true).unwrap();
    client.send(conn, run);
    client.hear_all();
    assert_eq!(client.pool.get_mut(conn).unwrap().room(), 10);
    assert_eq!(client.heard.answered.iter().map(|r| r.end - r.start).sum::<u64>(), 3);
}

/// A request that met two closing connections waits for a new one only while one can be opened: it would wait for ever.
#[test]
fn where_no_connection_can_be_opened_an_unlucky_request_takes_one_that_is_used() {
    let mut client = Client::new(Resend::Idle, &[(OK, Ends::StaysSilent)]);
    let conn = client.open();
    client.send_new(conn, 0..1, true);
    client.hear_all();
    let stamp = Stamp { sent: Time::ZERO, due: Time::ZERO, in_vain: 1, refused: 0, measured: false };
    let run = Run { stamp, first: 1, count: 1, kind: 0, expect: Expect::Usual, idempotent: true };
    client.pool.again.push_back(Waiting { run, end: RequestsEnd::Lost(Failure::Reset) });
    assert!(client.pool.next_again(conn, 1, true).is_none());
    assert!(client.pool.next_again(conn, 1, false).is_some());
}

#[test]
fn attempts_in_vain_come_to_an_end() {
    let mut client = Client::new(Resend::Idempotent, &[("", Ends::Closes); 20]);
    let conn = client.open();
    client.send_new(conn, 0..1, true);
    client.listen(conn);
    let mut sent = 1;
    while let Some(run) = client.pool.pop_again(1) {
        let conn = client.open();
        client.send(conn, run);
        client.listen(conn);
        sent += 1;
    }
    assert_eq!((sent, client.heard.in_short()), (4, (0, &[failed(0..1, Failure::ClosedEarly)][..])));
}

/// RFC 9112 section 9.2; RFC 9110 section 15.5.9 has the exception.
#[test]
fn what_no_request_asked_for_is_no_response() {
    let farewell = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for (behind, unsolicited) in [(OK, 1), (farewell, 0), ("nonsense", 1)] {
        let says = OK.repeat(10) + behind;
        let (client, again) = Client::ten(Resend::Idle, true, &[(&says, Ends::StaysSilent)]);
        assert_eq!((client.heard.in_short(), again.len()), ((10, &[][..]), 0), "{behind}");
        assert_eq!(client.heard.unsolicited, unsolicited, "{behind}");
    }
}

/// RFC 9110 section 15.5.9: a 408 that comes on a reused connection is no response to the requests
/// that it crossed, if the first of them is idempotent. Otherwise it may be its response, which a
/// handler gave, and only those behind it go out again.
#[test]
fn a_408_that_crosses_requests_sends_them_again() {
    let farewell = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbye";
    for (resend, idempotent, answers, again) in
        [(Resend::Idle, false, 4, 4..10), (Resend::Idle, true, 3, 3..10), (Resend::Never, true, 3, 10..10)]
    {
        let says = OK.repeat(3) + farewell;
        let (client, sent_again) = Client::ten(resend, idempotent, &[(&says, Ends::Closes)]);
        let (answered, settled) = client.heard.in_short();
        assert_eq!((answered, sent_again), (answers, numbers(again.clone())), "{resend:?}");
        assert_eq!(client.heard.unsolicited, 0);
        let never = [failed(3..10, Failure::ClosedEarly)];
        assert_eq!(settled, if resend == Resend::Never { &never[..] } else { &[] });
    }
    // The first response of a connection is one, and so is one that continues.
    let goes_on = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
    let says = goes_on.to_owned() + &OK.repeat(8) + goes_on;
    let (client, again) = Client::ten(Resend::Idle, true, &[(&says, Ends::Closes)]);
    assert_eq!((client.heard.in_short().0, again.len()), (10, 0));
    let (client, again) = Client::ten(Resend::Idle, true, &[(farewell, Ends::Closes)]);
    assert_eq!((client.heard.in_short().0, again.len()), (1, 9), "behind it nothing was processed");
}

#[test]
fn the_number_of_requests_after_which_a_server_closes_is_learnt() {
    let mut client = Client::new(Resend::Idle, &[(OK.repeat(4).as_str(), Ends::Closes); 5]);
    for _ in 0..3 {
        let conn = client.open();
        client.send_new(conn, 0..10, true);
        client.listen(conn);
    }
    assert_eq!(client.pool.learnt.limit(), (Some(4), 3));
    client.pool.give_up_again(|_, why| assert_eq!(why, Failure::ClosedEarly));
    let conn = client.open();
    client.pool.get_mut(conn).unwrap().depth = 10;
    assert_eq!(client.pool.get_mut(conn).unwrap().room(), 4);
}

#[test]
fn an_error_of_the_transport_is_told_apart() {
    let net = |kind| Loss::Net(NetError::of(kind));
    assert_eq!(net(NetErrorKind::Reset).failure(), Failure::Reset);
    assert_eq!(net(NetErrorKind::NoMemory).failure(), Failure::NoMemory);
    assert_eq!(net(NetErrorKind::Reset).end(Fate::NeverProcessed, false), RequestsEnd::Announced);
    assert_eq!(
        Loss::Malformed(String::new()).end(Fate::NeverProcessed, false),
        RequestsEnd::Lost(Failure::Malformed)
    );
}
