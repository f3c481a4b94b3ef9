//! Segments overtake each other on the way: nothing is lost, and what comes first waits.
//!
//! Evidence: the packets of the calls that were slow (a segment behind later ones with an older
//! timestamp, or sooner than a round trip), the kernel's own count for what we send
//! (`tcpi_reord_seen`, `tcpi_dsack_dups`), or that the call was late by less than a round trip.

use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::Experiment;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, nothing};
use crate::signs::disorder::{Fate, Usual};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "reordering",
    title: "packets overtake each other on the way: what comes first waits for what was sent first",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: Some("until what was sent before it comes"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Spared(Call::lossy),
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "Packets of one connection take different ways, or wait in different queues, and come in another order than they were sent. TCP hands on \
         nothing before what was sent first is there, so what came first waits. When a packet is late by much, its sender takes it for lost, \
         sends it again for nothing, and slows down. In the kernel's counters that looks like loss; the timestamps in the packets tell.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, second packet"),
        PictureStep::Wait(20.0, "it cannot be read before the first one"),
        PictureStep::From("answer, first packet"),
    ],
    more: &[
        fix("macOS", "netstat -s -p tcp (out-of-order packets, duplicate packets)"),
        fix(
            "Wi-Fi, mobile networks",
            "the link repairs its own losses later than what follows: a driver or firmware that keeps the order",
        ),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "segments overtook each other on the way: what comes first waits for what was sent first",
    fixes: &[
        fix(
            "the network",
            "several links or queues that share the packets of one connection: hash by connection, not by packet (bonding: xmit_hash_policy \
             layer3+4, not balance-rr; routers: per-flow load sharing)",
        ),
        fix(
            "Linux, as the sender",
            "RACK allows for it (net.ipv4.tcp_recovery=1); net.ipv4.tcp_reordering and tcp_max_reordering raise what it bears before it sends \
             again and slows down",
        ),
        fix(
            "network cards",
            "packets of one connection in one queue: RSS by ports; no flow director that moves flows (ethtool -K ntuple)",
        ),
    ],
    verify: "capture again after the change: no segment comes behind later ones",
    pause: Some("until what was sent before it comes"),
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the path",
        change: "several links or queues that share the packets of one connection: hash by connection, not by packet (bonding: xmit_hash_policy layer3+4, not balance-rr; routers: per-flow load sharing)",
    },
    RuleFix {
        software: "Linux, as the sender",
        change: "RACK allows for it (net.ipv4.tcp_recovery=1); net.ipv4.tcp_reordering and tcp_max_reordering raise what it bears before it sends again and slows down",
    },
];

/// A call counts as slow if it takes this much longer than the usual one.
const SLOW_MS: f64 = 5.0;

fn judge(record: &Record) -> Judgement {
    let kept = record.reused().len() >= 2;
    let calls: Vec<&Call> = record
        .calls()
        .filter(|(p, _)| p.is_plain() && p.experiment != Experiment::Paced)
        .filter(|(_, c)| c.answer().is_some() && !c.syn_again() && kept != c.fresh)
        .map(|(_, c)| c)
        .collect();
    let known = Usual::of(record, &calls);
    let late = |c: &&&Call| matches!(known.fate(c), Some(Fate::Overtaken(_)));
    let overtaken: Vec<&Call> = calls.iter().filter(late).copied().collect();
    if overtaken.is_empty() {
        return Judgement::Silent;
    }
    let beyond = |calls: &[&Call]| -> Vec<f64> {
        calls.iter().map(|c| ms(c.total) - known.total).filter(|t| *t > SLOW_MS).collect()
    };
    let slow = beyond(&overtaken);
    let count = format!("in {} of {} calls segments came behind later ones", overtaken.len(), calls.len());
    if slow.is_empty() {
        return Judgement::Open(format!("a note and no cause: {count}; those were not slower for it"));
    }
    let clean: Vec<&Call> = calls.iter().filter(|c| known.fate(c).is_none()).copied().collect();
    let (owned, rest): (f64, f64) = (slow.iter().sum(), beyond(&clean).iter().sum());
    let share = owned / (owned + rest);
    let words = format!(
        "{count}, and were not lost; they took {} longer than the usual {}",
        say(median(&slow)),
        say(known.total)
    );
    let shown = overtaken.iter().any(|c| known.fate(c) == Some(Fate::Overtaken(true)));
    let cost = median(&slow);
    let verdict = match shown {
        true => Verdict::new(&CAUSE, cost, Grounds::Counted { words, share }).saying(format!(
            "their packets show it ({} segments): what came late had been sent before what overtook it; those calls own {:.0} % of all the time \
             beyond the usual",
            overtaken.iter().filter_map(|c| c.late).map(|late| late.overtaken).sum::<u64>(),
            100.0 * share
        )),
        false => Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: true }).at_most(Proof::Likely).saying(
            "what is sent again comes a round trip later, and they were late by less; their packets would prove it (--capture auto, with \
             CAP_NET_RAW)",
        ),
    };
    Judgement::Named(Box::new(verdict))
}
