use std::path::Path;

use allocation_counter::measure;
use bytes::Bytes;
use linerate_net::mem::{Mem, PeerActions, PeerConn};
use linerate_net::{Event, ListenOptions, Transport};

use super::*;
use crate::content::files::FileRoot;
use crate::content::routes::Routes;
use crate::content::site::{Content, SharedContent, SitePlan};
use crate::stats::counts::Counts;
use crate::{Request, Response, limits, timers};

/// A connection that a transport in memory has accepted.
fn accepted() -> (Mem, ServedConnection) {
    let at = "10.0.0.1:80".parse().unwrap();
    let mut mem = Mem::default();
    mem.listen(at, &ListenOptions::default()).unwrap();
    mem.dial(at, |_: Time, _: PeerConn, _: &[u8], _: &mut PeerActions| {});
    let mut events = Vec::new();
    while events.is_empty() {
        mem.turn(Some(Time::from_nanos(1_000_000)), &mut events).unwrap();
    }
    let Some(Event::Accepted { listener, conn, peer }) = events.first() else { panic!("{events:?}") };
    let connection = ServedConnection::new(*conn, *listener, *peer, Time::ZERO);
    (mem, connection)
}

fn engine<H: Handler>(mem: &Mem, handler: H) -> Engine<H> {
    Engine::new(handler, Limits::default(), Arc::default(), WokenTasks::new(mem.waker()))
}

/// The promise of the hot path: no allocation per request, pipelined or one by one, for a handler
/// that never waits.
#[test]
fn a_request_like_those_before_allocates_nothing() {
    let (mem, mut c) = accepted();
    let mut engine = engine(&mem, |request: Request| async move {
        match request.path() {
            "/" => Response::text(Bytes::from_static(b"hello\n")),
            _ => Response::status(404),
        }
    });
    let one = b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";
    let other = b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n";
    let batch = [&one[..], other, one].concat().repeat(16);
    for _ in 0..3 {
        engine.input(&mut c, &batch);
        engine.out.clear();
    }
    let counted = measure(|| {
        for _ in 0..100 {
            engine.input(&mut c, &batch);
            assert!(engine.out.len() > 16 * 300);
            engine.out.clear();
            engine.input(&mut c, one);
            engine.out.clear();
        }
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(c.requests, 3 * 48 + 100 * 49);
    assert!(c.work.is_none(), "an idle connection keeps nothing");
}

/// A response has only one Content-Type.
#[test]
fn the_content_type_set_last_is_the_only_one() {
    let (mem, mut c) = accepted();
    let mut engine = engine(&mem, |request: Request| async move {
        let text = Response::text("<p>").with_field("Content-Type", "text/html").unwrap();
        match request.path() {
            "/field" => text,
            _ => text.with_content_type("text/css").with_status(404),
        }
    });
    for (path, line) in [("/field", "Content-Type: text/html\r\n"), ("/", "content-type: text/css\r\n")] {
        engine.input(&mut c, format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let answer = String::from_utf8(std::mem::take(&mut engine.out)).unwrap();
        assert!(answer.contains(line), "{answer}");
        assert_eq!(answer.to_lowercase().matches("content-type").count(), 1, "{answer}");
    }
}

/// The memory of an idle connection, without the transport's part.
#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Option<ServedConnection>>() <= 160, "{} bytes", size_of::<Option<ServedConnection>>());
}

/// 64 requests of a connection may wait, each with what its handler needs while it waits. In a file
/// system in memory, handlers know at once that there is no such file; in another, some wait for a disk.
#[test]
fn waiting_requests_of_a_site_with_files_are_small() {
    let here = std::env::temp_dir();
    for (parent, each) in [(Path::new("/dev/shm"), 600), (&here, 1_664)] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let content = Content { root: Some(FileRoot::open(folder.path()).unwrap()), ..Content::default() };
        let plan = SitePlan::new(Routes::new(Arc::new(Counts::default)), SharedContent::new(content));
        let (mem, mut c) = accepted();
        let site = plan.site();
        let mut engine = engine(&mem, move |request| site.answer(request));
        timers::enter(&Rc::default());
        let waiting = b"GET /delay/60000 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(limits::PIPELINED);
        let counted = measure(|| engine.input(&mut c, &waiting));
        assert_eq!(engine.tasks.parked(), limits::PIPELINED);
        let bytes = counted.bytes_current / limits::PIPELINED as i64;
        assert!(bytes <= each, "{bytes} bytes for each");
    }
}
