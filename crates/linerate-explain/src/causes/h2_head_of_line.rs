//! One lost segment holds up all streams of a connection: TCP hands on nothing that came behind it.
//!
//! Sign: segments get lost, and calls speak HTTP/2. Experiment: the same calls at once on one
//! connection (0) against one connection each (1). On one connection, a call counts as held up if
//! none of its bytes was in the missing segment, and the kernel had counted the segment with its last
//! byte a quarter of a round trip or more before it could be read. The control: calls on a connection
//! each that lost nothing are not slow.

use crate::call::Call;
use crate::evidence::{Exclusion, Grounds};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, Experiment, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule};
use crate::signs::disorder::Usual;
use crate::signs::streams::{self, Behind};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "h2-head-of-line",
    title: "a lost packet holds up all HTTP/2 streams of the connection, not only the one whose packet it was",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "TCP hands bytes on in their order. Where a packet is lost, all that came behind it waits in the kernel until it was sent again, \
         a round trip or more later. Over HTTP/2 all calls share a connection, so that one lost packet holds up all of them, while of \
         several connections only one stands still. HTTP/3 was made for that.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("requests 1, 2 and 3"),
        PictureStep::LostFrom("answer 1, its second packet"),
        PictureStep::From("answers 2 and 3 arrive and wait"),
        PictureStep::Wait(40.0, "all three wait for one packet"),
        PictureStep::From("the lost packet again: all are whole"),
    ],
    more: &[fix("any server", "HTTP/3 beside HTTP/2 (Alt-Svc), so that clients that can take it")],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "a lost packet held up HTTP/2 streams whose packet it was not",
    fixes: &[
        fix("the path", "find where packets are lost, as for packet-loss: mtr, ethtool -S, ip -s link"),
        fix("browsers, curl", "HTTP/3 (QUIC), where the server speaks it: there a loss holds up one stream"),
        fix(
            "any client",
            "some connections instead of one, or HTTP/1.1 with a pool, on paths that lose packets",
        ),
    ],
    verify: "linerate explain --http2 URL compares one connection with several",
    pause: Some("behind a lost segment of another stream"),
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the path",
        change: "find where packets are lost, as for packet-loss: mtr, ethtool -S, ip -s link",
    },
    RuleFix {
        software: "browsers, curl",
        change: "HTTP/3 (QUIC), where the server speaks it: there a loss holds up one stream",
    },
    RuleFix { software: "gRPC", change: "several channels for calls that must not wait for one another" },
    RuleFix {
        software: "any client",
        change: "some connections instead of one, or HTTP/1.1 with a pool, on paths that lose packets",
    },
];

/// A call is held up that waits this long behind a missing segment, milliseconds.
const SLOW_MS: f64 = 5.0;
/// The same in round trips.
const SLOW_TRIPS: f64 = 0.25;
/// Calls at once. Reason: the more streams, the more of them stand behind a loss.
const AT_ONCE: u8 = 8;
/// Rounds of each block of an arm; the blocks of both arms are made in random order.
const ROUNDS: [u8; 2] = [3, 2];
/// All blocks are made once more where they don't tell, since few rounds may meet a loss.
const BATCHES: usize = 2;
/// Rounds in which calls are held up that it takes.
const PROVES_ROUNDS: usize = 2;
/// How likely they are by chance at most.
const PROVES_CHANCE: f64 = 0.05;
/// Rounds with a loss that held up no other call, from which on a share is excluded.
const NONE: usize = 6;

/// As many calls as the server admits.
fn calls(record: &Record) -> u8 {
    streams::limit(record).map_or(AT_ONCE, |limit| u8::try_from(limit).unwrap_or(AT_ONCE).min(AT_ONCE))
}

fn seen(record: &Record) -> Behind {
    Behind::of(record, SLOW_MS.max(SLOW_TRIPS * record.rtt_ms()))
}

/// It is there.
fn told(seen: &Behind) -> bool {
    seen.holding >= PROVES_ROUNDS && seen.chance() <= PROVES_CHANCE
}

fn wants(record: &Record) -> Vec<Block> {
    let each: usize = ROUNDS.into_iter().map(usize::from).sum();
    let so_far = seen(record);
    if !loses(record)
        || !record.settings.may_repeat
        || calls(record) < 2
        || record.given_up.contains(&Experiment::HeadOfLine)
        || so_far.rounds > (BATCHES - 1) * each
        || (so_far.rounds < each && record.tried(Experiment::HeadOfLine))
        || told(&so_far)
    {
        return Vec::new();
    }
    let arms = |rounds| streams::arms(Experiment::HeadOfLine, calls(record), calls(record), rounds);
    ROUNDS.into_iter().flat_map(arms).map(|arm| vec![Probe::Together(arm)]).collect()
}

/// Calls speak HTTP/2, and segments of them were lost: not only overtaken.
fn loses(record: &Record) -> bool {
    let calls: Vec<&Call> = record.calls().map(|(_, c)| c).collect();
    let usual = Usual::of(record, &calls);
    record.loses_streams() && calls.iter().any(|c| usual.may_have_lost(c))
}

/// No segment was lost that could hold up others.
fn without_loss(record: &Record) -> Judgement {
    let segments: u64 =
        record.calls().map(|(_, c)| u64::from(c.facts.data_segs_in) + u64::from(c.facts.data_segs_out)).sum();
    match segments {
        0 => Judgement::Silent,
        n => {
            Judgement::RuledOut(Exclusion::none_of(n, "no segment was lost that could hold up other streams"))
        }
    }
}

/// Too few calls were held up to tell.
fn unclear(record: &Record, seen: &Behind) -> Judgement {
    let at_once = usize::from(calls(record));
    if seen.rounds == 0 || at_once < 2 {
        let why = match at_once {
            0 | 1 => "the server admits one call at a time, so none waits behind another",
            _ => "that takes several calls at once, which were not made",
        };
        return Judgement::Open(format!(
            "segments get lost, and over HTTP/2 one that is lost holds up all streams of its connection; {why}"
        ));
    }
    if seen.lossy >= NONE && seen.holding == 0 {
        let words = format!(
            "{} of {} rounds of {at_once} calls at once on one connection lost a segment, and no other call waited for it",
            seen.lossy, seen.rounds
        );
        return Judgement::RuledOut(Exclusion::none_of(seen.lossy as u64, &words));
    }
    // As many rounds as it takes to see what proves it, at the rate that was seen; on both arms.
    let wanted = 2 * PROVES_ROUNDS * seen.rounds / seen.holding.max(1);
    let more = 2 * at_once * wanted.saturating_sub(seen.rounds).max(PROVES_ROUNDS);
    Judgement::Open(format!(
        "unclear: {} of {} rounds of {at_once} calls at once on one connection lost a segment, and in {} of them calls waited for it that had lost nothing; {more} more calls would tell",
        seen.lossy, seen.rounds, seen.holding
    ))
}

fn judge(record: &Record) -> Judgement {
    if record.streamed().is_none() {
        return Judgement::Silent;
    }
    if !loses(record) {
        return without_loss(record);
    }
    let seen = seen(record);
    if !told(&seen) {
        return unclear(record, &seen);
    }
    let held = median(&seen.held);
    let words = format!(
        "{} calls at once, {} times: on one connection, {} of {} calls lost nothing and had arrived, and waited {} in our kernel for the missing segment of another call; on a connection each, {} of {} calls that lost nothing were as late",
        calls(record),
        seen.rounds,
        seen.held.len(),
        seen.shared,
        say(held),
        seen.slow,
        seen.alone.len()
    );
    let share = seen.owned / seen.beyond.max(1e-3);
    let verdict = Verdict::new(&CAUSE, held, Grounds::Counted { words, share }).saying(format!(
        "calls that were held up so took {}, and calls on a connection each {}",
        say(median(&seen.took)),
        say(median(&seen.alone))
    ));
    // That packets are lost comes first.
    Judgement::Named(Box::new(verdict.saying("a call alone on its connection waits for no other").behind()))
}
