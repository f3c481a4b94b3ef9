//! Attacks by HTTP/2: CPU time and memory stay bounded, and other clients get responses meanwhile.
#![allow(clippy::unwrap_used)]

mod serving;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serving::frames::{
    CALM, CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame,
};
use serving::{PATIENCE, Server, serve, transports};

/// Bytes that an attacker sends at most.
const MOST: usize = 64 << 20;
/// kB that an attack may cost, on a server that is not trimmed meanwhile.
const MEMORY: u64 = 48 << 10;

/// A server under attack, and another client of it.
struct Attacked {
    server: Arc<Server>,
    over: Arc<AtomicBool>,
    served: Arc<AtomicU32>,
    other: Option<std::thread::JoinHandle<()>>,
    memory: u64,
}

impl Attacked {
    fn begin(flags: &[&str]) -> Attacked {
        let server = Arc::new(serve(&[&["--threads", "1"], flags].concat()));
        let (over, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        assert!(server.get("/").ends_with("Hello, World!\n"));
        let memory = server.resident_kb();
        let (asked, stop, count) = (Arc::clone(&server), Arc::clone(&over), Arc::clone(&served));
        let other = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let begin = Instant::now();
                assert!(asked.get("/").ends_with("Hello, World!\n"));
                assert!(begin.elapsed() < PATIENCE / 3, "another client waits");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Attacked { server, over, served, other: Some(other), memory }
    }

    fn client(&self) -> Client {
        Client::new(&self.server)
    }

    /// Other clients were served, and memory is bounded.
    fn end(mut self) {
        let before = self.served.load(Ordering::Relaxed);
        let until = Instant::now() + PATIENCE;
        while self.served.load(Ordering::Relaxed) < before + 3 {
            assert!(Instant::now() < until, "another client is served no longer");
            std::thread::sleep(Duration::from_millis(1));
        }
        let grown = self.server.resident_kb().saturating_sub(self.memory);
        assert!(grown < MEMORY, "{grown} kB");
        self.over.store(true, Ordering::Relaxed);
        self.other.take().unwrap().join().expect("other clients are served");
    }

    fn floods(&self) -> u64 {
        self.server.stat("\"floods\":")
    }
}

impl Drop for Attacked {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn headers(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block("GET", path))
}

/// Reads until the connection ends, and expects that the server said why.
fn expect_calm(client: Client) {
    // After a reset the reason may be lost.
    if let Some(reason) = client.end() {
        assert_eq!(reason, CALM);
    }
}

/// CVE-2023-44487: requests that are cancelled at once.
#[test]
fn rapid_reset() {
    let attacked = Attacked::begin(&[]);
    let mut client = attacked.client();
    let mut sent = 0;
    for id in (1..200_001).step_by(2) {
        let mut bytes = headers(id, "/delay/60000");
        bytes.extend(frame(RST_STREAM, 0, id, &8u32.to_be_bytes()));
        sent += bytes.len();
        if client.send(&bytes).is_err() {
            break;
        }
    }
    assert!(sent < 200_000 * 20, "it goes on for ever");
    expect_calm(client);
    assert_eq!((attacked.floods(), attacked.server.stat("\"waiting\":")), (1, 0));
    attacked.end();
}

/// The same with handlers that have begun: each reset waits for its turn.
#[test]
fn resets_of_handlers_that_wait() {
    let attacked = Attacked::begin(&[]);
    let mut client = attacked.client();
    let mut asked = 0;
    for id in (1..20_001).step_by(2) {
        // The reply to the PING comes once the handler has begun.
        let mut bytes = headers(id, "/delay/60000");
        bytes.extend(frame(PING, 0, 0, &[0; 8]));
        if client.send(&bytes).is_err() {
            break;
        }
        let replied = std::iter::from_fn(|| client.next()).any(|f| f.kind == PING);
        if !replied || client.send(&frame(RST_STREAM, 0, id, &8u32.to_be_bytes())).is_err() {
            break;
        }
        asked += 1;
    }
    assert!((100..2000).contains(&asked), "{asked} requests were cancelled");
    expect_calm(client);
    assert_eq!((attacked.floods(), attacked.server.stat("\"waiting\":")), (1, 0));
    attacked.end();
}

/// CVE-2024-27316: a head without end.
#[test]
fn continuation_flood() {
    let attacked = Attacked::begin(&[]);
    let mut client = attacked.client();
    client.send(&frame(HEADERS, 0, 1, &block("GET", "/"))).unwrap();
    // A literal without indexing: a new name, 10 bytes; a value of 1000 bytes.
    let mut field = vec![0x00, 10];
    field.extend([b'x'; 10]);
    field.extend([0x7f, 0xe9, 0x06]);
    field.extend([b'y'; 1000]);
    let sent = client.flood(&frame(CONTINUATION, 0, 1, &field), MOST);
    assert!(sent < MOST);
    drop(client);
    // The same without a byte in them.
    let mut client = attacked.client();
    client.send(&frame(HEADERS, 0, 1, &block("GET", "/"))).unwrap();
    assert!(client.flood(&frame(CONTINUATION, 0, 1, &[]), MOST) < MOST);
    attacked.end();
}

/// CVE-2025-8671: the client makes the server reset streams whose handlers have begun.
#[test]
fn made_you_reset() {
    let attacked = Attacked::begin(&[]);
    let mut client = attacked.client();
    let mut resets = 0;
    for id in (1..20_001).step_by(2) {
        let mut bytes = headers(id, "/delay/60000");
        // A window that grows too large is an error of the stream (RFC 9113 section 6.9.1).
        bytes.extend(frame(WINDOW_UPDATE, 0, id, &0x7fff_ffffu32.to_be_bytes()));
        if client.send(&bytes).is_err() {
            break;
        }
        match std::iter::from_fn(|| client.next()).find(|f| matches!(f.kind, RST_STREAM)) {
            Some(_) => resets += 1,
            None => break,
        }
    }
    assert!((10..500).contains(&resets), "{resets} resets");
    expect_calm(client);
    assert_eq!((attacked.floods(), attacked.server.stat("\"waiting\":")), (1, 0));
    attacked.end();
}

/// CVE-2019-9512, 9515, 9513, 9518 and their like: frames that carry nothing, from a client that reads nothing.
#[test]
fn frames_that_carry_nothing() {
    let attacked = Attacked::begin(&[]);
    let begin = attacked.server.cpu();
    let kinds: &[(&str, Vec<u8>)] = &[
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 3, &[0, 0, 0, 0, 1])),
        ("an unknown kind", frame(0xbe, 0, 0, &[])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("empty DATA", frame(DATA, 0, 1, &[])),
    ];
    for (name, bytes) in kinds {
        let mut client = attacked.client();
        client.send(&frame(HEADERS, END_HEADERS, 1, &block("POST", "/echo"))).unwrap();
        let sent = client.flood(bytes, MOST);
        assert!(sent < MOST, "{name}");
    }
    assert!(attacked.floods() >= kinds.len() as u64 - 1, "{}", attacked.floods());
    let spent = attacked.server.cpu() - begin;
    assert!(spent < Duration::from_secs(20), "{spent:?}");
    attacked.end();
}

/// A header block of some kilobytes that stands for many megabytes (HPACK bomb, CVE-2016-6581).
#[test]
fn hpack_bomb() {
    let attacked = Attacked::begin(&[]);
    let mut client = attacked.client();
    for id in (1..41).step_by(2) {
        // A field of 4000 bytes enters the table; then it is named 16,000 times.
        let mut bomb = block("GET", "/");
        bomb.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
        bomb.extend([b'y'; 4000]);
        bomb.extend([0xbe; 12_000]);
        if client.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &bomb)).is_err() {
            break;
        }
    }
    let _ = client.send(&frame(PING, 0, 0, &[7; 8]));
    // Refused, stream by stream, or with the connection.
    let _ = std::iter::from_fn(|| client.next()).find(|f| f.kind == PING);
    assert_eq!(attacked.server.stat("\"HTTP/2.0\":"), 0);
    attacked.end();
}

/// A client that asks for much and lets nothing come: the window stays shut, or opens by a byte now and then.
#[test]
fn windows_that_stay_shut() {
    let attacked = Attacked::begin(&["--write-timeout", "2s"]);
    // SETTINGS_INITIAL_WINDOW_SIZE
    let mut client = Client::with(&attacked.server, &[(4, 0)]);
    for id in (1..257).step_by(2) {
        client.ask(id, "/bytes/30000");
    }
    // Of larger responses few are begun with.
    let mut greedy = Client::with(&attacked.server, &[(4, 0)]);
    for id in (1..257).step_by(2) {
        greedy.ask(id, "/bytes/2000000");
    }
    let mut slow = Client::with(&attacked.server, &[(4, 0)]);
    slow.ask(1, "/bytes/1000000");
    let ticking = slow.stream.try_clone().unwrap();
    let ticks = std::thread::spawn(move || {
        use std::io::Write;
        for _ in 0..40 {
            let tick = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
            if (&ticking).write_all(&tick).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let mut resets = 0;
    while resets < 128 {
        resets += usize::from(client.wait_for(RST_STREAM).stream > 0);
    }
    assert_eq!(slow.wait_for(RST_STREAM).stream, 1);
    // The connection is still good.
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])).unwrap();
    client.ask(301, "/");
    assert_eq!(client.wait_for(DATA).payload, b"Hello, World!\n");
    drop(client);
    drop(slow);
    drop(greedy);
    ticks.join().unwrap();
    attacked.end();
}

/// Heads that do not end, and connections on which nothing is asked.
#[test]
fn slow_heads() {
    let attacked = Attacked::begin(&["--header-timeout", "1s", "--idle-timeout", "1s"]);
    let begin = Instant::now();
    let mut begun = attacked.client();
    begun.send(&frame(HEADERS, 0, 1, &block("GET", "/"))).unwrap();
    let mut half = attacked.client();
    half.send(&headers(1, "/")[..12]).unwrap();
    let mut preface = attacked.server.connect();
    std::io::Write::write_all(&mut preface, b"PRI * HTTP/2.0\r\n\r\nSM").unwrap();
    let idle = attacked.client();
    for client in [begun, half, idle] {
        client.end();
    }
    preface.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut preface, &mut rest);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    attacked.end();
}

/// Files asked for behind shut windows take neither memory nor all descriptors, and other clients get theirs at once.
#[test]
fn files_behind_windows_that_stay_shut() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("large"), vec![b'l'; 1 << 20]).unwrap();
    for io in transports() {
        let server = serve(&["--threads", "1", "--io", io, "--dir", dir.path().to_str().unwrap()]);
        assert!(server.get("/large").ends_with("lll"));
        let (memory, files) = (server.resident_kb(), server.open_files());
        let mut asking = Vec::new();
        for _ in 0..20 {
            // SETTINGS_INITIAL_WINDOW_SIZE
            let mut client = Client::with(&server, &[(4, 0)]);
            (1..257).step_by(2).for_each(|id| client.ask(id, "/large"));
            asking.push(client);
        }
        for client in &mut asking {
            (0..128).for_each(|_| assert_eq!(client.wait_for(HEADERS).flags, END_HEADERS));
        }
        let begin = Instant::now();
        assert!(server.get("/large").ends_with("lll"));
        assert!(begin.elapsed() < PATIENCE / 3, "another client waits");
        let (grown, opened) = (server.resident_kb().saturating_sub(memory), server.open_files() - files);
        assert!(grown < 20 << 10, "over {io}: {grown} kB");
        assert!(opened <= 20 * 18, "over {io}: {opened} files");
    }
}
