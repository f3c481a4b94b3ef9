//! A queue on the path is full of other packets, and ours wait in it.
//!
//! Symptom: a handshake, which involves no server program, takes much longer than the shortest
//! round trip. Experiment: more handshakes, one after the other. A queue fills and drains steadily:
//! its delay changes little from one handshake to the next and much within seconds. Hiccups of a
//! radio or a machine come one by one. Evidence: a call on a new connection waits for its response
//! as long as its own handshake took, so the network causes the wait.

use crate::call::ms;
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded};
use crate::signs::path::{self, CHANCE, Path, SIGN_MS};
use crate::signs::scattered;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "bufferbloat",
    title: "a queue on the way is full: packets wait in it behind others' (bufferbloat)",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::Slower,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A queue on the way is long and full: somebody sends more than the link takes, and the router keeps it all instead of dropping early. Every packet \
         waits at the end of that queue, so each round trip takes long, for everybody.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(116.0, "in the queue before the narrow link"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "macOS, Windows",
        "the sender's system does not matter much: mend the router, or send less at a time",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Linux routers",
        change: "tc qdisc replace dev IF root cake bandwidth RATE, a little below the link's rate, or fq_codel: a queue per flow, kept short",
    },
    RuleFix {
        software: "OpenWrt, home and office routers",
        change: "Smart Queue Management (sqm-scripts) on the link to the provider, both directions",
    },
    RuleFix {
        software: "Linux senders",
        change: "net.ipv4.tcp_congestion_control=bbr, which keeps the queue short; net.core.default_qdisc=fq",
    },
    RuleFix {
        software: "whoever fills it",
        change: "bulk transfers below the link's rate (rsync --bwlimit, rclone --bwlimit, nginx limit_rate), or at another time",
    },
    RuleFix {
        software: "switches and routers with ECN",
        change: "AQM with marking, and net.ipv4.tcp_ecn=1 at both ends",
    },
];

/// Handshakes that are made one after the other where their times differ.
const HANDSHAKES: usize = 24;

fn wants(record: &Record) -> Vec<Block> {
    let times = path::handshakes(record);
    let most = times.iter().copied().fold(0.0, f64::max);
    let differ = times.len() >= 3 && most - record.rtt_ms() >= SIGN_MS;
    // Where calls are slow now and then, whether handshakes are tells the path from the server.
    let now_and_then = || scattered::slow(record).is_some_and(|slow| slow.is_often());
    if record.is_loopback()
        || !(differ || now_and_then())
        || !record.settings.may_repeat
        || record.connects().len() >= HANDSHAKES
    {
        return Vec::new();
    }
    vec![vec![Probe::Connect(record.chosen()); HANDSHAKES]]
}

/// Where programs compete for this machine's processors, a queue adds at least so much to the middle
/// handshake. Reason: its kernel handles packets late then (by up to 18 ms in the middle, where two
/// processors had 4 to 8 programs each).
const CONTENDED_MS: f64 = 30.0;

/// Of what calls on new connections wait beyond the least round trip, the share that their own
/// handshakes took as well.
fn share(record: &Record, least: f64) -> f64 {
    let beyond = |t| (ms(t) - least).max(0.0);
    let calls: Vec<(f64, f64)> =
        path::clean(record).iter().map(|c| (beyond(c.syn_round_trip()), beyond(c.wait))).collect();
    let waited: f64 = calls.iter().map(|c| c.1).sum();
    calls.iter().map(|(connect, wait)| connect.min(*wait)).sum::<f64>() / waited.max(1e-6)
}

fn judge(record: &Record) -> Judgement {
    if record.is_loopback() {
        return excluded("a loopback address has no queue on the way");
    }
    let Some(path) = Path::of(record) else {
        let times = path::handshakes(record);
        let most = times.iter().copied().fold(0.0, f64::max);
        return if times.len() >= 3 && most - record.rtt_ms() < SIGN_MS {
            excluded(format!("{} handshakes took {} at most", times.len(), say(most)))
        } else {
            Judgement::Silent
        };
    };
    let range = format!("between {} and {}", say(path.low), say(path.high));
    if !path.varies() {
        return excluded(format!("{} handshakes took {range}", path.samples));
    }
    let chance = path.chance();
    if chance > CHANCE {
        return Judgement::Open(format!(
            "{} handshakes took {range}, and each another time than the one before it: hiccups of a radio, a router or this machine \
             rather than a queue that fills; ping over some minutes would show it",
            path.samples
        ));
    }
    let added = path.typical - path.least;
    if record.is_contended() && added < CONTENDED_MS {
        return Judgement::Open(format!(
            "unclear: {} handshakes took {range} ({} in the middle), and other programs compete for this machine's processors, which delays \
             its kernel's packets as well; a quieter machine would tell",
            path.samples,
            say(path.typical)
        ));
    }
    let share = share(record, path.least);
    let words = format!(
        "{} handshakes, which take no server program, took {range} ({} in the middle); the least round trip was {}, and calls waited \
         for their answers as long as their handshakes took ({:.0} % of the wait beyond it)",
        path.samples,
        say(path.typical),
        say(path.least),
        100.0 * share.min(1.0)
    );
    let steady = format!(
        "each takes about as long as the one before it, which chance alone does in {} of 1000 cases (von Neumann's ratio on ranks): a \
         queue that fills and drains",
        (1000.0 * chance).ceil()
    );
    let least =
        "a queue that never empties hides the network's own round trip, so this is the least that it costs";
    let verdict = Verdict::new(&CAUSE, added, Grounds::Counted { words, share });
    Judgement::Named(Box::new(verdict.saying(steady).saying(least)))
}
