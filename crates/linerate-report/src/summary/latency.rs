//! The latency table and its picture.

use linerate_load::histogram::Histogram;
use linerate_load::outcome::Ranked;
use linerate_load::{Outcome, Plan};

use super::page::{LABEL, SummaryText, bounded};
use crate::{figures, limits, units};

/// Rows of the table: a name and the percentile it stands for.
const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// Columns: a title and what was counted under it.
type Column<'a> = (&'static str, Ranked<'a>);

const COLUMN: usize = 12;

/// Title of the latency that counts from when a request was due.
const DUE: &str = "from due";

pub(super) fn write(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let l = &outcome.latency;
    let main = l.main();
    if plan.throughput || main.is_empty() {
        return;
    }
    let nothing = Histogram::new();
    let plain = |good| Ranked { good, waited: &nothing };
    // Without requests that lie beyond every limit it would repeat the main column.
    let alone = if main.waited.count() > 0 { plain(main.good) } else { plain(&nothing) };
    let due = l.from_due.as_ref().map(|_| (DUE, main));
    let columns: Vec<Column<'_>> = due
        .into_iter()
        .chain([
            ("from sent", l.sent()),
            ("good alone", alone),
            ("first byte", plain(&l.first_byte)),
            ("connect", plain(&l.connect)),
            ("tls", plain(&l.tls)),
        ])
        .filter(|(title, of)| !(of.is_empty() || (*title == "first byte" && alike(of.good, &l.from_sent))))
        .collect();
    page.blank();
    if !page.is_full() {
        rows(page, plan, &columns);
        spread(page, main.good);
        return;
    }
    table(page, &columns);
    explanation(page, plan);
    if main.good.count() > 0 {
        page.blank();
        picture(page, main);
    }
}

/// Whether a column would only repeat the other, because responses come in one piece.
fn alike(a: &Histogram, b: &Histogram) -> bool {
    let close = |percent| {
        let (a, b) = (a.percentile_ns(percent) as f64, b.percentile_ns(percent) as f64);
        (a - b).abs() <= 0.01 * b
    };
    a.count() == b.count() && close(50.0) && close(99.0)
}

/// The table on its side: a row for each measure.
fn rows(page: &mut SummaryText, plan: &Plan, measures: &[Column<'_>]) {
    const PERCENTILES: [(&str, f64); 5] =
        [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];
    let style = page.style;
    let names: String = PERCENTILES.iter().map(|(name, _)| format!("{name:>COLUMN$}")).collect();
    page.line(&style.bold(&format!("{:<LABEL$}{names}", "latency")));
    let (mut thin, mut open_ended) = (false, false);
    for (title, of) in measures {
        let cell = |(_, percent): &(&str, f64)| {
            let found = of.percentile(*percent);
            let is_thin = *percent < 100.0 && !figures::rests_on_enough(of.count(), *percent);
            thin |= is_thin && !found.at_least;
            open_ended |= found.at_least;
            let before = if is_thin && !found.at_least { "~" } else { "" };
            format!("{:>COLUMN$}", format!("{before}{}", page.bound(found.ns as f64, found.at_least)))
        };
        let cells: String = PERCENTILES.iter().map(cell).collect();
        let name = format!("  {title}");
        page.line(&format!("{name:<LABEL$}{cells}"));
    }
    let counted = match plan.counts_from_due() {
        true => "  from due: counted from when it should have left, which is what users wait",
        false => "  a closed loop sends less while the server stalls; --rate counts from due",
    };
    let legend = [
        (thin, "  ~ fewer than 10 lie beyond it: one more would move it"),
        (open_ended, "  >= a request without a good response lies there, beyond every limit"),
        (true, counted),
    ];
    for (_, words) in legend.into_iter().filter(|(shown, _)| *shown) {
        page.line(&style.dim(words));
    }
}

/// Good responses by their latency in one line, from the least to the largest, in equal factors.
fn spread(page: &mut SummaryText, good: &Histogram) {
    const UNICODE: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];
    let (least, most) = (good.min_ns().max(1) as f64, good.percentile_ns(100.0) as f64);
    let factor = (most / least).ln();
    if good.count() == 0 || factor < 0.01 {
        return;
    }
    let (from, to) = (page.time(least), page.time(most));
    let room = usize::from(page.style.width).clamp(60, 100) - LABEL - 2;
    let bins = room.saturating_sub(from.chars().count() + to.chars().count()).max(8);
    let mut counts = vec![0u64; bins];
    for (value, n) in good.iter_recorded() {
        let at = (value.max(1) as f64 / least).ln() / factor * bins as f64;
        counts[(at.max(0.0) as usize).min(bins - 1)] += n;
    }
    let fullest = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let levels = if page.style.unicode { UNICODE } else { ASCII };
    let level =
        |n: u64| levels[if n == 0 { 0 } else { ((n as f64 / fullest * 8.0).round() as usize).max(1) }];
    let curve: String = counts.into_iter().map(level).collect();
    let label = page.style.bold(&format!("{:<LABEL$}", "spread"));
    page.line(&format!("{label}{from} {curve} {to}"));
}

fn table(page: &mut SummaryText, columns: &[Column<'_>]) {
    let style = page.style;
    let titles: String = columns.iter().map(|(title, _)| format!("{title:>COLUMN$}")).collect();
    page.line(&style.bold(&format!("{:<9}{titles}", "latency")));
    let cells = |cell: &dyn Fn(&Ranked<'_>) -> String| -> String {
        columns.iter().map(|(_, of)| format!("{:>COLUMN$}", cell(of))).collect()
    };
    let row = |page: &mut SummaryText, name: &str, cells: &str| page.line(&format!("  {name:<7}{cells}"));
    let time = |nanos: f64, is_bound: bool| bounded(style, nanos, is_bound);
    let percentile = |of: &Ranked<'_>, percent: f64| {
        let found = of.percentile(percent);
        time(found.ns as f64, found.at_least)
    };
    let least = |of: &Ranked<'_>| match of.good.count() {
        0 => "-".to_owned(),
        _ => time(of.good.min_ns() as f64, false),
    };
    row(page, "min", &cells(&least));
    row(page, "mean", &cells(&|of| time(of.mean_ns().0, of.mean_ns().1)));
    let max: Vec<String> = columns.iter().map(|(_, of)| percentile(of, 100.0)).collect();
    let open_ended = columns.iter().any(|(_, of)| of.waited.count() > 0);
    let mut thin = false;
    for (name, percent) in PERCENTILES {
        let values: Vec<String> = columns.iter().map(|(_, of)| percentile(of, percent)).collect();
        // A copy of the largest adds no information, unless it says from where on requests lie beyond every limit.
        if percent > 50.0 && values == max && !open_ended {
            break;
        }
        let sure = |of: &Ranked<'_>| figures::rests_on_enough(of.count(), percent);
        let marked = columns.iter().zip(&values).map(|((_, of), value)| {
            let is_thin = !sure(of) && !value.starts_with('>');
            thin |= is_thin;
            format!("{:>COLUMN$}", format!("{}{value}", if is_thin { "~" } else { "" }))
        });
        let marked = marked.collect::<String>();
        row(page, name, &marked);
    }
    row(page, "max", &max.iter().map(|value| format!("{value:>COLUMN$}")).collect::<String>());
    row(page, "count", &cells(&|of| units::count(of.count())));
    if thin {
        page.line(&style.dim("  ~ fewer than 10 lie beyond it: one more would move it"));
    }
    if open_ended {
        page.line(&style.dim("  >= a request without a good response stands there: beyond every"));
        page.line(&style.dim("     limit; the longest of them was waited for so long"));
    }
}

fn explanation(page: &mut SummaryText, plan: &Plan) {
    let style = page.style;
    let text = if plan.counts_from_due() {
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
fn picture(page: &mut SummaryText, main: Ranked<'_>) {
    let (style, histogram) = (page.style, main.good);
    page.line(&format!(
        "{}  {}",
        style.bold("spread"),
        style.dim("share of the requests between one bound and the next")
    ));
    let bounds = bounds(histogram.min_ns(), histogram.percentile_ns(99.9));
    let mut counts = vec![0u64; bounds.len() + 1];
    for (value, n) in histogram.iter_recorded() {
        counts[bounds.partition_point(|bound| *bound < value)] += n;
    }
    let (total, others) = (main.count().max(1), main.waited.count());
    let most = counts.iter().copied().chain([others]).max().unwrap_or(1).max(1);
    let bar_width = usize::from(style.width).saturating_sub(38).clamp(10, 50);
    let line = |page: &mut SummaryText, label: &str, n: u64| {
        let bar = style.bar(n as f64 / most as f64, bar_width);
        let share = units::percent(n as f64 / total as f64);
        page.line(&format!("  {label:>11}  {bar:<bar_width$} {share:>9}"));
    };
    for (i, n) in counts.iter().enumerate() {
        if *n == 0 && i == bounds.len() {
            break;
        }
        let label = bounds
            .get(i)
            .map_or_else(|| format!("> {}", page.time(bounds[i - 1] as f64)), |b| page.time(*b as f64));
        line(page, &label, *n);
    }
    if others > 0 {
        line(page, "not good", others);
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
