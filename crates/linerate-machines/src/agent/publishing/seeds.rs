//! Agents, a broker and a coordinator in virtual time, where anything breaks at any moment: nothing
//! counts twice, and nothing is missing in silence.
//!
//! A seed is a bug report: `LINERATE_SEED=n` runs one. `LINERATE_SEEDS=n` runs this many (`cargo
//! xtask soak machines`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use linerate_base::Random;
use linerate_load::histogram::Histogram;
use linerate_load::plan::{Stop, Target};

use super::*;
use crate::bus::PresentAgent;
use crate::document::{AgentCard, OnLoss, Takeover};
use crate::losses::{LAG, LOOK, Losses, Remedy};
use crate::merge::{Merger, Standing};
use crate::presence::Presence;

/// Seeds that ordinary tests run.
const SEEDS: u64 = 12;

/// How often a run of many seeds tells how far it is.
const TELL: Duration = Duration::from_secs(5);

/// How long no message comes before the coordinator looks whether any agent is at work.
const SILENT_MS: u64 = 3_000;

/// A step of virtual time, milliseconds.
const STEP: u64 = 100;

/// How long an agent's key lives, and how often it is renewed.
const KEY_MS: u64 = 5_000;
const RENEW_MS: u64 = 1_000;

/// The latest end. Reason: an agent that is stopped for ever is gone long before.
const LATEST_MS: u64 = 200_000;

/// Whether it happens, that often in a hundred.
fn happens(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

/// A span of at most this many milliseconds, or none.
fn span(random: &mut Random, percent: u64, until: u64, longest: u64) -> (u64, u64) {
    if !happens(random, percent) {
        return (u64::MAX, u64::MAX);
    }
    let from = random.below(until);
    (from, from + random.below(longest))
}

fn within((from, to): (u64, u64), now: u64) -> bool {
    (from..to).contains(&now)
}

/// A share that an agent measures.
struct Measuring {
    log: MessageLog,
    so_far: IntervalFigures,
    begins: u64,
    ended: bool,
    superseded: bool,
    /// Messages that it has made.
    made: u64,
}

/// An agent as a process.
struct Machine {
    name: String,
    parts: Vec<Measuring>,
    /// Milliseconds: when it is killed, stopped, without a network, and when its disk fills up.
    killed: u64,
    stopped: (u64, u64),
    cut_off: (u64, u64),
    disk_full: u64,
    renewed: u64,
    /// Takeovers that it has read.
    read: usize,
}

/// A message as an agent made it.
struct Made {
    bytes: Vec<u8>,
    /// What it says. Reason: reading a histogram again for each comparison took most of the time.
    word: MessageWord,
    spooled: bool,
}

impl Made {
    fn new(bytes: Vec<u8>, spooled: bool) -> Made {
        let message: AgentMessage = serde_json::from_slice(&bytes).unwrap();
        Made { bytes, word: message.word, spooled }
    }
}

type Id = (String, u32, u64);

/// All of it.
struct World {
    random: Random,
    document: RunDocument,
    on_loss: OnLoss,
    seconds: u64,
    machines: Vec<Machine>,
    /// What agents made, by agent, part and number.
    made: BTreeMap<Id, Made>,
    /// The stream: what the broker stored, in its order.
    stream: Vec<(Id, Vec<u8>)>,
    takeovers: Vec<Takeover>,
    broker_away: (u64, u64),
    coordinator_away: (u64, u64),
    now: u64,
}

fn share(number: usize) -> RunShare {
    let number = number as u32;
    RunShare {
        agent: format!("a{number}"),
        incarnation: format!("of a{number}"),
        first_thread: number,
        threads: 1,
        part: 0,
    }
}

fn log(document: &RunDocument, share: &RunShare, second: u64) -> MessageLog {
    MessageLog {
        run: document.run.clone(),
        agent: share.agent.clone(),
        incarnation: share.incarnation.clone(),
        part: share.part,
        file: std::path::PathBuf::new(),
        spool: None,
        trouble: None,
        queue: Arc::default(),
        digests: Digests::default(),
        before: IntervalFigures::default(),
        second,
        left: false,
        requests: UnsentEntries::default(),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let seconds = 3 + random.below(25);
        let plan = Plan {
            stop: Stop { requests: None, duration: Some(Duration::from_secs(seconds)) },
            ..Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/")
        };
        let shares: Vec<RunShare> = (0..1 + random.below(5) as usize).map(share).collect();
        let (run, schema) = ("r".to_owned(), SCHEMA.to_owned());
        let document = RunDocument {
            schema,
            version: String::new(),
            run,
            plan,
            sealed: Default::default(),
            log_requests: false,
            shares,
        };
        let until = (seconds + 3) * 1000;
        let machine = |share: &RunShare, random: &mut Random| Machine {
            name: share.agent.clone(),
            parts: vec![Measuring::new(&document, share, 0)],
            killed: span(random, 25, until, 1).0,
            stopped: span(random, 30, until, 15_000),
            cut_off: span(random, 30, until, 12_000),
            disk_full: span(random, 20, until, 1).0,
            renewed: 0,
            read: 0,
        };
        let machines = document.shares.iter().map(|share| machine(share, &mut random)).collect();
        let on_loss = if happens(&mut random, 60) { OnLoss::Rebalance } else { OnLoss::Continue };
        let broker_away = span(&mut random, 40, until, 9_000);
        let coordinator_away = span(&mut random, 40, until, 9_000);
        let (made, stream, takeovers) = (BTreeMap::new(), Vec::new(), Vec::new());
        World {
            random,
            document,
            on_loss,
            seconds,
            machines,
            made,
            stream,
            takeovers,
            broker_away,
            coordinator_away,
            now: 0,
        }
    }

    /// Agents measure, and publish what they can.
    fn step_agents(&mut self) {
        for i in 0..self.machines.len() {
            let machine = &mut self.machines[i];
            if self.now >= machine.killed || within(machine.stopped, self.now) {
                continue;
            }
            let is_connected = !within(machine.cut_off, self.now) && !within(self.broker_away, self.now);
            if is_connected {
                if self.now >= machine.renewed + RENEW_MS {
                    machine.renewed = self.now;
                }
                machine.read(&self.document, &self.takeovers);
            }
            let disk_full = self.now >= machine.disk_full;
            for part in &mut machine.parts {
                part.measure(self.now, self.seconds, &mut self.random, |id, bytes| {
                    self.made.insert(id, Made::new(bytes, !disk_full));
                });
                if is_connected {
                    part.publish(&mut self.random, &mut self.stream);
                }
            }
        }
    }

    fn cards(&self) -> Vec<PresentAgent> {
        let there = self.machines.iter().filter(|machine| self.now < machine.renewed + KEY_MS);
        // An agent that has published all that it made is idle.
        let is_busy = |machine: &Machine| {
            let is_done = |part: &Measuring| part.ended && part.log.queue.first().0.is_none();
            !machine.parts.iter().all(is_done)
        };
        let seen = |machine: &Machine| {
            let card = AgentCard {
                schema: SCHEMA.to_owned(),
                name: machine.name.clone(),
                incarnation: format!("of {}", machine.name),
                run: is_busy(machine).then(|| self.document.run.clone()),
                ..AgentCard::default()
            };
            PresentAgent { card, revision: machine.renewed }
        };
        there.map(seen).collect()
    }

    /// Runs to the end: what a coordinator makes of it, which may be another than the first.
    fn run(&mut self) -> Coordinating {
        let mut coordinating = Coordinating::new(self);
        let mut silent = 0;
        while self.now < LATEST_MS {
            self.step_agents();
            let is_away = within(self.coordinator_away, self.now);
            if is_away {
                // The next one begins with what is on the bus.
                coordinating = Coordinating::new(self);
            } else if !within(self.broker_away, self.now) {
                let come = coordinating.read(self);
                silent = if come { self.now } else { silent };
                if self.now.is_multiple_of(1000) {
                    coordinating.look(self, self.now >= silent + SILENT_MS);
                }
                let is_silent = self.now >= silent + SILENT_MS;
                let is_over = is_silent && coordinating.presence.all_gone();
                if coordinating.merger.is_complete() || is_over {
                    break;
                }
            } else if self.now.is_multiple_of(1000) {
                let now = Duration::from_millis(self.now);
                coordinating.presence.note(now, None, std::iter::empty());
            }
            self.now += STEP;
        }
        coordinating.read(self);
        coordinating
    }
}

impl Measuring {
    fn new(document: &RunDocument, share: &RunShare, begins: u64) -> Measuring {
        let log = log(document, share, begins);
        Measuring {
            log,
            so_far: IntervalFigures::default(),
            begins,
            ended: false,
            superseded: false,
            made: 0,
        }
    }

    /// Up to now; the messages that this makes.
    fn measure(&mut self, now: u64, seconds: u64, random: &mut Random, mut made: impl FnMut(Id, Vec<u8>)) {
        if self.ended || now < self.begins * 1000 {
            return;
        }
        let n = random.below(3);
        for _ in 0..n {
            self.so_far.latency.record(1 + random.below(5_000_000_000), 1);
        }
        self.so_far.requests.sent += n;
        self.so_far.requests.answered += n;
        while (self.log.second + 1) * 1000 <= now && self.log.second < seconds {
            self.log.interval(self.log.second, (0, 1), self.so_far.clone());
            self.log.second += 1;
        }
        if now >= seconds * 1000 || self.superseded {
            self.ended = true;
            let plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
            self.log.finish(self.so_far.clone().into_outcome(&plan));
        }
        let state = self.log.queue.state.lock().unwrap();
        let first = self.log.digests.count() - state.0.len() as u64;
        for (seq, (_, bytes)) in (first..).zip(&state.0).filter(|(seq, _)| *seq >= self.made) {
            made((self.log.agent.clone(), self.log.part, seq), bytes.to_vec());
        }
        self.made = self.log.digests.count();
    }

    /// Publishes some messages. An acknowledgement may be lost, and the broker may have forgotten
    /// that it has the message.
    fn publish(&mut self, random: &mut Random, stream: &mut Vec<(Id, Vec<u8>)>) {
        for _ in 0..random.below(4) {
            let (Some((id, bytes)), _) = self.log.queue.first() else { return };
            let seq = self.log.digests.count() - self.log.queue.state.lock().unwrap().0.len() as u64;
            let key = (self.log.agent.clone(), self.log.part, seq);
            let is_known = stream.iter().rev().take(50).any(|(stored, _)| *stored == key);
            if !is_known || happens(random, 20) {
                stream.push((key, bytes.to_vec()));
            }
            if happens(random, 85) {
                self.log.queue.done(&id);
            }
        }
    }
}

impl Machine {
    /// Reads takeovers that are new to it.
    fn read(&mut self, document: &RunDocument, takeovers: &[Takeover]) {
        for takeover in &takeovers[self.read..] {
            if takeover.lost == self.name && takeover.share.agent != self.name {
                self.parts[0].superseded = true;
            }
            if takeover.share.agent == self.name {
                self.parts.push(Measuring::new(document, &takeover.share, takeover.at_ns / 1_000_000_000));
            }
        }
        self.read = takeovers.len();
    }
}

/// A coordinator.
struct Coordinating {
    merger: Merger,
    losses: Losses,
    presence: Presence,
    read: usize,
}

impl Coordinating {
    fn new(world: &World) -> Coordinating {
        let mut merger = Merger::new(world.document.clone());
        world.takeovers.iter().for_each(|takeover| assert!(merger.add_takeover(takeover)));
        let presence = Presence::new("r".to_owned());
        Coordinating { merger, losses: Losses::new("r".to_owned(), &world.takeovers), presence, read: 0 }
    }

    /// Adds what is new in the stream; whether there was something.
    fn read(&mut self, world: &World) -> bool {
        let new = &world.stream[self.read..];
        for (_, bytes) in new {
            self.merger.add(bytes);
        }
        self.read = world.stream.len();
        !new.is_empty()
    }

    fn look(&mut self, world: &mut World, is_silent: bool) {
        let elapsed = Duration::from_millis(world.now);
        if is_silent || !self.merger.lagging(elapsed, LOOK).is_empty() {
            self.presence.note(elapsed, Some(&world.cards()), self.merger.unfinished());
        }
        if world.on_loss == OnLoss::Continue || self.merger.lagging(elapsed, LAG).is_empty() {
            return;
        }
        for remedy in self.losses.remedies(world.on_loss, &self.merger, &self.presence, elapsed) {
            if let Remedy::Give(_, takeover) = remedy {
                assert!(self.merger.add_takeover(&takeover), "a takeover's share is new");
                world.takeovers.push(takeover);
            }
        }
    }
}

/// What a merger counted: requests, and samples bucket by bucket.
fn counted(merger: &Merger) -> (u64, Vec<(u64, u64)>) {
    let outcome = merger.outcome();
    (outcome.requests.answered, outcome.latency.from_sent.iter_recorded().collect())
}

/// What a single recorder has of the intervals of these messages.
fn recorded<'a>(messages: impl Iterator<Item = &'a Made>) -> (u64, Vec<(u64, u64)>) {
    let (mut answered, mut all) = (0, Histogram::new());
    for made in messages {
        if let MessageWord::Interval { figures, .. } = &made.word {
            answered += figures.requests.answered;
            all.merge(&figures.latency);
        }
    }
    (answered, all.iter_recorded().collect())
}

/// The standing that an agent's share has by the messages of it that are stored.
fn expected(world: &World, stored: &BTreeSet<Id>, share: &RunShare) -> (Standing, BTreeSet<Id>) {
    let of = |id: &&Id| id.0 == share.agent && id.1 == share.part;
    let made: BTreeSet<Id> = world.made.keys().filter(of).cloned().collect();
    let here: BTreeSet<Id> = stored.iter().filter(of).cloned().collect();
    let is_final = |id: &&Id| matches!(world.made[*id].word, MessageWord::Final { .. });
    if here.iter().any(|id| is_final(&id)) {
        let missing: Vec<u64> = made.difference(&here).map(|id| id.2).collect();
        // Its outcome counts, with all that it measured.
        return (if missing.is_empty() { Standing::Complete } else { Standing::Missing(missing) }, made);
    }
    let second = |id: &Id| match world.made[id].word {
        MessageWord::Interval { second, .. } => second,
        MessageWord::Requests { .. } | MessageWord::Final { .. } => 0,
    };
    (Standing::Open { last_second: here.iter().map(second).max() }, here)
}

/// Holds what a merger says against what is stored.
fn judge(world: &World, merger: &Merger) {
    let stored: BTreeSet<Id> = world.stream.iter().map(|(id, _)| id.clone()).collect();
    let mut counts: BTreeSet<Id> = BTreeSet::new();
    for agent in merger.agents() {
        let (standing, of_it) = expected(world, &stored, &agent.share);
        assert_eq!(agent.standing, standing, "{:?}", agent.share);
        counts.extend(of_it);
    }
    let expected = recorded(counts.iter().map(|id| &world.made[id]));
    assert_eq!(counted(merger), expected, "each message counts once");
    // Nothing is missing in silence.
    let all_made = recorded(world.made.values());
    if merger.is_complete() {
        assert_eq!(expected, all_made, "a complete result has all that was measured");
    }
    let in_series: f64 = merger.series().iter().map(|interval| interval.rate_rps).sum();
    let of_stored = recorded(stored.iter().map(|id| &world.made[id]));
    assert_eq!(in_series.round() as u64, of_stored.0, "the series has each stored interval once");
}

/// Another coordinator over the same messages.
fn again(world: &World) -> Merger {
    let mut again = Coordinating::new(world);
    again.read(world);
    again.merger
}

/// One world. Counts: complete results before and after replays, takeovers, messages twice.
fn run(seed: u64) -> [u64; 4] {
    let mut world = World::new(seed);
    let merger = world.run().merger;
    judge(&world, &merger);
    let at_first = u64::from(merger.is_complete());
    // In any order the same comes of it.
    let mut stream = world.stream.clone();
    for i in (1..stream.len()).rev() {
        stream.swap(i, world.random.below(i as u64 + 1) as usize);
    }
    let in_order = std::mem::replace(&mut world.stream, stream);
    let shuffled = again(&world);
    assert_eq!(counted(&shuffled), counted(&merger));
    assert_eq!(shuffled.is_complete(), merger.is_complete());
    assert_eq!(shuffled.series(), merger.series());
    // The brokers are lost for good, some of the time; spools fill the gaps.
    world.stream = if happens(&mut world.random, 30) { Vec::new() } else { in_order };
    let twice = world.stream.len() - world.stream.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len();
    let spooled = world.made.iter().filter(|(_, made)| made.spooled);
    let replayed: Vec<_> = spooled.map(|(id, made)| (id.clone(), made.bytes.clone())).collect();
    world.stream.extend(replayed);
    let replayed = again(&world);
    judge(&world, &replayed);
    let all_end = world.machines.iter().all(|m| m.parts.iter().all(|part| part.ended));
    let all_spooled = world.made.values().all(|made| made.spooled);
    assert!(!(all_end && all_spooled) || replayed.is_complete(), "spools have everything");
    [at_first, u64::from(replayed.is_complete()), world.takeovers.len() as u64, twice as u64]
}

#[test]
fn nothing_counts_twice_and_nothing_is_missing_in_silence() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let from = number("LINERATE_FROM").unwrap_or(1);
    let seeds = match number("LINERATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + number("LINERATE_SEEDS").unwrap_or(SEEDS),
    };
    let all = seeds.end - seeds.start;
    let (next, counts) = (AtomicU64::new(seeds.start), Mutex::new([0; 4]));
    let begun = Instant::now();
    let work = |tells: bool| {
        let mut told = Instant::now();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            match std::panic::catch_unwind(|| run(seed)) {
                Ok(of_seed) => {
                    counts.lock().unwrap().iter_mut().zip(of_seed).for_each(|(sum, n)| *sum += n);
                }
                Err(panic) => {
                    println!("LINERATE_SEED={seed}");
                    next.store(seeds.end, Ordering::Relaxed);
                    std::panic::resume_unwind(panic);
                }
            }
            if tells && told.elapsed() >= TELL {
                told = Instant::now();
                println!("{} of {all} seeds after {} s", seed + 1 - seeds.start, begun.elapsed().as_secs());
            }
        }
    };
    thread::scope(|scope| {
        let others = thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
        (0..others).for_each(|_| drop(scope.spawn(|| work(false))));
        work(true);
    });
    let counts = counts.into_inner().unwrap();
    let [complete, replayed, takeovers, twice] = counts;
    println!("{complete} complete, {replayed} after replays, {takeovers} takeovers, {twice} messages twice");
    assert!(all == 1 || (complete > 0 && takeovers > 0 && twice > 0), "all kinds are there: {counts:?}");
}
