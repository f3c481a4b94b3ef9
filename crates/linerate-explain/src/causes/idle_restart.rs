//! After a pause a connection starts slowly again: the sender forgets its window (RFC 5681, section
//! 4.1).
//!
//! Experiment: the same call on the same connection, after a pause of more than a second and right
//! after the one before.

use std::time::Duration;

use crate::call::Call;
use crate::evidence::{Grounds, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, not_moved};
use crate::signs::congestion;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "idle-restart",
    title: "after a pause the connection starts slowly again: the server's kernel forgets how much the path takes",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A connection that rested for a while forgets how much the path takes (RFC 2861) and begins with ten packets again, as a new one does. \
         Callers that come every few seconds meet it each time, although they keep their connection.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request, after a pause"),
        PictureStep::From("10 packets"),
        PictureStep::Wait(40.0, "a round trip"),
        PictureStep::To("ACKs"),
        PictureStep::From("20 packets"),
    ],
    more: &[fix("Windows, macOS", "no switch: keep the connection busy, or the answers small")],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Linux servers",
        change: "net.ipv4.tcp_slow_start_after_idle=0, or net.ipv4.tcp_congestion_control=bbr",
    },
    RuleFix {
        software: "any client",
        change: "fewer connections that are busier, so that none rests for long",
    },
];

/// Longer than a few retransmission timeouts, each of which halves the window.
const PAUSE: Duration = Duration::from_millis(1_300);

fn wants(record: &Record) -> Vec<Block> {
    let applies = congestion::may_limit(record) && record.reused().len() >= 2 && record.settings.may_repeat;
    if !applies || record.tried(Experiment::Idle) {
        return Vec::new();
    }
    let lane = Lane::Kept(Experiment::Idle.first_lane());
    let probe = |arm: u8| {
        let mut probe =
            CallProbe { writes: record.settings.writes, ..CallProbe::plain(Experiment::Idle, arm, lane) };
        // The arm without the pause is the change: what is lost is what the pause takes.
        probe.pause = if arm == 0 { PAUSE } else { Duration::ZERO };
        Probe::Call(Box::new(probe))
    };
    // One connection, alternating: the call after a pause warms it for the other.
    let mut open =
        CallProbe { writes: record.settings.writes, ..CallProbe::plain(Experiment::Idle, 2, lane) };
    open.pause = Duration::ZERO;
    let open = Probe::Call(Box::new(open));
    vec![vec![
        open.clone(),
        open,
        probe(0),
        probe(1),
        probe(0),
        probe(1),
        probe(0),
        probe(1),
        probe(0),
        probe(1),
    ]]
}

fn trial(record: &Record) -> Option<Trial> {
    fn all(call: &Call) -> Duration {
        call.send + call.wait + call.receive
    }
    record.trial(Experiment::Idle, "without a pause before the call", "right after the call before it", all)
}

fn judge(record: &Record) -> Judgement {
    let Some(trial) = trial(record) else { return Judgement::Silent };
    if !trial.moved(0.7 * record.rtt_ms()) {
        let words = format!(
            "after a pause of {:.1} s a call takes {}, without one {}",
            PAUSE.as_secs_f64(),
            say(trial.before_ms()),
            say(trial.after_ms())
        );
        return not_moved(&trial, 0.7 * record.rtt_ms(), &words);
    }
    let words = format!(
        "after a pause of {:.1} s the answer takes {}, right after another {}",
        PAUSE.as_secs_f64(),
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    Judgement::Named(Box::new(Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words)))
}
