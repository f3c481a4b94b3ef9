//! What can be counted.

/// A unit of work, and how to do N of it.
pub(super) struct WorkUnit {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(u64),
}
