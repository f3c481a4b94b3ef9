//! Captures the packets of our own calls. Nothing is read while a call is being made: the kernel keeps them until it is over.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::capture::{Capture, CaptureError, CaptureOptions};

use crate::call::Call;
use crate::packets::{Packets, Sorter};
use crate::passive::{LinkType, Packet};
use crate::shown::Arms;

/// Bytes kept of a packet. Reason: its headers and an ordinary message's head; the rest would only fill the ring.
const SNAP: u32 = 1024;
/// How long packets may be on their way into the ring when all calls are over. Reason: a part-filled block is handed over within
/// 10 ms.
const LAST: Duration = Duration::from_millis(30);

/// A capture and what it has given.
#[derive(Debug)]
pub(super) struct Recorder {
    capture: Capture,
    sorter: Sorter,
}

impl Recorder {
    /// On the interface that leads to the server.
    pub(super) fn open(to: SocketAddr) -> Result<Recorder, CaptureError> {
        let options = CaptureOptions {
            towards: Some(to.ip()),
            port: Some(to.port()),
            snap: Some(SNAP),
            ..CaptureOptions::default()
        };
        Ok(Recorder { capture: Capture::open(&options)?, sorter: Sorter::new() })
    }

    /// These calls were made. What the kernel has of them so far is taken.
    pub(super) fn made<'a>(&mut self, calls: impl IntoIterator<Item = &'a Call>) {
        calls.into_iter().filter_map(|c| c.local).for_each(|local| self.sorter.ours(local));
        self.take(Duration::ZERO);
    }

    fn take(&mut self, wait: Duration) {
        let sorter = &mut self.sorter;
        // A capture that fails shows what it has.
        let _ = self.capture.next(wait, |p| {
            sorter.packet(&Packet {
                time_ns: p.time_ns,
                link: LinkType::Raw,
                data: p.data,
                wire_len: p.wire_len,
            });
        });
    }

    /// What was seen of these calls.
    pub(super) fn finish(mut self, call: &Call, arms: Option<&Arms>) -> Packets {
        std::thread::sleep(LAST);
        // Some blocks may be waiting: one turn takes as many as the ring has.
        self.take(Duration::ZERO);
        self.sorter.dropped(self.capture.dropped());
        self.sorter.finish(call, arms)
    }
}
