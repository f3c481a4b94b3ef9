//! A scenario's figures: as text, as a document and as a page.

mod cells;
mod curves;
mod page;

use std::collections::BTreeMap;

use linerate_lab::comparison::{ComparedMetric, ComparedSide, MetricVerdict as Found, Rounds, RunLeftOut};
use linerate_lab::figures::{self, RunFigures};
use linerate_lab::latencies::{Mixed, RunLatencies, Statistic};

use crate::json::{round6, text_of};
use crate::schema::lab::{Document, Group, Metric, QuickRequests, Row, RowRunLeftOut, Verdict};
use crate::style::{Style, clean};
use crate::units;

use cells::{cell, columns, figure, ratio};
pub use page::to_string as page;

/// The metrics of a row. `runs` are its runs round by round, `first` those of the group's first row;
/// `None` where that is this row.
pub fn metrics(runs: &[RunFigures], first: Option<&[RunFigures]>) -> BTreeMap<String, Metric> {
    let mut rounds = Rounds::default();
    for (run, first) in runs.iter().zip(first.unwrap_or(runs)) {
        rounds.push([first.clone(), run.clone()]);
    }
    let shown = |c: ComparedMetric| Metric {
        value: c.means.map(|means| round6(means[1])),
        at_least: c.at_least[1],
        at_most: false,
        ratio: c.ratio.filter(|_| first.is_some()).map(round6),
        ci95: c.ci95.filter(|_| first.is_some()).map(|(low, high)| [round6(low), round6(high)]),
        verdict: match c.verdict {
            _ if first.is_none() => Verdict::None,
            Found::NoDifference => Verdict::NoDifference,
            Found::TooFewRounds => Verdict::TooFewRounds,
            Found::NotMeasured => Verdict::NotMeasured,
            Found::Better(side) if side.index() == 1 => Verdict::Better,
            Found::Better(_) => Verdict::Worse,
        },
    };
    let mut all: BTreeMap<String, Metric> =
        rounds.verdicts().into_iter().map(|c| (c.metric.id.to_owned(), shown(c))).collect();
    // What the first row has none of, memory say, or too few requests for, is a figure all the same.
    for compared in alone(runs).verdicts() {
        let metric = all.entry(compared.metric.id.to_owned()).or_default();
        if metric.value.is_none() {
            metric.value = compared.means.map(|means| round6(means[1]));
            metric.at_least = compared.at_least[1];
        }
    }
    if let Some(rate) = all.get_mut("rate_rps") {
        rate.at_most = rate.value.is_some() && runs.iter().any(|run| run.is_rate_bound);
    }
    all
}

/// A row's runs, not compared with others.
fn alone(runs: &[RunFigures]) -> Rounds {
    let mut rounds = Rounds::default();
    runs.iter().for_each(|run| rounds.push([run.clone(), run.clone()]));
    rounds
}

/// The runs of a row that do not count in some metrics.
pub fn runs_left_out(runs: &[RunFigures]) -> Vec<RowRunLeftOut> {
    let all = alone(runs).left_out().into_iter().filter(|left| left.side == ComparedSide::A);
    let shown = |left: RunLeftOut| RowRunLeftOut {
        round: left.round,
        metrics: left.metrics.iter().map(|id| (*id).to_owned()).collect(),
        why: left.why,
    };
    all.map(shown).collect()
}

/// Sentences about the runs of a row that do not count.
fn left_out(row: &Row) -> Vec<String> {
    let Some(fault) = row.fault.as_ref().filter(|_| row.runs_left_out.is_empty()) else {
        let title = |id: &String| figures::metric(id).map_or(id.as_str(), |metric| metric.title).to_owned();
        let said = |left: &RowRunLeftOut| {
            let of: Vec<String> = left.metrics.iter().map(title).collect();
            let of = if of.is_empty() { String::new() } else { format!(" in {}", of.join(", ")) };
            format!("Round {} does not count{of}: {}.", left.round, left.why)
        };
        return row.runs_left_out.iter().map(said).collect();
    };
    // A document of an earlier version.
    vec![format!("A run does not count: {fault}.")]
}

/// What is later than the quickest by as much was held up, microseconds. Reason: it is beyond what
/// another program's turn on a core takes, and far below the 50 ms of a slow request.
const HELD_UP_US: f64 = 10_000.0;

/// The quick requests of a row's runs: those of that name, or all where none has a name.
pub fn quick(runs: &[RunFigures], name: &str) -> Option<QuickRequests> {
    let all: Vec<&RunLatencies> =
        runs.iter().map(|run| run.by_name.get(name).unwrap_or(&run.latencies)).collect();
    let least = all.iter().filter_map(|run| run.least_us()).reduce(f64::min)?;
    let (held_up, requests) = all
        .iter()
        .map(|run| run.longer_than(least + HELD_UP_US))
        .fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    let value = |runs: &[&RunLatencies], of: Statistic| round6(Mixed::of(of, runs).all().us);
    let said = |share: f64| {
        let statistic = Statistic::Percentile(share);
        statistic.is_said_by(&all).then(|| value(&all, statistic))
    };
    let others = runs.iter().flat_map(|run| run.by_name.iter().filter(|n| n.0 != name).map(|n| n.1));
    let others: Vec<&RunLatencies> = others.filter(|run| !run.is_empty()).collect();
    Some(QuickRequests {
        requests,
        held_up,
        p50_us: said(0.5),
        p99_us: said(0.99),
        others_p50_us: (!others.is_empty()).then(|| value(&others, Statistic::Percentile(0.5))),
    })
}

/// The document as indented JSON, with a line end.
pub fn json(document: &Document) -> String {
    text_of(document)
}

/// The shortest and the longest latency of all runs, microseconds.
pub fn extremes(runs: &[RunFigures]) -> (Option<f64>, Option<f64>) {
    let all = || runs.iter().filter_map(|run| run.extremes_us);
    let (min, max) = (all().map(|(min, _)| min).reduce(f64::min), all().map(|(_, max)| max).reduce(f64::max));
    (min.map(round6), max.map(round6))
}

/// The share of the line that runs took, on average; `None` where its speed is not known.
pub fn line_share(runs: &[RunFigures]) -> Option<f64> {
    let shares: Vec<f64> = runs.iter().filter_map(|run| run.line_share).collect();
    (!shares.is_empty()).then(|| round6(shares.iter().sum::<f64>() / shares.len() as f64))
}

/// How it was measured, in a sentence.
fn method(document: &Document) -> String {
    let mut text = format!(
        "{} in turns, {} s for each row after a warm-up of {} s",
        units::several(u64::from(document.rounds_planned), "round", "rounds"),
        units::short_seconds(document.run_s),
        units::short_seconds(document.warm_up_s)
    );
    if !document.server_cores.is_empty() {
        let cores: Vec<String> = document.server_cores.iter().map(usize::to_string).collect();
        text += &format!("; servers on core {}", cores.join(", "));
    }
    text + ". In brackets: the interval that holds the true ratio to the first row in 95 of 100 cases."
}

/// What a group's line was, in a sentence.
fn over_line(group: &Group) -> Option<String> {
    let line = group.line.as_ref()?;
    let lost = line.up.lost + line.down.lost;
    let dropped = line.up.queue_full + line.down.queue_full;
    let parts = [(lost, "were lost"), (dropped, "found its queue full")];
    let parts: Vec<String> =
        parts.iter().filter(|p| p.0 > 0).map(|(n, what)| format!("{} {what}", units::count(*n))).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(", of which {}", parts.join(" and ")) };
    let packets = units::count(line.up.sent + line.down.sent);
    Some(format!("Over a line of {}: {packets} packets{parts}.", line.text))
}

/// What a dash in the tables means; `None` where there is none.
fn dashes(document: &Document) -> Option<&'static str> {
    let lacks = |group: &Group, row: &Row| columns(group).iter().any(|(id, _)| figure(row, id).is_none());
    let found = document.groups.iter().any(|group| group.rows.iter().any(|row| lacks(group, row)));
    found.then_some(
        "- is not measured: too few requests lie beyond that percentile, or the server's processes are not known here",
    )
}

/// The whole report for a terminal.
pub fn text(document: &Document, style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&style.bold(&clean(&document.scenario)));
    line(&style.wrapped("", &clean(&document.about)));
    line(&style.wrapped("", &method(document)));
    if document.interrupted {
        line(&style.warn("Interrupted: these are the rounds so far."));
    }
    for group in document.groups.iter().filter(|g| !g.rows.is_empty()) {
        line("");
        line(&style.bold(&clean(&group.name)));
        let over = over_line(group).map_or(String::new(), |over| format!(" {over}"));
        line(&style.wrapped("", &clean(format!("{}{over}", group.about).trim())));
        table(&mut line, group, style);
    }
    if let Some(text) = dashes(document) {
        line("");
        line(&style.wrapped("", text));
    }
    if !document.left_out.is_empty() {
        line("");
    }
    for missing in missing(document) {
        let install = match missing.install {
            "" => String::new(),
            install => format!(" Install it: {install}"),
        };
        let text = format!("left out: {}: {}.{install}", missing.named(), missing.why);
        line(&style.warn(&style.wrapped("", &clean(&text))));
    }
    for warning in &document.warnings {
        line(&style.wrapped("", &format!("note: {}", clean(warning))));
    }
    out
}

/// Rows that are left out for the same reason.
struct Missing<'a> {
    why: &'a str,
    install: &'a str,
    /// Each with its group.
    rows: Vec<String>,
}

impl Missing<'_> {
    /// Its rows, the first ones by name where they are many: JSON has all.
    fn named(&self) -> String {
        const NAMED: usize = 4;
        match self.rows.len().saturating_sub(NAMED) {
            0 | 1 => self.rows.join("; "),
            more => format!("{}; and {more} more rows", self.rows[..NAMED].join("; ")),
        }
    }
}

/// All reasons, in the order of their first rows.
fn missing(document: &Document) -> Vec<Missing<'_>> {
    let mut all: Vec<Missing<'_>> = Vec::new();
    for left in &document.left_out {
        let row = format!("{} ({})", left.row, left.group);
        match all.iter_mut().find(|m| m.why == left.why && m.install == left.install) {
            Some(same) => same.rows.push(row),
            None => all.push(Missing { why: &left.why, install: &left.install, rows: vec![row] }),
        }
    }
    all
}

/// A column as text: its title, then the cell of each row.
fn column(group: &Group, (id, title): (&str, &str), style: Style) -> Vec<String> {
    let cells = group.rows.iter().map(|row| cell(row, id, style.unicode));
    std::iter::once(title.to_owned()).chain(cells).collect()
}

fn widest(cells: &[String]) -> usize {
    cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// The figures of a group; columns that the terminal has no room for follow below the others.
fn table(line: &mut dyn FnMut(&str), group: &Group, style: Style) {
    let named = |row: &Row| clean(&row.name);
    let names: Vec<String> = std::iter::once("row".to_owned()).chain(group.rows.iter().map(named)).collect();
    let mut columns = vec![column(group, ("rate_rps", "requests/s"), style)];
    columns.push(
        std::iter::once("ratio".to_owned()).chain(group.rows.iter().map(|row| ratio(group, row))).collect(),
    );
    let others = self::columns(group).into_iter().filter(|(id, _)| *id != "rate_rps");
    columns.extend(others.map(|titled| column(group, titled, style)));
    let mut left = columns.as_slice();
    while !left.is_empty() {
        let mut width = 2 + widest(&names);
        let fits = |cells: &&Vec<String>| {
            width += 2 + widest(cells);
            width <= usize::from(style.width)
        };
        let (now, later) = left.split_at(left.iter().take_while(fits).count().max(1));
        for (at, name) in names.iter().enumerate() {
            let cells: String =
                now.iter().map(|cells| format!("  {:>1$}", cells[at], widest(cells))).collect();
            let text = format!("  {name:<0$}{cells}", widest(&names));
            line(&if at == 0 { style.bold(&text) } else { text });
        }
        left = later;
    }
    for row in &group.rows {
        let errors = match row.errors {
            0 => String::new(),
            n => format!(" {} did not end well.", units::several(n, "request", "requests")),
        };
        let fault: String = left_out(row).iter().map(|said| format!(" {said}")).collect();
        let text = format!("{}: {}{errors}{fault}", row.name, row.about);
        if !(row.about.is_empty() && errors.is_empty() && fault.is_empty()) {
            line(&style.wrapped("  ", &clean(&text)));
        }
    }
}

#[cfg(test)]
mod tests;
