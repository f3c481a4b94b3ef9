//! A program's calls over QUIC, in memory and in virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use linerate_net::datagrams::{PathFaults, SimDatagrams};
use linerate_quic::{QuicEndpoint, QuicOptions};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::client::by_quic::quic_options;
use crate::{Failure, H3, H3Shared, QuicTransport, QuicWay, Resend};

#[path = "../../../../../linerate-load/src/engine/tests/h3_server.rs"]
pub(super) mod h3_server;

use h3_server::{CLEAN, Deed, SERVER, Scripted};

const SECOND: Duration = Duration::from_secs(1);

type Quic = Program<QuicTransport<SimDatagrams>, H3<CallReading>>;
/// Requests that a server saw whole.
pub(super) type Asked = Rc<RefCell<Vec<(String, usize)>>>;

fn quic_calls() -> CallOptions {
    CallOptions {
        protocol: Protocol::Http3,
        secure: true,
        host: http::HeaderValue::from_static("a.example"),
        ..options()
    }
}

fn program(options: CallOptions, server: Option<Scripted>, faults: PathFaults) -> (Quic, Asked) {
    let mut net = SimDatagrams::new(faults, options.seed).unwrap();
    let asked = server.as_ref().map(|server| Rc::clone(&server.asked)).unwrap_or_default();
    if let Some(server) = server {
        net.serve(address(), server);
    }
    let transport = quic_over(net, &quic_options(), &options);
    (Program::over(transport, options, H3Shared::default()), asked)
}

pub(super) fn quic_over(
    net: SimDatagrams,
    quic: &QuicOptions,
    options: &CallOptions,
) -> QuicTransport<SimDatagrams> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(SERVER.1.as_bytes()).unwrap()).unwrap();
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let endpoint = QuicEndpoint::client(quic, Arc::new(tls), options.seed).unwrap();
    let way = QuicWay { name: "a.example".to_owned(), depth: options.streams };
    QuicTransport::new(net, endpoint, way)
}

/// How often a request came whole.
pub(super) fn count(asked: &Asked, line: &str) -> usize {
    asked.borrow().iter().filter(|(came, _)| came == line).count()
}

#[test]
fn each_request_has_a_stream_and_its_version_is_told() {
    let calls = CallOptions { timings: true, connection_info: true, ..quic_calls() };
    let (mut program, asked) = program(calls, Some(Scripted::new(|_| Deed::Answer, 300, 1)), CLEAN);
    program.get_all(0..200);
    for n in 200..210 {
        program.post(n);
    }
    program.run(10 * SECOND);
    assert_eq!((program.calls.statistics().connected, asked.borrow().len()), (1, 210));
    assert!(asked.borrow().contains(&("POST /203".to_owned(), 3)));
    for number in 0..210 {
        let response = program.ended[&number].as_ref().unwrap();
        assert_eq!((response.version(), response.body().len()), (http::Version::HTTP_3, 300));
        let timings = response.extensions().get::<Timings>().unwrap();
        assert!(timings.is_quic() && timings.tls.is_none(), "{timings:?}");
        assert_eq!(timings.connect.is_some(), !timings.is_reused, "{timings:?}");
        let info = response.extensions().get::<ConnectionInfo>().unwrap();
        assert_eq!((info.protocol, info.peer), (http::Version::HTTP_3, Some(address())));
    }
}

/// RFC 9114 sections 4.1.1 and 5.2: the server did not process them.
#[test]
fn rejected_requests_and_those_behind_a_goaway_go_out_again_whatever_their_method() {
    for deed in [Deed::Reset(0x10b), Deed::GoAway] {
        let script = move |nth| if nth % 20 == 7 { deed } else { Deed::Answer };
        let (mut program, asked) = program(quic_calls(), Some(Scripted::new(script, 10, 1)), CLEAN);
        for n in 0..60 {
            program.post(n);
        }
        program.run(10 * SECOND);
        assert!((0..60).all(|n| program.status(n) == 200), "{deed:?}");
        let resent = program.calls.statistics().resent;
        assert!(resent >= 3, "{deed:?}: {resent}");
        let seen = asked.borrow().len() as u64;
        assert!((63..=60 + resent).contains(&seen), "{deed:?}: {seen}, {resent} sent again");
    }
}

/// RFC 9110 section 9.2.2.
#[test]
fn a_post_whose_connection_ends_is_unknown_and_a_get_goes_out_again() {
    for code in [0x100, 0x102] {
        let script = move |nth| if nth == 5 { Deed::Close(code) } else { Deed::Answer };
        let calls = CallOptions { resend: Resend::Idempotent, ..quic_calls() };
        let (mut program, asked) = program(calls, Some(Scripted::new(script, 10, 1)), CLEAN);
        program.get_all(0..5);
        program.run(10 * SECOND);
        program.post(5);
        program.get(6);
        program.run(10 * SECOND);
        assert!(matches!(program.error(5), Error::OutcomeUnknown(_)), "{}", program.error(5));
        assert_eq!((program.status(6), count(&asked, "POST /5")), (200, 1));
        assert_eq!(program.calls.statistics().connected, 2);
    }
}

#[test]
fn a_reset_says_its_code_and_silence_is_a_timeout_of_its_stream_alone() {
    let script = |nth| match nth {
        1 => Deed::Reset(0x102),
        2 => Deed::Silence,
        _ => Deed::Answer,
    };
    let (mut program, _) = program(quic_calls(), Some(Scripted::new(script, 10, 1)), CLEAN);
    program.get_all(0..3);
    program.wait(SECOND);
    // The connection is alive.
    program.get(3);
    program.wait(2 * SECOND);
    program.get(4);
    program.run(10 * SECOND);
    let Error::Failed { failure, detail, .. } = program.error(1) else { panic!("{}", program.error(1)) };
    assert_eq!(*failure, Failure::Reset);
    assert!(detail.contains("H3_INTERNAL_ERROR"), "{detail}");
    assert!(matches!(program.error(2), Error::Timeout { .. }), "{}", program.error(2));
    assert!([0, 3, 4].iter().all(|n| program.status(*n) == 200));
    assert_eq!((program.calls.statistics().connected, program.calls.statistics().lost), (1, 0));
}

/// RFC 9114 section 5.1: the server's idle timeout is 5 s.
#[test]
fn a_body_that_nobody_takes_holds_its_server_back_and_its_connection_stays() {
    let (mut program, _) = program(quic_calls(), Some(Scripted::new(|_| Deed::Answer, 20 << 20, 1)), CLEAN);
    let id = program.stream(0);
    program.wait(SECOND);
    let taken = |program: &mut Quic| -> usize {
        let news = program.calls.news().drain(..);
        news.map(|news| if let News::Piece(_, piece) = news { piece.len() } else { 0 }).sum()
    };
    let mut got = taken(&mut program);
    assert!(got > 0 && got < 8 << 20, "{got}");
    program.wait(20 * SECOND);
    assert_eq!((taken(&mut program), program.ended.len()), (0, 0));
    for _ in 0..100 {
        let now = program.now();
        program.calls.taken(id, got, now);
        program.wait(SECOND / 20);
        got = taken(&mut program);
    }
    assert_eq!(program.status(0), 200);
    assert_eq!((program.calls.statistics().connected, program.calls.statistics().lost), (1, 0));
}

#[test]
fn an_upload_that_its_server_does_not_read_holds_no_other_up() {
    for streamed in [false, true] {
        let mut server = Scripted::new(|_| Deed::Answer, 10, 1);
        server.unread = Some(0);
        let (mut program, asked) = program(quic_calls(), Some(server), CLEAN);
        match streamed {
            false => {
                let body = Bytes::from(vec![b'b'; 20 << 20]);
                program.send(100, Request::put("/100").body(body).unwrap());
            }
            true => {
                let id = program.put(100, None);
                (0..20).for_each(|_| program.give(id, 1 << 20));
                program.calls.give_end(id);
            }
        }
        program.wait(SECOND / 2);
        program.get_all(0..10);
        let body = Bytes::from(vec![b'b'; 600_000]);
        program.send(10, Request::put("/10").body(body).unwrap());
        program.wait(SECOND / 2);
        assert!((0..11).all(|n| program.status(n) == 200), "streamed: {streamed}");
        assert!(asked.borrow().contains(&("PUT /10".to_owned(), 600_000)));
        assert_eq!(program.calls.statistics().connected, 1);
        program.run(20 * SECOND);
        assert!(program.ended[&100].is_err(), "streamed: {streamed}");
    }
}

#[test]
fn bodies_of_every_length_arrive_whole() {
    let (mut program, asked) = program(quic_calls(), Some(Scripted::new(|_| Deed::Answer, 10, 1)), CLEAN);
    for (n, length) in [0, 1, 8191, 8192, 65_536, 65_537, 3_000_000].into_iter().enumerate() {
        let n = n as u64;
        let body = Bytes::from(vec![b'b'; length]);
        program.send(n, Request::put(format!("/{n}")).body(body).unwrap());
        let id = program.put(100 + n, n.is_multiple_of(2).then_some(length as u64));
        (0..length.div_ceil(100_000)).for_each(|at| program.give(id, (length - at * 100_000).min(100_000)));
        program.calls.give_end(id);
        program.run(10 * SECOND);
        assert_eq!((program.status(n), program.status(100 + n)), (200, 200));
        for line in [format!("PUT /{n}"), format!("PUT /{}", 100 + n)] {
            assert!(asked.borrow().contains(&(line, length)), "{length}: {:?}", asked.borrow());
        }
    }
}

#[test]
fn a_call_that_is_given_up_costs_its_stream_alone() {
    let script = |nth| if nth == 1 { Deed::Silence } else { Deed::Answer };
    let (mut program, asked) = program(quic_calls(), Some(Scripted::new(script, 10, 1)), CLEAN);
    program.get(0);
    program.run(SECOND);
    let id = program.post(1);
    let upload = program.put(2, Some(1 << 20));
    program.give(upload, 1000);
    program.wait(SECOND / 10);
    program.cancel(id);
    program.cancel(upload);
    program.get_all(3..20);
    program.run(SECOND);
    assert!((3..20).all(|n| program.status(n) == 200));
    assert_eq!((count(&asked, "POST /1"), count(&asked, "PUT /2")), (1, 0), "half a body is no request");
    assert_eq!((program.calls.statistics().connected, program.calls.statistics().lost), (1, 0));
}

#[test]
fn an_idle_connection_closes_and_the_next_call_opens_another() {
    let calls = CallOptions { idle_timeout: 12 * SECOND, ..quic_calls() };
    let (mut program, _) = program(calls, Some(Scripted::new(|_| Deed::Answer, 10, 1)), CLEAN);
    program.get(0);
    program.run(SECOND);
    // The server's idle timeout is 5 s: signs of life keep the connection until then.
    program.wait(11 * SECOND);
    assert_eq!(program.calls.open(), 1);
    program.wait(2 * SECOND);
    assert_eq!((program.calls.open(), program.calls.statistics().lost), (0, 0));
    program.get(1);
    program.run(SECOND);
    assert_eq!((program.status(1), program.calls.statistics().connected), (200, 2));
}

#[test]
fn nobody_there_and_a_path_that_passes_nothing_are_failures_to_connect() {
    let dead = PathFaults { loss: 1.0, ..CLEAN };
    for (server, faults) in [(false, CLEAN), (true, dead)] {
        let server = server.then(|| Scripted::new(|_| Deed::Answer, 10, 1));
        let (mut program, asked) = program(quic_calls(), server, faults);
        program.post(0);
        program.run(8 * SECOND);
        assert!(
            matches!(program.error(0), Error::Connect(_) | Error::Timeout { .. }),
            "{}",
            program.error(0)
        );
        assert!(program.error(0).is_unsent() && asked.borrow().is_empty());
    }
}

/// Each call ends once, and the server sees a POST twice only if it said that it did not process it.
fn run_seed(seed: u64) {
    let mut dice = Random::new(seed);
    let share = |is_lossy: bool, n| if is_lossy { n } else { 0.0 };
    let is_lossy = dice.below(2) == 0;
    let faults = PathFaults {
        loss: share(is_lossy, 0.02),
        duplicates: share(is_lossy, 0.02),
        jitter: if is_lossy { Duration::from_millis(3) } else { Duration::ZERO },
        marked: share(is_lossy, 0.1),
        ..CLEAN
    };
    let refusals = Rc::new(RefCell::new(0));
    let (evil, counted, mut fate) = (dice.below(20), Rc::clone(&refusals), Random::new(seed + 2));
    let script = move |_| {
        let deed = match fate.below(100) {
            n if n >= evil => Deed::Answer,
            0..2 => Deed::GoAway,
            2..4 => Deed::Close([0x100, 0x102, 0x107][fate.below(3) as usize]),
            4..6 => Deed::Cut(0x102),
            6 => Deed::Silence,
            _ => Deed::Reset([0x100, 0x102, 0x10b, 0x10c, 77][fate.below(5) as usize]),
        };
        *counted.borrow_mut() += usize::from(matches!(deed, Deed::GoAway | Deed::Reset(0x10b)));
        deed
    };
    let server = Scripted::new(script, dice.below(100_000) as usize, seed);
    let resend = Resend::ALL[dice.below(3) as usize];
    let calls = CallOptions { resend, seed, h2_connections: 1 + dice.below(2) as u32, ..quic_calls() };
    let (mut program, asked) = program(calls, Some(server), faults);
    for number in 0..120 {
        let id = match dice.below(4) {
            0 => program.post(number),
            1 => {
                let length = dice.below(200_000) as usize;
                let id = program.put(number, (dice.below(2) == 0).then_some(length as u64));
                program.give(id, length);
                program.calls.give_end(id);
                id
            }
            2 => {
                let body = Bytes::from(vec![b'b'; dice.below(100_000) as usize]);
                program.send(number, Request::put(format!("/{number}")).body(body).unwrap())
            }
            _ => program.get(number),
        };
        if dice.below(30) == 0 {
            program.cancel(id);
        }
        if dice.below(3) == 0 {
            program.wait(Duration::from_millis(dice.below(30)));
        }
    }
    program.run(60 * SECOND);
    let posts: std::collections::BTreeSet<_> =
        asked.borrow().iter().map(|(line, _)| line.clone()).filter(|line| line.starts_with("POST")).collect();
    let doubled: usize = posts.iter().map(|line| count(&asked, line) - 1).sum();
    assert!(doubled <= *refusals.borrow() * 30, "seed {seed}");
    if *refusals.borrow() == 0 {
        assert_eq!(doubled, 0, "seed {seed}: a POST came twice");
    }
    if evil == 0 {
        assert!(program.ended.values().all(Result::is_ok), "seed {seed}: {:?}", program.ended);
    }
}

#[test]
fn each_call_ends_once_and_no_post_comes_twice() {
    (0..30).for_each(run_seed);
}
