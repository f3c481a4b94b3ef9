//! The server in memory and in virtual time.
#![allow(clippy::unwrap_used)]

mod mem_client;

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use linerate_net::Time;
use linerate_net::mem::{Cut, Mem, MemOptions};
use linerate_serve::{BodyStream, CheckedFields, Limits, Request, RequestBody, Response, Server, sleep};
use proptest::prelude::*;

use mem_client::{Client, Seen, at, get, run};

thread_local! {
    /// Bodies that handlers passed to other code.
    static ELSEWHERE: RefCell<Vec<RequestBody>> = const { RefCell::new(Vec::new()) };
}

async fn app(mut request: Request) -> Response {
    let number = |request: &Request| request.query().and_then(|q| q.parse::<u64>().ok()).unwrap_or(0);
    match request.path() {
        "/" => Response::text("hello\n"),
        "/delay" => {
            let ms = number(&request);
            sleep(Duration::from_millis(ms)).await;
            Response::text(format!("waited {ms}\n"))
        }
        "/large" => Response::text(vec![b'x'; number(&request) as usize]),
        "/collect" => {
            let trailers = request.body().trailers();
            match request.body().collect(1 << 20).await {
                Ok(body) => {
                    Response::text(format!("{} bytes, {} trailers\n", body.len(), trailers.get().len()))
                }
                Err(error) => Response::text(format!("{error}\n")).closing(),
            }
        }
        "/sip" => {
            let mut pieces = 0;
            while let Some(Ok(piece)) = request.body().next().await {
                pieces += piece.len();
                sleep(Duration::from_millis(100)).await;
            }
            Response::text(format!("{pieces} bytes\n"))
        }
        "/panic" => panic!("as the test wants"),
        "/panic-later" => {
            sleep(Duration::from_millis(5)).await;
            panic!("as the test wants")
        }
        "/stream" => {
            Response::status(200).with_stream(Ticks { left: number(&request), sleep: None, fails: false })
        }
        // Other code has the body, and the response does not wait for it.
        "/elsewhere" => {
            ELSEWHERE.with_borrow_mut(|kept| kept.push(request.into_body()));
            Response::text("taken\n")
        }
        "/unwanted" => {
            drop(std::mem::take(request.body()));
            sleep(Duration::from_secs(1)).await;
            Response::text("unwanted\n")
        }
        "/give-back" => Response::status(200).with_stream(GiveBack(request.into_body())),
        "/grumble" => Response::status(200).with_stream(Grumble),
        "/fails" => Response::status(200).with_stream(Ticks { left: 2, sleep: None, fails: true }),
        "/bye" => Response::text("bye\n").closing(),
        _ => Response::status(404),
    }
}

/// `tick` every 10 ms, with a trailer; or a failure at the end.
struct Ticks {
    left: u64,
    sleep: Option<Pin<Box<linerate_serve::Sleep>>>,
    fails: bool,
}

impl BodyStream for Ticks {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        if self.left == 0 {
            return Poll::Ready(if self.fails { Some(Err("as the test wants".into())) } else { None });
        }
        let wait = self.sleep.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(10))));
        match wait.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.sleep = None;
                self.left -= 1;
                Poll::Ready(Some(Ok(Bytes::from_static(b"tick"))))
            }
        }
    }

    fn trailers(self: Pin<&mut Self>) -> Option<CheckedFields> {
        let mut fields = CheckedFields::new();
        fields.add("x-ticks", "done").unwrap();
        Some(fields)
    }
}

/// Echoes a request's body while it arrives.
struct GiveBack(RequestBody);

impl BodyStream for GiveBack {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        self.0.poll_next(context).map_err(Into::into)
    }
}

/// Never produces anything, and panics when it is dropped.
struct Grumble;

impl BodyStream for Grumble {
    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        Poll::Pending
    }
}

impl Drop for Grumble {
    fn drop(&mut self) {
        panic!("as the test wants");
    }
}

type App = fn(Request) -> Pin<Box<dyn Future<Output = Response>>>;

fn server(options: MemOptions, limits: Limits) -> Server<Mem, App> {
    let handler: App = |request| Box::pin(app(request));
    mem_client::server(options, handler, limits)
}

fn play_with(options: MemOptions, limits: Limits, client: Client, ms: u64) -> Seen {
    let mut server = server(options, limits);
    let seen = client.clone();
    server.transport().dial(at(), client);
    run(&mut server, ms);
    seen.seen()
}

fn play(client: Client, ms: u64) -> Seen {
    play_with(MemOptions::default(), Limits::default(), client, ms)
}

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}

#[test]
fn pipelined_answers_keep_their_order_and_handlers_run_beside_each_other() {
    let seen = play(
        Client::saying(get("/delay?50") + &get("/") + &get("/delay?20") + &get("/stream?2") + &get("/")),
        400,
    );
    assert_eq!(seen.codes(), ["200"; 5]);
    let mut order = ["waited 50", "hello", "waited 20", "tick"].map(|t| seen.text.find(t).unwrap()).to_vec();
    order.push(seen.text.rfind("hello").unwrap());
    assert!(order.is_sorted(), "{seen:?}");
    // The second wait was over when the first was: nothing waits twice.
    assert_eq!(seen.times.first(), Some(&50));
    assert_eq!(seen.times.last(), Some(&70));
}

#[test]
fn all_answers_of_a_read_leave_in_one_send() {
    let seen = play(Client::saying(get("/").repeat(50)), 10);
    assert_eq!(seen.codes().len(), 50);
    assert_eq!(seen.times.len(), 1, "one send");
}

/// Pipelines of many connections in one turn: each gets its own responses, in order, whatever
/// becomes of the others. Some have a response that waits, one that is large, one that closes, a
/// head that comes later, or are reset at once.
#[test]
fn answers_that_leave_together_stay_with_their_connections() {
    let mut server = server(MemOptions::default(), Limits::default());
    let middle = ["/delay?5", "/large?3000", "/large?100000", "/", "/bye", "/none"];
    let clients: Vec<(usize, Client)> = (0..60)
        .map(|i| {
            let line = |n: usize| get(&format!("/large?{}", 10 + n + i));
            let before: String = (0..6).map(line).collect();
            let client = Client::saying(before + &get(middle[i % middle.len()]) + &line(6) + "GET / HT")
                .then(if i % 7 == 0 { 20 } else { 0 }, "TP/1.1\r\nHost: h\r\n\r\n");
            (i, Client { resets: i % 10 == 9, ..client })
        })
        .collect();
    for (_, client) in &clients {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 1000);
    for (i, client) in &clients {
        let seen = client.seen();
        let bodies: Vec<usize> = seen
            .text
            .split("content-length: ")
            .skip(1)
            .map(|t| t.split('\r').next().unwrap().parse().unwrap())
            .collect();
        let mut expected: Vec<usize> = (0..6).map(|n| 10 + n + i).collect();
        expected.push([9, 3000, 100_000, 6, 4, 0][i % 6]);
        if i % 6 != 4 {
            expected.extend([16 + i, 6]);
        }
        if i % 10 == 9 {
            assert!(expected.starts_with(&bodies), "{i}: {bodies:?}");
        } else {
            assert_eq!(bodies, expected, "{i}");
        }
    }
    assert_eq!(server.counts().waiting, 0);
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind() {
    let mut server = server(MemOptions::default(), Limits::default());
    let texts = [
        get("/"),
        get("/delay?30"),
        get("/stream?5"),
        post("/collect", "Content-Length: 10\r\n", "half"),
        "GET".to_owned(),
    ];
    for text in texts {
        server.transport().dial(at(), Client::saying(text).fin());
    }
    run(&mut server, 1000);
    assert_eq!((server.counts().accepted, server.open(), server.counts().waiting), (5, 0, 0));
}

#[test]
fn slow_heads_end_with_408() {
    // A byte every second never reaches the end: the time counts from the first byte (slowloris).
    let mut client = Client::saying("GET / HT");
    for i in 1..60 {
        client = client.then(i * 1000, "x");
    }
    let seen = play(client, 20_000);
    assert_eq!(seen.codes(), ["408"]);
    assert!(seen.text.contains("connection: close"));
    assert!((15_000..15_500).contains(&seen.times[0]), "{:?}", seen.times);
}

#[test]
fn silent_and_idle_connections_are_closed() {
    let silent = play(Client::default(), 20_000);
    assert!(silent.ended && silent.text.is_empty(), "{silent:?}");
    let idle = play(Client::saying(get("/")), 74_000);
    assert!(!idle.ended);
    let idle = play(Client::saying(get("/")), 76_000);
    assert!(idle.ended && !idle.reset);
    // Each request begins the time anew.
    let busy = play(Client::saying(get("/")).then(60_000, get("/")), 130_000);
    assert!(!busy.ended);
}

/// They are no part of a request that has begun (RFC 9112 section 2.2).
#[test]
fn a_connection_with_nothing_but_empty_lines_is_idle() {
    let limits = || Limits {
        header_time: Duration::from_secs(2),
        idle_time: Duration::from_secs(4),
        ..Limits::default()
    };
    for lines in ["\r\n", "\r\n\r\n\r\n\r", "\r"] {
        let client = Client::saying(get("/")).then(10, lines);
        let seen = play_with(MemOptions::default(), limits(), client, 10_000);
        assert_eq!(seen.codes(), ["200"]);
        assert!(seen.ended, "{seen:?}");
    }
    let late = Client::saying(get("/") + "\r\n").then(3000, get("/"));
    assert_eq!(play_with(MemOptions::default(), limits(), late, 3500).codes(), ["200", "200"]);
    let begun = Client::saying(get("/") + "\r\n").then(1000, "G");
    assert_eq!(play_with(MemOptions::default(), limits(), begun, 3900).codes(), ["200", "408"]);
}

#[test]
fn slow_bodies_end_with_408_and_fast_enough_ones_do_not() {
    let head = post("/collect", "Content-Length: 100000\r\n", "");
    let mut slow = Client::saying(&head);
    let mut steady = Client::saying(&head);
    for i in 1..60 {
        slow = slow.then(i * 1000, "x");
        steady = steady.then(i * 1000, "x".repeat(1000));
    }
    let seen = play(slow, 40_000);
    assert_eq!(seen.codes(), ["408"]);
    assert!((20_000..21_000).contains(&seen.times[0]), "{:?}", seen.times);
    let seen = play(steady, 40_000);
    assert_eq!(seen.codes(), Vec::<&str>::new());
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let options = MemOptions { window: 1000, ..MemOptions::default() };
    let client =
        Client { reads_every: Some(Duration::from_secs(3600)), ..Client::saying(get("/large?100000")) };
    let seen = play_with(options, Limits::default(), client, 60_000);
    assert!(seen.reset, "{:?}", seen.times);
}

#[test]
fn a_slow_reader_slows_its_requests_and_only_them() {
    let options = MemOptions { window: 20_000, ..MemOptions::default() };
    let mut server = server(options, Limits::default());
    let slow = Client {
        reads_every: Some(Duration::from_millis(10)),
        ..Client::saying(get("/large?200000").repeat(20))
    };
    let fast = Client::saying(get("/"));
    server.transport().dial(at(), slow.clone());
    server.transport().dial(at(), fast.clone());
    run(&mut server, 5);
    assert_eq!(fast.seen().codes(), ["200"]);
    assert!(server.counts().requests < 6, "{:?}", server.counts());
    run(&mut server, 30_000);
    assert_eq!(slow.seen().codes().len(), 20);
    assert!(slow.seen().text.len() > 4_000_000);
}

#[test]
fn small_answers_that_nobody_reads_do_not_pile_up() {
    let mut server = server(MemOptions { window: 1000, ..MemOptions::default() }, Limits::default());
    let mut client = Client { reads_every: Some(Duration::from_secs(3600)), ..Client::default() };
    for at in 0..1000 {
        client = client.then(at, get("/large?4000"));
    }
    server.transport().dial(at(), client.clone());
    run(&mut server, 1_100);
    // Each request came alone and its response is copied at once, so only the unsent bytes can stop
    // it.
    assert!(server.counts().bytes_out < 300_000, "{:?}", server.counts());
}

#[test]
fn a_slow_handler_slows_its_sender() {
    let body = "x".repeat(1_000_000);
    let mut server = server(MemOptions { window: 10_000, ..MemOptions::default() }, Limits::default());
    let client = Client::saying(post("/sip", "Content-Length: 1000000\r\n", &body));
    server.transport().dial(at(), client.clone());
    run(&mut server, 2_000);
    // 20 sips, what waits for the handler, what the wire holds: not the million that was sent.
    assert!(server.counts().bytes_in < 500_000, "{:?}", server.counts());
    run(&mut server, 100_000);
    assert!(client.seen().text.ends_with("1000000 bytes\n"), "{:?}", client.seen());
}

#[test]
fn expect_100_continue() {
    // RFC 9110 section 10.1.1: 100 if the handler reads the body; otherwise only the final
    // response, and then no later bytes are taken for a request.
    let expect = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    let seen = play(Client::saying(post("/collect", expect, "")).then(30, "hello").then(40, get("/")), 100);
    assert_eq!(seen.codes(), ["100", "200", "200"]);
    assert!(seen.text.contains("5 bytes, 0 trailers"));
    let seen = play(Client::saying(post("/nowhere", expect, "")).then(30, get("/")), 100);
    assert_eq!(seen.codes(), ["404"]);
    assert!(seen.text.contains("connection: close") && seen.ended);
    // Not needed when the body is there already.
    let seen = play(Client::saying(post("/collect", expect, "hello")), 100);
    assert_eq!(seen.codes(), ["200"]);
    // Behind an answer that is not ready yet it waits for its turn.
    let seen = play(Client::saying(get("/delay?20") + &post("/collect", expect, "")).then(30, "hello"), 100);
    assert_eq!(seen.codes(), ["200", "100", "200"]);
    // An answer that gives the body back while it comes begins behind the 100, never before it.
    let seen = play(Client::saying(post("/give-back", expect, "")).then(30, "hello").then(40, get("/")), 100);
    assert_eq!(seen.codes(), ["100", "200", "200"], "{seen:?}");
    assert!(seen.text.contains("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{seen:?}");
}

#[test]
fn trailers_arrive() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let seen =
        play(Client::saying(post("/collect", chunked, "5\r\nhello\r\n0\r\nX-A: b\r\nX-C: d\r\n\r\n")), 10);
    assert!(seen.text.ends_with("5 bytes, 2 trailers\n"), "{seen:?}");
}

#[test]
fn streamed_answers() {
    let seen = play(Client::saying(get("/stream?3")), 100);
    assert!(seen.text.contains("transfer-encoding: chunked"));
    assert!(
        seen.text.ends_with("4\r\ntick\r\n4\r\ntick\r\n4\r\ntick\r\n0\r\nx-ticks: done\r\n\r\n"),
        "{seen:?}"
    );
    assert_eq!(seen.times.last(), Some(&30));
    // To HTTP/1.0 no chunks: the end is the connection's.
    let seen = play(Client::saying("GET /stream?2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 100);
    assert!(
        seen.text.ends_with("\r\n\r\nticktick") && seen.ended && !seen.text.contains("chunked"),
        "{seen:?}"
    );
    let seen = play(Client::saying("HEAD /stream?2 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned() + &get("/")), 100);
    assert_eq!(seen.codes(), ["200", "200"]);
    assert!(!seen.text.contains("tick"));
}

/// The end of a stream that is a connection's last response frees its task once, not twice.
/// Otherwise two waiting handlers would share it, and one of them would never respond.
#[test]
fn handlers_behind_a_last_stream_do_not_share_their_place() {
    for last in
        ["GET /stream?1 HTTP/1.0\r\n\r\n", "GET /stream?1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"]
    {
        let mut server = server(MemOptions::default(), Limits::default());
        let first = Client::saying(last);
        server.transport().dial(at(), first.clone());
        run(&mut server, 50);
        assert!(first.seen().ended);
        let clients = [20, 10, 30].map(|ms| Client::saying(get(&format!("/delay?{ms}"))));
        for client in &clients {
            server.transport().dial(at(), client.clone());
        }
        run(&mut server, 100);
        for client in &clients {
            assert_eq!(client.seen().codes(), ["200"], "{last}");
        }
        assert_eq!(server.counts().waiting, 0);
    }
}

#[test]
fn a_stream_that_fails_ends_so_that_it_is_not_taken_for_whole() {
    let seen = play(Client::saying(get("/fails") + &get("/")), 100);
    assert!(seen.text.ends_with("4\r\ntick\r\n4\r\ntick\r\n") && seen.ended, "{seen:?}");
    // Without chunks only a reset tells that something is missing.
    let seen = play(Client::saying("GET /fails HTTP/1.0\r\n\r\n"), 100);
    assert!(seen.text.ends_with("\r\n\r\nticktick") && seen.reset && !seen.ended, "{seen:?}");
}

#[test]
fn a_handler_that_panics_answers_500_and_hurts_nobody() {
    let mut server = server(MemOptions::default(), Limits::default());
    let bad = Client::saying(get("/panic") + &get("/"));
    let later = Client::saying(get("/panic-later") + &get("/"));
    let good = Client::saying(get("/delay?20") + &get("/"));
    for client in [&bad, &later, &good] {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 100);
    assert_eq!(bad.seen().codes(), ["500"]);
    assert_eq!(later.seen().codes(), ["500"]);
    assert_eq!(good.seen().codes(), ["200", "200"]);
    assert_eq!(server.counts().panics, 2);
}

#[test]
fn a_stream_whose_destructor_panics_hurts_nobody() {
    let mut server = server(MemOptions::default(), Limits::default());
    let leaves = Client { resets: true, ..Client::saying(get("/grumble")) };
    let patient = Client::saying(get("/grumble") + &get("/"));
    let head = Client::saying("HEAD /grumble HTTP/1.1\r\nHost: h\r\n\r\n".to_owned() + &get("/"));
    let good = Client::saying(get("/delay?20") + &get("/"));
    for client in [&leaves, &patient, &head, &good] {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 100);
    assert_eq!(head.seen().codes(), ["200", "200"]);
    assert_eq!(good.seen().codes(), ["200", "200"]);
    assert_eq!(server.open(), 3);
}

/// A FIN may come from a client that has sent everything, or from one that has gone: without a send
/// they look the same. The server does not wait for its handler forever.
#[test]
fn a_client_that_has_gone_keeps_its_handler_for_a_second() {
    let mut server = server(MemOptions::default(), Limits::default());
    // What is ready in time still comes, to each of a pipeline.
    let patient = Client::saying(get("/delay?900") + &get("/delay?1800") + &get("/")).then(5000, "").fin();
    let late = Client::saying(get("/delay?3600000")).then(5000, "").fin();
    let there = Client::saying(get("/delay?3600000"));
    let resets = Client { resets: true, ..Client::saying(get("/delay?3600000")) };
    let quick = Client::saying(get("/delay?900") + &get("/delay?1800") + &get("/"));
    let quick = Client { half_closes: true, ..quick };
    for client in [&late, &there, &resets, &patient, &quick] {
        server.transport().dial(at(), client.clone());
    }
    // At a reset at once.
    run(&mut server, 10);
    assert_eq!(server.open(), 4);
    run(&mut server, 2_990);
    assert_eq!(quick.seen().codes(), ["200"; 3]);
    assert_eq!((server.open(), server.counts().waiting), (3, 2));
    // The second begins with the FIN, however long the handler has run.
    run(&mut server, 3_000);
    assert_eq!((server.open(), server.counts().waiting), (2, 2));
    // It is looked at eight times a second.
    run(&mut server, 130);
    assert_eq!((server.open(), server.counts().waiting), (1, 1));
    run(&mut server, 300_000);
    assert!(!there.seen().ended);
}

/// The heads of requests whose handlers wait are memory: of large ones, a pipeline has few.
#[test]
fn large_heads_of_a_pipeline_wait_to_be_read() {
    let mut server = server(MemOptions { window: 8 << 20, ..MemOptions::default() }, Limits::default());
    let request = |n: usize| {
        let large = format!("GET /delay?100 HTTP/1.1\r\nHost: h\r\nX: {n}{}\r\n\r\n", "x".repeat(30_000));
        large.into_bytes()
    };
    let large = Client::saying((0..64).flat_map(request).collect::<Vec<u8>>());
    let small = Client::saying(get("/delay?100").repeat(64));
    server.transport().dial(at(), large.clone());
    run(&mut server, 50);
    let waiting = server.counts().waiting;
    assert!((1..=3).contains(&waiting), "{waiting} requests wait");
    run(&mut server, 10_000);
    assert_eq!(large.seen().codes().len(), 64, "all are answered in the end");
    server.transport().dial(at(), small.clone());
    run(&mut server, 50);
    assert_eq!(server.counts().waiting, 64, "small ones all at once");
}

/// Unless such clients are to be waited for.
#[test]
fn a_half_closed_connection_can_be_kept() {
    let limits = Limits { half_close: true, ..Limits::default() };
    let mut server = server(MemOptions::default(), limits);
    let gone = Client::saying(get("/delay?3600000")).fin();
    let there = Client::saying(get("/delay?3600000"));
    for client in [&gone, &there] {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 74_000);
    assert_eq!((server.open(), server.counts().waiting), (2, 2));
    run(&mut server, 2_000);
    assert_eq!((server.open(), server.counts().waiting), (1, 1));
    run(&mut server, 300_000);
    assert!(!there.seen().ended);
}

#[test]
fn bodies_nobody_reads() {
    // A small one is read and thrown away; the connection continues.
    let seen = play(
        Client::saying(post("/", "Content-Length: 1000\r\n", "")).then(10, "x".repeat(1000) + &get("/")),
        50,
    );
    assert_eq!(seen.codes(), ["200", "200"]);
    // A large one closes it.
    let seen = play(Client::saying(post("/", "Content-Length: 10000000\r\n", "")).then(10, get("/")), 50);
    assert_eq!(seen.codes(), ["200"]);
    assert!(seen.text.contains("connection: close") && seen.ended);
    // Too large to be announced.
    let seen = play(Client::saying(post("/", "Content-Length: 100000000\r\n", "")).then(10, get("/")), 50);
    assert_eq!(seen.codes(), ["413"]);
}

#[test]
fn the_body_of_a_last_request_is_still_read() {
    let fields = "Content-Length: 10\r\nConnection: close\r\n";
    let seen =
        play(Client::saying(post("/collect", fields, "hello")).then(20, "world").then(30, get("/")), 100);
    assert_eq!(seen.codes(), ["200"]);
    assert!(seen.text.contains("10 bytes") && seen.ended, "{seen:?}");
}

#[test]
fn broken_bodies_are_refused_and_their_handlers_told() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let seen = play(
        Client::saying(post("/collect", chunked, "5\r\nhel"))
            .then(10, "lo!\r\n0\r\n\r\n".to_owned() + &get("/")),
        50,
    );
    assert_eq!(seen.codes(), ["400"]);
    assert!(seen.ended);
}

/// One response for each request: an error in a body that is read elsewhere causes no second one.
#[test]
fn a_request_that_was_answered_is_not_answered_again_for_its_body() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let limits = || Limits { body_time: Duration::from_millis(100), ..Limits::default() };
    let part = post("/elsewhere", chunked, "5\r\nhel");
    for before in [String::new(), get("/delay?20")] {
        let answers = if before.is_empty() { 1 } else { 2 };
        let broken =
            Client::saying(before.clone() + &part).then(10, "lo!\r\n0\r\n\r\n".to_owned() + &get("/"));
        let large = format!("lo\r\n{:x}\r\n", 17 << 20);
        let large = Client::saying(before.clone() + &part).then(10, large);
        let slow = Client::saying(before + &part);
        for client in [broken, large, slow] {
            let seen = play_with(MemOptions::default(), limits(), client, 2000);
            assert_eq!(seen.codes(), vec!["200"; answers]);
            assert!(seen.text.ends_with("taken\n") && seen.ended, "{seen:?}");
        }
    }
}

/// A handler that does not need the body is not cancelled because of it.
#[test]
fn a_body_nobody_wants_may_be_broken_or_slow_and_its_request_is_answered() {
    let limits = || Limits { body_time: Duration::from_millis(20), ..Limits::default() };
    let part = post("/unwanted", "Transfer-Encoding: chunked\r\n", "5\r\nhel");
    for client in [Client::saying(&part).then(10, "lo!\r\n"), Client::saying(&part)] {
        let seen = play_with(MemOptions::default(), limits(), client, 2000);
        assert_eq!(seen.codes(), ["200"]);
        assert!(seen.text.ends_with("unwanted\n") && seen.ended, "{seen:?}");
        assert!(seen.text.to_lowercase().contains("connection: close\r\n"), "{seen:?}");
    }
}

/// Bytes after a request for an upgrade belong to the handler that answers it, even if an earlier
/// request gets its response meanwhile.
#[test]
fn an_answer_to_an_earlier_request_does_not_free_what_is_behind_an_upgrade() {
    let upgrade = "GET /delay?50 HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let mut server = server(MemOptions::default(), Limits::default());
    let client = Client::saying(get("/delay?10") + upgrade + &get("/"));
    server.transport().dial(at(), client.clone());
    run(&mut server, 30);
    assert_eq!((client.seen().codes().len(), server.counts().requests), (1, 2));
    run(&mut server, 100);
    assert_eq!(client.seen().codes(), ["200"; 3]);
}

#[test]
fn an_answer_that_closes_is_the_last() {
    let seen = play(Client::saying(get("/delay?20") + &get("/bye") + &get("/delay?5") + &get("/")), 100);
    assert_eq!(seen.codes(), ["200", "200"]);
    assert!(seen.text.ends_with("bye\n") && seen.ended, "{seen:?}");
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let mut server = server(MemOptions::default(), Limits { connections: 2, ..Limits::default() });
    let clients = [(); 4].map(|()| Client::saying(get("/")));
    for client in &clients {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 10);
    let answered = clients.iter().filter(|c| c.seen().codes().len() == 1).count();
    assert_eq!((answered, server.open(), server.counts().refused), (2, 2, 2));
}

#[test]
fn draining_loses_nothing_that_was_received() {
    let mut server = server(MemOptions::default(), Limits::default());
    let waiting = Client::saying(get("/delay?500"));
    let idle = Client::saying(get("/"));
    let busy = Client::saying(get("/")).then(110, get("/"));
    for client in [&waiting, &idle, &busy] {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 100);
    server.drain();
    run(&mut server, 1000);
    assert_eq!(waiting.seen().codes(), ["200"]);
    assert!(idle.seen().ended && waiting.seen().ended && busy.seen().ended);
    assert_eq!(server.open(), 0);
    let late = Client::saying(get("/"));
    server.transport().dial(at(), late.clone());
    run(&mut server, 10);
    assert!(late.seen().codes().is_empty());
}

#[test]
fn one_that_pipelines_without_end_does_not_starve_others() {
    let mut server = server(MemOptions { window: 1 << 20, ..MemOptions::default() }, Limits::default());
    let greedy = Client::saying(get("/large?10000").repeat(5_000));
    let modest = Client::saying(get("/"));
    server.transport().dial(at(), greedy.clone());
    server.transport().dial(at(), modest.clone());
    for _ in 0..6 {
        server.turn(Some(Time::ZERO)).unwrap();
    }
    assert_eq!(modest.seen().codes(), ["200"]);
    assert!(server.counts().requests < 5_000);
    run(&mut server, 100);
    assert_eq!(greedy.seen().codes().len(), 5_000);
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(get("/")),
        1 => Just(get("/delay?7")),
        1 => Just(get("/large?30000")),
        1 => Just(get("/stream?2")),
        1 => Just(get("/none")),
        1 => Just(post("/collect", "Content-Length: 12\r\n", "hello world\n")),
        1 => Just(post("/collect", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\nx: y\r\n\r\n")),
        1 => Just(post("/", "Content-Length: 5\r\n", "hello")),
        1 => Just(get("/bye")),
        1 => Just("HEAD /large?7 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        1 => Just("GET / HTTP/1.1\r\n\r\n".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Any cut of the bytes, any window: the same answers.
    #[test]
    fn any_cut_gives_the_same_answers(
        pieces in proptest::collection::vec(piece(), 1..10),
        seed in 1u64..1000,
        most in 1usize..200,
        window in 100usize..100_000,
    ) {
        let text = pieces.concat();
        let whole = play(Client::saying(&text), 400);
        let every = MemOptions { cut: Cut::Every(1), ..MemOptions::default() };
        let random = MemOptions { seed, cut: Cut::Random(most), window, ..MemOptions::default() };
        for options in [every, random] {
            let cut = play_with(options, Limits::default(), Client::saying(&text), 400);
            prop_assert_eq!(&whole.text, &cut.text);
            prop_assert_eq!(whole.ended, cut.ended);
        }
    }
}
