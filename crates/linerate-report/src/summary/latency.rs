//! The latency table and its picture.

use linerate_load::histogram::Histogram;
use linerate_load::{Outcome, Plan};

use super::page::Page;
use crate::{figures, limits, units};

/// Rows of the table: a name and the percentile it stands for.
const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// Columns: a title and what was counted under it.
type Column<'a> = (&'static str, &'a Histogram);

const COLUMN: usize = 12;

/// Title of the latency that counts from when a request was due.
const DUE: &str = "from due";

pub(super) fn write(page: &mut Page, plan: &Plan, outcome: &Outcome) {
    let Some(main) = figures::main_latency(plan, outcome) else { return };
    let l = &outcome.latency;
    let due = l.from_due.as_ref().map(|h| (DUE, h));
    let columns: Vec<Column<'_>> = due
        .into_iter()
        .chain([
            ("from sent", &l.from_sent),
            ("first byte", &l.first_byte),
            ("connect", &l.connect),
            ("tls", &l.tls),
        ])
        .filter(|(title, h)| h.count() > 0 && !(*title == "first byte" && alike(h, &l.from_sent)))
        .collect();
    page.blank();
    table(page, outcome, &columns);
    explanation(page, plan);
    page.blank();
    picture(page, main);
}

/// Whether a column would only repeat the other, because responses come in one piece.
fn alike(a: &Histogram, b: &Histogram) -> bool {
    let close = |percent| {
        let (a, b) = (a.percentile_ns(percent) as f64, b.percentile_ns(percent) as f64);
        (a - b).abs() <= 0.01 * b
    };
    a.count() == b.count() && close(50.0) && close(99.0)
}

fn table(page: &mut Page, outcome: &Outcome, columns: &[Column<'_>]) {
    let style = page.style;
    let titles: String = columns.iter().map(|(title, _)| format!("{title:>COLUMN$}")).collect();
    page.line(&style.bold(&format!("{:<9}{titles}", "latency")));
    let cells = |cell: &dyn Fn(&Column<'_>) -> String| -> String {
        columns.iter().map(|column| format!("{:>COLUMN$}", cell(column))).collect()
    };
    let row = |page: &mut Page, name: &str, cells: &str| page.line(&format!("  {name:<7}{cells}"));
    let time = |nanos: f64| units::time_ns(nanos, style.unicode);
    let mut open_ended = false;
    let mut percentile = |(title, h): &Column<'_>, percent: f64| match outcome.percentile(percent) {
        found if *title == DUE => {
            open_ended |= found.at_least;
            format!("{}{}", if found.at_least { ">= " } else { "" }, time(found.ns as f64))
        }
        _ if percent >= 100.0 => time(h.max_ns() as f64),
        _ => time(h.percentile_ns(percent) as f64),
    };
    row(page, "min", &cells(&|(_, h)| time(h.min_ns() as f64)));
    row(page, "mean", &cells(&|(_, h)| time(h.mean_ns())));
    let max: Vec<String> = columns.iter().map(|column| percentile(column, 100.0)).collect();
    let mut thin = false;
    for (name, percent) in PERCENTILES {
        let values: Vec<String> = columns.iter().map(|column| percentile(column, percent)).collect();
        // A copy of the largest adds no information.
        if percent > 50.0 && values == max {
            break;
        }
        let sure = |h: &Histogram| figures::rests_on_enough(h.count(), percent);
        thin |= columns.iter().any(|(_, h)| !sure(h));
        let marked = columns.iter().zip(&values).map(|((_, h), value)| {
            let mark = if sure(h) || value.starts_with('>') { "" } else { "~" };
            format!("{:>COLUMN$}", format!("{mark}{value}"))
        });
        row(page, name, &marked.collect::<String>());
    }
    row(page, "max", &max.iter().map(|value| format!("{value:>COLUMN$}")).collect::<String>());
    row(page, "count", &cells(&|(_, h)| units::count(h.count())));
    if thin {
        page.line(&style.dim("  ~ fewer than 10 lie beyond it: one more would move it"));
    }
    if open_ended {
        page.line(&style.dim("  >= a request that was never sent stands there, later than all that were"));
    }
}

fn explanation(page: &mut Page, plan: &Plan) {
    let style = page.style;
    let text = if figures::is_open(plan) {
        "From due: counted from when a request should have left, so that a stall is charged to every request it held \
         up; this is what users wait. From sent: counted from when it left."
    } else {
        "From sent: counted from when a request left. A closed loop sends less while the server stalls; --rate sends \
         on and counts from due."
    };
    page.blank();
    for line in style.wrapped("  ", text).lines() {
        page.line(&style.dim(line));
    }
}

/// Bars over bounds that grow by a constant factor, from the smallest to p99.9, and one for what
/// lies beyond.
fn picture(page: &mut Page, histogram: &Histogram) {
    let style = page.style;
    page.line(&format!(
        "{}  {}",
        style.bold("spread"),
        style.dim("share of the answers between one bound and the next")
    ));
    let bounds = bounds(histogram.min_ns(), histogram.percentile_ns(99.9));
    let mut counts = vec![0u64; bounds.len() + 1];
    for (value, n) in histogram.iter_recorded() {
        counts[bounds.partition_point(|bound| *bound < value)] += n;
    }
    let total = histogram.count().max(1);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let bar_width = usize::from(style.width).saturating_sub(38).clamp(10, 50);
    for (i, n) in counts.iter().enumerate() {
        if *n == 0 && i == bounds.len() {
            break;
        }
        let label = bounds
            .get(i)
            .map_or_else(|| format!("> {}", page.time(bounds[i - 1] as f64)), |b| page.time(*b as f64));
        let bar = style.bar(*n as f64 / most as f64, bar_width);
        let share = units::percent(*n as f64 / total as f64);
        page.line(&format!("  {label:>11}  {bar:<bar_width$} {share:>9}"));
    }
}

/// Upper bounds of the bars, ascending, in nanoseconds.
fn bounds(least_ns: u64, most_ns: u64) -> Vec<u64> {
    let (least, most) = (least_ns.max(1) as f64, most_ns.max(1) as f64);
    let rows = limits::HISTOGRAM_ROWS;
    let factor = (most / least).powf(1.0 / rows as f64);
    let mut bounds: Vec<u64> = (1..=rows).map(|i| (least * factor.powi(i as i32)).round() as u64).collect();
    if let Some(last) = bounds.last_mut() {
        *last = most_ns.max(1);
    }
    // A distribution narrower than the histogram's resolution has one bar, not ten empty ones.
    bounds.dedup_by(|b, a| *b as f64 <= *a as f64 * 1.002);
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_ascend_and_end_at_the_last() {
        let found = bounds(1_000, 1_000_000);
        assert_eq!(found.len(), limits::HISTOGRAM_ROWS);
        assert!(found.is_sorted_by(|a, b| a < b));
        assert_eq!(found.last(), Some(&1_000_000));
    }

    #[test]
    fn equal_values_have_one_bar() {
        assert_eq!(bounds(1_000, 1_000), vec![1_000]);
        assert_eq!(bounds(0, 0), vec![1]);
    }
}
