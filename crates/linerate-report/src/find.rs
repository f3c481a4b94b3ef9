//! The search for the highest rate, or the most connections, at which a check holds, for a terminal.

use crate::schema::outcome::{Find, FindPoint};
use crate::style::{Style, clean};
use crate::units;

/// The report: the rate, what gave way above it, and each look.
pub fn to_string(find: &Find, target: &str, style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&style.bold(&format!("{} at {}", find.expr, clean(target))));
    if find.interrupted {
        line(&style.warn("Interrupted: this is what was found so far."));
    }
    line("");
    match (highest(find), interval(find)) {
        (Some(highest), Some(interval)) => {
            line(&format!("{}   {interval}", style.bold(&format!("holds up to {highest}"))));
        }
        (Some(highest), None) => line(&style.bold(&format!("holds at {highest} still"))),
        (None, _) => line(&style.bad(&none(find))),
    }
    line(&style.wrapped("", &find.why));
    line("");
    let largest = find.points.iter().filter_map(|p| p.value).fold(0.0, f64::max);
    let by_connections = find.by == "connections";
    let first = if by_connections { format!("{:>12} ", "connections") } else { String::new() };
    let bar_width = usize::from(style.width).saturating_sub(59 + first.len()).min(30);
    line(&style.bold(&format!(
        "{first}{:>12} {:>10} {:>10} {:>10} {:>9}",
        "requests/s",
        "p50",
        name(&find.expr),
        "over it",
        ""
    )));
    for point in &find.points {
        let value = |v: Option<f64>| v.map_or("-".to_owned(), |v| shown(&find.expr, v, style));
        let bounded =
            |key: &str, shown: String| if is_bound(point, key) { format!(">= {shown}") } else { shown };
        let (word, is_good) = says(point);
        let word = format!("{word:<9}");
        let mark = match is_good {
            Some(true) => style.good(&word),
            Some(false) => style.bad(&word),
            None => style.dim(&word),
        };
        let share = point.value.map_or(0.0, |v| (v / largest.max(1e-9)).sqrt());
        let first = point.connections.filter(|_| by_connections);
        let first = first.map_or(String::new(), |c| format!("{:>12} ", units::count(u64::from(c))));
        line(&format!(
            "{first}{:>12} {:>10} {:>10} {:>10} {mark} {}",
            units::rate(point.rate_rps),
            bounded("p50_us", point.p50_us.map_or("-".to_owned(), |us| units::time_us(us, style.unicode))),
            bounded("value", value(point.value)),
            units::percent(point.over),
            style.bar(share, bar_width)
        ));
    }
    out
}

/// `912 requests/s`, `64 connections`.
pub(crate) fn highest(find: &Find) -> Option<String> {
    let rate = find.rate_rps.map(|rate| format!("{} requests/s", units::rate(rate)));
    rate.or_else(|| find.connections.map(|c| units::several(u64::from(c), "connection", "connections")))
}

/// `between 880 and 951`.
pub(crate) fn interval(find: &Find) -> Option<String> {
    let between = |low: String, high: String| format!("between {low} and {high}");
    let rates = find.interval_rps.map(|[low, high]| between(units::rate(low), units::rate(high)));
    let whole = |c: u32| units::count(u64::from(c));
    rates.or_else(|| find.interval_connections.map(|[low, high]| between(whole(low), whole(high))))
}

/// What a look says, and whether that is good; `None`: nothing for certain.
pub(crate) fn says(point: &FindPoint) -> (&'static str, Option<bool>) {
    match point.holds {
        _ if point.disturbed => ("disturbed", None),
        _ if point.outdated => ("earlier", None),
        Some(true) => ("holds", Some(true)),
        Some(false) => ("fails", Some(false)),
        None => ("open", None),
    }
}

/// Whether requests without a good response make a figure of a look a bound.
pub(crate) fn is_bound(point: &FindPoint, key: &str) -> bool {
    point.at_least.iter().any(|bound| bound == key)
}

/// What there is to say where no highest rate was found.
pub(crate) fn none(find: &Find) -> String {
    match find.end.as_str() {
        "not measured" => "not measured".to_owned(),
        "client limit" => "not measured: this client was the limit".to_owned(),
        _ => format!("holds at no {}", one_of(find)),
    }
}

/// What no highest one of was found.
fn one_of(find: &Find) -> &'static str {
    if find.by == "connections" { "number of connections" } else { "rate" }
}

/// What the check looks at: what stands before its comparison.
pub(crate) fn name(expr: &str) -> &str {
    expr.split(['<', '>']).next().unwrap_or_default().trim()
}

fn shown(expr: &str, value: f64, style: Style) -> String {
    if name(expr) == "errors" { units::percent(value) } else { units::time_us(value, style.unicode) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate_rps: f64, value: f64) -> FindPoint {
        FindPoint {
            connections: None,
            rate_rps,
            lasted_s: 2.0,
            value: Some(value),
            over: if value < 50_000.0 { 0.001 } else { 0.3 },
            p50_us: Some(value / 4.0),
            at_least: Vec::new(),
            holds: Some(value < 50_000.0),
            disturbed: false,
            outdated: false,
        }
    }

    #[test]
    fn what_was_found() {
        let find = Find {
            expr: "p99<50ms".to_owned(),
            end: "knee".to_owned(),
            by: "rate".to_owned(),
            connections: None,
            interval_connections: None,
            rate_rps: Some(912.0),
            interval_rps: Some([880.0, 951.0]),
            holds_at: Some(880.0),
            limit: Some("server".to_owned()),
            why: "The server's core gave way: at 951 requests/s a thread of it used 99 % of a core."
                .to_owned(),
            interrupted: false,
            points: vec![
                point(100.0, 900.0),
                point(951.0, 120_000.0),
                FindPoint { disturbed: true, holds: None, ..point(880.0, 80_000.0) },
                point(880.0, 31_000.0),
                FindPoint { holds: None, ..point(912.0, 49_000.0) },
                FindPoint { at_least: vec!["value".to_owned()], ..point(930.0, 1_000_000.0) },
            ],
        };
        insta::assert_snapshot!(to_string(&find, "http://127.0.0.1:8080/", Style::default()));
        let closed = Find {
            by: "connections".to_owned(),
            connections: Some(1_200),
            interval_connections: Some([1_100, 1_300]),
            rate_rps: None,
            interval_rps: None,
            points: find.points.iter().map(|p| FindPoint { connections: Some(1_100), ..p.clone() }).collect(),
            ..find.clone()
        };
        insta::assert_snapshot!("closed", to_string(&closed, "http://127.0.0.1:8080/", Style::default()));
        let none = Find { rate_rps: None, interval_rps: None, points: Vec::new(), interrupted: true, ..find };
        let unsure = Find { end: "client limit".to_owned(), ..none.clone() };
        let said = to_string(&unsure, "http://127.0.0.1:8080/", Style::default());
        assert!(said.contains("\nnot measured: this client was the limit\n"), "{said}");
        let said = to_string(&none, "http://127.0.0.1:8080/", Style::default());
        assert!(
            said.contains("holds at no rate") && said.contains("so far") && !said.contains("NaN"),
            "{said}"
        );
    }
}
