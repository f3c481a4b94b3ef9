//! A new connection meets the server's memory of the previous one between the same addresses and
//! ports (TIME_WAIT, a minute): behind a NAT, from a fixed source port, or where ports are reused
//! too soon.
//!
//! Symptom: a SYN is retransmitted long before the second that a lost one takes. Our kernel does
//! that only when the reply acknowledges what it did not send (RFC 9293, section 3.10.7.3): it
//! resets that connection and tries again after some milliseconds. Experiment: the same from source
//! ports that the system does not choose by itself, which were not used lately. With a full accept
//! queue, or a path that loses SYNs, the port makes no difference.

use super::syn_loss;
use crate::arms::singles;
use crate::call::{Call, ms};
use crate::evidence::Grounds;
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;
use linerate_base::Random;

pub(crate) static CAUSE: Cause = Cause {
    id: "time-wait-collision",
    title: "new connections meet what the server still remembers of the last ones from the same ports (TIME_WAIT)",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Spared(Call::syn_again),
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A connection is known by its addresses and ports. After it was closed, the server remembers it for a minute. When a new one comes with the same \
         ports (many callers behind one NAT address), the server takes its SYN for something old, and answers with what makes the caller reset and ask again.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN, from a port used before"),
        PictureStep::From("ACK of the old connection"),
        PictureStep::To("RST"),
        PictureStep::Wait(12.0, "until the SYN is sent again"),
        PictureStep::To("SYN again"),
        PictureStep::From("SYN, ACK"),
    ],
    more: &[fix("Windows", "TcpTimedWaitDelay at the server; a wider range of ports at the NAT gateway")],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the connection's ports had just been used: the server still remembers the last connection between them",
    fixes: &[
        fix(
            "NAT, load balancers",
            "more source addresses and a longer time before a port is used again (at least the server's 60 s of TIME_WAIT); no randomising or \
                 rewriting of timestamps",
        ),
        fix("the client", "keep connections; no fixed source port; net.ipv4.tcp_timestamps=1"),
        fix("the server", "let the client close first (keep-alive): then TIME_WAIT is on its side"),
    ],
    verify: "linerate explain URL tries ports that nobody used",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "NAT gateways, SNAT in Kubernetes and load balancers",
        change: "more source addresses or ports, and none used again within the server's 60 s of TIME_WAIT; iptables MASQUERADE --random-fully",
    },
    RuleFix {
        software: "firewalls",
        change: "no rewriting of TCP timestamps or sequence numbers: by them the server knows that a SYN is new",
    },
    RuleFix {
        software: "the callers",
        change: "keep connections; no fixed source port; net.ipv4.tcp_timestamps=1; a wide net.ipv4.ip_local_port_range",
    },
    RuleFix {
        software: "the server",
        change: "let callers close first (keep-alive, no Connection: close): TIME_WAIT is then on their side; never tcp_tw_recycle (Linux before 4.12)",
    },
];

/// Calls of each arm.
const CALLS: usize = 6;
/// Ports above the range that Linux takes by itself unless told otherwise (32768 to 60999).
const PORTS: std::ops::RangeInclusive<u16> = 61_000..=65_535;
/// A smaller difference is not a cause, milliseconds: the kernel waits at least two ticks before it
/// tries again.
const LEAST_MS: f64 = 2.0;

/// New connections of calls without a change: those that collided, and all.
fn met(record: &Record) -> (Vec<&Call>, usize) {
    let plain = record.calls().filter(|(p, _)| p.levers.source_port.is_none()).map(|(_, c)| c);
    let fresh: Vec<&Call> = plain.chain(record.bursts().flatten()).filter(|c| c.fresh).collect();
    let all = fresh.len();
    (fresh.into_iter().filter(|c| c.collided()).collect(), all)
}

fn wants(record: &Record) -> Vec<Block> {
    let again = record.tried(Experiment::SourcePort) || !record.settings.may_repeat;
    if again || met(record).0.is_empty() {
        return Vec::new();
    }
    let mut ports: Vec<u16> = PORTS.collect();
    Random::new(record.settings.seed).shuffle(&mut ports);
    let probe = |port: Option<u16>| {
        let mut probe = CallProbe::plain(Experiment::SourcePort, u8::from(port.is_some()), Lane::Fresh);
        probe.writes = record.settings.writes;
        probe.levers.source_port = port;
        Probe::Call(Box::new(probe))
    };
    singles(ports.into_iter().take(CALLS).flat_map(|port| [probe(None), probe(Some(port))]).collect())
}

fn judge(record: &Record) -> Judgement {
    let (collided, all) = met(record);
    if collided.is_empty() {
        return Judgement::Silent;
    }
    let trial = record.trial(
        Experiment::SourcePort,
        "source ports that were not used lately",
        "the source port, chosen where the system takes none by itself",
        |c| c.connect,
    );
    let others = record.arm(Experiment::SourcePort, 1);
    if others.iter().filter(|c| c.collided()).count() * 2 > others.len() {
        return Judgement::Open(
            "SYNs are answered by an ACK of other numbers from every source port: a firewall that tries callers that way does so; \
             look between it and the server"
                .to_owned(),
        );
    }
    let times: Vec<f64> = collided.iter().map(|c| ms(c.connect)).collect();
    let cost = (median(&times) - record.rtt_ms()).max(0.0);
    let words = format!(
        "{} of {all} new connections had to send their SYN again, and did so sooner than a lost one allows: they took {}, a round trip is {}",
        collided.len(),
        say(median(&times)),
        say(record.rtt_ms())
    );
    let grounds = match trial.filter(|t| t.moved(LEAST_MS)) {
        Some(trial) => Grounds::Moved(trial),
        None => Grounds::Seen { words: words.clone(), alone: others.is_empty() || collided.len() * 2 > all },
    };
    let moved = matches!(grounds, Grounds::Moved(_));
    let verdict = Verdict::new(&CAUSE, cost, grounds);
    Judgement::Named(Box::new(if moved { verdict.saying(words) } else { verdict }))
}

/// The evidence in packets of our calls: the number of SYNs followed by a bare ACK of another connection.
/// A client that then waits for a second (Linux did before 5.8) cannot distinguish that from a lost
/// SYN; its packets can.
pub(crate) fn seen_in_packets(causes: &mut [Verdict], collisions: u64) {
    if collisions == 0 {
        return;
    }
    let words = format!(
        "in the packets {collisions} SYNs were answered by a bare ACK of other numbers, and our kernel reset that connection"
    );
    for verdict in causes {
        if verdict.id() == CAUSE.id {
            *verdict = verdict.clone().saying(words.clone());
        } else if verdict.names(&syn_loss::CAUSE) {
            let grounds = Grounds::Seen { words: words.clone(), alone: true };
            *verdict = Verdict::new(&CAUSE, verdict.cost_ms(), grounds).predicting(verdict.predicted());
        }
    }
}
