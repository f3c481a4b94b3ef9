//! Segments of calls that came late.

/// Segments with data that came late, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateSegments {
    /// Lost, and sent again.
    pub lost: u64,
    /// Taken for lost when they came again: more than `lost`, where the first ones came after all.
    pub told: u64,
    /// Overtaken on the way by segments that were sent after them.
    pub overtaken: u64,
    /// Sent again though the first had arrived.
    pub needless: u64,
}

impl LateSegments {
    /// Adds other counts.
    pub(crate) fn add(&mut self, other: LateSegments) {
        self.lost += other.lost;
        self.told += other.told;
        self.overtaken += other.overtaken;
        self.needless += other.needless;
    }
}
