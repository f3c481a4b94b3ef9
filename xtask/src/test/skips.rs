//! Tests that did not run: what they report (crate `linerate-skips`), and which of them CI accepts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use xtask::shell;

/// The file that names what CI may lack.
const ACCEPTED: &str = "xtask/skips.toml";

/// Most needs that a machine of CI may lack. Reason: with more, the tests say little.
const MAX_ACCEPTED: usize = 10;

/// Needs that a machine of CI must meet: without them whole transports and commands go untested.
const NEVER: [&str; 5] = ["capture", "namespaces", "nats-server", "root", "xdp"];

/// Names that the list shows of one need.
const MAX_SHOWN: usize = 12;

/// A test, or a part of one, that this machine could not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SkippedTest {
    /// What is missing, as the committed list names it.
    pub(super) need: String,
    pub(super) why: String,
    /// The test program and its test, or a step.
    pub(super) test: String,
    /// Empty: the whole test.
    pub(super) part: String,
}

impl SkippedTest {
    /// A step, or a part of one, that does not run without a program.
    pub(crate) fn step(step: &str, part: &str, program: &str) -> SkippedTest {
        let (test, part) = (step.to_owned(), part.to_owned());
        SkippedTest { need: program.to_owned(), why: format!("{program} is not installed"), test, part }
    }

    /// Reads the lines that tests of a program wrote.
    pub(super) fn read(program: &str, text: &str) -> BTreeSet<SkippedTest> {
        let skip = |line: &str| {
            let mut fields = line.splitn(4, '\t').map(str::to_owned);
            let (test, part) = (fields.next()?, fields.next()?);
            let (need, why) = (fields.next()?, fields.next()?);
            Some(SkippedTest { need, why, test: format!("{program}: {test}"), part })
        };
        // A line that is not one is shown rather than lost.
        let odd = |line: &str| SkippedTest {
            need: "a report".into(),
            why: format!("not understood: {line}"),
            test: program.into(),
            part: line.into(),
        };
        text.lines().map(|line| skip(line).unwrap_or_else(|| odd(line))).collect()
    }

    /// A test with the attribute, which libtest does not run.
    pub(super) fn ignored(test: &str) -> SkippedTest {
        let (need, why) = ("#[ignore]".to_owned(), "marked so".to_owned());
        SkippedTest { need, why, test: test.to_owned(), part: String::new() }
    }

    /// The test's name in its program, if none of it ran.
    pub(super) fn whole_test(&self) -> Option<&str> {
        self.test.split_once(": ").map(|(_, test)| test).filter(|_| self.part.is_empty())
    }

    fn name(&self) -> String {
        if self.part.is_empty() { self.test.clone() } else { format!("{} ({})", self.test, self.part) }
    }
}

/// What did not run, one need and reason a line.
pub(super) fn list(skips: &BTreeSet<SkippedTest>) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for skip in skips {
        groups.entry((&skip.need, &skip.why)).or_default().push(skip.name());
    }
    let line = |((need, why), names): ((&str, &str), Vec<String>)| {
        let more = match names.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let shown = names.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        format!("{need} ({why}), {} skipped: {shown}{more}", names.len())
    };
    groups.into_iter().map(line).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    accept: Vec<SkipEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipEntry {
    need: String,
    reason: String,
}

/// The needs that CI may lack.
fn accepted(text: &str) -> Result<BTreeSet<String>> {
    let list: Accepted = toml::from_str(text)?;
    ensure!(list.accept.len() <= MAX_ACCEPTED, "{ACCEPTED} has more than {MAX_ACCEPTED} entries");
    for SkipEntry { need, reason } in &list.accept {
        ensure!(!NEVER.contains(&need.as_str()), "{ACCEPTED}: {need} must not be skipped");
        ensure!(reason.len() > 10, "{ACCEPTED}: {need} has no reason");
    }
    Ok(list.accept.into_iter().map(|entry| entry.need).collect())
}

/// Whether a skip that is not accepted is a failure: where the machine can be expected to have all.
pub(super) fn strict() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true") && shell::is_root()
}

/// Needs that are skipped and that the committed list does not accept.
pub(super) fn refused(skips: &BTreeSet<SkippedTest>) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(shell::root().join(ACCEPTED)).context(ACCEPTED)?;
    let accepted = accepted(&text)?;
    let needs: BTreeSet<&String> = skips.iter().map(|skip| &skip.need).collect();
    Ok(needs.into_iter().filter(|need| !accepted.contains(*need)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a::b\t\tcurl\tcurl is not installed\na::c\tover uring\tio_uring\told kernel\n\
                        a::b\t\tcurl\tcurl is not installed\n";

    #[test]
    fn reports_are_read_once_each_and_listed_by_need() {
        let skips = SkippedTest::read("p q", TEXT);
        assert_eq!(skips.len(), 2);
        assert_eq!(
            list(&skips),
            [
                "curl (curl is not installed), 1 skipped: p q: a::b",
                "io_uring (old kernel), 1 skipped: p q: a::c (over uring)",
            ]
        );
        assert!(list(&SkippedTest::read("p", "half a line"))[0].contains("not understood: half a line"));
        let many: String = (0..40).map(|n| format!("t{n}\t\tx\ty\n")).collect();
        assert!(list(&SkippedTest::read("p", &many))[0].ends_with("and 28 more"));
    }

    #[test]
    fn the_committed_list_is_short_and_names_nothing_that_must_run() {
        let text = std::fs::read_to_string(shell::root().join(ACCEPTED)).expect("it is there");
        assert!(!accepted(&text).expect("a list").is_empty());
        let entry = |need: &str| format!("[[accept]]\nneed = \"{need}\"\nreason = \"a good reason\"\n");
        assert_eq!(accepted(&entry("curl")).expect("good").len(), 1);
        for never in NEVER {
            assert!(accepted(&entry(never)).is_err(), "{never}");
        }
        assert!(accepted(&entry("x").repeat(MAX_ACCEPTED + 1)).is_err());
        assert!(accepted("[[accept]]\nneed = \"curl\"\nreason = \"\"\n").is_err());
    }
}
