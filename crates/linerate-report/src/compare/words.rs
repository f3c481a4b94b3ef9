//! What a comparison says, in sentences that text and page share.

use linerate_lab::figures::{self, METRICS, MetricUnit};
use linerate_lab::limits::LEAST_ROUNDS;

use crate::schema::comparison::{Baseline, Change, Document, Metric};
use crate::units;

/// The verdict where the interval holds 1.
pub const NO_DIFFERENCE: &str = "no difference seen";

/// The verdict where fewer rounds count than an interval needs.
pub const TOO_FEW_ROUNDS: &str = "too few rounds";

/// The verdict where too few requests say it.
pub const NOT_MEASURED: &str = "not measured";

/// The metrics of a document in the order of reports, each with its title; ones that this version
/// does not know come last.
pub(super) fn in_order(document: &Document) -> Vec<(String, String, &Metric)> {
    let known = METRICS
        .iter()
        .filter_map(|m| Some((m.id.to_owned(), m.title.to_owned(), document.metrics.get(m.id)?)));
    let unknown = document
        .metrics
        .iter()
        .filter(|(id, _)| figures::metric(id).is_none())
        .map(|(id, metric)| (id.clone(), id.clone(), metric));
    known.chain(unknown).collect()
}

/// A value of a metric with its unit.
pub(super) fn value(id: &str, value: f64, unicode: bool) -> String {
    match figures::metric(id).map(|m| m.unit) {
        Some(MetricUnit::PerSecond) => units::rate(value),
        Some(MetricUnit::Micros) => units::time_us(value, unicode),
        Some(MetricUnit::Megabytes) => units::bytes(value * 1e6),
        Some(MetricUnit::PerRequest) => format!("{value:.3}"),
        None => format!("{value:.3}"),
    }
}

/// A ratio: `1.034`, `12.3`.
pub(super) fn ratio(value: f64) -> String {
    if value < 9.995 { format!("{value:.3}") } else { units::three_digits(value) }
}

/// The values of both sides; `>= 10.0 s` where requests without a response stand.
pub(super) fn sides(id: &str, m: &Metric, unicode: bool) -> [String; 2] {
    [("a", m.a), ("b", m.b)].map(|(side, of_side)| {
        let bound = if m.at_least.iter().any(|bound| bound == side) { ">= " } else { "" };
        of_side.map_or_else(|| "-".to_owned(), |v| format!("{bound}{}", value(id, v, unicode)))
    })
}

/// The ratio of a metric: `1.034`, `>= 12.3`.
pub(super) fn ratio_of(m: &Metric) -> String {
    let bound = match m.at_least.as_slice() {
        [side] if side == "a" => "<= ",
        [_] => ">= ",
        _ => "",
    };
    m.ratio.map_or_else(|| "-".to_owned(), |r| format!("{bound}{}", ratio(r)))
}

/// `10`, `9 of 10`.
pub(super) fn rounds_of(m: &Metric) -> String {
    if m.rounds_of > m.rounds { format!("{} of {}", m.rounds, m.rounds_of) } else { m.rounds.to_string() }
}

/// `0.981 to 1.052`.
pub(super) fn interval(ci95: Option<[f64; 2]>) -> String {
    ci95.map_or_else(|| "-".to_owned(), |ends| units::ratios(ends, ratio))
}

/// How many percent more or less a ratio is: `12.3 % more`.
fn apart(value: f64) -> String {
    let percent = (value - 1.0) * 100.0;
    match percent {
        p if p >= 100.0 => format!("{} % more", units::count(p.round() as u64)),
        p if p >= 0.0 => format!("{p:.1} % more"),
        p => format!("{:.1} % less", -p),
    }
}

/// The smallest difference that the rounds find: `3.2 %`, or a factor.
fn smallest(share: f64) -> String {
    if share >= 1.0 {
        format!("a factor of {}", units::three_digits(share + 1.0))
    } else {
        units::percent(share)
    }
}

/// Whether a metric's verdict claims a difference.
fn claims(m: &Metric) -> bool {
    ![NO_DIFFERENCE, TOO_FEW_ROUNDS, NOT_MEASURED].contains(&m.verdict.as_str())
}

/// Whether the verdict is a difference that stands after the correction for many metrics.
pub(super) fn stands(m: &Metric) -> bool {
    claims(m) && m.p_corrected.is_none_or(|p| p < 0.05)
}

/// Metrics that were judged: the correction is for this many.
fn judged(metrics: &[(String, String, &Metric)]) -> usize {
    metrics.iter().filter(|(_, _, m)| m.p_value.is_some()).count()
}

/// The first sentence: what was seen, if anything. What does not stand after the correction is
/// named as such.
pub(super) fn headline(document: &Document) -> String {
    let metrics = in_order(document);
    if metrics.is_empty() {
        return "Nothing was measured on both sides.".to_owned();
    }
    let sides = |verb: &str, standing: bool| {
        let of = |side: &str| {
            let is = |m: &Metric| m.verdict == side && stands(m) == standing;
            let titles: Vec<&str> =
                metrics.iter().filter(|(_, _, m)| is(m)).map(|(_, title, _)| title.as_str()).collect();
            let name = side.to_ascii_uppercase();
            (!titles.is_empty()).then(|| format!("{name} {verb} better in {}", titles.join(", ")))
        };
        let said: Vec<String> = ["a", "b"].into_iter().filter_map(of).collect();
        (!said.is_empty()).then(|| said.join("; "))
    };
    let corrected = format!("the correction for {} metrics", judged(&metrics));
    match (sides("is", true), sides("looks", false)) {
        (None, None) if judged(&metrics) == 0 => nothing_judged(&metrics),
        (None, None) => "No difference seen.".to_owned(),
        (Some(found), None) => format!("{found}."),
        (Some(found), Some(open)) => format!("{found}. Without {corrected}, {open}."),
        (None, Some(open)) => {
            format!("No difference stands after {corrected}; without it, {open}.")
        }
    }
}

/// Why no metric has a verdict.
fn nothing_judged(metrics: &[(String, String, &Metric)]) -> String {
    if metrics.iter().any(|(_, _, m)| m.verdict == TOO_FEW_ROUNDS) {
        let most = metrics.iter().map(|(_, _, m)| m.rounds).max().unwrap_or(0);
        format!(
            "Too few rounds for a verdict: {most} {}, and {LEAST_ROUNDS} are the least.",
            if most == 1 { "counts" } else { "count" }
        )
    } else {
        "Nothing was measured well enough for a verdict.".to_owned()
    }
}

/// How it was measured.
pub(super) fn method(document: &Document) -> String {
    let whole = document.rounds.len() as u32;
    let mut text = match whole == document.rounds_planned {
        true => format!("{} in turns (A B B A)", units::several(u64::from(whole), "round", "rounds")),
        false => format!("{whole} of {} planned rounds in turns (A B B A)", document.rounds_planned),
    };
    text += &format!(", {} s for each run", units::short_seconds(document.run_s));
    if document.warm_up_s > 0.0 {
        text += &format!(" after a warm-up of {} s", units::short_seconds(document.warm_up_s));
    }
    if document.rounds_counted != whole {
        text += &format!("; {} of the rounds count", document.rounds_counted);
    }
    text + "."
}

/// The differences that were seen, in sentences.
pub(super) fn differences(document: &Document) -> Vec<String> {
    let said = |(_, title, m): &(String, String, &Metric)| {
        let [low, high] = m.ci95.filter(|_| claims(m))?;
        let better = m.verdict.to_ascii_uppercase();
        let (low, high) = (ratio(low), ratio(high));
        let judgement = if stands(m) { "is better" } else { "looks better, but not after the correction" };
        Some(format!(
            "{title}: B has {} than A (B/A {low} to {high} at 95 %). {better} {judgement}.",
            apart(m.ratio?)
        ))
    };
    in_order(document).iter().filter_map(said).collect()
}

/// Sentences that qualify the verdicts: undecided metrics, and the correction for many metrics.
pub(super) fn explanations(document: &Document) -> Vec<String> {
    let metrics = in_order(document);
    let mut all = Vec::new();
    all.extend(undecided(&metrics));
    all.extend(unmeasured(&metrics));
    let judged = judged(&metrics);
    let claimed = metrics.iter().filter(|(_, _, m)| claims(m));
    let (safe, alone): (Vec<_>, Vec<_>) = claimed.partition(|(_, _, m)| stands(m));
    if judged > 1 {
        let titles = |of: &[&(String, String, &Metric)]| {
            of.iter().map(|(_, title, _)| title.as_str()).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!(
            "Each interval and p is that of its metric alone: of two equal servers it claims a difference in 5 % of comparisons. \
             {judged} metrics at once make a false claim likelier."
        );
        match (safe.is_empty(), alone.is_empty()) {
            (true, true) => {}
            (false, true) => text += " After the correction (Holm) all of them stand.",
            (true, false) => {
                text += " After the correction (Holm) none of the differences stands: they are marked with a question mark."
            }
            (false, false) => {
                text += &format!(
                    " After the correction (Holm) these stand: {}. Marked with a question mark, because they do not: {}.",
                    titles(&safe),
                    titles(&alone)
                );
            }
        }
        all.push(text);
    }
    all
}

/// What a decision would need where no difference was seen.
fn undecided(metrics: &[(String, String, &Metric)]) -> Vec<String> {
    let open = metrics.iter().filter(|(_, _, m)| m.verdict == NO_DIFFERENCE && m.ci95.is_some());
    let said = |(_, title, m): &(String, String, &Metric)| {
        let finds =
            m.finds.map_or(String::new(), |f| format!("; these rounds find {} and more", smallest(f)));
        let need = match m.more_rounds.zip(m.ratio) {
            Some((n, ratio)) => format!(
                "if it is {}, as it looks, {} would decide",
                apart(ratio),
                units::several(u64::from(n), "more round", "more rounds")
            ),
            None => "if there is one, it takes more than 10,000 rounds to see".to_owned(),
        };
        format!("{title}: no difference seen; {need}{finds}.")
    };
    open.map(said).collect()
}

/// Metrics without a verdict, or with one from fewer rounds than were run, and why.
fn unmeasured(metrics: &[(String, String, &Metric)]) -> Vec<String> {
    let said = |(_, title, m): &(String, String, &Metric)| match m.verdict.as_str() {
        NOT_MEASURED if m.at_least.len() == 2 => Some(format!(
            "{title}: not measured, because requests of both sides got no good response by then."
        )),
        NOT_MEASURED if m.at_least.len() == 1 => Some(format!(
            "{title}: not measured, because requests of {} without a good response stand there, so it may be larger \
             than it looks.",
            m.at_least[0].to_ascii_uppercase()
        )),
        NOT_MEASURED => Some(format!(
            "{title}: not measured, because too few requests are beyond it: longer runs or more connections have more."
        )),
        _ if m.at_least.len() == 1 => Some(format!(
            "{title}: requests of {} without a good response stand there, so its value is the least that it can be.",
            m.at_least[0].to_ascii_uppercase()
        )),
        _ if m.rounds_of > m.rounds => Some(format!("{title}: {} rounds count.", rounds_of(m))),
        _ => None,
    };
    metrics.iter().filter_map(said).collect()
}

/// What has changed since a saved comparison.
pub(super) fn since(baseline: &Baseline) -> Vec<(String, String, &Change)> {
    let title = |id: &String| figures::metric(id).map_or_else(|| id.clone(), |m| m.title.to_owned());
    let mut all: Vec<_> =
        baseline.metrics.iter().map(|(id, change)| (id.clone(), title(id), change)).collect();
    let place = |id: &str| figures::METRICS.iter().position(|m| m.id == id).unwrap_or(usize::MAX);
    all.sort_by_key(|(id, _, _)| place(id));
    all
}
