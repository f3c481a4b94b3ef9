//! For tests: reads the sentences about a row again, and finds what the figures of the rows deny.

/// The figures of a row, as its table shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowFigures {
    pub(crate) name: String,
    pub(crate) rate_rps: f64,
    pub(crate) p50_us: f64,
    /// Processor time of both sides for each request, microseconds.
    pub(crate) cpu_us: Option<f64>,
    pub(crate) connections: f64,
    /// Requests in flight on each connection.
    pub(crate) depth: f64,
}

/// How far a figure in a sentence may be from the table's. Reason: both have three digits.
const ROUNDED: f64 = 0.02;
/// What the sentences call alike, and from which share on a core was a limit.
const ALIKE: f64 = 1.25;
const BUSY: f64 = 84.0;

fn near(said: f64, is: f64) -> bool {
    (said - is).abs() <= ROUNDED * is.abs() + 0.006
}

/// The number that ends before `at`, if there is one: `1,234`, `12.3` or `<0.01`.
fn number_before(text: &str, at: usize) -> Option<f64> {
    let word = text.get(..at)?.trim_end().rsplit([' ', '(']).next()?;
    word.trim_start_matches('<').replace(',', "").parse().ok()
}

/// A time as `12.3 ms`, in microseconds.
fn time_at(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.replace(',', "").parse().ok()?;
    let unit = words.next()?.trim_end_matches(['.', ',', ';', ')']);
    Some(number * [("µs", 1.0), ("us", 1.0), ("ms", 1e3), ("s", 1e6)].iter().find(|u| u.0 == unit)?.1)
}

/// The row whose name begins a text.
fn named<'a>(text: &str, rows: &'a [RowFigures]) -> Option<&'a RowFigures> {
    rows.iter().filter(|row| text.starts_with(&row.name)).max_by_key(|row| row.name.len())
}

/// All places of a text in another.
fn places<'a>(said: &'a str, part: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    said.match_indices(part).map(move |(at, _)| (at, &said[at + part.len()..]))
}

/// What the sentences about `row` say against its figures and those of the rows `before` it.
pub(crate) fn denied(said: &str, row: &RowFigures, before: &[RowFigures]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    for (at, rest) in places(said, " x the rate of ") {
        let other = named(rest, before).map_or(f64::NAN, |other| other.rate_rps);
        let ratio = number_before(said, at).unwrap_or(f64::NAN);
        check(near(ratio, row.rate_rps / other), format!("{ratio} x, and it is {}", row.rate_rps / other));
    }
    for (_, rest) in places(said, "about the rate of ") {
        let ratio = row.rate_rps / named(rest, before).map_or(f64::NAN, |other| other.rate_rps);
        let alike = ratio < ALIKE * (1.0 + ROUNDED) && ratio > (1.0 - ROUNDED) / ALIKE;
        check(alike, format!("called alike at {ratio}"));
    }
    for (_, rest) in places(said, "Better here: ") {
        let best = named(rest, before).map_or(f64::NAN, |other| other.rate_rps / row.rate_rps);
        let at = rest.find(" x its rate").unwrap_or(0);
        check(near(number_before(rest, at).unwrap_or(f64::NAN), best), format!("better by {best}: {rest}"));
        check(best > 1.0, format!("no better one: {rest}"));
    }
    if said.contains("Many requests in a write") {
        let alone = before.first().map_or(0.0, |alone| alone.rate_rps);
        check(row.rate_rps / row.connections > alone, "praised a pipeline that gained nothing".to_owned());
    }
    if let Some((at, _)) = places(said, " apart; one request at a time").next() {
        let begin = said[..at].rfind("another, ").map_or(0, |at| at + "another, ".len());
        let apart = time_at(&said[begin..]).unwrap_or(f64::NAN);
        check(near(apart, 1e6 * row.connections / row.rate_rps), format!("{apart} us apart"));
        check(row.depth > 1.0, "one after another, and one in flight".to_owned());
    }
    for (_, rest) in places(said, "responses took ") {
        let took = time_at(rest).unwrap_or(f64::NAN);
        check(near(took, row.p50_us), format!("took {took} us, and the median is {}", row.p50_us));
    }
    of_cores(said, &mut check);
    if let (Some(cpu), Some(at)) = (row.cpu_us, said.find(" of CPU a request")) {
        let begin = said[..at].rfind(", ").map_or(0, |at| at + 2);
        let told = time_at(&said[begin..]).unwrap_or(f64::NAN);
        // Both sides are rounded by themselves.
        check((told - cpu).abs() <= 2.0 * ROUNDED * cpu + 0.02, format!("{told} us of CPU, and it is {cpu}"));
    }
    wrong
}

/// The shares of cores in the sentences on limits.
fn of_cores(said: &str, check: &mut dyn FnMut(bool, String)) {
    for limit in ["The limit was this client's core (", "The limit was the server's core ("] {
        for (_, rest) in places(said, limit) {
            let busy = rest.find(" %").and_then(|at| number_before(rest, at)).unwrap_or(f64::NAN);
            check(busy >= BUSY, format!("a core that was {busy} % busy was the limit"));
        }
    }
    for (_, rest) in places(said, "No core was the limit (client ") {
        let until = rest.find(" busy)").unwrap_or(0);
        for (at, _) in rest[..until].match_indices(" %") {
            let busy = number_before(rest, at).unwrap_or(f64::NAN);
            check(busy <= BUSY + 1.0, format!("a core that was {busy} % busy was no limit"));
        }
    }
    let limits = ["The limit was", "No core was the limit", "no more can be said of this row"];
    let told = limits.iter().filter(|limit| said.contains(*limit)).count();
    check(told <= 1, "more than one limit".to_owned());
    let silent = said.contains("no more can be said of this row") && said.contains("Better here");
    check(!silent, "nothing can be said, and a better way was named".to_owned());
}
