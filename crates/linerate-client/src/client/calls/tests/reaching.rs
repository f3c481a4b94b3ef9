//! Addresses that refuse, do not answer or answer late.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use linerate_net::Time;
use linerate_net::mem::{Accept, MemOptions, Peer, PeerActions, PeerConn};

use super::{Program, address, options};
use crate::Failure;
use crate::client::error::{Error, Phase};
use crate::client::options::CallOptions;

const SECOND: Duration = Duration::from_secs(1);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// When attempts to connect came.
type Attempts = Arc<Mutex<Vec<Time>>>;

/// Responds to so many requests on all of its connections. Then it closes the connection, and lets no other open.
struct Server {
    accept: Accept,
    attempts: Attempts,
    responds: usize,
    then: Accept,
}

impl Server {
    fn new(accept: Accept) -> (Server, Attempts) {
        let attempts = Attempts::default();
        let server =
            Server { accept, attempts: Arc::clone(&attempts), responds: usize::MAX, then: Accept::Refuse };
        (server, attempts)
    }
}

impl Peer for Server {
    fn accept(&mut self, now: Time) -> Accept {
        self.attempts.lock().unwrap().push(now);
        self.accept
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        for _ in 0..bytes.windows(4).filter(|w| w == b"\r\n\r\n").count() {
            if self.responds == 0 {
                self.accept = self.then;
                return out.close(conn);
            }
            self.responds -= 1;
            out.send(conn, OK.to_vec());
        }
    }
}

fn second() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 3], 80))
}

/// A program whose server has two addresses.
fn two(first: Accept, other: Accept, options: CallOptions) -> (Program, [Attempts; 2]) {
    let ((first, first_seen), (other, other_seen)) = (Server::new(first), Server::new(other));
    let mut program = Program::new(MemOptions::default(), options, first);
    program.calls.transport().serve(second(), other).unwrap();
    program.calls.set_addresses(vec![address(), second()]);
    (program, [first_seen, other_seen])
}

fn millis(program: &mut Program) -> u64 {
    program.now().as_nanos() / 1_000_000
}

#[test]
fn two_addresses_that_do_not_answer_fail_what_waits_and_are_looked_up_again() {
    for pipes in [1, 4] {
        let (mut program, seen) = two(Accept::Ignore, Accept::Ignore, CallOptions { pipes, ..options() });
        program.get_all(0..5);
        program.wait(SECOND * 2);
        assert!(!program.calls.wants_addresses(), "the second one may answer");
        program.wait(SECOND);
        assert!(program.calls.wants_addresses());
        // Those it had, as a lookup finds them.
        program.calls.set_addresses(vec![address(), second()]);
        program.run(SECOND * 5);
        assert!((0..5).all(|n| matches!(program.error(n), Error::Connect(_))), "{:?}", program.ended);
        // Two rounds of 2 s, the second address 250 ms behind the first.
        let took = millis(&mut program);
        assert!((4400..5000).contains(&took), "{took} ms");
        assert!(seen.iter().all(|seen| seen.lock().unwrap().len() >= 2), "{seen:?}");
    }
}

#[test]
fn new_addresses_are_tried_though_attempts_to_old_ones_are_under_way() {
    let (mut program, _) = two(Accept::Ignore, Accept::Ignore, options());
    program.get(0);
    program.wait(SECOND * 3);
    assert!(program.calls.wants_addresses());
    let third = SocketAddr::from(([10, 0, 0, 4], 80));
    program.calls.transport().serve(third, Server::new(Accept::Now).0).unwrap();
    program.calls.set_addresses(vec![third]);
    program.run(SECOND / 10);
    assert_eq!(program.status(0), 200);
}

/// RFC 8305 section 5: the first that answers wins.
#[test]
fn an_address_that_refuses_does_not_end_the_attempt_to_a_slow_one() {
    for slow_is_first in [false, true] {
        let slow = Accept::After(SECOND + SECOND / 30);
        let (first, other) = if slow_is_first { (slow, Accept::Refuse) } else { (Accept::Refuse, slow) };
        let (mut program, seen) = two(first, other, CallOptions { pipes: 1, ..options() });
        program.get(0);
        program.wait(SECOND / 2);
        program.get_all(1..4);
        program.run(SECOND);
        assert!((0..4).all(|n| program.status(n) == 200), "{:?}", program.ended);
        let seen = seen.map(|seen| seen.lock().unwrap().len());
        assert_eq!(seen, [1, 1], "{slow_is_first}");
    }
}

#[test]
fn two_addresses_that_refuse_fail_what_waits_at_once() {
    for pipes in [1, 4] {
        let (mut program, _) = two(Accept::Refuse, Accept::Refuse, CallOptions { pipes, ..options() });
        program.get_all(0..5);
        program.run(SECOND / 10);
        assert!((0..5).all(|n| matches!(program.error(n), Error::Connect(_))), "{:?}", program.ended);
        assert!(program.calls.wants_addresses());
        // A later call learns it at once, too.
        program.get(5);
        program.run(SECOND * 2);
        assert!(matches!(program.error(5), Error::Connect(_)));
    }
}

/// Attempts that are under way together are one attempt.
#[test]
fn several_pipes_that_are_refused_together_are_one_attempt() {
    let (mut server, attempts) = Server::new(Accept::Refuse);
    server.responds = 0;
    let mut program = Program::new(MemOptions::default(), CallOptions { pipes: 4, ..options() }, server);
    program.get_all(0..4);
    program.run(SECOND);
    assert!((0..4).all(|n| matches!(program.error(n), Error::Connect(_))));
    let mut attempts = attempts.lock().unwrap().clone();
    attempts.dedup();
    assert!(attempts.len() >= 3, "{attempts:?}");
}

/// What had been sent before was not unsent, though no connection could be opened later.
#[test]
fn a_request_that_was_sent_before_never_fails_as_unsent() {
    let [refuse, ignore] =
        [Accept::Refuse, Accept::Ignore].map(|then| ["GET", "PUT", "DELETE"].map(|m| (then, m)));
    for (then, method) in refuse.into_iter().chain(ignore) {
        let (server, _) = Server::new(Accept::Now);
        let server = Server { responds: 1, then, ..server };
        let mut program = Program::new(MemOptions::default(), CallOptions { pipes: 1, ..options() }, server);
        program.get(0);
        program.run(SECOND);
        let request = Request::builder().method(method).uri("/1").body(Bytes::new()).unwrap();
        program.send(1, request);
        program.wait(SECOND / 1000);
        program.get(2);
        program.run(SECOND * 10);
        let error = program.error(1);
        assert!(!error.is_unsent(), "{method}: {error}");
        let Error::Failed { failure: Failure::ClosedEarly, detail, .. } = error else { panic!("{error:?}") };
        assert!(detail.contains("was sent") && detail.contains("no other could be opened: "), "{detail}");
        // One that never left is.
        assert!(matches!(program.error(2), Error::Connect(_)), "{}", program.error(2));
    }
}

#[test]
fn a_request_that_was_sent_before_never_times_out_as_unsent() {
    let (server, _) = Server::new(Accept::Now);
    let server = Server { responds: 1, then: Accept::Ignore, ..server };
    let patient = CallOptions { pipes: 1, connect_timeout: SECOND * 20, ..options() };
    let mut program = Program::new(MemOptions::default(), patient, server);
    program.get(0);
    program.run(SECOND);
    program.get(1);
    program.wait(SECOND / 1000);
    let id = *program.open.keys().next().unwrap();
    // As after a mismatch, which takes the response from it.
    program.calls.pool.give_up_again(|run, _| assert_eq!(run.first, id));
    program.calls.requeue(vec![id]);
    program.get(2);
    program.run(SECOND * 10);
    assert!(
        matches!(program.error(1), Error::Timeout { phase: Phase::Response, .. }),
        "{}",
        program.error(1)
    );
    assert!(matches!(program.error(2), Error::Timeout { phase: Phase::Queue, .. }), "{}", program.error(2));
}
