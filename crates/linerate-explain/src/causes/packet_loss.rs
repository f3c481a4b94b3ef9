//! Segments get lost and are sent again.
//!
//! Evidence: kernel counters of the calls that were slow (`tcpi_total_retrans`, `tcpi_rcv_ooopack`,
//! `tcpi_dsack_dups`), and their packets. Proved when those calls own at least 80 % of all the time
//! beyond the usual. Segments that others overtook look alike in `tcpi_rcv_ooopack`
//! ([`crate::signs::disorder`]): it proves nothing alone.

use crate::call::{Call, ms};
use crate::evidence::{Exclusion, Grounds, Proof};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule};
use crate::signs::disorder::{Fate, Usual};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "packet-loss",
    title: "packets are lost on the way and have to be sent again",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: Some("lost: until it is sent again"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Spared(Call::lossy),
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "Packets get lost on the way: a full queue, a bad cable, radio. TCP repairs that by sending them again, but it has to notice first: after a \
         round trip or two where more packets follow, after a time-out of 200 ms or more where the lost one was the last.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::LostFrom("answer"),
        PictureStep::Wait(240.0, "until it is sent again"),
        PictureStep::From("answer again"),
    ],
    more: &[
        fix("macOS", "netstat -s -p tcp (retransmitted); networkQuality shows the link under load"),
        fix("Windows", "pathping HOST; netstat -s -p tcp (segments retransmitted)"),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "segments were lost and had to be sent again",
    fixes: &[fix(
        "the network",
        "look for errors and drops on the way (ethtool -S, ip -s link, a full queue)",
    )],
    verify: "linerate explain URL counts retransmissions with the kernel's own counters",
    pause: Some("lost: until it is sent again"),
    of_connections: false,
    doubts: PacketDoubt::LostSegments,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the path",
        change: "mtr or tracepath towards the server; interface counters (ethtool -S, ip -s link) at both ends; duplex, cabling, radio, shapers",
    },
    RuleFix {
        software: "Linux",
        change: "net.ipv4.tcp_congestion_control=bbr where loss is not congestion; RACK and TLP are on by default (net.ipv4.tcp_recovery)",
    },
    RuleFix {
        software: "any client",
        change: "keep connections: a lost segment on a warm one is repaired in a round trip, on a new one after a second",
    },
];

/// Loopback takes less for a round trip, even on a busy machine.
const IMITATED_MS: f64 = 1.0;

/// A call counts as slow if it takes this much longer than the usual one.
const SLOW_MS: f64 = 5.0;

/// All calls, whatever was changed about them: a lever does not lose packets.
fn all(record: &Record) -> impl Iterator<Item = &Call> {
    let held = record.held().map(|h| &h.call);
    // Other rules report lost SYNs.
    record.calls().map(|(_, c)| c).chain(record.bursts().flatten()).chain(held).filter(|c| !c.syn_again())
}

/// Segments with data that went either way.
fn segments<'a>(calls: impl Iterator<Item = &'a Call>) -> u64 {
    calls.map(|c| u64::from(c.facts.data_segs_in) + u64::from(c.facts.data_segs_out)).sum()
}

/// None of those that may be compared was lossy: what the others say.
fn elsewhere(record: &Record, usual: &Usual) -> Judgement {
    let calls = all(record).count();
    let overtaken = |c: &&Call| matches!(usual.fate(c), Some(Fate::Overtaken(_)));
    let disordered = all(record).filter(overtaken).count();
    let lossy = all(record).filter(|c| c.lossy()).count() - disordered;
    if let Some(each) = calls.checked_div(lossy) {
        return Judgement::Open(format!(
            "{lossy} of {calls} calls lost a segment, and none of them was an ordinary one whose time could be compared; {} more calls \
             would tell what that costs",
            (6 * each).max(calls)
        ));
    }
    if calls < 5 {
        return Judgement::Silent;
    }
    let sent = segments(all(record));
    let others = match disordered {
        0 => String::new(),
        n => format!("; in {n} of them segments came behind later ones, and were not lost"),
    };
    let words = format!("no segment was lost in {calls} calls with {sent} segments of data{others}");
    Judgement::RuledOut(Exclusion::none_of(sent, &words))
}

/// Calls that may be compared: as an ordinary client makes them on a kept connection, else on new
/// ones.
fn comparable(record: &Record) -> Vec<&Call> {
    let kept = record.reused().len() >= 2;
    record
        .calls()
        .filter(|(p, _)| p.is_plain() && p.experiment != Experiment::Paced)
        .filter(|(_, c)| c.answer().is_some() && !c.syn_again() && kept != c.fresh)
        .map(|(_, c)| c)
        .collect()
}

fn wants(record: &Record) -> Vec<Block> {
    // Rare losses show only in more calls. Where calls are quick, more of them cost nothing.
    let typical = record.typical(|c| c.total);
    let busy =
        record.tried(Experiment::Tail) || !record.settings.may_repeat || record.tried(Experiment::Dose);
    if busy || record.reused().len() < 2 || typical > 250.0 {
        return Vec::new();
    }
    let mut more = CallProbe::plain(Experiment::Tail, 0, Lane::Kept(0));
    more.writes = record.settings.writes;
    if record.settings.pid.is_some() && !record.settings.pid_found {
        // Intermittent work of the process takes some time to be met.
        more.pause = std::time::Duration::from_millis(25);
    }
    vec![vec![Probe::Call(Box::new(more)); if typical > 20.0 { 12 } else { 20 }]]
}

/// The quickest of calls that all lost segments, without what our kernel waited to send them again.
fn quickest(lossy: &[&Call]) -> f64 {
    let without = |c: &&Call| (ms(c.total) - f64::from(c.facts.total_rto_time_ms)).max(0.0);
    lossy.iter().map(without).fold(f64::INFINITY, f64::min)
}

/// `lossy` of `all` calls lost segments, and took no longer than the others.
fn not_slower(lossy: usize, all: usize, no_other: bool) -> String {
    if no_other {
        format!(
            "all {all} calls lost a segment, and took about as long: what one takes that loses none is not known"
        )
    } else {
        format!("{lossy} of {all} calls lost a segment; those were not slower for it, others may be")
    }
}

fn judge(record: &Record) -> Judgement {
    let calls = comparable(record);
    let known = Usual::of(record, &calls);
    // Those that others overtook are another cause's.
    let of = |fate: &dyn Fn(Option<Fate>) -> bool| -> Vec<&Call> {
        calls.iter().copied().filter(|c| fate(known.fate(c))).collect()
    };
    let lossy = of(&|fate| matches!(fate, Some(Fate::Lost | Fate::Unclear)));
    let clean = of(&|fate| fate.is_none());
    if lossy.is_empty() {
        return elsewhere(record, &known);
    }
    let usual = if clean.is_empty() { quickest(&lossy) } else { known.total };
    let beyond = |calls: &[&Call]| -> Vec<f64> {
        calls.iter().map(|c| ms(c.total) - usual).filter(|t| *t > SLOW_MS).collect()
    };
    let (slow, others) = (beyond(&lossy), beyond(&clean));
    if slow.is_empty() {
        return Judgement::Open(not_slower(lossy.len(), calls.len(), clean.is_empty()));
    }
    let (owned, rest): (f64, f64) = (slow.iter().sum(), others.iter().sum());
    let retransmitted: u32 = lossy.iter().map(|c| c.facts.total_retrans).sum();
    let late: u32 = lossy.iter().map(|c| c.facts.rcv_ooopack).sum();
    let twice: u32 = lossy.iter().map(|c| c.facts.dsack_dups).sum();
    if retransmitted > 0 && twice >= retransmitted && late == 0 && record.is_machine_busy() {
        return Judgement::Open(format!(
            "{retransmitted} segments were sent again though the first had arrived; on a machine as busy as this one an \
             acknowledgement is late rather than lost"
        ));
    }
    // Where nothing is lost on the way, only segments that we had to send again are evidence. A loopback
    // with a long round trip imitates a network (tc-netem), which may lose some.
    let is_here = record.is_loopback() && record.rtt_ms() < IMITATED_MS;
    if is_here && twice >= retransmitted {
        return Judgement::Open(format!(
            "in {} of {} calls segments came out of order ({late}) or twice ({twice}): over loopback a busy machine delays or \
             reorders them rather than loses them",
            lossy.len(),
            calls.len()
        ));
    }
    let words = format!(
        "{} of {} calls lost segments ({retransmitted} sent again by us, {late} received out of order); they took {} longer than the \
         {} {}",
        lossy.len(),
        calls.len(),
        say(median(&slow)),
        if clean.is_empty() { "quickest of them, less its time-outs:" } else { "usual" },
        say(usual)
    );
    let mut verdict =
        Verdict::new(&CAUSE, median(&slow), Grounds::Counted { words, share: owned / (owned + rest) })
            .saying(format!(
                "calls with lost segments own {:.0} % of all the time beyond the usual",
                100.0 * owned / (owned + rest)
            ));
    if lossy.iter().all(|c| known.fate(c) == Some(Fate::Unclear)) {
        verdict = unsure(verdict);
    }
    if clean.is_empty() {
        verdict = without_others(verdict);
    }
    Judgement::Named(Box::new(with_times(verdict, &lossy, twice)))
}

/// What else the kernel says of the calls that lost segments; `twice` segments arrived twice at the server.
fn with_times(mut verdict: Verdict, lossy: &[&Call], twice: u32) -> Verdict {
    let waited: u32 = lossy.iter().map(|c| c.facts.total_rto_time_ms).sum();
    if waited > 0 {
        verdict = verdict.saying(format!("our kernel waited {waited} ms for retransmission time-outs"));
    }
    if twice > 0 {
        verdict = verdict.saying(format!(
            "{twice} segments arrived twice at the server: there the answer was lost, not the request"
        ));
    }
    verdict
}

/// No call was spared, so none can be compared with.
fn without_others(verdict: Verdict) -> Verdict {
    verdict
        .at_most(Proof::Likely)
        .saying("every call lost segments, so what one takes without a loss is not known")
}

/// The kernel's count of segments out of order is all there is.
fn unsure(verdict: Verdict) -> Verdict {
    verdict.at_most(Proof::Likely).saying(
        "the kernel counts segments that came out of order: behind lost ones, or because others overtook them; the packets of the calls \
         would tell (--capture auto, with CAP_NET_RAW)",
    )
}
