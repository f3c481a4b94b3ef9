//! Each new connection makes a full TLS handshake, though a session could be resumed.
//!
//! Symptom: new connections after the first make full handshakes. Experiment: resumed sessions
//! against full handshakes, in turns. Of a server that resumes none, TLS 1.2 shows the second round
//! trip that a resumed session spares.

use crate::evidence::{Grounds, Trial};
use crate::handshake::Handshake;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::signs::tls::{self, WORTH_MS};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

use linerate_tls::Variant;

pub(crate) static CAUSE: Cause = Cause {
    id: "tls-full-handshake",
    title: "each new connection makes a full TLS handshake, since no session is resumed",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::New,
    pause: Some("a full handshake"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "At the end of a TLS handshake the server may give the client a ticket. With it the next connection resumes the session: no \
         certificates are sent, nobody signs anything, and with TLS 1.2 one round trip is enough instead of two. Where the server gives no \
         ticket, or the next machine behind the same address cannot read it, each new connection pays for a full handshake again.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("ClientHello, without a ticket"),
        PictureStep::Wait(6.0, "the server signs"),
        PictureStep::From("certificates, signature"),
        PictureStep::To("Finished, request"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix(
            "browsers, curl",
            "browsers resume by themselves; curl does within one command and with --ssl-sessions FILE (8.12)",
        ),
        fix(
            "Python",
            "requests.Session or httpx.Client keeps connections; ssl resumes only where wrap_socket gets session=",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix { software: "any client", change: "keep connections: a call on an open one needs no handshake" },
    RuleFix {
        software: "nginx",
        change: "ssl_session_tickets on (the default) and ssl_session_cache shared:SSL:10m; with several machines one ssl_session_ticket_key",
    },
    RuleFix {
        software: "HAProxy",
        change: "remove no-tls-tickets; several machines share tls-ticket-keys; tune.ssl.cachesize above 0",
    },
    RuleFix {
        software: "Apache httpd",
        change: "SSLSessionTickets on, SSLSessionCache shmcb:..., and one SSLSessionTicketKeyFile",
    },
    RuleFix {
        software: "Go",
        change: "SessionTicketsDisabled false; several machines share SetSessionTicketKeys; clients: a ClientSessionCache in tls.Config",
    },
    RuleFix {
        software: "Node",
        change: "share ticketKeys between processes and machines (server.setTicketKeys)",
    },
    RuleFix {
        software: "Java",
        change: "clients: one SSLContext for all connections; servers: jdk.tls.server.enableSessionTicketExtension=true",
    },
    RuleFix {
        software: "load balancer",
        change: "machines behind one address share their ticket keys, or a client's connections go to the same one",
    },
    RuleFix {
        software: "any server",
        change: "session tickets (RFC 8446 section 4.6.1, RFC 5077), with keys that all its processes share",
    },
];

fn wants(record: &Record) -> Vec<Block> {
    // Without a ticket there is nothing to resume; where it was refused, it would be again.
    let refused = record.settings.tls.is_some_and(|tls| tls.resumes)
        && tls::later(record).iter().all(|h| !h.is_resumed());
    if !tls::may(record, Experiment::Resume) || !tls::gives(record) || refused {
        return Vec::new();
    }
    if tls::beyond_rtt(record) < WORTH_MS {
        return Vec::new();
    }
    tls::pairs(record, Experiment::Resume, Variant::Resumed)
}

fn judge(record: &Record) -> Judgement {
    let (Some(settings), later) = (record.settings.tls, tls::later(record)) else { return Judgement::Silent };
    let all = later.len();
    if all < 2 {
        return Judgement::Silent;
    }
    let resumed = later.iter().filter(|h| h.is_resumed()).count();
    if settings.resumes && 2 * resumed >= all {
        return excluded(format!("{resumed} of {all} new connections resumed their TLS session"));
    }
    let trial = tls::resumed(record, tls::took);
    match trial {
        Some(trial) => by_experiment(trial, resumed, all, settings.resumes),
        None if resumed > 0 => Judgement::Open(format!(
            "unclear: {resumed} of {all} new connections resumed their TLS session; what a full handshake costs was not tested"
        )),
        None if settings.resumes => by_protocol(record, &later),
        None => Judgement::Silent,
    }
}

fn by_experiment(trial: Trial, resumed: usize, all: usize, resumes: bool) -> Judgement {
    if !trial.moved(WORTH_MS) {
        let words = format!(
            "a full TLS handshake takes {}, a resumed session {}",
            say(trial.before_ms()),
            say(trial.after_ms())
        );
        return not_moved(&trial, WORTH_MS, &words);
    }
    let words = if resumes {
        format!(
            "{resumed} of {all} new connections resumed their session: the machines or processes behind this address may not share their \
             ticket keys"
        )
    } else {
        "the server resumes sessions, and this client asks for none (--tls-resume off)".to_owned()
    };
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
    let title = "each new connection makes a full TLS handshake, since the client resumes no session";
    Judgement::Named(Box::new(if resumes { verdict } else { verdict.titled(title) }))
}

/// The cost of a server that resumes nothing.
fn by_protocol(record: &Record, later: &[&Handshake]) -> Judgement {
    let given = if later.iter().any(|h| h.given_before) {
        "the server gives sessions, and resumes none of them"
    } else {
        "the server gives nothing to resume a session by"
    };
    let took = tls::middle(later, |h| h.took);
    let second: Vec<f64> = later.iter().filter_map(|h| h.second_trip_ms()).collect();
    let old = later.iter().all(|h| h.version() == "TLSv1.2") && second.len() == later.len();
    let words = format!(
        "none of {} new connections resumed a session: {given}; a full handshake takes {}, of which the round trip is {}",
        later.len(),
        say(took),
        say(record.rtt_ms())
    );
    if old {
        let cost = crate::stats::median(&second);
        let verdict = Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: true });
        return Judgement::Named(Box::new(verdict.saying(format!(
            "with TLS 1.2 a resumed session needs one round trip; the second one of these handshakes takes {}",
            say(cost)
        ))));
    }
    // With TLS 1.3 both take one round trip, and what the rest of it is cannot be seen.
    Judgement::Open(format!(
        "a note and no cause: {words}; what a resumed session would spare cannot be measured at a server that resumes none"
    ))
}
