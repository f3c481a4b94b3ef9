//! The box with the kernel's TCP on both sides. Needs root; tests that cannot run report that.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use linerate_netbox::{Conditions, LinkDirection, NetBox, NetboxBuilder};
use linerate_skips::{need, skip};

const MS: Duration = Duration::from_millis(1);
/// Timeout after which a test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(builder: NetboxBuilder) -> Option<NetBox> {
    static LACK: OnceLock<Option<String>> = OnceLock::new();
    if let Some(lack) = LACK.get_or_init(NetBox::unavailable) {
        skip(need::NAMESPACES, lack);
        return None;
    }
    Some(builder.start().expect("a box"))
}

fn listen(net: &NetBox) -> (TcpListener, SocketAddr) {
    let ip = net.server().ip();
    let l = net.server().run(|| TcpListener::bind((ip, 0))).expect("it enters").expect("it listens");
    let at = l.local_addr().expect("an address");
    (l, at)
}

fn connect(net: &NetBox, to: SocketAddr) -> TcpStream {
    let s = net.client().run(|| TcpStream::connect_timeout(&to, PATIENCE)).expect("it enters");
    let s = s.expect("it connects");
    s.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    s
}

/// Sends `bytes` from server to client; returns how many arrived.
fn transfer(net: &NetBox, bytes: usize) -> usize {
    let (listener, at) = listen(net);
    let sender = std::thread::spawn(move || {
        let mut s = listener.accept().expect("a connection").0;
        let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        s.write_all(&data).expect("it sends");
    });
    let mut all = Vec::new();
    connect(net, at).read_to_end(&mut all).expect("it arrives");
    sender.join().expect("no panic");
    assert!(all.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8), "the bytes are those sent");
    all.len()
}

#[test]
fn delay_is_added_each_way() {
    let Some(net) = start(NetBox::builder().delay(20 * MS)) else { return };
    let (listener, at) = listen(&net);
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        drop(connect(&net, at));
        shortest = shortest.min(begin.elapsed());
        listener.accept().expect("a connection");
    }
    // Only a lower bound: the upper one depends on the machine.
    assert!(shortest >= 40 * MS, "{shortest:?}");
}

#[test]
fn bytes_survive_loss_reordering_and_duplication() {
    let b = NetBox::builder().delay(MS).loss(0.02).duplicate(0.02).reorder(0.02, 2 * MS).seed(3);
    let Some(net) = start(b) else { return };
    assert_eq!(transfer(&net, 2_000_000), 2_000_000);
    let down = net.report().down;
    assert!(down.lost > 0 && down.duplicated > 0 && down.reordered > 0, "{down:?}");
    assert!(down.received > 2_000_000 / 1500, "each segment is a frame of its own: {down:?}");
}

#[test]
fn the_first_syn_is_lost_and_comes_again_a_second_later() {
    let Some(net) = start(NetBox::builder().drop_frames(LinkDirection::Up, "syn=1".parse().expect("a rule")))
    else {
        return;
    };
    let (_listener, at) = listen(&net);
    let begin = Instant::now();
    connect(&net, at);
    assert!(begin.elapsed() >= Duration::from_secs(1), "RFC 6298, section 2: the first RTO is 1 s");
    assert_eq!(net.report().up.targeted, 1);
}

#[test]
fn path_mtu_is_found_by_icmp() {
    let Some(net) = start(NetBox::builder().mtu(1000)) else { return };
    assert_eq!(transfer(&net, 100_000), 100_000);
    let down = net.report().down;
    assert!(down.too_big > 0, "{down:?}");
}

#[test]
fn a_path_mtu_black_hole_swallows_what_is_large() {
    let Some(net) = start(NetBox::builder().mtu(1000).black_hole()) else { return };
    let (listener, at) = listen(&net);
    let mut client = connect(&net, at);
    let mut server = listener.accept().expect("a connection").0;
    server.write_all(b"small").expect("it fits");
    let mut small = [0; 5];
    client.read_exact(&mut small).expect("what is small arrives");
    server.write_all(&[0; 1400]).expect("it is queued");
    client.set_read_timeout(Some(300 * MS)).expect("a timeout");
    assert!(client.read(&mut [0; 10]).is_err(), "what is large does not");
    assert!(net.report().down.too_big > 0);
}

#[test]
fn conditions_change_while_it_runs() {
    let Some(net) = start(NetBox::builder()) else { return };
    let ip = net.server().ip();
    let bind = |ip: Ipv4Addr| move || UdpSocket::bind((ip, 0));
    let server = net.server().run(bind(ip)).expect("it enters").expect("a socket");
    let client = net.client().run(bind(net.client().ip())).expect("it enters").expect("a socket");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let to = server.local_addr().expect("an address");
    let mut buffer = [0; 10];
    client.send_to(b"one", to).expect("it goes");
    assert_eq!(server.recv(&mut buffer).expect("it comes"), 3);
    let dead = Conditions { drops: vec!["udp=all".parse().expect("a rule")], ..Conditions::default() };
    net.change(LinkDirection::Up, dead).expect("it runs");
    // The relay reads the order in its next turn: until then a frame may still pass.
    let start = Instant::now();
    while net.report().up.targeted == 0 {
        client.send_to(b"two", to).expect("it goes");
        std::thread::sleep(MS);
        assert!(start.elapsed() < PATIENCE);
    }
    net.change(LinkDirection::Up, Conditions::default()).expect("it runs");
    server.set_read_timeout(Some(50 * MS)).expect("a timeout");
    while server.recv(&mut buffer).map_or(true, |n| &buffer[..n] != b"last") {
        client.send_to(b"last", to).expect("it goes");
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn both_sides_speak_ipv6() {
    let Some(net) = start(NetBox::builder()) else { return };
    if !fs::exists("/proc/sys/net/ipv6").unwrap_or(false) {
        return skip("IPv6", "this kernel has no IPv6");
    }
    let ip = net.server().ip6();
    let listener = net.server().run(|| TcpListener::bind((ip, 0))).expect("it enters").expect("it listens");
    connect(&net, listener.local_addr().expect("an address"));
}

#[test]
fn other_addresses_of_a_side_are_answered_for() {
    let Some(net) = start(NetBox::builder()) else { return };
    let mut add = Command::new("ip");
    add.args(["address", "add", "10.99.2.77/32", "dev", linerate_netbox::INTERFACE]);
    net.server().output(add).expect("an address more");
    let at = (Ipv4Addr::new(10, 99, 2, 77), 0);
    let listener = net.server().run(|| TcpListener::bind(at)).expect("it enters").expect("it listens");
    connect(&net, listener.local_addr().expect("an address"));
}

#[test]
fn files_settings_and_programs_of_a_side() {
    let own = "nameserver 10.99.2.1\n";
    let b = NetBox::builder().client_file("/etc/resolv.conf", own).server_file("/etc/hosts", own);
    let Some(net) = start(b) else { return };
    let mut cat = Command::new("cat");
    cat.arg("/etc/resolv.conf");
    assert_eq!(net.client().output(cat).expect("it runs"), "nameserver 10.99.2.1\n");
    let mut cat = Command::new("cat");
    cat.arg("/etc/resolv.conf");
    assert_ne!(net.server().output(cat).expect("it runs"), "nameserver 10.99.2.1\n");
    net.client().sysctl("net/ipv4/tcp_slow_start_after_idle", "0").expect("a setting of the namespace");
    let error = net.client().sysctl("net/ipv4/no_such_setting", "0").expect_err("there is none");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    let (_listener, at) = listen(&net);
    assert_eq!(net.server().listening().expect("a table"), [at.port()]);
    assert_eq!(net.client().listening().expect("a table"), []);
}

#[test]
fn nothing_is_left_when_it_goes() {
    let Some(net) = start(NetBox::builder()) else { return };
    let mut sleep = net.server().command("sleep");
    sleep.arg("1000");
    let mut sleep = net.server().spawn(sleep).expect("it starts");
    let pid = sleep.id();
    sleep.let_go();
    // Before the command takes setpriv's place, nothing ties it to the thread that started it.
    let start = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n") {
        assert!(start.elapsed() < PATIENCE, "{pid} does not begin");
        std::thread::sleep(MS);
    }
    drop(net);
    // The kernel killed it, because the thread that started it has ended.
    let start = Instant::now();
    while !sleep.ended() {
        assert!(start.elapsed() < PATIENCE, "{pid} lives on");
        std::thread::sleep(MS);
    }
}

#[test]
fn servers_of_this_machine_are_reached_over_a_line() {
    let line: linerate_netbox::LineShape = "30ms".parse().expect("a line");
    // Several at once do not get into each other's way.
    let Some(first) = start(line.builder().to_this_machine()) else { return };
    let Some(second) = start(line.builder().to_this_machine()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    for net in [&first, &second] {
        let began = Instant::now();
        let mut stream = connect(net, address);
        assert!(began.elapsed() >= Duration::from_millis(30));
        let (mut server, from) = listener.accept().expect("it arrives");
        assert_eq!(from.ip(), net.client().ip());
        stream.write_all(b"a").expect("it is sent");
        server.read_exact(&mut [0]).expect("it is received");
        server.write_all(b"b").expect("it is sent");
        stream.read_exact(&mut [0]).expect("it is received");
        assert!(net.report().up.delivered >= 3);
    }
}
