//! Sums up the output of cargo's tests.

use std::collections::BTreeSet;

use super::skips::SkippedTest;

/// Sums over all test programs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestTally {
    passed: u64,
    failed: u64,
    /// What did not run.
    pub(super) skipped: BTreeSet<SkippedTest>,
    /// What failed at first, and passed alone.
    pub(super) retried: Vec<String>,
    /// Steps that failed, tests among them.
    pub(super) failed_steps: Vec<&'static str>,
}

impl TestTally {
    /// Takes in a line of output, if it is a result. Returns the name of a test that failed.
    pub(crate) fn read<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let Some(rest) = line.strip_prefix("test result: ") else {
            let test = line.strip_prefix("test ")?;
            if let Some((name, _)) = test.split_once(" ... ignored") {
                self.skipped.insert(SkippedTest::ignored(name));
            }
            return test.strip_suffix(" ... FAILED");
        };
        for (count, word) in rest.split(['.', ';']).filter_map(|part| part.trim().split_once(' ')) {
            let Ok(n) = count.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                _ => {}
            }
        }
        None
    }

    /// Takes in the results of another part.
    pub(super) fn add(&mut self, other: &TestTally) {
        self.add_passed(other);
        self.failed += other.failed;
    }

    /// Takes in what passed; what failed runs once more.
    pub(super) fn add_passed(&mut self, other: &TestTally) {
        self.passed += other.passed;
        self.skipped.extend(other.skipped.iter().cloned());
    }

    /// Takes in what tests of a program reported as skipped. Libtest says `ok` of those.
    pub(super) fn skip(&mut self, program: &str, reports: &str, output: &str) {
        let skips = SkippedTest::read(program, reports);
        let whole: BTreeSet<&str> = skips.iter().filter_map(SkippedTest::whole_test).collect();
        let said_ok = |line: &&str| {
            let test = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ok"));
            test.is_some_and(|test| whole.contains(test))
        };
        self.passed = self.passed.saturating_sub(output.lines().filter(said_ok).count() as u64);
        self.skipped.extend(skips);
    }

    /// The closing line. A step that failed without a failed test (lints, a build) counts as one,
    /// so that the line is never good when the run is not.
    pub(super) fn line(&self) -> String {
        let steps = self.failed_steps.iter().filter(|s| **s != "tests" || self.failed == 0).count() as u64;
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed + steps, self.skipped())
    }

    /// Tests, and parts of tests, that did not run.
    fn skipped(&self) -> usize {
        self.skipped.iter().map(|skip| (&skip.test, &skip.part)).collect::<BTreeSet<_>>().len()
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

    fn tally(lines: &[&str], failed_steps: &[&'static str]) -> TestTally {
        let mut t = TestTally::default();
        for line in lines {
            t.read(line);
        }
        t.failed_steps = failed_steps.to_vec();
        t
    }

    #[test]
    fn results_are_summed_up() {
        let t = tally(&["running 12 tests", GOOD, GOOD], &[]);
        assert_eq!((t.line().as_str(), t.good()), ("24 passed, 0 failed, 0 skipped", true));
        let t = tally(&["test c::d ... ignored, takes long", GOOD, BAD], &["tests"]);
        assert_eq!((t.line().as_str(), t.good()), ("15 passed, 2 failed, 1 skipped", false));
    }

    #[test]
    fn a_skipped_test_has_not_passed() {
        let output = "test a::b ... ok\ntest a::c ... ok\ntest a::d ... FAILED\n";
        let mut t = tally(&["test result: FAILED. 2 passed; 1 failed; 0 ignored"], &[]);
        // Two reasons of one test, a part of another, and one that fails all the same.
        let reports = "a::b\t\tcurl\tno curl\na::b\t\tnode\tno node\na::c\tover uring\tio_uring\told\n\
                       a::d\t\tcurl\tno curl\n";
        t.skip("p q", reports, output);
        assert_eq!(t.line(), "1 passed, 1 failed, 3 skipped");
    }

    #[test]
    fn a_failed_test_is_named() {
        let mut t = TestTally::default();
        assert_eq!(t.read("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(t.read("test a::b ... ok"), None);
        assert_eq!(t.read(BAD), None);
    }

    #[test]
    fn the_line_is_never_better_than_the_run() {
        assert_eq!(tally(&[GOOD], &["format", "lints"]).line(), "12 passed, 2 failed, 0 skipped");
        assert_eq!(tally(&[], &["tests"]).line(), "0 passed, 1 failed, 0 skipped");
        assert_eq!(tally(&[BAD], &["tests", "tidy"]).line(), "3 passed, 3 failed, 0 skipped");
        assert!(!tally(&[], &[]).good());
    }
}
