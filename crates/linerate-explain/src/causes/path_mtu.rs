//! Packets of full size vanish on the path, and no router reports it (a path-MTU black hole).
//!
//! Symptom: the handshake works, small messages pass, large ones hang. Experiment: smaller segments
//! (TCP_MAXSEG) in paired runs with unchanged calls, if a packet of full size can have been sent at
//! all.

use std::time::Duration;

use crate::arms::singles;
use crate::call::{Call, CallStage, Why, ms};
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded};
use crate::signs::disorder::Usual;
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

use linerate_tls::Variant;

pub(crate) static CAUSE: Cause = Cause {
    id: "path-mtu",
    title: "packets of full size vanish on the way without a word (path-MTU black hole)",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Segments,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "Somewhere on the way packets must be smaller than the senders believe, and the message that says so (ICMP \"too big\") does not arrive. \
         Small packets pass, so connections open and requests arrive; full ones vanish, again and again. The call hangs.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::LostFrom("full packet"),
        PictureStep::Wait(4000.0, "sent again, and lost again"),
        PictureStep::LostFrom("full packet again"),
    ],
    more: &[
        fix("macOS", "sudo ifconfig IF mtu 1280 to test it; black holes are detected by default"),
        fix(
            "Windows",
            "netsh interface ipv4 set subinterface IF mtu=1280 store=active to test it; EnablePMTUBHDetect",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "firewalls",
        change: "let ICMP \"fragmentation needed\" and ICMPv6 \"packet too big\" through",
    },
    RuleFix {
        software: "tunnels (VPN, PPPoE, overlay networks)",
        change: "clamp the MSS to the path's MTU (nft ... tcp option maxseg size set rt mtu), or lower the interface's MTU",
    },
    RuleFix { software: "Linux", change: "net.ipv4.tcp_mtu_probing=1 at both ends" },
];

/// Segments that pass nearly everywhere: IPv6 guarantees 1280 bytes of packet.
pub(crate) const SMALL: u32 = 1000;
/// And those that pass even where 1000 do not (RFC 9293: 536).
pub(crate) const SMALLEST: u32 = 536;
/// A stall that mends itself by probing takes this long at least.
const STALL_MS: f64 = 600.0;

/// Room for a packet's headers (IPv6, TCP with timestamps). A message that fits into a small packet
/// together with them cannot be lost for its size.
const HEADERS: u64 = 100;
/// A call that may hang again is waited for this many times what one with smaller segments takes.
const CONTROL_TIMES: u32 = 5;
/// And that long besides.
const CONTROL_MORE: Duration = Duration::from_millis(700);

/// Calls that connected and then hung, and those that stood still for a long time within.
fn stuck(record: &Record) -> Vec<&Call> {
    let usual = usual(record);
    record.observed().filter(|c| hangs(c, &usual)).collect()
}

fn usual(record: &Record) -> Usual {
    Usual::of(record, &record.observed().collect::<Vec<_>>())
}

/// It timed out, or stood still while segments were missing. Those that others overtook are not: the
/// server takes that long.
fn hangs(c: &Call, usual: &Usual) -> bool {
    let hung = c.failure().is_some_and(|f| f.why == Why::TimedOut && f.stage != CallStage::Connect);
    let stood = ms(c.longest_gap().max(c.wait)) > STALL_MS;
    let missing = c.facts.total_retrans + c.facts.rcv_ooopack > 0 && usual.may_have_lost(c);
    hung || stood && missing
}

/// Whether a packet of full size can have been sent at all. Calls to a loopback address use no
/// path. Messages that fit into the smaller segments leave in the same packets with them.
fn plausible(record: &Record) -> Result<(), String> {
    if record.is_loopback() {
        return Err("a loopback address has no path that could lose large packets".to_owned());
    }
    let answered = record.calls().filter_map(|(_, c)| c.answer().map(|_| c.facts.bytes_received)).max();
    let request = record.settings.body_bytes + HEADERS;
    match answered {
        Some(answer) if answer.max(request) + HEADERS < u64::from(SMALL) => Err(format!(
            "neither the request nor the answer ({answer} bytes) fills a packet that a path could be too narrow for"
        )),
        _ => Ok(()),
    }
}

fn wants(record: &Record) -> Vec<Block> {
    let observed = record.observed().count();
    let stuck = stuck(record).len();
    let enough = stuck == 0 || 2 * stuck < observed || !record.settings.may_repeat;
    if enough || record.given_up.contains(&Experiment::Segment) || plausible(record).is_err() {
        return Vec::new();
    }
    let probe = |arm: u8, bytes: Option<u32>| {
        let mut probe = CallProbe::plain(Experiment::Segment, arm, Lane::Fresh);
        probe.writes = record.settings.writes;
        probe.levers.max_segment = bytes;
        // A resumed handshake has no certificate, which may be what is too large.
        if record.settings.tls.is_some() {
            probe.tls = Variant::Full;
        }
        probe
    };
    let small = record.arm(Experiment::Segment, 1);
    if !record.tried(Experiment::Segment) {
        return singles(vec![Probe::Call(Box::new(probe(1, Some(SMALL))))]);
    }
    let tried = record.calls().filter(|(p, _)| p.experiment == Experiment::Segment).count();
    if tried > 1 || small.is_empty() {
        return Vec::new();
    }
    // Paired with unchanged calls: a server that hung only at first responds to those as well.
    let took = small.iter().map(|c| c.total).max().unwrap_or_default();
    let mut control = probe(0, None);
    control.patience = (CONTROL_TIMES * took + CONTROL_MORE).min(control.patience);
    let control = Probe::Call(Box::new(control));
    let small = |arm, bytes| Probe::Call(Box::new(probe(arm, Some(bytes))));
    vec![vec![control.clone(), small(1, SMALL), control, small(2, SMALLEST), small(1, SMALL)]]
}

/// Calls of an arm, answered or not: how many there are, and how many of them hung.
fn arm(record: &Record, arm: u8) -> (usize, usize) {
    let cut = |c: &Call| c.failure().is_some_and(|f| f.why == Why::Cut);
    let calls =
        record.calls().filter(|(p, c)| p.experiment == Experiment::Segment && p.arm == arm && !cut(c));
    let usual = usual(record);
    calls.fold((0, 0), |(all, hung), (_, c)| (all + 1, hung + usize::from(hangs(c, &usual))))
}

fn judge(record: &Record) -> Judgement {
    let stuck = stuck(record);
    if stuck.is_empty() {
        return Judgement::Silent;
    }
    if let Err(why) = plausible(record) {
        return excluded(why);
    }
    let small: Vec<&Call> = [1, 2].into_iter().flat_map(|arm| record.arm(Experiment::Segment, arm)).collect();
    let tried = arm(record, 1).0 + arm(record, 2).0;
    if tried == 0 {
        return Judgement::Open(if record.settings.may_repeat {
            format!(
                "unclear: {} of {} calls hang once they are connected; calls with smaller segments (TCP_MAXSEG) would tell",
                stuck.len(),
                record.observed().count()
            )
        } else {
            "calls hang after the handshake; telling a path-MTU black hole needs them repeated (--repeat-unsafe)".to_owned()
        });
    }
    let took = median_of(&small, |c| c.total);
    let hung = median(&stuck.iter().map(|c| ms(c.total)).collect::<Vec<_>>());
    if small.len() * 2 < tried || took > hung / 3.0 {
        return excluded(format!("smaller segments (TCP_MAXSEG {SMALL}) do not help either"));
    }
    let (controls, hung_again) = arm(record, 0);
    if controls == 0 {
        return Judgement::Open(
            "unclear: smaller segments are answered where calls hung before; 2 calls with nothing changed between them would tell"
                .to_owned(),
        );
    }
    if hung_again < controls {
        return excluded(format!(
            "with nothing changed {} of {controls} calls between those with smaller segments were answered, too",
            controls - hung_again
        ));
    }
    let words = format!(
        "{} of {} calls hang ({} and no further); with segments of {SMALL} bytes {} of {tried} are answered, in {}, and between them \
         {hung_again} of {controls} with nothing changed hang again",
        stuck.len(),
        record.observed().count(),
        say(hung),
        small.len(),
        say(took)
    );
    let share = if small.len() == tried && controls >= 2 { 1.0 } else { 0.5 };
    let verdict = Verdict::new(&CAUSE, hung - took, Grounds::Counted { words, share });
    Judgement::Named(Box::new(if share < 1.0 { verdict.at_most(Proof::Likely) } else { verdict }))
}
