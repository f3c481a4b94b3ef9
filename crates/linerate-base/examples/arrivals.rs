//! Prints when requests of a Poisson process are due. The same seed gives the same times on every
//! machine: `cargo run -p linerate-base --example arrivals -- 7`.

use std::time::Duration;

use linerate_base::{Random, Time};

/// The times at which the first `count` requests are due, at `per_second` on average.
fn due(seed: u64, per_second: f64, count: usize) -> Vec<Time> {
    let mut random = Random::new(seed);
    let mut now = Time::from_nanos(0);
    let mut next = || {
        now = now + Duration::from_secs_f64(random.exponential() / per_second);
        now
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seed = std::env::args().nth(1).ok_or("usage: arrivals SEED")?.parse()?;
    for (i, time) in due(seed, 100.0, 10).into_iter().enumerate() {
        println!("request {i} is due at {:.3} ms", time.as_nanos() as f64 / 1e6);
    }
    Ok(())
}

#[test]
fn it_runs() {
    let (times, again) = (due(7, 100.0, 10_000), due(7, 100.0, 10_000));
    assert_eq!(times, again);
    assert_ne!(times, due(8, 100.0, 10_000));
    assert!(times.is_sorted());
    let seconds = times[9_999].as_nanos() as f64 / 1e9;
    assert!((95.0..105.0).contains(&seconds), "10,000 requests at 100/s take {seconds} s");
}
