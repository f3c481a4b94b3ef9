//! How `linerate load` gets to real servers: over Unix sockets, to other addresses, with the PROXY protocol.

mod common;
mod issued;
mod real;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

use linerate_skips::{need, skip};

use common::{HELLO, measured, number, run, until};
use issued::Issued;
use real::{Server, find, finish_nginx, folder, free_port, nginx_tls, nginx_with, written};

/// Ways of sending, with connections that are kept and connections for one request.
const WAYS: [&str; 7] = [
    "-c 4 --io epoll",
    "-c 4 --io uring",
    "-c 4 -p 8 --io epoll",
    "-c 4 --per-connection 1 --io epoll",
    "-c 4 --per-connection 1 --io uring",
    "-c 4 --way threads",
    "-c 4 --way async",
];

/// Runs `load` with these words and says how many were answered with 200.
fn answered(words: &str, more: &[&str]) -> u64 {
    let words: Vec<&str> = words.split(' ').chain(more.iter().copied()).collect();
    let (document, said) = measured(&words);
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.err);
    document["status"]["200"].as_u64().unwrap_or_default()
}

#[test]
fn nginx_over_a_unix_socket() {
    for way in WAYS.iter().chain(&["--way poll"]) {
        let Some(server) = nginx_with("", "listen unix:s.sock;") else { return };
        let socket = server.file("s.sock").display().to_string();
        let more = ["-n", "200", "--unix-socket", &socket, "--expect-body", "hello", "http://h.example/"];
        assert_eq!(answered(way, &more), 200, "{way}");
        assert_eq!(finish_nginx(server), 200, "{way}");
    }
}

#[test]
fn node_and_socat_over_unix_sockets_see_the_host_of_the_url() {
    let source = "const answer = (request, response) => response.end(request.headers.host + request.url);
require('http').createServer(answer).listen('s.sock', () =>
  require('http').createServer(answer).listen({port}, '127.0.0.1'));
";
    let Some(server) = written("node", &[], "server.js", source) else { return };
    let socket = server.file("s.sock").display().to_string();
    let more = ["-n", "50", "--expect-body", "h.example:8080/x", "--unix-socket"];
    for way in WAYS {
        assert_eq!(answered(way, &[&more[..], &[&socket, "http://h.example:8080/x"]].concat()), 50, "{way}");
    }
    let Some(socat) = find("socat") else { return };
    let relay = server.file("relay.sock").display().to_string();
    let listen = format!("UNIX-LISTEN:{relay},fork");
    let mut child =
        Command::new(socat).args([&listen, &format!("TCP:{}", server.address)]).spawn().expect("it starts");
    until("socat's socket", || std::os::unix::net::UnixStream::connect(&relay).is_ok());
    assert_eq!(answered(WAYS[0], &[&more[..], &[&relay, "http://h.example:8080/x"]].concat()), 50);
    let _ = child.kill();
    let _ = child.wait();
}

/// The kernel has room for one connection that is not accepted, and says so to all others.
#[test]
fn a_full_accept_queue_is_waited_for() {
    let dir = folder();
    let path = dir.path().join("s.sock");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&socket2::SockAddr::unix(&path).expect("a path")).expect("bound");
    socket.listen(1).expect("it listens");
    let listener: UnixListener = std::os::fd::OwnedFd::from(socket).into();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(HELLO.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let socket = path.display().to_string();
    for way in ["--io epoll", "--io uring", "--way threads", "--way async"] {
        let words = ["-c", "40", "-n", "400", "--per-connection", "1", "--unix-socket", &socket, "http://h/"];
        assert_eq!(answered(way, &words), 400, "{way}");
    }
}

/// Large bodies, which TCP's sockets are asked to discard unread.
#[test]
fn large_bodies_over_a_unix_socket() {
    let Some(server) = nginx_with("", "listen unix:s.sock; location = /big { root .; }") else { return };
    std::fs::write(server.file("big"), vec![b'x'; 3_000_000]).expect("written");
    let socket = server.file("s.sock").display().to_string();
    for way in WAYS {
        let words: Vec<&str> = way.split(' ').collect();
        let more = ["-n", "24", "--unix-socket", &socket, "http://h/big"];
        let (document, said) = measured(&[&words[..], &more].concat());
        assert_eq!(said.code, Some(0), "{way}: {}", said.err);
        assert_eq!(document["status"]["200"], 24, "{way}: {document}");
        assert!(number(&document, "/bytes/received") >= 72_000_000, "{way}: {}", document["bytes"]);
    }
}

#[test]
fn https_over_a_unix_socket() {
    let issued = Issued::to("h.example");
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, "listen unix:s.sock ssl;") else { return };
    let (socket, cacert) = (server.file("s.sock").display().to_string(), issued.file("cert.pem"));
    for way in WAYS {
        let more = ["-n", "60", "--cacert", &cacert, "--unix-socket", &socket, "https://h.example/"];
        assert_eq!(answered(way, &more), 60, "{way}");
    }
}

#[test]
fn a_unix_socket_that_is_not_there() {
    for way in ["--io epoll", "--io uring", "--way threads", "--way async"] {
        let words: Vec<&str> = way.split(' ').collect();
        let more = ["-n", "4", "--unix-socket", "/nowhere/s.sock", "http://h/"];
        let said = run(&[&["load"], &words[..], &more].concat());
        assert_eq!(said.code, Some(3), "{way}: {}{}", said.out, said.err);
        assert!(said.out.contains("GET http://h/ over the Unix socket /nowhere/s.sock"), "{}", said.out);
        let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("No such file or directory"), "{way}: {words}");
    }
}

#[test]
fn connect_to_and_resolve_leave_host_and_certificate_those_of_the_url() {
    let issued = Issued::to("h.example");
    let lines = "location = /host { return 200 '$ssl_server_name $http_host'; }";
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, lines) else { return };
    let (port, cacert) = (server.address.port(), issued.file("cert.pem"));
    let rules = [
        vec!["--connect-to".to_owned(), format!("h.example:443:127.0.0.1:{port}")],
        vec!["--connect-to".to_owned(), format!("::127.0.0.1:{port}")],
        vec!["--connect-to".to_owned(), "other:443:127.0.0.9:9".to_owned()],
    ];
    for rule in [&rules[0], &rules[1], &[rules[2].clone(), rules[0].clone()].concat()] {
        let mut more = vec!["-n", "20", "--cacert", &cacert, "--expect-body", "h.example h.example"];
        more.extend(rule.iter().map(String::as_str));
        more.push("https://h.example/host");
        assert_eq!(answered(WAYS[0], &more), 20, "{rule:?}");
        assert_eq!(answered(WAYS[5], &more), 20, "{rule:?}");
    }
    let rule = format!("h.example:443:elsewhere.example:{port}");
    let resolve = format!("elsewhere.example:{port}:127.0.0.1");
    let more =
        ["-n", "20", "--cacert", &cacert, "--connect-to", &rule, "--resolve", &resolve, "https://h.example/"];
    assert_eq!(answered(WAYS[0], &more), 20, "--resolve is for what is connected to");
    let url = format!("https://h.example:{port}/");
    let several = [format!("*:{port}:127.0.0.9"), format!("h.example:{port}:[::1],127.0.0.1")];
    let more =
        ["-n", "20", "--cacert", &cacert, "--resolve", &several[0], "--resolve", &several[1], "-4", &url];
    assert_eq!(answered(WAYS[0], &more), 20, "a name of its own comes before *");
}

#[test]
fn flags_that_cannot_be_are_refused() {
    let long = format!("/{}", "x".repeat(107));
    for (flags, expected) in [
        ("--unix-socket /s --proxy p:1 http://h/", "--proxy is about addresses"),
        ("--unix-socket /s --connect-to ::g: http://h/", "--connect-to is about addresses"),
        ("--unix-socket /s --from 127.0.0.1 http://h/", "--from is about addresses"),
        (
            "--unix-socket /s --io xdp --interface lo http://h/",
            "a Unix socket (--unix-socket) is the kernel's",
        ),
        ("--unix-socket LONG http://h/", "a path has 1 to 107 bytes, not 108"),
        ("--connect-to g:80:127.0.0.1:1 http://h/", "no --connect-to is for h:80"),
        ("--connect-to g:80:127.0.0.1 http://h/", "HOST1:PORT1:HOST2:PORT2"),
        ("--resolve +h:80:127.0.0.1 http://h/", "leave out the +"),
        ("--proxy socks5://p:1 http://h/", "a proxy of the kind \"socks5\" is not spoken to"),
        ("--proxy https://p:1 http://h/", "TLS with the proxy itself is not spoken"),
        (
            "--proxy p:1 --explain --resolve p:1:127.0.0.1 http://h/",
            "--explain calls the server over TCP alone",
        ),
        ("--haproxy-protocol=v3 http://127.0.0.1/", "invalid value 'v3'"),
    ] {
        let flags = flags.replace("LONG", &long);
        let said = run(&["load", "-n", "1"].into_iter().chain(flags.split(' ')).collect::<Vec<_>>());
        assert_eq!(said.code, Some(2), "{flags}: {}{}", said.out, said.err);
        assert!(said.err.contains(expected), "{flags}: {}", said.err);
    }
}

/// nginx says in each answer who the PROXY protocol says the client is.
#[test]
fn nginx_reads_the_line_of_the_proxy_protocol() {
    let lines = "location = /who { return 200 '$proxy_protocol_addr $proxy_protocol_server_port'; }";
    for way in WAYS {
        for version in ["--haproxy-protocol", "--haproxy-protocol=v1", "--haproxy-protocol=v2"] {
            let Some(server) = nginx_with("proxy_protocol", lines) else { return };
            let (url, expected) = (server.url("/who"), format!("127.0.0.1 {}", server.address.port()));
            assert_eq!(answered(way, &["-n", "40", version, "--expect-body", &expected, &url]), 40, "{way}");
            assert_eq!(finish_nginx(server), 40, "{way} {version}");
        }
    }
}

#[test]
fn tls_begins_behind_the_line_of_the_proxy_protocol() {
    let issued = Issued::to("h.example");
    let lines = "listen PORT2 ssl proxy_protocol; location = /who { return 200 '$proxy_protocol_addr'; }";
    let port = free_port().port();
    let lines = lines.replace("PORT2", &format!("127.0.0.1:{port}"));
    let Some(_server) = nginx_tls(&issued.certificate, &issued.key, &lines) else { return };
    let (cacert, url) = (issued.file("cert.pem"), format!("https://h.example:{port}/who"));
    let resolve = format!("h.example:{port}:127.0.0.1");
    for way in WAYS {
        let more = ["-n", "40", "--haproxy-protocol", "--cacert", &cacert, "--resolve", &resolve];
        assert_eq!(answered(way, &[&more[..], &["--expect-body", "127.0.0.1", &url]].concat()), 40, "{way}");
    }
}

#[test]
fn haproxy_reads_the_line_of_the_proxy_protocol() {
    let Some(program) = find("haproxy") else { return };
    let (dir, address) = (folder(), free_port());
    let configuration = format!(
        "defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend f
  bind {address} accept-proxy
  http-request return status 200 content-type text/plain lf-string \"from %[src] to %[dst_port]\"
"
    );
    std::fs::write(dir.path().join("haproxy.cfg"), configuration).expect("written");
    let mut command = Command::new(program);
    command.args(["-db", "-f", "haproxy.cfg"]);
    let server = Server::start(command, address, dir);
    let (url, expected) = (server.url("/"), format!("from 127.0.0.1 to {}", address.port()));
    for way in WAYS {
        for version in ["--haproxy-protocol=v1", "--haproxy-protocol=v2"] {
            assert_eq!(answered(way, &["-n", "40", version, "--expect-body", &expected, &url]), 40, "{way}");
        }
    }
}

/// The port in the line is the connection's own, on every transport.
#[test]
fn the_line_names_our_own_port() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let to = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let peer = stream.peer_addr().expect("connected");
            let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", peer.port(), to.port());
            thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                let answer =
                    if line == expected { HELLO } else { "HTTP/1.1 500 Wrong\r\nContent-Length: 0\r\n\r\n" };
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if !matches!(reader.read_line(&mut head), Ok(1..)) {
                            return;
                        }
                    }
                    if (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let url = format!("http://{to}/");
    for way in WAYS {
        assert_eq!(answered(way, &["-n", "40", "--haproxy-protocol", &url]), 40, "{way}");
    }
    let words = ["-n", "40", "-c", "4", "--haproxy-protocol", &url];
    let (document, _) = measured(&words);
    assert_eq!(document["plan"]["haproxy_protocol"], "v1");
    assert!(document["latency_us"]["tls"].is_null(), "nothing is a handshake here: {document}");
    assert_eq!(number(&document, "/latency_us/connect/count"), 4);
}

/// The name moves to another address while the run lasts, in a mount namespace that has a hosts file of its own.
#[test]
fn a_name_that_moves_is_looked_up_again() {
    let Some(unshare) = find("unshare") else { return };
    let probe = Command::new(&unshare).args(["-m", "true"]).status().expect("it runs");
    if !probe.success() {
        return skip(need::ROOT, "a mount namespace takes root");
    }
    let Some(first) = real::node() else { return };
    let port = first.address.port();
    let second = TcpListener::bind(("127.0.0.2", port)).expect("the same port of another address");
    let dir = folder();
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 moving.example\n").expect("written");
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let url = format!("http://moving.example:{port}/");
    let mut child = Command::new(unshare)
        .args(["-m", "sh", "-c", script])
        .arg(&hosts)
        .args([env!("CARGO_BIN_EXE_linerate"), "load", "-q", "-c", "4", "-d", "50s", "--json", "-", &url])
        .env_remove("http_proxy")
        .env_remove("all_proxy")
        .env_remove("ALL_PROXY")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    until("the first request", || first.get("/count").trim() != "0");
    std::fs::write(&hosts, "127.0.0.2 moving.example\n").expect("written");
    drop(first);
    let (mut stream, _) = second.accept().expect("it moves");
    assert!(stream.read(&mut [0; 4096]).expect("a request") > 0);
    stream.write_all(HELLO.as_bytes()).expect("it reads");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("it runs").success());
    let mut out = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    child.wait().expect("it ends");
    let document: serde_json::Value = serde_json::from_str(&out).expect("a document");
    assert!(number(&document, "/dns/looked_up_again") >= 1, "{}", document["dns"]);
    assert_eq!(document["dns"]["changed"], 1);
    assert_eq!(document["dns"]["addresses"][0], "127.0.0.2");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("addresses changed: 127.0.0.2"), "{warnings}");
}
