//! How a run of k6's command line ends.

/// k6's exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum K6Exit {
    Fine = 0,
    ThresholdsFailed = 99,
    SetupTimeout = 100,
    TeardownTimeout = 101,
    Other = 103,
    BadOptions = 104,
    Interrupted = 105,
    ScriptThrew = 107,
    ScriptAborted = 108,
    MarkedFailed = 110,
}

/// Why a run has no summary: its code, and words.
#[derive(Debug)]
pub(crate) struct K6Fault {
    pub(crate) exit: K6Exit,
    pub(crate) words: String,
}

impl K6Fault {
    pub(super) fn new(exit: K6Exit, words: impl Into<String>) -> K6Fault {
        K6Fault { exit, words: words.into() }
    }
}
