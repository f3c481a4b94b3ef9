//! The server that answers opens a connection to the server behind it for each call.
//!
//! Experiment, where its process is on this machine (`--pid`): calls on a connection that is kept, and the
//! connections that the process has to others. Each call opens one more, and while no call is made none is
//! opened: so many calls, so many connections. What that costs is at least the round trip of each handshake.

use std::net::SocketAddr;

use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::Variation;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded};
use crate::signs::behind::{self, ENOUGH};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "proxy-connects-per-call",
    title: "the answering server opens a new connection to the server behind it for each call",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::FirstByte,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Cost,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: behind::singles, judge },
};

const PAGE: CausePage = CausePage {
    what: "A proxy passes a call on to the server behind it. If it closes that connection after each call, the next one waits for a new handshake: a round \
         trip, two or three with TLS, and more until a database has let it in. Each of them leaves a port in TIME_WAIT as well. Connections that are kept \
         cost nothing.",
    lanes: ["proxy", "server"],
    picture: &[
        PictureStep::To("SYN: for this call alone"),
        PictureStep::Wait(20.0, "a round trip"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::Then(20.0, "the server behind works"),
        PictureStep::From("answer, then FIN"),
    ],
    more: &[fix(
        "Node",
        "an http.Agent with keepAlive: true for calls to others (the default since Node 19)",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "nginx",
        change: "keepalive 16; in the upstream block, with proxy_http_version 1.1 and proxy_set_header Connection \"\"",
    },
    RuleFix {
        software: "HAProxy",
        change: "http-reuse safe or always, without option httpclose and http-server-close; pool-max-conn above 0",
    },
    RuleFix {
        software: "Apache httpd",
        change: "ProxyPass without disablereuse=On and without SetEnv proxy-nokeepalive; enablereuse=on for FastCGI",
    },
    RuleFix {
        software: "PHP, Python, Ruby with a database",
        change: "a pool or persistent connections (pgbouncer; CONN_MAX_AGE in Django; PDO::ATTR_PERSISTENT)",
    },
    RuleFix {
        software: "any proxy",
        change: "keep connections to the server behind, and let that one keep them longer than the proxy does",
    },
];

/// From this share of the calls on each opens one.
const EACH: f64 = 0.8;

/// What single calls show of one server behind.
struct Connects {
    peer: SocketAddr,
    /// Calls that used a connection to it, and those that opened one.
    used: usize,
    opened: usize,
    /// The handshakes' round trips, milliseconds.
    trips: Vec<f64>,
}

/// By server behind, of calls on a kept connection of ours, or on new ones.
fn connects(record: &Record, fresh: bool) -> Vec<Connects> {
    let mut all: Vec<Connects> = Vec::new();
    for (_, seen, _) in behind::answered(record).into_iter().filter(|(probe, ..)| probe.fresh == fresh) {
        for peer in &seen.used {
            let trips: Vec<f64> =
                seen.opened.iter().filter(|(to, _)| to == peer).map(|(_, trip)| ms(*trip)).collect();
            let place = all.iter().position(|c| c.peer == *peer).unwrap_or_else(|| {
                all.push(Connects { peer: *peer, used: 0, opened: 0, trips: Vec::new() });
                all.len() - 1
            });
            all[place].used += 1;
            all[place].opened += usize::from(!trips.is_empty());
            all[place].trips.extend(trips);
        }
    }
    all
}

/// Connections to that server that were opened while we called nobody, and how often we looked.
fn unasked(record: &Record, peer: SocketAddr) -> (usize, usize) {
    let controls = behind::seen(record, 0);
    let opened = controls.iter().flat_map(|(_, seen)| &seen.opened).filter(|(to, _)| *to == peer);
    (opened.count(), controls.len())
}

/// What a connection to the server behind takes from here (`--origin`).
fn from_here(record: &Record) -> Option<f64> {
    let fresh = record.calls().filter(|(p, c)| p.variation == Variation::Origin && c.fresh);
    let times: Vec<f64> = fresh.filter(|(_, c)| c.answer().is_some()).map(|(_, c)| ms(c.opening())).collect();
    (!times.is_empty()).then(|| median(&times))
}

fn judge(record: &Record) -> Judgement {
    let kept = connects(record, false);
    let each = |c: &&Connects| c.used >= ENOUGH && c.opened as f64 >= EACH * c.used as f64;
    let cost = |c: &Connects| median(&c.trips);
    let Some(found) = kept.iter().filter(each).max_by(|a, b| cost(a).total_cmp(&cost(b))) else {
        if let Some(found) = connects(record, true).iter().find(|c| c.opened > 0 && c.opened == c.used)
            && kept.iter().any(|c| c.peer == found.peer && c.opened == 0)
        {
            return Judgement::Open(format!(
                "a note and no cause: the server opens a connection to {} for each new connection of ours ({} of round trip), and uses it again \
                 for later calls on that",
                found.peer,
                say(cost(found))
            ));
        }
        return match kept.iter().find(|c| c.used >= ENOUGH && c.opened == 0) {
            Some(c) => excluded(format!(
                "in {} calls that were watched the server used a connection to {} that was open before",
                c.used, c.peer
            )),
            None => Judgement::Silent,
        };
    };
    let (unasked, controls) = unasked(record, found.peer);
    if unasked > 0 {
        return Judgement::Open(format!(
            "unclear: {} of {} calls came with a new connection to {}, and {unasked} were opened while we made no call: whose they are is unclear",
            found.opened, found.used, found.peer
        ));
    }
    let words = format!(
        "in {} of {} calls on one connection of ours the server's process opened a connection to {}, each from another port; in {controls} \
         times as long without a call it opened none (sock_diag)",
        found.opened, found.used, found.peer
    );
    let share = found.opened as f64 / found.used as f64;
    let cost = cost(found);
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Counted { words, share })
        .titled(&format!("the answering server opens a new connection to {} for each call", found.peer))
        .saying(format!(
            "each handshake takes a round trip of {} at least; TLS or a login besides take more",
            say(cost)
        ));
    let verdict = match from_here(record) {
        Some(took) => {
            verdict.saying(format!("a connection to the server behind takes {} from here", say(took)))
        }
        None => verdict,
    };
    let sure = controls >= 2;
    Judgement::Named(Box::new(if sure { verdict } else { verdict.at_most(Proof::Likely) }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{Call, ProbeResponse};
    use crate::probe::{BehindProbe, Observation, Probe};
    use crate::record::Settings;
    use crate::upstream::UpstreamSeen;

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 7], 80);

    /// The judgement where calls open so many connections each, and none in the controls but these.
    fn judged(kept: &[usize], fresh: &[usize], controls: [usize; 3]) -> Judgement {
        let mut record = Record::new(Settings::default());
        let opened = |n: usize| vec![(PEER.into(), Duration::from_millis(20)); n];
        let answer = ProbeResponse { status: 200, ..ProbeResponse::default() };
        let call =
            || Call { total: Duration::from_millis(60), end: Some(Ok(answer.clone())), ..Call::default() };
        let mut push = |calls: u8, fresh: bool, n: usize| {
            let probe = BehindProbe { calls, fresh, beside: None, time: Duration::ZERO };
            let calls = (0..calls).map(|_| call()).collect();
            let seen =
                UpstreamSeen { calls, opened: opened(n), used: vec![PEER.into()], ..UpstreamSeen::default() };
            record.push(Probe::Behind(probe), Observation::Behind(Some(Box::new(seen))));
        };
        kept.iter().for_each(|n| push(1, false, *n));
        fresh.iter().for_each(|n| push(1, true, *n));
        controls.iter().for_each(|n| push(0, false, *n));
        judge(&record)
    }

    #[test]
    fn a_connection_for_each_call_is_counted() {
        let proved = judged(&[1; 5], &[1; 2], [0; 3]);
        assert!(matches!(&proved, Judgement::Named(v) if v.proof() == Proof::Proved && v.cost_ms() == 20.0));
        let most = judged(&[1, 1, 0, 1, 1], &[1; 2], [0; 3]);
        assert!(matches!(&most, Judgement::Named(_)), "{most:?}");
        // It opens some at all times.
        assert!(matches!(judged(&[1; 5], &[1; 2], [1, 0, 1]), Judgement::Open(_)));
    }

    #[test]
    fn connections_that_are_kept_are_none() {
        assert!(matches!(judged(&[0; 5], &[0; 2], [0; 3]), Judgement::RuledOut(_)));
        // The first call of a pool opens one.
        assert!(!matches!(judged(&[1, 0, 0, 0, 0], &[0; 2], [0; 3]), Judgement::Named(_)));
        // One for each connection of ours.
        let note = judged(&[0; 5], &[1; 2], [0; 3]);
        assert!(matches!(&note, Judgement::Open(words) if words.starts_with("a note")), "{note:?}");
        assert_eq!(judged(&[], &[], [0; 3]), Judgement::Silent);
    }
}
