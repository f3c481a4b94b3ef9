//! What a row shows in each column.

use crate::schema::lab::{Group, Row};
use crate::units;

/// Columns of a table: the metric, and its title.
const COLUMNS: [(&str, &str); 14] = [
    ("rate_rps", "requests/s"),
    ("quick_held_up", "quick held up"),
    ("quick_p50_us", "quick median"),
    ("quick_p99_us", "quick p99"),
    ("min_us", "min"),
    ("p50_us", "median"),
    ("p90_us", "p90"),
    ("p99_us", "p99"),
    ("max_us", "max"),
    ("cpu_us_per_request", "server CPU/request"),
    ("line_share", "of the line"),
    ("rss_mb", "memory"),
    ("context_switches_per_request", "switches/request"),
    ("client_cpu_us_per_request", "client CPU/request"),
];

/// A value with its unit.
pub(super) fn value(id: &str, value: f64, unicode: bool) -> String {
    match id {
        "rate_rps" => units::rate(value),
        "rss_mb" => units::bytes(value * 1e6),
        "quick_held_up" | "line_share" => units::percent(value),
        "context_switches_per_request" => format!("{value:.2}"),
        _ => units::time_us(value, unicode),
    }
}

/// What a row has in a column.
pub(super) fn figure(row: &Row, id: &str) -> Option<f64> {
    match id {
        "min_us" => row.min_us,
        "max_us" => row.max_us.map(|max| bounds(row).fold(max, f64::max)),
        "quick_held_up" => row.quick.map(|q| q.held_up as f64 / q.requests.max(1) as f64),
        "line_share" => row.line_share,
        "quick_p50_us" => row.quick?.p50_us,
        "quick_p99_us" => row.quick?.p99_us,
        _ => row.metrics.get(id).and_then(|metric| metric.value),
    }
}

/// Percentiles of a row that are bounds.
fn bounds(row: &Row) -> impl Iterator<Item = f64> {
    row.metrics.values().filter(|metric| metric.at_least).filter_map(|metric| metric.value)
}

/// What a row shows in a column: `-` where it has nothing.
pub(super) fn cell(row: &Row, id: &str, unicode: bool) -> String {
    let bound = match row.metrics.get(id) {
        // Requests without a good response are later than any other.
        None if id == "max_us" && row.errors > 0 => ">= ",
        Some(metric) if metric.at_least => ">= ",
        Some(metric) if metric.at_most => "< ",
        _ => "",
    };
    figure(row, id).map_or_else(|| "-".to_owned(), |v| format!("{bound}{}", value(id, v, unicode)))
}

/// The columns that any row of a group has.
pub(super) fn columns(group: &Group) -> Vec<(&'static str, &'static str)> {
    // Where quick requests are looked at alone, latencies of all together would only hide them.
    let of_all = |id: &str| ["min_us", "p50_us", "p90_us", "p99_us", "max_us"].contains(&id);
    let alone = group.rows.iter().any(|r| r.quick.is_some());
    let shown = |id: &str| !(alone && of_all(id)) && group.rows.iter().any(|r| figure(r, id).is_some());
    COLUMNS.into_iter().filter(|(id, _)| shown(id)).collect()
}

/// A ratio; a small one has two digits that count, too.
fn shown_ratio(value: f64) -> String {
    if !(1e-6..0.0995).contains(&value) {
        return units::three_digits(value);
    }
    let digits = (1.0 - value.log10().floor()) as usize;
    format!("{value:.digits$}")
}

/// `12.3 (11.9 to 12.8)`; where one of both rates is only a bound, so is their ratio.
pub(super) fn ratio(group: &Group, row: &Row) -> String {
    let Some(metric) = row.metrics.get("rate_rps") else { return "-".to_owned() };
    let of_first = group.rows.first().and_then(|first| first.metrics.get("rate_rps"));
    match (metric.ratio, metric.ci95) {
        (None, _) => "1".to_owned(),
        (Some(_), _) if metric.at_most && of_first.is_some_and(|m| m.at_most) => "-".to_owned(),
        (Some(ratio), _) if metric.at_most => format!("< {}", shown_ratio(ratio)),
        (Some(ratio), _) if of_first.is_some_and(|m| m.at_most) => {
            format!("> {}", shown_ratio(ratio))
        }
        (Some(ratio), None) => shown_ratio(ratio),
        (Some(ratio), Some(ends)) => {
            format!("{} ({})", shown_ratio(ratio), units::ratios(ends, shown_ratio))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::lab::Metric;

    #[test]
    fn the_longest_is_a_bound_where_a_request_failed() {
        let mut row = Row { max_us: Some(120e3), ..Row::default() };
        assert_eq!(cell(&row, "max_us", false), "120 ms");
        row.errors = 1;
        assert_eq!(cell(&row, "max_us", false), ">= 120 ms");
        let p90 = Metric { value: Some(176e3), at_least: true, ..Metric::default() };
        row.metrics.insert("p90_us".to_owned(), p90);
        assert_eq!(cell(&row, "max_us", false), ">= 176 ms");
    }

    #[test]
    fn a_small_ratio_is_not_nothing() {
        let cases =
            [(0.0063, "0.0063"), (0.000_412, "0.00041"), (0.05, "0.050"), (0.25, "0.25"), (12.34, "12.3")];
        for (value, text) in cases {
            assert_eq!(shown_ratio(value), text);
        }
        assert_eq!(shown_ratio(0.0), "0.00");
    }
}
