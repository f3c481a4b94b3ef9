//! `serve --io xdp` against a peer that sends single bytes with gaps, over a real cable. Needs
//! root.

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::answer;
use namespaces::{Cable, OUR_V4, OURS};
use socket2::{Domain, SockAddr, Socket, Type};

const PORT: u16 = 8080;
const A_WHILE: Duration = Duration::from_secs(20);
/// An unused address: the kernel does not respond for it.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
/// 26 MB on the wire.
const CONNECTIONS: u16 = 4000;
const GAPS: u32 = 120;
const FIRST_PORT: u16 = 10_000;
/// Handshakes at once, few enough that rings on the path do not lose them.
const AT_ONCE: u16 = 50;
const SYN: u8 = 2;
const ACK: u8 = 16;

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(cable: &Cable) -> Serving {
    let flags = format!("--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --threads 1");
    let mut child = cable.ours.run(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.arg("serve").args(flags.split(' ')).stderr(Stdio::piped()).spawn().expect("it starts")
    });
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    while !said.contains("listening on") {
        let before = said.len();
        lines.read_line(&mut said).expect("words");
        assert!(said.len() > before, "it ended: {said}");
    }
    thread::spawn(move || lines.read_to_string(&mut String::new()));
    Serving(child)
}

fn resident_kb(serving: &Serving) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.0.id())).expect("it runs");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A segment of the attacker's, IP header included.
fn segment(port: u16, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = (40 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&len.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend_from_slice(&ATTACKER.octets());
    packet.extend_from_slice(&OUR_V4.octets());
    packet.extend_from_slice(&port.to_be_bytes());
    packet.extend_from_slice(&PORT.to_be_bytes());
    packet.extend_from_slice(&seq.to_be_bytes());
    packet.extend_from_slice(&ack.to_be_bytes());
    packet.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend_from_slice(payload);
    // The sum of addresses, protocol, length and segment (RFC 9293 section 3.1).
    let words = packet[12..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum::<u32>() + 6 + u32::from(len) - 20;
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !(((folded & 0xffff) + (folded >> 16)) as u16);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Opens connections, and sends single bytes with gaps on each as soon as it is established.
/// Returns the number established.
fn attack() -> u16 {
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(255.into())).expect("root may");
    let to: SockAddr = SocketAddr::from((OUR_V4, 0)).into();
    let send = |packet: Vec<u8>| drop(raw.send_to(&packet, &to));
    // Frames with IPv4.
    let heard = Socket::new(Domain::PACKET, Type::RAW, Some(i32::from(0x0800u16.to_be()).into()));
    let mut heard = heard.expect("root may");
    heard.set_recv_buffer_size(16 << 20).expect("set");
    heard.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    let (mut answered, mut buffer) = (0, [0; 2048]);
    for first in (0..CONNECTIONS).step_by(AT_ONCE.into()) {
        for port in first..first + AT_ONCE {
            send(segment(FIRST_PORT + port, 1000, 0, SYN, &[]));
        }
        let mut left = AT_ONCE;
        while left > 0
            && let Ok(len) = heard.read(&mut buffer)
        {
            let packet = buffer[..len].get(14..).unwrap_or_default();
            if packet.len() < 40 || packet[16..20] != ATTACKER.octets() || packet[33] != SYN | ACK {
                continue;
            }
            let port = u16::from_be_bytes([packet[22], packet[23]]);
            let number = u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]]).wrapping_add(1);
            left -= 1;
            answered += 1;
            send(segment(port, 1001, number, ACK, &[]));
            for gap in 1..=GAPS {
                send(segment(port, 1001 + 2 * gap, number, ACK, b"x"));
                if gap % 32 == 0 {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
    }
    answered
}

/// Sends a request on a new connection, and returns the time until its response.
fn get() -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&(OUR_V4, PORT).into(), A_WHILE).expect("connected");
    stream.set_read_timeout(Some(A_WHILE)).expect("set");
    write!(stream, "GET /bytes/2000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    assert_eq!(answer(&mut BufReader::new(stream)).1.len(), 2000);
    start.elapsed()
}

/// Each byte held a block of the pool that all connections share: 1.1 GB, and then no request was
/// read any more.
#[test]
fn single_bytes_with_gaps_silence_nobody() {
    let Some(cable) = Cable::new(1) else { return };
    let serving = serve(&cable);
    let (before, done) = (resident_kb(&serving), AtomicBool::new(false));
    let mut took = Vec::new();
    let answered = thread::scope(|scope| {
        let attacking = scope.spawn(|| {
            let answered = cable.theirs.run(attack);
            done.store(true, Ordering::Relaxed);
            answered
        });
        cable.theirs.run(|| {
            while !done.load(Ordering::Relaxed) && !attacking.is_finished() {
                took.push(get());
            }
            // All of it is there now.
            (0..50).for_each(|_| took.push(get()));
        });
        attacking.join().expect("no panic")
    });
    let more = resident_kb(&serving).saturating_sub(before);
    took.sort();
    let (median, most) = (took[took.len() / 2], took.last().expect("one"));
    println!(
        "{answered} connections, {more} kB more; {} responses, {median:?}, {most:?} at most",
        took.len()
    );
    assert!(answered > CONNECTIONS / 2, "{answered}");
    assert!(more < 100_000, "{more} kB more");
    assert!(median < Duration::from_millis(50) && *most < Duration::from_secs(5), "{median:?} {most:?}");
}
