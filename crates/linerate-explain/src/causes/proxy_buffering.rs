//! A proxy buffers the response before it forwards it: what the origin sends early arrives late.
//!
//! From this side of the proxy that looks like a slow server: no byte for a while, then all at
//! once. Experiment, if `--origin` names the server behind the proxy: the same call there. If its
//! first byte arrives much sooner and its last one does not, the proxy held the beginning back.
//! Without `--origin` this cause is never named.

use crate::arms::{arms, on_new_lanes};
use crate::call::{Call, ProbeResponse};
use crate::evidence::{Grounds, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange};
use crate::probe::{Block, Experiment, Variation};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, again, excluded, not_moved};
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "proxy-buffering",
    title: "the proxy holds the answer back until it has collected it, while the server behind has begun to send",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::FirstByte,
    pause: Some("the proxy collects the answer"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::LeverAtProxy,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A proxy collects the whole answer before it passes on the first byte. Where the server makes it piece by piece (a stream, a large report), the caller \
         sees nothing until all is there, although the beginning was ready at once.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(100.0, "the proxy collects the answer"),
        PictureStep::From("answer, all of it"),
    ],
    more: &[],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "nginx",
        change: "proxy_buffering off (fastcgi_buffering, uwsgi_buffering) for this location, or the header X-Accel-Buffering: no in the server's answer; gzip off or gzip_min_length where it streams",
    },
    RuleFix {
        software: "Apache httpd",
        change: "ProxyPass ... flushpackets=on; SetEnv proxy-sendchunked; no mod_deflate on streams",
    },
    RuleFix {
        software: "HAProxy",
        change: "no option http-buffer-request; no compression on this path (it streams otherwise)",
    },
    RuleFix { software: "Varnish", change: "beresp.do_stream = true, and no ESI or gzip on this path" },
    RuleFix { software: "Envoy", change: "no buffer filter on the route" },
    RuleFix { software: "CDNs", change: "streaming allowed for the path; Cache-Control: no-transform" },
    RuleFix {
        software: "the server behind",
        change: "if it is meant to be whole at once, what it does between its first and its last byte is what costs",
    },
    RuleFix {
        software: "any proxy",
        change: "pass the answer on as it comes (nginx: proxy_buffering off), and compress nothing on this path",
    },
];

fn wants(record: &Record) -> Vec<Block> {
    let slow = beyond_rtt(record) >= WORK_MS;
    let asked = record.settings.origin.is_some() && record.settings.may_repeat;
    let first = trials(record).map(|(first, _)| first);
    if !slow || !asked || !again(record, Experiment::Origin, first.as_ref(), WORK_MS) {
        return Vec::new();
    }
    let arms = arms(Experiment::Origin, 2, 2, 3, |p| {
        p.writes = record.settings.writes;
        if p.arm == 1 {
            p.variation = Variation::Origin;
        }
    });
    on_new_lanes(record, arms)
}

/// How much sooner the first and the last byte come without the proxy.
fn trials(record: &Record) -> Option<(Trial, Trial)> {
    let trial =
        |metric| record.trial(Experiment::Origin, "the server behind the proxy", "without the proxy", metric);
    Some((trial(Call::to_first_byte)?, trial(|c| c.send + c.wait + c.receive)?))
}

/// Proxies that a response names in its fields.
fn says(answer: &ProbeResponse) -> Option<String> {
    let proxies = [
        "nginx",
        "openresty",
        "haproxy",
        "varnish",
        "envoy",
        "cloudflare",
        "cloudfront",
        "ats",
        "squid",
        "caddy",
    ];
    let server =
        answer.field("server").filter(|s| proxies.iter().any(|p| s.to_ascii_lowercase().starts_with(p)));
    let said = [("Via", answer.field("via")), ("X-Cache", answer.field("x-cache")), ("Server", server)];
    said.iter().find_map(|(name, value)| value.map(|v| format!("{name}: {v}")))
}

fn judge(record: &Record) -> Judgement {
    let Some((first, last)) = trials(record) else {
        let group = record.group();
        let said = group.first().and_then(|c| c.answer()).and_then(says);
        let slow = beyond_rtt(record) >= WORK_MS;
        let failed =
            record.calls().find_map(|(p, c)| c.failure().filter(|_| p.variation == Variation::Origin));
        if let Some(failure) = failed {
            return Judgement::Open(format!(
                "the server behind the proxy (--origin) cannot be called: {}",
                failure.words
            ));
        }
        return match said.filter(|_| slow && record.settings.origin.is_none()) {
            Some(said) => Judgement::Open(format!(
                "the answer may have come through a proxy ({said}): whether that held it back or the server behind took the time is seen \
                 there: --origin URL names the server behind, and the same call is made without the proxy"
            )),
            None => Judgement::Silent,
        };
    };
    let sooner = first.effect.value;
    // The part by which the proxy delays the whole response is not buffering.
    let held = sooner - last.effect.value.max(0.0);
    if !first.moved(WORK_MS) || held < WORK_MS.max(0.3 * sooner) {
        let words = format!(
            "without the proxy the first byte comes after {} instead of {}, the last one after {} instead of {}",
            say(first.after_ms()),
            say(first.before_ms()),
            say(last.after_ms()),
            say(last.before_ms())
        );
        return if first.moved(WORK_MS) { excluded(words) } else { not_moved(&first, WORK_MS, &words) };
    }
    let words = format!(
        "through the proxy the first byte comes after {} and the last one after {}; from the server behind it after {} and {}",
        say(first.before_ms()),
        say(last.before_ms()),
        say(first.after_ms()),
        say(last.after_ms())
    );
    let verdict = Verdict::new(&CAUSE, held, Grounds::Moved(first)).saying(words);
    Judgement::Named(Box::new(verdict.saying(
        "a caller that uses the beginning early waits that much longer for it; the end comes no sooner without the proxy",
    )))
}
