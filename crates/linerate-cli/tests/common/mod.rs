//! What the tests of the command share: the command itself, and servers that misbehave.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use serde_json::Value;

/// Compares with the stored text.
#[allow(unused_macros, reason = "each test file uses its part")]
macro_rules! snapshot {
    ($text:expr) => {
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!($text);
        })
    };
}

/// The command, in surroundings that don't depend on who runs the tests. It is killed after a minute.
pub(crate) fn linerate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command
        .args(args)
        .env("LANG", "C.UTF-8")
        .env_remove("LC_ALL")
        .env_remove("LC_CTYPE")
        .env_remove("COLUMNS");
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").timeout(Duration::from_secs(60));
    command
}

/// What a run of it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs it.
pub(crate) fn run(args: &[&str]) -> Said {
    let output = linerate(args).output().expect("it runs");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The command with the folder of this program first in PATH.
pub(crate) fn linerate_with(program: &Path, args: &[&str]) -> Command {
    let folder = program.parent().expect("a program is in a folder").to_owned();
    let inherited = std::env::var_os("PATH").expect("there is a PATH");
    let folders = std::iter::once(folder).chain(std::env::split_paths(&inherited));
    let mut command = linerate(args);
    command.env("PATH", std::env::join_paths(folders).expect("folders of PATH"));
    command
}

/// Runs `load` with `--json -` and without a live view; the document and the rest.
pub(crate) fn measured(args: &[&str]) -> (Value, Said) {
    let mut all = vec!["load", "--quiet", "--json", "-"];
    all.extend_from_slice(args);
    let said = run(&all);
    let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    (document, said)
}

/// A number in a document.
pub(crate) fn number(document: &Value, pointer: &str) -> u64 {
    document.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} in {document:#}"))
}

/// A port on which no server listens: taken once, given back.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port")
}

/// How long a test's server waits for a client: one that waits for bytes that never come fails its test instead of holding it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what must come, at most [`PATIENCE`].
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A server that does `with` each connection; it lives as long as the test.
pub(crate) fn server(with: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let with = with.clone();
            let limits = [stream.set_read_timeout(Some(PATIENCE)), stream.set_write_timeout(Some(PATIENCE))];
            limits.into_iter().for_each(|set| set.expect("a time limit"));
            thread::spawn(move || with(stream));
        }
    });
    address
}

/// A server that reads the head of each request and answers with `answer`.
pub(crate) fn answering(answer: &'static str) -> SocketAddr {
    responding(move |stream| stream.write_all(answer.as_bytes()))
}

/// A server that reads the head of each request and lets `respond` do the rest.
pub(crate) fn responding(
    respond: impl FnMut(&mut TcpStream) -> std::io::Result<()> + Clone + Send + 'static,
) -> SocketAddr {
    server(move |mut stream| {
        let mut respond = respond.clone();
        let mut unread = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            unread.extend_from_slice(&buffer[..n]);
            while let Some(end) = unread.windows(4).position(|w| w == b"\r\n\r\n") {
                unread.drain(..end + 4);
                if respond(&mut stream).is_err() {
                    return;
                }
            }
        }
    })
}

/// Says something at once and then nothing more, without closing.
pub(crate) fn greeting(text: &'static str) -> SocketAddr {
    server(move |mut stream| {
        let _ = stream.write_all(text.as_bytes());
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    })
}

/// A whole answer.
pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";

/// One answer: its head, and its body by Content-Length.
pub(crate) fn answer(from: &mut impl BufRead) -> (String, Vec<u8>) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(from.read_line(&mut head).expect("a line") > 0, "cut off behind {head:?}");
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|l| l.strip_prefix("content-length:")).expect("a length");
    let mut body = vec![0; length.trim().parse().expect("a number")];
    from.read_exact(&mut body).expect("the body");
    (head, body)
}
