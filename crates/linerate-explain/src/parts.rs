//! What a cause is made of, beside its rule: where it is, what it costs, its texts.

use std::time::Duration;

use crate::call::Call;
use crate::local::Spent;

/// A change in one piece of software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleFix {
    /// Which software.
    pub software: &'static str,
    /// The change to make there.
    pub change: &'static str,
}

pub(crate) const fn fix(software: &'static str, change: &'static str) -> RuleFix {
    RuleFix { software, change }
}

/// Changes where connections do not open, or die.
pub(crate) const NO_CONNECTION_FIXES: &[RuleFix] = &[
    fix(
        "the server",
        "is it running, does it listen on that address and port (ss -ltn), does a firewall reset?",
    ),
    fix(
        "the network",
        "a path or a NAT entry that went away: keep-alive (SO_KEEPALIVE) shorter than its time-out",
    ),
];

/// What shows that connections open and end as they should.
pub(crate) const CONNECTIONS_OPEN: &str =
    "capture again after the change: the connections open, and end with a FIN";

/// Where something can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPlace {
    /// The machine that calls.
    Here,
    /// Everything between the two machines.
    Network,
    /// The server's machine.
    Machine,
    /// The server's process.
    Process,
    /// How the two talk: HTTP and TCP on the connection.
    Wire,
}

impl FaultPlace {
    /// From outside in.
    pub const ALL: [FaultPlace; 5] =
        [FaultPlace::Here, FaultPlace::Network, FaultPlace::Machine, FaultPlace::Process, FaultPlace::Wire];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            FaultPlace::Here => "this machine",
            FaultPlace::Network => "the network",
            FaultPlace::Machine => "the server's machine",
            FaultPlace::Process => "its process",
            FaultPlace::Wire => "the wire",
        }
    }

    /// For documents.
    pub fn name(self) -> &'static str {
        match self {
            FaultPlace::Here => "this_machine",
            FaultPlace::Network => "network",
            FaultPlace::Machine => "servers_machine",
            FaultPlace::Process => "process",
            FaultPlace::Wire => "wire",
        }
    }
}

/// The text for a reader who has never heard of the cause.
#[derive(Clone, Copy, Debug)]
pub struct CausePage {
    /// A description of the cause.
    pub what: &'static str,
    /// The two ends of the connection in the picture.
    pub lanes: [&'static str; 2],
    /// The picture, from top to bottom.
    pub picture: &'static [PictureStep],
    /// Fixes beyond those that verdicts advise.
    pub more: &'static [RuleFix],
}

/// The two ends of most pictures.
pub(crate) const ENDS: [&str; 2] = ["client", "server"];

/// A step of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PictureStep {
    /// Sent from left to right.
    To(&'static str),
    /// Sent from right to left.
    From(&'static str),
    /// Sent from left to right, and lost.
    LostTo(&'static str),
    /// Sent from right to left, and lost.
    LostFrom(&'static str),
    /// Nothing for this many milliseconds: the time that the cause costs.
    Wait(f64, &'static str),
    /// Nothing for this many milliseconds, as it must be.
    Then(f64, &'static str),
}

/// Texts for a cause that packets show.
#[derive(Clone, Copy, Debug)]
pub struct PacketSigns {
    /// One line for people.
    pub title: &'static str,
    /// Changes that remove it.
    pub fixes: &'static [RuleFix],
    /// An experiment that would prove the cause, or show that it is fixed.
    pub verify: &'static str,
    /// What a pause between two packets is then, where that can be said in a few words.
    pub pause: Option<&'static str>,
    /// It is about connections, which are counted then, not calls.
    pub of_connections: bool,
    pub(crate) doubts: PacketDoubt,
}

/// What in the packets of our own calls makes it doubtful that experiments ruled the cause out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketDoubt {
    /// Nothing.
    None,
    /// A segment that was lost and retransmitted.
    LostSegments,
    /// A call in which packets show this cause.
    Note,
}

/// The effect on a verdict when the server changed during the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerChange {
    /// Nothing: the arms that were compared differ in more than one thing.
    TakenBack,
    /// All of it: the cause lies before the server, or is such a change.
    Stands,
    /// It makes calls differ, so that unequal times tell no change.
    Unequal,
    /// It makes each call slower than the one before, too.
    Slower,
    /// It makes calls differ in time and in status.
    Refuses,
}

/// How the time of a call without the cause is predicted. Where calls of the deciding experiment
/// did without the cause, they are that time; else what it costs is taken off.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Forecast {
    /// Not at all: how much of it can be spared is not seen from outside.
    Unseen,
    /// As calls of the deciding experiment.
    Lever,
    /// The same, with a connection opened for each.
    LeverAndOpening,
    /// The same, without the pause of calls as they are.
    LeverUnpaused,
    /// The same, with what a proxy adds.
    LeverAtProxy,
    /// As calls of the experiment; else this part of each call is taken off.
    Counted(fn(&Call) -> Duration),
    /// As calls of the experiment; else as through a window that holds all of the body.
    LargeWindow,
    /// What it costs is taken off: the experiment spares more than that.
    Cost,
    /// As calls that did not meet it.
    Spared(fn(&Call) -> bool),
    /// As later calls.
    Warm,
    /// As calls with segments of other sizes.
    Segments,
    /// As calls after a lookup in a cache.
    Cached,
    /// As calls after a lookup by the name server that responds first.
    OtherNameServer,
    /// As calls after their lookup, by an address that works.
    OtherAddress,
    /// As the last of redirected calls.
    LastHop,
}

/// A part of the time of the server's process during a call; none where it was not seen.
pub(crate) fn spent(call: &Call, of: fn(&Spent) -> Duration) -> Duration {
    call.server.as_deref().map_or(Duration::ZERO, of)
}
