//! Large files that are read slowly or not at all, in memory and in virtual time.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::mem::{Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{ListenOptions, Time, Transport};
use linerate_serve::{FileRoot, Handler, Limits, Server};

const NEVER: Option<Duration> = Some(Duration::from_secs(3600));

/// Asks once; reads a piece, then nothing for so long.
#[derive(Clone)]
struct Reader {
    fields: &'static str,
    reads_every: Option<Duration>,
    received: Arc<Mutex<u64>>,
}

impl Reader {
    fn new(fields: &'static str, reads_every: Option<Duration>) -> Reader {
        Reader { fields, reads_every, received: Arc::default() }
    }

    fn received(&self) -> u64 {
        *self.received.lock().unwrap()
    }
}

impl Peer for Reader {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let request = format!("GET /file HTTP/1.1\r\nHost: h\r\n{}\r\n", self.fields);
        out.send_after(Duration::ZERO, conn, request.into_bytes());
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        *self.received.lock().unwrap() += bytes.len() as u64;
        if let Some(pause) = self.reads_every {
            out.pause(conn);
            out.resume_after(pause, conn);
        }
    }

    fn ended(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        out.close(conn);
    }

    fn failed(&mut self, _: Time, _: PeerConn, _: &mut PeerActions) {}
}

fn at() -> SocketAddr {
    "10.0.0.1:80".parse().unwrap()
}

/// A server of one file of this many bytes.
fn server(window: usize, bytes: u64) -> (Server<Mem, impl Handler>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    // Written, so that it is in memory: what is not is read on other threads, in real time.
    std::fs::write(dir.path().join("file"), vec![0; bytes as usize]).unwrap();
    let files = FileRoot::open(dir.path()).unwrap().files();
    let handler = move |request| files.clone().answer(request);
    let transport = Mem::new(MemOptions { window, ..MemOptions::default() }).unwrap();
    let mut server = Server::new(transport, handler, Limits::default());
    server.listen(at(), &ListenOptions::default()).unwrap();
    (server, dir)
}

/// Runs for so long, in virtual time.
fn run<H: Handler>(server: &mut Server<Mem, H>, ms: u64) {
    let until = server.transport().now() + Duration::from_millis(ms);
    while server.transport().now() < until {
        server.turn(Some(until)).unwrap();
    }
}

#[test]
fn many_that_read_nothing_do_not_use_up_memory_and_one_that_reads_has_its_whole_file() {
    const FILE: u64 = 3_000_000;
    let window = 10_000;
    let (mut server, _dir) = server(window, FILE);
    for i in 0..1000 {
        // Half of them want nothing behind it, so that theirs is over for the server once it is handed over.
        let fields = ["", "Range: bytes=0-200000\r\nConnection: close\r\n"][i % 2];
        server.transport().dial(at(), Reader::new(fields, NEVER));
    }
    run(&mut server, 5);
    let handed = server.counts().bytes_out;
    assert!((64 << 20..(64 << 20) + 1000 * (32_000 + window as u64)).contains(&handed), "{handed}");
    let fast = Reader::new("", None);
    server.transport().dial(at(), fast.clone());
    run(&mut server, 2_000);
    assert!(fast.received() > FILE, "{}", fast.received());
    // Once these are gone there is room for others.
    run(&mut server, 60_000);
    assert_eq!(server.open(), 1);
    let before = server.counts().bytes_out;
    server.transport().dial(at(), Reader::new("", NEVER));
    run(&mut server, 5);
    assert!(server.counts().bytes_out - before > 256 << 10);
}

/// Handlers that wait respond with their files all at once.
#[test]
fn files_of_handlers_that_waited_take_few_descriptors() {
    const FILE: usize = 300_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; FILE]).unwrap();
    let files = FileRoot::open(dir.path()).unwrap().files();
    let handler = move |request| {
        let files = files.clone();
        async move {
            linerate_serve::sleep(Duration::from_millis(100)).await;
            files.answer(request).await
        }
    };
    let mut server = Server::new(Mem::new(MemOptions::default()).unwrap(), handler, Limits::default());
    server.listen(at(), &ListenOptions::default()).unwrap();
    let more = "\r\nGET /file HTTP/1.1\r\nHost: h\r\n".repeat(63).leak();
    let client = Reader::new(more, Some(Duration::from_millis(1)));
    server.transport().dial(at(), client.clone());
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        files.filter(|fd| std::fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to == path)).count()
    };
    let mut most = 0;
    let until = server.transport().now() + Duration::from_secs(60);
    while client.received() < 64 * FILE as u64 && server.transport().now() < until {
        server.turn(Some(until)).unwrap();
        most = most.max(open());
    }
    assert!(client.received() > 64 * FILE as u64, "{}", client.received());
    assert!((2..=16).contains(&most), "{most} open files");
}

#[test]
fn one_that_reads_slowly_and_steadily_is_not_cut() {
    let (mut server, _dir) = server(1000, 200_000);
    let slow = Reader::new("", Some(Duration::from_millis(500)));
    server.transport().dial(at(), slow.clone());
    run(&mut server, 200_000);
    assert!(slow.received() > 200_000, "{}", slow.received());
}
