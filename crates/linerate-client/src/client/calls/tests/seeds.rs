//! Calls to a server that does anything, by seed. Each ends in exactly one of response, error and unknown; no response
//! reaches another caller; nothing that is not idempotent is sent twice; nothing hangs; memory is bounded.
//!
//! A seed is a bug report: `LINERATE_SEED=n` runs one. `LINERATE_SEEDS=n` runs this many (`cargo xtask soak client`:
//! 10,000), starting at `LINERATE_FROM`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request};
use linerate_net::Time;
use linerate_net::mem::{Cut, MemOptions};

use super::super::random_up_to;
use super::server::{Arrivals, Faults, Server, TAG, body_of};
use super::{Program, Result, options};
use crate::client::error::{Error, Phase};
use crate::client::options::CallOptions;

const SEEDS: u64 = 200;
/// Requests of one seed.
const REQUESTS: u64 = 300;
/// No call takes longer than its timeout, and its last attempt to connect.
const PATIENCE: Duration = Duration::from_secs(30);

struct Seed {
    random: u64,
    program: Program,
    arrivals: Arrivals,
    cancelled: Vec<u64>,
    pipes: u32,
    depth: u32,
    counts: [u64; 4],
}

fn wire(seed: u64, random: &mut u64) -> MemOptions {
    let cut = match random_up_to(random, 3) {
        0 => Cut::Every(1 + random_up_to(random, 40) as usize),
        1 => Cut::Random(1 + random_up_to(random, 3_000) as usize),
        _ => Cut::Whole,
    };
    let some = |random: &mut u64, n, of: u64| (random_up_to(random, of) == 0).then_some(n);
    MemOptions {
        seed,
        cut,
        latency: Duration::from_micros(random_up_to(random, 3) * random_up_to(random, 10_000)),
        window: 1 << (7 + random_up_to(random, 11)),
        refuse_every: some(random, 5, 8),
        fail_send_every: some(random, 37, 8),
        reset_after_bytes: some(random, 100_000, 8),
        ..MemOptions::default()
    }
}

impl Seed {
    fn new(seed: u64) -> Seed {
        let mut random = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed;
        let tagged = random_up_to(&mut random, 1) == 0;
        let (pipes, depth) =
            (1 + random_up_to(&mut random, 4) as u32, 1 + random_up_to(&mut random, 30) as u32);
        let options = CallOptions {
            pipes,
            depth,
            max_body: 100_000,
            max_discarded: 10_000,
            tag: tagged.then(|| HeaderName::from_static(TAG)),
            seed,
            ..options()
        };
        let arrivals = Arrivals::default();
        let faults = Faults::of(&mut random, tagged);
        let well_from = Time::from_nanos(random_up_to(&mut random, 20_000_000_000));
        let server = Server::new(seed, faults, &arrivals, well_from);
        let program = Program::new(wire(seed, &mut random), options, server);
        Seed { random, program, arrivals, cancelled: Vec::new(), pipes, depth, counts: [0; 4] }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        random_up_to(&mut self.random, one_in - 1) == 0
    }

    fn request(&mut self, number: u64) -> Request<Bytes> {
        let method = match random_up_to(&mut self.random, 19) {
            0 => Method::POST,
            1 => Method::PUT,
            2 => Method::HEAD,
            3 => Method::DELETE,
            4 => Method::PATCH,
            _ => Method::GET,
        };
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
        let len = if has_body {
            random_up_to(&mut self.random, 2) * random_up_to(&mut self.random, 20_000)
        } else {
            0
        };
        let body = Bytes::from(vec![b'b'; len as usize]);
        Request::builder().method(method).uri(format!("/{number}")).body(body).unwrap()
    }

    fn run(&mut self) {
        let mut number = 0;
        while number < REQUESTS {
            for _ in 0..=random_up_to(&mut self.random, 40) {
                let request = self.request(number);
                self.program.send(number, request);
                number += 1;
            }
            if self.chance(4) {
                self.cancel_some();
            }
            let pause = Duration::from_micros(
                random_up_to(&mut self.random, 2) * random_up_to(&mut self.random, 50_000),
            );
            self.program.wait(pause);
            self.check_bounds();
        }
        self.program.run(PATIENCE);
        self.check_ends(number);
    }

    fn cancel_some(&mut self) {
        for _ in 0..random_up_to(&mut self.random, 10) {
            let at = random_up_to(&mut self.random, self.program.open.len() as u64) as usize;
            let Some((&id, &number)) = self.program.open.iter().nth(at) else { return };
            self.program.cancel(id);
            self.cancelled.push(number);
        }
    }

    fn check_bounds(&mut self) {
        let open = self.program.open.len();
        let calls = &mut self.program.calls;
        assert!(calls.open() <= self.pipes, "{} pipes", calls.open());
        assert_eq!(calls.unfinished(), open);
        assert!(calls.waiting() <= 4 * open + 200, "{} wait of {open}", calls.waiting());
        assert!(calls.pool.in_flight() <= u64::from(self.pipes * self.depth));
    }

    fn check_ends(&mut self, numbers: u64) {
        assert_eq!(self.program.calls.unfinished(), 0);
        for number in 0..numbers {
            let cancelled = self.cancelled.contains(&number);
            let end = self.program.ended.remove(&number);
            assert_eq!(end.is_none(), cancelled, "request {number}: {end:?}");
            let arrived = self.arrivals.lock().unwrap().get(&number).cloned();
            if let Some(end) = end {
                self.check_end(number, end, arrived.as_ref().map_or(0, |(_, times)| *times));
            }
            if let Some((method, times)) = arrived {
                let once = ["POST", "PATCH"].contains(&method.as_str());
                assert!(!once || times == 1, "{method} {number} arrived {times} times");
            }
        }
    }

    fn check_end(&mut self, number: u64, end: Result, arrived: u32) {
        let which = match end {
            Ok(response) => {
                assert!(arrived > 0, "{number} was answered and never arrived");
                assert_eq!(response.status(), 200);
                assert_eq!(response.headers()["x-number"], number.to_string().as_str());
                let body = response.into_body();
                // That to HEAD has none.
                assert!(body.is_empty() || body == body_of(number), "the body of {number} is another's");
                0
            }
            Err(Error::OutcomeUnknown(unknown)) => {
                assert_eq!(unknown.request.uri().path(), format!("/{number}"));
                assert!([Method::POST, Method::PATCH].contains(unknown.request.method()));
                1
            }
            Err(Error::Connect(_) | Error::Timeout(Phase::Queue)) => 2,
            Err(Error::Request(problem)) => panic!("{number}: {problem}"),
            Err(_) => 3,
        };
        self.counts[which] += 1;
    }
}

fn run(seed: u64) -> std::result::Result<[u64; 4], String> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut seed = Seed::new(seed);
        seed.run();
        seed.counts
    }));
    ran.map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        words.unwrap_or_default()
    })
}

#[test]
fn each_call_ends_once_and_none_gets_the_response_of_another() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let from = number("LINERATE_FROM").unwrap_or(1);
    let seeds = match number("LINERATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + number("LINERATE_SEEDS").unwrap_or(SEEDS),
    };
    let (mut failed, mut counts) = (Vec::new(), [0; 4]);
    for seed in seeds {
        match run(seed) {
            Ok(of_seed) => counts.iter_mut().zip(of_seed).for_each(|(sum, n)| *sum += n),
            Err(why) => failed.push(format!("LINERATE_SEED={seed}: {why}")),
        }
        if failed.len() == 10 {
            break;
        }
    }
    let [answered, unknown, unsent, other] = counts;
    println!("{answered} responses, {unknown} unknown, {unsent} not sent, {other} other errors");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(answered > unknown + unsent + other, "most calls are answered");
}
