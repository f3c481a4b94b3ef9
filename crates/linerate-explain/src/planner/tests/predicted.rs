//! Predictions about a world with a fault, compared with the same world without it.

use super::*;
use crate::stats::median;
use crate::times::CallPart;

/// A name, the world with the fault, and without it.
fn pairs() -> Vec<(&'static str, World, World)> {
    let far = || World { rtt: 40.0, ..World::default() };
    let near = World::default;
    vec![
        ("server-nagle-delayed-ack", World { nagle: true, ..near() }, near()),
        ("server-nagle-delayed-ack", World { nagle: true, ..far() }, far()),
        (
            "server-nagle-delayed-ack",
            World { nagle: true, think: |_| 8.0, ..near() },
            World { think: |_| 8.0, ..near() },
        ),
        ("syn-loss", World { lose_syn: 2, ..far() }, far()),
        ("packet-loss", World { lose: 3, ..far() }, far()),
        ("path-mtu", World { mtu: Some(1200), body: 3000, ..far() }, World { body: 3000, ..far() }),
        ("no-keep-alive", World { keep: false, ..far() }, far()),
        ("accept-queue", World { accept: 150.0, ..far() }, far()),
        ("slow-start", World { slow_start: 5.0, body: 500_000, ..far() }, World { body: 500_000, ..far() }),
        ("rate-limit", World { every: 100.0, ..near() }, near()),
        ("redirects", World { redirect: true, ..far() }, far()),
        ("time-wait-collision", World { remembers: 1, ..far() }, far()),
    ]
}

#[test]
fn predictions_hold() {
    let (mut held, mut all) = (0, 0);
    let mut off = Vec::new();
    for (id, broken, mended) in pairs() {
        for seed in 1..=3 {
            let before = explained_with(broken.clone(), settings(), seed);
            let verdict = before.causes.iter().find(|c| c.id() == id);
            let Some(predicted) = verdict.and_then(Verdict::predicted) else {
                off.push(format!("{id}: none of {:?}", ids(&before)));
                all += 1;
                continue;
            };
            let after = explained_with(mended.clone(), settings(), seed);
            let measured = median(after.times.of(predicted.part));
            all += 1;
            assert!(
                predicted.after.low <= predicted.after.value && predicted.after.value <= predicted.after.high
            );
            assert!(predicted.after.value < predicted.before_ms, "{id}: {predicted:?}");
            // The clock of a near world has steps of some tenths.
            if (predicted.after.value - measured).abs() <= (0.1 * measured).max(0.3) {
                held += 1;
            } else {
                off.push(format!("{id}: {predicted:?}, and it takes {measured}"));
            }
        }
    }
    assert!(held == all, "{held} of {all}: {off:#?}");
}

#[test]
fn nothing_is_predicted_of_work() {
    let diagnosis = explained(World { think: |_| 40.0, ..World::default() });
    assert_eq!(ids(&diagnosis), ["server-think"]);
    assert_eq!(diagnosis.causes[0].predicted(), None);
}

#[test]
fn the_parts_of_a_call_have_their_times() {
    let diagnosis = explained(World { keep: false, rtt: 40.0, ..World::default() });
    let times = &diagnosis.times;
    assert_eq!(times.call, times.new, "each call opens its connection");
    let kept = explained(World { rtt: 40.0, ..World::default() }).times;
    assert!(median(&kept.new) > median(&kept.call) + 30.0, "{kept:?}");
    assert!(kept.first_byte.len() == kept.call.len() && kept.lookup.is_empty(), "{kept:?}");
    for part in CallPart::ALL {
        assert_eq!(CallPart::named(part.name()), Some(part));
    }
}
