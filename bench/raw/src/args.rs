//! `--name value` pairs, and nothing more.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// The words after the command's name.
#[derive(Debug)]
pub(crate) struct Args(BTreeMap<String, String>);

impl Args {
    /// Reads pairs; an option without a value and an unknown name are errors.
    pub(crate) fn parse(words: impl Iterator<Item = String>, known: &[&str]) -> Result<Args> {
        let mut all = BTreeMap::new();
        let mut words = words;
        while let Some(w) = words.next() {
            let Some(name) = w.strip_prefix("--").filter(|n| known.contains(n)) else {
                bail!("unknown option {w}; known: --{}", known.join(" --"));
            };
            let value = words.next().with_context(|| format!("--{name} needs a value"))?;
            all.insert(name.to_owned(), value);
        }
        Ok(Args(all))
    }

    /// The value of `name`, if given.
    pub(crate) fn maybe<T: FromStr>(&self, name: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.0.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(v) => Ok(Some(v)),
            Err(e) => bail!("--{name} {text}: {e}"),
        }
    }

    /// The value of `name`, or `default`.
    pub(crate) fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T>
    where
        T::Err: std::fmt::Display,
    {
        Ok(self.maybe(name)?.unwrap_or(default))
    }
}
