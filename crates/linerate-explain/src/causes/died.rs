//! A connection dies: one end retransmits several times without a reply. Packets alone show it.

use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, ServerChange, fix,
};
use crate::rule::{AGAIN, Cause, Rule};
use crate::times::CallPart;

pub(crate) static CAUSE: Cause = Cause {
    id: "connection-died",
    title: PACKETS.title,
    fixes: PACKETS.fixes,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::PacketsAlone,
};

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
