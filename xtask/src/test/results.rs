//! Sums up the output of cargo's tests.

/// Sums over all test programs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Steps that failed, tests among them.
    pub(super) failed_steps: Vec<&'static str>,
}

impl Tally {
    /// Takes in a line of output, if it is a result. Returns the name of a test that failed.
    pub(crate) fn read<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let Some(rest) = line.strip_prefix("test result: ") else {
            return line.strip_prefix("test ")?.strip_suffix(" ... FAILED");
        };
        for (count, word) in rest.split(['.', ';']).filter_map(|part| part.trim().split_once(' ')) {
            let Ok(n) = count.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                "ignored" => self.ignored += n,
                _ => {}
            }
        }
        None
    }

    /// Takes in the results of another part.
    pub(super) fn add(&mut self, other: &Tally) {
        self.add_passed(other);
        self.failed += other.failed;
    }

    /// Takes in what passed; what failed runs once more.
    pub(super) fn add_passed(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.ignored += other.ignored;
    }

    /// The closing line. A step that failed without a failed test (lints, a build) counts as one,
    /// so that the line is never good when the run is not.
    pub(super) fn line(&self) -> String {
        let steps = self.failed_steps.iter().filter(|s| **s != "tests" || self.failed == 0).count() as u64;
        let ignored = if self.ignored == 0 { String::new() } else { format!(", {} ignored", self.ignored) };
        format!("{} passed, {} failed{ignored}", self.passed, self.failed + steps)
    }

    /// Whether no test failed and at least one ran.
    pub(crate) fn good(&self) -> bool {
        self.failed == 0 && self.failed_steps.is_empty() && self.passed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.40s";
    const BAD: &str =
        "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.2s";

    fn tally(lines: &[&str], failed_steps: &[&'static str]) -> Tally {
        let mut t = Tally::default();
        for line in lines {
            t.read(line);
        }
        t.failed_steps = failed_steps.to_vec();
        t
    }

    #[test]
    fn results_are_summed_up() {
        let t = tally(&["running 12 tests", GOOD, GOOD], &[]);
        assert_eq!((t.line().as_str(), t.good()), ("24 passed, 0 failed", true));
        let t = tally(&[GOOD, BAD], &["tests"]);
        assert_eq!((t.line().as_str(), t.good()), ("15 passed, 2 failed, 1 ignored", false));
    }

    #[test]
    fn a_failed_test_is_named() {
        let mut t = Tally::default();
        assert_eq!(t.read("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(t.read("test a::b ... ok"), None);
        assert_eq!(t.read(BAD), None);
    }

    #[test]
    fn the_line_is_never_better_than_the_run() {
        assert_eq!(tally(&[GOOD], &["format", "lints"]).line(), "12 passed, 2 failed");
        assert_eq!(tally(&[], &["tests"]).line(), "0 passed, 1 failed");
        assert_eq!(tally(&[BAD], &["tests", "tidy"]).line(), "3 passed, 3 failed, 1 ignored");
        assert!(!tally(&[], &[]).good());
    }
}
