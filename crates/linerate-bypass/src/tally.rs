//! What this process counts for the launcher, which shows it (`linerate bypass --status`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use linerate_net::link::xdp::{BorrowerCounter, BorrowerTally};

static TALLY: OnceLock<Arc<BorrowerTally>> = OnceLock::new();
/// The counters are those of the process that this one was forked from.
static IS_CHILDS: AtomicBool = AtomicBool::new(false);

/// Counts here from now on.
pub(crate) fn begin(tally: Arc<BorrowerTally>) {
    // It is the first: a process asks for queues once.
    let _ = TALLY.set(tally);
}

/// This process was forked.
pub(crate) fn disown() {
    IS_CHILDS.store(true, Ordering::Release);
}

/// Where this process counts, if it has asked for queues.
pub(crate) fn tally() -> Option<&'static BorrowerTally> {
    TALLY.get().filter(|_| !IS_CHILDS.load(Ordering::Acquire)).map(Arc::as_ref)
}

/// Counts.
pub(crate) fn count(what: BorrowerCounter, count: usize) {
    if let Some(tally) = tally() {
        tally.add(what, count);
    }
}
