//! The server's certificates are more than a new connection may send at first, so that the
//! handshake takes another round trip.
//!
//! Symptom: the server's first flight is larger than the first window, and pauses for a round trip.
//! Experiment: resumed sessions, for which no certificates are sent, against full handshakes.

use std::time::Duration;

use crate::evidence::{Grounds, Proof};
use crate::handshake::Handshake;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved, nothing};
use crate::signs::tls;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "tls-long-chain",
    title: "the server's certificates do not fit a new connection's first window: the TLS handshake takes another round trip",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Full,
    pause: Some("its window is full"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Cost,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "A new connection may send ten packets, some 14 kB, and then waits for an acknowledgement. A server's certificates usually have 2 to \
         4 kB. Where they have more, since the chain has certificates that nobody needs, or hundreds of names, the handshake waits a round \
         trip in its middle.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("ClientHello"),
        PictureStep::From("certificates, 14480 bytes"),
        PictureStep::Wait(40.0, "the window is full until our ACK arrives"),
        PictureStep::From("certificates, the rest"),
        PictureStep::To("Finished, request"),
    ],
    more: &[fix("openssl", "openssl s_client -connect HOST:443 -showcerts lists what is sent")],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "send the server's certificate and the intermediate ones, once each, and not the root; fewer names in the certificate",
    },
    RuleFix { software: "any server", change: "ECDSA certificates: a quarter of the size of RSA 4096 ones" },
    RuleFix {
        software: "nginx",
        change: "ssl_certificate with the chain alone (openssl crl2pkcs7 -nocrl -certfile FILE | openssl pkcs7 -print_certs -noout lists what is in it)",
    },
    RuleFix { software: "Linux servers", change: "ip route change ... initcwnd 30" },
];

/// Shorter round trips cost a negligible time.
const RTT_MS: f64 = 3.0;
/// Segments that a new connection may send at first (RFC 6928).
const SEGMENTS: u64 = 10;
/// A pause for the window lasts at least this many round trips.
const PAUSE_LEAST: f64 = 0.7;
/// And at most this many.
const PAUSE_MOST: f64 = 1.8;

fn pause(handshake: &Handshake) -> Duration {
    handshake.trips.last().map_or(Duration::ZERO, |t| t.pause)
}

/// Bytes of the first window, by the segments that we take.
fn window(record: &Record) -> u64 {
    let calls = record.observed().filter(|c| c.fresh).map(|c| u64::from(c.facts.advmss));
    SEGMENTS * calls.max().unwrap_or(0)
}

fn judge(record: &Record) -> Judgement {
    let (full, rtt, window) = (tls::full(record), record.rtt_ms(), window(record));
    let Some(bytes) = full.iter().map(|h| h.flight_bytes()).max() else { return Judgement::Silent };
    if rtt < RTT_MS || window == 0 {
        return Judgement::Silent;
    }
    if bytes <= window {
        return excluded(format!(
            "the server's part of the TLS handshake has {bytes} bytes, and the first window {window}"
        ));
    }
    let seen = full.first().and_then(|h| h.seen.as_ref());
    let chain = seen.map_or_else(String::new, |seen| {
        format!(" ({} certificates, {} bytes)", seen.certificates, seen.chain_bytes)
    });
    let words = format!(
        "the server's part of a full handshake has {bytes} bytes{chain}; a new connection may send {window} at first, and then waits a round \
         trip of {}",
        say(rtt)
    );
    if let Some(trial) = tls::resumed(record, tls::flight) {
        if !trial.moved(PAUSE_LEAST * rtt) {
            return not_moved(&trial, PAUSE_LEAST * rtt, &words);
        }
        let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
        return Judgement::Named(Box::new(verdict));
    }
    let pause = tls::middle(&full, pause);
    if full.len() < 2 || pause < PAUSE_LEAST * rtt || pause > PAUSE_MOST * rtt {
        return Judgement::Open(format!("unclear: {words}; sessions that resume would tell"));
    }
    let words = format!("{words}; within it {} pass without a byte", say(pause));
    let verdict =
        Verdict::new(&CAUSE, tls::middle(&full, Handshake::flight), Grounds::Seen { words, alone: true });
    Judgement::Named(Box::new(verdict.at_most(Proof::Likely)))
}
