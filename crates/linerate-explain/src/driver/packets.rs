//! Captures the packets of our own calls. Nothing is read while a call is being made, nor between
//! calls while the kernel has room for them: reading would leave its traces in the caches, and in
//! the times of what follows.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::capture::{Capture, CaptureError, CaptureOptions};

use crate::call::Call;
use crate::packets::{Seen, Sorter};
use crate::passive::{LinkType, Packet};

/// Bytes kept of a packet. Reason: its headers and an ordinary message's head; the rest would only
/// fill the ring.
const SNAP: u32 = 1024;
/// How long packets may take to reach the ring after the last call. Reason: the kernel passes on a
/// partly filled block within 10 ms.
const LAST: Duration = Duration::from_millis(30);

/// Bytes that calls may have moved before their packets are taken. Reason: the ring has 32 MiB, and
/// a small segment takes more room there than it has bytes.
const UNTAKEN: u64 = 4 << 20;
/// Longest time that calls may take before that, however little they send. Reason: every 10 ms with
/// a packet in them take a block of the ring, and it has 256.
const UNTAKEN_FOR: Duration = Duration::from_secs(1);

/// A capture and what it has given.
#[derive(Debug)]
pub(super) struct Recorder {
    capture: Capture,
    sorter: Sorter,
    /// Bytes moved since packets were taken last.
    moved: u64,
    /// How long calls took since then.
    spent: Duration,
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
        Ok(Recorder {
            capture: Capture::open(&options)?,
            sorter: Sorter::new(),
            moved: 0,
            spent: Duration::ZERO,
        })
    }

    /// These calls were made.
    pub(super) fn made<'a>(&mut self, calls: impl IntoIterator<Item = &'a Call>) {
        for call in calls {
            call.local.into_iter().for_each(|local| self.sorter.ours(local));
            self.moved += call.facts.bytes_received + call.facts.bytes_acked;
            self.spent += call.total;
        }
        if self.moved > UNTAKEN || self.spent > UNTAKEN_FOR {
            self.take();
        }
    }

    fn take(&mut self) {
        let sorter = &mut self.sorter;
        (self.moved, self.spent) = (0, Duration::ZERO);
        // A capture that fails shows what it has.
        let _ = self.capture.next(Duration::ZERO, |p| {
            sorter.packet(&Packet {
                time_ns: p.time_ns,
                link: LinkType::Raw,
                data: p.data,
                wire_len: p.wire_len,
            });
        });
    }

    /// The packets of all calls.
    pub(super) fn finish(mut self) -> Seen {
        std::thread::sleep(LAST);
        // One turn takes as many blocks as the ring has.
        self.take();
        self.sorter.dropped(self.capture.dropped());
        self.sorter.finish()
    }
}
