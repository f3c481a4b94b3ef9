//! Segments get lost within this machine: a queueing discipline, the ring of an interface, the input queue,
//! the table of tracked connections or a receive buffer has no room for them.
//!
//! Evidence: once a call has lost segments, the kernel's counters are read before and after each further
//! one. Proved when a counter grew in nearly all calls that lost segments, and in others hardly ever.

use std::collections::BTreeMap;

use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, nothing};
use crate::stats::{median, more_often};
use crate::times::CallPart;
use crate::verdict::Verdict;

pub(crate) static CAUSE: Cause = Cause {
    id: "local-drops",
    title: "this machine itself drops packets of the calls, and they have to be sent again",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Here,
    part: CallPart::Call,
    pause: Some("dropped here: until it is sent again"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Spared(Call::lossy),
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "Packets can get lost before they leave the machine, or after they have reached it: a queueing discipline with a small limit, the ring of an interface, \
         the kernel's input queue, a full table of tracked connections, a receive buffer. On the wire that looks like any loss, and the network is searched in vain. \
         The kernel counts where it drops.",
    lanes: ENDS,
    picture: &[
        PictureStep::LostTo("request: dropped here"),
        PictureStep::Wait(240.0, "until it is sent again"),
        PictureStep::To("request again"),
        PictureStep::From("answer"),
    ],
    more: &[fix("Windows", "netsh trace start capture=yes report=yes; pktmon counters")],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "a queueing discipline",
        change: "tc -s qdisc shows its drops: a larger limit, fq_codel or fq instead of a short pfifo; no netem left over from a test",
    },
    RuleFix {
        software: "an interface's ring",
        change: "ethtool -g shows its size, ethtool -G IF rx N makes it larger",
    },
    RuleFix {
        software: "the kernel's input queue",
        change: "net.core.netdev_max_backlog and netdev_budget higher; interrupts spread over processors (RSS, RPS)",
    },
    RuleFix {
        software: "tracked connections",
        change: "net.netfilter.nf_conntrack_max higher, shorter time-outs, or notrack rules for such traffic",
    },
    RuleFix {
        software: "receive buffers",
        change: "net.ipv4.tcp_rmem higher; no small SO_RCVBUF in the program",
    },
];

/// Calls with lost segments from which on their counters tell.
const LEAST: usize = 3;
/// Calls with lost segments from which on counters that never grew rule it out.
const ENOUGH: usize = 6;
/// A call is slow that takes this much longer than those that lose none, milliseconds.
const SLOW_MS: f64 = 5.0;
/// Share of them in which a counter grew.
const NEARLY_ALL: f64 = 0.8;
/// How likely chance may be to have done it.
const CHANCE: f64 = 0.01;

/// Calls of which the counters are known, by whether they lost segments.
fn watched(record: &Record) -> (Vec<&Call>, Vec<&Call>) {
    let calls = record.calls().map(|(_, c)| c).filter(|c| c.drops_here.is_some() && !c.syn_again());
    calls.partition(|c| c.lossy())
}

fn dropped(call: &Call, place: &str) -> Option<u64> {
    let drops = call.drops_here.as_deref().unwrap_or_default();
    drops.iter().find(|drop| drop.place == place).map(|drop| drop.packets)
}

/// The place that dropped in most of the calls that lost segments, and in how many of them.
fn place<'a>(lossy: &[&'a Call]) -> Option<(&'a str, usize)> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for drop in lossy.iter().filter_map(|c| c.drops_here.as_deref()).flatten() {
        *places.entry(drop.place.as_str()).or_default() += 1;
    }
    places.into_iter().max_by_key(|(_, calls)| *calls)
}

fn judge(record: &Record) -> Judgement {
    let (lossy, clean) = watched(record);
    if lossy.len() < LEAST {
        return Judgement::Silent;
    }
    let Some((place, calls)) = place(&lossy) else {
        let words = format!(
            "in {} calls that lost segments no counter of this machine grew (queueing disciplines, interfaces, softnet, tracked connections, receive \
             buffers; a firewall's rules do not count)",
            lossy.len()
        );
        return if lossy.len() >= ENOUGH {
            excluded(words)
        } else {
            Judgement::Open(format!("unclear: {words}"))
        };
    };
    let elsewhere = clean.iter().filter(|c| dropped(c, place).is_some()).count();
    let share = calls as f64 / lossy.len() as f64;
    let chance = more_often(calls, lossy.len(), elsewhere, clean.len());
    let packets: u64 = lossy.iter().filter_map(|c| dropped(c, place)).sum();
    let words = format!(
        "{place} dropped {packets} packets in {calls} of {} calls that lost segments, and some in {elsewhere} of {} others",
        lossy.len(),
        clean.len()
    );
    if share < NEARLY_ALL / 2.0 || elsewhere > 0 && chance > CHANCE {
        return Judgement::Open(format!("unclear: {words}"));
    }
    let usual = median_of(&clean, |c| c.total);
    let beyond: Vec<f64> = lossy.iter().map(|c| (ms(c.total) - usual).max(0.0)).collect();
    // Some are repaired at once, and cost nothing.
    let slow: Vec<f64> = beyond.iter().copied().filter(|t| *t > SLOW_MS).collect();
    let cost = if slow.is_empty() { median(&beyond) } else { median(&slow) };
    let counted = Grounds::Counted { words, share };
    let verdict = Verdict::new(&CAUSE, cost, counted);
    let sure = share >= NEARLY_ALL && chance <= CHANCE;
    Judgement::Named(Box::new(if sure { verdict } else { verdict.at_most(Proof::Likely) }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{DropCount, ProbeResponse};
    use crate::probe::{CallProbe, Experiment, Lane, Observation, Probe};
    use crate::record::Settings;

    /// The judgement on calls: whether each lost a segment, and whether a counter grew in it.
    fn judged(calls: &[(bool, bool)]) -> Judgement {
        let mut record = Record::new(Settings::default());
        for (lossy, grew) in calls {
            let end = Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() }));
            let total = Duration::from_millis(if *lossy { 240 } else { 40 });
            let mut call = Call { total, end, ..Call::default() };
            call.facts.total_retrans = u32::from(*lossy);
            let drop = DropCount { place: "the queueing discipline of eth0".to_owned(), packets: 1 };
            call.drops_here = Some(if *grew { vec![drop] } else { Vec::new() });
            let probe = CallProbe::plain(Experiment::Tail, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        judge(&record)
    }

    #[test]
    fn a_counter_that_grows_with_each_loss_proves_it() {
        let clean = [(false, false); 12];
        let calls = [&clean[..], &[(true, true); 4]].concat();
        let found = judged(&calls);
        assert!(
            matches!(&found, Judgement::Named(v) if v.proof() == Proof::Proved && v.cost_ms() == 200.0),
            "{found:?}"
        );
        // Others drop as well: nothing is known.
        for others in [&[(false, true); 12][..], &[(false, true); 6]] {
            let found = judged(&[others, &[(true, true); 3]].concat());
            assert!(matches!(found, Judgement::Open(_)), "{found:?}");
        }
        let found = judged(&[&clean[..], &[(true, false); 6]].concat());
        assert!(matches!(found, Judgement::RuledOut(_)), "{found:?}");
        assert_eq!(judged(&clean), Judgement::Silent);
        let some =
            judged(&[&clean[..], &[(true, true), (true, false), (true, true), (true, false)]].concat());
        assert!(matches!(&some, Judgement::Named(v) if v.proof() == Proof::Likely), "{some:?}");
    }
}
