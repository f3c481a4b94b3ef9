//! `linerate load` against servers people really run: what it counts is what they count.

mod common;
mod real;

use common::measured;
use real::{Counts, Server};

/// Keep-alive, pipelined and short connections, each compared with the server's own count.
fn check(server: Option<Server>) {
    let Some(server) = server else { return };
    let url = server.url("/");
    let counted = || server.get("/count").trim().parse::<u64>().expect("a count");
    for (flags, n) in
        [("-c 8", 2_000), ("-c 8 -p 8", 4_000), ("-c 8 --per-connection 1", 500), ("-c 4 -r 1000", 300)]
    {
        let before = counted();
        let n_flag = format!("-n {n}");
        let words: Vec<&str> = flags.split(' ').chain(n_flag.split(' ')).chain([url.as_str()]).collect();
        let (document, _) = measured(&words);
        let counts = Counts::of(&document);
        assert_eq!((counts.answered, counts.failed, counts.unknown), (n, 0, 0), "{flags}");
        assert_eq!(document["status"]["200"], n, "{flags}");
        counts.agree_with(counted() - before);
    }
}

#[test]
fn node() {
    check(real::node());
}

#[test]
fn go() {
    check(real::go());
}

#[test]
fn jdk() {
    check(real::jdk());
}
