//! The search for the highest rate at which a check holds, for a terminal.

use crate::schema::outcome::Find;
use crate::style::Style;
use crate::units;

/// The report: the rate, what gave way above it, and each look.
pub fn to_string(find: &Find, target: &str, style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let clean: String = target.chars().filter(|c| !c.is_control()).collect();
    line(&style.bold(&format!("{} at {clean}", find.expr)));
    if find.interrupted {
        line(&style.warn("Interrupted: this is what was found so far."));
    }
    line("");
    match (find.rate_rps, find.interval_rps) {
        (Some(rate), Some([low, high])) => {
            let text = format!("holds up to {} requests/s", units::rate(rate));
            line(&format!("{}   between {} and {}", style.bold(&text), units::rate(low), units::rate(high)));
        }
        (Some(rate), None) => line(&style.bold(&format!("holds at {} requests/s still", units::rate(rate)))),
        (None, _) => line(&style.bad("holds at no rate")),
    }
    line(&style.wrapped("", &find.why));
    line("");
    let largest = find.points.iter().filter_map(|p| p.value).fold(0.0, f64::max);
    let bar_width = usize::from(style.width).saturating_sub(58).min(30);
    line(&style.bold(&format!(
        "{:>12} {:>10} {:>10} {:>10} {:>8}",
        "requests/s",
        "p50",
        name(&find.expr),
        "over it",
        ""
    )));
    for point in &find.points {
        let value = |v: Option<f64>| v.map_or("-".to_owned(), |v| shown(&find.expr, v, style));
        let mark = if point.holds { style.good("holds   ") } else { style.bad("fails   ") };
        let share = point.value.map_or(0.0, |v| (v / largest.max(1e-9)).sqrt());
        line(&format!(
            "{:>12} {:>10} {:>10} {:>10} {mark} {}",
            units::rate(point.rate_rps),
            point.p50_us.map_or("-".to_owned(), |us| units::time_us(us, style.unicode)),
            value(point.value),
            units::percent(point.over),
            style.bar(share, bar_width)
        ));
    }
    out
}

/// What the check looks at: what stands before its comparison.
fn name(expr: &str) -> &str {
    expr.split(['<', '>']).next().unwrap_or_default().trim()
}

fn shown(expr: &str, value: f64, style: Style) -> String {
    if name(expr) == "errors" { units::percent(value) } else { units::time_us(value, style.unicode) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::outcome::FindPoint;

    fn point(rate_rps: f64, value: f64) -> FindPoint {
        FindPoint {
            rate_rps,
            lasted_s: 2.0,
            value: Some(value),
            over: if value < 50_000.0 { 0.001 } else { 0.3 },
            p50_us: Some(value / 4.0),
            holds: value < 50_000.0,
        }
    }

    #[test]
    fn what_was_found() {
        let find = Find {
            expr: "p99<50ms".to_owned(),
            end: "knee".to_owned(),
            rate_rps: Some(912.0),
            interval_rps: Some([880.0, 951.0]),
            limit: Some("server core".to_owned()),
            why: "The server's core gave way: at 951 requests/s a thread of it used 99 % of a core."
                .to_owned(),
            interrupted: false,
            points: vec![point(100.0, 900.0), point(880.0, 31_000.0), point(951.0, 120_000.0)],
        };
        insta::assert_snapshot!(to_string(&find, "http://127.0.0.1:8080/", Style::default()));
        let none = Find { rate_rps: None, interval_rps: None, points: Vec::new(), interrupted: true, ..find };
        let said = to_string(&none, "http://127.0.0.1:8080/", Style::default());
        assert!(
            said.contains("holds at no rate") && said.contains("so far") && !said.contains("NaN"),
            "{said}"
        );
    }
}
