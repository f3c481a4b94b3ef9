//! `--io xdp`, as people use it: a kernel on the other end of the cable. Needs root.

mod common;
mod issued;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod past_kernel;

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_skips::{need, skip, skip_part};

use common::answer;
use issued::Issued;
use namespaces::{Cable, FAR_V4, Namespace, OUR_V4, OUR_V6, OURS, THEIR_V4, THEIR_V6, THEIRS};
use past_kernel::{PORT, Serving, connected, get, load};

/// Bytes that repeat nowhere near.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// 100 MB there and 100 MB back, in bodies of a megabyte.
fn transfer(at: SocketAddr) {
    const BODIES: u64 = 100;
    const BODY: usize = 1 << 20;
    let stream = connected(at);
    let mut writer = stream.try_clone().expect("the same connection");
    let mut reader = BufReader::new(stream);
    thread::scope(|scope| {
        scope.spawn(move || {
            for seed in 0..BODIES {
                let head = format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n");
                writer.write_all(&[head.as_bytes(), &noise(seed, BODY)].concat()).expect("sent");
            }
        });
        for seed in 0..BODIES {
            let (head, body) = answer(&mut reader);
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert!(body == noise(seed, BODY), "body {seed} differs");
        }
    });
}

#[test]
fn a_hundred_megabytes_are_the_same_both_ways_while_ping_and_another_port_stay_alive() {
    let Some(cable) = Cable::new(1) else { return };
    let _serving = Serving::xdp(&cable, "");
    let other = cable.ours.run(|| TcpListener::bind((OUR_V4, PORT + 1)).expect("the kernel's port"));
    let done = AtomicBool::new(false);
    let (done, theirs) = (&done, &cable.theirs);
    thread::scope(|scope| {
        let moving = scope.spawn(move || {
            theirs.run(|| transfer((OUR_V4, PORT).into()));
            theirs.run(|| transfer((OUR_V6, PORT).into()));
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) && !moving.is_finished() {
            theirs.ping(&format!("-c 1 {OUR_V4}"));
            theirs.ping(&format!("-c 1 {OUR_V6}"));
            let _client = theirs.run(|| connected((OUR_V4, PORT + 1).into()));
            let _server = other.accept().expect("a connection of the kernel's");
        }
    });
    let (_, stats) = theirs.run(|| get((OUR_V4, PORT).into(), "/stats"));
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
    assert!(stats["tcp"]["segments_in"].as_u64() > Some(100_000), "{stats}");
}

#[test]
fn routes_and_waiting_handlers_answer_as_on_the_kernels_tcp_and_a_drain_loses_nothing() {
    let Some(cable) = Cable::new(1) else { return };
    let mut serving = Serving::xdp(&cable, "");
    for at in [SocketAddr::from((OUR_V4, PORT)), SocketAddr::from((OUR_V6, PORT))] {
        cable.theirs.run(|| {
            assert_eq!(get(at, "/").1, b"Hello, World!\n");
            assert_eq!(get(at, "/bytes/70000").1.len(), 70_000);
            assert!(get(at, "/delay/20").0.starts_with("HTTP/1.1 200"));
            assert!(get(at, "/status/404").0.starts_with("HTTP/1.1 404"));
        });
    }
    // A response in flight while the server is asked to end.
    let mut stream = cable.theirs.run(|| connected((OUR_V4, PORT).into()));
    stream
        .write_all(b"GET /delay/300 HTTP/1.1\r\nHost: x\r\n\r\nGET /stats HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    while !cable
        .theirs
        .run(|| get((OUR_V4, PORT).into(), "/stats"))
        .1
        .windows(11)
        .any(|w| w == b"\"waiting\":1")
    {
        thread::sleep(Duration::from_millis(5));
    }
    serving.signal("-TERM");
    assert!(answer(&mut BufReader::new(stream)).0.starts_with("HTTP/1.1 200"));
    assert!(serving.0.wait().expect("it ends").success());
}

#[test]
fn load_goes_past_the_kernel_and_leaves_no_address_behind() {
    let Some(cable) = Cable::new(1) else { return };
    cable.theirs.must("sysctl -qw net.ipv4.tcp_timestamps=1");
    let listen = format!("--listen {THEIR_V4}:{PORT} --listen [{THEIR_V6}]:{PORT} --threads 1");
    let _kernels = Serving::start(&cable.theirs, &listen);
    for (from, to) in [("10.77.0.9,10.77.0.10", THEIR_V4.to_string()), ("fd77::9", format!("[{THEIR_V6}]"))] {
        for per_connection in ["1", "3", "1000"] {
            let flags = format!(
                "--io xdp --interface {OURS} --from {from} -t 1 -c 50 -n 3000 --per-connection {per_connection} \
                 http://{to}:{PORT}/bytes/600"
            );
            let (document, said) = load(&cable.ours, &flags);
            assert_eq!(said.code, Some(0), "{}", said.err);
            assert_eq!(common::number(&document, "/requests/answered"), 3000);
            assert_eq!(common::number(&document, "/requests/failed"), 0);
            assert_eq!(document["environment"]["io"], "stack");
        }
    }
    let shown = cable.ours.must(&format!("ip address show dev {OURS}"));
    assert!(!shown.contains("10.77.0.9") && !shown.contains("fd77::9"), "{shown}");
}

/// A proxy that opens tunnels, for connections that begin in this thread's namespace.
fn tunnels(listener: &TcpListener) {
    for client in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || {
            let (mut from, mut head) = (client.try_clone().expect("the same connection"), Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if from.read(&mut byte).unwrap_or(0) == 0 {
                    return;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).expect("text");
            let to = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).expect("CONNECT");
            let (mut to, mut client) = (TcpStream::connect(to).expect("connected"), client);
            client.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n").expect("sent");
            let (mut back, mut there) = (client, to.try_clone().expect("the same connection"));
            thread::spawn(move || std::io::copy(&mut from, &mut there));
            let _ = std::io::copy(&mut to, &mut back);
            let _ = back.shutdown(std::net::Shutdown::Write);
        });
    }
}

#[test]
fn https_goes_past_the_kernel_straight_and_through_a_proxy() {
    let Some(cable) = Cable::new(1) else {
        return;
    };
    let theirs = Issued::to(&THEIR_V4.to_string());
    let (cert, key) = (theirs.file("cert.pem"), theirs.file("key.pem"));
    let _kernels = Serving::start(
        &cable.theirs,
        &format!("--listen {THEIR_V4}:{PORT} --tls-cert {cert} --tls-key {key} --threads 1"),
    );
    let proxy = cable.theirs.run(|| TcpListener::bind((THEIR_V4, 0)).expect("a port"));
    let at = proxy.local_addr().expect("bound");
    // Threads of a thread are in its namespace.
    cable.theirs.run(|| thread::spawn(move || tunnels(&proxy)));
    // On a busy machine the requests may be answered before the last connections are open.
    for route in [String::new(), format!("--proxy http://{at} ")] {
        for (more, handshakes) in
            [("--http 1.1", 10), ("--http 1.1 --per-connection 3", 67), ("--http 2", 10)]
        {
            let flags = format!(
                "--io xdp --interface {OURS} --from 10.77.0.9 -t 1 -c 50 -n 200 {more} --cacert {cert} \
                 {route}https://{THEIR_V4}:{PORT}/bytes/6000"
            );
            let (document, said) = load(&cable.ours, &flags);
            assert_eq!(said.code, Some(0), "{flags}: {}", said.err);
            assert_eq!(common::number(&document, "/status/200"), 200, "{flags}: {document}");
            assert_eq!(document["environment"]["io"], "stack");
            let count = |what: &str| common::number(&document, what);
            assert!(count("/tls/full") + count("/tls/resumed") >= handshakes, "{flags}: {document}");
        }
    }
    let ours = Issued::to(&OUR_V4.to_string());
    let (cert, key) = (ours.file("cert.pem"), ours.file("key.pem"));
    let _serving = Serving::xdp(&cable, &format!(" --tls-cert {cert} --tls-key {key}"));
    let flags =
        format!("-c 8 -n 100 --per-connection 5 --cacert {cert} https://{OUR_V4}:{PORT}/bytes/100000");
    let (document, said) = load(&cable.theirs, &flags);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/status/200"), 100, "{document}");
    assert!(common::number(&document, "/tls/resumed") > 0, "{document}");
}

/// The states of their connections with our client, as /proc/net/tcp has them.
fn states_of_theirs(cable: &Cable) -> Vec<String> {
    const OURS_REVERSED: &str = "09004D0A:";
    let table = cable.theirs.must("cat /proc/net/tcp");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let with_us = rows.filter(|row| row.get(2).is_some_and(|peer| peer.starts_with(OURS_REVERSED)));
    with_us.map(|row| row[3].to_owned()).collect()
}

/// User-space TCP ends with the process, so no stack would acknowledge the FINs of a server that
/// closes later.
#[test]
fn a_client_that_ends_leaves_no_half_connection_behind() {
    let Some(cable) = Cable::new(1) else { return };
    let client = "--io xdp --interface here --from 10.77.0.9 -t 1";
    let serving = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:8080 --threads 1"));
    let (_, said) = load(&cable.ours, &format!("{client} -c 3000 -n 6000 http://{THEIR_V4}:8080/bytes/600"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(states_of_theirs(&cable), Vec::<String>::new());
    drop(serving);
    // One that never closes is not waited for.
    let listener = cable.theirs.run(|| TcpListener::bind((THEIR_V4, 8081)).expect("can listen"));
    let holding = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).expect("a request") > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("sent");
        stream
    });
    let (_, said) = load(&cable.ours, &format!("{client} -c 1 -n 1 http://{THEIR_V4}:8081/"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let held = holding.join().expect("it answered");
    assert_eq!(states_of_theirs(&cable), Vec::<String>::new());
    drop(held);
}

#[test]
fn load_tells_of_its_segments_while_it_runs() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT} --threads 1"));
    let flags = format!(
        "load --io xdp --interface {OURS} --from 10.77.0.9 -t 1 -c 20 -r 500 -d 2500ms --fault loss=2% \
         http://{THEIR_V4}:{PORT}/bytes/600"
    );
    let said = cable.ours.run(|| common::run(&flags.split(' ').collect::<Vec<_>>()));
    assert_eq!(said.code, Some(0), "{}", said.err);
    // Once a second without a terminal; the first has seen losses.
    let lines: Vec<&str> = said.err.lines().filter(|l| l.contains("of segments resent")).collect();
    assert!(!lines.is_empty() && !lines[0].contains(", 0 % of segments"), "{}", said.err);
}

/// Segment by segment: windows, resets, challenge ACKs, retransmissions and options, as a peer
/// without TCP sees them.
#[test]
fn all_scenarios_of_the_segment_probe_pass() {
    let Some(probe) = linerate_skips::suite("bin/tcp_probe.py") else { return };
    let Some(cable) = Cable::new(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // Its responses have to fill windows and need many segments.
    std::fs::write(folder.path().join("index.html"), noise(7, 60_000)).expect("written");
    let flags = format!(
        "--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --threads 1 --dir {}",
        folder.path().display()
    );
    let _serving = Serving::start(&cable.ours, &flags);
    let report = folder.path().join("report.json");
    let mut bad: Option<BTreeMap<String, String>> = None;
    // It measures times: on a busy machine a verdict says little once.
    for _ in 0..3 {
        let run = || {
            let port = PORT.to_string();
            let address = OUR_V4.to_string();
            Command::new("python3")
                .arg(&probe)
                .args([THEIRS, "10.77.0.9", &address, &port, "--http", "--out"])
                .arg(&report)
                .output()
        };
        let Ok(out) = cable.theirs.run(run) else { return skip("python3", "python3 is not installed") };
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let report: Vec<serde_json::Value> =
            serde_json::from_slice(&std::fs::read(&report).expect("a report")).expect("JSON");
        assert_eq!(report.len(), 37);
        let failed = report.iter().filter(|case| case["verdict"] != "pass");
        let now: BTreeMap<String, String> =
            failed.map(|case| (case["id"].to_string(), case["note"].to_string())).collect();
        let still: BTreeMap<String, String> = match bad {
            Some(before) => now.into_iter().filter(|(id, _)| before.contains_key(id)).collect(),
            None => now,
        };
        if still.is_empty() {
            return;
        }
        bad = Some(still);
    }
    panic!("failed three times: {bad:#?}");
}

#[test]
fn both_ends_past_the_kernel() {
    let Some(cable) = Cable::new(1) else { return };
    let _serving = Serving::xdp(&cable, "");
    let flags = format!(
        "--io xdp --interface {THEIRS} --from 10.77.0.9 -t 1 -c 100 -n 20000 --per-connection 1 \
         http://{OUR_V4}:{PORT}/bytes/600"
    );
    let (document, said) = load(&cable.theirs, &flags);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/requests/answered"), 20_000);
    assert_eq!(common::number(&document, "/connections/opened"), 20_000);
    // There and back takes time on any machine; and no window was closed.
    assert!(document["latency_us"]["from_sent"]["min"].as_f64() > Some(0.0), "{document}");
    assert_eq!(document["tcp"]["zero_window_ms"].as_f64(), Some(0.0));
}

#[test]
fn both_ends_poll_their_queues() {
    let Some(cable) = Cable::new(1) else { return };
    let _serving = Serving::xdp(&cable, " --busy-poll 50us");
    let flags = format!(
        "--io xdp --interface {THEIRS} --from 10.77.0.9 --busy-poll 20us -t 1 -c 50 -n 5000 --per-connection 10 \
         http://{OUR_V4}:{PORT}/bytes/600"
    );
    let (document, said) = load(&cable.theirs, &flags);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/requests/answered"), 5000);
}

/// tshark's output for a capture; `None` if there is no tshark, which is reported.
fn tshark(capture: &Path, filter: &str) -> Option<usize> {
    let path = capture.to_str().expect("a path");
    let Ok(out) = Command::new("tshark").args(["-r", path, "-Y", filter]).output() else {
        skip_part("the look by tshark", "tshark", "tshark is not installed");
        return None;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).lines().count())
}

#[test]
fn both_ends_over_bad_links_whose_captures_we_and_tshark_can_read() {
    let Some(cable) = Cable::new(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (at_server, at_client) = (folder.path().join("server.pcap"), folder.path().join("client.pcap"));
    let mut serving =
        Serving::xdp(&cable, &format!(" --pcap-out {} --fault loss=1%,out:delay=5ms", at_server.display()));
    let flags = format!(
        "--io xdp --interface {THEIRS} --from 10.77.0.9 -t 1 -c 20 -n 2000 --per-connection 10 --pcap-out {} \
         --fault loss=1%,dup=1%,reorder=2%,seed=3 http://{OUR_V4}:{PORT}/bytes/600",
        at_client.display()
    );
    let (document, said) = load(&cable.theirs, &flags);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/requests/answered"), 2000);
    assert!(common::number(&document, "/tcp/retransmits") > 0, "packets were lost");
    assert!(document["latency_us"]["from_sent"]["p50"].as_f64() >= Some(5000.0), "they were late");
    serving.signal("-TERM");
    assert!(serving.0.wait().expect("it ends").success());
    for capture in [&at_server, &at_client] {
        let path = capture.to_str().expect("a path");
        let said = common::run(&["explain", "--json", "-", "--pcap", path]);
        let seen: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        assert_eq!(common::number(&seen, "/counts/answered"), 2000, "{path}");
        let Some(opened) = tshark(capture, "tcp.flags.syn == 1 and tcp.flags.ack == 0") else {
            continue;
        };
        assert!(opened >= 200, "{path}: {opened} SYNs, those that came twice among them");
        assert_eq!(tshark(capture, "_ws.malformed or not ip.addr == 10.77.0.9"), Some(0), "{path}");
    }
}

#[test]
fn a_capture_on_a_full_disk_ends_and_the_run_does_not() {
    let Some(cable) = Cable::new(1) else { return };
    let _serving = Serving::xdp(&cable, "");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path");
    // A file system of 300 kB, in a mount namespace that goes with the command.
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let script = format!(
        "mount -t tmpfs -o size=300k small {path}/disk || exit 99\n\
         $0 load --quiet --json {path}/run.json --io xdp --interface {THEIRS} --from 10.77.0.9 -t 1 -c 20 -n 2000 \
         --pcap-out {path}/disk/run.pcap http://{OUR_V4}:{PORT}/bytes/600 >{path}/said 2>&1 || exit 98\n\
         $0 explain --json - --pcap {path}/disk/run.pcap"
    );
    let linerate = env!("CARGO_BIN_EXE_linerate");
    let run = || Command::new("unshare").args(["--mount", "sh", "-c", &script, linerate]).output();
    let out = cable.theirs.run(run).expect("unshare");
    if out.status.code() == Some(99) {
        return skip(need::ROOT, "no file system can be mounted here");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert_ne!(out.status.code(), Some(98), "{}", read("said"));
    let document: serde_json::Value = serde_json::from_str(&read("run.json")).expect("JSON");
    assert_eq!(common::number(&document, "/requests/answered"), 2000);
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("it cannot be written: No space left on device"), "{warnings}");
    let seen: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(common::number(&seen, "/counts/answered") > 0, "what was written can be read");
    assert!(!seen["limits"].to_string().contains("cut"), "to a whole record: {}", seen["limits"]);
}

/// The counters of a server's stack, once `key` has reached this value. The server updates them
/// several times a second.
fn counted(within: &Namespace, at: SocketAddr, key: &str, least: u64) -> serde_json::Value {
    for _ in 0..1000 {
        let (_, stats) = within.run(|| get(at, "/stats"));
        let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
        if stats["tcp"][key].as_u64() >= Some(least) {
            return stats["tcp"].clone();
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{key} never came to {least}");
}

/// One page of `/stats/flows`.
fn flows(within: &Namespace, query: &str) -> serde_json::Value {
    let (head, body) = within.run(|| get((OUR_V4, PORT).into(), &format!("/stats/flows{query}")));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    serde_json::from_slice(&body).expect("JSON")
}

/// The first page of which `is` holds.
fn flows_when(within: &Namespace, is: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let mut page = serde_json::Value::Null;
    for _ in 0..1000 {
        page = flows(within, "");
        if is(&page) {
            return page;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came to that: {page}");
}

#[test]
fn connections_are_shown_as_ss_would_show_the_kernels() {
    let Some(cable) = Cable::new(2) else { return };
    let _serving = Serving::start(
        &cable.ours,
        &format!("--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --threads 2"),
    );
    let (at, theirs) = (SocketAddr::from((OUR_V4, PORT)), &cable.theirs);
    let open: Vec<TcpStream> = (0..8).map(|_| theirs.run(|| connected(at))).collect();
    // The last one asks for more than it takes.
    let mut greedy = &open[7];
    greedy.write_all(b"GET /bytes/100000000 HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let peers: Vec<String> = open.iter().map(|s| s.local_addr().expect("an address").to_string()).collect();
    let row = |page: &serde_json::Value, of: &str| -> serde_json::Value {
        let rows = page["flows"].as_array().expect("rows");
        rows.iter().find(|row| row["remote"] == of).cloned().unwrap_or_default()
    };
    let page = flows_when(theirs, |page| {
        let row = row(page, &peers[7]);
        row["unsent_bytes"].as_u64() > Some(0) && row["segments_out"].as_u64() > Some(10)
    });
    let idle = row(&page, &peers[0]);
    assert_eq!((&idle["local"], &idle["state"]), (&at.to_string().into(), &"established".into()), "{page}");
    assert!(idle["srtt_us"].as_u64() > Some(0) && idle["rto_us"].as_u64() > Some(0), "{idle}");
    assert!(idle["cwnd_bytes"].as_u64() > Some(10_000) && idle["ssthresh_bytes"].is_null(), "{idle}");
    // The connection of the request itself is one of them.
    assert!(page["by_state"]["established"].as_u64() >= Some(9), "{page}");
    // Page by page, over both threads, each is shown once. One connection asks, so that none comes
    // or goes meanwhile.
    let mut asker = theirs.run(|| BufReader::new(connected(at)));
    let mut ask = |query: &str| -> serde_json::Value {
        write!(asker.get_mut(), "GET /stats/flows?{query} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        serde_json::from_slice(&answer(&mut asker).1).expect("JSON")
    };
    let settled = (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(20));
        ask("max=1")["total"] == 9
    });
    assert!(settled, "those that asked before are over");
    let rows: Vec<_> = (0..9).map(|skip| ask(&format!("max=1&skip={skip}"))["flows"][0].clone()).collect();
    for peer in &peers {
        assert_eq!(rows.iter().filter(|row| row["remote"] == **peer).count(), 1, "{peer}: {rows:?}");
    }
    assert_eq!(ask("skip=9")["flows"].as_array().map(Vec::len), Some(0));
    let (_, text) = theirs.run(|| get(at, "/stats/flows?text"));
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("connections ") && peers.iter().all(|peer| text.contains(peer)), "{text}");
    assert!(theirs.run(|| get(at, "/stats/flows?max=5000")).0.starts_with("HTTP/1.1 400"));
    // Connections that are over are not shown; TIME-WAIT is counted.
    drop((open, asker));
    let page = flows_when(theirs, |page| page["by_state"]["established"] == 1);
    assert!(page["time_wait"].as_u64() > Some(0), "{page}");
}

/// RFC 1191, RFC 8201: a router reports that packets are too large, and they become smaller at
/// once.
#[test]
fn a_path_that_is_narrow_in_the_middle_is_found_by_what_routers_say() {
    let Some(cable) = Cable::new(1) else { return };
    let far = cable.beyond(1300);
    let _serving = Serving::xdp(&cable, "");
    for (n, at) in [(1, SocketAddr::from((OUR_V4, PORT))), (2, SocketAddr::from((OUR_V6, PORT)))] {
        // Twice: the second connection knows.
        for _ in 0..2 {
            assert_eq!(far.run(|| get(at, "/bytes/1000000")).1.len(), 1_000_000);
        }
        let tcp = counted(&cable.theirs, (OUR_V4, PORT).into(), "too_big", n);
        assert_eq!((&tcp["too_big"], &tcp["black_holes"]), (&n.into(), &0.into()), "{tcp}");
    }
    // A client's large request as well.
    let listen = format!("--listen {FAR_V4}:{PORT} --threads 1");
    let _kernels = Serving::start(&far, &listen);
    drop(_serving);
    let flags = format!(
        "--io xdp --interface {OURS} --from 10.77.0.9 -t 1 -c 2 -n 20 --body {} http://{FAR_V4}:{PORT}/echo",
        "x".repeat(50_000)
    );
    let (document, said) = load(&cable.ours, &flags);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(common::number(&document, "/requests/answered"), 20);
}

/// RFC 2923 section 2.1: no router reports it.
#[test]
fn a_black_hole_costs_seconds_and_not_the_connection() {
    let Some(cable) = Cable::new(1) else { return };
    let far = cable.beyond(1300);
    if Command::new("nft").arg("--version").output().is_err() {
        return skip("nft", "nft is not installed");
    }
    for rule in [
        "nft add table inet hole",
        "nft add chain inet hole out {type filter hook output priority 0;}",
        "nft add rule inet hole out icmp type destination-unreachable drop",
    ] {
        cable.theirs.must(rule);
    }
    let _serving = Serving::xdp(&cable, "");
    assert_eq!(far.run(|| get((OUR_V4, PORT).into(), "/bytes/1000000")).1.len(), 1_000_000);
    let tcp = counted(&cable.theirs, (OUR_V4, PORT).into(), "black_holes", 1);
    assert_eq!((&tcp["too_big"], &tcp["black_holes"]), (&0.into(), &1.into()), "{tcp}");
}

#[test]
fn killed_it_leaves_the_interface_as_it_was() {
    let Some(cable) = Cable::new(1) else { return };
    let mut serving = Serving::xdp(&cable, "");
    assert!(cable.ours.must(&format!("ip link show dev {OURS}")).contains("xdp"));
    cable.theirs.run(|| get((OUR_V4, PORT).into(), "/"));
    serving.signal("-KILL");
    serving.0.wait().expect("it is gone");
    drop(serving);
    // The kernel takes the program away in its own time.
    while cable.ours.must(&format!("ip link show dev {OURS}")).contains("xdp") {
        thread::sleep(Duration::from_millis(5));
    }
    // The port is the kernel's again.
    let listener = cable.ours.run(|| TcpListener::bind((OUR_V4, PORT)).expect("the port is free"));
    let _client = cable.theirs.run(|| connected((OUR_V4, PORT).into()));
    listener.accept().expect("a connection of the kernel's");
    // A client's address goes by itself.
    let mut client = cable.ours.run(|| {
        let url = format!("http://{THEIR_V4}:{PORT}/");
        let _held = cable.theirs.run(|| TcpListener::bind((THEIR_V4, PORT)).expect("a port"));
        let flags = ["load", "--quiet", "--io", "xdp", "--interface", OURS, "--from", "10.77.0.9", &url];
        let child = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        while !cable.ours.must(&format!("ip address show dev {OURS}")).contains("10.77.0.9/32") {
            thread::sleep(Duration::from_millis(5));
        }
        child
    });
    client.kill().expect("it runs");
    client.wait().expect("it is gone");
    let shown = cable.ours.must(&format!("ip address show dev {OURS}"));
    let life = shown.split("10.77.0.9/32").nth(1).and_then(|rest| rest.split("valid_lft ").nth(1));
    let seconds: u32 =
        life.and_then(|l| l.split("sec").next()).expect("a lifetime").parse().expect("seconds");
    assert!(seconds <= 30, "{shown}");
}

#[test]
fn what_is_missing_is_said_before_anything_happens() {
    let Some(cable) = Cable::new(1) else { return };
    let run = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        cable.ours.run(|| common::run(&words))
    };
    let said = run("serve --io xdp --interface eth7 --listen 10.77.0.1:80");
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("there is no interface \"eth7\""), "{}", said.err);
    let said = run("load --io xdp --interface lo --from 127.0.0.9 http://127.0.0.1/");
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("not an Ethernet interface"), "{}", said.err);
    let said = run("serve --io xdp --listen 10.77.0.1:80");
    assert_eq!(said.code, Some(2), "{said:?}");
    let said = run(&format!("load --io xdp --interface {OURS} http://10.77.0.2/"));
    assert_eq!(said.code, Some(2), "{said:?}");
    // No machine has that address, so the target is unreachable.
    let said = run(&format!("load --quiet --io xdp --interface {OURS} --from 10.77.0.9 http://10.77.0.99/"));
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.contains("ARP") || said.err.contains("ARP"), "{said:?}");
}

/// Without the capabilities, a message names those that are missing and what to do. A machine's
/// usual limit of locked memory is enough for one queue.
#[test]
fn without_the_rights_nothing_happens_and_the_missing_ones_are_named() {
    let Some(cable) = Cable::new(2) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skip("setpriv", "setpriv is not installed");
    }
    // Others than root may not look into the folder where this was built.
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let program = folder.path().join("linerate");
    std::fs::copy(env!("CARGO_BIN_EXE_linerate"), &program).expect("copied");
    let serve = format!("serve --io xdp --interface {OURS} --listen {OUR_V4}:{PORT}");
    let load =
        format!("load --quiet --io xdp --interface {OURS} --from 10.77.0.9 -n 1 http://{THEIR_V4}:{PORT}/");
    let usual = "prlimit --memlock=8388608:8388608";
    let nobody = "setpriv --reuid 65534 --clear-groups --inh-caps=-all --bounding-set=-all";
    let granted =
        "--inh-caps=+net_admin,+net_raw,+bpf,+perfmon --ambient-caps=+net_admin,+net_raw,+bpf,+perfmon";
    let without = |names: &str| format!("setpriv --inh-caps={names} --bounding-set={names}");
    let run = |before: &str, words: &str| {
        let out = cable.ours.command(&format!("{before} {} {words}", program.display()));
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let all = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON", "hint: run it as root", "setcap"];
    for (before, missing) in [
        (nobody.to_owned(), &all[..]),
        (without("-net_raw"), &["needs CAP_NET_RAW (AF_XDP sockets), which"][..]),
        (without("-net_admin"), &["needs CAP_NET_ADMIN (attaching an XDP program), which"]),
        (without("-bpf,-sys_admin"), &["needs CAP_BPF (loading an XDP program), which"]),
        (without("-perfmon,-sys_admin"), &["needs CAP_PERFMON (an XDP program that looks behind"]),
        // It would be enough for one queue of the two.
        (
            format!("{usual} setpriv --reuid 65534 --clear-groups {granted}"),
            &["16 MB of locked memory for 2 receive queues", "of 8 MB", "hint: ulimit -l unlimited"],
        ),
    ] {
        for words in [&serve, &load] {
            let (code, said) = run(&before, words);
            assert_eq!(code, Some(4), "{before}: {said}");
            assert!(missing.iter().all(|word| said.contains(word)), "{before}: {said}");
            assert!(said.starts_with("error: --io xdp needs"), "{said}");
            let left = cable.ours.must(&format!("ip address show dev {OURS}"));
            assert!(!left.contains("xdp") && !left.contains("10.77.0.9"), "{before}: {left}");
        }
    }
    // With exactly these capabilities and one queue: the peer's port is closed, which shows by
    // packets.
    cable.ours.must(&format!("ethtool -L {OURS} rx 1 tx 1"));
    let (code, said) = run(&format!("{usual} setpriv --reuid 65534 --clear-groups {granted}"), &load);
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn interfaces_that_cannot_or_are_down_are_told_of() {
    let Some(cable) = Cable::new(1) else { return };
    // A bridge has no driver that runs XDP programs.
    cable.ours.must("ip link add bridge type bridge");
    cable.ours.must("ip address add 10.79.0.1/24 dev bridge");
    let run = || common::run(&["serve", "--io", "xdp", "--interface", "bridge", "--listen", "10.79.0.1:80"]);
    let said = cable.ours.run(run);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("the interface bridge is down\n  hint: ip link set dev bridge up"), "{said:?}");
    cable.ours.must("ip link set bridge up");
    let flags = "--io xdp --interface bridge --listen 10.79.0.1:80 --threads 1";
    let (_serving, said) = Serving::start_and_hear(&cable.ours, flags);
    assert!(said.contains("the driver of bridge cannot run XDP programs"), "{said}");
    assert!(said.contains(": generic mode, slower"), "{said}");
}

/// Networks of 65,536 addresses that do not exist: RFC 2544's, and one at our cable.
const OUTSIDE: u32 = 0xc612_0000;
const AT_THE_CABLE: u32 = 0x0a63_0000;

/// A SYN from an address of such a network, IP header included.
fn syn(network: u32, number: u32) -> Vec<u8> {
    let source = network | (number & 0xffff);
    let port = 1024 + (number >> 16) as u16;
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend_from_slice(&source.to_be_bytes());
    packet.extend_from_slice(&OUR_V4.octets());
    packet.extend_from_slice(&port.to_be_bytes());
    packet.extend_from_slice(&PORT.to_be_bytes());
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    // The sum of addresses, protocol, length and segment (RFC 9293 section 3.1).
    let words = packet[12..].as_chunks::<2>().0.iter().map(|w| u32::from(u16::from_be_bytes(*w)));
    let sum: u32 = words.sum::<u32>() + 6 + 20;
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !(((folded & 0xffff) + (folded >> 16)) as u16);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Sends SYNs at a fixed rate, a few at a time so that rings on the path do not lose them.
fn flood(network: u32, done: &AtomicBool) {
    const SYNS: u32 = 400_000;
    const RATE: u32 = 64_000;
    let begun = Instant::now();
    let raw =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(255.into())).expect("root may");
    let to = SocketAddr::from((OUR_V4, 0)).into();
    for number in 0..SYNS {
        // Without room at the moment it is one SYN less.
        let _ = raw.send_to(&syn(network, number), &to);
        if number % 32 == 31 {
            let due = begun + Duration::from_secs(1) * number / RATE;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    done.store(true, Ordering::Relaxed);
}

/// How long real clients waited for each response during a flood, in order.
fn waits_in_a_flood(cable: &Cable, network: u32) -> Vec<Duration> {
    let (done, mut waits) = (AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        let flooding = scope.spawn(|| cable.theirs.run(|| flood(network, &done)));
        cable.theirs.run(|| {
            while !done.load(Ordering::Relaxed) && !flooding.is_finished() {
                let asked = Instant::now();
                assert_eq!(get((OUR_V4, PORT).into(), "/bytes/2000").1.len(), 2000);
                waits.push(asked.elapsed());
            }
        });
        flooding.join().expect("no panic");
    });
    waits.sort();
    waits
}

/// RFC 4987: the memory of handshakes is bounded. Beyond that the server sends cookies, and a real
/// client still gets a connection and a response.
#[test]
fn a_flood_of_syns_stops_nobody() {
    let Some(cable) = Cable::new(1) else { return };
    let serving = Serving::xdp(&cable, "");
    let resident_kb = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", serving.0.id())).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let before = resident_kb();
    let waits = waits_in_a_flood(&cable, OUTSIDE);
    let stats = cable.theirs.run(|| get((OUR_V4, PORT).into(), "/stats").1);
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
    let tcp = |name: &str| stats["tcp"][name].as_u64().expect("a number");
    let more = resident_kb().saturating_sub(before);
    println!("{} answered, at most {:?}, {more} kB more, {}", waits.len(), waits.last(), stats["tcp"]);
    assert!(!waits.is_empty() && tcp("cookies_sent") > 50_000, "{stats}");
    assert!(tcp("handshakes") <= 4096 && tcp("connections") < 100 && tcp("resets_out") == 0, "{stats}");
    assert!(more < 16 << 10, "{more} kB more");
}

/// The kernel need not resolve addresses that do not exist: its table of neighbours would be full,
/// and each new entry would take longer than a response.
#[test]
fn a_flood_from_this_network_is_no_worse_than_one_from_outside() {
    let Some(cable) = Cable::new(1) else { return };
    cable.ours.must(&format!("ip address add 10.99.255.254/16 dev {OURS}"));
    let _serving = Serving::xdp(&cable, "");
    let neighbours = || cable.ours.must(&format!("ip neighbour show dev {OURS}")).lines().count();
    // On a busy machine one flood may be worse than the other by chance.
    for turn in 1..=3 {
        let [outside, inside] = [OUTSIDE, AT_THE_CABLE].map(|network| waits_in_a_flood(&cable, network));
        let at = |waits: &[Duration], percent: usize| waits[(waits.len() - 1) * percent / 100];
        let shown = |waits: &[Duration]| [50, 90, 99, 100].map(|percent| at(waits, percent));
        println!("{} from outside: {:?}", outside.len(), shown(&outside));
        println!("{} from here: {:?}, {} neighbours", inside.len(), shown(&inside), neighbours());
        assert!(neighbours() < 300, "{} neighbours", neighbours());
        if at(&inside, 50) < at(&outside, 50) * 2 && at(&inside, 90) < at(&outside, 90) * 2 {
            return;
        }
        assert!(turn < 3, "worse three times");
    }
}
