//! The server refuses connections. Packets alone show it.

use crate::parts::{
    CONNECTIONS_OPEN, CausePage, ENDS, FaultPlace, NO_CONNECTION_FIXES, PacketDoubt, PacketSigns,
    PictureStep, fix,
};
use crate::rule::{Cause, PacketCause};

pub(crate) static CAUSE: Cause =
    PacketCause { id: "connection-refused", place: FaultPlace::Machine, packets: PACKETS, page: PAGE }
        .cause();

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
    fixes: NO_CONNECTION_FIXES,
    verify: CONNECTIONS_OPEN,
    pause: None,
    of_connections: true,
    doubts: PacketDoubt::None,
};
