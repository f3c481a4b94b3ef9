//! Every limit of this crate, with its reason.

/// Rows of the text histogram. Reason: it must fit a screen together with the rest of the summary.
pub const HISTOGRAM_ROWS: usize = 10;

/// Statuses listed one by one in the summary; the rest are added up. Reason: a fuzzing server can
/// send 900 of them.
pub const STATUSES: usize = 8;

/// Bad responses printed in the summary (all kept samples are in the JSON). Reason: the first few
/// show the cause.
pub const BAD_SAMPLES: usize = 3;

/// Lines of a bad response's head that are printed. Reason: the status line and a few fields
/// suffice; a page of cookies does not help.
pub const HEAD_LINES: usize = 4;

/// Lines of a bad response's body that are printed. Reason: an error page says why in its first lines.
pub const BODY_LINES: usize = 6;

/// Request names listed in the summary; the rest are in the JSON. Reason: one screen.
pub const NAMES: usize = 20;

/// Width at which the summary and the live view stop growing. Reason: longer bars add no
/// information.
pub const WIDTH: u16 = 100;

/// Width below which the live view gives way to plain lines. Reason: its lines would be cut.
pub const LEAST_WIDTH: u16 = 60;

/// Responses that must lie beyond a percentile before it is printed without a mark. Reason: with
/// fewer, a single slow response moves it.
pub const BEYOND: f64 = 10.0;

/// Receives of a call that its document lists. Reason: the first ones show the rhythm; a large
/// response has thousands.
pub const RECEIVES: usize = 200;

/// Causes that are read of a document to compare with. Reason: a diagnosis names a few.
pub const BASELINE_CAUSES: usize = 64;

/// Times that are read of each part. Reason: a diagnosis makes 90 calls at most.
pub const BASELINE_TIMES: usize = 1_000;

/// Rounds that are read of a saved comparison. Reason: a comparison has a thousand at most.
pub const ROUNDS: usize = 1_000;

/// Points of a page's pictures over time, and rows of their table. Reason: ten minutes have a point
/// for each second, and a page of any run stays under 2 MB.
pub const PAGE_POINTS: usize = 600;

/// Columns of a page's heat map. Reason: on a phone more of them are narrower than a pixel.
pub const HEAT_COLUMNS: usize = 150;

/// Rows of a page's tables of statuses, failures and requests. Reason: a replayed log has thousands
/// of requests.
pub const PAGE_ROWS: usize = 200;

/// Slow and bad requests on a page. Reason: the first ones show the cause; the document has all.
pub const PAGE_SAMPLES: usize = 30;

/// The summary names how late the last response was if that is more than this part of the time of
/// sending. Reason: below it, nothing that is divided by either differs visibly.
pub const LATE_PART: u32 = 20;
