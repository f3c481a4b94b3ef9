//! Servers that break, each in its way, under each way of sending: what `load` says of them is what they did.

mod broken;
#[macro_use]
mod common;

use std::thread;
use std::time::{Duration, Instant};

use broken::{Accept, Broken, Reply, Then};
use common::{Said, measured, number};
use serde_json::Value;

/// Ways of sending that must tell the same.
const WAYS: [&[&str]; 4] =
    [&["--io", "epoll"], &["--io", "uring"], &["--way", "threads"], &["--way", "async"]];

/// Those that can keep a rate.
const OPEN: [&[&str]; 2] = [&["--io", "epoll"], &["--io", "uring"]];

/// A run: its document, its exit code, and its summary without line ends.
struct Run {
    document: Value,
    code: Option<i32>,
    words: String,
}

impl Run {
    fn number(&self, pointer: &str) -> u64 {
        number(&self.document, pointer)
    }

    fn failures(&self, reason: &str) -> u64 {
        self.number(&format!("/failures/{reason}"))
    }

    fn requests(&self, name: &str) -> u64 {
        self.number(&format!("/requests/{name}"))
    }

    fn down_s(&self) -> f64 {
        self.document["connections"]["down_s"].as_f64().expect("a number")
    }

    fn says(&self, words: &str) {
        assert!(self.words.contains(words), "{words:?} is not in {}", self.words);
    }

    fn exits(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{}", self.words);
    }
}

fn load(way: &[&str], flags: &[&str], url: &str) -> Run {
    let mut args = way.to_vec();
    args.extend_from_slice(flags);
    args.push(url);
    let (document, Said { code, err, .. }) = measured(&args);
    let words = err.split_whitespace().collect::<Vec<_>>().join(" ");
    let run = Run { document, code, words };
    let sum = run.requests("answered") + run.requests("failed") + run.requests("unknown");
    assert_eq!(run.requests("sent"), sum, "{way:?} {:#}", run.document);
    run
}

/// What is done to a server, milliseconds after its first request.
type Step = (u64, fn(&Broken));

/// Does it beside the run.
fn meanwhile(server: &Broken, steps: &[Step], run: impl FnOnce()) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while server.counts().requests == 0 && begun.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(1));
            }
            let begun = Instant::now();
            for (ms, what) in steps {
                thread::sleep(Duration::from_millis(*ms).saturating_sub(begun.elapsed()));
                what(server);
            }
        });
        run();
    });
}

#[test]
fn a_dead_server_is_a_failure() {
    for way in WAYS {
        let server = Broken::start(|_| Reply::good());
        meanwhile(&server, &[(500, Broken::kill)], || {
            let run = load(way, &["-c", "8", "-d", "2s"], &server.url());
            run.exits(1);
            // Each of eight connections is tried at least every 20 ms for 1.5 s; half of that on a slow machine.
            assert!(run.failures("connect") >= 300, "{way:?} {}", run.words);
            assert!((1.2..1.55).contains(&run.down_s()), "{way:?} {}", run.down_s());
            assert!(run.number("/connections/refused") >= 300, "{way:?}");
            run.says("the server was unreachable for 1.");
            run.says("of 2 s, and still was at the end");
        });
    }
}

#[test]
fn a_restart_fails_what_was_due_in_an_open_loop() {
    for way in OPEN {
        let server = Broken::start(|_| Reply::good());
        meanwhile(&server, &[(500, Broken::kill), (1000, Broken::restart)], || {
            let flags = ["-c", "8", "-d", "2s", "--rate", "400", "--check", "errors<1%"];
            let run = load(way, &flags, &server.url());
            run.exits(1);
            let (down, failed) = (run.down_s(), run.requests("failed") as f64);
            assert!((0.4..0.7).contains(&down), "{way:?} {down}");
            assert!((failed - 400.0 * down).abs() <= 20.0, "{way:?} {failed} in {down} s: {}", run.words);
            assert_eq!(run.requests("unsent"), 0, "{way:?} {}", run.words);
            run.says("the server was unreachable for 0.");
        });
        // A short downtime alone is no reason for exit code 1.
        let server = Broken::start(|_| Reply::good());
        meanwhile(&server, &[(300, Broken::kill), (600, Broken::restart)], || {
            load(way, &["-c", "4", "-d", "1500ms", "--rate", "200"], &server.url()).exits(0);
        });
    }
}

#[test]
fn a_dead_server_fails_short_connections_too() {
    for flags in [&["--rate", "200"][..], &[]] {
        let server = Broken::start(|_| Reply::good());
        meanwhile(&server, &[(300, Broken::kill), (900, Broken::restart)], || {
            let mut all = vec!["-c", "4", "-d", "1500ms", "--per-connection", "1"];
            all.extend_from_slice(flags);
            let run = load(OPEN[0], &all, &server.url());
            assert!(run.failures("connect") >= 60, "{}", run.words);
            assert!(run.requests("answered") > 50, "it comes back: {}", run.words);
        });
    }
}

#[test]
fn requests_that_never_left_are_errors_and_later_than_any_limit() {
    let server = Broken::start(|_| Reply { after: Duration::from_millis(50), ..Reply::good() });
    let flags = ["-c", "1", "-d", "1s", "--rate", "200", "--check", "errors<5%", "--check", "p50<10s"];
    let run = load(OPEN[0], &flags, &server.url());
    run.exits(1);
    let unsent = run.requests("unsent");
    assert!(unsent > 100, "{}", run.words);
    let checks = run.document["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|c| c["pass"] == false), "{checks:?}");
    let share = checks[0]["value"].as_f64().expect("a share");
    assert!((share - unsent as f64 / 200.0).abs() < 0.02, "{share} {unsent}");
    run.says(">= ");
    assert_eq!(run.document["latency_us"]["from_due"]["at_least"][0], "p50");
}

#[test]
fn a_server_that_ends_after_its_last_response_is_no_failure() {
    for way in WAYS {
        let server = Broken::start(|asked| match asked.nth {
            0..20 => Reply::good(),
            _ => Reply::broken("", Then::Close),
        });
        let run = load(way, &["-c", "4", "-n", "20"], &server.url());
        run.exits(0);
        assert_eq!(run.requests("answered"), 20, "{way:?}");
    }
}

#[test]
fn a_listener_that_never_accepts_is_named_and_does_not_keep_the_run() {
    for way in WAYS {
        let server = Broken::accepting(Accept::Never { backlog: 1 }, |_| Reply::good());
        let begun = Instant::now();
        let run = load(way, &["-c", "8", "-d", "2s"], &server.url());
        assert!(begun.elapsed() < Duration::from_secs(4), "{way:?} took {:?}", begun.elapsed());
        assert_ne!(run.code, Some(0), "{way:?} {}", run.words);
        assert!(run.number("/connections/hanging") >= 4, "{way:?} {}", run.words);
        assert!(run.failures("connect") >= 4, "{way:?} {}", run.words);
        run.says("never answered");
    }
}
