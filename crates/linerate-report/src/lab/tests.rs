use super::*;
use crate::schema::lab::{LeftOut, SCHEMA};

fn run(rate: f64, rss: Option<f64>) -> RunFigures {
    let mut run = RunFigures { answered: 10, ..RunFigures::default() };
    run.values.insert("rate_rps", rate);
    run.extremes_us = Some((1e6 / rate, 2e6 / rate));
    run.values.extend(rss.map(|rss| ("rss_mb", rss)));
    run
}

fn document() -> Document {
    let first = [100.0, 101.0, 99.0].map(|r| run(r, None));
    let other = [1000.0, 1020.0, 985.0].map(|r| run(r, Some(12.0)));
    let row = |name: &str, runs: &[RunFigures], first: Option<&[RunFigures]>| Row {
        name: name.to_owned(),
        about: "what one sees".to_owned(),
        metrics: metrics(runs, first),
        min_us: extremes(runs).0,
        max_us: extremes(runs).1,
        rounds: 3,
        ..Row::default()
    };
    Document {
        schema: SCHEMA.to_owned(),
        scenario: "pipelining".to_owned(),
        about: "Ways of sending.".to_owned(),
        started_at: None,
        rounds_planned: 3,
        run_s: 1.0,
        warm_up_s: 0.3,
        server_cores: vec![0],
        groups: vec![Group {
            name: "loop<back>".to_owned(),
            rows: vec![row("poll", &first, None), row("pipes", &other, Some(&first))],
            ..Group::default()
        }],
        left_out: vec![LeftOut {
            group: "nginx".to_owned(),
            row: "async".to_owned(),
            why: "nginx is not installed".to_owned(),
            install: "apt install nginx".to_owned(),
        }],
        warnings: vec!["busy".to_owned()],
        interrupted: false,
        environment: crate::json::environment(&crate::testing::environment(), "epoll"),
    }
}

#[test]
fn rows_are_compared_with_the_first_and_what_is_missing_is_named() {
    let document = document();
    let rate = document.groups[0].rows[1].metrics["rate_rps"];
    assert_eq!(rate.verdict, Verdict::Better);
    assert!((rate.ratio.unwrap() - 10.0).abs() < 0.2 && rate.ci95.is_some());
    assert_eq!(document.groups[0].rows[1].metrics["rss_mb"].value.unwrap().round(), 12.0);
    assert_eq!(document.groups[0].rows[0].metrics["rate_rps"].ratio, None);
    let text = text(&document, Style::default());
    assert!(text.contains("\n- is not measured: "), "the first row has no memory: {text}");
    for part in ["10.0 (", "apt install nginx", "memory", "note: busy", "what one sees", "min", "20.2 ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let html = page(&document);
    assert!(html.contains("- is not measured"), "{html}");
    assert!(!html.contains("<span class=\"\">-</span>"), "the first row is compared with none");
    assert!(html.contains("loop&lt;back&gt;") && html.contains("faster") && html.contains("Left out"));
    let read: Document = serde_json::from_str(&json(&document)).unwrap();
    assert_eq!(read, document);
}

#[test]
fn a_rate_without_a_response_is_a_bound() {
    let first = [100.0, 101.0, 99.0].map(|r| run(r, None));
    let none = [1.0, 1.0, 1.0].map(|r| RunFigures { is_rate_bound: true, ..run(r, None) });
    let row = |name: &str, runs: &[RunFigures], first: Option<&[RunFigures]>| Row {
        name: name.to_owned(),
        metrics: metrics(runs, first),
        rounds: 3,
        ..Row::default()
    };
    let mut document = document();
    document.groups[0].rows = vec![row("poll", &first, None), row("stuck", &none, Some(&first))];
    let metric = document.groups[0].rows[1].metrics["rate_rps"];
    assert!(metric.at_most && metric.verdict == Verdict::Worse, "{metric:?}");
    assert!(!document.groups[0].rows[0].metrics["rate_rps"].at_most);
    let shown = text(&document, Style::default());
    assert!(shown.contains("< 1.00") && shown.contains("< 0.01"), "{shown}");
    assert_eq!(page(&document).matches("&lt; 1.00").count(), 2, "in the bars and in the table");
    assert!(json(&document).contains("\"at_most\": true"));
    document.groups[0].rows = vec![row("stuck", &none, None), row("poll", &first, Some(&none))];
    let shown = text(&document, Style::default());
    assert!(shown.contains("> 100"), "{shown}");
}

#[test]
fn rows_with_a_curve_are_drawn_over_cores() {
    let mut document = document();
    let runs = [100.0, 101.0, 99.0].map(|r| RunFigures { line_share: Some(0.5), ..run(r, None) });
    let row = |curve: &str, cores: u32| Row {
        name: format!("{curve} {cores}"),
        curve: Some(curve.to_owned()),
        server_cores: Some(cores),
        line_share: line_share(&runs),
        metrics: metrics(&runs, None),
        rounds: 3,
        ..Row::default()
    };
    document.groups[0].rows = vec![row("kernel", 1), row("kernel", 2), row("user space", 1)];
    let html = page(&document);
    assert!(html.contains("Requests per second over cores of the server"), "{html}");
    assert!(html.contains(">2 cores</text>") && html.contains("━ user space"), "{html}");
    // A curve of two points is a line; one of a point is a mark alone.
    let rates = html.split("<figure>").find(|f| f.contains("Requests per second over cores")).unwrap();
    assert_eq!((rates.matches("<polyline").count(), rates.matches("<circle").count()), (1, 3));
    let shown = text(&document, Style { width: 100, ..Style::default() });
    assert!(shown.contains("of the line") && shown.contains("50.0 %"), "{shown}");
    document.groups[0].rows.iter_mut().for_each(|row| row.curve = None);
    assert!(!page(&document).contains("over cores of the server"));
}

#[test]
fn quick_requests_are_looked_at_alone() {
    let latencies = |counts: &[(u64, u64)]| {
        let mut histogram = linerate_load::histogram::Histogram::new();
        counts.iter().for_each(|(us, n)| histogram.record(us * 1000, *n));
        RunLatencies::new(&histogram, &linerate_load::histogram::Histogram::new())
    };
    let mut run = run(100.0, None);
    run.latencies = latencies(&[(100, 70), (50_000, 60)]);
    let all = quick(std::slice::from_ref(&run), "quick").unwrap();
    assert_eq!((all.requests, all.held_up, all.others_p50_us), (130, 60, None), "no request has a name");
    run.by_name.insert("quick".to_owned(), latencies(&[(100, 70), (40_000, 30)]));
    run.by_name.insert("slow".to_owned(), latencies(&[(50_000, 30)]));
    let found = quick(std::slice::from_ref(&run), "quick").unwrap();
    assert_eq!((found.requests, found.held_up, found.p99_us), (100, 30, None), "too few for p99");
    assert_eq!(found.p50_us.unwrap().round(), 100.0);
    assert!((found.others_p50_us.unwrap() - 50_000.0).abs() < 100.0);
    let mut document = document();
    document.groups.push(document.groups[0].clone());
    for row in document.groups.iter_mut().flat_map(|g| &mut g.rows) {
        row.quick = Some(found);
    }
    let text = text(&document, Style::default());
    assert!(text.contains("quick held up") && text.contains("30.0 %") && !text.contains("p90"), "{text}");
    assert!(page(&document).contains("Quick requests that were held up"));
    assert!(quick(&[], "quick").is_none());
}

#[test]
fn a_reason_for_which_several_rows_are_left_out_is_said_once() {
    let mut document = document();
    let one = document.left_out[0].clone();
    document.left_out.push(LeftOut {
        group: "loopback".to_owned(),
        row: "pipes, 8".to_owned(),
        ..one.clone()
    });
    document.left_out.push(LeftOut { why: "no root".to_owned(), install: String::new(), ..one });
    let text = text(&document, Style { width: 100, ..Style::default() });
    let said = "left out: async (nginx); pipes, 8 (loopback): nginx is not installed.";
    assert!(text.contains(said) && text.contains("left out: async (nginx): no root."), "{text}");
    // On a machine with few cores most rows of charts are.
    let many = document.left_out[0].clone();
    document.left_out.extend((0..30).map(|_| many.clone()));
    let short = super::text(&document, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(short.contains("and 28 more rows: nginx is not installed."), "{short}");
    assert_eq!(text.matches("apt install nginx").count(), 1, "{text}");
    assert_eq!(page(&document).matches("apt install nginx").count(), 1);
}

#[test]
fn a_table_has_as_many_columns_side_by_side_as_the_terminal_has_room_for() {
    for width in [30, 44, 60, 80] {
        let text = text(&document(), Style { width, ..Style::default() });
        println!("{text}");
        let table: Vec<&str> =
            text.lines().filter(|l| l.starts_with("  p") || l.starts_with("  row")).collect();
        assert!(table.iter().all(|l| l.chars().count() <= usize::from(width)), "{width}: {text}");
        let heads: String = table.iter().filter(|l| l.starts_with("  row")).copied().collect();
        let at = |title: &str| heads.find(title).unwrap_or_else(|| panic!("{title}: {text}"));
        assert!(at("requests/s") < at("ratio") && at("ratio") < at("min") && at("max") < at("memory"));
    }
}

#[test]
fn a_run_that_does_not_count_is_named_with_its_reason() {
    let mut runs = [run(10.0, Some(5.0)), run(11.0, None), run(10.0, Some(5.0))];
    runs[1].missing.insert("rss_mb", "it was 0, of which there is no ratio");
    let mut document = document();
    let row = &mut document.groups[0].rows[0];
    row.runs_left_out = runs_left_out(&runs);
    assert_eq!(row.runs_left_out.len(), 1, "{:?}", row.runs_left_out);
    let said = "Round 2 does not count in server memory: it was 0, of which there is no ratio.";
    assert!(text(&document, Style { width: 100, ..Style::default() }).contains(said));
    assert!(page(&document).contains(said));
    runs[0] = RunFigures { fault: Some("no request was answered".to_owned()), ..RunFigures::default() };
    assert!(
        runs_left_out(&runs)
            .iter()
            .any(|left| (left.round, left.why.as_str()) == (1, "no request was answered"))
    );
}
