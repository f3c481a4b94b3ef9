//! The server over user-space TCP in virtual time: delay, loss, duplication, reordering, and clients that read slowly.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use linerate_net::link::pcap::{FILE_BYTES, PcapFile};
use linerate_net::link::sim::{Sim, SimOptions};
use linerate_net::link::{Link, Middlewares};
use linerate_net::mem::{Peer, PeerActions, PeerConn, PeerHost};
use linerate_net::stack::{Stack, StackLimits, StackOptions};
use linerate_net::{ListenOptions, Time};
use linerate_serve::{Limits, Request, Response, Server, sleep};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// 5 MiB that all responses share.
static SHARED: LazyLock<Bytes> = LazyLock::new(|| vec![b'x'; 5 << 20].into());

fn stack<L: Link>(end: L, address: IpAddr, seed: u64) -> Stack<L> {
    stack_within(StackLimits::default(), end, address, seed)
}

fn stack_within<L: Link>(stack: StackLimits, end: L, address: IpAddr, seed: u64) -> Stack<L> {
    let addresses = vec![address];
    Stack::new(end, StackOptions { addresses, seed: Some(seed), stack, ..StackOptions::default() })
}

fn number(request: &Request) -> u64 {
    request.query().and_then(|q| q.parse().ok()).unwrap_or(0)
}

async fn app(mut request: Request) -> Response {
    match request.path() {
        "/delay" => {
            sleep(Duration::from_millis(number(&request))).await;
            Response::text(format!("waited {}\n", number(&request)))
        }
        "/shared" => Response::text(SHARED.clone()),
        "/large" => Response::text(vec![b'x'; number(&request) as usize]),
        "/upload" => match request.body().collect(1 << 22).await {
            Ok(body) => Response::text(format!("{} bytes\n", body.len())),
            Err(_) => Response::text("broken\n"),
        },
        _ => Response::text("hello\n"),
    }
}

/// A client that sends everything at once, and reads everything, possibly slowly.
#[derive(Clone, Default)]
struct Client {
    says: Vec<u8>,
    /// When it says that.
    after: Duration,
    pause: Option<Duration>,
    /// It never reads anything.
    stops: bool,
    got: Arc<Mutex<Vec<u8>>>,
    /// Ended without a failure.
    ended: Arc<AtomicBool>,
}

impl Client {
    /// A client with the same bytes that has received nothing.
    fn again(&self) -> Client {
        let Client { says, after, pause, stops, .. } = self.clone();
        Client { says, after, pause, stops, ..Client::default() }
    }
}

impl Peer for Client {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        out.send_after(self.after, conn, self.says.clone());
        if self.stops {
            out.pause(conn);
        }
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        self.got.lock().unwrap().extend_from_slice(bytes);
        if let Some(pause) = self.pause {
            out.pause(conn);
            out.resume_after(pause, conn);
        }
    }

    fn ended(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.ended.store(true, Ordering::SeqCst);
        out.close(conn);
    }
}

/// Each client has its connection; returns what each received. All of them have to see the end.
fn serve(network: SimOptions, clients: Vec<Client>) -> Vec<Vec<u8>> {
    serve_over(network, &Middlewares::default(), clients)
}

/// The same with this over the server's link.
fn serve_over(network: SimOptions, over: &Middlewares, clients: Vec<Client>) -> Vec<Vec<u8>> {
    serve_within(StackLimits::default(), network, over, clients)
}

/// The same within these limits of the server's stack.
fn serve_within(
    limits: StackLimits,
    network: SimOptions,
    over: &Middlewares,
    clients: Vec<Client>,
) -> Vec<Vec<u8>> {
    let sim = Sim::new(network);
    let link = over.over(sim.end(&[SERVER]).unwrap(), 0);
    let net = stack_within(limits, link, SERVER, network.seed);
    let mut server = Server::new(net, app, Limits::default());
    let at = server.listen(SocketAddr::new(SERVER, 80), &ListenOptions::default()).unwrap();
    let mut host = PeerHost::new(stack(sim.end(&[CLIENT]).unwrap(), CLIENT, network.seed + 1));
    for client in &clients {
        host.dial(at, client.clone()).unwrap();
    }
    let running = clients.clone();
    let has_ended = |client: &Client| client.stops || client.ended.load(Ordering::SeqCst);
    let over = move || running.iter().all(has_ended);
    let done = Arc::new(AtomicBool::new(false));
    let told = done.clone();
    let driver = thread::spawn(move || {
        host.run(over).unwrap();
        told.store(true, Ordering::SeqCst);
    });
    // Once the clients' end is gone, no more events can happen, and the turn says so.
    while !done.load(Ordering::SeqCst) && server.turn(None).is_ok() {}
    drop(server);
    driver.join().unwrap();
    assert!(clients.iter().all(has_ended), "all saw the end");
    clients.iter().map(|client| client.got.lock().unwrap().clone()).collect()
}

fn get(paths: &[&str]) -> Vec<u8> {
    let last = paths.len() - 1;
    let one = |(i, path): (usize, &&str)| {
        let close = if i == last { "Connection: close\r\n" } else { "" };
        format!("GET {path} HTTP/1.1\r\nHost: a\r\n{close}\r\n")
    };
    paths.iter().enumerate().map(one).collect::<String>().into_bytes()
}

fn bad(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        delay: Duration::from_millis(1 + seed % 30),
        loss_ppm: 15_000,
        reorder_ppm: 30_000,
        duplicate_ppm: 10_000,
        corrupt_ppm: 2_000,
        ..SimOptions::default()
    }
}

fn count(text: &[u8], what: &str) -> usize {
    text.windows(what.len()).filter(|w| *w == what.as_bytes()).count()
}

/// Bytes of the one answer's body.
fn body_len(answer: &[u8]) -> usize {
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("an answer");
    answer.len() - head - 4
}

#[test]
fn answers_on_a_bad_network_are_whole_and_in_order() {
    for seed in 0..15 {
        let pipelined = Client { says: get(&["/", "/delay?30", "/", "/delay?5", "/"]), ..Client::default() };
        let large = Client { says: get(&["/large?200000"]), ..Client::default() };
        let short = Client { says: get(&["/"]), ..Client::default() };
        let got = serve(bad(seed), vec![pipelined, large, short.again(), short]);
        let order: Vec<usize> = ["waited 30", "waited 5\n"]
            .iter()
            .map(|w| got[0].windows(w.len()).position(|x| x == w.as_bytes()).expect("answered"))
            .collect();
        assert!(order.is_sorted() && count(&got[0], "hello\n") == 3, "seed {seed}");
        assert_eq!(body_len(&got[1]), 200_000, "seed {seed}");
        assert_eq!((count(&got[2], "200 OK"), count(&got[3], "200 OK")), (1, 1), "seed {seed}");
    }
}

#[test]
fn a_slow_reader_closes_the_window_and_has_all_of_it() {
    for seed in 0..3 {
        let pause = Some(Duration::from_millis(40));
        let slow = Client { says: get(&["/large?2000000"]), pause, ..Client::default() };
        let got = serve(bad(seed), vec![slow]);
        assert_eq!(body_len(&got[0]), 2_000_000, "seed {seed}");
    }
}

#[test]
fn uploads_arrive_whole() {
    for seed in 0..5 {
        let mut says =
            b"POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n"
                .to_vec();
        says.resize(says.len() + 300_000, b'u');
        let got = serve(bad(seed), vec![Client { says, ..Client::default() }]);
        assert_eq!(count(&got[0], "300000 bytes"), 1, "seed {seed}: {}", String::from_utf8_lossy(&got[0]));
    }
}

#[test]
fn faults_of_the_servers_own_link_cost_nothing_but_time_and_its_capture_has_every_packet() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..5 {
        let pcap = PcapFile::create(&folder.path().join("serve.pcap"), FILE_BYTES, 0).unwrap();
        let fault = format!("loss=2%,dup=1%,reorder=3%,corrupt=0.2%,delay=3ms,seed={seed}").parse().unwrap();
        let over = Middlewares { fault: Some(fault), pcap: Some(pcap.clone()) };
        let large = Client { says: get(&["/large?200000"]), ..Client::default() };
        let network = SimOptions { seed, ..SimOptions::default() };
        let got = serve_over(network, &over, vec![large]);
        assert_eq!(body_len(&got[0]), 200_000, "seed {seed}");
        // 138 segments are 200,000 bytes.
        assert!(pcap.stats().packets > 138, "{:?}", pcap.stats());
    }
}

/// Clients that stop reading hold little, whatever they asked for, and others have whole responses.
/// With 1 MiB of each in the send buffer, an eighth of them would take all memory there is.
#[test]
fn readers_that_stop_take_nothing_from_others() {
    const READERS: usize = 920;
    // A thread of the server may have 64 MiB unsent, and each connection 64 KiB in its send buffer.
    let limits = StackLimits { buffer_bytes: 128 << 20, ..StackLimits::default() };
    let reader = Client { says: get(&["/shared"]), ..Client::default() };
    let mut clients: Vec<_> = (0..READERS).map(|_| Client { stops: true, ..reader.again() }).collect();
    clients.extend((0..8).map(|_| Client { after: Duration::from_secs(2), ..reader.again() }));
    let network = SimOptions { delay: Duration::from_millis(1), ..SimOptions::default() };
    let got = serve_within(limits, network, &Middlewares::default(), clients);
    for answer in &got[READERS..] {
        assert_eq!(body_len(answer), SHARED.len());
    }
}
