//! Clients that have sent their FIN, or a reset behind it: over HTTP/1.1 and HTTP/2, in clear text and
//! over TLS, on every TCP.
#![allow(clippy::unwrap_used)]

mod every_io;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linerate_http::h2::{Code, FRAME_HEAD, FrameHead, flag, kind};
use linerate_serve::{Handle, Limits, Request, Response, ServerOptions, sleep, spawn_with};
use rustls::pki_types::CertificateDer;

use wire::{PATIENCE, Wire, in_every_way, requests};

/// How many complete responses `bytes` are, and how many streams were cancelled.
fn responses(bytes: &[u8], http2: bool) -> (usize, usize) {
    if !http2 {
        return (String::from_utf8_lossy(bytes).matches("waited\n").count(), 0);
    }
    let (mut rest, mut complete, mut cancelled) = (bytes, 0, 0);
    while let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD>() {
        let head = FrameHead::read(head);
        let (payload, behind) = behind.split_at(head.len as usize);
        match head.kind {
            kind::DATA if head.has(flag::END_STREAM) => complete += 1,
            kind::RST_STREAM => cancelled += usize::from(payload == Code::CANCEL.0.to_be_bytes()),
            _ => {}
        }
        rest = behind;
    }
    (complete, cancelled)
}

/// Counts the handlers that were begun, and those that were cancelled.
#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    cancelled: AtomicUsize,
}

struct Handling(Arc<Seen>, bool);

impl Drop for Handling {
    fn drop(&mut self) {
        self.0.cancelled.fetch_add(usize::from(!self.1), Ordering::SeqCst);
    }
}

/// `/MS` waits so long.
async fn wait(request: Request, seen: Arc<Seen>) -> Response {
    seen.begun.fetch_add(1, Ordering::SeqCst);
    let mut handling = Handling(seen, false);
    sleep(Duration::from_millis(request.path()[1..].parse().unwrap())).await;
    handling.1 = true;
    Response::text("waited\n")
}

/// Runs a test of servers with these limits, in every way to speak to them.
fn with(limits: Limits, test: impl Fn(&Handle, &Seen, Option<&CertificateDer<'static>>, bool) + Sync) {
    let seen = Arc::new(Seen::default());
    let spawn = |options| {
        let seen = Arc::clone(&seen);
        spawn_with(options, move || {
            let seen = Arc::clone(&seen);
            move |request| wait(request, Arc::clone(&seen))
        })
    };
    in_every_way(ServerOptions { limits, ..ServerOptions::default() }, spawn, |server, cert, http2| {
        seen.begun.store(0, Ordering::SeqCst);
        seen.cancelled.store(0, Ordering::SeqCst);
        test(server, &seen, cert, http2);
    });
}

/// Waits until a count has come so far.
#[track_caller]
fn reached(count: &AtomicUsize, n: usize, what: &str) {
    let start = Instant::now();
    while count.load(Ordering::SeqCst) < n {
        assert!(start.elapsed() < PATIENCE, "waited in vain; {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn complete_requests_are_answered_behind_a_fin() {
    with(Limits::default(), |server, seen, tls, http2| {
        let mut wire = Wire::open(server.addr(), tls, http2);
        wire.send(&requests(&["/0", "/200", "/100"], http2));
        wire.half_close();
        assert_eq!(responses(&wire.read(), http2), (3, 0), "HTTP/2: {http2}, TLS: {}", tls.is_some());
        assert_eq!(seen.cancelled.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_handler_that_still_waits_a_second_later_is_cancelled() {
    with(Limits::default(), |server, seen, tls, http2| {
        let mut wire = Wire::open(server.addr(), tls, http2);
        wire.send(&requests(&["/0", "/3600000"], http2));
        let begun = Instant::now();
        wire.half_close();
        let what = format!("HTTP/2: {http2}, TLS: {}", tls.is_some());
        assert_eq!(responses(&wire.read(), http2), (1, usize::from(http2)), "{what}");
        assert!(begun.elapsed() > Duration::from_millis(900), "{what}: it has a second");
        reached(&seen.cancelled, 1, &what);
    });
}

/// Also behind the FIN of a client that would be waited for.
#[test]
fn a_reset_cancels_at_once() {
    let limits = Limits { half_close: true, idle_time: Duration::from_secs(3600), ..Limits::default() };
    with(limits, |server, seen, tls, http2| {
        for fin_first in [false, true] {
            let cancelled = seen.cancelled.load(Ordering::SeqCst);
            let begun = seen.begun.load(Ordering::SeqCst);
            let mut wire = Wire::open(server.addr(), tls, http2);
            wire.send(&requests(&["/3600000"], http2));
            let what = format!("HTTP/2: {http2}, TLS: {}", tls.is_some());
            reached(&seen.begun, begun + 1, &what);
            if fin_first {
                wire.half_close();
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(seen.cancelled.load(Ordering::SeqCst), cancelled, "it is waited for");
            }
            socket2::SockRef::from(wire.socket()).set_linger(Some(Duration::ZERO)).unwrap();
            drop(wire);
            reached(&seen.cancelled, cancelled + 1, &what);
        }
    });
}
