//! Errors of creating a box.

use std::io;

use crate::conditions::ConditionsError;

/// Why the box could not be created.
#[derive(Debug, thiserror::Error)]
pub enum NetBoxError {
    /// The conditions are invalid.
    #[error(transparent)]
    Conditions(#[from] ConditionsError),
    /// The system refused an operation.
    #[error("{what}: {error}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
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
