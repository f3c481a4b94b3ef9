//! Limits for each client, and proxies that say for whom they ask.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_skips::{need, skip};

use serving::{PATIENCE, Server, serve, started};

/// Sends bytes and reads to the end.
fn say(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn with(fields: &str) -> Vec<u8> {
    format!("GET /status/204 HTTP/1.1\r\nHost: h\r\n{fields}Connection: close\r\n\r\n").into_bytes()
}

/// Whether a connection from this address is served.
fn is_served(server: &Server, from: &str) -> Option<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from: std::net::SocketAddr = format!("{from}:0").parse().unwrap();
    socket.bind(&from.into()).unwrap();
    let to: std::net::SocketAddr = server.address.parse().unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(b"GET /status/204 HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut byte = [0];
    matches!(stream.read(&mut byte), Ok(1)).then_some(stream)
}

#[test]
fn one_client_has_so_many_connections_and_others_have_theirs() {
    let server = serve(&["--max-connections-per-client", "3", "--threads", "2"]);
    let mut open: Vec<_> = (0..3).map(|_| is_served(&server, "127.0.0.1").unwrap()).collect();
    for _ in 0..3 {
        assert!(is_served(&server, "127.0.0.1").is_none());
    }
    assert!(is_served(&server, "127.0.0.2").is_some());
    // Once one is closed there is room for another.
    open.pop();
    let until = Instant::now() + PATIENCE;
    while is_served(&server, "127.0.0.1").is_none() {
        assert!(Instant::now() < until, "a closed connection still counts");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn one_client_may_ask_so_often() {
    let server = serve(&["--max-rate-per-client", "0.1/s", "--trusted-proxy", "127.0.0.1"]);
    let of = |client: &str| say(&server, &with(&format!("X-Forwarded-For: {client}\r\n")));
    assert!(of("192.0.2.1").starts_with("HTTP/1.1 204"));
    let refused = of("192.0.2.1");
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    let wait = refused.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=10).contains(&wait.parse::<u64>().unwrap()), "{refused}");
    assert!(of("192.0.2.2").starts_with("HTTP/1.1 204"));
    // A body that the handler does not read must not block the connection's next request.
    let upload = say(
        &server,
        b"POST /upper HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 4\r\n\r\nbody\
          GET /status/204 HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.3\r\nConnection: close\r\n\r\n",
    );
    assert!(upload.starts_with("HTTP/1.1 429") && upload.contains("HTTP/1.1 204"), "{upload}");
}

/// A server whose access log is standard output, as JSON.
fn logging(flags: &[&str]) -> (Server, std::path::PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--threads", "1", "--log-format", "common"]);
    command.arg("--access-log").arg(&log).args(flags);
    (started(command), log, dir)
}

/// The clients that the log names.
fn clients(server: Server, log: &std::path::Path) -> Vec<String> {
    server.stop();
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn only_trusted_proxies_speak_for_others() {
    let (server, log, _dir) = logging(&["--trusted-proxy", "127.0.0.0/8", "--trusted-proxy", "10.0.0.0/8"]);
    say(&server, &with("X-Forwarded-For: 1.1.1.1, 192.0.2.1, 10.0.0.5\r\n"));
    say(&server, &with("Forwarded: for=\"[2001:db8::7]:80\"\r\nX-Forwarded-For: 1.1.1.1\r\n"));
    say(&server, &with("Forwarded: for=\"[2001:db8::7]:80\"\r\n"));
    say(&server, &with(""));
    assert_eq!(clients(server, &log), ["192.0.2.1", "127.0.0.1", "2001:db8::7", "127.0.0.1"]);
    let (server, log, _dir) = logging(&["--trusted-proxy", "10.0.0.0/8"]);
    say(&server, &with("X-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\n"));
    assert_eq!(clients(server, &log), ["127.0.0.1"]);
}

#[test]
fn the_proxy_protocol() {
    let (server, log, _dir) = logging(&["--trusted-proxy", "127.0.0.1", "--proxy-protocol"]);
    let first = b"PROXY TCP4 192.0.2.1 192.0.2.9 50000 80\r\n".to_vec();
    let mut second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    second.extend_from_slice(&[192, 0, 2, 2, 192, 0, 2, 9, 0xc3, 0x50, 0, 80]);
    for preface in [&first, &second] {
        assert!(say(&server, &[preface, &with("")[..]].concat()).starts_with("HTTP/1.1 204"));
        // In pieces, with the request behind it on the same connection.
        let mut stream = server.connect();
        for byte in [preface, &with("")[..]].concat() {
            stream.write_all(&[byte]).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
    assert!(say(&server, b"PROXY UNKNOWN\r\nGET /status/204 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 204"));
    for wrong in [&with("")[..], b"PROXY TCP4 x\r\nGET / HTTP/1.1\r\n\r\n"] {
        assert!(say(&server, wrong).starts_with("HTTP/1.1 400"));
    }
    let of_proxy = ["127.0.0.1"; 3];
    assert_eq!(
        clients(server, &log),
        [&["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"][..], &of_proxy].concat()
    );
    // From any other client the preface is not a valid request.
    let (server, _log, _dir) = logging(&["--trusted-proxy", "10.0.0.1", "--proxy-protocol"]);
    assert!(say(&server, &[&first, &with("")[..]].concat()).starts_with("HTTP/1.1 400"));
    assert!(say(&server, &with("")).starts_with("HTTP/1.1 204"));
}

/// Wherever a proxy's header breaks off, its connection ends and others continue.
#[test]
fn prefaces_that_break_off() {
    let (server, log, _dir) = logging(&["--trusted-proxy", "127.0.0.1", "--proxy-protocol"]);
    let first = b"PROXY TCP4 192.0.2.1 192.0.2.9 50000 80\r\n".to_vec();
    let second =
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[192, 0, 2, 2, 192, 0, 2, 9, 1, 2, 0, 80]].concat();
    for preface in [&first, &second] {
        for cut in 0..=preface.len() {
            let mut stream = server.connect();
            stream.write_all(&preface[..cut]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert!(answer.is_empty(), "{cut}: {}", String::from_utf8_lossy(&answer));
        }
    }
    assert!(say(&server, &[&first, &with("")[..]].concat()).starts_with("HTTP/1.1 204"));
    assert_eq!(clients(server, &log), ["192.0.2.1"]);
}

#[test]
fn clients_behind_the_proxy_protocol_have_their_limit() {
    let flags = ["--trusted-proxy", "127.0.0.1", "--proxy-protocol", "--max-connections-per-client", "1"];
    let (server, _log, _dir) = logging(&flags);
    let asks = |client: &str| {
        let mut stream = server.connect();
        let request = "GET /status/204 HTTP/1.1\r\nHost: h\r\n\r\n";
        stream.write_all(format!("PROXY TCP4 {client} 192.0.2.9 50000 80\r\n{request}").as_bytes()).unwrap();
        matches!(stream.read(&mut [0]), Ok(1)).then_some(stream)
    };
    let open = asks("192.0.2.1").unwrap();
    assert!(asks("192.0.2.1").is_none() && asks("192.0.2.2").is_some());
    drop(open);
    let until = Instant::now() + PATIENCE;
    while asks("192.0.2.1").is_none() {
        assert!(Instant::now() < until, "a closed connection still counts");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.stop();
}

/// Binds as root, and serves as another user on all threads.
#[test]
fn the_server_becomes_another_user_once_it_listens() {
    if !rustix::process::geteuid().is_root() {
        return skip(need::ROOT, "only root can become another user");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("open"), "open").unwrap();
    std::fs::write(dir.path().join("closed"), "closed").unwrap();
    let mode = |name: &str, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir.path().join(name), permissions).unwrap();
    };
    mode("", 0o755);
    mode("open", 0o644);
    mode("closed", 0o600);
    let server = serve(&["--dir", dir.path().to_str().unwrap(), "--user", "nobody", "--threads", "2"]);
    assert!(server.get("/open").ends_with("open"));
    assert!(server.get("/closed").starts_with("HTTP/1.1 403"));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let mut seen = 0;
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let uids = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap();
        assert!(uids.split_whitespace().all(|uid| uid != "0"), "{uids}");
        let capabilities = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap();
        assert_eq!(capabilities.trim().trim_start_matches('0'), "", "none is left");
        for ids in ["Gid:", "Groups:"] {
            let ids = status.lines().find_map(|l| l.strip_prefix(ids)).unwrap();
            assert!(ids.split_whitespace().all(|gid| gid != "0"), "{ids}");
        }
        seen += 1;
    }
    assert!(seen >= 3);
}
