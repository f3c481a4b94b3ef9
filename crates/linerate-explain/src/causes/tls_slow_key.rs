//! The server takes long for the work of a full handshake: the operation of its private key.
//!
//! Symptom: from the ClientHello to the server's first flight passes more than a round trip.
//! Experiment: resumed sessions, which need no such operation, against full handshakes, in turns.

use crate::evidence::{Grounds, Trial};
use crate::handshake::Handshake;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, not_moved, nothing};
use crate::signs::tls::{self, WORTH_MS};
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

use linerate_tls::ServerKey;

pub(crate) static CAUSE: Cause = Cause {
    id: "tls-slow-key",
    title: "the server takes that long for its private key's part of a full TLS handshake",
    fixes: FIXES,
    verify: AGAIN,
    // Resumed sessions are tried for all that a full handshake may cost.
    place: FaultPlace::Process,
    part: CallPart::Full,
    pause: Some("the server signs"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Cost,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "In each full handshake the server signs with its private key, to prove that it is who it says. A key of ECDSA P-256 signs in 30 \
         microseconds, RSA 2048 in 1 millisecond, RSA 4096 in 5 to 10; a key that lies in an HSM or behind a service takes what the way \
         there takes. The client waits, and so do all others if the server has one thread for it.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("ClientHello"),
        PictureStep::Then(0.2, "the network"),
        PictureStep::Wait(6.0, "the server signs with RSA 4096"),
        PictureStep::From("certificates, signature"),
        PictureStep::To("Finished, request"),
    ],
    more: &[fix(
        "openssl",
        "openssl speed rsa4096 ecdsap256 shows what a signature takes on the server's machine",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "a certificate with an ECDSA P-256 key (openssl ecparam -name prime256v1 -genkey): it signs 20 to 50 times as fast as RSA 4096",
    },
    RuleFix {
        software: "certbot",
        change: "--key-type ecdsa (the default since 2.0), then certbot renew --force-renewal",
    },
    RuleFix {
        software: "an HSM or a key service",
        change: "sessions of its own for each worker, a key service near by; session tickets, so that few handshakes need it",
    },
    RuleFix {
        software: "nginx",
        change: "ssl_certificate twice, for ECDSA and RSA: each client gets what it can use",
    },
];

/// From this size in bits on an RSA key takes milliseconds.
const LARGE: usize = 3072;

/// The key's operation must take this long to be named: a large RSA key takes milliseconds everywhere;
/// others do only where the key is elsewhere.
fn least_ms(record: &Record, key: Option<ServerKey>) -> f64 {
    let least = if is_large(key) { WORTH_MS } else { WORK_MS };
    tls::counts_ms(record, least)
}

fn is_large(key: Option<ServerKey>) -> bool {
    matches!(key, Some(ServerKey::Rsa(bits)) if bits >= LARGE)
}

fn judge(record: &Record) -> Judgement {
    let full = tls::full(record);
    let Some(seen) = full.first().and_then(|h| h.seen.as_ref()) else { return Judgement::Silent };
    let least = least_ms(record, seen.key);
    let key = seen.key.map_or_else(|| "a key of another kind".to_owned(), |key| key.to_string());
    match tls::resumed(record, tls::hello) {
        Some(trial) => on_a_busy_machine(record, seen.key, by_experiment(trial, least, &key)),
        None => by_time(record, &full, least, &key, is_large(seen.key)),
    }
}

/// A full handshake takes more of a processor than a resumed one, with any key: where others have the
/// processors, that takes milliseconds.
fn on_a_busy_machine(record: &Record, key: Option<ServerKey>, judgement: Judgement) -> Judgement {
    match judgement {
        Judgement::Named(verdict) if !is_large(key) && record.is_machine_busy() => Judgement::Open(format!(
            "unclear: a full handshake takes {} longer than a resumed one, and this machine is busy itself; a quieter one would tell",
            say(verdict.cost_ms())
        )),
        judgement => judgement,
    }
}

fn by_experiment(trial: Trial, least: f64, key: &str) -> Judgement {
    let times = format!(
        "the server's first flight takes {} in a full handshake ({key}) and {} in a resumed one, which needs no private key",
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    if !trial.moved(least) {
        return not_moved(&trial, least, &times);
    }
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial));
    Judgement::Named(Box::new(verdict.saying(times)))
}

/// Of a server that resumes no session.
fn by_time(record: &Record, full: &[&Handshake], least: f64, key: &str, large: bool) -> Judgement {
    let beyond = tls::middle(full, Handshake::hello) - record.rtt_ms();
    // A server that is slow with all it does is not slow for its key.
    if full.len() < 2 || beyond < least || beyond < 2.0 * beyond_rtt(record) {
        return Judgement::Silent;
    }
    let words = format!(
        "from the ClientHello to the server's first flight: {} ({key}), of which the round trip is {}; a request waits {}",
        say(beyond + record.rtt_ms()),
        say(record.rtt_ms()),
        say(beyond_rtt(record) + record.rtt_ms())
    );
    let verdict = Verdict::new(&CAUSE, beyond, Grounds::Seen { words, alone: large })
        .saying("the server resumes no session to compare with");
    Judgement::Named(Box::new(verdict))
}
