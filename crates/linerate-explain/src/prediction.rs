//! The predicted time of a call whose cause is fixed.

use crate::stats::Estimate;
use crate::times::CallPart;

/// The predicted time of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Which part of it.
    pub part: CallPart,
    /// Its time now, in the middle, milliseconds.
    pub before_ms: f64,
    /// Its time then, with an interval of 95 %.
    pub after: Estimate,
    /// Calls without the cause were measured; else its cost was taken off.
    pub measured: bool,
}
