//! Worlds over TLS: the verdicts on their handshakes, and no verdict on healthy ones.

use linerate_tls::{ServerHandshake, ServerKey, Variant};

use super::*;
use crate::handshake::{Handshake, Trip};
use crate::record::TlsSettings;

/// A server over TLS.
#[derive(Clone, Copy, Debug)]
struct Server {
    rtt: f64,
    old: bool,
    speaks_new: bool,
    gives: bool,
    resumes: bool,
    retries: bool,
    key: ServerKey,
    /// The time of an operation with its key, and of resuming a session.
    key_ms: f64,
    work_ms: f64,
    chain: u64,
    /// The most that anything takes longer by chance.
    noise: f64,
    /// For this share of each call we waited for a processor ourselves.
    starved: f64,
}

impl Server {
    const HEALTHY: Server = Server {
        rtt: 0.05,
        old: false,
        speaks_new: true,
        gives: true,
        resumes: true,
        retries: false,
        key: ServerKey::Ecdsa(256),
        key_ms: 0.1,
        work_ms: 0.2,
        chain: 1200,
        noise: 0.05,
        starved: 0.0,
    };

    fn handshake(
        &self,
        variant: Variant,
        usual: bool,
        first: bool,
        noise: &mut impl FnMut() -> f64,
    ) -> Handshake {
        let asks = match variant {
            Variant::Usual => usual,
            Variant::Resumed => true,
            Variant::Full | Variant::KnownGroup | Variant::AllVersions => false,
        };
        let is_resumed = asks && self.resumes && self.gives && !first;
        let old = self.old && !(variant == Variant::AllVersions && self.speaks_new);
        let is_retried = self.retries && !old && variant != Variant::KnownGroup;
        let mut trips = Vec::new();
        let mut now = self.rtt;
        let mut trip = |work: f64, bytes: u64, pause: f64| {
            let begun = now + self.rtt + work;
            let one = Trip { sent: t(now), begun: t(begun), ended: t(begun + pause), bytes, pause: t(pause) };
            now = begun + pause;
            trips.push(one);
        };
        if is_retried {
            trip(noise(), 99, 0.0);
        }
        if is_resumed {
            trip(self.work_ms + noise(), 250, 0.0);
        } else {
            let pause = if self.chain > 14_480 { self.rtt } else { 0.0 };
            trip(self.work_ms + self.key_ms + noise(), self.chain, pause);
            if old {
                trip(0.1 + noise(), 51, 0.0);
            }
        }
        let mut seen = ServerHandshake { is_resumed, is_retried, ..ServerHandshake::default() };
        seen.agreed.version = if old { "TLSv1.2" } else { "TLSv1.3" }.to_owned();
        seen.key = Some(self.key);
        seen.group = Some("secp384r1".to_owned());
        Handshake {
            took: t(now - self.rtt + 0.3),
            own: t(0.3),
            trips,
            seen: Some(seen),
            variant,
            given: self.gives,
            given_before: self.gives && !first,
        }
    }

    fn explained(&self, tls: TlsSettings, seed: u64) -> Diagnosis {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.noise * ((state >> 40) as f64 / f64::from(1 << 24))
        };
        let mut open = std::collections::HashSet::new();
        let (mut planner, mut now, mut made) =
            (Planner::new(Settings { seed, tls: Some(tls), ..settings() }), 0.0, 0);
        while let Some(probe) = planner.poll_probe(t(now)) {
            let mut call = |fresh: bool, variant: Variant| {
                let mut call = Call { fresh, wait: t(self.rtt + 0.2 + noise()), ..Call::default() };
                if fresh {
                    call.connect = t(self.rtt);
                    call.tls = Some(Box::new(self.handshake(variant, tls.resumes, made == 0, &mut noise)));
                    call.facts.advmss = 1448;
                }
                made += 1;
                call.facts.min_rtt_us = (self.rtt * 1e3) as u32;
                call.total = call.opening() + call.wait;
                call.starved = call.total.mul_f64(self.starved);
                let answer =
                    ProbeResponse { status: 200, reusable: true, body_bytes: 5, ..ProbeResponse::default() };
                call.end = Some(Ok(answer));
                call
            };
            let seen = match &probe {
                Probe::Call(p) => {
                    let fresh = match p.lane {
                        Lane::Fresh => true,
                        Lane::Kept(lane) => open.insert(lane),
                    };
                    Observation::Call(Box::new(call(fresh, p.tls)))
                }
                Probe::Burst(n) => Observation::Burst((0..*n).map(|_| call(true, Variant::Usual)).collect()),
                Probe::Scattered(times) => {
                    Observation::Scattered(times.iter().map(|_| call(false, Variant::Usual)).collect())
                }
                other => unreachable!("{other:?} is not asked for"),
            };
            if let Observation::Call(call) = &seen {
                now += ms(call.total);
            }
            planner.handle_observation(probe, seen);
        }
        planner.diagnose()
    }
}

const USUAL: TlsSettings = TlsSettings { insecure: false, resumes: true, limited: false };

fn proofs(diagnosis: &Diagnosis) -> Vec<(&'static str, Proof)> {
    diagnosis.causes.iter().map(|c| (c.id(), c.proof())).collect()
}

#[test]
fn healthy_servers_stay_healthy() {
    let healthy = Server::HEALTHY;
    let rsa = Server { key: ServerKey::Rsa(2048), key_ms: 1.3, ..healthy };
    for (name, server) in [
        ("ECDSA", healthy),
        ("RSA 2048", rsa),
        ("RSA 2048, noisy", Server { noise: 1.5, ..rsa }),
        ("a JVM", Server { key_ms: 3.0, work_ms: 2.0, noise: 1.0, ..healthy }),
        ("no tickets", Server { gives: false, ..healthy }),
        ("tickets in vain", Server { resumes: false, ..rsa }),
        ("TLS 1.2", Server { old: true, speaks_new: false, ..healthy }),
        ("another group, near", Server { retries: true, ..healthy }),
        ("TLS 1.2, no tickets, near", Server { old: true, speaks_new: false, gives: false, ..healthy }),
        ("a JVM without tickets", Server { key_ms: 3.0, work_ms: 2.0, gives: false, ..healthy }),
        ("a long chain, near", Server { chain: 20_000, ..healthy }),
    ] {
        for seed in 0..20 {
            let diagnosis = server.explained(USUAL, seed);
            assert_eq!(
                (diagnosis.whole, ids(&diagnosis)),
                (Whole::Healthy, vec![]),
                "{name}: {diagnosis:#?}"
            );
        }
    }
    for server in
        [healthy, rsa, Server { gives: false, ..healthy }, Server { old: true, speaks_new: false, ..healthy }]
    {
        let diagnosis = Server { rtt: 40.0, ..server }.explained(USUAL, 1);
        assert_eq!(
            (diagnosis.whole, ids(&diagnosis)),
            (Whole::Healthy, vec![]),
            "{server:?}: {diagnosis:#?}"
        );
    }
}

#[test]
fn each_cause_is_named_by_its_experiment() {
    let far = Server { rtt: 40.0, ..Server::HEALTHY };
    let proved = |id| vec![(id, Proof::Proved)];
    let rsa = Server { key: ServerKey::Rsa(4096), key_ms: 6.0, ..Server::HEALTHY };
    for (server, expected) in [
        (Server { retries: true, ..far }, proved("tls-hello-retry")),
        (Server { chain: 20_000, ..far }, proved("tls-long-chain")),
        (rsa, proved("tls-slow-key")),
        (Server { key_ms: 40.0, ..Server::HEALTHY }, proved("tls-slow-key")),
        (Server { resumes: false, ..rsa }, vec![("tls-slow-key", Proof::Likely)]),
        (Server { gives: false, key_ms: 40.0, ..Server::HEALTHY }, vec![("tls-slow-key", Proof::Possible)]),
    ] {
        for seed in 0..10 {
            assert_eq!(proofs(&server.explained(USUAL, seed)), expected, "{server:?}");
        }
    }
    let old = Server { old: true, speaks_new: false, gives: false, ..far };
    let mut found = proofs(&old.explained(USUAL, 1));
    found.sort_by_key(|(id, _)| *id);
    assert_eq!(found, [("tls-full-handshake", Proof::Likely), ("tls-old-version", Proof::Proved)]);
}

/// A full handshake takes more of a processor than a resumed one, with any key.
#[test]
fn on_a_busy_machine_a_small_key_is_not_blamed() {
    let busy = Server { key_ms: 40.0, starved: 0.1, ..Server::HEALTHY };
    let large = Server { key: ServerKey::Rsa(4096), ..busy };
    for seed in 0..10 {
        let diagnosis = busy.explained(USUAL, seed);
        assert!(!ids(&diagnosis).contains(&"tls-slow-key"), "{diagnosis:#?}");
        assert!(diagnosis.limits.iter().any(|l| l.starts_with("tls-slow-key: unclear")), "{diagnosis:#?}");
        assert_eq!(proofs(&large.explained(USUAL, seed)), [("tls-slow-key", Proof::Proved)]);
    }
}

#[test]
fn a_client_that_limits_itself_is_what_is_named() {
    let far = Server { rtt: 40.0, old: true, ..Server::HEALTHY };
    let mut found = proofs(&far.explained(TlsSettings { resumes: false, limited: true, ..USUAL }, 1));
    found.sort_by_key(|(id, _)| *id);
    assert_eq!(found, [("tls-full-handshake", Proof::Proved), ("tls-old-version", Proof::Proved)]);
    // Resuming a session spares it the round trip.
    let resuming = far.explained(TlsSettings { limited: true, ..USUAL }, 1);
    assert!(!ids(&resuming).contains(&"tls-full-handshake"), "{resuming:#?}");
}

#[test]
fn a_shorter_chain_brings_a_full_handshake_without_its_pause() {
    let chain = Server { rtt: 40.0, chain: 20_000, ..Server::HEALTHY }.explained(USUAL, 1);
    let predicted = chain.causes[0].predicted().expect("full handshakes, less their pause");
    assert_eq!((predicted.part, predicted.measured), (crate::times::CallPart::Full, false));
    assert!((118.0..124.0).contains(&predicted.after.value), "{predicted:?}");
}
