//! What is wrong with a scenario, a check or a command.

/// Why a scenario, a check or a command cannot be used: a sentence that names the place and says what
/// would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLab(pub(crate) String);
