//! Programs, unchanged, on user-space TCP. Needs root, and the programs.

mod launcher;
#[path = "programs/lossy.rs"]
mod lossy;
#[path = "programs/mixed.rs"]
mod mixed;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
#[path = "programs/packaged.rs"]
mod packaged;
#[path = "programs/reloads.rs"]
mod reloads;
#[path = "programs/workers.rs"]
mod workers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use linerate_skips::program;

use launcher::TestLauncher;
use namespaces::{Cable, OUR_V4, OURS};

const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(OUR_V4), 8080);
/// What nginx passes WebSockets to.
const BACKEND: &str = "127.0.0.1:18090";
const PATIENCE: Duration = Duration::from_secs(60);

/// A program with the library, and what it writes.
struct PreloadedProgram {
    child: Child,
    output: tempfile::NamedTempFile,
    _launcher: Option<TestLauncher>,
}

impl PreloadedProgram {
    /// Starts a program in our namespace. `with`: whether its connections are ours, or all is the
    /// kernel's.
    fn start(cable: &Cable, command: Command, with: bool) -> PreloadedProgram {
        cable.ours.run(|| PreloadedProgram::start_here(command, with.then_some((OURS, AT))))
    }

    /// The same in this thread's namespace, with an interface and the address of connections that are ours.
    fn start_here(mut command: Command, ours: Option<(&str, SocketAddr)>) -> PreloadedProgram {
        let output = tempfile::NamedTempFile::new().expect("a file");
        command
            .stdin(Stdio::null())
            .stdout(output.reopen().expect("it"))
            .stderr(output.reopen().expect("it"));
        command.env("LD_PRELOAD", library()).env_remove("LINERATE_BYPASS");
        let launcher = ours.map(|(interface, at)| TestLauncher::start(interface, at, &mut command));
        let child = command.spawn().expect("it starts");
        let mut server = PreloadedProgram { child, output, _launcher: launcher };
        if ours.is_some() {
            // What connects before that is the kernel's, and is reset.
            server.wait_for("is served by TCP in user space");
        }
        server
    }

    fn said(&self) -> String {
        fs::read_to_string(self.output.path()).expect("what it wrote")
    }

    /// Waits until it has written this.
    fn wait_for(&mut self, words: &str) {
        let begin = Instant::now();
        while !self.said().contains(words) {
            let ended = self.child.try_wait().expect("its state");
            assert!(ended.is_none(), "it ended without {words}: {}", self.said());
            assert!(begin.elapsed() < PATIENCE, "no {words} in {}", self.said());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PreloadedProgram {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.said());
        }
        // nginx's master ends its workers.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let begin = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begin.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The library, beside this program.
fn library() -> PathBuf {
    let program = env::current_exe().expect("a program");
    program.parent().expect("a folder").join("liblinerate_bypass.so")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name)
}

fn connected() -> TcpStream {
    connected_to(AT)
}

/// Connects as soon as somebody listens.
fn connected_to(at: SocketAddr) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect_timeout(&at, Duration::from_secs(20)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).expect("set");
                return stream;
            }
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The body of the next response.
fn body(reader: &mut BufReader<impl Read>) -> Vec<u8> {
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

fn get(path: &str) -> Vec<u8> {
    let mut client = BufReader::new(connected());
    write!(client.get_mut(), "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    body(&mut client)
}

/// Bytes that repeat nowhere near.
fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The kernel's own connections to the port, of those that live.
fn of_the_kernel(cable: &Cable) -> usize {
    cable.ours.run(|| kernel_connections(AT.port()))
}

/// The same in this thread's namespace.
fn kernel_connections(port: u16) -> usize {
    let port = format!(":{port:04X}");
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[1].ends_with(&port) && words[3] == "01"
    };
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")));
    tables.iter().flatten().flat_map(|table| table.lines()).filter(|line| of(line)).count()
}

fn nginx(folder: &Path, how: &str) -> Option<Command> {
    nginx_at(folder, how, &format!("{AT} backlog=4096"))
}

/// `listen`: where it listens, and more of its server's settings.
fn nginx_at(folder: &Path, how: &str, listen: &str) -> Option<Command> {
    let nginx = program("nginx")?;
    let config = format!(
        "daemon off; {how} pid {0}/pid; error_log stderr;
        events {{ worker_connections 4096; }}
        http {{ access_log {0}/access.log; sendfile on; tcp_nopush on;
            client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0};
            scgi_temp_path {0};
            server {{ listen {listen}; location /file {{ root {0}; }}
                location /socket {{ proxy_pass http://{BACKEND}; proxy_http_version 1.1;
                    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
                location / {{ return 200 \"{1}\"; }} }} }}",
        folder.display(),
        "x".repeat(600),
    );
    fs::write(folder.join("nginx.conf"), config).expect("a file");
    fs::write(folder.join("file"), pattern(20 << 20)).expect("a file");
    let mut command = Command::new(nginx);
    command.arg("-c").arg(folder.join("nginx.conf"));
    Some(command)
}

#[test]
fn nginx_serves_from_user_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = nginx(folder.path(), "master_process off;") else { return };
    let Some(cable) = Cable::new(1) else { return };
    let server = PreloadedProgram::start(&cable, command, true);
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
        assert_eq!(of_the_kernel(&cable), 0);
        // Far more than a send buffer, and a reader that comes late.
        let mut slow = BufReader::new(connected());
        slow.get_mut().write_all(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        thread::sleep(Duration::from_millis(300));
        assert!(body(&mut slow) == pattern(20 << 20));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    cable.theirs.enter();
                    (0..2500).for_each(|_| assert_eq!(get("/"), [b'x'; 600]));
                });
            }
        });
    });
    // The kernel's listener stays beside it, for this machine's own clients.
    cable.ours.run(|| assert_eq!(get("/"), [b'x'; 600]));
    let errors = server.said();
    assert!(!errors.contains("[alert]") && !errors.contains("[crit]"), "{errors}");
}

fn redis(folder: &Path, at: SocketAddr) -> Option<Command> {
    let mut command = Command::new(program("redis-server")?);
    let (ip, port) = (at.ip().to_string(), at.port().to_string());
    command.args([
        "--bind",
        &ip,
        "--port",
        &port,
        "--protected-mode",
        "no",
        "--save",
        "",
        "--daemonize",
        "no",
    ]);
    command.args(["--enable-debug-command", "yes", "--dir"]).arg(folder);
    Some(command)
}

/// Sends a command of redis in its protocol.
fn ask(client: &mut TcpStream, words: &[&[u8]]) {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    client.write_all(&bytes).expect("sent");
}

/// The next line of redis, and the value that it announces.
fn reply(client: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut line = String::new();
    client.read_line(&mut line).expect("a line");
    let Some(len) = line.strip_prefix('$') else { return line.trim_end().as_bytes().to_vec() };
    let mut value = vec![0; len.trim_end().parse::<usize>().expect("a length") + 2];
    client.read_exact(&mut value).expect("all of it");
    value.truncate(value.len() - 2);
    value
}

#[test]
fn redis_takes_an_upload_while_it_sleeps_and_saves_in_a_child() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = redis(folder.path(), AT) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let _server = PreloadedProgram::start(&cable, command, true);
    cable.theirs.run(|| {
        let value = pattern(20 << 20);
        let mut sleeper = BufReader::new(connected());
        let mut client = BufReader::new(connected());
        ask(client.get_mut(), &[b"PING"]);
        assert_eq!(reply(&mut client), b"+PONG");
        assert_eq!(of_the_kernel(&cable), 0);
        ask(sleeper.get_mut(), &[b"DEBUG", b"SLEEP", b"3"]);
        ask(client.get_mut(), &[b"SET", b"key", &value]);
        assert_eq!(reply(&mut sleeper), b"+OK");
        assert_eq!(reply(&mut client), b"+OK");
        ask(client.get_mut(), &[b"BGSAVE"]);
        assert_eq!(reply(&mut client), b"+Background saving started");
        ask(client.get_mut(), &[b"GET", b"key"]);
        assert!(reply(&mut client) == value);
        let begin = Instant::now();
        loop {
            ask(client.get_mut(), &[b"INFO", b"persistence"]);
            let info = String::from_utf8(reply(&mut client)).expect("text");
            if info.contains("rdb_bgsave_in_progress:0") {
                assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{info}");
            thread::sleep(Duration::from_millis(20));
        }
    });
}

fn python(arguments: &[&str]) -> Option<Command> {
    // Not a shim's script.
    let python = [Path::new("/usr/bin/python3")].into_iter().find(|file| file.exists());
    let mut command = Command::new(python.map_or_else(|| program("python3"), |file| Some(file.to_owned()))?);
    command.args(arguments);
    Some(command)
}

fn at() -> [String; 2] {
    [AT.ip().to_string(), AT.port().to_string()]
}

/// Bodies of several sizes come back, on connections at the same time.
fn echoes() {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| BufReader::new(connected())).collect();
        for mut client in clients {
            scope.spawn(move || {
                for len in [1, 1000, 3 << 20, 17] {
                    let sent = pattern(len);
                    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n");
                    client.get_mut().write_all(head.as_bytes()).expect("sent");
                    client.get_mut().write_all(&sent).expect("sent");
                    assert!(body(&mut client) == sent, "{len} bytes");
                }
            });
        }
    });
}

fn asyncio() -> Option<Command> {
    let [ip, port] = at();
    python(&[script("echo.py").to_str().expect("a name"), &ip, &port])
}

fn node() -> Option<Command> {
    let mut command = Command::new(program("node")?);
    command.arg(script("echo.js")).args(at());
    Some(command)
}

fn files(folder: &Path) -> Option<Command> {
    fs::write(folder.join("file"), pattern(3 << 20)).expect("a file");
    let [ip, port] = at();
    let mut command = python(&["-m", "http.server", &port, "--bind", &ip])?;
    command.current_dir(folder);
    Some(command)
}

fn echo_server_in_user_space(command: Option<Command>) {
    let Some(command) = command else { return };
    // One process has both receive queues.
    let Some(cable) = Cable::new(2) else { return };
    let _server = PreloadedProgram::start(&cable, command, true);
    cable.theirs.run(|| {
        echoes();
        let _open = connected();
        assert_eq!(of_the_kernel(&cable), 0);
    });
}

#[test]
fn asyncio_serves_from_user_space() {
    echo_server_in_user_space(asyncio());
}

#[test]
fn node_serves_from_user_space() {
    echo_server_in_user_space(node());
}

/// The program gets a listener, and does not listen itself.
#[test]
fn a_listener_from_before_the_program_is_in_user_space() {
    let [ip, port] = at();
    let file = script("inherited.py");
    let Some(command) = python(&[file.to_str().expect("a name"), &ip, &port]) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let _server = PreloadedProgram::start(&cable, command, true);
    cable.theirs.run(|| {
        let mut client = connected();
        let mut said = [0; 4];
        client.read_exact(&mut said).expect("a greeting");
        assert_eq!((&said, of_the_kernel(&cable)), (b"here", 0));
    });
}

#[test]
fn threads_of_python_serve_from_user_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = files(folder.path()) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let _server = PreloadedProgram::start(&cable, command, true);
    cable.theirs.run(|| {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    cable.theirs.enter();
                    assert!(get("/file") == pattern(3 << 20));
                });
            }
        });
    });
}

/// Runs the script of calls. `with`: on a connection of ours, or on the kernel's.
fn calls(with: bool) {
    let [ip, port] = at();
    let Some(command) = python(&[script("calls.py").to_str().expect("a name"), &ip, &port]) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let mut server = PreloadedProgram::start(&cable, command, with);
    cable.theirs.run(|| {
        let mut client = connected();
        let mut byte = [0];
        while client.read(&mut byte).expect("a byte") > 0 {
            client.write_all(b"0123456789").expect("sent");
        }
    });
    server.wait_for("done");
    assert_eq!(server.said().contains("has none of its connections"), with, "{}", server.said());
}

#[test]
fn the_script_of_calls_runs_on_the_kernel() {
    calls(false);
}

#[test]
fn calls_on_a_connection_answer_as_the_kernel_does() {
    calls(true);
}

#[test]
fn without_addresses_all_is_the_kernels() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = [asyncio(), node()].into_iter().flatten();
    for command in all {
        let Some(cable) = Cable::new(1) else { return };
        let _server = PreloadedProgram::start(&cable, command, false);
        cable.theirs.run(|| {
            let _open = connected();
            echoes();
            assert_eq!(of_the_kernel(&cable), 1);
        });
    }
    for how in ["master_process off;", "worker_processes 2;"] {
        let Some(command) = nginx(folder.path(), how) else { return };
        let Some(cable) = Cable::new(1) else { return };
        let _server = PreloadedProgram::start(&cable, command, false);
        cable.theirs.run(|| (0..50).for_each(|_| assert_eq!(get("/"), [b'x'; 600])));
    }
    let Some(command) = redis(folder.path(), AT) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let _server = PreloadedProgram::start(&cable, command, false);
    cable.theirs.run(|| {
        let mut client = BufReader::new(connected());
        ask(client.get_mut(), &[b"PING"]);
        assert_eq!(reply(&mut client), b"+PONG");
    });
}
