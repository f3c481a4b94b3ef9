//! The server refuses connections. Packets alone show it.

use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, ServerChange, fix,
};
use crate::rule::{AGAIN, Cause, Rule};
use crate::times::CallPart;

pub(crate) static CAUSE: Cause = Cause {
    id: "connection-refused",
    title: PACKETS.title,
    fixes: PACKETS.fixes,
    verify: AGAIN,
    place: FaultPlace::Machine,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::PacketsAlone,
};

const PAGE: CausePage = CausePage {
    what: "The server's machine answers, and says that nobody listens on that port: the program is not running, listens on another address or port, \
         or a firewall answers in its place.",
    lanes: ENDS,
    picture: &[PictureStep::To("SYN"), PictureStep::From("RST: nobody listens there")],
    more: &[
        fix("Linux", "ss -ltnp shows who listens where; nft list ruleset the firewall"),
        fix("macOS", "lsof -iTCP -sTCP:LISTEN"),
        fix("Windows", "netstat -abno; Test-NetConnection HOST -Port PORT"),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "connections were refused: nobody listens there",
    fixes: &[
        fix(
            "the server",
            "is it running, does it listen on that address and port (ss -ltn), does a firewall reset?",
        ),
        fix(
            "the network",
            "a path or a NAT entry that went away: keep-alive (SO_KEEPALIVE) shorter than its time-out",
        ),
    ],
    verify: "capture again after the change: the connections open, and end with a FIN",
    pause: None,
    of_connections: true,
    doubts: PacketDoubt::None,
};
