//! The server asks for a key share of another group (HelloRetryRequest), which takes one more round
//! trip.
//!
//! Symptom: handshakes of TLS 1.3 with two flights of ours. Experiment: a key share of the group
//! that the server wants, in turns with the usual one.

use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::signs::tls::{self, WORTH_MS};
use crate::times::CallPart;
use crate::verdict::Verdict;

use linerate_tls::Variant;

pub(crate) static CAUSE: Cause = Cause {
    id: "tls-hello-retry",
    title: "the server asks for a key share of another group, which costs the TLS handshake a round trip",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::New,
    pause: Some("one more round trip"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A client of TLS 1.3 sends its part of the key exchange with the first message, before it knows which curve the server likes. Nearly \
         all send X25519. A server that wants another curve has to ask for it, and the client begins again: one more round trip for \
         each new connection.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("ClientHello, share of X25519"),
        PictureStep::From("HelloRetryRequest: secp384r1"),
        PictureStep::To("ClientHello, share of secp384r1"),
        PictureStep::Wait(40.0, "a round trip more"),
        PictureStep::From("ServerHello, certificates"),
    ],
    more: &[fix("OpenSSL", "Groups = X25519:P-256:P-384 in the section of openssl.cnf that the server uses")],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "nginx",
        change: "ssl_ecdh_curve X25519:prime256v1:secp384r1 (or auto), not one of the larger curves alone",
    },
    RuleFix { software: "HAProxy", change: "curves X25519:P-256 on the bind line" },
    RuleFix { software: "Apache httpd", change: "SSLOpenSSLConfCmd Groups X25519:P-256" },
    RuleFix { software: "Java", change: "jdk.tls.namedGroups with x25519 first" },
    RuleFix { software: "Go", change: "X25519 in CurvePreferences, or none of that" },
    RuleFix { software: "Node", change: "ecdhCurve: 'auto'" },
    RuleFix { software: "any server", change: "accept X25519, of which nearly all clients send a key share" },
];

/// Share of a round trip that the experiment must take away.
const SHARE: f64 = 0.7;

fn retried(record: &Record) -> (usize, usize) {
    let usual = tls::usual(record);
    (usual.iter().filter(|h| h.is_retried()).count(), usual.len())
}

fn wants(record: &Record) -> Vec<Block> {
    let (retried, all) = retried(record);
    let worth = record.rtt_ms() >= WORTH_MS;
    if 2 * retried < all.max(1) || !worth || !tls::may(record, Experiment::Group) {
        return Vec::new();
    }
    tls::pairs(record, Experiment::Group, Variant::KnownGroup)
}

fn judge(record: &Record) -> Judgement {
    let (retried, all) = retried(record);
    if all == 0 {
        return Judgement::Silent;
    }
    if 2 * retried < all {
        return match retried {
            0 => excluded("the server takes the key share that it is offered".to_owned()),
            some => Judgement::Open(format!(
                "unclear: the server asked for another key share in {some} of {all} handshakes"
            )),
        };
    }
    let group = tls::usual(record).last().and_then(|h| h.seen.as_ref()?.group.clone()).unwrap_or_default();
    let words =
        format!("in {retried} of {all} handshakes the server asked for another key share: it wants {group}");
    let name = "a key share of the group that the server wants";
    let Some(trial) =
        tls::trial(record, Experiment::Group, name, &format!("{group} in the ClientHello"), tls::took)
    else {
        // Its cost is the second round trip, which was counted.
        let cost = record.rtt_ms();
        return Judgement::Named(Box::new(Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: true })));
    };
    let least = (SHARE * record.rtt_ms()).max(WORTH_MS);
    if !trial.moved(least) {
        return not_moved(&trial, least, &words);
    }
    Judgement::Named(Box::new(Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words)))
}
