//! The threads of a run before they start, and how they share what the plan says.

use std::sync::Arc;

use linerate_net::link::pcap::PcapFile;

use crate::engine::board::Board;
use crate::route::Names;
use crate::start::Work;

/// Threads to be started and the boards they write on.
pub(crate) struct Works {
    pub(crate) works: Vec<Work>,
    pub(crate) boards: Vec<Arc<Board>>,
    /// Whether each thread has a core of its own.
    pub(crate) pinned: bool,
    /// Whether each thread may have a table of descriptors of its own, which makes system calls cheaper.
    pub(crate) own_descriptors: bool,
    /// A warning for the user.
    pub(crate) warning: Option<String>,
    /// Where packets are written down.
    pub(crate) capture: Option<Arc<PcapFile>>,
    /// The target's name, if it can be looked up again.
    pub(crate) names: Option<Arc<Names>>,
}

/// Part `nth` of `whole` cut into `parts` nearly equal ones.
pub(super) fn share(whole: u64, nth: u32, parts: u32) -> u64 {
    whole / u64::from(parts) + u64::from(u64::from(nth) < whole % u64::from(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (whole, parts) in [(0, 1), (1, 3), (10, 3), (100, 7)] {
            assert_eq!((0..parts).map(|nth| share(whole, nth, parts)).sum::<u64>(), whole);
        }
    }
}
