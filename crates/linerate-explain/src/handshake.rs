//! The TLS handshake of a call, as it was seen.

use std::time::Duration;

use linerate_tls::{ServerHandshake, Variant};

use crate::call::ms;

/// The TLS handshake of a call that opened its connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handshake {
    /// From the established connection until the request could leave.
    pub took: Duration,
    /// Of that, our own work: keys, certificates, signatures.
    pub own: Duration,
    /// Each of our flights that the server had to answer, in order.
    pub trips: Vec<Trip>,
    /// The negotiated parameters; `None` where the handshake failed.
    pub seen: Option<ServerHandshake>,
    /// The variant of our side.
    pub variant: Variant,
    /// The server gave something to resume this session by, or another one, until the call's end.
    pub given: bool,
    /// So it had before the call.
    pub given_before: bool,
}

/// A flight of ours, and the server's answer to it. Times are since the call's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trip {
    /// When ours left.
    pub sent: Duration,
    /// When the first byte of the server's came.
    pub begun: Duration,
    /// When the last one came that was needed.
    pub ended: Duration,
    /// Bytes of the server's on the wire.
    pub bytes: u64,
    /// The longest pause between two receives of it.
    pub pause: Duration,
}

impl Handshake {
    /// It resumed a session.
    pub fn is_resumed(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.is_resumed)
    }

    /// The version, such as `TLSv1.3`; empty where it failed.
    pub fn version(&self) -> &str {
        self.seen.as_ref().map_or("", |seen| seen.agreed.version.as_str())
    }

    /// Its time without our own work.
    pub fn beside_ours(&self) -> Duration {
        self.took.saturating_sub(self.own)
    }

    /// The answer to the ClientHello that has the certificates: the last one of TLS 1.3, where the
    /// server may ask for another key share first.
    fn first_flight(&self) -> Option<&Trip> {
        self.trips.get(usize::from(self.is_retried()))
    }

    /// The server asked for another key share: TLS 1.3 has a second round trip for nothing else.
    pub fn is_retried(&self) -> bool {
        self.version() == "TLSv1.3" && self.trips.len() > 1
    }

    /// From the ClientHello to the end of the server's first flight, without the longest pause
    /// within it.
    pub fn hello(&self) -> Duration {
        self.first_flight().map_or(Duration::ZERO, |t| t.ended.saturating_sub(t.sent + t.pause))
    }

    /// From the first byte of the server's first flight to its last.
    pub fn flight(&self) -> Duration {
        self.first_flight().map_or(Duration::ZERO, |t| t.ended.saturating_sub(t.begun))
    }

    /// Bytes of the server's first flight.
    pub fn flight_bytes(&self) -> u64 {
        self.first_flight().map_or(0, |t| t.bytes)
    }

    /// Time of a second round trip, milliseconds.
    pub fn second_trip_ms(&self) -> Option<f64> {
        self.trips.get(1).map(|t| ms(t.ended.saturating_sub(t.sent)))
    }
}
