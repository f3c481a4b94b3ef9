//! Responses wait behind earlier ones on their connection. Packets alone show it.

use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, ServerChange, fix,
};
use crate::rule::{AGAIN, Cause, Rule};
use crate::times::CallPart;

pub(crate) static CAUSE: Cause = Cause {
    id: "head-of-line",
    title: PACKETS.title,
    fixes: PACKETS.fixes,
    verify: AGAIN,
    place: FaultPlace::Here,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::PacketsAlone,
};

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
