//! TLS 1.2 is spoken, whose full handshake takes two round trips; that of TLS 1.3 takes one.
//!
//! Symptom: handshakes with two flights of ours. Experiment, where the client is what forbids
//! TLS 1.3: handshakes that offer it, in turns.

use crate::evidence::{Grounds, Trial};
use crate::handshake::Handshake;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::signs::tls::{self, WORTH_MS};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

use linerate_tls::Variant;

pub(crate) static CAUSE: Cause = Cause {
    id: "tls-old-version",
    title: "TLS 1.2 is spoken, whose handshake takes one more round trip than that of TLS 1.3",
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
    what: "The handshake of TLS 1.2 takes two round trips before the request may leave: one to agree on how to talk, one to exchange keys. \
         TLS 1.3 (2018) sends the key with the first message, so that one round trip is enough. Far from the server that is the largest \
         part of what a new connection costs.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("ClientHello"),
        PictureStep::From("ServerHello, certificates"),
        PictureStep::To("key exchange, Finished"),
        PictureStep::Wait(40.0, "a round trip more than TLS 1.3"),
        PictureStep::From("Finished"),
        PictureStep::To("request"),
    ],
    more: &[fix("macOS, Windows", "TLS 1.3 is there since macOS 10.14 and Windows Server 2022 (Schannel)")],
};

const FIXES: &[RuleFix] = &[
    RuleFix { software: "nginx", change: "ssl_protocols TLSv1.2 TLSv1.3, with OpenSSL 1.1.1 or newer" },
    RuleFix {
        software: "HAProxy",
        change: "ssl-default-bind-options ssl-min-ver TLSv1.2, and no ssl-max-ver",
    },
    RuleFix { software: "Apache httpd", change: "SSLProtocol -all +TLSv1.2 +TLSv1.3" },
    RuleFix {
        software: "Java",
        change: "JDK 11 or newer, and no https.protocols or jdk.tls.client.protocols that leaves TLSv1.3 out",
    },
    RuleFix { software: "Go", change: "remove MaxVersion from tls.Config" },
    RuleFix { software: "Node", change: "remove maxVersion, and --tls-max-v1.2" },
    RuleFix {
        software: "load balancer",
        change: "a policy with TLS 1.3, as ELBSecurityPolicy-TLS13-1-2-2021-06",
    },
    RuleFix {
        software: "any server",
        change: "a TLS library that has TLS 1.3, and no setting that turns it off",
    },
];

/// Share of a round trip that a second one must take.
const SHARE: f64 = 0.7;

/// Handshakes of TLS 1.2 that took a second round trip, and what that took.
fn second_trips(record: &Record) -> Vec<f64> {
    let old = |h: &&Handshake| h.version() == "TLSv1.2";
    tls::usual(record).into_iter().filter(old).filter_map(|h| h.second_trip_ms()).collect()
}

fn wants(record: &Record) -> Vec<Block> {
    let limited = record.settings.tls.is_some_and(|tls| tls.limited);
    let worth = median(&second_trips(record)) >= WORTH_MS;
    if !limited || !worth || !tls::may(record, Experiment::Version) {
        return Vec::new();
    }
    tls::pairs(record, Experiment::Version, Variant::AllVersions)
}

fn judge(record: &Record) -> Judgement {
    let usual = tls::usual(record);
    let (Some(settings), Some(seen)) = (record.settings.tls, usual.first()) else {
        return Judgement::Silent;
    };
    if seen.version() != "TLSv1.2" {
        return excluded(format!("{} is spoken", seen.version()));
    }
    if settings.limited {
        let name = "handshakes that offer TLS 1.3";
        let trial =
            tls::trial(record, Experiment::Version, name, "all versions in the ClientHello", tls::took);
        if let Some(trial) = trial {
            return by_experiment(record, trial);
        }
    }
    let second = second_trips(record);
    if 2 * second.len() < usual.len() {
        let words = format!(
            "TLS 1.2 is spoken, and {} of {} new connections resumed a session, which takes one round trip as well",
            usual.len() - second.len(),
            usual.len()
        );
        return excluded(words);
    }
    // The second round trip's time beyond a plain one is work, which TLS 1.3 has as well.
    let cost = median(&second).min(record.rtt_ms());
    let who = if settings.limited {
        "TLS 1.3 was not offered (--tls-max)"
    } else {
        "the server chose it, though TLS 1.3 was offered"
    };
    let words = format!(
        "{} of {} new connections made a full handshake of TLS 1.2 ({who}): its second round trip takes {}",
        second.len(),
        usual.len(),
        say(median(&second))
    );
    Judgement::Named(Box::new(Verdict::new(&CAUSE, cost, Grounds::Counted { words, share: 1.0 })))
}

fn by_experiment(record: &Record, trial: Trial) -> Judgement {
    let least = (SHARE * record.rtt_ms()).max(WORTH_MS);
    let words = format!(
        "a handshake takes {}; with TLS 1.3 in the offer, {}",
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    if !trial.moved(least) {
        return not_moved(&trial, least, &words);
    }
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial));
    Judgement::Named(Box::new(
        verdict.saying("the server speaks TLS 1.3, and this client does not offer it (--tls-max)"),
    ))
}
