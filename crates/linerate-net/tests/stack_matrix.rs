//! The speed of the stack over distant and lossy networks, in virtual time: a change of behavior
//! changes this text.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{Conn, ConnectOptions, Event, ListenOptions, Time, Transport};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The client's address, so that each direction has a queue of its own.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const REQUEST: usize = 100;
const ANSWER: usize = 600;
const EXCHANGES: usize = 2000;
const BULK: usize = 4 << 20;
/// 100 Mbit/s, and a queue of 100 ms.
const RATE: u64 = 12_500_000;
const QUEUE: usize = RATE as usize / 10;

fn path(rtt_ms: f64, loss_ppm: u32, queue: usize) -> SimOptions {
    SimOptions {
        seed: 5,
        delay: Duration::from_secs_f64(rtt_ms / 2000.0),
        rate: Some(RATE),
        queue,
        loss_ppm,
        ..SimOptions::default()
    }
}

fn stack(sim: SimOptions) -> (Stack<SimEnd>, SocketAddr) {
    let options = StackOptions { addresses: vec![IP, FROM], seed: Some(5), ..StackOptions::default() };
    let mut net = Stack::new(Sim::alone(sim).expect("a descriptor"), options);
    let (_, at) = net.listen(SocketAddr::new(IP, 80), &ListenOptions::default()).expect("can listen");
    (net, at)
}

fn connect(net: &mut Stack<SimEnd>, at: SocketAddr) -> Conn {
    net.connect(at, &ConnectOptions { from: Some(FROM), ..ConnectOptions::default() }).expect("can connect")
}

fn turn(net: &mut Stack<SimEnd>, mut handle: impl FnMut(&mut Stack<SimEnd>, Event)) {
    let mut events = Vec::new();
    net.turn(None, &mut events).expect("something happens");
    for event in events {
        handle(net, event);
    }
}

fn receive(net: &mut Stack<SimEnd>, data: linerate_net::Data) -> usize {
    let mut len = 0;
    net.receive(data, |piece| len += piece.len());
    len
}

/// Exchanges with `depth` requests in flight on one connection: rate, median, 99th percentile and
/// maximum.
fn exchanges(depth: usize, rtt_ms: f64, loss_ppm: u32) -> String {
    let (mut net, at) = stack(path(rtt_ms, loss_ppm, QUEUE));
    let client = connect(&mut net, at);
    let (mut sent_at, mut latencies) = (std::collections::VecDeque::new(), Vec::new());
    let (mut asked, mut answered, mut start) = (0, 0, Time::ZERO);
    while latencies.len() < EXCHANGES {
        turn(&mut net, |net, event| match event {
            Event::Connected { .. } => {
                start = net.now();
                for _ in 0..depth {
                    net.send(client, &[1; REQUEST]).expect("can send");
                    sent_at.push_back(start);
                }
            }
            Event::Readable { conn, data } => {
                let (now, len) = (net.now(), receive(net, data));
                if conn == client {
                    answered += len;
                    while answered >= ANSWER {
                        answered -= ANSWER;
                        latencies.push(now - sent_at.pop_front().expect("asked for"));
                        net.send(client, &[1; REQUEST]).expect("can send");
                        sent_at.push_back(now);
                    }
                } else {
                    asked += len;
                    let answers = asked / REQUEST;
                    asked %= REQUEST;
                    net.send(conn, &vec![2; answers * ANSWER]).expect("can send");
                }
            }
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        });
    }
    let rate = latencies.len() as f64 / (net.now() - start).as_secs_f64();
    latencies.sort();
    let ms = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
    format!("{rate:>9.0}/s  p50 {:>7.2}  p99 {:>7.2}  max {:>7.2}", ms(0.5), ms(0.99), ms(1.0))
}

/// One transfer from the server: Mbit/s including the handshake, and the number of timeouts.
fn bulk(len: usize, sim: SimOptions) -> String {
    let (mut net, at) = stack(sim);
    let start = net.now();
    let client = connect(&mut net, at);
    net.send(client, b"GET").expect("can send");
    let (mut got, mut server) = (0, None::<Conn>);
    while got < len {
        turn(&mut net, |net, event| match event {
            Event::Readable { conn, data } if conn == client => got += receive(net, data),
            Event::Readable { conn, data } => {
                let asked = receive(net, data) > 0;
                if asked && server.replace(conn).is_none() {
                    net.send(conn, &vec![3; len]).expect("can send");
                }
            }
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        });
    }
    let took = (net.now() - start).as_secs_f64();
    let stats = net.stats();
    let mbit = len as f64 * 8.0 / 1e6 / took;
    let (again, late, needless) = (stats.retransmits, stats.timeouts, stats.spurious);
    format!("{mbit:>6.1} Mbit/s  sent again {again:>4}  time-outs {late}  needless {needless}")
}

/// A gigabit a second.
const FAST: u64 = 125_000_000;

/// The same link with a short queue, machines that poll rarely, and reordered packets.
#[test]
fn fast_and_far() {
    let mut text =
        String::from("one transfer of 64 MiB at 1000 Mbit/s, 40 ms, no loss but that of the queue\n");
    for together_us in [0, 200, 1000, 4000] {
        for queue_ms in [1, 4, 16, 64] {
            let queue = FAST as usize / 1000 * queue_ms;
            let together = Duration::from_micros(together_us);
            let line = bulk(16 * BULK, SimOptions { rate: Some(FAST), together, ..path(40.0, 0, queue) });
            let _ = writeln!(text, "together {together_us:>4} us  queue {queue_ms:>2} ms  {line}");
        }
    }
    text.push_str("one transfer of 32 MiB at 1000 Mbit/s, packets in a hundred that are up to 1 ms late\n");
    for rtt_ms in [0.1, 0.4, 2.0, 10.0, 40.0] {
        for late in [0, 1, 5] {
            let reorder_by = Duration::from_millis(1);
            let sim = SimOptions {
                rate: Some(FAST),
                reorder_ppm: late * 10_000,
                reorder_by,
                ..path(rtt_ms, 0, FAST as usize / 10)
            };
            let line = bulk(8 * BULK, sim);
            let _ = writeln!(text, "rtt {rtt_ms:>4} ms  late {late} %  {line}");
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn throughput_and_latency() {
    let mut text = String::from("requests of 100 bytes, answers of 600, milliseconds\n");
    for rtt_ms in [0.2, 10.0, 40.0] {
        for loss_ppm in [0, 1_000, 10_000, 30_000] {
            for depth in [1, 16] {
                let line = exchanges(depth, rtt_ms, loss_ppm);
                let loss = f64::from(loss_ppm) / 10_000.0;
                let _ = writeln!(text, "rtt {rtt_ms:>4} ms  loss {loss:>3} %  depth {depth:>2}  {line}");
            }
        }
    }
    text.push_str("one transfer of 4 MiB at 100 Mbit/s\n");
    for rtt_ms in [0.2, 10.0, 40.0] {
        for loss_ppm in [0, 1_000, 10_000, 30_000] {
            let line = bulk(BULK, path(rtt_ms, loss_ppm, QUEUE));
            let _ =
                writeln!(text, "rtt {rtt_ms:>4} ms  loss {:>3} %  {line}", f64::from(loss_ppm) / 10_000.0);
        }
    }
    // A queue of 20 ms holds half of what the path of 40 ms holds.
    text.push_str("one transfer of 32 MiB at 100 Mbit/s, 40 ms, no loss but that of the queue\n");
    for queue_ms in [5, 10, 20, 40, 100, 1000] {
        let line = bulk(8 * BULK, path(40.0, 0, RATE as usize / 1000 * queue_ms));
        let _ = writeln!(text, "queue {queue_ms:>4} ms  {line}");
    }
    insta::assert_snapshot!(text);
}
