//! Servers whose capacity is known, in virtual time.

use std::collections::BinaryHeap;

use linerate_base::Random;

use super::super::{RequestShare, ShareSlice};

/// Latency over which a request counts, seconds.
pub(super) const LIMIT: f64 = 0.05;

/// What becomes of a request that arrives at a time: when it is done; `None`: it is refused.
pub(super) trait Server {
    fn serve(&mut self, at: f64, random: &mut Random) -> Option<f64>;
}

/// Workers with one queue; the time of service is drawn for each request.
pub(super) struct Queue {
    free: BinaryHeap<std::cmp::Reverse<u64>>,
    service: fn(&mut Random, f64) -> f64,
    mean: f64,
    /// A part of the work that one does at a time.
    lock: f64,
    lock_free: f64,
    /// Every so often nothing moves for so long.
    pauses: Option<(f64, f64)>,
}

pub(super) const NANO: f64 = 1e9;

impl Queue {
    pub(super) fn new(workers: usize, mean: f64, service: fn(&mut Random, f64) -> f64) -> Queue {
        let free = (0..workers).map(|_| std::cmp::Reverse(0)).collect();
        Queue { free, service, mean, lock: 0.0, lock_free: 0.0, pauses: None }
    }

    /// The time at which work that begins at `from` is done, pauses included.
    fn worked(&self, from: f64, work: f64) -> f64 {
        let Some((every, lasts)) = self.pauses else { return from + work };
        let mut now = from;
        let mut left = work;
        loop {
            let into = now % every;
            if into < lasts {
                now += lasts - into;
            }
            let free = every - now % every;
            if left <= free {
                return now + left;
            }
            left -= free;
            now += free;
        }
    }
}

impl Server for Queue {
    fn serve(&mut self, at: f64, random: &mut Random) -> Option<f64> {
        let free = self.free.pop()?.0 as f64 / NANO;
        let mut done = self.worked(at.max(free), (self.service)(random, self.mean));
        if self.lock > 0.0 {
            done = done.max(self.lock_free) + self.lock;
            self.lock_free = done;
        }
        self.free.push(std::cmp::Reverse((done * NANO) as u64));
        Some(done)
    }
}

pub(super) fn fixed(_: &mut Random, mean: f64) -> f64 {
    mean
}

pub(super) fn random(random: &mut Random, mean: f64) -> f64 {
    random.exponential() * mean
}

/// Nine in ten are fast.
fn bimodal(random: &mut Random, mean: f64) -> f64 {
    if random.unit() < 0.9 { mean * 0.5 } else { mean * 5.5 }
}

/// A token bucket: `rate` tokens a second, and a credit.
struct Bucket {
    rate: f64,
    credit: f64,
    tokens: f64,
    then: f64,
}

impl Server for Bucket {
    fn serve(&mut self, at: f64, _: &mut Random) -> Option<f64> {
        self.tokens = (self.tokens + (at - self.then) * self.rate).min(self.credit);
        self.then = at;
        if self.tokens < 1.0 {
            return None;
        }
        self.tokens -= 1.0;
        Some(at + 0.001)
    }
}

/// It starts another worker when requests have waited for half a second, up to some.
struct Scaling {
    queue: Queue,
    most: usize,
    waited_since: Option<f64>,
}

impl Server for Scaling {
    fn serve(&mut self, at: f64, random: &mut Random) -> Option<f64> {
        let done = self.queue.serve(at, random)?;
        let waits = done - at > 4.0 * self.queue.mean;
        match (waits, self.waited_since) {
            (false, _) => self.waited_since = None,
            (true, None) => self.waited_since = Some(at),
            (true, Some(since)) if at - since > 0.5 && self.queue.free.len() < self.most => {
                self.queue.free.push(std::cmp::Reverse((at * NANO) as u64));
                self.waited_since = None;
            }
            _ => {}
        }
        Some(done)
    }
}

/// How to make a server.
pub(super) struct Made {
    pub(super) name: &'static str,
    /// The highest rate at which at most one request in a hundred is late: for M/M/1 from the
    /// distribution of its latency, otherwise from simulated runs of 2,000,000 requests each.
    pub(super) truth: f64,
    /// Requests come at random.
    pub(super) poisson: bool,
    pub(super) make: Box<dyn Fn() -> Box<dyn Server>>,
}

fn queue(name: &'static str, truth: f64, poisson: bool, make: impl Fn() -> Queue + 'static) -> Made {
    Made { name, truth, poisson, make: Box::new(move || Box::new(make())) }
}

fn bucket(name: &'static str, truth: f64, rate: f64, credit: f64) -> Made {
    let make = move || Bucket { rate, credit, tokens: credit, then: 0.0 };
    Made { name, truth, poisson: false, make: Box::new(move || Box::new(make())) }
}

fn scaling(name: &'static str, truth: f64, workers: usize, most: usize, mean: f64) -> Made {
    let make = move || Scaling { queue: Queue::new(workers, mean, fixed), most, waited_since: None };
    Made { name, truth, poisson: false, make: Box::new(move || Box::new(make())) }
}

/// The twenty.
pub(super) fn servers() -> Vec<Made> {
    let locked = |workers, mean, lock| Queue { lock, ..Queue::new(workers, mean, fixed) };
    let pausing = |mean, every, lasts| Queue { pauses: Some((every, lasts)), ..Queue::new(1, mean, fixed) };
    vec![
        queue("M/M/1, 1000/s", 907.9, true, || Queue::new(1, 0.001, random)),
        queue("M/M/1, 400/s", 307.9, true, || Queue::new(1, 0.002_5, random)),
        queue("M/M/1, 5000/s", 4907.9, true, || Queue::new(1, 0.000_2, random)),
        queue("M/D/1, 1000/s", 954.4, true, || Queue::new(1, 0.001, fixed)),
        queue("M/D/1, 250/s", 204.9, true, || Queue::new(1, 0.004, fixed)),
        queue("D/D/1, 3000/s", 2999.0, false, || Queue::new(1, 1.0 / 3000.0, fixed)),
        queue("D/M/1, 800/s", 752.6, false, || Queue::new(1, 1.0 / 800.0, random)),
        queue("4 workers", 906.1, true, || Queue::new(4, 0.004, random)),
        queue("16 workers", 1878.8, true, || Queue::new(16, 0.008, random)),
        queue("64 workers", 6347.0, true, || Queue::new(64, 0.01, fixed)),
        queue("8 workers and a lock", 954.4, true, move || locked(8, 0.002, 0.001)),
        queue("32 workers and a lock", 2001.2, false, move || locked(32, 0.005, 0.000_5)),
        queue("pauses of 30 ms", 1882.3, true, move || pausing(0.000_5, 1.0, 0.03)),
        queue("pauses of 40 ms", 979.5, false, move || pausing(0.001, 2.0, 0.04)),
        bucket("300 tokens/s", 303.2, 300.0, 30.0),
        bucket("2000 tokens/s", 2019.9, 2000.0, 500.0),
        queue("bimodal, 1000/s", 853.8, true, || Queue::new(1, 0.001, bimodal)),
        queue("bimodal, 4 workers", 1847.7, true, || Queue::new(4, 0.002, bimodal)),
        scaling("1 to 4 workers", 999.7, 1, 4, 0.004),
        scaling("2 to 6 workers", 2999.0, 2, 6, 0.002),
    ]
}

/// Times at which the client gets no core: now and then other work runs for a while, and takes the
/// core away for some milliseconds again and again.
#[derive(Default)]
struct Pauses {
    all: Vec<(f64, f64)>,
}

impl Pauses {
    fn new(seconds: f64, quiet: f64, busy: f64, random: &mut Random) -> Pauses {
        let (mut all, mut now) = (Vec::new(), 0.0);
        while now < seconds {
            now += random.exponential() * quiet;
            let end = now + random.exponential() * busy;
            while now < end {
                let lasts = random.exponential() * 0.05;
                all.push((now, now + lasts));
                now += lasts + random.exponential() * 0.03;
            }
        }
        Pauses { all }
    }

    /// When the client gets to what happens at a time.
    fn over(&self, at: f64) -> f64 {
        let next = self.all.partition_point(|(_, end)| *end <= at);
        self.all.get(next).filter(|(begin, _)| *begin <= at).map_or(at, |(_, end)| *end)
    }

    /// The longest pause in a time.
    fn longest(&self, from: f64, to: f64) -> f64 {
        let within = self.all.iter().filter(|(begin, end)| *end > from && *begin < to);
        within.map(|(begin, end)| end - begin).fold(0.0, f64::max)
    }
}

/// The world in virtual time: a server, and requests at a rate.
pub(super) struct World {
    pub(super) server: Box<dyn Server>,
    random: Random,
    pub(super) now: f64,
    poisson: bool,
    pauses: Pauses,
}

impl World {
    pub(super) fn new(made: &Made, seed: u64) -> World {
        let (server, random, pauses) = ((made.make)(), Random::new(seed), Pauses::default());
        World { server, random, now: 0.0, poisson: made.poisson, pauses }
    }

    /// One whose client shares its machine with work that runs for `busy` seconds in each `quiet` ones.
    pub(super) fn disturbed(made: &Made, seed: u64, quiet: f64, busy: f64) -> World {
        let pauses = Pauses::new(300.0, quiet, busy, &mut Random::new(seed + 1_000));
        World { pauses, ..World::new(made, seed) }
    }

    /// Whether the client was away for a while that matters in a time.
    pub(super) fn was_disturbed(&self, from: f64) -> bool {
        self.pauses.longest(from, self.now) > LIMIT / 4.0
    }

    /// Requests for a time at a rate: those due in each of some pieces, and how many were late.
    pub(super) fn run(
        &mut self,
        rate: f64,
        warm_up: f64,
        lasts: f64,
        pieces: usize,
        burst: bool,
        lost: &dyn Fn(u64) -> bool,
    ) -> (Vec<ShareSlice>, f64) {
        let begin = self.now;
        let (from, to) = (begin + warm_up, begin + warm_up + lasts);
        let mut slices = vec![ShareSlice::default(); pieces];
        let (mut due, mut over, mut last) = (begin, 0, begin);
        let mut took = Vec::new();
        loop {
            // Half as much again for twice the limit.
            let rate = if burst && due - begin < 2.0 * LIMIT { rate * 1.5 } else { rate };
            due += if self.poisson { self.random.exponential() / rate } else { 1.0 / rate };
            if due >= to {
                break;
            }
            let sent = self.pauses.over(due);
            let done = self.server.serve(sent, &mut self.random).map(|done| self.pauses.over(done));
            last = f64::max(last, done.unwrap_or(due));
            if due < from {
                continue;
            }
            let late = done.is_none_or(|done| done - due > LIMIT);
            took.push(done.map_or(f64::INFINITY, |done| done - due));
            let piece = ((due - from) / lasts * pieces as f64) as usize;
            slices[piece].all += 1;
            slices[piece].over += u64::from(late);
            over += u64::from(late);
            if lost(over) {
                break;
            }
        }
        // The next step begins when the queue is empty.
        self.now = last.max(due);
        took.sort_by(f64::total_cmp);
        let p99 = took.get((took.len() as f64 * 0.99).ceil() as usize - usize::from(!took.is_empty()));
        (slices, (LIMIT / p99.copied().unwrap_or(f64::INFINITY)).ln())
    }

    /// The share of late requests in the long run.
    pub(super) fn share(&mut self, rate: f64) -> f64 {
        let (slices, _) = self.run(rate, 10.0, 60_000.0 / rate + 60.0, 1, false, &|_| false);
        RequestShare::of(&slices).value()
    }
}
