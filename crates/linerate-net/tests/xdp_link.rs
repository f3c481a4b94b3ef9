//! `link::xdp` between real namespaces: packets of the kernel, both ways. Needs root.

mod namespaces;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_net::link::xdp::{Steer, Xdp, XdpMode, XdpOptions, open};
use linerate_net::link::{Checksums, Link};
use namespaces::{Cable, OUR_V4, OUR_V6, OURS, THEIR_V4};

const PORT: u16 = 8080;
const A_WHILE: Duration = Duration::from_secs(5);

fn listen(mode: XdpMode) -> XdpOptions {
    let steer = Steer::Listen(vec![(OUR_V4, PORT).into(), (OUR_V6, PORT).into()]);
    XdpOptions { mode, ..XdpOptions::new(OURS, steer) }
}

fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The simplest peer: answers each segment with a reset, which refuses every connection.
fn refusal(packet: &[u8]) -> (IpAddr, Vec<u8>) {
    let v4 = packet[0] >> 4 == 4;
    let (header, addresses) = if v4 { (usize::from(packet[0] & 15) * 4, 12..20) } else { (40, 8..40) };
    let segment = &packet[header..];
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().expect("four bytes"));
    let half = addresses.len() / 2;
    let (from, to) = packet[addresses].split_at(half);
    let mut answer = vec![0; 20];
    answer[..2].copy_from_slice(&segment[2..4]);
    answer[2..4].copy_from_slice(&segment[..2]);
    answer[8..12].copy_from_slice(&number(4).wrapping_add(1).to_be_bytes());
    (answer[12], answer[13]) = (0x50, 0x14); // RST, ACK
    let sum = checksum(&[to, from, &[0, 6, 0, 20], &answer]);
    answer[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut whole = if v4 {
        let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend_from_slice(&[to, from].concat());
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip
    } else {
        let mut ip = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
        ip.extend_from_slice(&[to, from].concat());
        ip
    };
    whole.extend_from_slice(&answer);
    let peer = if v4 {
        IpAddr::from(<[u8; 4]>::try_from(from).expect("IPv4"))
    } else {
        IpAddr::from(<[u8; 16]>::try_from(from).expect("IPv6"))
    };
    (peer, whole)
}

/// Refuses connections until stopped; returns the number of segments.
fn refuse_all(link: &mut Xdp, stop: &AtomicBool) -> usize {
    let mut segments = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut answers = Vec::new();
        segments += link.receive(64, |packet| answers.push(refusal(packet)));
        for (to, bytes) in answers {
            assert!(link.transmit(to, bytes.len(), |at| at.copy_from_slice(&bytes)));
        }
        link.flush().expect("sent");
        let until = link.now() + Duration::from_millis(20);
        link.wait(Some(until)).expect("waited");
    }
    segments
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `kernel` in their namespace while we refuse every connection. Returns the number of
/// segments that reached us.
fn while_refusing(cable: &Cable, mode: XdpMode, kernel: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let segments = scope.spawn(|| {
            cable.ours.enter();
            let mut opened = open(&listen(mode)).expect("the link");
            println!("{} {:?}", opened.how, opened.notes);
            ready.send(()).expect("somebody waits");
            refuse_all(&mut opened.links[0], &stop)
        });
        is_ready.recv().expect("the link is open");
        // Stops the thread even if `kernel` panics.
        let stopping = Stop(&stop);
        kernel();
        drop(stopping);
        segments.join().expect("no panic")
    })
}

fn refused(at: impl Into<SocketAddr>) -> bool {
    TcpStream::connect_timeout(&at.into(), A_WHILE).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

/// Echoes a byte over the kernel's stack.
fn echo(cable: &Cable, port: u16) {
    thread::scope(|scope| {
        let listener = cable.ours.run(|| TcpListener::bind((OUR_V4, port)).expect("the kernel's port"));
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a byte");
            stream.write_all(&byte).expect("sent");
        });
        cable.theirs.run(|| {
            let mut stream = TcpStream::connect_timeout(&(OUR_V4, port).into(), A_WHILE).expect("connected");
            stream.write_all(b"x").expect("sent");
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the byte");
            assert_eq!(&byte, b"x");
        });
    });
}

fn our_port_is_ours_and_the_rest_is_the_kernels(mode: XdpMode) {
    let Some(cable) = Cable::new(1) else { return };
    let segments = while_refusing(&cable, mode, || {
        cable.theirs.run(|| {
            assert!(refused((OUR_V4, PORT)), "IPv4");
            assert!(refused((OUR_V6, PORT)), "IPv6");
        });
        // All while we own the port.
        cable.theirs.ping(&format!("-c 2 -i 0.05 {OUR_V4}"));
        cable.theirs.ping(&format!("-c 2 -i 0.05 {OUR_V6}"));
        cable.theirs.ping(&format!("-c 1 -s 4000 {OUR_V4}")); // in fragments
        echo(&cable, PORT + 1);
    });
    assert_eq!(segments, 2, "two SYNs were for us and nothing else");
    // A child that another test starts holds our descriptors from its fork to its exec.
    let begin = Instant::now();
    loop {
        let shown = cable.ours.must(&format!("ip link show {OURS}"));
        if !shown.contains("xdp") {
            break;
        }
        assert!(begin.elapsed() < A_WHILE, "the program stayed when the link was dropped: {shown}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn in_the_driver_our_port_is_ours_and_the_rest_is_the_kernels() {
    our_port_is_ours_and_the_rest_is_the_kernels(XdpMode::Auto);
}

#[test]
fn in_generic_mode_too() {
    our_port_is_ours_and_the_rest_is_the_kernels(XdpMode::Generic);
}

#[test]
fn a_clients_address_is_the_interfaces_for_as_long_as_it_lives() {
    let Some(cable) = Cable::new(1) else {
        return;
    };
    let source = Ipv4Addr::new(10, 77, 0, 9);
    cable.ours.run(|| {
        let mut opened = open(&XdpOptions::new(OURS, Steer::From(vec![source.into()]))).expect("the link");
        opened.links[0].look_for(&[THEIR_V4.into()]).expect("the peer answers ARP");
        let shown = cable.ours.must(&format!("ip -4 address show {OURS}"));
        assert!(shown.contains("10.77.0.9/32") && shown.contains("valid_lft"), "{shown}");
        cable.theirs.ping(&format!("-c 1 {source}"));
        // The kernel at the other end has no listener, so it answers our segment with a reset.
        let link = &mut opened.links[0];
        let (_, segment) = refusal(&syn_between(THEIR_V4, source));
        assert!(link.transmit(THEIR_V4.into(), segment.len(), |at| at.copy_from_slice(&segment)));
        link.flush().expect("sent");
    });
    let shown = cable.ours.must(&format!("ip -4 address show {OURS}"));
    assert!(!shown.contains("10.77.0.9"), "{shown}");
}

/// The answer of `refusal`, as if it came from there.
fn syn_between(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(&[0, 9, 0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    packet
}

#[test]
fn what_is_in_the_way_is_said_in_words() {
    let Some(cable) = Cable::new(1) else { return };
    cable.ours.run(|| {
        let says = |options: &XdpOptions| open(options).err().map(|e| e.to_string()).unwrap_or_default();
        let on = |name: &str| XdpOptions { interface: name.to_owned(), ..listen(XdpMode::Auto) };
        assert!(
            says(&on("eth7")).starts_with("there is no interface \"eth7\"; there are"),
            "{}",
            says(&on("eth7"))
        );
        assert!(says(&on("lo")).contains("not an Ethernet interface"), "{}", says(&on("lo")));
        let from = |a: Ipv4Addr| XdpOptions::new(OURS, Steer::From(vec![a.into()]));
        assert!(says(&from(Ipv4Addr::LOCALHOST)).contains("cannot be a source address"));
        let held = TcpListener::bind((OUR_V4, PORT)).expect("the kernel's port");
        assert!(says(&listen(XdpMode::Auto)).contains("cannot be listened on"));
        let said = says(&from(OUR_V4));
        assert!(said.contains("1 TCP sockets of this machine use 10.77.0.1"), "{said}");
        drop(held);
        let first = open(&listen(XdpMode::Auto)).expect("the link");
        let mut second = listen(XdpMode::Auto);
        second.steer = Steer::Listen(vec![(OUR_V4, PORT + 1).into()]);
        assert!(says(&second).contains("has an XDP program already"), "{}", says(&second));
        drop(first);
        // The queue may be busy for a moment; opening waits for it.
        drop(open(&second).expect("free again"));
        assert!(cable.ours.command(&format!("ip link set {OURS} down")).status.success());
        assert!(says(&second).contains("is down; ip link set dev here up"), "{}", says(&second));
    });
}

#[test]
fn another_interface_in_the_same_network_is_named() {
    let Some(cable) = Cable::new(1) else { return };
    let notes = || cable.ours.run(|| open(&listen(XdpMode::Auto)).expect("an interface").notes);
    assert_eq!(notes(), [""; 0]);
    cable.ours.must("ip link add other type veth peer name another");
    cable.ours.must("ip address add 10.77.0.200/24 dev other");
    let notes = notes();
    assert!(
        notes.iter().any(|note| note.contains("10.77.0.200") && note.contains("arp_ignore")),
        "{notes:?}"
    );
}

#[test]
fn each_queue_has_its_socket_and_each_thread_its_queues() {
    let Some(cable) = Cable::new(3) else { return };
    cable.ours.run(|| {
        let threads = |n: usize| open(&XdpOptions { threads: n, ..listen(XdpMode::Auto) }).expect("the link");
        assert_eq!(threads(1).links.len(), 1);
        assert_eq!(threads(2).links.len(), 2);
        let four = threads(4);
        assert_eq!((four.links.len(), four.notes.len()), (3, 1), "{:?}", four.notes);
        assert!(four.notes[0].contains("3 of 4 threads"), "{:?}", four.notes);
    });
}

#[test]
fn time_goes_on_while_nobody_waits() {
    let Some(cable) = Cable::new(1) else { return };
    cable.ours.run(|| {
        let mut opened = open(&listen(XdpMode::Auto)).expect("the link");
        let link = &mut opened.links[0];
        let before = link.now();
        thread::sleep(Duration::from_millis(2));
        assert_eq!(link.now(), before, "one time for all of a turn");
        link.flush().expect("flushed");
        assert!(link.now() >= before + Duration::from_millis(2), "each turn has its own");
    });
}

#[test]
fn a_waker_ends_the_wait() {
    let Some(cable) = Cable::new(1) else { return };
    cable.ours.run(|| {
        let mut opened = open(&listen(XdpMode::Auto)).expect("the link");
        let link = &mut opened.links[0];
        assert_eq!(link.checksums(), Checksums::Full);
        assert_eq!(link.mtu(THEIR_V4.into()), 1500);
        cable.ours.must(&format!("ip route add 192.0.2.0/24 via {THEIR_V4} mtu 1300"));
        link.look_for(&[[192, 0, 2, 1].into()]).expect("a way");
        assert_eq!(link.mtu([192, 0, 2, 1].into()), 1300);
        let waker = link.waker();
        thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            while !link.wait(None).expect("waited") {}
        });
        let soon = link.now() + Duration::from_millis(5);
        assert!(!link.wait(Some(soon)).expect("waited"));
        assert!(link.now() >= soon);
    });
}

/// Sends this many SYNs to our port, from their end.
fn send_syns(raw: &socket2::Socket, count: usize) {
    let mut packet = syn_between(THEIR_V4, OUR_V4);
    packet[22..24].copy_from_slice(&PORT.to_be_bytes());
    for _ in 0..count {
        raw.send_to(&packet, &SocketAddr::from((OUR_V4, 0)).into()).expect("sent");
    }
}

/// Reads all that is there; how much that was.
fn drain(link: &mut Xdp) -> usize {
    link.flush().expect("flushed");
    std::iter::repeat_with(|| link.receive(64, |_| {})).take_while(|&count| count > 0).sum()
}

/// In a flood, the frames for floods stay posted while the thread keeps up. It then loses nothing
/// when it has no CPU for a while.
#[test]
fn a_flood_that_is_read_in_time_keeps_its_frames() {
    const SIGN: usize = 1500;
    const ROUND: usize = 100;
    /// More than the frames for normal load.
    const UNREAD: usize = 6000;
    let Some(cable) = Cable::new(1) else { return };
    let raw = cable.theirs.run(|| {
        let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::RAW);
        socket2::Socket::new(domain, kind, Some(255.into())).expect("root may")
    });
    let opened = || cable.ours.run(|| open(&listen(XdpMode::Native)).expect("the link"));
    {
        let mut opened = opened();
        let link = &mut opened.links[0];
        send_syns(&raw, 1);
        // The frames stay for seconds, which a test that is held up may miss.
        let held_up = |begun: Instant| begun.elapsed() > Duration::from_secs(4);
        for _ in 0..10 {
            let (begun, before) = (Instant::now(), link.counts().overrun);
            send_syns(&raw, SIGN);
            drain(link);
            for _ in 0..UNREAD / ROUND + 20 {
                send_syns(&raw, ROUND);
                drain(link);
            }
            send_syns(&raw, UNREAD);
            let (read, lost) = (drain(link), link.counts().overrun - before);
            if !held_up(begun) {
                assert_eq!((read, lost), (UNREAD, 0));
                break;
            }
        }
    }
    // The stack may see the flood first.
    let mut opened = opened();
    let link = &mut opened.links[0];
    link.expect_flood();
    send_syns(&raw, UNREAD);
    assert_eq!((drain(link), link.counts().overrun), (UNREAD, 0));
}
