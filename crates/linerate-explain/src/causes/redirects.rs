//! The response sends the client elsewhere, and each hop is a call of its own.
//!
//! Symptom: a 3xx with Location. Experiment: the place it leads to, asked for directly.

use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::limits::HOPS;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe, Variation};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "redirects",
    title: "the answer sends the client elsewhere: each hop is a call of its own",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::LastHop,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "The address that is called is not where the answer is: the server says \"look there\", and the client has to ask again, perhaps several times. \
         Each costs a round trip, and a new connection where it leads to another host.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("GET /report"),
        PictureStep::Wait(40.0, "a round trip for nothing"),
        PictureStep::From("302, Location: /report/"),
        PictureStep::To("GET /report/"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "Go, Python, Node, JDK",
        "web frameworks redirect for a trailing slash by themselves (RedirectTrailingSlash, APPEND_SLASH): link to the exact path",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the caller",
        change: "ask for the final address: mind the trailing slash, http against https, and the host's name",
    },
    RuleFix {
        software: "any server",
        change: "link to final addresses; 308 or 301 with Cache-Control so that clients remember",
    },
    RuleFix {
        software: "nginx, Apache httpd",
        change: "serve the directory without the redirect that adds a slash (try_files, DirectorySlash Off)",
    },
];

/// Where the latest response of the chain leads to, on the same server.
fn next(record: &Record) -> Option<Result<String, String>> {
    let last = record.calls().filter(|(p, _)| p.experiment == Experiment::Redirect).last().map(|(_, c)| c);
    let call = last.or_else(|| record.group().first().copied())?;
    let answer = call.answer()?;
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = answer.field("location")?;
    Some(on_the_same_server(location, &record.settings.url).ok_or_else(|| location.to_owned()))
}

/// The target a Location means, when it is one of `url`'s server.
fn on_the_same_server(location: &str, url: &str) -> Option<String> {
    let scheme = if url.starts_with("https://") { "https://" } else { "http://" };
    let origin = |url: &str| {
        let rest = url.strip_prefix(scheme)?;
        Some(rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())].to_owned())
    };
    let target = if location.starts_with("//") {
        return None;
    } else if location.starts_with('/') {
        location.to_owned()
    } else if location.contains("://") {
        let here = origin(url)?;
        let rest = location.strip_prefix(scheme)?.strip_prefix(here.as_str())?;
        if rest.is_empty() { "/".to_owned() } else { rest.to_owned() }
    } else {
        let rest = url.strip_prefix(scheme)?;
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        let folder = path.split(['?', '#']).next()?.rfind('/').map_or("/", |at| &path[..=at]);
        format!("{folder}{location}")
    };
    let target = target.split('#').next()?.to_owned();
    (target.starts_with('/') && target.bytes().all(|b| b.is_ascii_graphic())).then_some(target)
}

/// The targets of the chain, the call's own first.
fn chain(record: &Record) -> Vec<String> {
    let hops = record.calls().filter_map(|(p, _)| match &p.variation {
        Variation::Target(target) if p.experiment == Experiment::Redirect => Some(target.clone()),
        _ => None,
    });
    std::iter::once(record.settings.target.clone()).chain(hops).collect()
}

/// The targets that the redirects lead over again and again.
fn circle(record: &Record) -> Option<Vec<String>> {
    let mut chain = chain(record);
    let next = next(record)?.ok()?;
    let from = chain.iter().position(|target| *target == next)?;
    chain.drain(..from);
    chain.push(next);
    Some(chain)
}

fn wants(record: &Record) -> Vec<Block> {
    let hops = record.calls().filter(|(p, _)| p.experiment == Experiment::Redirect).count();
    if hops >= HOPS || !record.settings.may_repeat || circle(record).is_some() {
        return Vec::new();
    }
    match next(record) {
        Some(Ok(target)) => {
            let mut probe = CallProbe::plain(Experiment::Redirect, hops as u8, Lane::Kept(0));
            probe.variation = Variation::Target(target);
            vec![vec![Probe::Call(Box::new(probe))]]
        }
        _ => Vec::new(),
    }
}

fn judge(record: &Record) -> Judgement {
    let group = record.group();
    let Some(answer) = group.first().and_then(|c| c.answer()) else { return Judgement::Silent };
    let Some(location) =
        answer.field("location").filter(|_| matches!(answer.status, 301 | 302 | 303 | 307 | 308))
    else {
        return Judgement::Silent;
    };
    let hops: Vec<_> = record.calls().filter(|(p, _)| p.experiment == Experiment::Redirect).collect();
    let last = hops.last().map(|(_, c)| *c);
    let arrived =
        last.and_then(|c| c.answer()).is_some_and(|a| !(300..400).contains(&a.status) || a.status == 304);
    // A client that asks for the final target directly saves all calls but the last.
    let here = median_of(&group, |c| c.total);
    let between: f64 = hops.iter().rev().skip(1).map(|(_, c)| ms(c.total)).sum();
    if let Some(circle) = circle(record) {
        let words = format!(
            "status {} sends from {}: no client gets there, and each gives up after 20 to 50 hops",
            answer.status,
            circle.join(" to ")
        );
        let verdict = Verdict::new(&CAUSE, here + between, Grounds::Counted { words, share: 1.0 });
        let title = "the redirects go in circles: the call never gets its answer";
        return Judgement::Named(Box::new(verdict.titled(title).failing()));
    }
    if !arrived && hops.len() >= HOPS {
        let words = format!(
            "status {} sends on and on: after {HOPS} redirects, the last to {}, there is another one; browsers give up after 20, curl \
             after 50",
            answer.status,
            chain(record).pop().unwrap_or_default()
        );
        let verdict = Verdict::new(&CAUSE, here + between, Grounds::Counted { words, share: 1.0 });
        let title = "the redirects do not end: the call never gets its answer";
        return Judgement::Named(Box::new(verdict.titled(title).failing()));
    }
    let words = format!(
        "status {} sends to {location}; {}",
        answer.status,
        match (last, arrived) {
            (Some(call), true) => format!(
                "asked for directly, the answer takes {} instead of {} over {} {}",
                say(ms(call.total)),
                say(here + between + ms(call.total)),
                hops.len(),
                if hops.len() == 1 { "hop" } else { "hops" }
            ),
            _ if matches!(next(record), Some(Ok(_))) => {
                format!("and on after {} hops, when the calls or the time for more were used up", hops.len())
            }
            _ => "that is another server or scheme, which was not followed".to_owned(),
        }
    );
    let share = if arrived { 1.0 } else { 0.5 };
    let verdict = Verdict::new(&CAUSE, here + between, Grounds::Counted { words, share });
    Judgement::Named(Box::new(if arrived { verdict } else { verdict.at_most(Proof::Likely) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, ProbeResponse};
    use crate::probe::Observation;
    use crate::record::Settings;

    #[test]
    fn redirects_in_a_circle_are_followed_once() {
        let settings =
            Settings { url: "http://h/a".to_owned(), target: "/a".to_owned(), ..Settings::default() };
        let mut record = Record::new(settings);
        let to = |location: &str| {
            let fields = vec![("location".to_owned(), location.to_owned())];
            let end = Some(Ok(ProbeResponse { status: 302, fields, ..ProbeResponse::default() }));
            Observation::Call(Box::new(Call { fresh: true, end, ..Call::default() }))
        };
        let plain = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
        record.push(Probe::Call(Box::new(plain)), to("/b"));
        let next = wants(&record)[0][0].clone();
        assert!(circle(&record).is_none());
        record.push(next, to("/a"));
        assert_eq!(circle(&record), Some(["/a", "/b", "/a"].map(str::to_owned).to_vec()));
        assert!(wants(&record).is_empty());
    }

    #[test]
    fn redirects_to_ever_new_places_fail() {
        let settings =
            Settings { url: "http://h/0".to_owned(), target: "/0".to_owned(), ..Settings::default() };
        let mut record = Record::new(settings);
        let to = |n: usize| {
            let fields = vec![("location".to_owned(), format!("/{n}"))];
            let end = Some(Ok(ProbeResponse { status: 302, fields, ..ProbeResponse::default() }));
            let wait = std::time::Duration::from_micros(50);
            Observation::Call(Box::new(Call { fresh: true, wait, total: wait, end, ..Call::default() }))
        };
        let mut next = Probe::Call(Box::new(CallProbe::plain(Experiment::Observe, 0, Lane::Fresh)));
        for n in 1..=HOPS {
            record.push(next, to(n));
            next = wants(&record)[0][0].clone();
        }
        assert!(matches!(judge(&record), Judgement::Named(v) if !v.fails()), "it may still end");
        record.push(next, to(HOPS + 1));
        assert!(wants(&record).is_empty());
        let Judgement::Named(verdict) = judge(&record) else { panic!("not named") };
        assert!(verdict.fails() && verdict.title().contains("do not end"), "{verdict:?}");
    }

    #[test]
    fn locations_on_the_same_server() {
        let to = |location| on_the_same_server(location, "http://h:81/a/b?c");
        assert_eq!(to("/x"), Some("/x".to_owned()));
        assert_eq!(to("x#y"), Some("/a/x".to_owned()));
        assert_eq!(to("http://h:81"), Some("/".to_owned()));
        assert_eq!(to("http://h:81/z?q"), Some("/z?q".to_owned()));
        for other in ["http://h/", "https://h:81/", "//h:81/", "http://h:812/", "/a b"] {
            assert_eq!(to(other), None, "{other}");
        }
    }
}
