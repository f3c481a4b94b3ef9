//! The server compresses each response again, which takes longer than it saves; or it does not
//! compress where that would save time.
//!
//! Experiment: the same call with the other `Accept-Encoding`.

use crate::arms::arms;
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment, Probe, Variation};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, not_moved};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "compression",
    title: "with the other Accept-Encoding the same answer is there sooner",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("the server compresses"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "The server compresses each answer, and that takes longer than the bytes it saves would take on the network. On a fast network, or for what is \
         compressed already (pictures, archives), it costs more than it gives.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request, Accept-Encoding: gzip"),
        PictureStep::Wait(76.0, "the server compresses"),
        PictureStep::From("answer, smaller"),
    ],
    more: &[fix(
        "Node, Go, Python, JDK",
        "a lower level (zlib 1 to 4), a least size, and not for types that are compressed already",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "nginx",
        change: "gzip_static on for files that do not change; gzip_comp_level 1 to 4; gzip_min_length",
    },
    RuleFix {
        software: "Apache httpd",
        change: "DeflateCompressionLevel 1 to 4, or MultiViews with files compressed beforehand",
    },
    RuleFix {
        software: "any server",
        change: "compress once and cache; not on fast networks; not what is compressed already",
    },
    RuleFix {
        software: "the caller",
        change: "ask for compression (--compressed) only where the network is slow and the answer is text",
    },
];

/// Below this compression makes no difference.
const BODY: u64 = 10_000;
const GAIN_MS: f64 = 5.0;

/// The alternative: no compression if the response has it; compression if a large text comes
/// without.
fn other(record: &Record) -> Option<Variation> {
    let group = record.group();
    let answer = group.first()?.answer()?;
    if answer.field("content-encoding").is_some_and(|c| !c.eq_ignore_ascii_case("identity")) {
        return Some(Variation::Identity);
    }
    let kind = answer.field("content-type").unwrap_or_default();
    let text = ["text/", "json", "xml", "javascript"].iter().any(|k| kind.contains(k));
    (text && answer.body_bytes >= BODY && record.typical(|c| c.receive) >= 2.0 * GAIN_MS)
        .then_some(Variation::Gzip)
}

fn wants(record: &Record) -> Vec<Block> {
    let slow = record.typical(|c| c.wait + c.receive) - record.rtt_ms() >= GAIN_MS;
    match other(record).filter(|_| slow && record.settings.may_repeat && !record.tried(Experiment::Coding)) {
        Some(other) => {
            let blocks = arms(Experiment::Coding, 2, 1, WARM_UP + 3, |p| {
                p.writes = record.settings.writes;
                if p.arm == 1 {
                    p.variation = other.clone();
                }
            });
            blocks.into_iter().map(warm).collect()
        }
        None => Vec::new(),
    }
}

/// The first calls of a connection don't count: the larger of the two responses needs more round
/// trips until the window has grown, and that is not under test.
fn warm(mut block: Block) -> Block {
    for probe in block.iter_mut().take(WARM_UP) {
        if let Probe::Call(call) = probe {
            call.arm += WARMING;
        }
    }
    block
}

/// Calls that only warm a connection.
const WARM_UP: usize = 2;
/// Offset of the numbers of their arms.
const WARMING: u8 = 2;

fn judge(record: &Record) -> Judgement {
    let Some(other) = other(record) else { return Judgement::Silent };
    let changed =
        if other == Variation::Gzip { "Accept-Encoding: gzip" } else { "Accept-Encoding: identity" };
    let trial = record.trial(Experiment::Coding, "the other coding", changed, |c| c.wait + c.receive);
    let Some(trial) = trial else { return Judgement::Silent };
    if !trial.moved(GAIN_MS) {
        let words = format!(
            "with {changed} the answer takes {} instead of {}",
            say(trial.after_ms()),
            say(trial.before_ms())
        );
        return not_moved(&trial, GAIN_MS, &words);
    }
    Judgement::Named(Box::new(Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial))))
}
