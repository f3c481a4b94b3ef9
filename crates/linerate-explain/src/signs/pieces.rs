//! A response that comes in many pieces.

use crate::call::ms;
use crate::record::Record;
use crate::stats::median;

/// Pieces from which on they are many.
pub(crate) const MANY: usize = 16;
/// Beyond a round trip, which Nagle's algorithm holds a piece back for, milliseconds.
const PAUSE_MS: f64 = 5.0;

/// Pauses between the pieces of a response, milliseconds, where no round trip explains them: the
/// server makes them, for example because it responds word by word, unless it waits for our
/// acknowledgements.
pub(crate) fn apart_ms(record: &Record) -> Option<f64> {
    let pauses: Vec<f64> = record
        .group()
        .iter()
        .flat_map(|c| c.receives.windows(2))
        .map(|w| ms(w[1].at.saturating_sub(w[0].at)))
        .collect();
    let own = pauses.len() > MANY && median(&pauses) > 1.5 * record.rtt_ms() + PAUSE_MS;
    own.then(|| median(&pauses))
}
