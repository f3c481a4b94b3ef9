//! A server over TCP that announces HTTP/3 (RFC 7838), in memory and in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use http::Version;
use linerate_net::datagrams::{PathFaults, SimDatagrams};
use linerate_net::mem::{PeerActions, PeerConn};

use super::http3::h3_server::{CLEAN, Deed, Scripted};
use super::http3::{Asked, count, quic_over};
use super::*;
use crate::client::by_quic::beside_options;
use crate::client::dual::{DualConversation, DualShared, DualTransport};
use crate::client::limits::{ALT_FIRST_PAUSE, LEAVING};
use crate::{AnyShared, H2Shared, H3Shared, QuicTransport, Resend, Speaks};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const DEAD: PathFaults = PathFaults { loss: 1.0, ..CLEAN };

type Dual = Program<DualTransport<Mem, QuicTransport<SimDatagrams>>, DualConversation<CallReading>>;

/// A program and its server.
struct Announced {
    program: Dual,
    /// Requests over TCP, and `Alt-Svc` of the responses to them.
    over_tcp: Arc<Mutex<Vec<String>>>,
    announces: Arc<Mutex<String>>,
    over_quic: Asked,
    status: Rc<Cell<u16>>,
    alt_svc: Rc<RefCell<Option<String>>>,
}

fn quic_address() -> SocketAddr {
    SocketAddr::new(address().ip(), 443)
}

fn followed() -> CallOptions {
    CallOptions {
        protocol: Protocol::AltSvc,
        secure: true,
        host: http::HeaderValue::from_static("a.example"),
        resend: Resend::Idempotent,
        timings: true,
        ..options()
    }
}

/// Responds to requests of HTTP/1.1, each of which is one piece.
fn announcing(asked: &Arc<Mutex<Vec<String>>>, value: &Arc<Mutex<String>>) -> impl Peer + use<> {
    let (asked, value, mut left) = (Arc::clone(asked), Arc::clone(value), Vec::new());
    move |_: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions| {
        left.extend_from_slice(bytes);
        while let Some(end) = left.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(left[..end].to_vec()).unwrap();
            let body = if head.starts_with("POST") { 3 } else { 0 };
            if left.len() < end + 4 + body {
                return;
            }
            left.drain(..end + 4 + body);
            asked.lock().unwrap().push(head.lines().next().unwrap().replace(" HTTP/1.1", ""));
            let value = value.lock().unwrap();
            let alt_svc = if value.is_empty() { String::new() } else { format!("Alt-Svc: {value}\r\n") };
            out.send(conn, format!("HTTP/1.1 200 OK\r\n{alt_svc}Content-Length: 2\r\n\r\nok").into_bytes());
        }
    }
}

impl Announced {
    fn new(options: CallOptions, server: Option<Scripted>, faults: PathFaults) -> Announced {
        let (over_tcp, announces) = (Arc::default(), Arc::new(Mutex::new("h3=\":443\"".to_owned())));
        let mut mem = Mem::new(MemOptions::default()).unwrap();
        mem.serve(address(), announcing(&over_tcp, &announces)).unwrap();
        let mut net = SimDatagrams::new(faults, options.seed).unwrap();
        let (mut over_quic, mut status, mut alt_svc) = (Asked::default(), Rc::default(), Rc::default());
        if let Some(server) = server {
            (over_quic, status) = (Rc::clone(&server.asked), Rc::clone(&server.status));
            alt_svc = Rc::clone(&server.alt_svc);
            net.serve(quic_address(), server);
        }
        let quic = quic_over(net, &beside_options(&options), &options);
        let tcp = AnyShared::new(Speaks::Either, HeadCache::new(), H2Shared::new(1 << 20));
        let shared = DualShared { tcp, quic: H3Shared::default() };
        let program = Program::over(DualTransport::new(mem, quic), options, shared);
        Announced { program, over_tcp, announces, over_quic, status, alt_svc }
    }

    /// With a server that answers every request.
    fn answered() -> Announced {
        Announced::new(followed(), Some(Scripted::new(|_| Deed::Answer, 10, 1)), CLEAN)
    }

    fn net(&mut self) -> &mut SimDatagrams {
        self.program.calls.transport().quic().net()
    }

    /// One GET; the version that answered it.
    fn get(&mut self, number: u64) -> Version {
        self.program.get(number);
        self.program.run(20 * SECOND);
        self.version(number)
    }

    fn version(&self, number: u64) -> Version {
        assert_eq!(self.program.status(number), 200);
        self.program.ended[&number].as_ref().unwrap().version()
    }

    /// Calls until they go over QUIC.
    fn move_over(&mut self) {
        assert_eq!((self.get(1000), self.get(1001)), (Version::HTTP_11, Version::HTTP_11));
        self.program.wait(SECOND / 5);
        assert_eq!(self.get(1002), Version::HTTP_3);
    }
}

#[test]
fn later_calls_go_to_the_alternative_and_those_under_way_stay() {
    let mut server = Announced::answered();
    assert_eq!(server.get(0), Version::HTTP_11);
    // The second call opens the connection, and does not wait for it.
    assert_eq!(server.get(1), Version::HTTP_11);
    server.program.wait(SECOND / 5);
    for n in 2..50 {
        assert_eq!(server.get(n), Version::HTTP_3);
    }
    let timings = server.program.ended[&2].as_ref().unwrap().extensions().get::<Timings>().unwrap();
    assert!(timings.is_quic() && timings.address == Some(quic_address()), "{timings:?}");
    let statistics = server.program.calls.statistics();
    assert_eq!((statistics.connected, statistics.connect_failures, statistics.lost), (2, 0, 0));
    assert_eq!((server.program.calls.open(), server.over_tcp.lock().unwrap().len()), (1, 2));
}

#[test]
fn who_does_not_follow_stays() {
    let calls = CallOptions { protocol: Protocol::Either, ..followed() };
    let mut server = Announced::new(calls, Some(Scripted::new(|_| Deed::Answer, 10, 1)), CLEAN);
    for n in 0..5 {
        assert_eq!(server.get(n), Version::HTTP_11);
        server.program.wait(SECOND);
    }
    // Nor where nothing proves who the server is.
    let calls = CallOptions { secure: false, ..followed() };
    let mut server = Announced::new(calls, Some(Scripted::new(|_| Deed::Answer, 10, 1)), CLEAN);
    for n in 0..5 {
        assert_eq!(server.get(n), Version::HTTP_11);
        server.program.wait(SECOND);
    }
    assert!(server.over_quic.borrow().is_empty());
}

/// RFC 9114 section 3.1: UDP is dropped, or nothing listens; no call waits for that, and few try.
#[test]
fn where_quic_does_not_come_up_calls_stay_on_tcp_and_do_not_wait() {
    for (is_there, faults) in [(false, CLEAN), (true, DEAD)] {
        let quic = is_there.then(|| Scripted::new(|_| Deed::Answer, 10, 1));
        let mut server = Announced::new(followed(), quic, faults);
        let mut slowest = Duration::ZERO;
        for n in 0..300 {
            let before = server.program.now();
            assert_eq!(server.get(n), Version::HTTP_11);
            slowest = slowest.max(server.program.now() - before);
            server.program.wait(100 * MS);
        }
        assert!(slowest < 50 * MS, "{slowest:?}");
        let statistics = server.program.calls.statistics();
        assert_eq!((statistics.connect_failures, statistics.calls, statistics.resent), (1, 300, 0));
        server.program.wait(ALT_FIRST_PAUSE);
        assert_eq!(server.get(300), Version::HTTP_11);
        server.program.wait(5 * SECOND);
        assert_eq!(server.program.calls.statistics().connect_failures, 2, "once more behind the pause");
    }
}

#[test]
fn calls_of_a_connection_that_dies_go_over_tcp_but_no_post_twice() {
    let script = |nth| if nth == 0 { Deed::Answer } else { Deed::Silence };
    let quic = Scripted::new(script, 10, 1);
    let mut server = Announced::new(followed(), Some(quic), CLEAN);
    server.move_over();
    // The server admits 20 streams.
    server.program.get_all(0..10);
    server.program.post(20);
    server.program.wait(100 * MS);
    server.net().set_faults(DEAD);
    server.program.run(3 * SECOND);
    for n in 0..10 {
        assert_eq!(server.version(n), Version::HTTP_11);
    }
    assert!(matches!(server.program.error(20), Error::OutcomeUnknown(_)), "{}", server.program.error(20));
    assert_eq!(count(&server.over_quic, "POST /20"), 1);
    assert!(!server.over_tcp.lock().unwrap().contains(&"POST /20".to_owned()));
    // It is not tried again at once, and later calls neither fail nor wait.
    for n in 21..60 {
        assert_eq!(server.get(n), Version::HTTP_11);
        server.program.wait(100 * MS);
    }
    assert_eq!(server.program.calls.statistics().connect_failures, 0);
}

#[test]
fn a_server_that_ends_its_connection_in_good_order_gets_another() {
    let script = |nth| if nth == 5 { Deed::GoAway } else { Deed::Answer };
    let mut server = Announced::new(followed(), Some(Scripted::new(script, 10, 1)), CLEAN);
    server.move_over();
    for n in 0..20 {
        server.program.post(n);
        server.program.run(SECOND);
        assert_eq!(server.program.status(n), 200);
        server.program.wait(100 * MS);
    }
    assert_eq!(server.version(19), Version::HTTP_3);
}

#[test]
fn clear_and_expiry_lead_back() {
    let mut server = Announced::answered();
    server.move_over();
    *server.announces.lock().unwrap() = String::new();
    *server.alt_svc.borrow_mut() = Some("clear".to_owned());
    assert_eq!(server.get(0), Version::HTTP_3);
    for n in 1..5 {
        assert_eq!(server.get(n), Version::HTTP_11);
        server.program.wait(SECOND);
    }
    let mut server = Announced::answered();
    *server.announces.lock().unwrap() = "h3=\":443\"; ma=10".to_owned();
    server.move_over();
    *server.announces.lock().unwrap() = String::new();
    server.program.wait(8 * SECOND);
    assert_eq!(server.get(0), Version::HTTP_3);
    server.program.wait(2 * SECOND);
    assert_eq!((server.get(1), server.get(2)), (Version::HTTP_11, Version::HTTP_11));
}

/// RFC 7838 section 6, RFC 9110 section 15.5.20.
#[test]
fn a_misdirected_call_goes_over_tcp_whatever_its_method() {
    let mut server = Announced::answered();
    server.move_over();
    server.status.set(421);
    *server.alt_svc.borrow_mut() = Some("h3=\":443\"".to_owned());
    for n in 0..10 {
        server.program.post(n);
        server.program.get(10 + n);
    }
    let streamed = server.program.stream(20);
    server.program.run(SECOND);
    assert!((0..20).all(|n| server.version(n) == Version::HTTP_11));
    let heads: Vec<u16> = server.program.calls.news().drain(..).filter_map(status_of).collect();
    assert_eq!((heads, streamed > 0), (vec![200], true));
    assert!((0..10).all(|n| count(&server.over_quic, &format!("POST /{n}")) == 1));
    let before = server.over_quic.borrow().len();
    for n in 30..40 {
        assert_eq!(server.get(n), Version::HTTP_11, "announced again, and not tried");
        server.program.wait(100 * MS);
    }
    assert_eq!(server.over_quic.borrow().len(), before);
}

fn status_of(news: News) -> Option<u16> {
    if let News::Head(_, head) = news { Some(head.status().as_u16()) } else { None }
}

/// What may not be sent again: the caller hears of it.
#[test]
fn a_misdirected_upload_is_its_callers_affair() {
    let mut server = Announced::answered();
    server.move_over();
    server.status.set(421);
    let id = server.program.put(0, Some(3));
    server.program.give(id, 3);
    server.program.calls.give_end(id);
    server.program.run(SECOND);
    let heads: Vec<u16> = server.program.calls.news().drain(..).filter_map(status_of).collect();
    assert_eq!(heads, [421]);
}

/// A certificate of another name is no alternative.
#[test]
fn an_alternative_proves_to_be_the_server() {
    let calls = CallOptions { own_host_only: false, ..followed() };
    let mut server = Announced::new(calls, Some(Scripted::new(|_| Deed::Answer, 10, 1)), CLEAN);
    // Another address, where a server has this server's certificate.
    let elsewhere = SocketAddr::from(([10, 0, 0, 9], 8443));
    server.net().serve(elsewhere, Scripted::new(|_| Deed::Answer, 10, 2));
    *server.announces.lock().unwrap() = "h3=\"10.0.0.9:8443\"".to_owned();
    server.get(0);
    server.get(1);
    server.program.wait(SECOND);
    assert_eq!(server.get(2), Version::HTTP_3);
    let timings = server.program.ended[&2].as_ref().unwrap().extensions().get::<Timings>().unwrap();
    assert_eq!(timings.address, Some(elsewhere));
    // By a name: it is looked up, and where that fails calls stay.
    *server.alt_svc.borrow_mut() = None;
    let mut server = Announced::answered();
    *server.announces.lock().unwrap() = "h3=\"b.example:443\"".to_owned();
    server.get(0);
    server.get(1);
    assert_eq!(server.program.calls.take_lookup(), Some(("b.example".to_owned(), 443)));
    assert_eq!(server.program.calls.take_lookup(), None);
    let now = server.program.now();
    server.program.calls.alternative_found(vec![SocketAddr::from(([10, 0, 0, 8], 443)), quic_address()], now);
    server.program.wait(SECOND);
    server.get(2);
    server.program.wait(SECOND);
    assert_eq!(server.get(3), Version::HTTP_3, "its second address");
}

#[test]
fn both_ways_together_keep_the_limits() {
    for (pipes, h2_connections) in [(1, 1), (3, 1), (2, 2)] {
        let quic = Scripted::new(|_| Deed::Answer, 10, 1);
        let calls = CallOptions { pipes, h2_connections, ..followed() };
        let mut server = Announced::new(calls, Some(quic), CLEAN);
        let most = pipes.max(h2_connections);
        for n in 0..40 {
            server.program.get_all(n * 50..n * 50 + 50);
            for _ in 0..20 {
                let until = server.program.now() + MS;
                server.program.turn(until);
                // One more while it is tried.
                assert!(server.program.calls.open() <= most + 1, "{pipes} and {h2_connections}");
            }
            server.program.run(SECOND);
        }
        assert!((1950..2000).all(|n| server.version(n) == Version::HTTP_3));
        assert!(server.program.calls.open() <= h2_connections);
    }
}

/// Each response names another port, and each call over QUIC holds its connection.
#[test]
fn a_server_that_announces_another_place_each_time_gets_few_connections() {
    let mut server = Announced::answered();
    for n in 0..100_u16 {
        let at = SocketAddr::new(address().ip(), 500 + n);
        server.net().serve(at, Scripted::new(|_| Deed::Silence, 10, u64::from(n)));
    }
    for n in 0..100 {
        *server.announces.lock().unwrap() = format!("h3=\":{}\"", 500 + n);
        server.program.get(3 * n);
        server.program.wait(5 * MS);
        server.program.get(3 * n + 1);
        server.program.wait(20 * MS);
        server.program.get(3 * n + 2);
        let most = server.program.calls.options.pipes + LEAVING + 2;
        assert!(server.program.calls.open() <= most, "{}", server.program.calls.open());
    }
    server.program.run(20 * SECOND);
}

/// Each call ends once, no POST comes twice, and a GET fails by nothing that happens to QUIC alone.
fn run_seed(seed: u64) {
    let mut dice = Random::new(seed);
    let (evil, mut fate) = (dice.below(30), Random::new(seed + 2));
    let script = move |_| match fate.below(100) {
        n if n >= evil => Deed::Answer,
        0..3 => Deed::GoAway,
        3..6 => Deed::Close([0x100, 0x102][fate.below(2) as usize]),
        6 => Deed::Reset(0x10b),
        _ => Deed::Answer,
    };
    let calls = CallOptions { seed, pipes: 1 + dice.below(4) as u32, ..followed() };
    let mut server = Announced::new(calls, Some(Scripted::new(script, 100, seed)), CLEAN);
    let values = [
        "h3=\":443\"",
        "clear",
        "",
        "h3=\":443\"; ma=2",
        "h3=\":444\"",
        "h2=\":1\", h3=\":444\", h3=\":443\"",
    ];
    for number in 0..200 {
        let posts = dice.below(4) == 0;
        let id = if posts { server.program.post(number) } else { server.program.get(number) };
        match dice.below(40) {
            0 => server.net().set_faults(DEAD),
            1..4 => server.net().set_faults(CLEAN),
            4..6 => *server.announces.lock().unwrap() = values[dice.below(6) as usize].to_owned(),
            6 => *server.alt_svc.borrow_mut() = Some(values[dice.below(6) as usize].to_owned()),
            7 => server.status.set([200, 200, 421][dice.below(3) as usize]),
            8 => server.program.cancel(id),
            9 => server.program.wait(20 * SECOND),
            _ => {}
        }
        if dice.below(2) == 0 {
            server.program.wait(Duration::from_millis(dice.below(30)));
        }
    }
    server.program.run(60 * SECOND);
    for (number, result) in &server.program.ended {
        let get = format!("GET /{number}");
        let is_get = server.over_tcp.lock().unwrap().contains(&get) || count(&server.over_quic, &get) > 0;
        match result {
            Ok(response) => assert_eq!(response.status(), 200, "seed {seed}: {number}"),
            Err(Error::OutcomeUnknown(_)) if !is_get => {
                let post = format!("POST /{number}");
                assert!(
                    !server.over_tcp.lock().unwrap().contains(&post),
                    "seed {seed}: {post} went both ways"
                );
            }
            Err(error) => panic!("seed {seed}: {number}: {error}"),
        }
    }
    let over_tcp = server.over_tcp.lock().unwrap();
    let mut posts: Vec<&String> = over_tcp.iter().filter(|line| line.starts_with("POST")).collect();
    let all = posts.len();
    posts.sort();
    posts.dedup();
    assert_eq!(posts.len(), all, "seed {seed}: a POST came twice over TCP");
}

#[test]
fn whatever_happens_to_quic_each_call_ends_once_and_gets_succeed() {
    (0..20).for_each(run_seed);
}
