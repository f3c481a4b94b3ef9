//! Compares the observations of public captures with tshark's counts. The captures are not in the
//! repository: without them this test prints a line.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use linerate_explain::passive::live::LiveObserver;
use linerate_explain::passive::{
    CaptureFile, CaptureLimits, Marks, Observation, Tally, findings, read, words,
};
use linerate_skips::{need, skip};
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pcaps");
    if !folder.is_dir() {
        skip(need::CAPTURES, "there is no ../shared/pcaps");
        return None;
    }
    Some(folder)
}

/// The differences from tshark, with the reason: file, figure, tshark's count, ours.
const DIFFERENCES: [(&str, &str, u64, u64); 11] = [
    // Captured twice (the same IP identification within a millisecond): tshark takes the second
    // copy for a retransmission.
    ("zeek__ctu-62604-80.pcap", "duplicate_ack", 4, 0),
    ("zeek__ctu-62604-80.pcap", "retransmission", 5, 1),
    ("zeek__m57-long-49600-80.pcap", "duplicate_ack", 7, 0),
    ("zeek__m57-long-49600-80.pcap", "retransmission", 18, 0),
    ("zeek__nflog-http.pcap", "retransmission", 2, 0),
    ("zeek__vnd.ms-cab-compressed-multi-conn.pcap", "duplicate_ack", 25, 1),
    ("zeek__vnd.ms-cab-compressed-multi-conn.pcap", "retransmission", 50, 1),
    ("zeek__vnd.ms-cab-compressed-multi-conn.pcap", "spurious_retransmission", 2, 1),
    // tshark also takes the packet that an ICMP error quotes for one of a connection.
    ("ppp__tcp-reassembly.pcap", "tcp_streams", 2, 1),
    // By default tshark does not reorder segments that arrived out of order, and so misses
    // responses.
    ("zeek__206_example_b.pcap", "resp", 2, 3),
    ("zeek__concurrent-range-requests.pcap", "resp", 2, 3),
];

/// Our count of what the truth calls `key`.
fn ours(seen: &Observation, key: &str) -> Option<u64> {
    let s = &seen.sums;
    Some(match key {
        "packets" => seen.packets.all,
        "tcp_streams" => s.connections,
        // tshark counts a message when it is whole.
        "req" => s.requests - s.requests_incomplete,
        "resp" => s.answers + s.interim - s.answers_incomplete,
        "retransmission"
        | "fast_retransmission"
        | "spurious_retransmission"
        | "duplicate_ack"
        | "out_of_order"
        | "lost_segment"
        | "ack_lost_segment"
        | "zero_window"
        | "window_full"
        | "window_update"
        | "keep_alive" => seen.marks.seen().find(|(name, _)| *name == key).map_or(0, |(_, n)| n),
        _ => return None,
    })
}

#[test]
fn counts_are_those_of_tshark() {
    let Some(folder) = folder() else { return };
    let truth = std::fs::read_to_string(folder.join("truth.json")).expect("readable");
    let truth: BTreeMap<String, BTreeMap<String, f64>> = serde_json::from_str(&truth).expect("JSON");
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, figures) in &truth {
        let seen =
            read(File::open(folder.join(name)).expect("there"), CaptureLimits::default()).expect("a capture");
        let zero =
            ["retransmission", "out_of_order", "duplicate_ack", "lost_segment", "zero_window", "req", "resp"];
        let keys =
            figures.keys().map(String::as_str).chain(zero.into_iter().filter(|z| !figures.contains_key(*z)));
        for key in keys {
            let Some(mine) = ours(&seen, key) else { continue };
            let theirs = figures.get(key).map_or(0, |n| *n as u64);
            let known = DIFFERENCES.iter().any(|d| *d == (name, key, theirs, mine));
            let copies = known && theirs > mine && !matches!(key, "tcp_streams" | "resp");
            if copies {
                continue;
            }
            let sum = sums
                .entry(zero.into_iter().chain(["all the rest"]).find(|z| *z == key).unwrap_or("other"))
                .or_default();
            sum.0 += theirs;
            sum.1 += mine;
            if mine != theirs && !known {
                wrong.push(format!("{name}: {key}: tshark {theirs}, ours {mine}"));
            }
        }
    }
    assert!(truth.len() > 50 && wrong.is_empty(), "{}", wrong.join("\n"));
    for (key, (theirs, mine)) in sums {
        assert!(mine.abs_diff(theirs) as f64 <= 0.02 * theirs as f64, "{key}: tshark {theirs}, ours {mine}");
    }
}

/// Counting segments alone finds the same as looking at all of a connection.
#[test]
fn a_tally_counts_the_same() {
    let Some(folder) = folder() else { return };
    let mut compared = 0;
    for name in std::fs::read_dir(&folder).expect("readable").flatten().map(|entry| entry.path()) {
        let open = || File::open(&name).expect("there");
        let Ok(seen) = read(open(), CaptureLimits::default()) else { continue };
        if seen.packets.twice > 0 || seen.sums.connections > seen.connections.len() as u64 {
            continue;
        }
        let servers: Vec<_> = seen.connections.iter().map(|c| c.server).collect();
        let mut tally = Tally::new(&servers);
        let mut counts = [[0; Marks::ALL.len()]; 2];
        let mut file = CaptureFile::open(open()).expect("a capture");
        while let Some(packet) = file.next_packet().expect("readable") {
            let Some(told) = tally.packet(&packet) else { continue };
            for (n, (mark, ..)) in counts[usize::from(!told.segment.from_client)].iter_mut().zip(Marks::ALL) {
                *n += u64::from(told.segment.marks.has(mark));
            }
        }
        for (i, (mark, word, _)) in Marks::ALL.into_iter().enumerate() {
            if mark != Marks::REUSED_PORTS {
                let sum = counts[0][i] + counts[1][i];
                assert_eq!(sum, seen.marks.of(mark), "{}: {word}", name.display());
            }
        }
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn times_of_calls_are_those_of_tshark() {
    let Some(folder) = folder() else { return };
    let truth = std::fs::read_to_string(folder.join("truth.json")).expect("readable");
    let truth: Value = serde_json::from_str(&truth).expect("JSON");
    let limits = CaptureLimits { slowest: 10_000, ..CaptureLimits::default() };
    let (mut same, mut differ) = (0, Vec::new());
    for (name, figures) in truth.as_object().expect("an object") {
        let Some(theirs) = figures["http_med_ms"].as_f64() else { continue };
        let seen = read(File::open(folder.join(name)).expect("there"), limits).expect("a capture");
        // From the request's last byte to the response's last: when tshark has both complete.
        let time = |c: &linerate_explain::passive::ObservedCall| {
            c.queued_ns + c.network_ns + c.think_ns + c.receive_ns
        };
        let mut times: Vec<i64> = seen.slowest.iter().map(time).collect();
        times.sort_unstable();
        let Some(mine) = times.get(times.len() / 2).map(|ns| *ns as f64 / 1e6) else { continue };
        if (mine - theirs).abs() <= 0.02 * theirs + 0.02 {
            same += 1
        } else {
            differ.push(format!("{name}: {theirs} {mine}"))
        }
    }
    assert!(same >= 35, "{same} alike; not: {}", differ.join("\n"));
}

/// Every capture, cut anywhere: no panic, and never more than there is.
#[test]
fn truncated_captures_end_in_words() {
    let Some(folder) = folder() else { return };
    let whole = std::fs::read(folder.join("zeek__pipelined-requests.pcap")).expect("there");
    for cut in (0..whole.len()).step_by(977) {
        match read(&whole[..cut], CaptureLimits::default()) {
            Ok(seen) => assert!(seen.sums.requests <= 5 && seen.ending.is_some()),
            Err(e) => assert!(cut < 24, "{e}"),
        }
    }
}

/// Watched in windows, with connections forgotten in between, a capture has the verdict that it has
/// when it is read whole.
#[test]
fn watched_live_a_capture_has_the_same_verdict() {
    let Some(folder) = folder() else { return };
    let mut compared = 0;
    for name in std::fs::read_dir(&folder).expect("readable").flatten().map(|entry| entry.path()) {
        let open = || File::open(&name).expect("there");
        let Ok(whole) = read(open(), CaptureLimits::default()) else { continue };
        for packets in [1, 7, 100] {
            let mut live = LiveObserver::new(CaptureLimits::default(), None);
            let mut file = CaptureFile::open(open()).expect("a capture");
            let (mut n, mut answered) = (0u64, 0);
            while let Some(packet) = file.next_packet().expect("readable") {
                live.packet(&packet);
                n += 1;
                if n.is_multiple_of(packets) {
                    live.sweep(packet.time_ns);
                    answered += live.end_window(packet.time_ns).seen.sums.answered;
                }
            }
            answered += live.end_window(i64::MAX).seen.sums.answered;
            let seen = live.finish();
            let at = format!("{} in windows of {packets} packets", name.display());
            // What becomes whole only where the capture ends is in no window.
            assert!(answered <= seen.sums.answered && seen.sums.answered == whole.sums.answered, "{at}");
            assert_eq!(told(&seen), told(&whole), "{at}");
        }
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
}

/// The verdict and the causes.
fn told(seen: &Observation) -> (&'static str, Vec<String>) {
    let findings = findings::of(seen);
    let cause = |f: &findings::Finding| {
        format!("{} {:?} {:?} {} of {}", f.cause.id, f.server, f.confidence, f.calls, f.of)
    };
    let mut causes: Vec<String> = findings.iter().map(cause).collect();
    causes.sort();
    (words::verdict(seen, &findings).name(), causes)
}
