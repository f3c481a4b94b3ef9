//! Responses wait behind earlier ones on their connection. Packets alone show it.

use crate::parts::{CausePage, ENDS, FaultPlace, PacketDoubt, PacketSigns, PictureStep, fix};
use crate::rule::{Cause, PacketCause};

pub(crate) static CAUSE: Cause =
    PacketCause { id: "head-of-line", place: FaultPlace::Here, packets: PACKETS, page: PAGE }.cause();

const PAGE: CausePage = CausePage {
    what: "Several requests were sent on one connection without waiting (pipelining). HTTP/1.1 wants the answers in the same order, so a quick one waits behind a slow one.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("slow request"),
        PictureStep::To("quick request"),
        PictureStep::Wait(51.0, "the quick answer waits behind the slow one"),
        PictureStep::From("slow answer"),
        PictureStep::From("quick answer"),
    ],
    more: &[fix("nginx, Node, Go, JDK", "HTTP/2 on the listener: streams overtake each other")],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "answers wait behind earlier ones on the same connection",
    fixes: &[fix("the client", "slow requests on a connection of their own, or HTTP/2")],
    verify: "linerate load URL --pipeline 1",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};
