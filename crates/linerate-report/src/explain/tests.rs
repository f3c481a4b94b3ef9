use std::collections::HashSet;
use std::time::Duration;

use linerate_explain::call::{Call, CallStage, Failure, ProbeResponse, ReceivedBytes, Why};
use linerate_explain::probe::{CallProbe, Lane, Observation, Probe};
use linerate_explain::process::{Doing, Jvm, KernelListener, ProcessView};
use linerate_explain::{Diagnosis, Planner, Settings, Whole};

use super::*;
use crate::{Environment, Style};

fn t(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// The diagnosis of a server whose calls are as `world` says.
fn explained(world: impl Fn(&CallProbe, bool) -> Call) -> Diagnosis {
    let url = "http://127.0.0.1/<b>".to_owned();
    let addresses = vec![([127, 0, 0, 1], 80).into()];
    let mut planner = Planner::new(Settings { url, addresses, ..Settings::default() });
    let (mut open, mut now) = (HashSet::new(), Duration::ZERO);
    while let Some(probe) = planner.poll_probe(now) {
        let made = match &probe {
            Probe::Call(call) => {
                let fresh = match call.lane {
                    Lane::Fresh => true,
                    Lane::Kept(lane) => open.insert(lane),
                };
                let made = world(call, fresh);
                now += made.total;
                Observation::Call(Box::new(made))
            }
            Probe::Burst(n) => {
                let probe = CallProbe::plain(linerate_explain::probe::Experiment::Burst, 0, Lane::Fresh);
                Observation::Burst((0..*n).map(|_| world(&probe, true)).collect())
            }
            Probe::Scattered(times) => {
                let probe =
                    CallProbe::plain(linerate_explain::probe::Experiment::Scattered, 0, Lane::Kept(0));
                let began = |at: &Duration| (now + *at).as_nanos() as i64;
                let one = |at: &Duration| Call { began_ns: began(at), ..world(&probe, false) };
                Observation::Scattered(times.iter().map(one).collect())
            }
            other => unreachable!("{other:?} is not asked of an address"),
        };
        planner.handle_observation(probe, made);
    }
    planner.diagnose()
}

/// A call with a pause of that many milliseconds in the middle of its response.
fn pauses(ms: f64, fresh: bool) -> Call {
    let connect = if fresh { t(1.9) } else { Duration::ZERO };
    let first = connect + t(2.0);
    let fields = vec![("server".to_owned(), "nginx/1.22".to_owned())];
    Call {
        fresh,
        connect,
        wait: t(2.0),
        receive: t(ms),
        total: first + t(ms),
        receives: vec![ReceivedBytes { at: first, bytes: 80 }, ReceivedBytes { at: first + t(ms), bytes: 5 }],
        end: Some(Ok(ProbeResponse {
            status: 200,
            reusable: true,
            body_bytes: 5,
            fields,
            ..ProbeResponse::default()
        })),
        ..Call::default()
    }
}

/// The write-up's case.
fn stalled() -> Diagnosis {
    explained(|probe, fresh| {
        let held = probe.levers.delayed_ack.map_or(43.0, |d| d.as_secs_f64() * 1e3 + 3.0);
        pauses(if fresh || probe.levers.quick_ack { 0.0 } else { held }, fresh)
    })
}

fn environment() -> Environment {
    Environment { command: "linerate explain 'a&b'".to_owned(), ..Environment::default() }
}

#[test]
fn a_verdict_has_five_lines_at_most_and_says_what_to_do() {
    let lines = words::headline(&stalled(), true);
    assert!(lines.len() <= 5, "{lines:#?}");
    assert!(lines[0].starts_with("43.0 ms of 45.0 ms: the server holds"), "{lines:#?}");
    assert!(
        lines[1].starts_with("Proved by experiment (server-nagle-delayed-ack): acknowledge at once ("),
        "{lines:#?}"
    );
    assert!(
        lines[2].starts_with("Change (nginx): tcp_nodelay on;"),
        "the server's own word counts: {lines:#?}"
    );
    assert!(lines[3].ends_with("linerate explain http://127.0.0.1/<b>"), "{lines:#?}");
}

#[test]
fn a_healthy_server_is_told_so() {
    let healthy = explained(|_, fresh| pauses(0.1, fresh));
    let lines = words::headline(&healthy, true);
    assert_eq!(lines[0], "Nothing is wrong: your call takes 2.10 ms, of which 1.90 ms is the network.");
    assert!(to_string(&healthy, None, Style::default()).starts_with("Nothing is wrong"));
    let screen = to_screen(&healthy, None, Style::default());
    assert!(screen.lines().count() <= 25, "{screen}");
    assert!(screen.starts_with("Nothing is wrong") && !screen.contains("- bufferbloat"), "{screen}");
    let busy = on_a_busy_machine(healthy.clone());
    let screen = to_screen(&busy, None, Style::default());
    assert!(screen.lines().count() <= 25 && screen.contains("  - this machine was busy"), "{screen}");
    assert!(screen.contains("seen: our calls waited 84 % of their time for a core\n"), "{screen}");
    assert!(page::to_string(&healthy, None, &environment()).contains("<h1 class=\"good\">Nothing is wrong"));
}

/// As seen with six programs that turn in circles beside it.
fn on_a_busy_machine(mut diagnosis: Diagnosis) -> Diagnosis {
    let machine = &mut diagnosis.machine;
    (machine.waited_share, machine.pressure, machine.load) = (0.84, Some(1.0), Some(1.7));
    diagnosis.limits.push(
        "cpu-contention: a note and no cause: this machine is busy, and the server waited for a processor, too, \
         3.66 ms a call; --pid makes it a cause"
            .to_owned(),
    );
    diagnosis.limits.push(
        "this machine was busy: our own calls waited 84 % of their time for a processor, so that times are less \
         certain"
            .to_owned(),
    );
    diagnosis
}

#[test]
fn a_named_cause_fits_a_screen_and_the_rest_is_asked_for() {
    let mut diagnosis = stalled();
    let screen = to_screen(&diagnosis, None, Style::default());
    let full = to_string(&diagnosis, None, Style::default());
    assert!(screen.lines().count() <= 40 && full.lines().count() > 55, "{screen}\n{full}");
    for line in words::headline(&diagnosis, true) {
        let start: String = line.chars().take(40).collect();
        assert!(screen.contains(&start), "{line}\n{screen}");
    }
    for wanted in ["As it is: 45.0 ms", "Outside in", "--summary full has the rest"] {
        assert!(screen.contains(wanted), "{wanted}\n{screen}");
    }
    for left_out in ["Ruled out\n", "experiment: ", "What to change:"] {
        assert!(full.contains(left_out) && !screen.contains(left_out), "{left_out}\n{screen}");
    }
    // What could not be judged is never left out, and a second cause has its fix.
    diagnosis.limits.push("a limit of the judgement".to_owned());
    let second = diagnosis.causes[0].clone();
    diagnosis.causes.push(second);
    let screen = to_screen(&diagnosis, None, Style::default());
    assert!(screen.contains("Limits\n") && screen.contains("  - a limit of the judgement"), "{screen}");
    assert!(screen.contains("Cause 2: server-nagle-delayed-ack\n"), "{screen}");
    assert_eq!(screen.matches("Change (nginx): tcp_nodelay on;").count(), 2, "{screen}");
}

#[test]
fn both_arms_are_shown_next_to_each_other_where_there_is_room() {
    let stalled = stalled();
    for width in [40, 80, 103, 120, 200] {
        let text = to_string(&stalled, None, Style { width, ..Style::default() });
        let longest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        // The commands to type and the diagrams' least width are not broken.
        assert!(longest <= usize::from(width.clamp(70, 120)), "{width}: {longest}\n{text}");
        let beside =
            text.lines().any(|l| l.starts_with("As it is: 45.0 ms") && l.contains("Acknowledge at once"));
        assert_eq!(beside, width >= 104, "{width}\n{text}");
        assert!(width < 80 || text.contains("the rest waits for our ACK"), "{text}");
    }
    let ascii = to_string(&stalled, None, Style { unicode: false, ..Style::default() });
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn the_page_needs_nothing_else_and_what_came_from_elsewhere_is_text() {
    let page = page::to_string(&stalled(), None, &environment());
    // Two diagrams, one experiment, its doses.
    assert_eq!(page.matches("<svg ").count(), 4, "{page}");
    assert!(page.contains("Dose and response"));
    for foreign in ["src=", "href=", "<script", "url(", "http://127.0.0.1/<b>", "a&b"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for wanted in ["prefers-color-scheme: dark", "@media print", "</html>", "Ruled out", "Verify:"] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_call_that_hangs_is_drawn_to_its_end() {
    let hangs = explained(|_, _| Call {
        fresh: true,
        connect: t(0.1),
        wait: t(4000.0),
        total: t(4000.1),
        end: Some(Err(Failure { stage: CallStage::Wait, why: Why::TimedOut, words: "no answer".to_owned() })),
        ..Call::default()
    });
    assert_eq!(hangs.whole, Whole::Inconclusive);
    let text = to_string(&hangs, None, Style::default());
    assert!(text.contains("4.00 s nothing more: we gave up"), "{text}");
    assert_eq!(text.matches("calls failed: no answer").count(), 1, "said once\n{text}");
    let many = Call {
        receives: (0..50).map(|i| ReceivedBytes { at: t(f64::from(i)), bytes: 1 }).collect(),
        ..pauses(50.0, false)
    };
    assert!(
        to_string(&explained(|_, _| many.clone()), None, Style::default())
            .contains("48 more receives, 48 bytes")
    );
}

#[test]
fn receives_that_are_drawn_as_one_leave_no_silence_around_them() {
    let streams = explained(|_, fresh| {
        let connect = if fresh { t(1.9) } else { Duration::ZERO };
        let at = |i: u32| ReceivedBytes { at: connect + t(100.0 * f64::from(i)), bytes: 19 };
        let receives: Vec<ReceivedBytes> = (1..40).map(at).collect();
        let words = "begins its answer and does not end it".to_owned();
        let end = Some(Err(Failure { stage: CallStage::Receive, why: Why::TimedOut, words }));
        Call { fresh, connect, wait: t(100.0), total: t(4000.0), receives, end, ..Call::default() }
    });
    let shown = to_string(&streams, None, Style::default());
    assert!(shown.contains("37 more receives"), "{shown}");
    assert!(shown.contains("the answer goes on") && !shown.contains("nothing from the server"), "{shown}");
}

#[test]
fn a_process_in_a_few_lines() {
    let mut diagnosis = stalled();
    let doing =
        |what: &str, mean| Doing { what: what.to_owned(), mean, most: 9, names: vec!["pool-N".to_owned()] };
    diagnosis.shown.process = Some(Box::new(ProcessView {
        pid: 4711,
        name: "java".to_owned(),
        looks: 9,
        calls: 1,
        threads: vec![doing("waiting for another thread (futex)", 27.0), doing("running", 0.25)],
        files: Some((990, 1000)),
        listeners: vec![KernelListener { address: ([127, 0, 0, 1], 80).into(), waiting: 3, limit: Some(50) }],
        sockets: [("established", 3)].into(),
        unread: (3_200, 2),
        turned_away: (4, 5),
        jvm: Some(Jvm { collections: 2, collected: t(12.0), safepoints: 3, stopped: t(13.0) }),
        notes: vec!["odd".to_owned()],
        ..ProcessView::default()
    }));
    let text = to_string(&diagnosis, None, Style::default());
    let part: Vec<&str> =
        text.lines().skip_while(|l| !l.starts_with("The server's process")).take(10).collect();
    insta::assert_snapshot!(part.join("\n"), @r"
    The server's process 4711 (java), looked at 9 times during 1 call
      threads     27 waiting for another thread (futex): pool-N
                  0.2 running: pool-N
      accepting   127.0.0.1:80: 3 of at most 50 wait to be accepted
      turned away 4 connections found an accept queue full, 5 SYNs were dropped
      sockets     3 established; 3.20 kB not read yet on 2 connections
      files       990 open, 1,000 allowed: nearly all are used up
      pauses      2 garbage collections (12.0 ms), 3 safepoints (13.0 ms) meanwhile
      note        odd
    ");
    let page = page::to_string(&diagnosis, None, &environment());
    assert!(page.contains("990 open, 1,000 allowed: nearly all are used up"));
    let document = document(&diagnosis, &environment());
    assert_eq!(document.process.map(|p| (p.pid, p.open_files)), Some((4711, Some(990))));
    assert_eq!(document.causes[0].experiments[0].dose.as_ref().map(|d| d.points.len()), Some(4));
    let process = diagnosis.shown.process.as_mut().expect("it was looked at");
    process.listeners.push(process.listeners[0].clone());
    let text = to_string(&diagnosis, None, Style { width: 120, ..Style::default() });
    assert!(text.contains("80, 2 sockets: 3 of at most 50 wait to be accepted at each"), "{text}");
}

/// What `--json` writes of it, read again.
fn kept(diagnosis: &Diagnosis) -> Baseline {
    Baseline::parse("why.json", &to_json(diagnosis, None, &environment())).expect("a diagnosis")
}

#[test]
fn what_is_fixed_is_gone_as_predicted() {
    let before = stalled();
    let predicted = before.causes[0].predicted().expect("the calls that acknowledge at once");
    assert!(
        (predicted.before_ms - 45.0).abs() < 0.1 && (predicted.after.value - 2.0).abs() < 0.1,
        "{predicted:?}"
    );
    assert!(predicted.measured);
    let now = explained(|_, fresh| pauses(0.1, fresh));
    let since = Since::of(&kept(&before), &now);
    assert!(since.is_fine());
    let text = to_string(&now, Some(&since), Style::default());
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    assert_eq!(last[0], "  gone: 45.0 ms before, 2.10 ms now (99 % confident)");
    assert!(last[1].starts_with("  predicted: 2.00 ms (") && last[1].ends_with("which held"), "{last:?}");
    assert_eq!(last[2], "Since why.json: server-nagle-delayed-ack");
    let page = page::to_string(&now, Some(&since), &environment());
    assert!(page.contains("gone: 45.0 ms before, 2.10 ms now (99 % confident)"), "{page}");
    let json = to_json(&now, Some(&since), &environment());
    assert!(json.contains("\"verdict\": \"gone\"") && json.contains("\"prediction_held\": true"), "{json}");
    // And the other way round.
    let since = Since::of(&kept(&before), &before);
    assert!(!since.is_fine());
    let text = to_string(&before, Some(&since), Style::default());
    assert!(text.ends_with("\n  still there: 45.0 ms before, 45.0 ms now (it is named again)\n"), "{text}");
    let since = Since::of(&kept(&now), &before);
    assert!(!since.is_fine());
    let text = to_string(&before, Some(&since), Style::default());
    assert!(text.contains("  slower: 2.10 ms before, 45.0 ms now (99 % confident)"), "{text}");
}

#[test]
fn documents_to_compare_with_are_read_with_care() {
    let whole = to_json(&stalled(), None, &environment());
    let said = |text: &str| Baseline::parse("why.json", text).expect_err("unfit").message;
    assert!(said(&whole[..whole.len() / 2]).starts_with("why.json ends in the middle (line "));
    assert_eq!(said(" "), "why.json is empty");
    assert!(said("<html>").starts_with("why.json is no JSON (line 1"));
    assert!(said("[1]").contains("has no \"schema\""));
    let outcome = r#"{"schema": "linerate.outcome/1"}"#;
    assert_eq!(said(outcome), "why.json is a document of linerate.outcome/1, not of linerate.diagnosis/1");
    assert!(said(&whole.replace("times_ms", "times_us")).contains("has no times of calls"));
    let passive = r#"{"schema": "linerate.diagnosis/1", "mode": "passive"}"#;
    assert!(said(passive).contains("is of packets"));
    let before = kept(&stalled());
    assert_eq!(before.is_of("http://127.0.0.1/<b>", "GET"), Ok(()));
    assert_eq!(before.is_of("http://staging.test:8443/<b>", "GET"), Ok(()), "another host and port");
    assert!(before.is_of("https://127.0.0.1/<b>", "GET").is_err(), "another scheme");
    let other = before.is_of("http://127.0.0.1/", "GET").expect_err("another URL");
    assert_eq!(other.message, "why.json is of GET http://127.0.0.1/<b>, not of GET http://127.0.0.1/");
    assert!(before.is_of("http://127.0.0.1/<b>", "POST").is_err());
    // Whatever else is in it does no harm.
    let odd = whole.replace("\"cost_ms\"", "\"cost\"").replace("45", "-1e400");
    let _ = Baseline::parse("why.json", &odd);
}

#[test]
fn the_command_that_was_run_verifies() {
    let mut diagnosis = stalled();
    diagnosis.command =
        format!("linerate explain -H 'Cookie: ***' --body '{}' http://h/", "a  b ".repeat(30));
    let text = to_string(&diagnosis, None, Style::default());
    assert!(text.contains(&format!("\n    {}\n", diagnosis.command)), "in one piece\n{text}");
    assert!(text.contains("(with what stands here as *** put back)"), "{text}");
    let document = document(&diagnosis, &environment());
    assert_eq!(document.causes[0].verify, diagnosis.command);
}

#[test]
fn headline_parts_and_drawing_are_of_one_call() {
    for diagnosis in [stalled(), explained(|_, fresh| pauses(60.0, fresh))] {
        let text = to_string(&diagnosis, None, Style::default());
        let total = words::time(words::total_ms(&diagnosis), true);
        assert!(
            text.lines().next().is_some_and(|l| l.contains(&format!(" {total}")))
                || diagnosis.causes.is_empty(),
            "{text}"
        );
        let drawn = text
            .lines()
            .find(|l| l.starts_with("As it is: ") || l.starts_with("The call, on "))
            .unwrap_or_default();
        assert!(drawn.ends_with(&total), "{drawn} and {total}");
        let all = text.lines().find(|l| l.starts_with("  all ")).unwrap_or_default();
        assert!(all.contains(&format!(" {total} ")), "{all} and {total}");
    }
}

#[test]
fn what_a_limiter_holds_back_is_no_work() {
    let last = std::cell::Cell::new(false);
    let limited = explained(|probe, fresh| {
        let call = pauses(0.1, fresh);
        // One call in 100 ms: a pause before a call is time that it need not wait.
        let more = if last.replace(true) { t(100.0).saturating_sub(probe.pause) } else { Duration::ZERO };
        let receives = call.receives.iter().map(|r| ReceivedBytes { at: r.at + more, ..*r }).collect();
        Call { wait: call.wait + more, total: call.total + more, receives, ..call }
    });
    assert_eq!(limited.causes.first().map(|c| c.id()), Some("rate-limit"), "{limited:#?}");
    let text = to_string(&limited, None, Style::default());
    assert!(text.contains("held until its turn") && !text.contains("ms the server works"), "{text}");
}

#[test]
fn from_outside_in_each_place_has_a_word() {
    let mut diagnosis = stalled();
    diagnosis.machine.waited_share = 0.18;
    for width in [60, 80] {
        let text = to_string(&diagnosis, None, Style { width, ..Style::default() });
        let block: Vec<&str> =
            text.lines().skip_while(|l| *l != "Outside in").skip(1).take_while(|l| !l.is_empty()).collect();
        assert!(block.iter().all(|l| l.chars().count() <= usize::from(width)), "{block:#?}");
        assert_eq!(block.iter().filter(|l| l.chars().nth(2) != Some(' ')).count(), 5, "{block:#?}");
    }
    let page = page::to_string(&diagnosis, None, &environment());
    assert!(page.contains("<h2>Outside in</h2>") && page.contains("This machine: waited 18 %"), "{page}");
    let document = document(&diagnosis, &environment());
    let status: Vec<_> = document.outside_in.iter().map(|l| (l.place.as_str(), l.status.as_str())).collect();
    assert_eq!(
        status,
        [
            ("this_machine", "seen"),
            ("network", "fine"),
            ("servers_machine", "not examined"),
            ("process", "not examined"),
            ("wire", "cause")
        ]
    );
}

#[test]
fn advice_is_for_what_answered_and_a_proxy_comes_first() {
    let mut diagnosis = stalled();
    let text = to_string(&diagnosis, None, Style::default());
    assert!(text.contains("    nginx: tcp_nodelay on;") && !text.contains("    Netty: "), "{text}");
    assert!(text.contains("other software: linerate explain --why server-nagle-delayed-ack"), "{text}");
    let answered = |fields: &[(&str, &str)]| {
        let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Some(Ok(ProbeResponse {
            status: 200,
            reusable: true,
            body_bytes: 5,
            fields,
            ..ProbeResponse::default()
        }))
    };
    diagnosis.call.end = answered(&[]);
    let text = to_string(&diagnosis, None, Style::default());
    assert!(text.contains("Change (any server): setsockopt(TCP_NODELAY)"), "{text}");
    diagnosis.call.end = answered(&[("via", "1.1 varnish"), ("x-powered-by", "Express")]);
    for shown in
        [to_string(&diagnosis, None, Style::default()), page::to_string(&diagnosis, None, &environment())]
    {
        let at = |words: &str| shown.rfind(words).unwrap_or_else(|| panic!("{words}\n{shown}"));
        assert!(at("ehind a proxy (Via: 1.1 varnish)") < at("leave noDelay at true"), "{shown}");
        assert!(shown.contains("Behind a proxy (Via: 1.1 varnish): run it from the proxy"), "{shown}");
    }
}
