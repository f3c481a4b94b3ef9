//! `--replay LOG --speed X`: an access log in the common or combined format (Apache, nginx's default) or in the JSON of
//! `linerate serve`, also packed by gzip, sent again at the times of its lines.
//!
//! Logs know whole seconds: the lines of one second are spread evenly over it. They know no bodies and no header fields either,
//! so only safe methods (RFC 9110 section 9.2.1) are sent.

mod line;

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use linerate_load::plan::file::RouteKeys;
use linerate_load::plan::limits::{MAX_DURATION, MAX_REQUESTS};
use linerate_load::plan::parts::{encode_target, literal};
use linerate_load::plan::units::quoted;
use linerate_load::plan::{Expectation, Order, Pace, Request};

use self::line::{LogLine, Unusable};
use super::limits::{MAX_LOG_LINE, MAX_LOG_NAMES, MAX_LOG_REQUESTS};
use super::{PlanSource, SourceError, SourceProtocol, count_of, listed, open};

/// How a gzip file begins (RFC 1952 section 2.3.1), whatever its name.
const GZIP: [u8; 2] = [0x1f, 0x8b];

const EXPECTED: &str =
    "expected are lines such as 127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 2326";

/// Reads a log and gives its requests, `speed` times as fast as they came.
pub(crate) fn load(path: &Path, speed: f64) -> Result<PlanSource, SourceError> {
    if !speed.is_finite() || speed <= 0.0 {
        return Err(SourceError::new(format!(
            "--speed {speed}: must be above 0; 1 is as it was, 10 ten times as fast"
        )));
    }
    let mut log = BufReader::with_capacity(1 << 16, open(path)?);
    let begins = log.fill_buf().map_err(|e| SourceError::file(path, format!("cannot be read: {e}")))?;
    if begins.starts_with(&GZIP) {
        return read(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(log)), path, speed);
    }
    read(log, path, speed)
}

fn read(mut log: impl BufRead, path: &Path, speed: f64) -> Result<PlanSource, SourceError> {
    let mut taken = ReplayEntries::default();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let got = (&mut log).take(MAX_LOG_LINE as u64).read_until(b'\n', &mut bytes);
        match got {
            Err(e) => return Err(SourceError::at(path, number, None, format!("cannot be read: {e}"))),
            Ok(0) => break,
            Ok(_) => {}
        }
        if bytes.len() == MAX_LOG_LINE && !bytes.ends_with(b"\n") {
            skip_line(&mut log)
                .map_err(|e| SourceError::at(path, number, None, format!("cannot be read: {e}")))?;
            taken.unusable(number, "too long");
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            continue;
        }
        taken.line(number, text);
        if taken.arrivals.len() > MAX_LOG_REQUESTS {
            return Err(SourceError::file(
                path,
                format!("has more than {MAX_LOG_REQUESTS} requests; take a part of it"),
            ));
        }
    }
    taken.finish(path, speed)
}

fn skip_line(log: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = log.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        log.consume(used);
        if ended {
            return Ok(());
        }
    }
}

/// The entries taken from a log so far.
#[derive(Debug, Default)]
struct ReplayEntries {
    /// Second since the epoch, and kind.
    arrivals: Vec<(i64, u32)>,
    kinds: Vec<(String, String)>,
    index: HashMap<(String, String), u32>,
    errors: usize,
    unusable: usize,
    first_unusable: Option<(usize, String)>,
    unsafe_methods: BTreeMap<String, usize>,
    beyond_kinds: usize,
}

impl ReplayEntries {
    fn unusable(&mut self, number: usize, shown: &str) {
        self.unusable += 1;
        self.first_unusable.get_or_insert_with(|| (number, shown.to_owned()));
    }

    fn line(&mut self, number: usize, text: &str) {
        let line = match line::parse(text) {
            Ok(line) => line,
            Err(Unusable::Format) => return self.unusable(number, text),
            Err(Unusable::Request(shown)) => return self.unusable(number, &shown),
        };
        let LogLine { second, method, target, status } = line;
        if !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS") {
            *self.unsafe_methods.entry(method).or_default() += 1;
            return;
        }
        let key = (method, target);
        let kind = match self.index.get(&key) {
            Some(kind) => *kind,
            None if self.kinds.len() == MAX_REQUESTS => {
                self.beyond_kinds += 1;
                return;
            }
            None => {
                let kind = self.kinds.len() as u32;
                self.kinds.push(key.clone());
                self.index.insert(key, kind);
                kind
            }
        };
        self.errors += usize::from(status.is_some_and(|s| s >= 400));
        self.arrivals.push((second, kind));
    }

    fn finish(mut self, path: &Path, speed: f64) -> Result<PlanSource, SourceError> {
        if self.arrivals.is_empty() {
            return Err(self.nothing(path));
        }
        let unordered = self.arrivals.windows(2).filter(|w| w[0].0 > w[1].0).count();
        // Lines are written when responses are done, so a few are out of order; within a second the log's order stays.
        self.arrivals.sort_by_key(|(second, _)| *second);
        let times = spread(&self.arrivals, speed).ok_or_else(|| {
            SourceError::file(
                path,
                format!(
                    "at --speed {speed} it would last longer than a year; take a part of it or a higher speed"
                ),
            )
        })?;
        let notes = self.notes(path, unordered);
        let names = names(&self.kinds);
        let request = |((method, target), name): (&(String, String), String)| Request {
            name,
            weight: 1.0,
            method: method.clone(),
            path: literal(&encode_target(target)).into_owned(),
            fields: Vec::new(),
            body: None,
            expect: Expectation::default(),
        };
        Ok(PlanSource {
            url: None,
            requests: self.kinds.iter().zip(names).map(request).collect(),
            order: Order::Listed(self.arrivals.iter().map(|(_, kind)| *kind).collect()),
            pace: Some(Pace::Trace(times)),
            wire: SourceProtocol::default(),
            route: RouteKeys::default(),
            notes,
        })
    }

    fn nothing(&self, path: &Path) -> SourceError {
        match &self.first_unusable {
            _ if !self.unsafe_methods.is_empty() => {
                let methods: Vec<String> =
                    self.unsafe_methods.iter().map(|(m, n)| format!("{n} {m}")).collect();
                SourceError::file(
                    path,
                    format!(
                        "has no request that can be sent again: a log has no bodies ({})",
                        listed(&methods)
                    ),
                )
            }
            Some((number, text)) => SourceError::at(
                path,
                *number,
                None,
                format!(
                    "no request in the common, combined or JSON log format: {}; {EXPECTED}",
                    quoted(text)
                ),
            ),
            None => SourceError::file(path, "has no lines"),
        }
    }

    fn notes(&self, path: &Path, unordered: usize) -> Vec<String> {
        let file = path.display();
        let mut notes = Vec::new();
        if let Some((number, text)) = &self.first_unusable {
            let lines =
                count_of(self.unusable, "line that is no request is", "lines that are no requests are");
            notes.push(format!("{file}: {lines} left out, the first is line {number}: {}", quoted(text)));
        }
        if !self.unsafe_methods.is_empty() {
            let methods: Vec<String> = self.unsafe_methods.iter().map(|(m, n)| format!("{n} {m}")).collect();
            notes.push(format!("{file}: left out, since a log has no bodies: {}", listed(&methods)));
        }
        if self.beyond_kinds > 0 {
            let requests = count_of(self.beyond_kinds, "request is", "requests are");
            notes
                .push(format!("{file}: {requests} left out: it has more than {MAX_REQUESTS} different ones"));
        }
        if self.errors > 0 {
            let answers = count_of(self.errors, "request was", "requests were");
            notes.push(format!(
                "{file}: {answers} answered with 400 or above; such answers count as bad again"
            ));
        }
        if unordered > 0 {
            let lines = count_of(unordered, "line is", "lines are");
            notes.push(format!("{file}: {lines} older than the line before; sorted by time"));
        }
        notes
    }
}

/// Times from the first second on, nanoseconds: those of one second evenly over it. `None` when they last over a year.
fn spread(arrivals: &[(i64, u32)], speed: f64) -> Option<Vec<u64>> {
    const SECOND: f64 = 1e9;
    let first = arrivals.first()?.0;
    let mut times = Vec::with_capacity(arrivals.len());
    for group in arrivals.chunk_by(|a, b| a.0 == b.0) {
        let start = (group[0].0 - first) as f64 * SECOND;
        let step = SECOND / group.len() as f64;
        times.extend((0..group.len()).map(|i| ((start + step * i as f64) / speed) as u64));
    }
    (u128::from(*times.last()?) <= MAX_DURATION.as_nanos()).then_some(times)
}

/// Names for the report: each request's own while they are few, then by first folder, then by method.
fn names(kinds: &[(String, String)]) -> Vec<String> {
    let path = |target: &str| target.split('?').next().unwrap_or(target).to_owned();
    let folder = |target: &str| {
        let path = path(target);
        match path[1..].split_once('/') {
            Some((first, _)) => format!("/{first}/..."),
            None => "/...".to_owned(),
        }
    };
    let by = |shown: &dyn Fn(&str) -> String| -> Option<Vec<String>> {
        let names: Vec<String> =
            kinds.iter().map(|(method, target)| format!("{method} {}", shown(target))).collect();
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        (different.len() <= MAX_LOG_NAMES).then_some(names)
    };
    by(&path)
        .or_else(|| by(&folder))
        .unwrap_or_else(|| kinds.iter().map(|(method, _)| method.clone()).collect())
}

#[cfg(test)]
mod tests;
