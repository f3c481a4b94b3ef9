//! Tables of a TOML file, read key by key: each value knows its place, so each error can show it.
//! Plan files are read with it, and other files of the command as well.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::FileError;
use crate::plan::limits::MAX_DURATION;
use crate::plan::units::{parse_duration, quoted};

/// A file's name and text.
#[derive(Clone, Copy, Debug)]
pub struct PlanText<'a> {
    /// The name of the file in errors.
    pub path: &'a Path,
    /// All of it.
    pub text: &'a str,
}

impl PlanText<'_> {
    /// An error at these bytes of the text.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> FileError {
        FileError::at(self.path, self.text, span, message)
    }

    /// Parses the text.
    ///
    /// # Errors
    /// When it is not TOML.
    pub fn parse(&self) -> Result<Spanned<DeTable<'_>>, FileError> {
        DeTable::parse(self.text).map_err(|e| {
            let message = e.message().lines().collect::<Vec<_>>().join(", ");
            self.error(e.span().unwrap_or(0..0), format!("not TOML: {message}"))
        })
    }
}

/// A table whose keys are all known.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// The file that it is from.
    pub source: PlanText<'a>,
    /// Its place in the file: of its header, or of its braces.
    pub span: Range<usize>,
    items: Vec<Item<'a>>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    /// The file that it is from.
    pub source: PlanText<'a>,
    /// As the documentation writes it.
    pub key: String,
    /// The place of the key in the file.
    pub key_span: Range<usize>,
    /// The value, with its place.
    pub value: &'a Spanned<DeValue<'a>>,
}

/// Keys that a table takes, and where others are at home.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// All valid keys, in groups.
    pub known: &'static [&'static [&'static str]],
    /// Keys of another place, with what to say of them.
    pub elsewhere: &'static [(&'static [&'static str], &'static str)],
}

/// Names of the same keys in other tools.
const ALIASES: [(&str, &str); 16] = [
    ("concurrency", "connections"),
    ("clients", "connections"),
    ("depth", "pipeline"),
    ("qps", "rate"),
    ("rps", "rate"),
    ("target", "url"),
    ("uri", "url"),
    ("host", "url"),
    ("time", "duration"),
    ("number", "requests"),
    ("count", "requests"),
    ("header", "headers"),
    ("check", "checks"),
    ("status", "expect_status"),
    ("csv", "file"),
    ("requests", "request"),
];

impl<'a> Table<'a> {
    /// Takes a table apart; a key that is not known is an error.
    pub fn new(
        source: PlanText<'a>,
        span: Range<usize>,
        table: &'a DeTable<'a>,
        keys: Keys,
    ) -> Result<Table<'a>, FileError> {
        let mut items: Vec<Item<'a>> = Vec::with_capacity(table.len());
        for item in items_in_order(source, table) {
            // Flags are written with dashes; both are taken.
            let key = item.key.replace('-', "_");
            let item = Item { key, ..item };
            if !keys.known.iter().any(|group| group.contains(&item.key.as_str())) {
                return Err(item.unknown(keys));
            }
            if let Some(first) = items.iter().find(|i| i.key == item.key) {
                let message =
                    format!("{} is given twice, also as {}", item.key, &source.text[first.key_span.clone()]);
                return Err(source.error(item.key_span, message));
            }
            items.push(item);
        }
        Ok(Table { source, span, items })
    }

    /// One without keys.
    pub fn empty(source: PlanText<'a>) -> Table<'a> {
        Table { source, span: 0..0, items: Vec::new() }
    }

    /// The item of that key.
    pub fn get(&self, key: &str) -> Option<&Item<'a>> {
        self.items.iter().find(|item| item.key == key)
    }

    /// Reads a key that may be absent.
    pub fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Item<'a>) -> Result<T, FileError>,
    ) -> Result<Option<T>, FileError> {
        self.get(key).map(read).transpose()
    }
}

/// The entries of a table in the order of the file, with any keys.
pub fn items_in_order<'a>(source: PlanText<'a>, table: &'a DeTable<'a>) -> Vec<Item<'a>> {
    let item = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
        let name: &std::borrow::Cow<'a, str> = key.get_ref();
        Item { source, key: name.to_string(), key_span: key.span(), value }
    };
    let mut items: Vec<Item<'a>> = table.iter().map(item).collect();
    items.sort_by_key(|item| item.key_span.start);
    items
}

impl<'a> Item<'a> {
    /// The place of the value in the file.
    pub fn span(&self) -> Range<usize> {
        self.value.span()
    }

    /// An error at the value.
    pub fn error(&self, message: impl Into<String>) -> FileError {
        self.source.error(self.span(), message)
    }

    /// An error at byte `at` of a string's value, if the file contains the string literally,
    /// without escapes.
    pub fn error_within(&self, value: &str, at: usize, message: impl Into<String>) -> FileError {
        let span = self.span();
        let written = self.source.text.get(span.clone()).unwrap_or("");
        match written.find(value).filter(|_| !value.is_empty()) {
            Some(start) => self.source.error(span.start + start + at..span.end, message),
            None => self.error(message),
        }
    }

    fn wanted(&self, what: impl Display) -> FileError {
        self.error(format!("{} must be {what}, not {}", self.key, found(self.value.get_ref())))
    }

    /// A string; `what` is what to ask for when it isn't one.
    pub fn text(&self, what: &str) -> Result<&'a str, FileError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wanted(what))
    }

    /// A string, or a number or truth value as it would be written.
    pub fn scalar(&self) -> Result<String, FileError> {
        scalar(self.value.get_ref()).ok_or_else(|| self.wanted("a string or a number"))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Result<bool, FileError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wanted("true or false"))
    }

    /// A whole number from `least` to `most`.
    pub fn whole(&self, least: u64, most: u64) -> Result<u64, FileError> {
        let wanted = || match (least, most) {
            (0, u64::MAX) => "a whole number".to_owned(),
            (_, u64::MAX) => format!("a whole number of at least {least}"),
            _ => format!("a whole number from {least} to {most}"),
        };
        let number = match self.value.get_ref() {
            DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => return Err(self.wanted(wanted())),
        };
        number.filter(|n| (least..=most).contains(n)).ok_or_else(|| self.wanted(wanted()))
    }

    /// A number above zero.
    pub fn positive(&self) -> Result<f64, FileError> {
        self.number().filter(|n| n.is_finite() && *n > 0.0).ok_or_else(|| self.wanted("a number above 0"))
    }

    /// A number, whole or not.
    pub fn number(&self) -> Option<f64> {
        match self.value.get_ref() {
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64),
            DeValue::Float(n) => n.as_str().parse().ok(),
            _ => None,
        }
    }

    /// `"10s"`, or a number of seconds.
    pub fn duration(&self, least: Duration, most: Duration) -> Result<Duration, FileError> {
        let duration = match (self.value.get_ref(), self.number()) {
            (DeValue::String(text), _) => {
                parse_duration(text).map_err(|why| self.error(format!("{}: {why}", self.key)))?
            }
            (_, Some(secs)) if (0.0..=MAX_DURATION.as_secs_f64()).contains(&secs) => {
                Duration::from_secs_f64(secs)
            }
            _ => return Err(self.wanted("a duration such as \"10s\" or \"500ms\"")),
        };
        if duration < least {
            return Err(self.error(format!("{} must be longer than 0s", self.key)));
        }
        if duration > most {
            return Err(self.error(format!("{} is at most {}s", self.key, most.as_secs())));
        }
        Ok(duration)
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, FileError> {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let wanted = match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => names.join(""),
        };
        let given = self.value.get_ref().as_str();
        choices
            .iter()
            .find(|(name, _)| Some(*name) == given)
            .map(|(_, t)| *t)
            .ok_or_else(|| self.wanted(wanted))
    }

    /// The values of an array, each as an item of the same key.
    pub fn array(&self, what: &str) -> Result<Vec<Item<'a>>, FileError> {
        let array = self.value.get_ref().as_array().ok_or_else(|| self.wanted(what))?;
        Ok(array.iter().map(|value| Item { value, ..self.clone() }).collect())
    }

    /// The values of an array, or the value itself.
    pub fn one_or_more(&self) -> Vec<Item<'a>> {
        self.array("").unwrap_or_else(|_| vec![self.clone()])
    }

    /// A table whose keys are names of the user's.
    pub fn entries(&self, what: &str) -> Result<Vec<Item<'a>>, FileError> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.wanted(what))?;
        Ok(items_in_order(self.source, table))
    }

    /// The tables of `[[key]]`.
    pub fn tables(&self, keys: Keys) -> Result<Vec<Table<'a>>, FileError> {
        let key = &self.key;
        if self.value.get_ref().is_table() {
            return Err(self
                .source
                .error(self.key_span.clone(), format!("write [[{key}]]: there may be several")));
        }
        let table = |item: Item<'a>| match item.value.get_ref() {
            DeValue::Table(table) => Table::new(self.source, item.span(), table, keys),
            _ => Err(item.wanted(format!("tables, written as [[{key}]]"))),
        };
        self.array(&format!("tables, written as [[{key}]]"))?.into_iter().map(table).collect()
    }

    fn unknown(&self, keys: Keys) -> FileError {
        let written = quoted(&self.key);
        if let Some((_, advice)) = keys.elsewhere.iter().find(|(group, _)| group.contains(&self.key.as_str()))
        {
            return self.source.error(self.key_span.clone(), format!("{written} {advice}"));
        }
        let known = || keys.known.iter().flat_map(|group| group.iter().copied());
        let alias = ALIASES.iter().find(|(other, ours)| *other == self.key && known().any(|k| k == *ours));
        let nearest = || {
            let allowed = (self.key.chars().count() / 3).max(1);
            known().map(|k| (distance(&self.key, k), k)).filter(|(d, _)| *d <= allowed).min()
        };
        let message = match alias.map(|(_, ours)| *ours).or_else(|| nearest().map(|(_, k)| k)) {
            Some(meant) => format!("unknown key {written}; did you mean \"{meant}\"?"),
            None => format!("unknown key {written}; known are {}", known().collect::<Vec<_>>().join(", ")),
        };
        self.source.error(self.key_span.clone(), message)
    }
}

/// A string, number, truth value or date as it would be written.
pub(super) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(n) => i128::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n.to_string()),
        DeValue::Float(n) => Some(n.as_str().trim_start_matches('+').to_owned()),
        DeValue::Boolean(b) => Some(b.to_string()),
        DeValue::Datetime(d) => Some(d.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
        other => scalar(other).unwrap_or_default(),
    }
}

/// Letters to change, add, drop or swap to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(40).collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, n) in [
            ("connections", "connections", 0),
            ("conections", "connections", 1),
            ("wieght", "weight", 1),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), n, "{a} {b}");
        }
    }
}
