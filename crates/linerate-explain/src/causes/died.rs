//! A connection dies: one end retransmits several times without a reply. Packets alone show it.

use crate::parts::{
    CONNECTIONS_OPEN, CausePage, ENDS, FaultPlace, NO_CONNECTION_FIXES, PacketDoubt, PacketSigns,
    PictureStep, fix,
};
use crate::rule::{Cause, PacketCause};

pub(crate) static CAUSE: Cause =
    PacketCause { id: "connection-died", place: FaultPlace::Network, packets: PACKETS, page: PAGE }.cause();

const PAGE: CausePage = CausePage {
    what: "One end sends the same packet again and again and hears nothing any more: the other end, or something between that remembers connections \
         (NAT, a firewall), went away without a word.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::LostTo("request again"),
        PictureStep::LostTo("request again"),
        PictureStep::Wait(4000.0, "nothing comes back"),
    ],
    more: &[
        fix(
            "Linux",
            "net.ipv4.tcp_keepalive_time below the time-out of what is between; TCP_USER_TIMEOUT in the program",
        ),
        fix("macOS, Windows", "SO_KEEPALIVE with TCP_KEEPALIVE / SIO_KEEPALIVE_VALS"),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "connections died: one end sent the same again and again and heard nothing any more",
    fixes: NO_CONNECTION_FIXES,
    verify: CONNECTIONS_OPEN,
    pause: None,
    of_connections: true,
    doubts: PacketDoubt::None,
};
