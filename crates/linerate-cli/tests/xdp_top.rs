//! `linerate top` beside `--io xdp`: a server, and a load. Needs root.

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod past_kernel;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use namespaces::{Cable, Namespace, OUR_V4, THEIRS};
use past_kernel::{A_WHILE, PORT, Serving, connected};

const METRICS: &str = "127.0.0.1:9090";

/// The screen, once all these parts are in it.
fn top_with(within: &Namespace, parts: &[&str]) -> String {
    let until = Instant::now() + A_WHILE;
    loop {
        let said = within.run(|| common::run(&["top", METRICS, "--once", "--interval", "300ms"]));
        if said.code == Some(0) && parts.iter().all(|part| said.out.contains(part)) {
            return said.out;
        }
        assert!(Instant::now() < until, "{parts:?} in {said:?}");
    }
}

#[test]
fn a_server_past_the_kernel() {
    let Some(cable) = Cable::new(1) else { return };
    let _serving = Serving::xdp(&cable, &format!(" --metrics {METRICS}"));
    let at: SocketAddr = (OUR_V4, PORT).into();
    let (mut idle, mut slow) = cable.theirs.run(|| (connected(at), connected(at)));
    idle.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    idle.read_exact(&mut [0; 12]).expect("an answer");
    // A response that its client does not take has a queue, as large as the window that the client opens.
    slow.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    slow.read_exact(&mut [0; 12]).expect("an answer");
    let text = top_with(&cable.ours, &["2 open (idle 1, head 0, body 0, handler 0, write 1)", " kB\n"]);
    assert!(text.contains(&format!("listening on {OUR_V4}:{PORT}")), "{text}");
    assert!(text.contains("queues       2 TCP connections"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("established")).collect();
    assert!(rows.len() == 2 && rows[0].ends_with(" kB"), "the longest queue is first: {text}");
    assert!(rows.iter().all(|row| row.starts_with(&format!("{OUR_V4}:{PORT} "))), "{text}");
    assert!(text.lines().any(|line| line.starts_with("0 ")), "{text}");
}

#[test]
fn a_load_past_the_kernel() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.ours, &format!("--listen {OUR_V4}:{PORT} --threads 1"));
    let flags = format!(
        "load -q --io xdp --interface {THEIRS} --from 10.77.0.9 -t 1 -c 5 -d 60s --metrics {METRICS} \
         http://{OUR_V4}:{PORT}/delay/60000"
    );
    let mut load = cable.theirs.run(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.args(flags.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    });
    let text = top_with(&cable.theirs, &["5 in flight", "5 open", "5 TCP connections"]);
    let local = "10.77.0.9:";
    let of_ours = |line: &&str| line.starts_with(local) && line.contains("established");
    assert_eq!(text.lines().filter(of_ours).count(), 5, "{text}");
    let pid = load.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    assert_eq!(load.wait().expect("a child").code(), Some(130));
}
