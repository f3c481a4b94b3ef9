//! HTTP calls seen in packets, from a capture file or live. Nothing is proved here: what packets
//! show is *seen*.
//!
//! Packets go in, one after the other ([`Observer::packet`]); an [`Observation`] comes out: calls
//! with the parts of their time, what is remarkable about the segments, and what was seen to cost
//! time. [`findings::of`] says it as causes. Memory is bounded by [`CaptureLimits`], whatever the packets
//! are.
//!
//! ```
//! use linerate_explain::passive::{CaptureLimits, Observer, read};
//!
//! let no_capture = read(&b"not a capture"[..], CaptureLimits::default());
//! assert_eq!(no_capture.unwrap_err().to_string(),
//!     "it is no capture: it starts with \"not a ca\"; pcap and pcapng are read, also packed by gzip");
//! assert_eq!(Observer::new(CaptureLimits::default()).finish().sums.requests, 0);
//! ```

pub mod file;
pub mod findings;
mod flow;
#[doc(hidden)]
pub mod fuzz;
mod h2;
mod http;
pub mod limits;
pub mod live;
mod observation;
pub mod packet;
mod tls;
pub mod words;

use std::io::Read;
use std::sync::Arc;

pub use file::{CaptureFile, Ending, FileError};
pub use flow::{MarkCounts, Marks, RemarkedSegment, Tally};
pub use limits::CaptureLimits;
pub use observation::{
    BeyondTables, Carried, ClientProcess, ClientTrouble, ConnectionFault, ConnectionSummary, FaultKind,
    Handshake, LateSegments, Note, Observation, ObservedCall, ObservedPool, Packets, StreamLimit, Sums,
    TlsAccess, Traced, TroubleCount,
};
pub use packet::{LinkType, Packet};
pub use tls::{KeyLog, KeyLogError};

use flow::{Flows, Lately};
use packet::{Skip, segment};

/// Collects packets into an observation.
#[derive(Debug)]
pub struct Observer {
    flows: Flows,
    packets: Packets,
    /// The packets of the windows before this one.
    earlier: Packets,
    /// The last packet's time.
    last_ns: i64,
    /// Only connections with this port, when set.
    port: Option<u16>,
    /// The last packets, by which one that was captured twice is known.
    last: Lately,
}

impl Observer {
    /// An observer without packets.
    pub fn new(limits: CaptureLimits) -> Observer {
        Observer {
            flows: Flows::new(limits),
            packets: Packets::default(),
            earlier: Packets::default(),
            last_ns: i64::MIN,
            port: None,
            last: Lately::default(),
        }
    }

    /// Reads the contents of TLS connections whose keys are in this key log.
    #[must_use]
    pub fn with_keys(mut self, keys: Option<Arc<KeyLog>>) -> Observer {
        self.flows.set_keys(keys);
        self
    }

    /// Looks only at connections that have this port at one end.
    #[must_use]
    pub fn only_port(mut self, port: Option<u16>) -> Observer {
        self.port = port;
        self
    }

    /// The next packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        // Before 1970, or beyond the year 2116, no packet was sent: a damaged time must not
        // overflow what is added up.
        let packet = &Packet { time_ns: packet.time_ns.clamp(0, i64::MAX / 2), ..*packet };
        let p = &mut self.packets;
        p.all += 1;
        p.bytes += u64::from(packet.wire_len);
        p.first_ns.get_or_insert(packet.time_ns);
        p.backwards += u64::from(packet.time_ns < self.last_ns);
        (p.last_ns, self.last_ns) = (packet.time_ns, packet.time_ns);
        p.cut += u64::from(packet.data.len() < packet.wire_len as usize);
        match segment(packet) {
            Ok(s) => {
                p.tcp += 1;
                if self.last.is_again(&s, packet.time_ns) {
                    p.twice += 1;
                    return;
                }
                if self.port.is_none_or(|port| s.src.port() == port || s.dst.port() == port) {
                    self.flows.segment(&s, packet.time_ns);
                }
            }
            Err(Skip::NotTcp) => p.other += 1,
            Err(Skip::Fragment) => p.fragments += 1,
            Err(Skip::Malformed) => p.malformed += 1,
            Err(Skip::Link(number)) => p.unknown_link = Some(number),
        }
    }

    /// That many packets were lost before they could be captured.
    pub fn dropped(&mut self, packets: u64) {
        self.packets.dropped += packets;
    }

    /// Packets and requests so far.
    pub fn progress(&self) -> (u64, u64) {
        (self.packets.all + self.earlier.all, self.flows.requests())
    }

    /// Ends a window: what was seen in it, and the calls of each client process where they are
    /// counted.
    fn end_window(&mut self, now_ns: i64) -> (Observation, Vec<ClientProcess>) {
        let (seen, clients) = self.flows.end_window(now_ns);
        let packets = std::mem::take(&mut self.packets);
        self.earlier.add(&packets);
        (Observation { packets, ..seen }, clients)
    }

    /// The whole observation. A call that is still open, without its complete response, counts as
    /// unanswered.
    pub fn finish(self) -> Observation {
        let mut packets = self.earlier;
        packets.add(&self.packets);
        Observation { packets, ..self.flows.finish() }
    }
}

/// Reads a whole capture file.
///
/// # Errors
/// The file is not a capture, or cannot be read. A capture that is truncated or damaged in its
/// middle is not an error: the part before counts, and [`Observation::ending`] says so.
pub fn read(input: impl Read, limits: CaptureLimits) -> Result<Observation, FileError> {
    read_with(input, limits, None, None)
}

/// As [`read`], but only connections with that port at one end, and with the keys of TLS sessions.
///
/// # Errors
/// As [`read`].
pub fn read_with(
    input: impl Read,
    limits: CaptureLimits,
    port: Option<u16>,
    keys: Option<Arc<KeyLog>>,
) -> Result<Observation, FileError> {
    let mut file = CaptureFile::open(input)?;
    let mut observer = Observer::new(limits).only_port(port).with_keys(keys);
    while let Some(packet) = file.next_packet()? {
        observer.packet(&packet);
    }
    Ok(Observation { ending: file.ending().cloned(), ..observer.finish() })
}

#[cfg(test)]
mod tests;
