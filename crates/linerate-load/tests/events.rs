//! A run reports TCP's events while it lasts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_load::outcome::TcpEvents;
use linerate_load::plan::{Io, Plan, Stop, Target};
use linerate_load::{Outcome, Snapshot, start};
use linerate_net::Probe;
use linerate_skips::skip;

/// How long the server leaves requests unread.
const DEAF: Duration = Duration::from_millis(2200);

/// A server that first reads nothing, then everything, and responds to each request.
fn deaf_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let at = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    at
}

fn answer(mut stream: TcpStream) {
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a time limit");
    stream.set_write_timeout(patience).expect("a time limit");
    thread::sleep(DEAF);
    // Four bytes end a head, wherever a read was cut.
    let (mut buffer, mut matched) = (vec![0; 64 << 10], 0);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        for byte in &buffer[..n] {
            matched = if *byte == b"\r\n\r\n"[matched] { matched + 1 } else { usize::from(*byte == b'\r') };
            if matched == 4 {
                matched = 0;
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                    return;
                }
            }
        }
    }
}

/// Megabytes in flight on each connection: more than any window.
fn plan(io: Io) -> Plan {
    let mut plan = Plan::get(Target::at(deaf_server()), "/");
    plan.requests[0].fields.push(("X-Fill".to_owned(), "x".repeat(30_000)));
    let stop = Stop { requests: None, duration: Some(Duration::from_secs(3)) };
    Plan { connections: 3, depth: 300, stop, io, threads: Some(1), ..plan }
}

fn transports() -> Vec<Io> {
    [Io::Epoll, Io::Uring].into_iter().filter(|io| *io == Io::Epoll || Probe::run().uring().is_ok()).collect()
}

/// The run, and what was known of it before its end.
fn run(plan: Plan) -> (Outcome, Snapshot) {
    let running = start(plan).expect("it starts");
    let (mut seen, until) = (Snapshot::default(), Instant::now() + Duration::from_secs(60));
    while !running.finished() && Instant::now() < until {
        let now = running.snapshot();
        if seen.tcp.peer_window_closed == 0 || seen.looked_at < 3 {
            seen = now;
        }
        thread::sleep(Duration::from_millis(20));
    }
    (running.join(), seen)
}

#[test]
fn a_server_that_does_not_read_is_seen_as_it_happens() {
    for io in transports() {
        let (outcome, seen) = run(plan(io));
        if seen.tcp.looks > 0 && seen.tcp.peer_window_closed == 0 && seen.tcp.rwnd_limited_us > 0 {
            return skip("tcpi_snd_wnd", "this kernel does not tell the peer's window");
        }
        assert!(seen.tcp.peer_window_closed > 0 && seen.looked_at == 3, "{io:?}: {seen:?}");
        assert!(seen.elapsed < DEAF, "{io:?}: while it lasts: {:?}", seen.elapsed);
        let events = outcome.tcp.events;
        assert!(
            events.peer_window_closed > 10 && events.looks > events.peer_window_closed,
            "{io:?}: {events:?}"
        );
        assert_eq!(events.own_window_closed, 0, "{io:?}");
        // Three connections for two seconds, less what it took to fill their windows.
        assert!(events.rwnd_limited_us > 3_000_000, "{io:?}: {events:?}");
        assert_eq!(outcome.tcp.zero_window_us, events.rwnd_limited_us);
        assert_eq!(outcome.tcp.looked_at, 3);
        assert!(outcome.series[0].tcp.peer_window_closed > 0, "{io:?}: {:?}", outcome.series[0]);
        let mut sum = TcpEvents::default();
        outcome.series.iter().for_each(|second| sum.merge(&second.tcp));
        assert!(sum.looks <= events.looks && sum.peer_window_closed <= events.peer_window_closed, "{sum:?}");
        assert!(outcome.tcp.segments.is_none(), "nobody counted them");
    }
}
