//! What is wrong with a plan, or with the text of a part of it.

use std::fmt;

/// Why a plan, or the text of a part of it, cannot be used: a sentence that names the place and says what
/// would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPlan(String);

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidPlan {}

impl From<String> for InvalidPlan {
    fn from(why: String) -> InvalidPlan {
        InvalidPlan(why)
    }
}

impl From<&str> for InvalidPlan {
    fn from(why: &str) -> InvalidPlan {
        InvalidPlan(why.to_owned())
    }
}

impl From<InvalidPlan> for String {
    fn from(invalid: InvalidPlan) -> String {
        invalid.0
    }
}
