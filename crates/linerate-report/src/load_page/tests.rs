use linerate_load::outcome::CapturedPacket;

use super::*;
use crate::testing::{checked, environment, outcome_closed, plan_closed};
use crate::{Report, json};

fn document() -> Document {
    let (plan, outcome) = (plan_closed(), outcome_closed());
    let (checks, environment) = (checked(&plan, &outcome), environment());
    json::document(&Report { plan: &plan, outcome: &outcome, checks: &checks, environment: &environment })
}

/// Tags that are opened and not closed.
fn unbalanced(html: &str) -> Vec<&'static str> {
    const TAGS: [&str; 12] =
        ["section", "figure", "svg", "table", "tbody", "tr", "td", "div", "ul", "li", "dl", "details"];
    let differs = |tag: &&&str| {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        opened != html.matches(&format!("</{tag}>")).count()
    };
    TAGS.iter().filter(differs).copied().collect()
}

#[test]
fn the_page_has_every_part_and_needs_nothing_else() {
    let mut document = document();
    document.target = "http://<b>&\"/".to_owned();
    let html = to_string(&document);
    for part in [
        "Responses per second",
        "Latency (logarithmic)",
        "Bytes per second",
        "Busy cores of the client",
        "TCP segments",
        "the stronger the color, the more",
        "both axes logarithmic",
        "All seconds as a table",
        "linerate load http://127.0.0.1:8080/",
        "Linux 6.18.0",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<b>&\"") && !html.contains("src=") && !html.contains("href="));
    assert_eq!(unbalanced(&html), Vec::<&str>::new());
    assert!(!html.contains("NaN") && !html.contains("inf,"), "every place is a number");
}

/// What a capture counted has a table, and a picture over time.
#[test]
fn captured_segments_reach_the_page() {
    let (plan, mut outcome) = (plan_closed(), outcome_closed());
    outcome.tcp.segments = Some(crate::testing::segments());
    outcome.series.iter_mut().for_each(|second| second.segments = outcome.tcp.segments);
    let packet = |at_ms: u64, from_server, flags, marks: &[&str]| CapturedPacket {
        at_ns: at_ms * 1_000_000,
        from_server,
        flags,
        marks: marks.iter().map(|mark| (*mark).to_owned()).collect(),
        ..CapturedPacket::default()
    };
    outcome.first_connection =
        vec![packet(0, false, 2, &[]), packet(26, true, 18, &[]), packet(26, false, 16, &["duplicate_ack"])];
    let environment = environment();
    let report = Report { plan: &plan, outcome: &outcome, checks: &[], environment: &environment };
    let html = to_string(&json::document(&report));
    let rows = ["zero window</th><td>0</td><td>33</td>", "retransmission</th><td>3</td><td>0</td>"];
    assert!(rows.iter().all(|row| html.contains(row)), "{html}");
    assert!(html.contains("duplicate ack</th><td>0</td><td>1</td>") && html.contains("At least: 7 packets"));
    for title in ["Segments retransmitted, and duplicate ACKs", "Segments with a closed or full window"] {
        assert!(html.contains(title), "{title}: {html}");
    }
    assert!(html.contains("full</text>"), "{html}");
    let packets = html.split_once("<figure id=\"packets\">").expect("beside the curves").1;
    assert!(packets.contains("The first 3 packets of the first connection"), "{packets}");
    assert!(packets.contains("SYN ACK") && packets.contains("duplicate ack"), "{packets}");
    assert_eq!(unbalanced(&html), Vec::<&str>::new());
}

/// Errors stand where nobody can miss them: in the name of the tab, in the heading and over time.
#[test]
fn a_run_of_errors_alone_says_so_first() {
    let (plan, mut outcome) = (plan_closed(), outcome_closed());
    let n = outcome.requests.answered;
    outcome.requests = linerate_load::outcome::Requests { sent: n, answered: n, ..Default::default() };
    outcome.failures = Default::default();
    outcome.bad = linerate_load::outcome::Bad { status: n, ..Default::default() };
    let latency = &mut outcome.latency;
    latency.waited = std::mem::take(&mut latency.from_sent);
    outcome.series.iter_mut().for_each(|second| (second.failed, second.bad) = (0, n / 10));
    outcome.series[4] = linerate_load::outcome::Interval { t_s: 5.0, ..Default::default() };
    let environment = environment();
    let report = Report { plan: &plan, outcome: &outcome, checks: &[], environment: &environment };
    let html = to_string(&json::document(&report));
    assert!(
        html.contains("<title>FAILED, 100.0 % errors: http://127.0.0.1:8080/ - linerate load</title>"),
        "{}",
        &html[..400]
    );
    assert!(html.contains("<h1 class=\"bad\">FAILED, 100.0 % errors: 10,000 requests/s, median ≥ "));
    assert!(html.contains("FAILED:</span> not one response was good"));
    assert!(html.contains("Failed, unknown and bad requests"));
    assert!(html.contains("class=\"silence\""), "the second without a response is shaded");
    let fine = Report { outcome: &crate::testing::quiet_outcome(), ..report };
    let html = to_string(&json::document(&fine));
    assert!(html.contains("<title>OK, no errors: ") && html.contains("<h1 class=\"\">OK, no errors: 10,000"));
}

/// Small steps that reach to the end of the run draw what the seconds would draw once more.
#[test]
fn no_curve_is_drawn_twice() {
    let mut document = document();
    let drawn = |document: &Document, title: &str| {
        to_string(document).matches(&format!("<figcaption>{title}</figcaption>")).count()
    };
    let shared = ["Responses per second", "Bytes per second", "Busy cores of the client"];
    assert_eq!(shared.map(|title| drawn(&document, title)), [1, 1, 1], "the steps are of all seconds");
    assert_eq!(drawn(&document, "Latency (logarithmic)"), 1);
    document.series_fine.as_mut().unwrap().truncate(3);
    let end = document.series_fine.as_ref().unwrap()[2].t_s;
    document.series.last_mut().unwrap().t_s = 2.0 * end;
    assert_eq!(shared.map(|title| drawn(&document, title)), [2, 2, 2], "only the seconds reach the end");
}

#[test]
fn ten_minutes_stay_under_two_megabytes_and_a_day_does_too() {
    for seconds in [600, 4_000] {
        let mut document = document();
        let one = document.series[0].clone();
        document.series = (1..=seconds)
            .map(|i| {
                let counts: Vec<String> = (0..60).map(|k| ((i * 7 + k * 13) % 900).to_string()).collect();
                let latencies = Some(format!("60:{}", counts.join(",")));
                crate::schema::outcome::Interval { t_s: i as f64, latencies, ..one.clone() }
            })
            .collect();
        let html = to_string(&document);
        assert!(html.len() < 2_000_000, "{seconds} s: {} bytes", html.len());
        assert!(html.matches("<tr><th scope=\"row\">").count() <= limits::PAGE_POINTS);
    }
}

#[test]
fn an_empty_run_and_an_old_document_have_a_page_too() {
    let mut document = document();
    document.series.clear();
    document.histogram = None;
    document.latency_us.from_sent = None;
    assert_eq!(unbalanced(&to_string(&document)), Vec::<&str>::new());
    let mut old = serde_json::to_value(self::document()).unwrap();
    old.as_object_mut().unwrap().remove("series_fine");
    for second in old["series"].as_array_mut().unwrap() {
        let second = second.as_object_mut().unwrap();
        for new in ["bytes", "client_busy", "latencies"] {
            second.remove(new);
        }
    }
    let old: Document = serde_json::from_value(old).unwrap();
    let html = to_string(&old);
    assert!(!html.contains("in small steps") && to_string(&self::document()).contains("in small steps"));
    assert!(html.contains("Responses per second") && !html.contains("Bytes per second"));
    document.histogram = Some("AAAA".to_owned());
    document.series =
        old.series.iter().map(|i| crate::schema::outcome::Interval { t_s: f64::NAN, ..i.clone() }).collect();
    to_string(&document);
}
