//! The steps of flows over time: two pictures for each.

use std::fmt::Write as _;

use super::chart::{self, ChartLine, Scale};
use super::points::{self, Point};
use crate::markup::escape;
use crate::schema::outcome::{Document, StepSeries};
use crate::units;

/// Draws them; nothing where there are none, or too few intervals for a curve.
pub(super) fn section(out: &mut String, document: &Document, points: &[Point]) {
    let long = |series: &&StepSeries| is_whole(series) && series.t_s.len() > 1;
    let all =
        || document.requests_by_name.iter().map(|(name, named)| (name, named.series.as_ref().filter(long)));
    let drawn: Vec<(&String, &StepSeries)> =
        all().filter_map(|(name, series)| Some((name, series?))).collect();
    if drawn.is_empty() {
        return;
    }
    let silent = points::silences(document, points);
    out.push_str("<section id=\"steps\"><h2>Steps over time</h2><div class=\"diagrams\">");
    for (name, series) in drawn {
        let draw = |what: &str, lines: &[ChartLine<'_>], scale, shown: &dyn Fn(f64) -> String| {
            chart::over_time(&format!("{name} {what}"), (&series.t_s, &silent), lines, scale, shown)
        };
        let latency = [
            ChartLine { name: "p99", class: "a", values: series.p99_us.clone() },
            ChartLine { name: "median", class: "b", values: series.p50_us.clone() },
        ];
        let latency = draw("latency", &latency, Scale::Log, &|us| units::time_us(us, true));
        let caption = format!("{}: latency (logarithmic){}", escape(name), wrong(series));
        figure(out, &caption, latency);
        let rate = [ChartLine { name: "rate", class: "b", values: series.rate_rps.clone() }];
        let rate = draw("rate", &rate, Scale::Linear(0.01), &units::rate);
        figure(out, &format!("{}: responses per second", escape(name)), rate);
    }
    out.push_str("</div>");
    let rest: Vec<&str> =
        all().filter(|(_, series)| series.is_none()).map(|(name, _)| name.as_str()).collect();
    if !rest.is_empty() {
        let _ = write!(out, "<p class=\"source\">Not drawn: {}.</p>", escape(&named(&rest)));
    }
    out.push_str("</section>");
}

fn figure(out: &mut String, caption: &str, svg: Option<String>) {
    if let Some(svg) = svg {
        let _ = write!(out, "<figure><figcaption>{caption}</figcaption>{svg}</figure>");
    }
}

/// Whether all lists have an entry for each interval: the document may come from elsewhere.
fn is_whole(series: &StepSeries) -> bool {
    let lengths = [series.rate_rps.len(), series.p50_us.len(), series.p99_us.len()];
    lengths.iter().all(|length| *length == series.t_s.len()) && series.t_s.iter().all(|t| t.is_finite())
}

/// What its latency does not show by itself: percentiles that are bounds.
fn wrong(series: &StepSeries) -> String {
    let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
    let wrong = [&series.failed, &series.unknown, &series.bad].map(|counts| sum(counts)).iter().sum::<u64>();
    if wrong == 0 { String::new() } else { format!(", {} without a good response", units::count(wrong)) }
}

/// Names, at most so many that a person reads them.
fn named(rest: &[&str]) -> String {
    const NAMED: usize = 20;
    let more = rest.len().saturating_sub(NAMED);
    let names = rest[..rest.len() - more].join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

#[cfg(test)]
mod tests {
    use linerate_load::outcome::{NamedFigures, Outcome, StepCourse};
    use serde_json::json;

    use super::*;
    use crate::Report;
    use crate::testing::{environment, outcome_closed, plan_closed};

    /// Two seconds with responses around one with a failed request alone.
    fn course() -> StepCourse {
        let good = |failed: u64| json!({ "answered": 10, "failed": failed, "unknown": 0, "bad": 0, "good": [400, [10]], "waited": [0, []] });
        let lost = json!({ "answered": 0, "failed": 1, "unknown": 0, "bad": 0, "good": [0, []], "waited": [500, [1]] });
        serde_json::from_value(json!({ "width_s": 1, "intervals": [good(0), lost, good(0)] })).unwrap()
    }

    fn document(outcome: &Outcome) -> Document {
        let (plan, environment) = (plan_closed(), environment());
        crate::json::document(&Report { plan: &plan, outcome, checks: &[], environment: &environment })
    }

    #[test]
    fn steps_are_drawn_with_their_gaps_and_the_rest_is_named() {
        let mut outcome = outcome_closed();
        for name in ["a<b>", "login"] {
            let figures = NamedFigures { course: course(), ..NamedFigures::default() };
            outcome.by_name.insert(name.to_owned(), figures);
        }
        outcome.by_name.insert("later".to_owned(), NamedFigures::default());
        let mut document = document(&outcome);
        let login = document.requests_by_name["login"].series.clone().unwrap();
        // The run lasted 10 s.
        assert_eq!((login.t_s.len(), login.t_s.last(), login.p99_us[9]), (10, Some(&10.0), None));
        assert_eq!(login.rate_rps[..4], [Some(10.0), Some(0.0), Some(10.0), Some(0.0)]);
        assert_eq!((&login.failed[..3], login.p99_at_least[1]), (&[0, 1, 0][..], false));
        assert!(login.p50_us[1].is_none() && login.p50_us[0] == login.p50_us[2]);
        let html = crate::load_page::to_string(&document);
        assert!(html.contains("login: latency (logarithmic), 1 without a good response"));
        assert!(html.contains("login: responses per second") && html.contains("a&lt;b&gt;: latency"));
        assert!(html.contains("Not drawn: later.") && !html.contains("a<b>"));
        // A list that lacks an entry comes from elsewhere.
        let named = document.requests_by_name.get_mut("login").unwrap();
        named.series.as_mut().unwrap().p50_us.pop();
        assert!(!crate::load_page::to_string(&document).contains("login: latency"));
        document.requests_by_name.clear();
        assert!(!crate::load_page::to_string(&document).contains("Steps over time"));
    }
}
