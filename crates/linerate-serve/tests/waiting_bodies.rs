//! Bodies whose handlers do not read them: what they take of a thread's memory, over every TCP, in clear text and over
//! TLS, by HTTP/1.1 and HTTP/2. The only test of this program, because it looks at the memory of the process.
#![allow(clippy::unwrap_used)]

mod every_io;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linerate_http::h2::{PREFACE, flag, kind};
use linerate_serve::{Handle, Request, Response, ServerOptions, sleep, spawn_with};
use rustls::pki_types::CertificateDer;

use wire::{PATIENCE, Wire, block, frame, in_every_way};

const CLIENTS: usize = 128;

/// Bytes that each client sends before it is read, and more than its socket takes.
const MANY: usize = 4 << 20;

/// A thread's 32 MiB, and for each connection what one read brings, and as much at its client over TLS.
const BOUND: usize = (32 << 20) + CLIENTS * 3 * (64 << 10);

/// Nothing else happens on the loop.
static HELD: AtomicBool = AtomicBool::new(false);
/// Handlers read their bodies.
static OPEN: AtomicBool = AtomicBool::new(false);
/// Requests that wait, or have.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

async fn app(mut request: Request) -> Response {
    match request.path() {
        "/hold" => {
            HELD.store(true, Ordering::SeqCst);
            while HELD.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        "/wait" => {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            while !OPEN.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(20)).await;
            }
        }
        _ => {}
    }
    match request.body().collect(1 << 24).await {
        Ok(_) => Response::text("taken\n"),
        Err(_) => Response::status(400),
    }
}

/// Requests with bodies of so many bytes.
fn uploads(path: &str, bodies: usize, size: usize) -> Vec<u8> {
    let mut one = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n").into_bytes();
    one.resize(one.len() + size, b'u');
    one.repeat(bodies)
}

/// As much as a client may send before the server has given it more of a window.
fn streams(bodies: usize) -> Vec<u8> {
    let mut bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat();
    for number in 0..bodies {
        let (stream, size) = (number as u32 * 2 + 1, 65_535 / bodies);
        bytes.extend(frame(kind::HEADERS, flag::END_HEADERS, stream, &block("POST", "/wait")));
        bytes.extend(frame(kind::DATA, flag::END_STREAM, stream, &vec![b'u'; size]));
    }
    bytes
}

fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    line.unwrap().trim().parse::<usize>().unwrap() << 10
}

/// Waits until this holds.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no more bytes come in.
fn until_calm(server: &Handle) {
    let before = std::cell::Cell::new(u64::MAX);
    until("the server reads no more", || {
        std::thread::sleep(Duration::from_millis(300));
        before.replace(server.counts().bytes_in) == server.counts().bytes_in
    });
}

/// Each client sends `bytes`, which are so many requests for `/wait`, while the loop is held.
fn attack(
    server: &Handle,
    cert: Option<&CertificateDer<'static>>,
    bytes: &[u8],
    requests: usize,
    what: &str,
) {
    let http2 = bytes.starts_with(PREFACE);
    let mut clients: Vec<Wire> = (0..CLIENTS).map(|_| Wire::open(server.addr(), cert, http2)).collect();
    let mut bytes = bytes;
    if http2 {
        // The handshake of TLS is over before the loop is held.
        let (preface, rest) = bytes.split_at(PREFACE.len());
        clients.iter_mut().for_each(|client| client.send(preface));
        bytes = rest;
    } else {
        // The kernel makes the window of a client wide that was read from.
        for client in &mut clients {
            client.send(&uploads("/read", 1, 1 << 20));
            client.read_times(b"taken", 1);
        }
    }
    linerate_net::machine::return_free_memory();
    let before = (memory(), server.counts().bytes_in);
    let mut holds = Wire::open(server.addr(), cert, false);
    holds.send(b"GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    until("the loop is held", || HELD.load(Ordering::SeqCst));
    let sent: Vec<usize> = clients.iter_mut().map(|client| client.send_some(bytes)).collect();
    HELD.store(false, Ordering::SeqCst);
    until("all clients are read from", || BEGUN.load(Ordering::SeqCst) >= CLIENTS);
    until_calm(server);
    let read = (server.counts().bytes_in - before.1) as usize;
    assert!(read < BOUND, "{what}: {} kB were read", read >> 10);
    // Over xdp there is more: what the kernel keeps for other sockets, user-space TCP keeps in this process.
    if server.addr().ip().is_loopback() {
        let grown = memory().saturating_sub(before.0);
        assert!(grown < BOUND, "{what}: {} kB", grown >> 10);
    }
    OPEN.store(true, Ordering::SeqCst);
    for (mut client, sent) in clients.into_iter().zip(sent) {
        client.send(&bytes[sent..]);
        client.read_times(b"taken", requests);
    }
    OPEN.store(false, Ordering::SeqCst);
    BEGUN.store(0, Ordering::SeqCst);
}

#[test]
fn bodies_that_wait_keep_to_the_limit_in_every_way() {
    let options = ServerOptions { threads: 1, ..ServerOptions::default() };
    in_every_way(
        options,
        |options| spawn_with(options, || app),
        |server, cert, http2| {
            let tls = if cert.is_some() { "TLS" } else { "clear" };
            if http2 {
                return attack(server, cert, &streams(16), 16, &format!("HTTP/2, {tls}"));
            }
            let pipelined = uploads("/wait", 64, MANY / 64);
            attack(server, cert, &uploads("/wait", 1, MANY), 1, &format!("one body, {tls}"));
            attack(server, cert, &pipelined, 64, &format!("64 bodies, {tls}"));
        },
    );
}
