//! A client in a server's thread, on the server's transport.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use linerate::client::{Builder, Client, Error, Protocol};
use linerate::net::mem::{Cut, Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate::net::share::{Companion, CompanionStep};
use linerate::net::{ListenOptions, Time, Transport};
use linerate::serve::{Handle, Handler, Io, Limits, Request, Response, Server, ServerOptions, spawn_beside};
use linerate_base::Random;

use crate::secure::{echo, secure};

/// Passes a request on to another server.
async fn pass(client: Client, mut request: Request) -> Response {
    let body = request.body().collect(1 << 26).await.unwrap();
    let onward = http::Request::builder().method(request.head().method_name()).uri(request.head().target());
    match client.send(onward.body(body).unwrap()).await {
        Ok(response) => Response::status(response.status().as_u16()).with_body(response.into_body()),
        Err(error) => Response::text(error.to_string()).with_status(502),
    }
}

fn proxy(io: Io, threads: usize, builder: Builder) -> Handle {
    let options = ServerOptions { io, threads, ..ServerOptions::default() };
    spawn_beside(options, move || {
        let (client, beside) = builder.clone().build_beside().map_err(std::io::Error::other)?;
        Ok((move |request: Request| pass(client.clone(), request), beside))
    })
    .unwrap()
}

async fn many_through(proxy: Handle) {
    let client = Client::builder(&format!("http://{}", proxy.addr())).pipes(8).build().unwrap();
    let responses = join_all((0..300).map(|n| client.get(&format!("/{n}")))).await;
    for (n, response) in responses.into_iter().enumerate() {
        assert_eq!(response.unwrap().body(), format!("GET /{n} 0").as_bytes());
    }
    let slow = client.get("/slow");
    let posted = client.post("/p", vec![b'x'; 1 << 20]).await.unwrap();
    assert_eq!(posted.body(), &b"POST /p 1048576"[..]);
    assert_eq!(slow.await.unwrap().body(), &b"GET /slow 0"[..]);
    drop(client);
    tokio::task::spawn_blocking(move || proxy.stop()).await.unwrap();
}

#[tokio::test]
async fn a_server_calls_another_from_its_own_loops() {
    let origin = secure(&["h2", "http/1.1"], false);
    let plain = linerate::serve::spawn_with(ServerOptions::default(), || echo).unwrap();
    for io in [Io::Epoll, Io::Uring] {
        for threads in [1, 2] {
            let to = Client::builder(&format!("http://{}", plain.addr()));
            many_through(proxy(io, threads, to.clone())).await;
            many_through(proxy(io, threads, to.protocol(Protocol::Http2))).await;
            many_through(proxy(io, threads, origin.client().only_added_roots())).await;
            let http1 = origin.client().only_added_roots().protocol(Protocol::Http1);
            many_through(proxy(io, threads, http1)).await;
        }
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_an_error_and_a_drain_waits_for_calls() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let lost = proxy(Io::Epoll, 1, Client::builder(&format!("http://{nobody}")));
    let client = Client::builder(&format!("http://{}", lost.addr())).build().unwrap();
    assert_eq!(client.get("/").await.unwrap().status(), 502);
    let origin = linerate::serve::spawn_with(ServerOptions::default(), || echo).unwrap();
    let slow = proxy(Io::Epoll, 1, Client::builder(&format!("http://{}", origin.addr())));
    let client = Client::builder(&format!("http://{}", slow.addr())).build().unwrap();
    let call = tokio::spawn(async move { client.get("/slow").await });
    while origin.counts().requests == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::task::spawn_blocking(move || slow.stop()).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().body(), &b"GET /slow 0"[..]);
}

#[test]
fn what_cannot_be_had_is_said() {
    let options = ServerOptions { io: Io::Xdp, ..ServerOptions::default() };
    let error = spawn_beside(options, || Ok((echo, ()))).unwrap_err();
    assert!(error.to_string().contains("hint: take io epoll"), "{error}");
    let make = || match std::env::var_os("LINERATE_NEVER_SET") {
        Some(_) => Ok((echo, ())),
        None => Err(std::io::Error::other("no handler")),
    };
    assert_eq!(spawn_beside(ServerOptions::default(), make).unwrap_err().to_string(), "no handler");
    // A client whose other half never joined a server.
    let (client, beside) = Client::builder("http://127.0.0.1:9").build_beside().unwrap();
    drop(beside);
    let mut call = std::pin::pin!(client.get("/"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Err(Error::Closed)) = call.as_mut().poll(&mut cx) else { panic!("it is closed") };
}

/// An origin that responds late, closes, and resets at random. Its responses say the path.
struct Origin {
    random: Random,
    /// Requests that have not come whole.
    partial: BTreeMap<PeerConn, Vec<u8>>,
    /// When the last response leaves.
    due: BTreeMap<PeerConn, Time>,
}

impl Peer for Origin {
    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let partial = self.partial.entry(conn).or_default();
        partial.extend_from_slice(bytes);
        while let Some(end) = partial.windows(4).position(|w| w == b"\r\n\r\n") {
            let head: Vec<u8> = partial.drain(..end + 4).collect();
            let path = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
            match self.random.below(40) {
                0 => return out.close(conn),
                1 => return out.reset(conn),
                _ => {}
            }
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
            let late = if self.random.below(3) == 0 { self.random.below(20_000) } else { 0 };
            // Never before the one before it.
            let due = self.due.entry(conn).or_insert(now);
            *due = (*due).max(now + Duration::from_micros(late));
            out.send_after(*due - now, conn, response);
        }
    }
}

/// What clients got.
type Got = Arc<Mutex<Vec<Vec<u8>>>>;

/// A client that sends all its requests at once.
struct Caller {
    number: u64,
    requests: u64,
    got: Got,
}

impl Peer for Caller {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let requests: String = (0..self.requests)
            .map(|n| format!("GET /{}/{n} HTTP/1.1\r\nHost: h\r\n\r\n", self.number))
            .collect();
        out.send(conn, requests);
    }

    fn received(&mut self, _: Time, _: PeerConn, bytes: &[u8], _: &mut PeerActions) {
        self.got.lock().unwrap()[self.number as usize].extend_from_slice(bytes);
    }
}

/// Bodies of the responses with status 200 and 502, in order.
fn bodies(mut bytes: &[u8]) -> Vec<(u16, String)> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).unwrap().to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let (status, length) = (head[9..12].parse().unwrap(), length.parse::<usize>().unwrap());
        let Some(body) = bytes.get(end + 4..end + 4 + length) else { break };
        all.push((status, String::from_utf8(body.to_vec()).unwrap()));
        bytes = &bytes[end + 4 + length..];
    }
    all
}

fn step_and_turn<T: Transport, H: Handler>(
    server: &mut Server<T, H>,
    beside: &mut impl CompanionStep,
    until: Time,
) -> bool {
    beside.step().unwrap();
    server.turn(Some(until)).unwrap();
    server.transport().now() < until
}

/// Callers, a proxy and an origin in virtual time: each request gets its own response or 502, in its place.
fn seed(seed: u64) {
    let mut random = Random::new(seed);
    let options = MemOptions {
        seed,
        latency: Duration::from_micros(random.below(2_000)),
        cut: [Cut::Whole, Cut::Random(40), Cut::Random(3_000)][random.below(3) as usize],
        ..MemOptions::default()
    };
    let mut mem = Mem::new(options).unwrap();
    let origin = Origin { random: Random::new(seed ^ 1), partial: BTreeMap::new(), due: BTreeMap::new() };
    mem.serve("10.0.0.2:80".parse().unwrap(), origin).unwrap();
    let builder = Client::builder("http://10.0.0.2").pipes(1 + random.below(4) as u32);
    let (client, beside) = builder.depth(1 + random.below(16) as u32).build_beside().unwrap();
    let (owner, mut beside) = beside.join(mem);
    let handler = move |request: Request| pass(client.clone(), request);
    let mut server = Server::new(owner, handler, Limits::default());
    let to = server.listen("10.0.0.1:80".parse().unwrap(), &ListenOptions::default()).unwrap();
    let callers = 1 + random.below(8);
    let got: Got = Arc::new(Mutex::new(vec![Vec::new(); callers as usize]));
    let wanted: Vec<u64> = (0..callers).map(|_| 1 + random.below(30)).collect();
    for (number, &requests) in (0..).zip(&wanted) {
        let caller = Caller { number, requests, got: Arc::clone(&got) };
        server.transport().transport(|mem| mem.dial(to, caller));
    }
    let until = Time::ZERO + Duration::from_secs(60);
    let whole = || {
        let got = got.lock().unwrap();
        got.iter().zip(&wanted).all(|(got, wanted)| bodies(got).len() as u64 == *wanted)
    };
    let mut turns = 0;
    while !whole() {
        turns += 1;
        assert!(turns < 200_000 && step_and_turn(&mut server, &mut beside, until), "it hangs");
    }
    for (number, got) in got.lock().unwrap().iter().enumerate() {
        for (n, (status, body)) in bodies(got).into_iter().enumerate() {
            assert!(
                status == 502 || (status, body.clone()) == (200, format!("/{number}/{n}")),
                "{status} {body}"
            );
        }
    }
}

#[test]
fn each_request_gets_its_own_response_whatever_the_origin_does() {
    let number = |name, otherwise| std::env::var(name).map_or(otherwise, |n: String| n.parse().unwrap());
    let from = number("LINERATE_FROM", 1);
    for n in from..from + number("LINERATE_SEEDS", 300) {
        println!("LINERATE_FROM={n} LINERATE_SEEDS=1");
        seed(n);
    }
}
