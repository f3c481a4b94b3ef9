//! What can go wrong when a box is made.

use std::io;

use crate::conditions::ConditionsError;

/// Why there is no box.
#[derive(Debug, thiserror::Error)]
pub enum NetBoxError {
    /// The conditions cannot be.
    #[error(transparent)]
    Conditions(#[from] ConditionsError),
    /// The system refused something.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What it said.
        error: io::Error,
    },
    /// A thread of the box ended before it was ready.
    #[error("the {0} thread ended before it was ready")]
    Ended(&'static str),
}

impl NetBoxError {
    pub(crate) fn io(what: &str, error: io::Error) -> NetBoxError {
        NetBoxError::Io { what: what.to_owned(), error }
    }
}
