//! Many connections at once. Needs enough file descriptors; the largest test needs root and a
//! network namespace.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_skips::{need, skip};

use serving::{PATIENCE, Server, serve, started, transports};

const HELLO: &[u8] = b"Hello, World!\n";

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    while !answer.ends_with(HELLO) {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..n]);
    }
}

fn resident_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors_allowed() -> u64 {
    linerate_net::machine::raise_nofile().unwrap()
}

/// 10,000 idle connections and 1,000 busy ones on one thread: the idle ones cost little and stay
/// usable.
#[test]
fn ten_thousand_idle_and_a_thousand_busy_on_one_thread() {
    const IDLE: usize = 10_000;
    if descriptors_allowed() < IDLE as u64 + 1_200 {
        return skip(need::OPEN_FILES, "ulimit -n is too low for 10,000 idle connections");
    }
    for io in transports() {
        let server = serve(&["--io", io, "--threads", "1", "--idle-timeout", "10m"]);
        let mut idle: Vec<TcpStream> = Vec::with_capacity(IDLE);
        let before = resident_kb(&server);
        for _ in 0..IDLE {
            let mut stream = server.connect();
            ask(&mut stream);
            idle.push(stream);
        }
        let each = (resident_kb(&server) - before) as f64 / IDLE as f64;
        println!("{io}: {each:.2} kB of the server's memory for each");
        // A debug build's bookkeeping is larger; what must not be is a buffer for each.
        assert!(each < 8.0, "{io}: {each} kB for each idle connection");
        let url = format!("http://{}/", server.address);
        let load = Command::new(assert_cmd::cargo::cargo_bin!("linerate"))
            .args(["load", &url, "-c", "1000", "-n", "20000", "--quiet", "--check", "errors<=0"])
            .output()
            .unwrap();
        let said = [load.stdout, load.stderr].concat();
        assert!(load.status.success(), "{io}: {}", String::from_utf8_lossy(&said));
        idle.iter_mut().step_by(97).for_each(ask);
        let stats = server.get("/stats");
        assert!(stats.contains(&format!("\"open\":{},", IDLE + 1)), "{io}: {stats}");
        assert_eq!(server.stop().0, Some(0));
    }
}

/// The heap keeps what was freed; once the peak is over it goes back to the system.
#[test]
fn memory_goes_back_when_slow_readers_have_left() {
    const READERS: usize = 1_000;
    if descriptors_allowed() < READERS as u64 + 200 {
        return skip(need::OPEN_FILES, "ulimit -n is too low for 1,000 slow readers");
    }
    for io in transports() {
        let server = serve(&["--io", io, "--threads", "2"]);
        let before = resident_kb(&server);
        let readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(b"GET /bytes/4000000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
                stream
            })
            .collect();
        // It holds what the kernel does not take, some 64 MiB for each thread.
        let begin = Instant::now();
        let mut most = 0;
        while most < before + (100 << 10) {
            assert!(begin.elapsed() < PATIENCE, "{io}: only {most} kB are held of {READERS} responses");
            std::thread::sleep(Duration::from_millis(20));
            most = most.max(resident_kb(&server));
        }
        drop(readers);
        let begin = Instant::now();
        let mut left = most;
        while left > before + (most - before) / 4 {
            assert!(begin.elapsed() < PATIENCE, "{io}: {left} kB are kept of {most}, {before} at the start");
            std::thread::sleep(Duration::from_millis(50));
            left = resident_kb(&server);
            most = most.max(left);
        }
        println!("{io}: {before} kB, {most} with slow readers, {left} without");
        assert_eq!(server.stop().0, Some(0));
    }
}

/// Sockets of TCP in use in the network namespace of a process.
fn sockets_in_use(pid: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/sockstat")).unwrap();
    let line = text.lines().find(|l| l.starts_with("TCP:")).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// More connections to one port than a client address has ports: from five addresses, with one
/// client each. Over io_uring one process needs a `ulimit -n` of only 20,000, because its
/// descriptors are counted per thread. Over epoll four processes share the port.
#[test]
fn more_than_65535_connections_to_one_port() {
    let able = Command::new("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).output();
    if !able.is_ok_and(|o| o.status.success()) {
        return skip(need::NAMESPACES, "it takes root, unshare and ip");
    }
    if descriptors_allowed() < 20_000 {
        return skip(need::OPEN_FILES, "ulimit -n is below 20,000");
    }
    let all = "ip link set lo up && exec \"$0\" \"$@\"";
    for io in transports() {
        let (processes, flags) = match io {
            "uring" => (1, ["--threads", "5"].as_slice()),
            _ => (4, ["--threads", "1", "--share-port"].as_slice()),
        };
        let mut servers: Vec<Server> = Vec::new();
        for _ in 0..processes {
            let mut command = match servers.first() {
                None => Command::new("unshare"),
                Some(first) => inside(first),
            };
            if servers.is_empty() {
                command.args(["-n", "sh", "-c", all]);
            }
            command.arg(assert_cmd::cargo::cargo_bin!("linerate"));
            command.args(["serve", "--listen", "127.0.0.1:8080", "--io", io, "--idle-timeout", "10m"]);
            command.args(flags);
            servers.push(started(command));
        }
        hold_many(io, servers);
    }
}

/// The command that starts a program in a server's network namespace.
fn inside(server: &Server) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", server.pid()));
    command
}

/// Connections in the accept queues of the server's network namespace.
fn waiting(server: &Server) -> usize {
    let out = inside(server).args(["ss", "-Hltn"]).output().unwrap();
    let queue = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok());
    String::from_utf8_lossy(&out.stdout).lines().filter_map(queue).sum()
}

fn hold_many(io: &str, servers: Vec<Server>) {
    const WANTED: usize = 65_536;
    const CLIENTS: usize = 5;
    const EACH: usize = 13_500;
    let resident = || servers.iter().map(resident_kb).sum::<u64>();
    let before = resident();
    let mut clients: Vec<Child> = (0..CLIENTS)
        .map(|i| {
            let mut load = inside(&servers[0]);
            load.arg(assert_cmd::cargo::cargo_bin!("linerate"));
            // At full speed the open connections would keep the cores from those that are opened.
            load.args([
                "load",
                "http://127.0.0.1:8080/",
                "--quiet",
                "-d",
                "10m",
                "--timeout",
                "5m",
                "-t",
                "1",
            ]);
            load.args(["--rate", "100", "-c", &EACH.to_string(), "--from", &format!("127.0.0.{}", i + 2)]);
            load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let (begin, mut most) = (Instant::now(), 0);
    // Both ends of a connection are in this namespace.
    while most < 2 * WANTED && begin.elapsed() < 8 * PATIENCE {
        most = most.max(sockets_in_use(servers[0].pid()));
        std::thread::sleep(Duration::from_millis(20));
    }
    // On a busy machine some are still in the accept queues.
    while waiting(&servers[0]) > 0 && begin.elapsed() < 8 * PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let each = (resident() - before) as f64 / (most / 2) as f64;
    println!(
        "{io}: {} connections, {} processes, after {:?}, {each:.2} kB of their memory for each",
        most / 2,
        servers.len(),
        begin.elapsed()
    );
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    assert!(most >= 2 * WANTED, "{io}: {most} sockets at once");
    assert!(each < 16.0, "{io}: {each} kB for each");
    let accepted = |server: Server| -> usize {
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{io}: {said}");
        said.split(' ').nth(4).unwrap().parse().unwrap()
    };
    let accepted: usize = servers.into_iter().map(accepted).sum();
    assert!(accepted >= WANTED, "{io}: {accepted}");
}
