//! The stack over AF_XDP against the kernel's, over a network that loses, reorders and duplicates:
//! received bytes equal those sent. Needs root.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use linerate_net::link::xdp::{Steer, Xdp, XdpOptions, open};
use linerate_net::stack::{Stack, StackOptions, StackStats};
use linerate_net::{After, Close, Conn, ConnectOptions, Event, ListenOptions, Time, Transport};
use linerate_netbox::{INTERFACE, NetBox, SERVER_IP};
use linerate_skips::{need, skip};

const PORT: u16 = 8080;
/// Our address as a client; the box routes its whole network to the client.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 1, 9));
/// Megabytes sent each way at the same time. `LINERATE_TRANSFER_MB` overrides it.
const MEGABYTES: usize = 100;
const CHUNK: usize = 64 << 10;
/// Timeout in the link's time.
const PATIENCE: Duration = Duration::from_secs(240);

fn total() -> usize {
    let asked = std::env::var("LINERATE_TRANSFER_MB").ok().and_then(|mb| mb.parse().ok());
    asked.unwrap_or(MEGABYTES) * 1_000_000
}

/// Pseudo-random bytes, which do not repeat.
struct Noise {
    state: u64,
    word: [u8; 8],
    used: usize,
}

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, word: [0; 8], used: 8 }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.used == 8 {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                (self.word, self.used) = (self.state.to_le_bytes(), 0);
            }
            *byte = self.word[self.used];
            self.used += 1;
        }
    }
}

/// What one end has sent and received. The server sends noise of seed 1, the client of seed 2.
struct Talk {
    out: Noise,
    into: Noise,
    sent: usize,
    received: usize,
    expected: Vec<u8>,
}

impl Talk {
    fn new(server: bool) -> Talk {
        let (out, into) = if server { (1, 2) } else { (2, 1) };
        Talk { out: Noise::new(out), into: Noise::new(into), sent: 0, received: 0, expected: Vec::new() }
    }

    /// The next bytes to send; empty at the end.
    fn next(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; CHUNK.min(total() - self.sent)];
        self.out.fill(&mut bytes);
        self.sent += bytes.len();
        bytes
    }

    fn check(&mut self, bytes: &[u8]) {
        self.expected.resize(bytes.len(), 0);
        self.into.fill(&mut self.expected);
        assert!(self.expected == bytes, "bytes from {} on differ", self.received);
        self.received += bytes.len();
    }
}

/// Our end. If it is the server, it ends the conversation.
fn ours(mut net: Stack<Xdp>, mut conn: Option<Conn>) -> StackStats {
    let server = conn.is_none();
    let mut talk = Talk::new(server);
    let start = net.now();
    let (mut events, mut ended, mut closed) = (Vec::new(), false, false);
    while !ended || !closed || net.unfinished() > 0 {
        let took = net.now() - start;
        assert!(took < PATIENCE, "after {took:?} {} bytes were sent, {} received", talk.sent, talk.received);
        let until: Time = net.now() + Duration::from_millis(100);
        events.clear();
        net.turn(Some(until), &mut events).expect("a turn");
        let mut connected = server && conn.is_some();
        for event in events.drain(..) {
            match event {
                Event::Accepted { conn: new, .. } => {
                    conn = Some(new);
                    connected = true;
                }
                Event::Connected { .. } => connected = true,
                Event::Readable { data, .. } => {
                    ended |= match net.receive(data, |bytes| talk.check(bytes)) {
                        After::Ended => true,
                        After::Failed(error) => panic!("after {} bytes: {error}", talk.received),
                        _ => false,
                    };
                }
                Event::Failed { error, .. } => panic!("after {} bytes: {error}", talk.received),
                _ => {}
            }
        }
        let Some(conn) = conn.filter(|_| connected || talk.sent > 0 || !server) else { continue };
        while !closed && net.unsent(conn) == 0 {
            let bytes = talk.next();
            if bytes.is_empty() {
                break;
            }
            net.send(conn, &bytes).expect("can send");
        }
        // The client is done once it has everything, the server once it learns of that.
        let over = talk.received == total() && talk.sent == total();
        if !closed && over && (ended || !server) {
            net.close(conn, if server { Close::Now } else { Close::AfterPeer });
            (ended, closed) = (true, true);
        }
    }
    assert_eq!((talk.sent, talk.received), (total(), total()));
    net.stats()
}

/// The kernel's end.
fn kernels(stream: TcpStream, server: bool) {
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    let (mut writer, mut reader) = (stream.try_clone().expect("the same connection"), stream);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut talk = Talk::new(server);
            while talk.sent < total() {
                writer.write_all(&talk.next()).expect("sent");
            }
            // Its FIN: no bytes follow.
            writer.shutdown(std::net::Shutdown::Write).expect("shut down");
        });
        let mut talk = Talk::new(server);
        let mut buffer = vec![0; CHUNK];
        while talk.received < total() {
            let n = reader.read(&mut buffer).expect("bytes");
            assert!(n > 0, "cut off after {} bytes", talk.received);
            talk.check(&buffer[..n]);
        }
        assert_eq!(reader.read(&mut buffer).expect("the end"), 0);
    });
}

fn bad_network() -> Option<NetBox> {
    if let Some(why) = NetBox::unavailable() {
        skip(need::NAMESPACES, why);
        return None;
    }
    let net = NetBox::builder()
        .delay(Duration::from_micros(200))
        .loss(0.01)
        .duplicate(0.01)
        .reorder(0.01, Duration::from_millis(1))
        .seed(5);
    Some(net.start().expect("a box"))
}

fn linked(options: &XdpOptions, peer: Option<IpAddr>) -> Stack<Xdp> {
    let mut opened = open(options).expect("the link");
    if let Some(peer) = peer {
        opened.links[0].look_for(&[peer]).expect("the peer answers ARP");
    }
    Stack::new(opened.links.remove(0), StackOptions::default())
}

fn report(net: &NetBox, stats: &StackStats) {
    let report = net.report();
    println!("up {:?}\ndown {:?}\n{stats:?}", report.up, report.down);
    assert!(report.up.lost > 0 && report.up.duplicated > 0 && report.up.reordered > 0, "{report:?}");
    assert!(report.down.lost > 0 && report.down.duplicated > 0 && report.down.reordered > 0, "{report:?}");
}

#[test]
fn all_arrives_between_our_server_and_the_kernels_client() {
    let Some(net) = bad_network() else { return };
    let at: SocketAddr = (SERVER_IP, PORT).into();
    let (ready, is_ready) = channel();
    let stats = thread::scope(|scope| {
        let server = scope.spawn(|| {
            net.server().run(move || {
                let mut stack = linked(&XdpOptions::new(INTERFACE, Steer::Listen(vec![at])), None);
                stack.listen(at, &ListenOptions::default()).expect("can listen");
                ready.send(()).expect("somebody waits");
                ours(stack, None)
            })
        });
        is_ready.recv().expect("the server is ready");
        net.client()
            .run(|| kernels(TcpStream::connect(at).expect("connected"), false))
            .expect("the client's namespace");
        server.join().expect("no panic").expect("the server's namespace")
    });
    report(&net, &stats);
}

#[test]
fn all_arrives_between_our_client_and_the_kernels_server() {
    let Some(net) = bad_network() else { return };
    let at: SocketAddr = (SERVER_IP, PORT).into();
    let listener = net.server().run(|| TcpListener::bind(at).expect("the kernel's port")).expect("entered");
    let stats = thread::scope(|scope| {
        let server = scope.spawn(|| kernels(listener.accept().expect("a connection").0, true));
        let stats = net.client().run(|| {
            let options = XdpOptions::new(INTERFACE, Steer::From(vec![FROM]));
            let mut stack = linked(&options, Some(at.ip()));
            let from = ConnectOptions { from: Some(FROM), ..ConnectOptions::default() };
            let conn = stack.connect(at, &from).expect("can connect");
            ours(stack, Some(conn))
        });
        server.join().expect("no panic");
        stats.expect("the client's namespace")
    });
    report(&net, &stats);
}
