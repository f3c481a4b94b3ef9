//! A run in progress as a page that server-sent events keep up to date (`load --open`).

use std::fmt::Write as _;

use linerate_load::Snapshot;
use linerate_load::outcome::Interval;
use serde::Serialize;

use crate::markup::escape;
use crate::passive::page::page;
use crate::schema::outcome::Document;

/// Draws what the events bring.
const SCRIPT: &str = include_str!("live_page.js");

/// Seconds in one event. Reason: the page draws no more.
const SECONDS: usize = 600;

/// The page of a run at `target`. It reads `/events`.
pub fn to_string(target: &str) -> String {
    let mut out = String::from("<h1 id=\"title\">Waiting for the first second</h1>");
    let _ = write!(out, "<p class=\"source\"><code>{}</code></p>", escape(target));
    out.push_str("<p id=\"state\" role=\"status\">Connecting to the run.</p><dl class=\"tiles\">");
    for (id, name) in [
        ("elapsed", "elapsed"),
        ("answered", "answered"),
        ("failed", "failed"),
        ("unknown", "unknown"),
        ("bad", "bad"),
        ("in_flight", "in flight"),
        ("open", "open connections"),
    ] {
        let _ = write!(out, "<div><dt>{name}</dt><dd id=\"{id}\">-</dd></div>");
    }
    out.push_str("</dl><div class=\"diagrams timed\">");
    for (id, name) in [
        ("rate", "Responses per second"),
        ("latency", "Latency (logarithmic): median, and p99 dashed"),
        ("failures", "Failed, unknown and bad per second"),
    ] {
        let _ = write!(
            out,
            "<figure><figcaption>{name}</figcaption>\
             <svg id=\"{id}\" viewBox=\"0 0 560 184\" role=\"img\" aria-label=\"{name}\"></svg></figure>"
        );
    }
    out.push_str(
        "</div><noscript><p>This page needs JavaScript; the report at the end does not.</p></noscript>",
    );
    let _ = write!(out, "<script>{SCRIPT}</script>");
    page("linerate load, live", &out)
}

#[derive(Serialize)]
struct Seconds {
    /// The page forgets what it has: these are all seconds.
    again: bool,
    t: Vec<f64>,
    rate: Vec<f64>,
    /// Null in a second without a response.
    p50: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
    failed: Vec<u64>,
    totals: Totals,
}

#[derive(Serialize)]
struct Totals {
    elapsed: f64,
    answered: u64,
    failed: u64,
    unknown: u64,
    bad: u64,
    in_flight: u64,
    open: u64,
}

/// What one page has been told.
#[derive(Clone, Debug, Default)]
pub struct Viewer {
    /// Seconds, and the end of the last of them.
    told: usize,
    until: f64,
}

impl Viewer {
    /// The event with what is new to this page.
    pub fn news(&mut self, snapshot: &Snapshot) -> String {
        let series = &snapshot.series;
        // Of a long run, pairs of seconds become one: then the page begins anew.
        let known = self.told == 0 || series.get(self.told - 1).is_some_and(|last| last.t_s == self.until);
        let new = if known { &series[self.told..] } else { &series[..] };
        let new = &new[new.len().saturating_sub(SECONDS)..];
        self.told = series.len();
        self.until = series.last().map_or(0.0, |last| last.t_s);
        let round = |value: f64| (value * 1e3).round() / 1e3;
        let of = |value: fn(&Interval) -> f64| new.iter().map(|i| round(value(i))).collect();
        let some = |value: fn(&Interval) -> Option<f64>| new.iter().map(|i| value(i).map(round)).collect();
        let requests = &snapshot.requests;
        event(
            "seconds",
            &Seconds {
                again: !known,
                t: of(|i| i.t_s),
                rate: of(|i| i.rate_rps),
                p50: some(|i| i.p50_us),
                p99: some(|i| i.p99_us),
                failed: new.iter().map(|i| i.failed + i.unknown + i.bad).collect(),
                totals: Totals {
                    elapsed: snapshot.elapsed.as_secs_f64(),
                    answered: requests.answered,
                    failed: requests.failed,
                    unknown: requests.unknown,
                    bad: snapshot.bad.total(),
                    in_flight: snapshot.in_flight,
                    open: snapshot.open,
                },
            },
        )
    }
}

/// The last event: the page of the whole run, which takes this one's place.
pub fn end(document: &Document) -> String {
    event("end", &crate::load_page::to_string(document))
}

/// An event; JSON has no line ends.
fn event(name: &str, data: &impl Serialize) -> String {
    // Numbers, text and lists can always be written.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome_closed;
    use serde_json::Value;

    fn data(event: &str) -> Value {
        assert!(event.ends_with("\n\n") && event.matches('\n').count() == 3, "{event}");
        serde_json::from_str(event.split_once("data: ").unwrap().1).unwrap()
    }

    #[test]
    fn a_page_is_told_each_second_once() {
        let series = outcome_closed().series;
        let at = |n: usize| Snapshot { series: series[..n].to_vec(), ..Snapshot::default() };
        let mut viewer = Viewer::default();
        let times = |news: &Value| news["t"].as_array().unwrap().len();
        let first = data(&viewer.news(&at(1)));
        assert_eq!((times(&first), &first["again"]), (1, &Value::from(false)));
        let all = data(&viewer.news(&at(series.len())));
        assert_eq!(times(&all), series.len() - 1);
        assert_eq!(times(&data(&viewer.news(&at(series.len())))), 0);
        // Pairs were joined.
        let mut joined = at(series.len());
        joined.series = vec![series[series.len() - 1].clone()];
        let news = data(&viewer.news(&joined));
        assert_eq!((times(&news), &news["again"]), (1, &Value::from(true)));
        let mut long = at(1);
        long.series = vec![series[0].clone(); 4000];
        assert_eq!(times(&data(&Viewer::default().news(&long))), SECONDS);
    }

    #[test]
    fn the_page_shows_no_markup_of_the_target() {
        let html = to_string("http://<b>/");
        assert!(!html.contains("<b>") && html.contains("EventSource"));
        assert!(html.len() < 30_000, "{}", html.len());
    }
}
