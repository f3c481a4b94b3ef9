//! Paths whose round trip is another one each time: radios, tunnels, shared lines.

use super::*;

/// What a path adds to a round trip.
type Air = fn(&mut Noise) -> f64;

/// Up to so many milliseconds more, each way.
fn each_way(noise: &mut Noise, most: f64) -> f64 {
    noise.between(0.0, most) + noise.between(0.0, most)
}

fn wifi(noise: &mut Noise) -> f64 {
    let disturbed = if noise.unit() < 0.05 { noise.between(10.0, 60.0) } else { 0.0 };
    -2.5 * (1.0 - 0.99 * noise.unit()).ln() + disturbed
}

fn lte(noise: &mut Noise) -> f64 {
    each_way(noise, 12.0)
}

fn vpn(noise: &mut Noise) -> f64 {
    each_way(noise, 2.0) + if noise.unit() < 0.02 { 80.0 } else { 0.0 }
}

#[test]
fn a_path_that_varies_as_radios_do_is_healthy() {
    let paths: [(f64, Air); 4] =
        [(3.0, wifi), (45.0, lte), (60.0, vpn), (40.0, |noise| each_way(noise, 5.0))];
    for (i, (rtt, air)) in paths.into_iter().enumerate() {
        let mut ill = Vec::new();
        for seed in 0..60 {
            for think in [(|_| 0.1) as Air, |_| 0.3] {
                let diagnosis =
                    explained_with(World { rtt, air, think, ..World::default() }, settings(), seed);
                assert_eq!(ids(&diagnosis), [""; 0], "{i}, {seed}: {diagnosis:#?}");
                ill.extend(diagnosis.limits.into_iter().take(usize::from(diagnosis.whole != Whole::Healthy)));
            }
        }
        assert!(ill.len() <= 2, "path {i}: {ill:#?} of 120");
    }
}

#[test]
fn jitter_is_no_work_of_the_server() {
    let airs: [Air; 3] =
        [|noise| each_way(noise, 10.0), |noise| each_way(noise, 20.0), |noise| each_way(noise, 40.0)];
    // That handshakes follow one another as in a queue happens by chance in one of a thousand series.
    let mut by_chance = 0;
    for (i, air) in airs.into_iter().enumerate() {
        for rtt in [0.1, 40.0] {
            let mut named = 0;
            for seed in 0..60 {
                let diagnosis = explained_with(World { rtt, air, ..World::default() }, settings(), seed);
                let found = ids(&diagnosis);
                if found == ["bufferbloat"] {
                    by_chance += 1;
                    continue;
                }
                assert!(found.iter().all(|id| *id == "path-jitter"), "{i}, {rtt}, {seed}: {diagnosis:#?}");
                named += usize::from(found == ["path-jitter"]);
            }
            // Twice 40 ms beyond a short way is what the user feels.
            assert!(i < 2 || rtt > 1.0 || named >= 55, "{i}, {rtt}: {named} of 60");
        }
    }
    assert!(by_chance <= 1, "{by_chance} of 360");
}

#[test]
fn work_behind_a_path_that_varies_is_named_and_not_the_path_for_it() {
    let mut near = 0;
    for seed in 0..40 {
        let world =
            World { rtt: 20.0, air: |noise| each_way(noise, 10.0), think: |_| 40.0, ..World::default() };
        let diagnosis = explained_with(world, settings(), seed);
        assert_eq!(ids(&diagnosis), ["server-think"], "{seed}: {diagnosis:#?}");
        // Where the first handshakes happen to agree, no more are made, and the quickest counts.
        let cost = diagnosis.causes[0].cost_ms();
        assert!((25.0..=55.0).contains(&cost), "{seed}: {diagnosis:#?}");
        near += usize::from(cost <= 42.0);
    }
    assert!(near >= 37, "{near} of 40");
}
