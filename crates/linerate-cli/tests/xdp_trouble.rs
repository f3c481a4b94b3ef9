//! `--io xdp` when something changes under it: processes that begin anew, hosts behind a NAT, links
//! that go down. Needs root.

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod past_kernel;

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use linerate_skips::skip;

use common::answer;
use namespaces::{Cable, Namespace, OUR_V4, OUR_V6, OURS, THEIR_V4, THEIR_V6, THEIRS};
use past_kernel::{A_WHILE, PORT, Serving, connected, get, load};

const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(OUR_V4), PORT);

/// Ten runs from one address, each of which uses ports that the server remembers from earlier ones.
fn ten_runs(within: &Namespace, interface: &str, to: std::net::Ipv4Addr) {
    for run in 0..10 {
        let begun = Instant::now();
        let flags = format!(
            "--io xdp --interface {interface} --from 10.77.0.9 -t 1 -c 200 -n 8000 --per-connection 1 \
             http://{to}:{PORT}/bytes/600"
        );
        let (document, said) = load(within, &flags);
        assert_eq!(said.code, Some(0), "run {run}: {}", said.err);
        assert_eq!(common::number(&document, "/requests/answered"), 8000, "run {run}");
        assert_eq!(common::number(&document, "/requests/failed"), 0, "run {run}");
        // No connection attempt was lost: that would have cost a second.
        let slowest = document["latency_us"]["from_sent"]["max"].as_f64().expect("a latency");
        assert!(slowest < 900_000.0, "run {run}: {slowest} us, {:?}: {}", begun.elapsed(), document["tcp"]);
    }
}

#[test]
fn ten_runs_in_a_row_from_one_address_to_our_server() {
    let Some(cable) = Cable::new(1) else { return };
    let _serving = Serving::xdp(&cable, "");
    ten_runs(&cable.theirs, THEIRS, OUR_V4);
}

#[test]
fn ten_runs_in_a_row_from_one_address_to_the_kernels() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT} --threads 1"));
    ten_runs(&cable.ours, OURS, THEIR_V4);
}

/// Two kernels with other clocks, whose connections come from the same address and port.
#[test]
fn two_kernels_behind_one_port_of_a_nat_are_both_served() {
    let Some(cable) = Cable::new(1) else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return skip("nft", "nft is not installed");
    }
    let Some(hosts) = cable.behind_one_port(PORT, 40_000) else {
        return skip("NAT", "this kernel has no NAT");
    };
    let _serving = Serving::xdp(&cable, "");
    // It is unknown which of the clocks is ahead, so each comes after the other.
    for turn in 0..6 {
        let begun = Instant::now();
        let (head, _) = hosts[turn % 2].run(|| get((OUR_V4, PORT).into(), "/"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        // A SYN that is dropped is retransmitted after one second, and after two more.
        assert!(begun.elapsed() < Duration::from_secs(5), "turn {turn} took {:?}", begun.elapsed());
        // The NAT has to forget, our server must not.
        thread::sleep(Duration::from_millis(2500));
    }
}

/// A down link is packet loss: connections wait for it, and new ones are made.
#[test]
fn a_server_outlives_a_link_that_is_down_for_a_second() {
    let Some(cable) = Cable::new(1) else { return };
    let serving = Serving::xdp(&cable, "");
    let mut open = cable.theirs.run(|| BufReader::new(connected(AT)));
    write!(open.get_mut(), "GET /bytes/30000000 HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    cable.ours.must(&format!("ip link set {OURS} down"));
    thread::sleep(Duration::from_secs(1));
    cable.ours.must(&format!("ip link set {OURS} up"));
    serving.says(&format!("{OURS} is down: packets are lost until it is up again"));
    serving.says(&format!("{OURS} is up again"));
    assert_eq!(answer(&mut open).1.len(), 30_000_000, "what was under way arrives");
    assert!(cable.theirs.run(|| get(AT, "/")).0.starts_with("HTTP/1.1 200"));
}

/// `load` from this address while its link goes down for a second, and `meanwhile` is done when it
/// is up again.
fn load_over_a_break(cable: &Cable, from: &str, to: &str, meanwhile: impl FnOnce()) {
    let flags = format!(
        "--io xdp --interface {OURS} --from {from} -t 1 -c 10 -r 500 -d 4s http://{to}:{PORT}/bytes/600"
    );
    let (document, said) = thread::scope(|scope| {
        let running = scope.spawn(|| load(&cable.ours, &flags));
        has_address(cable, from);
        thread::sleep(Duration::from_millis(700));
        cable.ours.must(&format!("ip link set {OURS} down"));
        thread::sleep(Duration::from_secs(1));
        cable.ours.must(&format!("ip link set {OURS} up"));
        has_address(cable, from);
        meanwhile();
        running.join().expect("no panic")
    });
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/requests/failed"), 0, "{document}");
    assert!(common::number(&document, "/requests/answered") >= 1900, "{document}");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("here is down") && warnings.contains("here is up again"), "{warnings}");
}

#[test]
fn load_goes_on_when_its_link_comes_back() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT} --threads 1"));
    load_over_a_break(&cable, "10.77.0.9", &THEIR_V4.to_string(), || {
        // The run adds an address again that another program removes.
        cable.ours.must(&format!("ip address del 10.77.0.9/32 dev {OURS}"));
        has_address(&cable, "10.77.0.9");
    });
}

/// The kernel takes IPv6 addresses from an interface that goes down.
#[test]
fn load_by_ipv6_goes_on_when_its_link_comes_back() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.theirs, &format!("--listen [{THEIR_V6}]:{PORT} --threads 1"));
    // NDP works as soon as duplicate address detection has confirmed the link-local addresses.
    for (end, name) in [(&cable.ours, OURS), (&cable.theirs, THEIRS)] {
        let until = Instant::now() + A_WHILE;
        loop {
            let shown = end.must(&format!("ip address show dev {name}"));
            if shown.contains("inet6 fe80") && !shown.contains("tentative") {
                break;
            }
            assert!(Instant::now() < until, "{name} has no address of the link: {shown}");
            thread::sleep(Duration::from_millis(20));
        }
    }
    load_over_a_break(&cable, "fd77::9", &format!("[{THEIR_V6}]"), || {});
}

fn has_address(cable: &Cable, address: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    while !cable.ours.must(&format!("ip address show dev {OURS}")).contains(&format!("{address}/")) {
        assert!(Instant::now() < until, "{address} never came");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The operator learns that it no longer serves.
#[test]
fn a_server_whose_interface_is_removed_ends() {
    let Some(cable) = Cable::new(2) else { return };
    let flags = format!("--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --threads 2");
    let mut serving = Serving::start(&cable.ours, &flags);
    assert!(cable.theirs.run(|| get(AT, "/")).0.starts_with("HTTP/1.1 200"));
    cable.ours.must(&format!("ip link delete {OURS}"));
    assert_eq!(serving.ends(), Some(4));
    serving.says("the interface here was removed");
    serving.says("answered 1 requests on 1 connections");
    serving.says("none of its threads can serve any more");
}

#[test]
fn load_whose_interface_is_removed_says_what_it_measured() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT} --threads 1"));
    let flags = format!(
        "--io xdp --interface {OURS} --from 10.77.0.9 -t 1 -c 10 -r 500 -d 20s http://{THEIR_V4}:{PORT}/bytes/600"
    );
    let (document, said) = thread::scope(|scope| {
        let running = scope.spawn(|| load(&cable.ours, &flags));
        has_address(&cable, "10.77.0.9");
        thread::sleep(Duration::from_secs(1));
        cable.ours.must(&format!("ip link delete {OURS}"));
        running.join().expect("no panic")
    });
    assert_eq!(said.code, Some(4), "{}", said.err);
    assert!(common::number(&document, "/requests/answered") >= 100, "{document}");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("the run ended early: the interface here was removed"), "{warnings}");
}

#[test]
fn changes_of_the_interface_are_followed() {
    let Some(cable) = Cable::new(1) else { return };
    let serving = Serving::xdp(&cable, "");
    let mut open = cable.theirs.run(|| BufReader::new(connected(AT)));
    let mut ask = |path: &str| {
        write!(open.get_mut(), "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        answer(&mut open).1
    };
    let mss = |flows: &[u8]| -> u64 {
        let flows: serde_json::Value = serde_json::from_slice(flows).expect("JSON");
        flows["flows"][0]["mss_bytes"].as_u64().expect("a size")
    };
    assert_eq!(mss(&ask("/stats/flows")), 1448);
    cable.ours.must(&format!("ip link set {OURS} mtu 1300"));
    serving.says(&format!("the MTU of {OURS} is 1300 now"));
    // The connection that is open, and a new one.
    assert_eq!(mss(&ask("/stats/flows")), 1248);
    assert_eq!(ask("/bytes/1000000").len(), 1_000_000);
    assert_eq!(cable.theirs.run(|| get(AT, "/bytes/1000000")).1.len(), 1_000_000);
    // Packets to the new address are ours, and are answered from it.
    cable.ours.must(&format!("ip link set {OURS} address 02:00:00:00:77:01"));
    serving.says(&format!("the hardware address of {OURS} has changed"));
    cable.theirs.must(&format!("ip neighbour flush dev {THEIRS}"));
    assert_eq!(cable.theirs.run(|| get(AT, "/bytes/1000000")).1.len(), 1_000_000);
    // If the operator removes linerate's own address, that is reported.
    cable.ours.must(&format!("ip address del {OUR_V4}/24 dev {OURS}"));
    serving.says(&format!("{OURS} has lost the address {OUR_V4}"));
}

/// A kernel on this machine leaves checksums to a card that is not there, over a macvlan as over a
/// veth.
#[test]
fn a_macvlan_works_for_server_and_client() {
    let Some(cable) = Cable::new(1) else { return };
    let address = Ipv4Addr::new(10, 77, 0, 5);
    let host = cable.macvlan("mv0", address);
    let flags = format!("--io xdp --interface mv0 --listen {address}:{PORT} --threads 1");
    let serving = Serving::start(&host, &flags);
    assert_eq!(cable.theirs.run(|| get((address, PORT).into(), "/bytes/100000")).1.len(), 100_000);
    drop(serving);
    let _kernels = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT} --threads 1"));
    let flags = format!(
        "--io xdp --interface mv0 --from 10.77.0.9 -t 1 -c 10 -n 1000 --per-connection 10 http://{THEIR_V4}:{PORT}/bytes/600"
    );
    let (document, said) = load(&host, &flags);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/requests/answered"), 1000);
}

#[test]
fn the_target_is_no_source() {
    let Some(cable) = Cable::new(1) else { return };
    let begun = Instant::now();
    let flags = format!(
        "load --io xdp --interface {OURS} --from 10.77.0.9,{THEIR_V4} -n 1 http://{THEIR_V4}:{PORT}/"
    );
    let said = cable.ours.run(|| common::run(&flags.split(' ').collect::<Vec<_>>()));
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("--from is 10.77.0.2, which is the target itself"), "{}", said.err);
    assert!(begun.elapsed() < Duration::from_secs(2), "before anything is looked for");
}

/// How long the threads of a process were ready to run while others had the CPUs.
fn waited_for_a_cpu(pid: &str) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    // One that has ended since does not count.
    let times =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok());
    let waited = times.map(|times| {
        times.split_whitespace().nth(1).expect("three numbers").parse::<u64>().expect("nanoseconds")
    });
    Duration::from_nanos(waited.sum())
}

/// The kernel needs a moment to detach the program and the queue from a killed process; a new one
/// waits for nothing else, and the first request that its clients send then is answered.
#[test]
fn after_a_kill_a_new_server_answers_soon() {
    let Some(cable) = Cable::new(1) else { return };
    let mut serving = Serving::xdp(&cable, "");
    assert!(cable.theirs.run(|| get(AT, "/")).0.starts_with("HTTP/1.1 200"));
    let mut times = Vec::new();
    for _ in 0..10 {
        serving.signal("-KILL");
        let killed = Instant::now();
        serving.0.wait().expect("it is gone");
        serving = Serving::xdp(&cable, "");
        assert!(cable.theirs.run(|| get(AT, "/")).0.starts_with("HTTP/1.1 200"));
        // What a busy machine adds to the start does not count.
        let (took, waited) = (killed.elapsed(), waited_for_a_cpu(&serving.0.id().to_string()));
        times.push(took.saturating_sub(waited));
    }
    times.sort();
    println!("after the kill the first answer came in {:?}, median {:?}", times[0], times[5]);
    // On a busy machine the killed process ends later, and nothing says for how long it waited.
    assert!(times[2] < Duration::from_millis(100), "{times:?}");
}

/// Linux's counter of this name in the table of TCP's extensions.
fn linux_counts(within: &Namespace, name: &str) -> u64 {
    let table = within.must("cat /proc/net/netstat");
    let rows: Vec<Vec<&str>> = (table.lines().filter(|line| line.starts_with("TcpExt:")))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let column = rows[0].iter().position(|column| *column == name).expect("a counter");
    rows[1][column].parse().expect("a number")
}

/// A network that marks, and Linux on the other end: both sides send less for a mark, and nothing is
/// lost (RFC 3168).
#[test]
fn marks_of_congestion_are_heeded_by_both_ends() {
    let Some(cable) = Cable::new(1) else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return skip("nft", "nft is not installed");
    }
    let mut rules = vec!["add table ip marks".to_owned()];
    for hook in ["input", "output"] {
        rules.push(format!("add chain ip marks {hook} {{type filter hook {hook} priority 0;}}"));
        let which = "meta length > 500 numgen random mod 20 == 0 ip ecn != not-ect";
        rules.push(format!("add rule ip marks {hook} {which} ip ecn set ce"));
    }
    if !rules.iter().all(|rule| cable.theirs.command(&format!("nft {rule}")).status.success()) {
        return skip("nft", "nft cannot mark packets here");
    }
    cable.theirs.must("sysctl -qw net.ipv4.tcp_ecn=1");
    let _serving = Serving::xdp(&cable, "");
    cable.theirs.run(|| {
        assert_eq!(get(AT, "/bytes/20000000").1.len(), 20_000_000);
        let mut open = BufReader::new(connected(AT));
        let mut writer = open.get_ref().try_clone().expect("the same connection");
        let sending = thread::spawn(move || {
            for _ in 0..20 {
                let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
                writer.write_all(&[head.as_bytes(), &[b'x'; 1_000_000]].concat()).expect("sent");
            }
        });
        for _ in 0..20 {
            assert_eq!(answer(&mut open).1.len(), 1_000_000);
        }
        sending.join().expect("no panic");
    });
    let (_, stats) = cable.theirs.run(|| get(AT, "/stats"));
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
    let ours = |name: &str| stats["tcp"][name].as_u64().expect("a counter");
    let theirs = linux_counts(&cable.theirs, "TCPDeliveredCE");
    println!(
        "{} marks came here, Linux was told of {theirs} and told of {}",
        ours("marks_in"),
        ours("marks_heeded")
    );
    assert!(ours("marks_in") > 10 && theirs > 10 && ours("marks_heeded") > 10, "{stats}");
    assert_eq!(ours("retransmits"), 0, "{stats}");
}

/// A connection whose segments have extension headers is ours still: the kernel would reset it.
#[test]
fn segments_behind_extension_headers_are_answered() {
    const CLIENT: &str = "
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
pad = bytes([0, 0, 1, 4, 0, 0, 0, 0])
for option in (0, socket.IPV6_DSTOPTS, socket.IPV6_HOPOPTS):
    if option:
        s.setsockopt(socket.IPPROTO_IPV6, option, pad)
    s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    print(s.recv(4096).decode().splitlines()[0])
";
    let Some(cable) = Cable::new(1) else { return };
    let flags = format!("--io xdp --interface {OURS} --listen [{OUR_V6}]:{PORT} --threads 1");
    let _serving = Serving::start(&cable.ours, &flags);
    let run =
        || Command::new("python3").args(["-c", CLIENT, &OUR_V6.to_string(), &PORT.to_string()]).output();
    let Ok(out) = cable.theirs.run(run) else { return skip("python3", "python3 is not installed") };
    let (said, trouble) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(said, "HTTP/1.1 200 OK\n".repeat(3), "{trouble}");
}
