//! Worlds in which one thing is wrong, and the verdict on each. No socket, no clock: a world
//! answers probes by a formula.

use std::collections::HashMap;
use std::net::SocketAddr;

use linerate_net::instrument::Facts;
use proptest::prelude::*;

use super::*;
use crate::call::{CallStage, Failure, ProbeResponse, ReceivedBytes};
use crate::evidence::Proof;
use crate::limits::{CALLS, CALLS_SCATTERED, CALLS_TIMED, CALLS_TURNS};
use crate::probe::{Connected, HeldCall, NameServer, Resolved, Variation, Writes};

mod air;
mod behind;
mod busy;
mod connections;
mod pace;
mod predicted;
mod right;
mod streams;
mod tls;

use pace::Clocked;

fn t(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.max(0.0) / 1e3)
}

/// A server and a network.
#[derive(Clone)]
struct World {
    rtt: f64,
    /// The server writes head and body apart under Nagle's algorithm.
    nagle: bool,
    /// Our delayed acknowledgement, when no lever says otherwise.
    delack: f64,
    think: fn(&mut Noise) -> f64,
    /// Work between head and body.
    pause: fn(&mut Noise) -> f64,
    /// Work for each call that is in front of ours in a burst.
    lane: f64,
    body: u64,
    /// Round trips more on a new connection.
    slow_start: f64,
    keep: bool,
    /// Wait for the acceptor on a new connection.
    accept: f64,
    /// Work once for each new connection.
    setup: f64,
    /// Each n-th new connection loses its SYN.
    lose_syn: usize,
    /// Connections that the accept queue has room for at once; 0: any number.
    backlog: usize,
    /// Each n-th call loses a segment.
    lose: usize,
    /// The server still remembers connections from the ports that the system takes (1), or from all
    /// (2).
    remembers: u8,
    /// Segments above this vanish.
    mtu: Option<u32>,
    continues: bool,
    redirect: bool,
    refuse: bool,
    no_port: bool,
    jitter: f64,
    /// The waiting in the network that is added to a round trip, by the time.
    queue: fn(f64, &mut Noise) -> f64,
    /// What the path adds to each round trip, another time each.
    air: fn(&mut Noise) -> f64,
    /// Connections that are served at once; 0: any number.
    limit: u8,
    /// More connections than `limit` are accepted and not answered.
    starves: bool,
    /// How long a call that is served by turns waits for others, until ours beside it are closed.
    turn: fn(&mut Noise) -> f64,
    /// A busy worker's time, and which of all connections it has.
    busy: (f64, fn(usize) -> bool),
    /// Behind the proxy the response begins at once, and its end comes this late.
    behind: Option<f64>,
    /// Calls that are worked on at once; 0: any number.
    pool: u8,
    /// Time between two calls that a limiter lets through.
    every: f64,
    /// How many of the first calls get no response.
    hangs: usize,
    /// From that call on, calls are refused with 429.
    refuses_from: usize,
    /// Connections of others.
    others: u16,
    /// Of a Nagle stall, the share that a busy machine spares; and calls in ten that it makes 40 ms
    /// longer.
    busy_machine: f64,
    /// How late we see that a connection is open, which the kernel's own round trip does not have.
    woken: fn(f64) -> f64,
    /// Share of the time in which something on this machine waits for a processor.
    pressure: Option<f64>,
    status: u16,
    /// What else the wait depends on: the time, or the call before.
    clocked: Clocked,
}

impl Default for World {
    fn default() -> Self {
        World {
            rtt: 0.05,
            nagle: false,
            delack: 43.0,
            think: |_| 0.1,
            pause: |_| 0.0,
            lane: 0.0,
            body: 5,
            slow_start: 0.0,
            keep: true,
            accept: 0.0,
            setup: 0.0,
            lose_syn: 0,
            backlog: 0,
            lose: 0,
            remembers: 0,
            mtu: None,
            continues: true,
            redirect: false,
            refuse: false,
            no_port: false,
            jitter: 0.2,
            queue: |_, _| 0.0,
            air: |_| 0.0,
            limit: 0,
            starves: false,
            turn: |_| 0.0,
            busy: (0.0, |_| false),
            behind: None,
            pool: 0,
            every: 0.0,
            hangs: 0,
            refuses_from: 0,
            others: 0,
            busy_machine: 0.0,
            woken: |_| 0.0,
            pressure: None,
            status: 200,
            clocked: Clocked::No,
        }
    }
}

/// Noise with a seed.
struct Noise(Random);

impl Noise {
    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        let mut one = [0u32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        self.0.shuffle(&mut one);
        (f64::from(one[0]) + f64::from(one[1]) / 16.0) / 16.0
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// A world with what it remembers.
struct Lived {
    world: World,
    noise: Noise,
    /// Kept connections, by which of all they are.
    open: HashMap<u8, usize>,
    calls: usize,
    connects: usize,
    now: f64,
    /// When the limiter lets the next call through.
    turn: f64,
    /// When calls are cut short.
    until: f64,
    /// When the last response ended.
    ended: f64,
}

impl Lived {
    fn new(world: World, seed: u64) -> Lived {
        Lived {
            world,
            noise: Noise(Random::new(seed)),
            open: HashMap::new(),
            calls: 0,
            connects: 0,
            now: 0.0,
            turn: 0.0,
            until: f64::INFINITY,
            ended: f64::NEG_INFINITY,
        }
    }

    fn make(&mut self, probe: &Probe, settings: &Settings) -> Observation {
        match probe {
            Probe::Call(probe) => {
                self.now += ms(probe.pause);
                let call = self.call(probe, settings, 0);
                let call = cut(call, self.until - self.now);
                self.now += ms(call.total);
                self.ended = self.now;
                Observation::Call(Box::new(call))
            }
            Probe::Burst(n) => {
                let mut calls: Vec<Call> = (0..*n)
                    .map(|i| self.call(&CallProbe::plain(Experiment::Burst, 0, Lane::Fresh), settings, i))
                    .collect();
                for call in calls.iter_mut().skip(self.world.backlog).filter(|_| self.world.backlog > 0) {
                    connections::lose_syn(call);
                }
                calls[0].others = Some(self.world.others);
                self.now += calls.iter().map(|c| ms(c.total)).fold(0.0, f64::max);
                Observation::Burst(calls)
            }
            Probe::SideBySide(lanes) => {
                let mut longest = 0.0_f64;
                let mut one = |probes: &Vec<CallProbe>| {
                    let calls: Vec<Call> = probes.iter().map(|p| self.call(p, settings, 0)).collect();
                    longest = longest.max(calls.iter().map(|c| ms(c.total)).sum());
                    calls
                };
                let calls = lanes.iter().map(&mut one).collect();
                self.now += longest;
                Observation::SideBySide(calls)
            }
            Probe::Scattered(times) => Observation::Scattered(self.scattered(times, settings)),
            Probe::Held(idle, time) => {
                self.open.clear();
                let mut call = self.call(&CallProbe::plain(Experiment::Held, 0, Lane::Fresh), settings, 0);
                let first = ms(call.connect + call.wait);
                if self.world.limit > 0 && *idle >= self.world.limit && first < ms(*time) {
                    call.wait =
                        t(ms(*time) + self.world.rtt - ms(call.connect) + self.noise.between(0.0, 40.0));
                    call.total = call.connect + call.wait + call.receive;
                }
                self.now += ms(call.total);
                let released = (call.total > *time).then_some(*time);
                Observation::Held(Box::new(HeldCall { idle: *idle, released, call }))
            }
            Probe::Connect(n) => {
                let queue = (self.world.queue)(self.now, &mut self.noise);
                let took = self.world.rtt + queue + (self.world.air)(&mut self.noise);
                self.now += took;
                let facts = Facts { min_rtt_us: (took * 1e3) as u32, ..Facts::default() };
                let late = (self.world.woken)(self.now);
                self.now += late;
                let (address, took) = (settings.addresses[*n], t(took + late));
                Observation::Connected(Connected { address, took, error: None, facts })
            }
            other => unreachable!("{other:?} is not of this world"),
        }
    }

    /// The call's new connection.
    fn connect(&mut self, call: &mut Call, probe: &CallProbe, w: &World) {
        self.connects += 1;
        if let Lane::Kept(lane) = probe.lane {
            self.open.insert(lane, self.connects);
        }
        let air = (w.air)(&mut self.noise);
        call.connect = t(w.rtt + air + (w.woken)(self.now));
        call.connect_facts.min_rtt_us = ((w.rtt + air) * 1e3) as u32;
        if w.refuse || w.no_port {
            let why = if w.refuse { Why::Refused } else { Why::NoPort };
            call.end = Some(Err(Failure { stage: CallStage::Connect, why, words: "refused".to_owned() }));
            call.total = call.connect;
            self.open.clear();
        } else if w.lose_syn > 0 && self.connects.is_multiple_of(w.lose_syn) {
            connections::lose_syn(call);
        } else if w.remembers > 1 || w.remembers == 1 && probe.levers.source_port.is_none() {
            // A reset, and two ticks until the next SYN.
            call.connect = t(2.0 * w.rtt + self.noise.between(8.0, 12.0));
            call.connect_facts = Facts { total_retrans: 1, total_rto_time_ms: 10, ..Facts::default() };
        }
    }

    /// How long a limiter makes a call wait that begins now.
    fn limited(&mut self, every: f64) -> f64 {
        let waits = (self.turn - self.now).max(0.0);
        self.turn = self.turn.max(self.now) + every;
        waits
    }

    /// How long the rest of the response is held back, and what a busy machine adds.
    fn held(&mut self, w: &World, probe: &CallProbe, fresh: bool) -> f64 {
        let mut receive = 0.0;
        let spared = w.busy_machine > 0.0 && self.noise.unit() < w.busy_machine;
        if w.busy_machine > 0.0 && self.noise.unit() < 0.1 {
            receive += 40.0;
        }
        if w.nagle {
            // However soon it is acknowledged: the acknowledgement goes there, and what waited for
            // it comes back.
            receive += w.rtt;
        }
        if w.nagle && !fresh && !probe.levers.quick_ack && !spared {
            let delay = probe.levers.delayed_ack.map_or(w.delack, |d| ms(d) + 3.0);
            receive += delay + self.noise.between(0.0, 2.0);
        }
        receive
    }

    /// Whether the call gets no response.
    fn vanishes(&self, probe: &CallProbe, fresh: bool) -> bool {
        let w = &self.world;
        let others = self.open.keys().filter(|lane| probe.lane != Lane::Kept(**lane)).count();
        w.starves && fresh && others >= usize::from(w.limit)
            || self.calls <= w.hangs
            || w.mtu.is_some_and(|mtu| probe.levers.max_segment.unwrap_or(1448) > mtu)
    }

    fn call(&mut self, probe: &CallProbe, settings: &Settings, place: u8) -> Call {
        let mut w = self.world.clone();
        w.rtt += (w.queue)(self.now, &mut self.noise);
        self.calls += 1;
        let fresh = match probe.lane {
            Lane::Fresh => true,
            Lane::Kept(lane) => !self.open.contains_key(&lane) || !w.keep,
        };
        let mut call = Call { fresh, began_ns: (self.now * 1e6) as i64, ..Call::default() };
        if fresh {
            self.connect(&mut call, probe, &w);
            if call.end.is_some() {
                return call;
            }
        }
        w.rtt += (w.air)(&mut self.noise);
        call.facts.min_rtt_us = (w.rtt * 1e3) as u32;
        let noise = self.noise.between(0.0, w.jitter);
        let (think, pause) = ((w.think)(&mut self.noise), (w.pause)(&mut self.noise));
        let mut wait = w.rtt
            + think * f64::from(1 + place.checked_div(w.pool).unwrap_or(0))
            + self.limited(w.every)
            + self.clocked(w.clocked, ms(call.connect), w.rtt)
            + f64::from(place) * w.lane
            + noise
            + if fresh { w.accept * f64::from(place + 1) + w.setup + (w.turn)(&mut self.noise) } else { 0.0 };
        let which = match probe.lane {
            Lane::Kept(lane) => self.open.get(&lane).copied().unwrap_or(self.connects),
            Lane::Fresh => self.connects,
        };
        wait += if (w.busy.1)(which) { w.busy.0 } else { 0.0 };
        if probe.writes == Writes::Apart && !probe.levers.nodelay && settings.body_bytes > 0 && !fresh {
            wait += 41.0;
        }
        let mut receive = pause + self.held(&w, probe, fresh);
        if fresh {
            receive += w.slow_start * w.rtt;
        }
        if settings.expects_continue && probe.variation != Variation::WithoutExpect {
            let held = if w.continues { w.rtt } else { 1000.0 };
            call.held_for_continue = Some(t(held));
            call.continued = w.continues.then(|| t(held));
            call.send = t(held);
        }
        if let (Variation::Origin, Some(late)) = (&probe.variation, w.behind) {
            wait = w.rtt + noise;
            receive = late;
        }
        if probe.closes
            && let Lane::Kept(lane) = probe.lane
        {
            self.open.remove(&lane);
        }
        if w.lose > 0 && self.calls.is_multiple_of(w.lose) {
            wait += 210.0;
            call.facts.total_retrans = 1;
        }
        if self.vanishes(probe, fresh) {
            if let Lane::Kept(lane) = probe.lane {
                self.open.remove(&lane);
            }
            return vanished(call, probe.patience);
        }
        (call.wait, call.receive) = (t(wait), t(receive));
        if w.refuses_from > 0 && self.calls >= w.refuses_from {
            w.status = 429;
        }
        answered(&mut call, &w, probe);
        call
    }
}

/// A call whose response never came.
fn vanished(call: Call, wait: Duration) -> Call {
    let failure = Failure { stage: CallStage::Wait, why: Why::TimedOut, words: "no answer".to_owned() };
    Call { wait, total: call.connect + wait, end: Some(Err(failure)), ..call }
}

/// The call, cut short after `left` milliseconds.
fn cut(call: Call, left: f64) -> Call {
    if ms(call.total) <= left {
        return call;
    }
    let failure = Failure { stage: CallStage::Wait, why: Why::Cut, words: "no answer yet".to_owned() };
    Call { total: t(left), end: Some(Err(failure)), receives: Vec::new(), ..call }
}

/// Fills in the world's response.
fn answered(call: &mut Call, w: &World, probe: &CallProbe) {
    let first = call.connect + call.send + call.wait;
    call.total = first + call.receive;
    call.receives = vec![ReceivedBytes { at: first, bytes: 80 }];
    if !call.receive.is_zero() {
        let bytes = u32::try_from(w.body).unwrap_or(u32::MAX);
        call.receives.push(ReceivedBytes { at: call.total, bytes });
    }
    call.facts.data_segs_in = 2;
    call.facts.bytes_received = 80 + w.body;
    let redirect = w.redirect && !matches!(&probe.variation, Variation::Target(to) if to == "/final");
    call.end = Some(Ok(ProbeResponse {
        status: if redirect { 302 } else { w.status },
        reusable: w.keep,
        body_bytes: w.body,
        endless: false,
        fields: match w.status {
            _ if redirect => vec![("location".to_owned(), "/final".to_owned())],
            429 => vec![("retry-after".to_owned(), "1".to_owned())],
            _ => Vec::new(),
        },
    }));
}

fn settings() -> Settings {
    Settings {
        url: "http://h/".to_owned(),
        addresses: vec![([192, 0, 2, 1], 80).into()],
        ..Settings::default()
    }
}

fn explained_with(world: World, settings: Settings, seed: u64) -> Diagnosis {
    lived_with(world, settings, seed).diagnose()
}

/// A planner that has asked for all it wants.
fn lived_with(world: World, settings: Settings, seed: u64) -> Planner {
    let mut lived = Lived::new(world, seed);
    let limit = settings.calls;
    let mut planner = Planner::new(Settings { seed, ..settings.clone() });
    lived.until = ms(planner.until());
    while let Some(probe) = planner.poll_probe(t(lived.now)) {
        let seen = lived.make(&probe, &settings);
        planner.handle_observation(probe, seen);
        planner.under_pressure(lived.world.pressure);
        let most = limit + limit.min(2 * CALLS_SCATTERED) + CALLS_TIMED + CALLS_TURNS;
        assert!(planner.record().calls_made() <= most, "more calls than allowed");
    }
    planner
}

fn explained(world: World) -> Diagnosis {
    explained_with(world, settings(), 1)
}

fn ids(diagnosis: &Diagnosis) -> Vec<&'static str> {
    diagnosis.causes.iter().map(Verdict::id).collect()
}

#[test]
fn nothing_is_wrong() {
    let diagnosis = explained(World::default());
    assert_eq!((diagnosis.whole, ids(&diagnosis)), (Whole::Healthy, vec![]), "{diagnosis:#?}");
    let far = explained(World { rtt: 40.0, ..World::default() });
    assert_eq!((far.whole, ids(&far)), (Whole::Healthy, vec![]), "{far:#?}");
}

#[test]
fn nagle_in_the_server_is_proved_and_its_dose_is_one() {
    for rtt in [0.05, 40.0] {
        let diagnosis = explained(World { nagle: true, rtt, ..World::default() });
        assert_eq!(ids(&diagnosis), ["server-nagle-delayed-ack"], "{diagnosis:#?}");
        let verdict = &diagnosis.causes[0];
        assert_eq!(verdict.proof(), Proof::Proved);
        assert!((40.0..50.0).contains(&verdict.cost_ms()), "{verdict:?}");
        let dose = verdict.dose().expect("a dose-response");
        assert!(dose.contains(1.0) && !dose.contains(0.5), "{dose:?}");
    }
}

#[test]
fn far_away_arms_run_side_by_side_and_near_in_turns() {
    let elapsed = |world: World| {
        let diagnosis = explained(world);
        assert_eq!(ids(&diagnosis), ["server-nagle-delayed-ack"], "{diagnosis:#?}");
        diagnosis.took_s
    };
    let far = elapsed(World { nagle: true, rtt: 40.0, ..World::default() });
    assert!(far < 3.0, "{far}");
    // A server that works for long on each call might be one that works on one at a time.
    let busy = elapsed(World { nagle: true, rtt: 40.0, think: |_| 9.0, ..World::default() });
    assert!(busy > far + 1.0, "{busy} and {far}");
}

#[test]
fn the_time_that_is_given_is_kept() {
    let worlds = [
        World { think: |_| 1900.0, ..World::default() },
        World { nagle: true, rtt: 150.0, ..World::default() },
        World {
            rtt: 90.0,
            slow_start: 5.0,
            body: 3_000_000,
            think: |n| n.between(100.0, 900.0),
            ..World::default()
        },
        World { lose_syn: 2, rtt: 40.0, think: |_| 200.0, ..World::default() },
    ];
    for (i, world) in worlds.into_iter().enumerate() {
        for budget in [0.3, 2.0, 5.0, 15.0] {
            let settings = Settings { budget: Duration::from_secs_f64(budget), ..settings() };
            let diagnosis = explained_with(world.clone(), settings, 1);
            assert!(diagnosis.took_s <= budget, "world {i} took {} of {budget} s", diagnosis.took_s);
            assert_ne!(diagnosis.whole, Whole::Healthy, "world {i}, {budget} s: {diagnosis:#?}");
        }
    }
}

#[test]
fn without_the_lever_it_is_said_that_there_is_no_dose() {
    // The planner knows what the kernel supports.
    let without = Settings { delayed_ack_lever: false, ..settings() };
    let diagnosis = explained_with(World { nagle: true, ..World::default() }, without, 1);
    assert_eq!(ids(&diagnosis), ["server-nagle-delayed-ack"]);
    assert!(diagnosis.limits.iter().any(|l| l.contains("TCP_DELACK_MAX_US")), "{diagnosis:#?}");
}

#[test]
fn both_ends_at_once_are_told_apart() {
    let posted = Settings { body_bytes: 100, writes: Writes::Apart, ..settings() };
    let diagnosis = explained_with(World { nagle: true, ..World::default() }, posted, 1);
    let mut found = ids(&diagnosis);
    found.sort_unstable();
    assert_eq!(found, ["client-nagle-delayed-ack", "server-nagle-delayed-ack"], "{diagnosis:#?}");
    for verdict in &diagnosis.causes {
        assert_eq!(verdict.proof(), Proof::Proved);
        assert!((35.0..50.0).contains(&verdict.cost_ms()), "{verdict:#?}");
    }
}

#[test]
fn how_the_client_writes_is_not_guessed() {
    let posted = Settings { body_bytes: 100, ..settings() };
    let diagnosis = explained_with(World::default(), posted, 1);
    assert_eq!(diagnosis.whole, Whole::Healthy);
    assert!(diagnosis.limits.iter().any(|l| l.contains("--writes apart")), "{diagnosis:#?}");
}

const TRANSPORT: [&str; 13] = [
    "server-nagle-delayed-ack",
    "client-nagle-delayed-ack",
    "tiny-writes",
    "accept-queue",
    "syn-loss",
    "packet-loss",
    "slow-start",
    "zero-window",
    "send-buffer",
    "path-mtu",
    "bufferbloat",
    "keep-alive-race",
    "ports-exhausted",
];

#[test]
fn what_looks_like_a_stall_is_none() {
    let alike: [(World, &[&str]); 4] = [
        (World { think: |_| 40.0, ..World::default() }, &["server-think"]),
        (World { think: |n| n.between(30.0, 50.0), ..World::default() }, &["server-think"]),
        (World { pause: |_| 41.0, ..World::default() }, &["server-think"]),
        (World { think: |_| 41.0, lane: 5.0, ..World::default() }, &["server-queueing", "server-think"]),
    ];
    for (i, (world, may)) in alike.into_iter().enumerate() {
        for seed in 0..40 {
            let diagnosis = explained_with(world.clone(), settings(), seed);
            let found = ids(&diagnosis);
            assert!(found.len() == 1 && may.contains(&found[0]), "{i}, seed {seed}: {diagnosis:#?}");
            assert!(!TRANSPORT.contains(&found[0]));
        }
    }
}

#[test]
fn a_line_in_the_server_is_told_from_its_work() {
    for rtt in [0.05, 40.0] {
        let line = World { think: |_| 41.0, lane: 5.0, rtt, others: 7, ..World::default() };
        let line = explained(line);
        assert_eq!(ids(&line), ["server-queueing"], "{line:#?}");
        // No other call is there: what a call alone takes it takes by itself.
        let work = explained(World { think: |_| 41.0, lane: 5.0, rtt, ..World::default() });
        assert_eq!(ids(&work), ["server-think"], "{work:#?}");
        assert!(work.limits.iter().any(|l| l.starts_with("server-queueing: unclear")), "{work:#?}");
    }
    let work = explained(World { think: |_| 40.0, lane: 40.0, ..World::default() });
    assert_eq!(ids(&work), ["server-think"], "{work:#?}");
}

#[test]
fn the_network_far_away() {
    let slow = explained(World { rtt: 40.0, slow_start: 3.0, body: 200_000, ..World::default() });
    assert_eq!(ids(&slow), ["slow-start"], "{slow:#?}");
    assert_eq!(slow.causes[0].proof(), Proof::Proved);
    let lossy = explained(World { rtt: 40.0, lose: 7, ..World::default() });
    assert_eq!(ids(&lossy), ["packet-loss"], "{lossy:#?}");
}

#[test]
fn a_queue_on_the_way_is_told_from_the_server_and_from_hiccups() {
    // One segment more each round trip, then half: what a bulk transfer does to a queue.
    let saw: fn(f64, &mut Noise) -> f64 = |now, _| 100.0 + 12.0 * (now / 1000.0 % 8.0);
    for rtt in [0.05, 40.0] {
        for seed in 0..20 {
            let bloated = explained_with(World { rtt, queue: saw, ..World::default() }, settings(), seed);
            assert_eq!(ids(&bloated), ["bufferbloat"], "{bloated:#?}");
            assert_eq!(bloated.causes[0].proof(), Proof::Proved, "{bloated:#?}");
        }
    }
    let both = World { queue: saw, think: |_| 80.0, ..World::default() };
    let mut found = ids(&explained(both));
    found.sort_unstable();
    assert_eq!(found, ["bufferbloat", "server-think"]);
    // A radio: each packet another time.
    let radio: fn(f64, &mut Noise) -> f64 = |_, noise| noise.between(0.0, 60.0);
    // A machine that is busy now and then.
    let hiccups: fn(f64, &mut Noise) -> f64 = |_, noise| if noise.unit() < 0.2 { 30.0 } else { 0.0 };
    for seed in 0..60 {
        for queue in [radio, hiccups] {
            let diagnosis = explained_with(World { rtt: 20.0, queue, ..World::default() }, settings(), seed);
            assert!(!ids(&diagnosis).contains(&"bufferbloat"), "seed {seed}: {diagnosis:#?}");
        }
    }
}

/// As a JVM that compiles what it runs: each call is quicker than the one before.
#[test]
fn a_server_that_warms_up_is_healthy() {
    for (start, factor) in [(80.0, 0.7), (60.0, 0.8), (40.0, 0.6), (25.0, 0.75)] {
        for seed in 0..10 {
            let mut lived = Lived::new(World::default(), seed);
            let mut planner = Planner::new(Settings { seed, ..settings() });
            let mut work = start;
            while let Some(probe) = planner.poll_probe(t(lived.now)) {
                let mut seen = lived.make(&probe, &settings());
                if let Observation::Call(call) = &mut seen {
                    call.wait += t(work);
                    call.total += t(work);
                    call.receives.iter_mut().for_each(|r| r.at += t(work));
                    lived.now += work;
                    work *= factor;
                }
                planner.handle_observation(probe, seen);
            }
            let diagnosis = planner.diagnose();
            assert_eq!(diagnosis.whole, Whole::Healthy, "{start} {factor}: {diagnosis:#?}");
            assert!(
                diagnosis.limits.iter().any(|l| l.starts_with("the server was warming up")),
                "{:?}",
                diagnosis.limits
            );
        }
    }
    // One call met something, and those after it are quicker and quicker as caches fill: that call
    // has to be explained.
    let mut lived = Lived::new(World::default(), 1);
    let mut planner = Planner::new(settings());
    let mut calls = 0;
    while let Some(probe) = planner.poll_probe(t(lived.now)) {
        let mut seen = lived.make(&probe, &settings());
        if let Observation::Call(call) = &mut seen {
            calls += 1;
            let work = if calls == 2 { 95.0 } else { 1.0 / f64::from(calls) };
            call.wait += t(work);
            call.total += t(work);
            call.receives.iter_mut().for_each(|r| r.at += t(work));
            lived.now += work;
        }
        planner.handle_observation(probe, seen);
    }
    let diagnosis = planner.diagnose();
    assert!(!diagnosis.limits.iter().any(|l| l.contains("warming up")), "{:?}", diagnosis.limits);
    // Work that varies is no warming up.
    let chance: fn(&mut Noise) -> f64 = |noise| -20.0 * (1.0 - 0.99 * noise.unit()).ln();
    let warm = (0..200)
        .filter(|seed| {
            let diagnosis = explained_with(World { think: chance, ..World::default() }, settings(), *seed);
            diagnosis.limits.iter().any(|l| l.starts_with("the server was warming up"))
        })
        .count();
    assert!(warm <= 6, "{warm} of 200: more than chance explains");
}

#[test]
fn in_http() {
    let expects = Settings { body_bytes: 10, expects_continue: true, ..settings() };
    let held = explained_with(World { continues: false, ..World::default() }, expects.clone(), 1);
    assert_eq!(ids(&held), ["expect-continue"], "{held:#?}");
    let said = explained_with(World::default(), expects, 1);
    assert_eq!(said.whole, Whole::Healthy, "{said:#?}");
    let sent_on = explained(World { redirect: true, rtt: 20.0, ..World::default() });
    assert_eq!(ids(&sent_on), ["redirects"], "{sent_on:#?}");
}

#[test]
fn a_call_that_may_not_be_repeated_is_made_once() {
    let once = Settings { may_repeat: false, body_bytes: 10, ..settings() };
    let diagnosis = explained_with(World { nagle: true, ..World::default() }, once, 1);
    assert_eq!(diagnosis.calls, 1);
    assert!(diagnosis.limits.iter().any(|l| l.contains("--repeat-unsafe")));
}

#[test]
fn nobody_there() {
    let mut planner = Planner::new(settings());
    let mut lived = Lived::new(World { refuse: true, ..World::default() }, 1);
    while let Some(probe) = planner.poll_probe(t(lived.now)) {
        let seen = lived.make(&probe, &settings());
        planner.handle_observation(probe, seen);
    }
    assert_eq!(planner.unreachable(), Some("refused".to_owned()));
    assert!(planner.record().calls_made() <= 2);
}

/// Names and addresses, handed in by hand.
fn named(observe: impl Fn(&Probe) -> Option<Observation>) -> Diagnosis {
    let settings = Settings { named: true, addresses: Vec::new(), ..settings() };
    let mut planner = Planner::new(settings.clone());
    let mut lived = Lived::new(World::default(), 1);
    while let Some(probe) = planner.poll_probe(t(lived.now)) {
        let seen = observe(&probe).unwrap_or_else(|| lived.make(&probe, &settings));
        planner.handle_observation(probe, seen);
    }
    planner.diagnose()
}

fn both() -> Vec<SocketAddr> {
    vec![([0, 0, 0, 0, 0, 0, 0, 1], 80).into(), ([127, 0, 0, 1], 80).into()]
}

#[test]
fn names() {
    let lookup = |took: f64| {
        move |probe: &Probe| match probe {
            Probe::Resolve => Some(Observation::Resolved(Resolved {
                took: t(took),
                addresses: vec![([127, 0, 0, 1], 80).into()],
                error: None,
            })),
            Probe::NameServers => Some(Observation::NameServers(vec![NameServer {
                address: [10, 0, 0, 1].into(),
                v4: (took < 1000.0).then(|| t(took)),
                v6: Some(t(1.0)),
                asked: Vec::new(),
            }])),
            _ => None,
        }
    };
    assert_eq!(ids(&named(lookup(1.0))), [""; 0]);
    assert_eq!(ids(&named(lookup(120.0))), ["dns-slow"]);
    let waited = named(lookup(5010.0));
    assert_eq!(ids(&waited), ["dns-timeout"]);
    assert!(waited.causes[0].evidence()[0].contains("answers for IPv6 addresses, but not for IPv4"));
}

#[test]
fn families() {
    let diagnosis = named(|probe| match probe {
        Probe::Resolve => {
            Some(Observation::Resolved(Resolved { took: t(0.5), addresses: both(), error: None }))
        }
        Probe::Connect(n) => {
            let address = both()[*n];
            let (took, error) = if *n == 0 { (1200.0, Some("no answer".to_owned())) } else { (0.1, None) };
            Some(Observation::Connected(Connected { address, took: t(took), error, facts: Facts::default() }))
        }
        _ => None,
    });
    assert_eq!(ids(&diagnosis), ["ipv6-fallback"], "{diagnosis:#?}");
    assert_eq!(diagnosis.address, "127.0.0.1:80", "calls go where a connection could be had");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the world, it ends, within its calls, and parts are parts.
    #[test]
    fn every_world_ends(rtt in 0.01..200.0f64, nagle: bool, keep: bool, lose_syn in 0usize..6, lose in 0usize..6, accept in 0.0..800.0f64, body in 0u64..1_000_000, jitter in 0.0..50.0f64, seed: u64) {
        let world = World { rtt, nagle, keep, lose_syn, lose, accept, body, jitter, ..World::default() };
        let diagnosis = explained_with(world, settings(), seed);
        prop_assert!(diagnosis.calls <= CALLS + 2 * CALLS_SCATTERED + CALLS_TIMED + CALLS_TURNS);
        for verdict in &diagnosis.causes {
            prop_assert!(!verdict.evidence().is_empty() || !verdict.trials().is_empty());
            prop_assert!((0.0..=1.0).contains(&verdict.confidence()), "{}", verdict.confidence());
            prop_assert!(verdict.cost_ms() >= 0.0, "{} costs {}", verdict.id(), verdict.cost_ms());
        }
    }
}
