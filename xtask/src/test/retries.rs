//! Tests that failed and then passed alone: each is a finding, either of the test or of what it
//! tests. The nightly run fails if one is not on the committed list.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use xtask::shell;

/// The file that names tests which may need a second try.
const KNOWN: &str = "xtask/retries.toml";

/// Most tests that may need one. Reason: with more, nobody reads the list.
const MAX_KNOWN: usize = 5;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownRetries {
    #[serde(default)]
    retry: Vec<RetryEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryEntry {
    /// As the last lines name it: package, program and test.
    test: String,
    cause: String,
    date: String,
}

fn known(text: &str) -> Result<BTreeSet<String>> {
    let list: KnownRetries = toml::from_str(text)?;
    ensure!(list.retry.len() <= MAX_KNOWN, "{KNOWN} has more than {MAX_KNOWN} entries");
    for RetryEntry { test, cause, date } in &list.retry {
        ensure!(cause.len() > 20, "{KNOWN}: {test} has no cause");
        let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
        let parts: Vec<&str> = date.split('-').collect();
        let is_date = parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.into_iter().all(digits);
        ensure!(is_date, "{KNOWN}: {test} has no date (2026-11-27), but {date:?}");
    }
    Ok(list.retry.into_iter().map(|entry| entry.test).collect())
}

/// Which of these tests the committed list does not have.
pub(super) fn unknown(retried: &[String]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(shell::root().join(KNOWN)).context(KNOWN)?;
    let known = known(&text)?;
    Ok(retried.iter().filter(|test| !known.contains(*test)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cause: &str, date: &str) -> String {
        format!("[[retry]]\ntest = \"p q: a::b\"\ncause = \"{cause}\"\ndate = \"{date}\"\n")
    }

    const CAUSE: &str = "its limit of 50 ms is one of a quiet machine";

    #[test]
    fn the_committed_list_is_short_and_has_causes_and_dates() {
        let text = std::fs::read_to_string(shell::root().join(KNOWN)).expect("it is there");
        known(&text).expect("a list");
        assert_eq!(known(&entry(CAUSE, "2026-11-27")).expect("good").len(), 1);
        assert!(known("").expect("an empty list").is_empty());
        for bad in [
            entry("flaky", "2026-11-27"),
            entry(CAUSE, "yesterday"),
            entry(CAUSE, "2026-1-1"),
            entry(CAUSE, "2026-11-27").repeat(MAX_KNOWN + 1),
        ] {
            assert!(known(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_retry_that_is_not_listed_is_a_finding() {
        assert_eq!(unknown(&["p q: no such test".to_owned()]).expect("read"), ["p q: no such test"]);
        assert!(unknown(&[]).expect("read").is_empty());
    }
}
