//! The client does not read its response as fast as it arrives. Packets alone show it.

use crate::parts::{CausePage, ENDS, FaultPlace, PacketDoubt, PacketSigns, PictureStep, fix};
use crate::rule::{Cause, PacketCause};

pub(crate) static CAUSE: Cause =
    PacketCause { id: "client-slow-reader", place: FaultPlace::Here, packets: PACKETS, page: PAGE }.cause();

const PAGE: CausePage = CausePage {
    what: "The program that calls does not read its answer as fast as it comes: it works on what came, or does something else. Its buffer fills, its kernel \
         tells the server to stop, and the answer waits at the server although everything else is fast.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer"),
        PictureStep::To("ACK, window 0"),
        PictureStep::Wait(150.0, "the client does not read"),
        PictureStep::To("window opens"),
        PictureStep::From("answer goes on"),
    ],
    more: &[fix(
        "Node, Go, Python, JDK",
        "read in one task and work in another, with a bounded queue between them",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the client did not read the answer as fast as it came: its window closed",
    fixes: &[fix(
        "the client",
        "read on while it works with what came (another thread, a queue with room), or larger buffers (net.ipv4.tcp_rmem)",
    )],
    verify: "capture again after the change: no zero window",
    pause: Some("the window is closed"),
    of_connections: false,
    doubts: PacketDoubt::None,
};
