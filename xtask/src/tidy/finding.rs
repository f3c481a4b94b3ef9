//! What the rules read, and what they say.

/// One file of the repository.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TidyFinding {
    /// File, relative to the root.
    pub(crate) path: String,
    /// Line from 1; 0 where the whole file is meant.
    pub(crate) line: usize,
    /// The rule's name, as the allow list spells it.
    pub(crate) rule: &'static str,
    /// The fault, and how to mend it.
    pub(crate) what: String,
}

impl TidyFinding {
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> TidyFinding {
        TidyFinding { path: path.into(), line, rule, what: what.into() }
    }
}
