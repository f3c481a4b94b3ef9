//! The server looks up the client's name (or does other work) once per connection.
//!
//! Symptom: the first call of a connection always takes the same time longer, however many come at
//! once; later ones do not. Other work of that kind looks the same from outside, so the cause is
//! only named as possible.

use super::{connection_limit, tls_slow_key};
use crate::call::ms;
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, nothing_beside};
use crate::signs::{new_connections, tls};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "reverse-dns",
    title: "the server works once for each new connection, as for a reverse lookup of the client's name",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::New,
    pause: Some("work for the new connection"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        // A new connection that waits for its turn, or for the server's private key, may wait as
        // steadily.
        hidden_by: &[&connection_limit::CAUSE, &tls_slow_key::CAUSE],
        asks: &[],
        wants: nothing_beside,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "Some servers look up the name of each new caller, to log it or to check who it is. Where the name server for the callers' addresses is slow or silent, \
         the first call of each connection waits for it. Other work that is done once for each connection looks the same.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request, the first of its connection"),
        PictureStep::Wait(200.0, "work for the new connection"),
        PictureStep::From("answer"),
        PictureStep::To("request"),
        PictureStep::From("answer, at once"),
    ],
    more: &[fix(
        "nginx, Go, Node",
        "they look nothing up by themselves: look for it in your own code (LookupAddr, dns.reverse)",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Apache httpd",
        change: "HostnameLookups Off; addresses instead of names in Require host",
    },
    RuleFix { software: "Tomcat", change: "enableLookups=\"false\" on the Connector" },
    RuleFix {
        software: "Python http.server",
        change: "override address_string so that logging looks nothing up",
    },
    RuleFix { software: "Java", change: "InetSocketAddress.getHostString instead of getHostName" },
    RuleFix { software: "DNS", change: "a PTR zone for the clients' addresses that answers at once" },
    RuleFix {
        software: "any server",
        change: "no lookup of a name while the caller waits: log addresses, and keep what is opened for each connection",
    },
];

/// Behind the tickets of TLS 1.3 Nagle's algorithm holds a first response back until we acknowledge them:
/// no longer than an acknowledgement is delayed, and the way there and back.
const TICKETS_MS: f64 = 60.0;

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let waited = new_connections::waited(record);
    let fresh: Vec<f64> = record.fresh().iter().map(|c| ms(c.first_wait())).collect();
    let (least, most) =
        (fresh.iter().copied().fold(f64::INFINITY, f64::min), fresh.iter().copied().fold(0.0, f64::max));
    let steady = fresh.len() >= 4 && most - least < 0.3 * most;
    let at_once = record.bursts().next().is_some() && !new_connections::grows(record);
    if judged.hides_it() {
        return Judgement::Silent;
    }
    if waited < 20.0 || !steady || !at_once || !new_connections::syns(record).0.is_empty() {
        return Judgement::Silent;
    }
    if waited <= TICKETS_MS + 2.0 * record.rtt_ms() && tls::gives_in_version(record, "TLSv1.3") {
        return Judgement::Open(format!(
            "unclear: the first call of each connection waits {} longer than later ones: work for each new connection does that, and so do \
             session tickets that meet Nagle's algorithm in the server (TCP_NODELAY there would tell)",
            say(waited)
        ));
    }
    let words = format!(
        "the first call of each connection waits {} longer than later ones ({} to {}), and several at once wait no longer",
        say(waited),
        say(least),
        say(most)
    );
    let verdict = Verdict::new(&CAUSE, waited, Grounds::Seen { words, alone: false });
    Judgement::Named(Box::new(
        verdict.saying(
            "what that work is cannot be seen from outside; look at what the server does on accepting",
        ),
    ))
}
