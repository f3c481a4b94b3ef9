//! Reloads of nginx: old workers keep their connections, and new ones get the queues.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use linerate_skips::program_for;

use super::packaged::{HAPROXY, NGINX, PackagedServer, SECURE_NGINX, ServerClient, ServerWire};
use super::workers::{owners, packaged, signal, wait_for_owners};
use super::*;

/// Reloads and waits until new workers serve, `count` of all so far. Returns the new ones.
fn reload(server: &PreloadedProgram, count: usize) -> Vec<u32> {
    reload_by(NGINX.reload, server, count)
}

pub(super) fn reload_by(with: &str, server: &PreloadedProgram, count: usize) -> Vec<u32> {
    let before = owners(server).len();
    // A successor is one that asks later than this.
    thread::sleep(Duration::from_millis(500));
    signal(with, server.child.id());
    wait_for_owners(server, count).split_off(before)
}

/// Accepts so many connections and sends back what comes on them after the upgrade.
pub(super) fn backend(connections: usize) {
    let listener = TcpListener::bind(BACKEND).expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let mut stream = BufReader::new(stream.expect("a connection"));
            thread::spawn(move || {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    stream.read_line(&mut line).expect("a request");
                }
                let upgraded = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
                stream.get_mut().write_all(upgraded.as_bytes()).expect("sent");
                let mut bytes = [0; 512];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if stream.get_mut().write_all(&bytes[..len]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// A connection through the server that lasts.
pub(super) struct Tunnel(BufReader<ServerWire>);

impl Tunnel {
    fn open() -> Tunnel {
        Tunnel::through(ServerWire::Plain(connected()))
    }

    pub(super) fn through(wire: ServerWire) -> Tunnel {
        let mut stream = BufReader::new(wire);
        let request = "GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.get_mut().write_all(request.as_bytes()).expect("sent");
        let mut line = String::new();
        stream.read_line(&mut line).expect("a response");
        assert!(line.starts_with("HTTP/1.1 101"), "{line}");
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).expect("a head");
        }
        let mut tunnel = Tunnel(stream);
        tunnel.echoes();
        tunnel
    }

    fn echoes(&mut self) {
        self.echoes_bytes(b"echo");
    }

    pub(super) fn echoes_bytes(&mut self, sent: &[u8]) {
        self.0.get_mut().write_all(sent).expect("sent");
        let mut bytes = vec![0; sent.len()];
        self.0.read_exact(&mut bytes).expect("an echo");
        assert!(bytes == sent, "{} bytes", sent.len());
    }

    /// Waits for its reset, in silence.
    fn is_reset(&mut self) {
        let error = self.0.read(&mut [0]).expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }

    fn port(&self) -> u16 {
        self.0.get_ref().port()
    }
}

/// Whether the kernel has the connection of this peer's port.
fn is_of_the_kernel(cable: &Cable, port: u16) -> bool {
    let (ours, theirs) = (format!(":{:04X} ", AT.port()), format!(":{port:04X} "));
    let table = cable.ours.must("cat /proc/net/tcp /proc/net/tcp6");
    table.lines().any(|line| line.contains(&ours) && line.contains(&theirs) && line.contains(" 01 "))
}

/// Waits until no worker but those that serve is left, nor its interface.
fn wait_for_the_old(cable: &Cable, old: &[u32]) {
    let begin = Instant::now();
    let left = || {
        old.iter().any(|old| Path::new(&format!("/proc/{old}")).exists())
            || cable.ours.must("ip link show").contains(": linerate")
    };
    while left() {
        assert!(begin.elapsed() < PATIENCE, "{}", cable.ours.must("ip link show"));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Requests on a connection, which nginx may close between two of them, and a client then tries again.
pub(super) fn kept_alive(of: &ServerClient, served: &AtomicUsize, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let mut client = BufReader::new(of.connected());
        for n in 0.. {
            let request = client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let is_there = request.is_ok() && client.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
            if !is_there {
                assert!(n > 0, "the first request of a connection has no response");
                break;
            }
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                client.read_line(&mut head).expect("a line");
            }
            head.make_ascii_lowercase();
            let mut body = [0; 600];
            client.read_exact(&mut body).expect("a body");
            served.fetch_add(1, Ordering::Relaxed);
            if head.contains("connection: close") || ends.load(Ordering::Relaxed) {
                break;
            }
        }
    }
}

/// Short and kept connections that never fail; returns how many requests of both kinds there were while
/// `during` ran. With TLS also a download over HTTP/2. Not short ones: nginx closes those that have no request
/// yet, over the kernel's TCP too.
fn under_load(cable: &Cable, of: &ServerClient, during: impl FnOnce()) -> [usize; 2] {
    let (short, kept, ends) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let curl = of.is_secure().then(|| program_for("HTTP/2", "curl")).flatten();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                cable.theirs.enter();
                while !ends.load(Ordering::Relaxed) {
                    assert_eq!(of.get("/"), [b'x'; 600]);
                    short.fetch_add(1, Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                cable.theirs.enter();
                kept_alive(of, &kept, &ends);
            });
        }
        if let Some(curl) = &curl {
            scope.spawn(|| {
                cable.theirs.enter();
                // About as long as the reloads take.
                assert!(of.get_by_curl(curl, "/file", 8 << 20) == pattern(20 << 20));
            });
        }
        // A failure in it ends the load too.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        ends.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    [short.into_inner(), kept.into_inner()]
}

/// Tunnels and a download outlive three reloads under load, and each new generation serves in user space.
fn reloads_under_load(of: &PackagedServer, workers: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((behind, command)) = of.commands(folder.path(), AT, workers) else { return };
    let Some(cable) = Cable::new(workers as u32) else { return };
    cable.ours.run(|| backend(12));
    let _behind = behind.map(|command| PreloadedProgram::start(&cable, command, false));
    let server = PreloadedProgram::start(&cable, command, true);
    let client = of.client(folder.path(), AT);
    let mut all = wait_for_owners(&server, workers);
    let open = || Tunnel::through(client.connected());
    let (mut tunnels, mut slow) = cable.theirs.run(|| {
        let mut slow = BufReader::new(client.connected());
        slow.get_mut().write_all(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        ((0..3).map(|_| open()).collect::<Vec<_>>(), slow)
    });
    let counts = under_load(&cable, &client, || {
        for generation in 2..=4 {
            all.extend(reload_by(of.reload, &server, workers * generation));
            cable.theirs.run(|| {
                tunnels.iter_mut().for_each(Tunnel::echoes);
                tunnels.push(open());
            });
            let port = tunnels.last().expect("one").port();
            assert!(
                !is_of_the_kernel(&cable, port),
                "a new worker serves from the kernel: {}",
                server.said()
            );
        }
        assert!(body(&mut slow) == pattern(20 << 20));
        tunnels.iter_mut().for_each(Tunnel::echoes);
        thread::sleep(Duration::from_millis(300));
    });
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    drop((tunnels, slow));
    let new = all.split_off(workers * 3);
    wait_for_the_old(&cable, &all);
    cable.theirs.run(|| {
        let _open = client.connected();
        assert_eq!((client.get("/").len(), of_the_kernel(&cable)), (600, 0));
    });
    let said = server.said();
    assert!(new.iter().all(|new| Path::new(&format!("/proc/{new}")).exists()), "{said}");
    assert!(!said.contains("[alert]") && !said.contains("a fault of ours"), "{said}");
}

#[test]
fn a_reload_refuses_and_resets_nothing() {
    reloads_under_load(&NGINX, 1);
}

#[test]
fn several_workers_are_replaced_one_by_one() {
    reloads_under_load(&NGINX, 2);
}

#[test]
fn a_reload_of_nginx_with_tls_refuses_and_resets_nothing() {
    reloads_under_load(&SECURE_NGINX, 1);
}

#[test]
fn a_reload_of_haproxy_refuses_and_resets_nothing() {
    reloads_under_load(&HAPROXY, 1);
}

#[test]
fn the_end_of_one_generation_leaves_the_others_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = packaged(folder.path(), 1) else { return };
    let Some(cable) = Cable::new(1) else { return };
    cable.ours.run(|| backend(12));
    let server = PreloadedProgram::start(&cable, command, true);
    let first = wait_for_owners(&server, 1)[0];
    let open = || cable.theirs.run(Tunnel::open);
    let mut of_first = open();
    let second = reload(&server, 2)[0];
    let mut of_second = open();
    let third = reload(&server, 3)[0];
    let mut of_third = open();
    signal("-KILL", third);
    let begin = Instant::now();
    of_third.is_reset();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    of_first.echoes();
    of_second.echoes();
    // The master starts another worker, which gets the queue.
    wait_for_owners(&server, 4);
    let mut of_fourth = open();
    assert!(!is_of_the_kernel(&cable, of_fourth.port()));
    signal("-KILL", first);
    let begin = Instant::now();
    of_first.is_reset();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    of_second.echoes();
    of_fourth.echoes();
    drop(of_second);
    wait_for_the_old(&cable, &[first, second, third]);
    of_fourth.echoes();
}

#[test]
fn the_oldest_of_too_many_generations_is_reset() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = packaged(folder.path(), 1) else { return };
    let Some(cable) = Cable::new(1) else { return };
    cable.ours.run(|| backend(12));
    let server = PreloadedProgram::start(&cable, command, true);
    wait_for_owners(&server, 1);
    let mut tunnels = vec![cable.theirs.run(Tunnel::open)];
    for generation in 2..=5 {
        reload(&server, generation);
        tunnels.push(cable.theirs.run(Tunnel::open));
        tunnels.iter_mut().for_each(Tunnel::echoes);
    }
    reload(&server, 6);
    tunnels.remove(0).is_reset();
    tunnels.iter_mut().for_each(Tunnel::echoes);
    assert!(
        server.said().contains("more reloads came than old connections may outlive"),
        "{}",
        server.said()
    );
}
