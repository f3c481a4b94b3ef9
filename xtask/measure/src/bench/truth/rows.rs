//! All rows of docs/LOAD-TRUTH.md.

use super::way::TruthWay;
use super::{contents, secure, streams, ways};

/// All rows, in the order of the table.
pub(crate) fn all() -> impl Iterator<Item = &'static TruthWay> {
    let http1 = [ways::DOWN, ways::SILENT, ways::ENDS, ways::BYTES, ways::REFUSALS];
    let http2 =
        [streams::RESETS, streams::ENDS, streams::BROKEN, contents::ODD, contents::SLOW, contents::SAID];
    http1.into_iter().chain(http2).chain([secure::ALL]).flatten()
}
