//! The kinds of clients. Each call is one connection, or a few; an error says what was lost or
//! wrong.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::wire::{SoakConnection, SoakResponse, get, pattern};

/// Facts that each client needs.
#[derive(Debug)]
pub(super) struct SoakTurn {
    pub(super) at: SocketAddr,
    /// Differs from call to call.
    pub(super) number: usize,
}

/// The results of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Did {
    pub(super) connections: u64,
    /// Responses that came, whole and right.
    pub(super) answers: u64,
}

/// A kind of client.
#[derive(Clone, Copy)]
pub(super) struct ClientKind {
    pub(super) name: &'static str,
    /// How many of them at once.
    pub(super) threads: usize,
    pub(super) call: fn(&SoakTurn) -> Result<u64>,
    /// Connections of a call.
    pub(super) connections: u64,
}

const fn kind(
    name: &'static str,
    threads: usize,
    connections: u64,
    call: fn(&SoakTurn) -> Result<u64>,
) -> ClientKind {
    ClientKind { name, threads, call, connections }
}

/// All of them.
pub(super) const KINDS: &[ClientKind] = &[
    kind("keep-alive", 3, 1, keep_alive),
    kind("pipelined x 32", 2, 1, pipelined),
    kind("short connections", 2, 1, short),
    kind("a request byte by byte", 2, 1, trickled),
    kind("heads that never end", 2, 10, endless_heads),
    kind("slow readers", 2, 1, slow_reader),
    kind("gone in mid-answer (reset)", 2, 1, reset),
    kind("half closed", 2, 1, half_closed),
    kind("bad requests", 1, 1, bad),
    kind("bodies of megabytes, with a length", 1, 1, large_body),
    kind("bodies of megabytes, in chunks", 1, 1, chunked_body),
    kind("bodies that are not sent to the end", 1, 1, cut_body),
    kind("files, ranges, conditions", 2, 1, files),
    kind("opened and closed without a word", 1, 50, churn),
];

const PAUSE: Duration = Duration::from_millis(2);

fn right(answer: &SoakResponse, body: &[u8]) -> Result<u64> {
    ensure!(answer.status == 200, "not 200 but {}", answer.head);
    ensure!(answer.body == body, "a wrong body of {} bytes, not {}", answer.body.len(), body.len());
    Ok(1)
}

fn keep_alive(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    let mut answers = 0;
    for i in 0..100 {
        let size = (i * 37 + t.number) % 5000;
        client.get(&format!("/bytes/{size}"))?;
        answers += right(&client.must()?, &pattern(size))?;
    }
    client.get("/delay/5")?;
    Ok(answers + right(&client.must()?, b"waited\n")?)
}

fn pipelined(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    let mut answers = 0;
    for batch in 0..20 {
        let asked = |i: usize| match (i + t.number) % 8 {
            0 if i < 8 => ("/delay/3".to_owned(), b"waited\n".to_vec()),
            1 => ("/".to_owned(), b"Hello, World!\n".to_vec()),
            _ => (format!("/bytes/{}", i * 50 + batch), pattern(i * 50 + batch)),
        };
        client.send((0..32).map(|i| get(&asked(i).0)).collect::<String>())?;
        for i in 0..32 {
            answers += right(&client.must()?, &asked(i).1)?;
        }
    }
    Ok(answers)
}

fn short(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    client.send("GET / HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")?;
    let answer = client.must()?;
    ensure!(answer.closes(), "not told that it closes");
    client.ends(false)?;
    right(&answer, b"Hello, World!\n")
}

fn trickled(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    for byte in get("/bytes/700").bytes() {
        client.send([byte])?;
        std::thread::sleep(PAUSE);
    }
    right(&client.must()?, &pattern(700))
}

/// They get 408 when their time is over, and are closed; one more byte now and then does
/// not help.
fn endless_heads(t: &SoakTurn) -> Result<u64> {
    let mut clients = (0..10).map(|_| SoakConnection::connect(t.at)).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: soak\r\nX-Long: ")?;
    }
    for client in &mut clients {
        for _ in 0..3 {
            std::thread::sleep(PAUSE * 5);
            client.send("y")?;
        }
    }
    for client in &mut clients {
        let answer = client.must()?;
        ensure!(answer.status == 408 && answer.closes(), "not 408 but {}", answer.head);
        client.ends(true)?;
    }
    Ok(10)
}

fn slow_reader(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    client.get("/bytes/3000000")?;
    client.get("/stream/5000")?;
    std::thread::sleep(Duration::from_millis(100 + (t.number % 10) as u64 * 50));
    let answers = right(&client.must()?, &pattern(3_000_000))?;
    std::thread::sleep(Duration::from_millis(100));
    let stream = client.must()?;
    ensure!(stream.body.iter().filter(|b| **b == b'\n').count() == 5000, "not 5000 lines");
    Ok(answers + 1)
}

/// Dropped with bytes unread, or before the response: the kernel sends a reset.
fn reset(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    let path = ["/bytes/8000000", "/stream/100000", "/delay/50", "/large.txt"][t.number % 4];
    client.send(get(path).repeat(1 + t.number % 5))?;
    if path != "/delay/50" {
        let mut first = [0; 100];
        std::io::Read::read_exact(&mut client.stream, &mut first)?;
    }
    Ok(0)
}

fn half_closed(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    client.send(get("/delay/4") + &get("/bytes/40000") + &get("/echo").repeat(3))?;
    client.half_close()?;
    let mut answers = right(&client.must()?, b"waited\n")? + right(&client.must()?, &pattern(40_000))?;
    for _ in 0..3 {
        let answer = client.must()?;
        ensure!(answer.status == 200, "not 200 but {}", answer.head);
        answers += 1;
    }
    client.ends(false)?;
    Ok(answers)
}

fn bad(t: &SoakTurn) -> Result<u64> {
    let long = format!("GET / HTTP/1.1\r\nHost: soak\r\nX: {}\r\n\r\n", "y".repeat(40_000));
    let requests: [(&str, u16); 8] = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: soak\n\n", 400),
        ("GET  / HTTP/1.1\r\nHost: soak\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: soak\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: soak\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: soak\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (&long, 431),
    ];
    let (request, status) = requests[t.number % requests.len()];
    let mut client = SoakConnection::connect(t.at)?;
    // Earlier requests get their responses all the same.
    client.get("/bytes/10")?;
    client.send(request)?;
    let answers = right(&client.must()?, &pattern(10))?;
    let answer = client.must()?;
    ensure!(answer.status == status && answer.closes(), "not {status} but {}", answer.head);
    client.ends(true)?;
    Ok(answers + 1)
}

fn large_body(t: &SoakTurn) -> Result<u64> {
    let body = pattern(2_000_000 + t.number % 1000);
    let mut client = SoakConnection::connect(t.at)?;
    client.send(format!("POST /echo HTTP/1.1\r\nHost: soak\r\nContent-Length: {}\r\n\r\n", body.len()))?;
    for piece in body.chunks(100_000) {
        client.send(piece)?;
    }
    right(&client.must()?, &body)
}

fn chunked_body(t: &SoakTurn) -> Result<u64> {
    let body = pattern(1_000_000 + t.number % 1000);
    let mut client = SoakConnection::connect(t.at)?;
    client.send(
        "POST /upper HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    )?;
    let go = client.answer(true)?;
    ensure!(go.is_some_and(|a| a.status == 100), "no 100 Continue");
    for piece in body.chunks(7_000) {
        client.send(format!("{:x}\r\n", piece.len()))?;
        client.send(piece)?;
        client.send("\r\n")?;
    }
    client.send("0\r\nX-Trailer: there\r\n\r\n")?;
    right(&client.must()?, &body.to_ascii_uppercase())
}

fn cut_body(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    client.send("POST /echo HTTP/1.1\r\nHost: soak\r\nContent-Length: 1000000\r\n\r\n")?;
    client.send(pattern(500_000))?;
    if t.number.is_multiple_of(2) {
        client.half_close()?;
        // 400 or no response: only 200 would be wrong.
        ensure!(client.answer(false)?.is_none_or(|a| a.status == 400), "half a body was taken for a whole");
    }
    Ok(0)
}

fn files(t: &SoakTurn) -> Result<u64> {
    let mut client = SoakConnection::connect(t.at)?;
    client.get("/large.txt")?;
    let whole = client.must()?;
    right(&whole, &pattern(super::FILE))?;
    let tag = whole.head.split("\r\netag: ").nth(1).and_then(|e| e.split('\r').next()).unwrap_or_default();
    client.send(format!("GET /large.txt HTTP/1.1\r\nHost: soak\r\nIf-None-Match: {tag}\r\n\r\n"))?;
    ensure!(client.must()?.status == 304, "not 304");
    client.send("GET /large.txt HTTP/1.1\r\nHost: soak\r\nRange: bytes=100-199\r\n\r\n")?;
    let part = client.must()?;
    ensure!(part.status == 206 && part.body == pattern(super::FILE)[100..200], "a wrong part: {}", part.head);
    client.send("HEAD /large.txt HTTP/1.1\r\nHost: soak\r\n\r\n")?;
    let head = client.answer(true)?;
    ensure!(head.is_some_and(|a| a.status == 200), "no answer to HEAD");
    client.get("/../secret")?;
    let out = client.must()?;
    ensure!(matches!(out.status, 400 | 404), "out of the directory: {}", out.head);
    Ok(5)
}

fn churn(t: &SoakTurn) -> Result<u64> {
    let all = (0..50).map(|_| SoakConnection::connect(t.at)).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(PAUSE * (t.number % 5) as u32);
    drop(all);
    Ok(0)
}
