//! The search of `--find`: what was measured at each load, and where the check gave way.

use std::fmt::Write as _;

use super::chart::{self, AREA, Axis};
use super::{figure, us};
use crate::find::name;
use crate::markup::escape;
use crate::schema::outcome::{Find, FindPoint};
use crate::units;

/// Height of the picture, user units.
const HEIGHT: f64 = 190.0;

/// The highest rate, what gave way above it, and every look as a picture and as a table.
pub(super) fn section(out: &mut String, find: &Find) {
    let by_connections = find.by == "connections";
    let what = if by_connections { "Most connections" } else { "Highest rate" };
    let _ = write!(out, "<section><h2>{what} with <code>{}</code></h2><p>", escape(&find.expr));
    match crate::find::highest(find) {
        Some(highest) => drop(write!(out, "<b>{highest}</b>")),
        None => drop(write!(out, "<b class=\"bad\">{}</b>", crate::find::none(find))),
    }
    if let Some(interval) = crate::find::interval(find) {
        let _ = write!(out, ", {interval}");
    }
    let column = if by_connections { "<th>connections</th>" } else { "" };
    let _ = write!(out, ". {}</p>", escape(&find.why));
    figure(out, &format!("{} over load (both axes logarithmic)", escape(name(&find.expr))), picture(find));
    let measured = escape(name(&find.expr));
    let _ = write!(
        out,
        "<div class=\"wide\"><table><thead><tr>{column}<th>requests/s</th><th>measured</th><th>median</th><th>{measured}</th><th>over the limit</th><th class=\"l\">check</th></tr></thead><tbody>"
    );
    for p in &find.points {
        let (word, is_good) = crate::find::says(p);
        let class = is_good.map_or("", |good| if good { "good" } else { "bad" });
        let first = p.connections.filter(|_| by_connections);
        let first = first.map_or(String::new(), |c| format!("<td>{}</td>", units::count(u64::from(c))));
        let _ = write!(
            out,
            "<tr>{first}<td>{}</td><td>{} s</td><td>{}</td><td>{}</td><td>{}</td><td class=\"v\"><span class=\"{class}\">{word}</span></td></tr>",
            units::rate(p.rate_rps),
            units::short_seconds(p.lasted_s),
            bounded(p, "p50_us", us(p.p50_us)),
            bounded(p, "value", p.value.map_or("-".to_owned(), |v| shown(&find.expr, v))),
            units::percent(p.over)
        );
    }
    out.push_str("</tbody></table></div></section>");
}

/// A figure of a look, marked where requests without a good response lie.
fn bounded(point: &FindPoint, key: &str, shown: String) -> String {
    if crate::find::is_bound(point, key) { format!("&ge; {shown}") } else { shown }
}

/// A value of the check, with its unit.
fn shown(expr: &str, value: f64) -> String {
    if name(expr) == "errors" { units::percent(value) } else { us(Some(value)) }
}

/// What the check looks at over the load: a point for each look, and a line where it gave way.
fn picture(find: &Find) -> Option<String> {
    let load = |p: &FindPoint| p.connections.map_or(p.rate_rps, f64::from);
    let drawn = |p: &&FindPoint| load(p) > 0.0 && p.value.is_some_and(|v| v > 0.0);
    let points: Vec<&FindPoint> = find.points.iter().filter(drawn).collect();
    if points.len() < 2 {
        return None;
    }
    let loads = Axis::log(points.iter().map(|p| load(p)));
    let values = Axis::log(points.iter().filter_map(|p| p.value));
    let x = |load: f64| AREA[0] + (AREA[1] - AREA[0]) * loads.share(load);
    let what = name(&find.expr);
    let mut svg = chart::open(&format!("{what} over load; the table below has its values"), HEIGHT);
    chart::grid(&mut svg, &values, &|value| shown(&find.expr, value));
    for tick in loads.ticks() {
        let _ = write!(
            svg,
            r#"<text class="time" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            x(tick),
            AREA[3] + 17.0,
            units::rate(tick)
        );
    }
    if let Some(knee) = find.rate_rps.or(find.connections.map(f64::from)) {
        let (at, top) = (x(knee), AREA[2] - 6.0);
        let _ = write!(
            svg,
            r#"<line class="one" x1="{at:.1}" y1="{top}" x2="{at:.1}" y2="{}"/><text class="b" x="{at:.1}" y="{}" text-anchor="middle">{}</text>"#,
            AREA[3],
            top - 4.0,
            units::rate(knee)
        );
    }
    for p in points {
        let value = p.value.unwrap_or_default();
        let (word, is_good) = crate::find::says(p);
        let (class, radius) = match is_good {
            Some(true) => ("b", 3.0),
            Some(false) => ("bad", 4.0),
            None => ("none", 3.0),
        };
        let _ = write!(
            svg,
            r#"<circle class="mark {class}" cx="{:.1}" cy="{:.1}" r="{radius}"><title>{}: {}, {word}</title></circle>"#,
            x(load(p)),
            AREA[3] - (AREA[3] - AREA[2]) * values.share(value),
            units::rate(load(p)),
            shown(&find.expr, value)
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate_rps: f64, value: Option<f64>) -> FindPoint {
        FindPoint {
            connections: None,
            rate_rps,
            lasted_s: 2.0,
            value,
            over: 0.0,
            p50_us: value,
            at_least: Vec::new(),
            holds: Some(value.is_some_and(|v| v < 50_000.0)),
            disturbed: false,
            outdated: false,
        }
    }

    fn find(points: Vec<FindPoint>) -> Find {
        Find {
            expr: "p99<50ms".to_owned(),
            end: "knee".to_owned(),
            by: "rate".to_owned(),
            connections: None,
            interval_connections: None,
            rate_rps: Some(900.0),
            interval_rps: Some([850.0, 950.0]),
            holds_at: Some(850.0),
            limit: Some("queue".to_owned()),
            why: "A queue grew.".to_owned(),
            interrupted: false,
            points,
        }
    }

    #[test]
    fn each_look_is_a_point_and_a_row() {
        let looks = vec![point(100.0, Some(2_000.0)), point(1_000.0, Some(90_000.0)), point(2_000.0, None)];
        let mut page = String::new();
        section(&mut page, &find(looks));
        assert_eq!(page.matches("<circle").count(), 2, "{page}");
        assert_eq!(page.matches("<tr><td>").count(), 3);
        assert!(page.contains("p99 over load") && page.contains("<title>1,000: 90.0 ms, fails</title>"));
        assert!(page.contains("<td>90.0 ms</td>") && page.contains("<b>900 requests/s</b>"), "{page}");
    }

    #[test]
    fn one_look_makes_no_picture() {
        assert!(picture(&find(vec![point(1.0, Some(1.0))])).is_none());
        assert!(picture(&find(vec![point(1.0, None), point(2.0, None), point(3.0, None)])).is_none());
    }
}
