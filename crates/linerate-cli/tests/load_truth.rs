//! Servers that break, each in its way, under each way of sending: what `load` says of them is what
//! they did.

#[macro_use]
mod common;

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use common::{Said, measured, number};
use linerate_broken::{self as broken, AcceptMode, Broken, Reply, Then};
use serde_json::Value;

/// Ways of sending that must report the same.
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

/// An action on a server, milliseconds after its first request.
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
            let begun = Instant::now();
            let run = load(way, &["-c", "8", "-d", "2s"], &server.url());
            assert!(begun.elapsed() < Duration::from_secs(20), "{way:?} takes {:?}", begun.elapsed());
            run.exits(1);
            // Each of eight connections is tried every 10 ms for 1.5 s: 1,200 times, and less on a
            // busy machine.
            assert!(run.failures("connect") >= 100, "{way:?} {}", run.words);
            assert!((1.0..1.55).contains(&run.down_s()), "{way:?} {}", run.down_s());
            assert!(run.number("/connections/refused") >= 100, "{way:?}");
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
            let truth = server.downtime().as_secs_f64();
            assert!((down - truth).abs() <= 0.2, "{way:?} {down} of {truth}");
            assert!((failed - 400.0 * down).abs() <= 20.0, "{way:?} {failed} in {down} s: {}", run.words);
            assert_eq!(run.requests("unsent"), 0, "{way:?} {}", run.words);
            run.says("the server was unreachable for 0.");
        });
        // A short downtime alone does not cause exit code 1.
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

/// A balancer without a server accepts and closes: that is an outage, whatever became of the attempts to connect.
#[test]
fn a_target_that_accepts_and_closes_is_an_outage() {
    let ways =
        WAYS.iter().map(|way| (way, None)).chain(OPEN.iter().map(|way| (way, Some(["--rate", "200"]))));
    for (way, rate) in ways {
        // From the first request on: a busy machine may start the client late.
        let begun = OnceLock::new();
        let server = Broken::start(move |_| match begun.get_or_init(Instant::now).elapsed().as_millis() {
            400..2100 => Reply::broken("", Then::Close),
            _ => Reply::good(),
        });
        let flags = [&["-c", "4", "-d", "3s"][..], rate.as_ref().map_or(&[][..], |rate| &rate[..])].concat();
        let run = load(way, &flags, &server.url());
        run.exits(1);
        run.says("FAILED no response arrived for 1.");
        run.says("no response came for 1.");
        let outage = run.document["outage"]["longest_s"].as_f64().expect("an outage");
        assert!((1.4..1.95).contains(&outage), "{outage}: {}", run.words);
        assert!(run.document["silence"]["longest_s"].as_f64() >= Some(outage), "{}", run.document["silence"]);
        assert_eq!(run.document["verdict"]["pass"], false);
        let empty = |second: &Value| second["rate_rps"] == 0.0 && second["p50_us"].is_null();
        assert!(run.document["series"].as_array().unwrap().iter().any(empty), "{}", run.document["series"]);
    }
}

/// 200 requests to a target that has never answered take seconds, not minutes.
#[test]
fn a_target_that_has_never_answered_is_tried_often() {
    for way in OPEN {
        let server = Broken::start(|_| Reply::broken("", Then::Close));
        let begun = Instant::now();
        let run = load(way, &["-c", "4", "-n", "200"], &server.url());
        run.exits(1);
        assert_eq!(run.requests("failed"), 200, "{}", run.words);
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    }
}

/// A server that stands still gets a note, in an open loop too.
#[test]
fn a_silence_is_named() {
    let ways =
        WAYS.iter().map(|way| (way, None)).chain(OPEN.iter().map(|way| (way, Some(["--rate", "200"]))));
    for (way, rate) in ways {
        let begun = OnceLock::new();
        let server = Broken::start(move |_| {
            let elapsed = begun.get_or_init(Instant::now).elapsed();
            let still = (400..2000).contains(&elapsed.as_millis());
            let after = if still { Duration::from_secs(2).saturating_sub(elapsed) } else { Duration::ZERO };
            Reply { after, ..Reply::good() }
        });
        let flags = [&["-c", "4", "-d", "3s"][..], rate.as_ref().map_or(&[][..], |rate| &rate[..])].concat();
        let run = load(way, &flags, &server.url());
        run.exits(0);
        run.says("no response came for 1.");
        let silence = run.document["silence"]["longest_s"].as_f64().expect("a silence");
        assert!((1.3..1.9).contains(&silence), "{silence}: {}", run.words);
        assert!(run.document["outage"].is_null());
    }
}

/// One request in ten gets no response: checks fail, and every row that they touch is a bound.
#[test]
fn requests_without_a_response_are_later_than_any_limit() {
    for way in WAYS {
        let server = Broken::start(|asked| match asked.nth % 10 {
            9 => Reply { after: Duration::from_secs(60), ..Reply::good() },
            _ => Reply::good(),
        });
        let flags = ["-c", "8", "-n", "200", "--timeout", "400ms"];
        let checks = ["--check", "p99<100ms", "--check", "p50<300ms", "--check", "max<60s"];
        let run = load(way, &[&flags[..], &checks].concat(), &server.url());
        run.exits(1);
        assert_eq!(run.failures("timeout"), 20, "{}", run.words);
        let passed: Vec<_> = run.document["checks"].as_array().unwrap().iter().map(|c| &c["pass"]).collect();
        assert_eq!(passed, [false, true, false], "{}", run.words);
        let latency = &run.document["latency_us"]["from_sent"];
        let bounds: Vec<_> = latency["at_least"].as_array().unwrap().iter().map(|b| b.as_str()).collect();
        assert!(bounds.contains(&Some("p99")) && bounds.contains(&Some("max")), "{bounds:?}");
        assert!(!bounds.contains(&Some("p50")), "{bounds:?}");
        assert!((400e3..900e3).contains(&latency["p99"].as_f64().unwrap()), "{latency}");
        assert_eq!(latency["count"], 200);
        let alone = &run.document["latency_us"]["answered"];
        assert!(alone["count"] == 180 && alone["max"].as_f64().unwrap() < 400e3, "{alone}");
        run.says(">= 4");
    }
}

/// Requests at the end of a run that get no response make it no shorter, and its rate no higher.
#[test]
fn a_number_of_requests_lasts_until_each_has_its_end() {
    for way in WAYS {
        let server = Broken::start(|asked| match asked.nth {
            36.. => Reply { after: Duration::from_secs(60), ..Reply::good() },
            _ => Reply::good(),
        });
        let flags = ["-c", "4", "-n", "40", "--timeout", "500ms", "--check", "rate<80"];
        let run = load(way, &flags, &server.url());
        assert_eq!(run.failures("timeout"), 4, "{}", run.words);
        assert!(run.document["duration_s"].as_f64().expect("a time") >= 0.5, "{}", run.words);
        let series = run.document["series"].as_array().expect("a series");
        assert_eq!(series.iter().map(|part| number(part, "/failed")).sum::<u64>(), 4, "{series:?}");
        run.exits(0);
    }
}

/// Instant errors are no quick responses.
#[test]
fn instant_errors_improve_no_percentile() {
    for way in WAYS {
        let server = Broken::start(|asked| match asked.nth % 2 {
            0 => Reply { after: Duration::from_millis(20), ..Reply::good() },
            _ => Reply::with("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"),
        });
        let checks = ["--check", "p50<10ms", "--check", "p99<10s"];
        let run = load(way, &[&["-c", "4", "-n", "100"][..], &checks].concat(), &server.url());
        run.exits(1);
        let passed: Vec<_> = run.document["checks"].as_array().unwrap().iter().map(|c| &c["pass"]).collect();
        assert_eq!(passed, [false, false], "{}", run.words);
        let rows = &run.document["latency_us"];
        assert_eq!((&rows["from_sent"]["count"], &rows["answered"]["count"]), (&100.into(), &50.into()));
    }
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
        for backlog in [1, 128] {
            let server = Broken::accepting(AcceptMode::Never { backlog }, |_| Reply::good());
            let begun = Instant::now();
            let run = load(way, &["-c", "8", "-d", "2s"], &server.url());
            assert!(begun.elapsed() < Duration::from_secs(4), "{way:?} took {:?}", begun.elapsed());
            assert_ne!(run.code, Some(0), "{way:?} {}", run.words);
            run.says("the server accepts no connections");
            if backlog == 1 {
                assert!(run.number("/connections/hanging") >= 4, "{way:?} {}", run.words);
                assert!(run.failures("connect") >= 4, "{way:?} {}", run.words);
                run.says("never answered");
            } else {
                assert_eq!(run.number("/connections/unaccepted"), 8, "{way:?} {}", run.words);
                assert_eq!(run.requests("unknown"), 8, "{way:?} {}", run.words);
            }
        }
    }
}

/// Three of ten are not served as they should be.
fn three_in_ten(asked: &broken::ScriptRequest<'_>, bad: impl Fn() -> Reply) -> Reply {
    if asked.nth % 10 < 3 { bad() } else { Reply::good() }
}

#[test]
fn a_truncated_response_is_a_failure_and_is_not_asked_for_again() {
    for way in WAYS {
        for method in ["GET", "POST"] {
            for then in [Then::Close, Then::Reset] {
                let server =
                    Broken::start(move |asked| three_in_ten(asked, || Reply::broken(broken::CUT, then)));
                let flags = ["-c", "4", "-n", "300", "-X", method, "--check", "errors<2%"];
                let run = load(way, &flags, &server.url());
                run.exits(1);
                let truncated = server.counts().broken;
                assert_eq!(server.counts().requests, 300, "{way:?} {method}: none twice");
                assert_eq!(run.failures("truncated"), truncated, "{way:?} {method} {}", run.words);
                assert_eq!(run.requests("answered"), 300 - truncated, "{way:?} {method}");
                run.says("a response began and broke off");
            }
        }
    }
}

#[test]
fn without_a_byte_it_goes_out_again_where_the_connection_had_served_before() {
    for way in WAYS {
        let server = || {
            Broken::start(|asked| match asked.on_connection {
                4 => Reply::broken("", Then::Close),
                _ => Reply::good(),
            })
        };
        let idle = server();
        let run = load(way, &["-c", "2", "-n", "200"], &idle.url());
        run.exits(0);
        assert_eq!((run.requests("answered"), run.requests("failed")), (200, 0), "{way:?} {}", run.words);
        assert_eq!(run.requests("resent"), idle.counts().broken, "{way:?}");
        run.says("a second time, because the server closed the connection");
        let never = server();
        let run = load(way, &["-c", "2", "-n", "200", "--resend", "never"], &never.url());
        assert_eq!(run.requests("resent"), 0, "{way:?}");
        assert_eq!(run.failures("closed_early"), never.counts().broken, "{way:?} {}", run.words);
        // The client cannot know the fate of a request that is not idempotent.
        let post = server();
        let run = load(way, &["-c", "2", "-n", "200", "-X", "POST"], &post.url());
        assert_eq!(run.requests("unknown"), post.counts().broken, "{way:?} {}", run.words);
    }
}

#[test]
fn responses_that_nobody_asked_for_are_counted_and_shown() {
    let after_body: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\x1b[31mgarbage";
    let twice = [broken::GOOD, broken::GOOD].concat();
    for way in WAYS {
        for (bytes, first) in [(twice.as_slice(), "HTTP/1.1 200 OK"), (after_body, "[31mgarbage")] {
            let bytes = bytes.to_vec();
            let server = Broken::start(move |_| Reply::broken(bytes.clone(), Then::Keep));
            let run = load(way, &["-c", "2", "-n", "60", "--check", "errors<2%"], &server.url());
            run.exits(1);
            assert_eq!((run.requests("answered"), run.requests("failed")), (60, 0), "{way:?} {}", run.words);
            let unsolicited = run.requests("unsolicited_responses");
            assert_eq!(unsolicited, server.counts().broken, "{way:?} {}", run.words);
            run.says("that no request had asked for");
            run.says(first);
            assert!(!run.words.contains('\x1b'), "escape sequences stay out");
        }
    }
}

#[test]
fn a_switch_of_protocols_that_nobody_asked_for_is_bad() {
    for way in WAYS {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
        let server = Broken::start(move |_| Reply::broken(switch, Then::Keep));
        let run = load(way, &["-c", "2", "-n", "20"], &server.url());
        assert_eq!(run.number("/bad/status"), 20, "{way:?} {}", run.words);
    }
}

#[test]
fn a_swapped_order_is_seen_by_tags() {
    for way in OPEN {
        let held = std::sync::Mutex::new(std::collections::HashMap::new());
        let server = Broken::start(move |asked| {
            let tag = asked.head.lines().find(|l| l.starts_with("X-Tag:")).expect("a tag");
            let own = format!("HTTP/1.1 200 OK\r\n{tag}\r\nContent-Length: 0\r\n\r\n");
            let mut held = held.lock().expect("no panic");
            match held.remove(&asked.connection) {
                None => {
                    held.insert(asked.connection, own);
                    Reply::broken("", Then::Keep)
                }
                Some(before) => Reply { bytes: (own + before.as_str()).into(), ..Reply::good() },
            }
        });
        let flags = ["-c", "1", "-p", "4", "-n", "40", "--tag", "X-Tag", "--check", "out_of_order<=0"];
        let run = load(way, &flags, &server.url());
        run.exits(1);
        assert_eq!(run.requests("out_of_order_responses"), 20, "{way:?} {}", run.words);
        assert_eq!(run.number("/bad/tag"), 0, "{way:?}");
    }
}

/// Parts of a batch that were to leave on a connection that a part before them found reset.
#[test]
fn no_request_of_a_mixed_pipeline_is_lost() {
    let plan = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    let requests = (0..3).map(|i| {
        let post = if i == 1 { "method = \"POST\"\nbody = \"{{rand_text:60000}}\"\n" } else { "" };
        format!("[[request]]\nname = \"r{i}\"\npath = \"/{i}\"\n{post}")
    });
    std::fs::write(plan.path(), requests.collect::<String>()).expect("written");
    let plan = plan.path().to_str().expect("text");
    for way in OPEN {
        let server = Broken::start(|asked| match asked.on_connection {
            2 => Reply::good().then(Then::Reset),
            _ => Reply::good(),
        });
        let flags = ["--plan", plan, "-c", "4", "-p", "20", "-n", "600", "--timeout", "5s"];
        let run = load(way, &flags, &server.url());
        let counts = server.counts();
        assert_eq!(run.requests("sent"), 600, "{way:?}");
        // No server answers fewer requests than were answered.
        assert!(run.requests("answered") <= counts.requests, "{way:?} {} {counts:?}", run.words);
        assert_eq!(run.requests("failed"), 0, "{way:?} {}", run.words);
    }
}

#[test]
fn one_early_close_opens_one_connection_more() {
    for way in WAYS {
        let server = Broken::start(|asked| match asked.nth {
            7 => Reply::good().then(Then::Close),
            _ => Reply::good(),
        });
        let run = load(way, &["-c", "3", "-n", "300"], &server.url());
        run.exits(0);
        assert!(run.number("/connections/opened") <= 4, "{way:?} {}", run.words);
        assert!(run.document["connections"]["learnt_limit"].is_null(), "{way:?}");
    }
}

#[test]
fn a_limit_is_learnt_from_three_connections() {
    let server = Broken::start(|asked| match asked.on_connection {
        9 => Reply { bytes: CLOSES.into(), ..Reply::good() }.then(Then::Close),
        _ => Reply::good(),
    });
    let run = load(OPEN[0], &["-c", "2", "-p", "40", "-n", "400"], &server.url());
    run.exits(0);
    assert_eq!(
        (run.requests("answered"), run.number("/connections/learnt_limit")),
        (400, 10),
        "{}",
        run.words
    );
    run.says("it closes after 10 requests, seen on");
}

/// A response that announces the close.
const CLOSES: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
