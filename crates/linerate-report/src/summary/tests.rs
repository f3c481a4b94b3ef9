use super::*;
use crate::testing;
use linerate_load::outcome::NamedFigures;
use linerate_load::plan::Check;
use linerate_load::plan::flow::{FlowPlan, FlowStep, StepHooks, Think, UserFlow, UserPace};
use linerate_load::plan::http::Http;

fn text(plan: &Plan, outcome: &Outcome, style: Style) -> String {
    as_long_as(SummaryLength::Full, plan, outcome, style)
}

fn as_long_as(length: SummaryLength, plan: &Plan, outcome: &Outcome, style: Style) -> String {
    let environment = testing::environment();
    let checks = testing::checked(plan, outcome);
    to_string(&Report { plan, outcome, checks: &checks, environment: &environment }, length, style)
}

/// With the command and the next prompt it stands on a screen of 24 lines.
#[test]
fn a_quiet_run_fits_a_screen() {
    let page = as_long_as(
        SummaryLength::Screen,
        &testing::plan_closed(),
        &testing::quiet_outcome(),
        Style::default(),
    );
    assert!(page.lines().count() <= 20, "{page}");
    insta::assert_snapshot!(page);
}

/// With a last response that came late, and errors, the first figures need two lines.
#[test]
fn figures_that_take_two_lines_have_them() {
    let mut outcome = testing::outcome_closed();
    outcome.duration = outcome.window.time * 2;
    for width in [80, 120] {
        let style = Style { width, ..Style::default() };
        let page = as_long_as(SummaryLength::Short, &testing::plan_closed(), &outcome, style);
        assert!(page.lines().all(|line| line.chars().count() <= usize::from(width)), "{page}");
        assert!(page.contains("sent in") && page.contains(" later"), "{page}");
    }
}

/// Two notes of two lines each leave room for the command and the next prompt.
#[test]
fn a_run_with_two_notes_fits_a_screen() {
    let mut outcome = testing::quiet_outcome();
    outcome.duration = std::time::Duration::from_millis(400);
    outcome.client.saturated = true;
    outcome.client.reason =
        Some("the sending threads waited for a core for 36 % of the time they wanted to run".to_owned());
    let page = as_long_as(SummaryLength::Screen, &testing::plan_closed(), &outcome, Style::default());
    assert_eq!(page.lines().filter(|line| line.starts_with("note")).count(), 2, "{page}");
    assert!(page.lines().count() <= 21, "{page}");
}

/// What is out of the ordinary stands on the screen, too.
#[test]
fn trouble_is_never_cut() {
    let (plan, outcome) = (testing::plan_closed(), testing::outcome_closed());
    let screen = as_long_as(SummaryLength::Screen, &plan, &outcome, Style::default());
    let full = as_long_as(SummaryLength::Full, &plan, &outcome, Style::default());
    let told = |line: &&str| {
        ["FAILED", "note", "resent", "unknown", "bad answers", "tcp", "status"]
            .iter()
            .any(|w| line.starts_with(w))
    };
    assert!(full.lines().filter(told).count() > 5, "{full}");
    for line in full.lines().filter(told) {
        assert!(screen.contains(line), "{line}\n{screen}");
    }
    insta::assert_snapshot!(screen);
}

#[test]
fn a_quiet_run() {
    insta::assert_snapshot!(text(&testing::plan_closed(), &testing::quiet_outcome(), Style::default()));
}

#[test]
fn everything_at_once() {
    let checks = ["p99<50ms", "errors<0.01%"].map(|expr| Check::parse(expr).expect("a check")).to_vec();
    let plan = Plan { checks, ..testing::plan_closed() };
    let mut outcome = testing::outcome_closed();
    outcome.interrupted = true;
    insta::assert_snapshot!(text(&plan, &outcome, Style::default()));
}

#[test]
fn segments_are_told_and_whether_all_were_seen() {
    let mut outcome = testing::outcome_closed();
    outcome.tcp.segments = Some(testing::segments());
    let page = text(&testing::plan_closed(), &outcome, Style { width: 200, ..Style::default() });
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(
            "segments 100,000 sent: 3 retransmissions, 1 fast retransmission; 120,000 received: 1 duplicate ACK, \
             33 zero windows; at least, since 7 packets found no room in the capture"
        ),
        "{page}"
    );
}

#[test]
fn the_share_of_the_line() {
    let mut outcome = testing::quiet_outcome();
    outcome.line = Some(testing::line(10_000_000_000));
    outcome.window.bytes.received = 5_000_000_000;
    let page = text(&testing::plan_closed(), &outcome, Style::default());
    let line = "of the 10.0 Gbit/s of eth0: 40.0 % received, 0.07 % sent (without headers)";
    assert!(page.contains(line), "{page}");
}

#[test]
fn an_open_loop_in_ascii() {
    let style = Style { unicode: false, ..Style::default() };
    let page = text(&testing::plan_open(), &testing::outcome_open(), style);
    assert!(page.is_ascii(), "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn a_target_that_cannot_be_reached() {
    let outcome = Outcome { unreachable: Some("connection refused".to_owned()), ..Outcome::default() };
    insta::assert_snapshot!(text(&testing::plan_closed(), &outcome, Style::default()));
}

#[test]
fn several_requests_each_have_their_line() {
    let mut plan = testing::plan_closed();
    plan.requests.push(plan.requests[0].clone());
    let mut outcome = testing::quiet_outcome();
    for (name, n) in [("home", 90_000), ("search", 10_000)] {
        let mut named = NamedFigures::default();
        named.requests.answered = n;
        named.latency.record(n, n);
        outcome.by_name.insert(name.to_owned(), named);
    }
    insta::assert_snapshot!(text(&plan, &outcome, Style::default()));
}

/// The page counts them as failed, too.
#[test]
fn requests_of_unknown_end_stand_in_the_line_of_their_request() {
    let mut outcome = testing::quiet_outcome();
    for (name, unknown) in [("cut", 37), ("home", 0)] {
        let mut named = NamedFigures::default();
        named.requests.answered = 90;
        named.requests.unknown = unknown;
        named.latency.record(1_000_000, 90);
        outcome.by_name.insert(name.to_owned(), named);
    }
    let page = text(&testing::plan_closed(), &outcome, Style::default());
    let line = page.lines().find(|line| line.starts_with("cut ")).expect("its line");
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(columns[..4], ["cut", "90", "37", "0"], "{page}");
}

#[test]
fn nothing_answered_has_no_table_and_no_division_by_zero() {
    let page = text(&testing::plan_closed(), &Outcome::default(), Style::default());
    assert!(page.contains("0 requests/s"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("p50"), "{page}");
}

/// The exit code is 1 or half of it failed: no reader has to go through the sections to see that.
#[test]
fn what_went_wrong_stands_in_the_first_lines() {
    let mut plan = testing::plan_closed();
    let mut unanswered = testing::quiet_outcome();
    unanswered.requests.unknown = unanswered.requests.answered;
    unanswered.requests.sent = 2 * unanswered.requests.answered;
    let mut unexpected = testing::quiet_outcome();
    unexpected.bad.status = 20;
    plan.requests[0].expect.status = vec![200];
    for (outcome, said) in [
        (&unanswered, ", 50.0 % errors   100,000 answered in 10.0 s"),
        (&unexpected, "FAILED        20 responses were not what was expected"),
    ] {
        for length in [SummaryLength::Short, SummaryLength::Screen] {
            let page = as_long_as(length, &plan, outcome, Style { width: 200, ..Style::default() });
            let first: Vec<_> = page.lines().take(8).collect();
            assert!(first.join("\n").contains(said), "{page}");
        }
    }
}

#[test]
fn throughput_shows_no_latency() {
    let plan = Plan { throughput: true, ..testing::plan_closed() };
    let page = text(&plan, &testing::quiet_outcome(), Style::default());
    assert!(page.contains("No latencies") && !page.contains("p99"), "{page}");
}

/// Callers that block look at no connection; a capture counts their packets all the same.
#[test]
fn segments_are_shown_where_no_connection_was_looked_at() {
    let mut outcome = testing::quiet_outcome();
    outcome.tcp = linerate_load::outcome::Tcp { segments: Some(testing::segments()), ..Default::default() };
    let page = text(&testing::plan_closed(), &outcome, Style::default());
    assert!(page.contains("segments      100,000 sent") && page.contains("33 zero windows"), "{page}");
}

/// A body is shown as text, its lines below one another, and steers no terminal.
#[test]
fn a_bad_body_is_shown_as_it_came() {
    let mut outcome = testing::outcome_closed();
    let sample = &mut outcome.samples[0];
    (sample.why, sample.status) = ("bad status".to_owned(), Some(503));
    sample.body = "{\"error\": \"caf\u{e9}\"}\n\n  at \x1b[2Jline 2\n".to_owned();
    let page = text(&testing::plan_closed(), &outcome, Style::default());
    assert!(page.contains("body: {\"error\": \"caf\u{e9}\"}\n"), "{page}");
    assert!(page.contains("                        at \\u{1b}[2Jline 2\n"), "{page}");
}

#[test]
fn colour_adds_and_takes_nothing_away() {
    let (plan, outcome) = (testing::plan_closed(), testing::outcome_closed());
    let plain = text(&plan, &outcome, Style::default());
    let coloured = text(&plan, &outcome, Style { colour: true, ..Style::default() });
    assert!(!plain.contains('\x1b'));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some(at) = rest.find('\x1b') {
        stripped.push_str(&rest[..at]);
        let end = rest[at..].find('m').map_or(rest.len(), |m| at + m + 1);
        rest = &rest[end..];
    }
    stripped.push_str(rest);
    let trimmed: String = stripped.lines().map(|l| format!("{}\n", l.trim_end())).collect();
    assert_eq!(trimmed, plain);
}

#[test]
fn a_server_cannot_steer_the_terminal() {
    let mut outcome = testing::outcome_closed();
    outcome.samples[0].head = "HTTP/1.1 503 \x1b[2J\x07evil\r\n".to_owned();
    outcome.failures.details.insert("malformed", "begins with \x1b]0;evil\x07".to_owned());
    let page = text(&testing::plan_closed(), &outcome, Style::default());
    assert!(!page.contains('\x1b') && !page.contains('\x07'), "{page}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for (length, width) in
        [SummaryLength::Full, SummaryLength::Screen].into_iter().flat_map(|l| [60, 80, 200].map(|w| (l, w)))
    {
        let style = Style { width, ..Style::default() };
        let page = as_long_as(length, &testing::plan_open(), &testing::outcome_closed(), style);
        for line in page.lines() {
            assert!(line.chars().count() <= usize::from(width.max(80)), "{width}: {line}");
        }
    }
}

#[test]
fn rates_read_as_they_were_meant() {
    let step = |from, to, lasts: Option<u64>| RateStep {
        from,
        to,
        lasts: lasts.map(std::time::Duration::from_secs),
    };
    let rate = Rate { steps: vec![step(0.0, 5_000.0, Some(30)), step(5_000.0, 5_000.0, Some(60))] };
    assert_eq!(rate_in_words(&rate), "0/s to 5,000/s in 30s, then 5,000/s in 1m");
    assert_eq!(rate_in_words(&Rate { steps: vec![step(10_000.0, 10_000.0, None)] }), "10,000/s");
}

#[test]
fn users_of_flows_have_connections_or_streams() {
    let step = |group: &str, repeat| FlowStep {
        host: 0,
        request: 0,
        repeat,
        expect: None,
        follow: 0,
        take: Vec::new(),
        think: Think::No,
        group: (!group.is_empty()).then(|| group.to_owned()),
        hooks: StepHooks::default(),
    };
    let said = |steps: Vec<FlowStep>, own_connections, version| {
        let mut plan = testing::plan_closed();
        plan.flows = Some(FlowPlan {
            hosts: Vec::new(),
            users: 3,
            pace: UserPace::Always,
            own_connections,
            graceful: std::time::Duration::ZERO,
            iterations: None,
            keep_cookies: false,
            script: None,
            flows: vec![UserFlow { name: "f".into(), weight: 1.0, steps }],
        });
        plan.http.version = version;
        plan.fit_users();
        super::sending(&plan)
    };
    let group = || vec![step("", 1), step("a", 2), step("a", 6)];
    for (steps, own, version, words) in [
        (vec![step("", 9)], false, Http::One, "3 connections, 1 request of a user in flight"),
        (group(), false, Http::One, "up to 18 connections, 6 for each user"),
        (group(), false, Http::Two, "3 connections, up to 8 requests of a user in flight"),
        (group(), true, Http::One, "up to 3 users at a time, up to 6 connections for each iteration"),
        (group(), true, Http::Two, "up to 3 users at a time, a connection for each iteration"),
    ] {
        assert_eq!(said(steps, own, version), words);
    }
}
