//! The round trip differs from one packet to the next: a radio, a VPN, a shared line.
//!
//! Symptom: handshakes, which take no server program, take very different times, in no order: that
//! tells it from a queue that fills and drains. Calls vary as much. What the server takes is what
//! calls wait beyond handshakes as a whole, not beyond the fastest of them.

use super::bufferbloat;
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded, nothing_beside};
use crate::signs::path::{self, Path, SIGN_MS};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "path-jitter",
    title: "the round trip differs widely from one packet to the next, and calls with it",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        // A queue that fills and drains is the reason for it.
        hidden_by: &[&bufferbloat::CAUSE],
        asks: &[],
        wants: nothing_beside,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "Each packet takes another time to the other end and back: a radio that waits for its turn and sends again what was disturbed, a tunnel through a busy \
         machine, a line that others use. No server is slow, and each call still takes another time, since it needs at least one round trip.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(35.0, "this time the way there and back takes 75 ms, the time before it took 40"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "mobile networks",
        "the radio sleeps between calls: one that is kept awake (a call every few seconds) varies less, and costs battery",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the path",
        change: "mtr --report towards the server shows from which hop on it varies; the same call by cable, or from another network, tells whether it is the last mile",
    },
    RuleFix {
        software: "Wi-Fi",
        change: "5 or 6 GHz, a channel that neighbours do not use, cable where a machine stands still; power saving off (iw dev wlan0 set power_save off)",
    },
    RuleFix {
        software: "VPNs",
        change: "UDP rather than TCP as transport (WireGuard, OpenVPN proto udp); an exit nearer to the server",
    },
    RuleFix {
        software: "any client",
        change: "fewer round trips for each task: kept connections, calls at once (HTTP/2) or together (batches); time-outs above the slowest tenth of round trips",
    },
];

/// A path that varies by less than this is as radios and VPNs are, milliseconds.
const WIDE_MS: f64 = 30.0;
/// The same as a share of its middle round trip.
const WIDE_SHARE: f64 = 0.5;
/// What it costs in the middle, milliseconds.
const FELT_MS: f64 = 10.0;
/// What it costs in the middle, as a share of the call.
const FELT_SHARE: f64 = 0.2;
/// Where programs compete for this machine's processors, its kernel handles packets late, by as much.
const CONTENDED_MS: f64 = 60.0;

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() || record.is_loopback() {
        return Judgement::Silent;
    }
    let Some(path) = Path::of(record) else { return Judgement::Silent };
    let range = path.high - path.low;
    let times =
        format!("between {} and {} ({} in the middle)", say(path.low), say(path.high), say(path.typical));
    if range < SIGN_MS {
        return excluded(format!("8 of 10 of {} handshakes took {times}", path.samples));
    }
    let cost = path.typical - path.least;
    let felt = cost >= FELT_MS && cost >= FELT_SHARE * record.typical(|c| c.total);
    if range < WIDE_MS || range < WIDE_SHARE * path.typical || !felt {
        return Judgement::Open(format!(
            "a note and no cause: the path varies, 8 of 10 of {} handshakes took {times}; calls vary with it",
            path.samples
        ));
    }
    if record.is_contended() && range < CONTENDED_MS {
        return Judgement::Open(format!(
            "unclear: 8 of 10 of {} handshakes took {times}, and other programs compete for this machine's processors, which delays its \
             kernel's packets as well; a quieter machine would tell",
            path.samples
        ));
    }
    let words = format!(
        "8 of 10 of {} handshakes, which take no server program, took {times}, and the quickest {}; each takes another time than the one \
         before it, and calls vary with them",
        path.samples,
        say(path.least)
    );
    let server = path::beyond_jitter(record).map_or(0.0, |beyond| beyond.low.max(0.0));
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: true }).at_most(Proof::Likely);
    Judgement::Named(Box::new(verdict.saying(format!(
        "of what calls wait, {} or more is the server's: that is how much longer they take than handshakes (Hodges-Lehmann)",
        say(server)
    ))))
}
