//! The times and attempts recorded for a request in flight.

use linerate_net::Time;

/// When a request was due and left. Requests that left together share one (a run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When it was first handed to the wire.
    pub sent: Time,
    /// When it was due; in a closed loop the same as `sent`.
    pub due: Time,
    /// Times it went out while the server did nothing on the connection.
    pub in_vain: u8,
    /// Refusals in a row by the peer, with no other response in between.
    pub refused: u8,
    /// Whether it left after the warm-up.
    pub measured: bool,
}

impl Stamp {
    /// Whether it has waited for so long.
    pub fn expired(&self, now: Time, timeout_ns: u64) -> bool {
        now.nanos_since(self.sent) >= timeout_ns
    }
}
