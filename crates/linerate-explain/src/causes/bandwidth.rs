//! The response is large for the rate at which it comes: a line, a shaper, or a limit in the server.
//!
//! Symptom: bytes per second are the same from the beginning of a response to its end, and in each call.
//! Experiment: two calls at once. If they share the rate, the path limits it; if each has it, something
//! limits each connection. A path carries segment after segment; a server's own limit sends lumps
//! at regular intervals, and a part of the resource (`Range`) comes as fast as the same part of the
//! whole, which no work on a response does. Where a text is not compressed, a call says what that
//! would give.

use std::time::Duration;

use super::{h2_flow_control, server_nagle, server_send_buffer};
use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe, Variation};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule};
use crate::signs::flow::{self, FlowShape, SharedRate};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "bandwidth",
    title: "the answer is large for the rate at which it comes",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            // A window that is too small lets as much through in each round trip.
            &h2_flow_control::CAUSE,
            &server_send_buffer::CAUSE,
            // Each piece waits for our acknowledgement.
            &server_nagle::CAUSE,
        ],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The answer is large, and it comes only so fast: the line to the caller carries no more, somebody shapes it, or the server has a limit for each \
         connection. Bytes per second are the same from its beginning to its end, and twice the bytes take twice the time. Two calls at once tell whose \
         limit it is: on a slow path each gets half, and where each connection has a limit both get all of it.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("the beginning of the answer"),
        PictureStep::Wait(2240.0, "560 kB at 2 Mbit/s"),
        PictureStep::From("its end"),
    ],
    more: &[
        fix(
            "Go, JDK, Node, Python",
            "compress answers (gzip, br, zstd) where they are text; fields and pages that callers ask for",
        ),
        fix("clouds", "instances and gateways have a bandwidth of their own, some with credits that run out"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "send less: compression for text, smaller images, pages of a list instead of all of it, caching (ETag, Cache-Control)",
    },
    RuleFix {
        software: "nginx",
        change: "limit_rate and limit_rate_after; X-Accel-Limit-Rate in the answer of what is behind it",
    },
    RuleFix {
        software: "Apache httpd",
        change: "mod_ratelimit: SetOutputFilter RATE_LIMIT and SetEnv rate-limit",
    },
    RuleFix { software: "HAProxy", change: "filter bwlim-out and http-response set-bandwidth-limit" },
    RuleFix {
        software: "the path",
        change: "iperf3 between the two machines; tc -s qdisc at both ends, and the limits of the cloud's instance, the VPN and the radio",
    },
    RuleFix { software: "far callers", change: "a cache or a CDN nearer to them" },
];

/// Two calls at once share a line that gives them no more than this many times what one gets.
const SHARED_TIMES: f64 = 1.35;
/// From this many times on each has a line of its own.
const EACH_TIMES: f64 = 1.65;
/// The share of a call of the two below which they were not served side by side. Reason: a full queue on
/// the way is unfair, too.
const LEAST: f64 = 0.02;

/// Two turns of calls alone and two at once: new connections, cut after less than a second of their body.
const TURNS: [u8; 4] = [1, 2, 2, 1];

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let Some(shape) = flow::usual(record).filter(|_| record.settings.may_repeat && !judged.hides_it()) else {
        return Vec::new();
    };
    if !matches!(shape, FlowShape::Even(..)) && !record.tried(Experiment::Part) {
        return vec![vec![part(record)]];
    }
    if matches!(shape, FlowShape::Pause(_)) && flow::part_as_fast(record) != Some(true) {
        return Vec::new();
    }
    if !record.tried(Experiment::Rate) {
        let (cut, _) = flow::cut_after(record);
        return vec![TURNS.iter().map(|calls| Probe::Rate(*calls, cut)).collect()];
    }
    if could_pack(record) && !record.tried(Experiment::Packed) {
        let mut call = CallProbe::plain(Experiment::Packed, 0, Lane::Fresh);
        call.variation = Variation::Gzip;
        call.patience = flow::cut_after(record).0 + PACKED_TIME;
        return vec![vec![Probe::Call(Box::new(call))]];
    }
    Vec::new()
}

/// Time that a compressed response has beyond the others. Reason: it is to be whole.
const PACKED_TIME: Duration = Duration::from_millis(700);

/// Half of it.
fn part(record: &Record) -> Probe {
    let bytes: Vec<f64> = flow::samples(record).iter().map(|c| flow::bytes(c)).collect();
    let mut call = CallProbe::plain(Experiment::Part, 0, Lane::Fresh);
    call.variation = Variation::Range(((median(&bytes) / 2.0) as u64).max(1));
    call.closes = true;
    Probe::Call(Box::new(call))
}

/// It is a text, as far as is known, and comes as it is.
fn could_pack(record: &Record) -> bool {
    let group = record.group();
    let Some(answer) = group.first().and_then(|c| c.answer()) else { return true };
    let kind = answer.field("content-type").unwrap_or_default();
    let text = ["text/", "json", "xml", "javascript", "svg"].iter().any(|k| kind.contains(k));
    text && answer.field("content-encoding").is_none_or(|c| c.eq_ignore_ascii_case("identity"))
}

/// A rate for a sentence: bits for a line, bytes for a body.
fn rate(bytes: f64) -> String {
    format!("{:.2} Mbit/s ({:.0} kB/s)", bytes * 8.0 / 1e6, bytes / 1e3)
}

/// What compression would give: as the server does it when asked, else by the beginning of the body.
fn packed(record: &Record, rate: f64) -> Option<String> {
    let (_, call) = record.calls().find(|(p, _)| p.experiment == Experiment::Packed)?;
    let whole = median(&flow::samples(record).iter().map(|c| flow::bytes(c)).collect::<Vec<_>>());
    let coded = call.answer().filter(|a| a.field("content-encoding").is_some());
    if let Some(answer) = coded {
        return Some(format!(
            "asked with Accept-Encoding: gzip the server sends {} bytes instead of {whole:.0}, and they take {} instead of {}",
            answer.body_bytes,
            say(ms(call.receive)),
            say(1e3 * whole / rate)
        ));
    }
    let share = call.packs_to?;
    Some(format!(
        "gzip would make it {:.1} % of its size (by the beginning of the body), {} instead of {}; the server does not compress it when \
         asked",
        100.0 * share,
        say(1e3 * share * whole / rate),
        say(1e3 * whole / rate)
    ))
}

/// How the response comes, in words.
fn in_words(record: &Record, shape: FlowShape) -> String {
    let samples = flow::samples(record);
    let bytes = median(&samples.iter().map(|c| flow::bytes(c)).collect::<Vec<_>>());
    let span = median(&samples.iter().map(|c| flow::span_ms(c)).collect::<Vec<_>>());
    let cut = if samples.iter().all(|c| flow::was_coming(c)) { " until we stopped reading" } else { "" };
    let how = match shape {
        FlowShape::Even(_, piece) => format!(
            "from beginning to end at the same rate, in pieces of {piece:.0} bytes: {}",
            rate(shape.rate())
        ),
        FlowShape::Lumps(_, size, every) => {
            format!("in lumps of {size:.0} bytes, {} apart: {}", say(every), rate(shape.rate()))
        }
        FlowShape::Pause(_) => format!("in two parts with a pause between them: {}", rate(shape.rate())),
    };
    format!("{bytes:.0} bytes came in {}{cut}, {how}", say(span))
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let Some(shape) = flow::usual(record).filter(|_| !judged.hides_it()) else { return Judgement::Silent };
    if matches!(shape, FlowShape::Pause(_)) && flow::part_as_fast(record) != Some(true) {
        return Judgement::Silent;
    }
    let samples = flow::samples(record);
    let lossy = samples.iter().filter(|c| c.lossy()).count() * 2 > samples.len();
    let together = flow::together(record);
    match together {
        Some(SharedRate { times, least }) if least < LEAST && !lossy => Judgement::Open(format!(
            "unclear: {}; but of two calls at once one got {:.0} % of what came ({times:.2} times what one alone gets): the server answers \
             one at a time, and the rate may be that of its work",
            in_words(record, shape),
            100.0 * (1.0 - least)
        )),
        // What is sent again limits each connection as well.
        Some(t) if t.times >= EACH_TIMES && lossy => Judgement::Open(format!(
            "unclear: {}; two calls at once get {:.2} times as much, and both lose segments: sending them again may be what limits each",
            in_words(record, shape),
            t.times
        )),
        together => {
            let (title, proof, more) = whose(record, shape, together);
            Judgement::Named(Box::new(verdict(record, shape).at_most(proof).titled(&title).saying(more)))
        }
    }
}

/// Whose limit it is, as two calls at once tell: a title, how sure that is, and why.
fn whose(record: &Record, shape: FlowShape, together: Option<SharedRate>) -> (String, Proof, String) {
    let limit = rate(shape.rate());
    let Some(SharedRate { times, .. }) = together else {
        return (
            format!("the answer comes at no more than {limit}"),
            Proof::Possible,
            "whether the path or each connection is limited was not tested: two calls at once would tell"
                .to_owned(),
        );
    };
    let shared = format!("two calls at once get {times:.2} times as much together as one alone: ");
    if times <= SHARED_TIMES && shape.is_of_segments() {
        let title = format!("the path carries no more than {limit}, and the answer is large for that");
        return (title, Proof::Proved, format!("{shared}they share the path"));
    }
    if times <= SHARED_TIMES {
        let why = format!("{shared}the path limits them, or the server all together");
        return (format!("all answers together come at no more than {limit}"), Proof::Likely, why);
    }
    if times < EACH_TIMES {
        let why = format!("{shared}whether the path or each connection is limited is unclear");
        return (format!("the answer comes at no more than {limit}"), Proof::Possible, why);
    }
    let of_server = flow::part_as_fast(record) == Some(true);
    let title = match shape {
        FlowShape::Even(..) => {
            format!("each connection gets no more than {limit}: a shaper, or a limit in the server")
        }
        _ if of_server => format!("the server sends no more than {limit} on each connection"),
        _ => {
            format!("the server sends no more than {limit} on each connection, or makes its answer no faster")
        }
    };
    let sure = of_server || matches!(shape, FlowShape::Even(..));
    (title, if sure { Proof::Likely } else { Proof::Possible }, per_connection(record, times))
}

/// With all that was seen of it.
fn verdict(record: &Record, shape: FlowShape) -> Verdict {
    let samples = flow::samples(record);
    // The time of the body at that rate is all that it costs.
    let cost = median(&samples.iter().map(|c| flow::span_ms(c)).collect::<Vec<_>>());
    let excess = median_of(&samples, |c| c.total) - record.rtt_ms();
    let share = (cost / excess.max(1e-6)).min(1.0);
    let grounds = Grounds::Counted { words: in_words(record, shape), share };
    let mut verdict = Verdict::new(&CAUSE, cost, grounds);
    if flow::part_as_fast(record) == Some(true) {
        verdict = verdict.saying(
            "half of it, asked for by Range, takes as long as half of the whole: it is there, and held back",
        );
    }
    match packed(record, shape.rate()) {
        Some(packed) => verdict.saying(packed),
        None => verdict,
    }
}

/// What limits each connection may be a window, where the round trip is long.
fn per_connection(record: &Record, times: f64) -> String {
    let window = flow::usual(record).map_or(0.0, FlowShape::rate) * record.rtt_ms() / 1e3;
    let beside = if window > SMALL_WINDOW {
        format!("; a window of {window:.0} bytes for each round trip would do the same")
    } else {
        String::new()
    };
    format!(
        "two calls at once get {times:.2} times as much together as one alone: each has a limit of its own{beside}"
    )
}

/// Bytes on the way from which on a window may be what limits.
const SMALL_WINDOW: f64 = 16_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, ProbeResponse, ReceivedBytes};
    use crate::probe::Observation;
    use crate::record::Settings;

    /// A call of 200 kB in segments at so many bytes per second, until it is cut.
    fn at(rate: f64, cut: Option<f64>) -> Call {
        let receives: Vec<ReceivedBytes> = (0..138)
            .map(|n| ReceivedBytes {
                at: Duration::from_secs_f64(0.001 + f64::from(n) * 1448.0 / rate),
                bytes: 1448,
            })
            .filter(|r| cut.is_none_or(|cut| r.at.as_secs_f64() < cut))
            .collect();
        let receive = receives.last().map_or(Duration::ZERO, |r| r.at);
        let fields = vec![("content-type".to_owned(), "text/html".to_owned())];
        let end =
            Some(Ok(ProbeResponse { status: 200, body_bytes: 200_000, fields, ..ProbeResponse::default() }));
        Call { receives, receive, wait: Duration::from_millis(1), total: receive, end, ..Call::default() }
    }

    fn judged(at_once: Option<f64>) -> Judgement {
        let mut record = Record::new(Settings::default());
        for _ in 0..3 {
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(at(250e3, None))));
        }
        if let Some(each) = at_once {
            let cut = Duration::from_millis(721);
            record.push(Probe::Rate(1, cut), Observation::Rate(vec![at(250e3, Some(0.721))]));
            let both = vec![at(each, Some(0.721)), at(each, Some(0.721))];
            record.push(Probe::Rate(2, cut), Observation::Rate(both));
        }
        static NONE: [&Cause; 3] = [&OTHER[0], &OTHER[1], &OTHER[2]];
        static OTHER: [Cause; 3] =
            [other("h2-flow-control"), other("server-send-buffer"), other("server-nagle-delayed-ack")];
        let all: Vec<&'static Cause> = NONE.into_iter().chain([&CAUSE]).collect();
        crate::rule::Judgements::new(&record, &all).of("bandwidth").clone()
    }

    const fn other(id: &'static str) -> Cause {
        Cause { id, ..Cause::BLANK }
    }

    #[test]
    fn two_calls_at_once_tell_the_path_from_a_limit_of_each() {
        let of = |judgement: Judgement| match judgement {
            Judgement::Named(verdict) => (verdict.proof(), verdict.title().to_owned(), verdict.cost_ms()),
            other => unreachable!("{other:?}"),
        };
        let (proof, title, cost) = of(judged(Some(125e3)));
        assert!(
            proof == Proof::Proved && title.starts_with("the path carries no more than"),
            "{proof:?} {title}"
        );
        assert!((780.0..810.0).contains(&cost), "{cost}");
        let (proof, title, _) = of(judged(Some(250e3)));
        assert!(proof == Proof::Likely && title.starts_with("each connection"), "{proof:?} {title}");
        let (proof, ..) = of(judged(None));
        assert_eq!(proof, Proof::Possible);
    }
}
