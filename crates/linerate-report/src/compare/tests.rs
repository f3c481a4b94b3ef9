use std::time::UNIX_EPOCH;

use linerate_lab::check::MetricCheck;
use linerate_lab::comparison::since;
use linerate_lab::figures::RunFigures;
use linerate_lab::latencies::RunLatencies;
use linerate_load::histogram::Histogram;

use super::*;
use crate::Style;

/// Of 900 requests, from none to a little more than their p99.
fn latencies(p99_us: f64, beyond: u64) -> RunLatencies {
    let (mut histogram, mut waited) = (Histogram::new(), Histogram::new());
    waited.record(10_000_000_000, beyond);
    (1..=900 - beyond).for_each(|i| histogram.record((p99_us * 1e3 * i as f64 / 891.0) as u64, 1));
    RunLatencies::new(&histogram, &waited)
}

/// Rounds of a machine that drifts; B is faster at the tail and equal otherwise.
fn rounds(n: u32) -> Rounds {
    let mut rounds = Rounds::default();
    for i in 0..n {
        let speed = 1.0 + 0.2 * f64::from(i).sin();
        let wobble = 1.0 + 0.01 * f64::from(i * 7).cos();
        let run = |rate: f64, p99: f64, cpu: f64| RunFigures {
            values: [("rate_rps", rate), ("p99_us", p99), ("cpu_us_per_request", cpu), ("rss_mb", 12.5)]
                .into(),
            latencies: latencies(p99, 0),
            sent: 1_000,
            answered: 1_000,
            received: 100_000,
            status: [(200, 1_000)].into(),
            ..RunFigures::default()
        };
        rounds.push([
            run(50_000.0 * speed, 900.0 / speed, 8.0),
            run(50_400.0 * speed * wobble, 720.0 / speed * wobble, 8.1 * wobble),
        ]);
    }
    rounds
}

fn sides() -> Pair<schema::Side> {
    let side = |given: &str, target: &str| schema::Side {
        given: given.to_owned(),
        target: target.to_owned(),
        flags: String::new(),
        sending: "8 connections, 1 request in flight on each, 1 thread, epoll; closed loop, for 2s"
            .to_owned(),
        server_cores: vec![0],
    };
    [
        side("cmd:./old --port {port}", "http://127.0.0.1:4001/"),
        schema::Side {
            flags: "-p 10".to_owned(),
            ..side("cmd:./new --port {port}", "http://127.0.0.1:4002/")
        },
    ]
}

fn made(rounds: &Rounds, environment: &Environment) -> schema::Document {
    let checks = ["p99 ratio<1.05", "rate lo>1.1"].map(|c| MetricCheck::parse(c).unwrap());
    document(&ComparisonReport {
        sides: sides(),
        rounds,
        planned: 10,
        run: Duration::from_secs(2),
        warm_up: Duration::from_millis(500),
        started_at: UNIX_EPOCH,
        checks: &rounds.checked(&checks, &[]),
        baseline: None,
        warnings: vec!["<b>a word of the caller</b>".to_owned()],
        interrupted: rounds.pairs.len() < 10,
        broken: None,
        environment,
        io: "epoll".to_owned(),
    })
}

fn environment() -> Environment {
    Environment {
        command: "linerate compare 'cmd:./old --port {port}' 'cmd:./new --port {port}'".to_owned(),
        version: "0.1.0".to_owned(),
        kernel: "Linux 6.18".to_owned(),
        cpus: 2,
        host: "box".to_owned(),
    }
}

#[test]
fn the_report_for_a_terminal() {
    insta::assert_snapshot!(text(&made(&rounds(10), &environment()), Style::default()));
}

#[test]
fn a_comparison_that_was_cut_short() {
    insta::assert_snapshot!(text(&made(&rounds(2), &environment()), Style::default()));
    // Too few rounds are no verdict, whatever they show.
    let few = made(&rounds(2), &environment());
    assert!(few.metrics.values().all(|m| m.verdict != NO_DIFFERENCE), "{few:?}");
    assert!(few.checks.iter().all(|c| !c.pass), "{:?}", few.checks);
    let nothing = text(&made(&Rounds::default(), &environment()), Style::default());
    assert!(nothing.contains("Nothing was measured on both sides"), "{nothing}");
}

#[test]
fn the_document_is_that_of_the_contract_and_is_read_again() {
    let document = made(&rounds(10), &environment());
    let mut shown: serde_json::Value = serde_json::from_str(&json(&document)).unwrap();
    shown["rounds"].as_array_mut().unwrap().truncate(1);
    insta::assert_json_snapshot!(shown);
    let again: schema::Document = serde_json::from_str(&json(&document)).unwrap();
    assert_eq!(again, document);
    // A document of an earlier version has fewer fields.
    let mut old = serde_json::to_value(&document).unwrap();
    for field in ["checks", "rounds", "interrupted", "broken"] {
        old.as_object_mut().unwrap().remove(field);
    }
    assert!(serde_json::from_value::<schema::Document>(old).is_ok());
}

#[test]
fn a_saved_comparison_says_what_has_changed() {
    let then = made(&rounds(10), &environment());
    let mut now = rounds(8);
    now.pairs.iter_mut().for_each(|[_, b]| b.latencies = latencies(b.values["p99_us"] * 1.3, 0));
    let saved = Saved { file: "then.json".to_owned(), document: then };
    let changed = since(&saved.log_ratios().unwrap(), &now);
    let environment = environment();
    let document = document(&ComparisonReport {
        sides: sides(),
        rounds: &now,
        planned: 8,
        run: Duration::from_secs(2),
        warm_up: Duration::ZERO,
        started_at: UNIX_EPOCH,
        checks: &[],
        baseline: Some((&saved, &changed)),
        warnings: Vec::new(),
        interrupted: false,
        broken: Some("B: it ended (exit status: 1)\n    | out of \u{1b}[31mmemory".to_owned()),
        environment: &environment,
        io: "epoll".to_owned(),
    });
    let said = text(&document, Style::default());
    insta::assert_snapshot!(said);
    assert_eq!(document.baseline.as_ref().unwrap().metrics["p99_us"].verdict, "worse");
    assert!(page(&document).contains("then.json"));
}

#[test]
fn a_side_whose_requests_got_no_response_is_a_bound() {
    let mut rounds = rounds(10);
    rounds.pairs.iter_mut().for_each(|[_, b]| b.latencies = latencies(720.0, 30));
    let document = made(&rounds, &environment());
    let p99 = &document.metrics["p99_us"];
    assert_eq!((p99.at_least.as_slice(), p99.verdict.as_str()), (&["b".to_owned()][..], "a"));
    assert!(!document.checks[0].pass, "{:?}", document.checks);
    assert!(text(&document, Style::default()).contains(">= 10.0 s"), "{}", text(&document, Style::default()));
    assert!(page(&document).contains("&gt;= 10.0 s"));
    let wrong = schema::Run { histogram: "AAAA".to_owned(), ..document.rounds[3].b.clone() };
    let mut saved = Saved { file: "then.json".to_owned(), document };
    saved.document.rounds[3].b = wrong;
    assert!(saved.log_ratios().unwrap_err().to_string().starts_with("round 4, run of B: histogram"));
}

#[test]
fn the_page_needs_nothing_else_and_hides_nothing_from_a_screen_reader() {
    let page = page(&made(&rounds(10), &environment()));
    for link in ["http-equiv", "<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(link), "{link}");
    }
    assert!(page.contains("&lt;b&gt;a word of the caller") && !page.contains("<b>a word"));
    assert_eq!(page.matches("<svg").count(), page.matches("aria-label").count());
    // Every run is in a table, too.
    assert_eq!(page.matches("<tr><td>").count(), 20);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn the_headline_claims_only_what_stands_after_the_correction() {
    let mut document = made(&rounds(10), &environment());
    document.metrics.get_mut("rate_rps").unwrap().p_corrected = Some(0.2);
    let (said, shown) = (text(&document, Style::default()), page(&document));
    let headline = "A is better in server CPU/request; B is better in mean latency";
    assert!(said.contains(headline) && said.contains("B better?\n"), "{said}");
    assert!(shown.contains(headline) && shown.contains("Without the correction for 7 metrics, B looks"));
    for metric in document.metrics.values_mut() {
        metric.p_corrected = Some(0.2);
    }
    let (said, shown) = (text(&document, Style::default()), page(&document));
    assert!(said.contains("\nNo difference stands after the correction for 7 metrics; "), "{said}");
    assert!(!shown.contains("is better") && !shown.contains("ci a") && !shown.contains("ci b"));
}
