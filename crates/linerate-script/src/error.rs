//! Errors.

/// Options that make no sense, or that there are none of here: what is wrong, and a hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOptions(pub(crate) String);
