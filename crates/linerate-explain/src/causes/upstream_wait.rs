//! The server that answers forwards calls, and says how long the one behind it took: that is where
//! the time goes.
//!
//! Evidence: a field of each response (`x-envoy-upstream-service-time`, or an entry of
//! `Server-Timing` that is about the server behind) names most of what that very call waited beyond
//! the round trip. Where the field names a small part of it, the proxy itself takes the time. Or, where
//! its process is on this machine (`--pid`): a connection of it to one server has sent and not received
//! for most of that time.

use super::{
    bandwidth, compression, connection_limit, cork, in_the_process, periodic_stall, pinned, rate_limit,
    request_held, server_nagle, server_queueing, server_send_buffer,
};
use crate::call::{Call, ProbeResponse, ms};
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded};
use crate::signs::behind;
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "upstream-wait",
    title: "the answering server waits for the one behind it",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::FirstByte,
    pause: Some("the server behind works"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            // They say why the wait is there.
            &server_nagle::CAUSE,
            &rate_limit::CAUSE,
            &periodic_stall::CAUSE,
            &server_queueing::CAUSE,
            &connection_limit::CAUSE,
            &pinned::CAUSE,
            &cork::CAUSE,
            &compression::CAUSE,
            &bandwidth::CAUSE,
            &server_send_buffer::CAUSE,
            &request_held::ZERO_WINDOW,
            &request_held::SEND_BUFFER,
            // The proxy itself has no processor.
            &in_the_process::THROTTLED,
            &in_the_process::CONTENDED,
            &in_the_process::GC,
            &in_the_process::BLOCKED,
        ],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The server that answers passed the request on, or asked its database, and waited. Its answers carry how long that took \
         (x-envoy-upstream-service-time, Server-Timing), or its connections show it (--pid): that is most of what the call waits. It may be a slow query, a \
         lock that another transaction holds, or a slow service. The answering server and the way to it are not at fault.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(40.0, "the server behind it works"),
        PictureStep::From("answer, which names that time"),
    ],
    more: &[fix(
        "HAProxy",
        "http-response set-header Server-Timing \"upstream;dur=%Tr\" makes its answers say so",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the server behind the proxy",
        change: "run linerate explain from the proxy's machine against it: what it waits in is seen there",
    },
    RuleFix {
        software: "Envoy, Istio, Linkerd",
        change: "the access log has the cluster and the host that took the time (%UPSTREAM_HOST%, %RESPONSE_FLAGS%); compare hosts",
    },
    RuleFix {
        software: "PostgreSQL",
        change: "pg_stat_activity says what each query waits for (wait_event; Lock: another transaction), auto_explain why one is slow",
    },
    RuleFix {
        software: "any proxy",
        change: "linerate explain --origin URL makes the same call at the server behind and compares",
    },
];

/// Names of `Server-Timing` entries that are about the server behind.
const BEHIND: [&str; 5] = ["upstream", "origin", "backend", "cdn-upstream-fbl", "proxied"];
/// Entries of a field that are read.
const MOST_ENTRIES: usize = 16;
/// Calls that say it, at least.
const ENOUGH: usize = 3;
/// From this share of a call's wait on it is the server behind.
const MOST: f64 = 0.7;
/// The same where connections are watched. Reason: on a busy machine the server itself waits for a processor
/// before it asks and once it is answered.
const HALF: f64 = 0.5;
/// Up to this share it is not.
const LITTLE: f64 = 0.3;

/// The field that says how long the server behind took, and that time in milliseconds.
fn said(answer: &ProbeResponse) -> Option<(&'static str, f64)> {
    let envoy = answer.field("x-envoy-upstream-service-time").and_then(|v| v.trim().parse::<f64>().ok());
    let envoy = envoy.map(|ms| ("x-envoy-upstream-service-time", ms));
    let timing = || Some(("Server-Timing", timing(answer.field("server-timing")?)?));
    envoy.or_else(timing).filter(|(_, ms)| ms.is_finite() && *ms >= 0.0)
}

/// The duration of an entry about the server behind (`upstream;dur=12.5`).
fn timing(field: &str) -> Option<f64> {
    field.split(',').take(MOST_ENTRIES).find_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next()?.to_ascii_lowercase();
        let known = BEHIND.contains(&name.as_str());
        known.then(|| parts.find_map(|p| p.strip_prefix("dur=")?.trim().trim_matches('"').parse().ok()))?
    })
}

/// What the server behind took of a call's wait beyond the round trip.
#[derive(Clone, Copy)]
struct UpstreamShare {
    field: &'static str,
    beyond: f64,
    behind: f64,
}

impl UpstreamShare {
    fn share(&self) -> f64 {
        self.behind / self.beyond
    }
}

/// Of each slow call whose response says it.
fn shares(record: &Record) -> Vec<UpstreamShare> {
    let plain = |e: Experiment| matches!(e, Experiment::Observe | Experiment::Tail | Experiment::Scattered);
    let calls = record.calls().filter(|(p, c)| plain(p.experiment) && !c.lossy()).map(|(_, c)| c);
    let one = |call: &Call| {
        let beyond = ms(call.wait_for_whole()) - record.rtt_ms();
        let (field, behind) = said(call.answer()?)?;
        (beyond >= WORK_MS).then(|| UpstreamShare { field, beyond, behind: behind.min(beyond) })
    };
    calls.filter_map(one).collect()
}

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    if judged.hides_it() { Vec::new() } else { behind::singles(record) }
}

/// What the connections of the server's process show.
fn by_connections(record: &Record) -> Judgement {
    let Some(waits) = behind::waited_for(record).filter(|_| beyond_rtt(record) >= WORK_MS) else {
        return Judgement::Silent;
    };
    let words = format!(
        "in {} of {} calls that were watched a connection of the server's process to {} had sent and not received for {}, and with its handshake \
         for {:.0} % of what a call waits beyond a round trip (sock_diag, TCP_INFO)",
        waits.calls.0,
        waits.calls.1,
        waits.names(),
        say(waits.wait_ms),
        100.0 * waits.share
    );
    if waits.share <= LITTLE {
        return excluded(format!("{words}: the rest is spent in the server that answers"));
    }
    if waits.share < HALF {
        return Judgement::Open(format!("unclear: {words}"));
    }
    let verdict =
        Verdict::new(&CAUSE, waits.wait_ms, Grounds::Seen { words, alone: true }).at_most(Proof::Likely);
    let verdict = verdict.titled(&format!("the answering server waits for {}", waits.names()));
    Judgement::Named(Box::new(
        verdict.saying("a slow query, a lock, or a slow service: why it takes that long is seen there"),
    ))
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let shares = shares(record);
    let Some(first) = shares.first().filter(|_| shares.len() >= ENOUGH && beyond_rtt(record) >= WORK_MS)
    else {
        return by_connections(record);
    };
    let all = |of: fn(&UpstreamShare) -> f64| shares.iter().map(of).collect::<Vec<f64>>();
    let [beyond, behind] = [all(|s| s.beyond), all(|s| s.behind)].map(|times| median(&times));
    let words = format!(
        "in {} of {} slow calls {} names most of what the call waited beyond a round trip: {} of {} in the middle",
        shares.iter().filter(|s| s.share() >= MOST).count(),
        shares.len(),
        first.field,
        say(behind),
        say(beyond)
    );
    let share = median(&all(UpstreamShare::share));
    if share <= LITTLE {
        return excluded(format!(
            "{} says that the server behind took {} of the {} that calls wait: the rest is spent in the server that answers",
            first.field,
            say(behind),
            say(beyond)
        ));
    }
    if share < MOST {
        return Judgement::Open(format!("unclear: {words}"));
    }
    // It is the proxy that says it.
    let verdict = Verdict::new(&CAUSE, behind, Grounds::Seen { words, alone: true }).at_most(Proof::Likely);
    Judgement::Named(Box::new(verdict.saying("why it takes that long is seen at the server behind")))
}
