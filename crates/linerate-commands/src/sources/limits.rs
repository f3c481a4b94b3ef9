//! Limits of sources, with their reasons.

/// Bytes of a HAR. Reason: a HAR contains whole responses, so it gets large; a larger file is the
/// wrong one.
pub(super) const MAX_HAR_BYTES: u64 = 512 << 20;

/// Bytes of an OpenAPI description. Reason: the largest public ones have about 15 MiB.
pub(super) const MAX_OPENAPI_BYTES: u64 = 64 << 20;

/// Bytes of a line in a log. Reason: servers cut request lines off at about 8 KiB; a longer line is
/// not a log line.
pub(super) const MAX_LOG_LINE: usize = 64 << 10;

/// Requests taken from a log. Reason: each costs twelve bytes of memory, and the time of its
/// reading.
pub(super) const MAX_LOG_REQUESTS: usize = 10_000_000;

/// Names that a log's requests are grouped under. Reason: a report with more lines is unreadable.
pub(super) const MAX_LOG_NAMES: usize = 24;

/// Things named in a note before "and N more".
pub(super) const LISTED: usize = 12;

/// References followed, and schemas nested, in an OpenAPI description. Reason: they may refer to
/// themselves.
pub(super) const MAX_SCHEMA_DEPTH: usize = 24;

/// Depth down to which properties that are not required are made. Reason: deeper ones double the
/// size with each level.
pub(super) const OPTIONAL_DEPTH: usize = 3;

/// Schemas looked at for one value. Reason: nested choices multiply.
pub(super) const MAX_SCHEMA_STEPS: usize = 10_000;

/// Items of an array, and characters of a string, made from a schema.
pub(super) const MAX_SAMPLE_LENGTH: u64 = 10_000;
