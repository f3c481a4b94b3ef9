//! Everything that was observed, and the questions rules ask of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::call::{Call, Streamed, ms};
use crate::evidence::Trial;
use crate::late::LateSegments;
use crate::limits;
use crate::probe::{
    BehindProbe, CallProbe, Connected, Experiment, HeldCall, IdleTrial, Lane, NameServer, Observation, Probe,
    Resolved, Writes,
};
use crate::stats::median;
use crate::times::CallPart;
use crate::upstream::UpstreamSeen;

/// The request to explain, and the limits and permissions of the diagnosis.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL as it is reported.
    pub url: String,
    /// The request's method, as it is reported.
    pub method: String,
    /// The command that makes this diagnosis again, without secrets.
    pub command: String,
    /// The request's target.
    pub target: String,
    /// The host is a name that has to be looked up.
    pub named: bool,
    /// The addresses, when they are known before.
    pub addresses: Vec<SocketAddr>,
    /// The method is GET or HEAD, or repeating it was allowed.
    pub may_repeat: bool,
    /// Bytes of the request's body.
    pub body_bytes: u64,
    /// The request says `Expect: 100-continue`.
    pub expects_continue: bool,
    /// How the client whose calls are explained writes a request with a body.
    pub writes: Writes,
    /// Time for all of it.
    pub budget: Duration,
    /// Calls for all of it.
    pub calls: usize,
    /// The kernel has TCP_DELACK_MAX_US.
    pub delayed_ack_lever: bool,
    /// The server's process on this machine.
    pub pid: Option<u32>,
    /// Where it was not named: find it by its listening socket, at an address of this machine.
    pub find_pid: bool,
    /// It was found so, and not named.
    pub pid_found: bool,
    /// It was seen to start a process for each connection.
    pub forks: bool,
    /// Record the packets of our own calls, where that may be done.
    pub capture: bool,
    /// The server behind the proxy, as it is reported, where it was named.
    pub origin: Option<String>,
    /// Parts of calls that an earlier diagnosis named causes in: they are measured again, for a comparison.
    pub compares: Vec<CallPart>,
    /// TLS with the server; `None`: plain HTTP.
    pub tls: Option<TlsSettings>,
    /// The HTTP/2 windows that we announce, bytes.
    pub window: u32,
    /// The seed of the order of experiments.
    pub seed: u64,
}

/// Our side of TLS, as far as a diagnosis depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate is not checked.
    pub insecure: bool,
    /// Sessions are resumed, as browsers do.
    pub resumes: bool,
    /// TLS 1.3 is not offered.
    pub limited: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            url: String::new(),
            method: "GET".to_owned(),
            command: String::new(),
            target: "/".to_owned(),
            named: false,
            addresses: Vec::new(),
            may_repeat: true,
            body_bytes: 0,
            expects_continue: false,
            writes: Writes::One,
            budget: limits::BUDGET,
            calls: limits::CALLS,
            delayed_ack_lever: true,
            pid: None,
            find_pid: false,
            pid_found: false,
            forks: false,
            capture: false,
            origin: None,
            compares: Vec::new(),
            tls: None,
            window: linerate_http::h2::WINDOW,
            seed: 1,
        }
    }
}

/// Everything that was observed.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request to explain, and the limits of the diagnosis.
    pub settings: Settings,
    entries: Vec<(Probe, Observation)>,
    /// Time since the start.
    pub elapsed: Duration,
    /// Experiments that were abandoned because time or calls ran out.
    pub given_up: Vec<Experiment>,
    /// Entries before this one were made while the server was warming up: they stand for no later
    /// call.
    pub warm_from: usize,
    /// Share of the time in which something on this machine waited for a processor, where the
    /// kernel counts it.
    pub pressure: Option<f64>,
}

impl Record {
    /// With nothing in it.
    pub fn new(settings: Settings) -> Record {
        Record {
            settings,
            entries: Vec::new(),
            elapsed: Duration::ZERO,
            given_up: Vec::new(),
            warm_from: 0,
            pressure: None,
        }
    }

    /// Notes what came of a probe. Calls that were made side by side, or at random
    /// times, are noted one by one.
    pub fn push(&mut self, probe: Probe, observation: Observation) {
        match (probe, observation) {
            (Probe::SideBySide(probes), Observation::SideBySide(calls)) => {
                let pairs = probes.into_iter().zip(calls).flat_map(|(p, c)| p.into_iter().zip(c));
                let one = |(p, c)| (Probe::Call(Box::new(p)), Observation::Call(Box::new(c)));
                self.entries.extend(pairs.map(one));
            }
            (Probe::Scattered(_), Observation::Scattered(calls)) => {
                let one = |call: Call| {
                    let lane = if call.fresh { Lane::Fresh } else { Lane::Kept(0) };
                    let mut probe = CallProbe::plain(Experiment::Scattered, 0, lane);
                    probe.writes = self.settings.writes;
                    (Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)))
                };
                self.entries.extend(calls.into_iter().map(one));
            }
            entry => self.entries.push(entry),
        }
    }

    /// Notes what the packets of our calls show of segments that came late.
    pub(crate) fn saw_packets(&mut self, late: impl Fn(&Call) -> Option<LateSegments>) {
        let see = |call: &mut Call| call.late = late(call);
        for (_, observation) in &mut self.entries {
            match observation {
                Observation::Call(call) => see(call),
                Observation::Burst(calls) | Observation::Scattered(calls) | Observation::Rate(calls) => {
                    calls.iter_mut().for_each(see);
                }
                Observation::SideBySide(lanes) | Observation::Together(lanes) => {
                    lanes.iter_mut().flatten().for_each(see);
                }
                Observation::Held(held) => see(&mut held.call),
                Observation::Behind(seen) => {
                    seen.iter_mut().flat_map(|b| b.calls.iter_mut().chain(&mut b.beside)).for_each(see);
                }
                Observation::Resolved(_)
                | Observation::NameServers(_)
                | Observation::Connected(_)
                | Observation::IdleLimit(_)
                | Observation::IdleSpans(_) => {}
            }
        }
    }

    /// Everything, in order.
    pub fn entries(&self) -> &[(Probe, Observation)] {
        &self.entries
    }

    /// Calls with what they were for.
    pub fn calls(&self) -> impl Iterator<Item = (&CallProbe, &Call)> {
        self.entries.iter().filter_map(|entry| match entry {
            (Probe::Call(probe), Observation::Call(call)) => Some((&**probe, &**call)),
            _ => None,
        })
    }

    /// Calls made so far.
    pub fn calls_made(&self) -> usize {
        self.entries.iter().map(|(probe, _)| probe.calls()).sum()
    }

    /// Whether an experiment was made, or abandoned.
    pub fn tried(&self, experiment: Experiment) -> bool {
        let together = |(probe, _): &(Probe, Observation)| matches!(probe, Probe::Together(t) if t.experiment == experiment);
        self.given_up.contains(&experiment)
            || self.calls().any(|(probe, _)| probe.experiment == experiment)
            || self.entries.iter().any(together)
            || experiment == Experiment::Rate && self.rates().next().is_some()
            || experiment == Experiment::Behind && self.behind().next().is_some()
    }

    /// Whether calls at once were made.
    pub fn burst_tried(&self) -> bool {
        self.given_up.contains(&Experiment::Burst)
            || self.entries.iter().any(|(probe, _)| matches!(probe, Probe::Burst(_)))
    }

    /// Calls made at once, in the order they ended, for each time it was done.
    pub fn bursts(&self) -> impl Iterator<Item = &[Call]> {
        self.entries.iter().filter_map(|entry| match entry {
            (_, Observation::Burst(calls)) => Some(calls.as_slice()),
            _ => None,
        })
    }

    /// Calls that were cut in the middle of their responses, alone and several at once.
    pub fn rates(&self) -> impl Iterator<Item = &[Call]> {
        self.entries.iter().filter_map(|entry| match entry {
            (_, Observation::Rate(calls)) => Some(calls.as_slice()),
            _ => None,
        })
    }

    /// The rounds of calls at once of an experiment's arm, over HTTP/2.
    pub fn together(&self, experiment: Experiment, arm: u8) -> Vec<&[Call]> {
        let rounds = self.entries.iter().filter_map(|entry| match entry {
            (Probe::Together(t), Observation::Together(rounds))
                if (t.experiment, t.arm) == (experiment, arm) =>
            {
                Some(rounds)
            }
            _ => None,
        });
        rounds.flatten().map(Vec::as_slice).collect()
    }

    /// HTTP/2 with the server; `None`: its calls are HTTP/1.1.
    pub fn streamed(&self) -> Option<Streamed> {
        self.observed().filter(|c| c.answer().is_some()).find_map(|c| c.streamed)
    }

    /// Segments get lost where calls may share a connection.
    pub fn loses_streams(&self) -> bool {
        self.calls().any(|(_, c)| c.lossy()) && self.streamed().is_some()
    }

    /// Calls made beside idle connections.
    pub fn held(&self) -> impl Iterator<Item = &HeldCall> {
        self.entries.iter().filter_map(|entry| match entry {
            (_, Observation::Held(held)) => Some(&**held),
            _ => None,
        })
    }

    /// An experiment's calls, those of a connection together, in their order.
    pub fn by_connection(&self, experiment: Experiment) -> Vec<Vec<&Call>> {
        let mut lanes: BTreeMap<u8, Vec<&Call>> = BTreeMap::new();
        for (probe, call) in self.calls().filter(|(p, _)| p.experiment == experiment) {
            if let Lane::Kept(lane) = probe.lane {
                lanes.entry(lane).or_default().push(call);
            }
        }
        lanes.into_values().collect()
    }

    /// The answered calls of an arm; on kept connections those that opened it are left out.
    pub fn arm(&self, experiment: Experiment, arm: u8) -> Vec<&Call> {
        self.calls()
            .filter(|(p, c)| p.experiment == experiment && p.arm == arm && c.answer().is_some())
            .filter(|(p, c)| matches!(p.lane, Lane::Fresh) || !c.fresh)
            .map(|(_, call)| call)
            .collect()
    }

    /// Milliseconds of an arm's calls.
    pub fn times(&self, experiment: Experiment, arm: u8, metric: fn(&Call) -> Duration) -> Vec<f64> {
        self.arm(experiment, arm).into_iter().map(|c| ms(metric(c))).collect()
    }

    /// Arm 1 against arm 0.
    pub fn trial(
        &self,
        experiment: Experiment,
        name: &str,
        changed: &str,
        metric: fn(&Call) -> Duration,
    ) -> Option<Trial> {
        let [without, with] = [0, 1].map(|arm| self.times(experiment, arm, metric));
        Trial::of(name, changed, without, with)
    }

    /// Calls of the first look since the server is warm.
    fn warm(&self) -> impl Iterator<Item = &Call> {
        self.entries[self.warm_from.min(self.entries.len())..].iter().filter_map(|entry| match entry {
            (Probe::Call(probe), Observation::Call(call)) if probe.experiment == Experiment::Observe => {
                Some(&**call)
            }
            _ => None,
        })
    }

    /// Calls that a server answered while it was warming up.
    pub fn warming(&self) -> impl Iterator<Item = &Call> {
        let cold = self.entries[..self.warm_from.min(self.entries.len())].iter();
        cold.filter_map(|entry| if let (_, Observation::Call(call)) = entry { Some(&**call) } else { None })
    }

    /// Answered calls of the first look on a connection that was there already.
    pub fn reused(&self) -> Vec<&Call> {
        self.warm().filter(|c| !c.fresh && c.answer().is_some()).collect()
    }

    /// Answered calls of the first look on new connections.
    pub fn fresh(&self) -> Vec<&Call> {
        self.warm().filter(|c| c.fresh && c.answer().is_some()).collect()
    }

    /// All calls of the first look.
    pub fn observed(&self) -> impl Iterator<Item = &Call> {
        self.calls().filter(|(p, _)| p.experiment == Experiment::Observe).map(|(_, c)| c)
    }

    /// The same, and those at random times.
    pub fn looked_at(&self) -> impl Iterator<Item = &Call> {
        let kinds = [Experiment::Observe, Experiment::Scattered];
        self.calls().filter(move |(p, _)| kinds.contains(&p.experiment)).map(|(_, c)| c)
    }

    /// The answered calls that are explained: on a kept connection where the server keeps it, else
    /// on new ones.
    pub fn group(&self) -> Vec<&Call> {
        let reused = self.reused();
        if reused.len() >= 2 { reused } else { self.fresh() }
    }

    /// The median of the explained calls' times, milliseconds.
    pub fn typical(&self, metric: fn(&Call) -> Duration) -> f64 {
        median_of(&self.group(), metric)
    }

    /// The quickest tenth of the explained calls takes that long or less, milliseconds.
    pub fn quickest(&self, metric: fn(&Call) -> Duration) -> f64 {
        tenth(self.group().into_iter().map(|c| ms(metric(c))).collect())
    }

    /// The network's round-trip time: the fastest handshake, or what the kernel saw, milliseconds.
    pub fn rtt_ms(&self) -> f64 {
        let handshakes = self
            .calls()
            .filter(|(_, c)| c.fresh && !c.syn_again() && !c.connect.is_zero())
            .map(|(_, c)| ms(c.connect));
        let seen = self.calls().map(|(_, c)| f64::from(c.facts.min_rtt_us) / 1e3).filter(|rtt| *rtt > 0.0);
        let best = handshakes.chain(seen).fold(f64::INFINITY, f64::min);
        if best.is_finite() { best } else { 0.0 }
    }

    /// Share of our calls' time in which our own threads waited for a processor.
    pub fn waited_share(&self) -> f64 {
        let sums = self.calls().fold((0.0, 0.0), |(waited, all), (_, c)| {
            (waited + c.starved.as_secs_f64().min(c.total.as_secs_f64()), all + c.total.as_secs_f64())
        });
        sums.0 / sums.1.max(1e-9)
    }

    /// Whether we waited for processors so much that times are less certain.
    pub fn is_machine_busy(&self) -> bool {
        self.waited_share() > limits::BUSY_SHARE && self.waited_ms() > limits::BUSY_MS
    }

    /// Programs compete for this machine's processors. Far away our own calls sleep most of their
    /// time and hardly wait; a server in a container of this machine waits all the same.
    pub fn is_contended(&self) -> bool {
        self.is_machine_busy() || self.pressure.is_some_and(|share| share >= limits::CONTENDED)
    }

    /// Calls that may be made together: more on a busy machine, and over HTTP/2 as segments get lost.
    pub fn calls_allowed(&self) -> usize {
        let more = if self.is_machine_busy() { self.settings.calls.min(limits::CALLS_BUSY) } else { 0 };
        let streams = if self.loses_streams() { limits::CALLS_STREAMS } else { 0 };
        // They are made when all else has found nothing, and take nothing away from it.
        let scattered = self.calls().filter(|(p, _)| p.experiment == Experiment::Scattered).count();
        let scattered = scattered + if scattered > 0 { limits::CALLS_TIMED } else { 0 };
        let turns = self.calls().filter(|(p, _)| p.experiment == Experiment::Turns).count();
        let asked = self.entries.iter().any(|(probe, _)| matches!(probe, Probe::IdleLimit(_)));
        let idle = if asked { limits::CALLS_IDLE } else { 0 };
        self.settings.calls + more + streams + scattered + turns + idle + self.calls_behind()
    }

    /// Connections that were left idle, step by step.
    pub fn idle_steps(&self) -> impl Iterator<Item = &[IdleTrial]> {
        self.entries.iter().filter_map(|entry| match entry {
            (_, Observation::IdleSpans(trials)) => Some(trials.as_slice()),
            _ => None,
        })
    }

    /// Calls made while the server's own connections were watched, or on connections that were idle. They take nothing away from other
    /// experiments: what is behind is asked of a server on this machine alone.
    fn calls_behind(&self) -> usize {
        let idle: usize = self.idle_steps().flatten().map(|trial| 1 + usize::from(trial.span.times)).sum();
        idle + self.behind().map(|(probe, _)| Probe::Behind(*probe).calls()).sum::<usize>()
    }

    /// Calls made while the server's own connections were watched, with what was seen.
    pub fn behind(&self) -> impl Iterator<Item = (&BehindProbe, Option<&UpstreamSeen>)> {
        self.entries.iter().filter_map(|entry| match entry {
            (Probe::Behind(probe), Observation::Behind(seen)) => Some((probe, seen.as_deref())),
            _ => None,
        })
    }

    /// How long our own threads waited for a processor in a call, on average, milliseconds.
    pub fn waited_ms(&self) -> f64 {
        let all: f64 = self.calls().map(|(_, c)| ms(c.starved)).sum();
        all / self.calls().count().max(1) as f64
    }

    /// It is called at a loopback address: there is no way on which packets queue or get lost.
    pub fn is_loopback(&self) -> bool {
        self.addresses().get(self.chosen()).is_some_and(|to| to.ip().is_loopback())
    }

    /// Lookups of the name.
    pub fn lookups(&self) -> Vec<&Resolved> {
        self.entries
            .iter()
            .filter_map(|e| if let Observation::Resolved(r) = &e.1 { Some(r) } else { None })
            .collect()
    }

    /// The results of the name servers, when they were asked.
    pub fn name_servers(&self) -> Option<&[NameServer]> {
        self.entries
            .iter()
            .find_map(|e| if let Observation::NameServers(n) = &e.1 { Some(n.as_slice()) } else { None })
    }

    /// Attempts to connect to each address.
    pub fn connects(&self) -> Vec<&Connected> {
        self.entries
            .iter()
            .filter_map(|e| if let Observation::Connected(c) = &e.1 { Some(c) } else { None })
            .collect()
    }

    /// The addresses, in the order the system prefers.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let looked_up = self.lookups().first().map(|r| r.addresses.clone());
        looked_up.unwrap_or_else(|| self.settings.addresses.clone())
    }

    /// The index of the address that calls go to: the first that a connection could be had to.
    pub fn chosen(&self) -> usize {
        let connects = self.connects();
        let addresses = self.addresses();
        let good = connects.iter().find(|c| c.error.is_none()).map(|c| c.address);
        good.and_then(|good| addresses.iter().position(|a| *a == good)).unwrap_or(0)
    }
}

/// The first decile: the second of ten values or more; 0 for no values.
pub(crate) fn tenth(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 10).copied().unwrap_or_default()
}

/// The median of some calls' times, milliseconds.
pub(crate) fn median_of(calls: &[&Call], metric: fn(&Call) -> Duration) -> f64 {
    median(&calls.iter().map(|c| ms(metric(c))).collect::<Vec<_>>())
}
