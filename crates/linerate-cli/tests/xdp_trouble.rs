//! `--io xdp` when something changes under it: processes that begin anew, hosts behind a NAT, links that go down. Needs root.

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod past_kernel;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use namespaces::{Cable, Namespace, OUR_V4, OURS, THEIR_V4, THEIRS};
use past_kernel::{PORT, Serving, get, load};

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
        // No connection was asked for in vain: that would have cost a second.
        let slowest = document["latency_us"]["from_sent"]["max"].as_f64().expect("a latency");
        assert!(slowest < 900_000.0, "run {run}: {slowest} us, {:?}: {}", begun.elapsed(), document["tcp"]);
    }
}

#[test]
fn ten_runs_in_a_row_from_one_address_to_our_server() {
    let test = "ten_runs_in_a_row_from_one_address_to_our_server";
    let Some(cable) = Cable::new(test, 1) else { return };
    let _serving = Serving::xdp(&cable, "");
    ten_runs(&cable.theirs, THEIRS, OUR_V4);
}

#[test]
fn ten_runs_in_a_row_from_one_address_to_the_kernels() {
    let test = "ten_runs_in_a_row_from_one_address_to_the_kernels";
    let Some(cable) = Cable::new(test, 1) else { return };
    let _kernels = Serving::start(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT} --threads 1"));
    ten_runs(&cable.ours, OURS, THEIR_V4);
}

/// Two kernels with other clocks, whose connections come from the same address and port.
#[test]
fn two_kernels_behind_one_port_of_a_nat_are_both_served() {
    let test = "two_kernels_behind_one_port_of_a_nat_are_both_served";
    let Some(cable) = Cable::new(test, 1) else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return println!("not run: {test}: it needs nft");
    }
    let Some(hosts) = cable.behind_one_port(PORT, 40_000) else {
        return println!("not run: {test}: this kernel has no NAT");
    };
    let _serving = Serving::xdp(&cable, "");
    // Which of the clocks is ahead nobody knows, so each comes after the other.
    for turn in 0..6 {
        let begun = Instant::now();
        let (head, _) = hosts[turn % 2].run(|| get((OUR_V4, PORT).into(), "/"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        // A SYN that is not taken is sent again after one second, and after two more.
        assert!(begun.elapsed() < Duration::from_secs(5), "turn {turn} took {:?}", begun.elapsed());
        // The NAT has to forget, our server must not.
        thread::sleep(Duration::from_millis(2500));
    }
}
