//! The server ends the connection before its response is whole. Packets alone show it.

use crate::parts::{CausePage, ENDS, FaultPlace, PacketDoubt, PacketSigns, PictureStep, fix};
use crate::rule::{Cause, PacketCause};

pub(crate) static CAUSE: Cause =
    PacketCause { id: "response-cut", place: FaultPlace::Process, packets: PACKETS, page: PAGE }.cause();

const PAGE: CausePage = CausePage {
    what: "The connection ends before the answer is whole: the server, or something between, resets or closes it. Its client sees \"connection reset\", \
         an unexpected end, or an answer that is too short. A worker that crashes, is killed or runs into a time-out does that, and so does a \
         proxy whose time is over.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, first part"),
        PictureStep::Wait(30.0, "the worker ends"),
        PictureStep::From("reset (RST)"),
    ],
    more: &[fix(
        "clients",
        "count it as failed: an answer without its end is not one; repeat what is idempotent",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "answers were cut short, or none came: the server ended their connections",
    fixes: &[
        fix(
            "the server",
            "what it logged then: a worker that crashed or was killed (out of memory, its supervisor's time-out), a limit on the answer's time or \
         size, a Content-Length that is larger than the content",
        ),
        fix(
            "proxies, balancers, firewalls",
            "their time-outs and limits; a reset whose TTL differs from that of the server's other packets is theirs",
        ),
    ],
    verify: "capture again after the change: the connections open, and end with a FIN",
    pause: None,
    of_connections: true,
    doubts: PacketDoubt::None,
};
