//! nginx, unchanged, on user-space TCP. Needs root and nginx.

#[path = "../../../crates/linerate-net/tests/namespaces/mod.rs"]
mod namespaces;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use linerate_skips::skip;

use namespaces::{Cable, OUR_V4, OURS};

const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(OUR_V4), 8080);

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The library, beside this program.
fn library() -> PathBuf {
    let program = env::current_exe().expect("a program");
    program.parent().expect("a folder").join("liblinerate_bench_bypass.so")
}

fn nginx(cable: &Cable, folder: &std::path::Path) -> Nginx {
    let body = "x".repeat(600);
    let config = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log;
        events {{ multi_accept on; worker_connections 2048; }}
        http {{ access_log off; sendfile off;
            client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0};
            scgi_temp_path {0};
            server {{ listen {AT} backlog=1024; location /file {{ root {0}; }}
                location / {{ return 200 \"{body}\"; }} }} }}",
        folder.display()
    );
    fs::write(folder.join("nginx.conf"), config).expect("a file");
    fs::write(folder.join("file"), vec![b'y'; 3 << 20]).expect("a file");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(folder.join("nginx.conf")).stderr(Stdio::piped());
    command.env("LD_PRELOAD", library()).env("LINERATE_BYPASS", OURS);
    let mut child = cable.ours.run(|| command.spawn().expect("nginx starts"));
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let nginx = Nginx(child);
    let mut said = String::new();
    while !said.contains("is served by user-space TCP") {
        assert!(lines.read_line(&mut said).expect("words") > 0, "it ended: {said}");
    }
    thread::spawn(move || lines.read_to_string(&mut String::new()));
    nginx
}

fn connected() -> TcpStream {
    let stream = TcpStream::connect_timeout(&AT, Duration::from_secs(20)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream
}

/// The body of the next response.
fn body(reader: &mut BufReader<TcpStream>) -> Vec<u8> {
    let (mut line, mut len) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "it closed the connection");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).expect("all of it");
    body
}

#[test]
fn nginx_serves_without_the_kernels_tcp() {
    if Command::new("nginx").arg("-v").output().is_err() {
        return skip("nginx", "nginx is not installed");
    }
    let Some(cable) = Cable::new(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let _nginx = nginx(&cable, folder.path());
    cable.theirs.run(|| {
        let mut kept: Vec<_> = (0..200).map(|_| BufReader::new(connected())).collect();
        for _ in 0..3 {
            for client in &mut kept {
                client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            }
            for client in &mut kept {
                assert_eq!(body(client), [b'x'; 600]);
            }
        }
        // Far more than a send buffer, and a reader that comes late.
        let mut slow = BufReader::new(connected());
        slow.get_mut().write_all(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        thread::sleep(Duration::from_millis(300));
        assert!(body(&mut slow) == [b'y'; 3 << 20]);
        for _ in 0..200 {
            let mut client = BufReader::new(connected());
            client
                .get_mut()
                .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .expect("sent");
            assert_eq!(body(&mut client), [b'x'; 600]);
            assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        }
        // Descriptors are used again, and the kernel has no connection of all these.
        let sockets = cable.ours.must("cat /proc/net/tcp");
        assert!(!sockets.contains(":1F90 "), "{sockets}");
    });
}
