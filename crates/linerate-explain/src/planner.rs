//! Decides what to do next, and in the end what the observations mean. Sans-IO: its input is what was
//! observed and the time it took.
//!
//! First a look: name, addresses, some calls on new and kept connections. Then each rule in turn,
//! for as long as it wants more probes and there is time; then all judge.

mod afford;

use std::collections::VecDeque;
use std::time::Duration;

use crate::call::{Call, CallStage, Failure, Why, ms};
use crate::causes::{self, bandwidth, idle_forgotten, idle_limit_order, local_drops, packet_loss, stopped};
use crate::diagnosis::{Diagnosis, Machine, RuledOut, TlsSeen, Whole};
use crate::evidence::Proof;
use crate::late::LateSegments;
use crate::limits;
use crate::probe::{Block, CallProbe, Experiment, Lane, Observation, Probe};
use crate::record::{Record, Settings, median_of};
use crate::rule::{Cause, Judgement, Judgements};
use crate::shown::Arms;
use crate::signs::new_connections::starved;
use crate::signs::wait::WORK_MS;
use crate::signs::{at_once, bursts, first, flow, pace, path, scattered};
use crate::times::{self, CallPart, CallTimes};
use crate::verdict::Verdict;
use crate::words::say;
use crate::{predict, shown, steady};
use linerate_base::Random;

/// Where in the plan we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Name,
    Addresses,
    Reach,
    Look,
    Rule(usize),
    Done,
}

/// Asks for probes, takes their results, and ends with a [`Diagnosis`].
///
/// ```
/// use std::time::Duration;
///
/// use linerate_explain::probe::Probe;
/// use linerate_explain::{Planner, Settings};
///
/// let mut planner = Planner::new(Settings { named: true, ..Settings::default() });
/// // It opens no socket: it asks for a lookup of the name, and waits for the result.
/// assert!(matches!(planner.poll_probe(Duration::ZERO), Some(Probe::Resolve)));
/// ```
#[derive(Debug)]
pub struct Planner {
    record: Record,
    queue: VecDeque<Probe>,
    phase: Phase,
    random: Random,
    /// How often the first look was begun.
    looks: u8,
    /// How often calls at random times were made.
    scattered: u8,
    /// How often the server asked for fewer calls, and how long to wait before the next one.
    refused: u8,
    hold: Duration,
}

/// Looks at a server that is warming up, at most.
const LOOKS: u8 = 3;
/// Refusals (429) after which no more calls are made.
const REFUSALS: u8 = 3;
/// The least cost of a cause, milliseconds. A smaller one is reported as a note.
const COSTS_MS: f64 = 2.0;
/// Its least share of the call.
const COSTS_SHARE: f64 = 0.1;
/// Or this many milliseconds, whatever its share.
const COSTS_ALWAYS_MS: f64 = 20.0;
/// Share of our calls' time in which we waited for a processor: from it and the next on times are less
/// certain.
const BUSY_SHARE: f64 = 0.1;
/// Milliseconds of each call in which we did.
const BUSY_MS: f64 = 1.0;
/// Round trips of one response on a warm connection that want a reason.
const ROUND_TRIPS: f64 = 8.0;
/// Calls at random times below which they tell nothing.
const LEAST_SCATTERED: usize = 10;
/// Their second series lasts this many times as long.
const LONGER_GAP: f64 = 3.0;
/// Share of the time that experiments leave to them.
const RANDOM_SHARE: f64 = 0.1;
/// Experiments with calls that take longer than so many milliseconds need all the time.
const QUICK_MS: f64 = 250.0;
/// Lookups that a comparison takes. Reason: one slow lookup before is told from 20 quick ones (1 of 21
/// by chance).
const COMPARED_LOOKUPS: usize = 20;
/// Full handshakes that a comparison takes.
const COMPARED_HANDSHAKES: usize = 8;
/// Share of the time until which they are begun.
const COMPARED_UNTIL: f64 = 0.8;
/// Time that lookups for a comparison may take together, milliseconds.
const LOOKUPS_MS: f64 = 3_000.0;
/// Share of the time the first look may take.
const LOOK_SHARE: f64 = 0.4;

impl Planner {
    /// For what is asked about.
    pub fn new(settings: Settings) -> Planner {
        let random = Random::new(settings.seed);
        Planner {
            record: Record::new(settings),
            queue: VecDeque::new(),
            phase: Phase::Name,
            random,
            looks: 0,
            scattered: 0,
            refused: 0,
            hold: Duration::ZERO,
        }
    }

    /// Everything that was observed so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The share of the time in which something on this machine waited for a processor.
    pub fn under_pressure(&mut self, share: Option<f64>) {
        self.record.pressure = share;
    }

    /// What the packets of our calls show of segments that came late.
    pub fn saw_packets(&mut self, late: impl Fn(&Call) -> Option<LateSegments>) {
        self.record.saw_packets(late);
    }

    /// The server's process was found on this machine.
    pub fn found(&mut self, pid: u32) {
        self.record.settings.pid = Some(pid);
        self.record.settings.pid_found = true;
    }

    /// The server starts a process for each connection.
    pub fn forks(&mut self) {
        self.record.settings.forks = true;
    }

    /// How long after the start the last probe must have ended. The driver cuts short what is under way then.
    pub fn until(&self) -> Duration {
        let budget = self.record.settings.budget;
        let (share, most) = (limits::SPEAKING_SHARE, limits::SPEAKING_MOST);
        budget.saturating_sub(budget.mul_f64(share).min(most))
    }

    /// The next probe, `elapsed` after the start. `None`: there is no more to do.
    pub fn poll_probe(&mut self, elapsed: Duration) -> Option<Probe> {
        self.record.elapsed = elapsed;
        loop {
            if elapsed >= self.until() {
                self.give_up();
            } else if self.left() == 0 && self.queue.front().is_some_and(counts) {
                // Later rules may want what takes no call from them.
                let phase = self.phase;
                self.give_up();
                self.phase = if matches!(phase, Phase::Rule(_)) { phase } else { Phase::Done };
            }
            if let Some(mut probe) = self.queue.pop_front() {
                if let Probe::Call(call) = &mut probe {
                    call.pause += std::mem::take(&mut self.hold);
                    call.patience = self.patience(call.patience);
                }
                return Some(probe);
            }
            if !self.advance() {
                return None;
            }
        }
    }

    /// How long a call may take: longer where the whole may, and not for ever where a stream of
    /// events shows nothing new.
    fn patience(&self, usual: Duration) -> Duration {
        let (share, least) = (limits::STREAM_TIMES, limits::STREAM_LEAST);
        let streams = self.record.observed().filter(|c| c.answer().is_some_and(|a| a.endless));
        match streams.map(|c| c.total).max() {
            Some(begun) => (begun.mul_f64(share) + least).min(usual),
            // So much of a body that comes too slowly to be waited for shows its rate.
            None if self.record.observed().any(flow::was_coming) => usual.min(limits::BODY_TIME),
            None if usual == limits::CALL_TIME => {
                let budget = self.record.settings.budget;
                let whole = usual.min(budget.mul_f64(limits::CALL_SHARE)).max(budget / 5);
                if self.hung(whole) || self.hangs_on_new_connections(whole) { whole / 2 } else { whole }
            }
            None => usual,
        }
    }

    /// A call had all that time and no answer.
    fn hung(&self, whole: Duration) -> bool {
        let timed_out = |c: &Call| c.failure().is_some_and(|f| f.why == Why::TimedOut);
        self.record.observed().any(|c| timed_out(c) && c.total >= whole)
    }

    /// A call on a new connection was not answered, where those on a kept one are quick. Later ones
    /// need not hang as long: the experiments want the time.
    fn hangs_on_new_connections(&self, whole: Duration) -> bool {
        let kept = self.record.reused().iter().map(|c| c.total).max();
        starved(&self.record) > 0 && kept.is_some_and(|kept| kept < whole / 8)
    }

    /// Takes the observation of the probe that was asked for last.
    pub fn handle_observation(&mut self, probe: Probe, observation: Observation) {
        self.obey(&observation);
        self.record.push(probe, observation);
        if matches!(self.phase, Phase::Look) {
            self.shorten_look();
        }
    }

    /// A server that refuses calls because too many come is asked again when it says, and not
    /// often.
    fn obey(&mut self, observation: &Observation) {
        let calls: &[Call] = match observation {
            Observation::Call(call) => std::slice::from_ref(call),
            Observation::Burst(calls) | Observation::Scattered(calls) => calls,
            _ => return,
        };
        let Some(after) = calls.iter().filter_map(|c| pace::refused(c.answer()?)).max() else { return };
        self.refused += 1;
        let left = self.until().saturating_sub(self.record.elapsed);
        if self.refused >= REFUSALS || after > left / 2 || calls.len() > 1 {
            self.queue.clear();
            self.phase = Phase::Done;
        } else {
            self.hold = after;
        }
    }

    /// Calls that may still be made.
    fn left(&self) -> usize {
        self.record.calls_allowed().saturating_sub(self.record.calls_made())
    }

    /// Time or calls are used up.
    fn give_up(&mut self) {
        for probe in self.queue.drain(..) {
            for experiment in afford::experiments(&probe) {
                if !self.record.tried(experiment) {
                    self.record.given_up.push(experiment);
                }
            }
        }
        self.phase = Phase::Done;
    }

    /// Fills the queue with what is next; `false` at the end.
    fn advance(&mut self) -> bool {
        let settings = &self.record.settings;
        match self.phase {
            Phase::Name => {
                self.phase = Phase::Addresses;
                if settings.named && settings.addresses.is_empty() {
                    self.queue.push_back(Probe::Resolve);
                }
            }
            Phase::Addresses => {
                self.phase = Phase::Reach;
                let addresses = self.record.addresses();
                // One of each family tells which one a client gets; with one address the calls tell
                // it.
                let first = addresses.first().map(|a| a.is_ipv6());
                let other = addresses.iter().position(|a| Some(a.is_ipv6()) != first);
                match other {
                    Some(other) => self.queue.extend([Probe::Connect(0), Probe::Connect(other)]),
                    None if addresses.len() > 1 => self.queue.push_back(Probe::Connect(0)),
                    None => {}
                }
                if settings.named && !self.record.lookups().is_empty() {
                    // Whether a cache serves the second call is worth a line, not a wait.
                    let quick = self.record.lookups()[0].took < Duration::from_millis(500);
                    self.queue.extend(quick.then_some(Probe::Resolve));
                }
            }
            Phase::Reach => match self.next_address() {
                Some(n) => self.queue.push_back(Probe::Connect(n)),
                None => {
                    self.phase = Phase::Look;
                    self.look();
                }
            },
            Phase::Look => {
                let early = self.record.elapsed < self.until().mul_f64(LOOK_SHARE / 2.0);
                let again = self.looks < LOOKS && early && self.record.settings.may_repeat;
                if again && steady::warms_up(&self.record) {
                    self.record.warm_from = self.record.entries().len();
                    self.look();
                } else {
                    // A stopped process responds to no experiment.
                    self.phase = if is_stopped(&self.judgements()) { Phase::Done } else { Phase::Rule(0) };
                }
            }
            Phase::Rule(n) => {
                let Some(rule) = causes::ALL.get(n) else {
                    // What these calls show may want another experiment.
                    self.phase = match () {
                        () if self.compare() => Phase::Rule(n),
                        () if self.scatter() => Phase::Rule(0),
                        () => Phase::Done,
                    };
                    return true;
                };
                let batch = self.judgements().wanted(rule);
                if batch.is_empty() || !self.affordable(&batch) {
                    self.phase = Phase::Rule(n + 1);
                } else {
                    self.enqueue(batch);
                }
            }
            Phase::Done => return false,
        }
        true
    }

    /// The address to be tried next, while none could be reached.
    fn next_address(&self) -> Option<usize> {
        let tried = self.record.connects();
        let in_vain = tried.iter().all(|c| c.error.is_some());
        if tried.is_empty() || !in_vain || tried.len() >= limits::ATTEMPTS {
            return None;
        }
        let addresses = self.record.addresses();
        addresses.iter().position(|address| tried.iter().all(|c| c.address != *address))
    }

    /// New and kept connections in turns, as an ordinary client makes calls.
    fn look(&mut self) {
        self.looks += 1;
        let writes = self.record.settings.writes;
        let call = |lane| {
            Probe::Call(Box::new(CallProbe { writes, ..CallProbe::plain(Experiment::Observe, 0, lane) }))
        };
        if !self.record.settings.may_repeat {
            self.queue.push_back(call(Lane::Kept(0)));
            return;
        }
        let kept = call(Lane::Kept(0));
        let fresh = call(Lane::Fresh);
        for (kind, n) in [(&kept, 4), (&fresh, 2), (&kept, 3), (&fresh, 2)] {
            self.queue.extend(std::iter::repeat_n(kind.clone(), n));
        }
    }

    /// A look at something very slow is kept short: the experiments need the time.
    fn shorten_look(&mut self) {
        let observed = self.record.observed().count();
        let over = self.record.elapsed.as_secs_f64() > LOOK_SHARE * self.until().as_secs_f64();
        let hung =
            self.record.observed().filter(|c| c.failure().is_some_and(|f| f.why == Why::TimedOut)).count();
        let refused = self
            .record
            .observed()
            .all(|c| c.failure().is_some_and(|f| matches!(f.why, Why::Refused | Why::Tls)));
        // The rate of a long body shows in a few calls, two of them on a kept connection.
        let long = self.record.reused().len() >= 2 && self.record.observed().all(flow::owns);
        if long || observed >= 2 && (over && observed >= 4 || hung >= 2 || refused) {
            self.queue.clear();
        }
    }

    /// Whether a batch fits what is left of time and calls; an experiment half made proves nothing.
    fn affordable(&mut self, batch: &[Block]) -> bool {
        let calls: usize = batch.iter().flatten().filter(|probe| counts(probe)).map(Probe::calls).sum();
        if calls > 0 && self.left() == 0 {
            return false;
        }
        let has = self.until().saturating_sub(self.record.elapsed + self.kept_for_random_times());
        if calls <= self.left() && afford::needs(&self.record, batch) <= has {
            return true;
        }
        for experiment in batch.iter().flatten().flat_map(afford::experiments) {
            if !self.record.given_up.contains(&experiment) {
                self.record.given_up.push(experiment);
            }
        }
        false
    }

    /// Time that experiments leave to calls at random times, without which "healthy" is worth little. None
    /// where they are made already, or a cause is named.
    fn kept_for_random_times(&self) -> Duration {
        let record = &self.record;
        let answered = record.observed().all(|c| c.answer().is_some());
        let quick = answered && record.typical(|c| c.total) < QUICK_MS;
        if !quick || record.tried(Experiment::Scattered) || !self.may_scatter() || self.names_any() {
            return Duration::ZERO;
        }
        let gap = Duration::from_secs_f64(scattered::gap_ms(record) / 1e3);
        (gap * LEAST_SCATTERED as u32).min(self.until().mul_f64(RANDOM_SHARE))
    }

    /// What a comparison with an earlier diagnosis wants, one probe after another: lookups and full TLS
    /// handshakes, of which there are few where nothing is wrong with them.
    fn compare(&mut self) -> bool {
        let record = &self.record;
        if !record.settings.may_repeat || record.elapsed > self.until().mul_f64(COMPARED_UNTIL) {
            return false;
        }
        let lookups = record.lookups();
        let took: f64 = lookups.iter().map(|l| ms(l.took)).sum();
        let wants = |part| record.settings.compares.contains(&part);
        let probe = if wants(CallPart::Lookup)
            && !lookups.is_empty()
            && lookups.len() < COMPARED_LOOKUPS
            && took < LOOKUPS_MS
        {
            Probe::Resolve
        } else if wants(CallPart::Full)
            && record.settings.tls.is_some()
            && times::full(record).len() < COMPARED_HANDSHAKES
            && self.left() > 0
        {
            let plain = CallProbe::plain(Experiment::Resume, 0, Lane::Fresh);
            let tls = linerate_tls::Variant::Full;
            let made = record.calls().filter(|(p, _)| p.tls == tls).count();
            if made >= 2 * COMPARED_HANDSHAKES {
                return false;
            }
            let writes = record.settings.writes;
            Probe::Call(Box::new(CallProbe { tls, closes: true, writes, ..plain }))
        } else {
            return false;
        };
        self.queue.push_back(probe);
        true
    }

    /// Whether calls at random times can tell anything.
    fn may_scatter(&self) -> bool {
        let record = &self.record;
        let some = record.group().iter().any(|c| c.answer().is_some_and(|a| a.status < 400));
        record.settings.may_repeat && some && pace::refusals(record).0.is_empty()
    }

    /// Before it is said that nothing is wrong, or that no cause can be named: calls at random times.
    /// Those that follow one another may ride in the gaps of what is slow now and then. Where many are slow,
    /// once more: a period shows in more of them. One of a second shows in a longer time.
    fn scatter(&mut self) -> bool {
        let record = &self.record;
        let again = self.scattered == 1
            && scattered::slow(record).is_some_and(|slow| slow.is_often())
            && scattered::period(record).is_none();
        let given_up = record.given_up.contains(&Experiment::Scattered);
        if given_up || self.scattered > 0 && !again || !self.may_scatter() || self.names_any() {
            return false;
        }
        let calls = limits::CALLS_SCATTERED.min(record.settings.calls / 2);
        if calls < LEAST_SCATTERED {
            return false;
        }
        let longer = if again && !record.is_contended() { LONGER_GAP } else { 1.0 };
        let (mut at, gap) = (0.0, longer * scattered::gap_ms(record) / 1e3);
        let mut times: Vec<Duration> = (0..calls)
            .map(|_| {
                at += gap * self.random.exponential();
                Duration::from_secs_f64(at)
            })
            .collect();
        let has = self.until().saturating_sub(self.record.elapsed);
        // Fewer tell less, and more than none.
        let needs =
            |times: &[Duration]| afford::needs(&self.record, &[vec![Probe::Scattered(times.to_vec())]]);
        while times.len() >= LEAST_SCATTERED && needs(&times) > has {
            times.pop();
        }
        if times.len() < LEAST_SCATTERED {
            self.record.given_up.push(Experiment::Scattered);
            return false;
        }
        self.queue.push_back(Probe::Scattered(times));
        self.scattered += 1;
        true
    }

    /// A cause is at least likely, and no trifle.
    fn names_any(&self) -> bool {
        let judgements = self.judgements();
        let named = |cause: &&Cause| match judgements.of(cause.id) {
            Judgement::Named(verdict) => Some((**verdict).clone()),
            _ => None,
        };
        let mut named: Vec<Verdict> = causes::ALL.iter().filter_map(named).collect();
        trifles(&self.record, &mut named);
        named.iter().any(|verdict| verdict.proof() >= Proof::Likely)
    }

    /// In random order, each block in its own.
    fn enqueue(&mut self, mut blocks: Vec<Block>) {
        self.random.shuffle(&mut blocks);
        self.queue.extend(blocks.into_iter().flatten());
    }

    /// Why no call could be made at all, when that is so: in words, for somebody who mistyped
    /// something.
    pub fn unreachable(&self) -> Option<String> {
        let first = self.record.lookups().into_iter().next();
        if let Some(error) = first.filter(|l| l.addresses.is_empty()).and_then(|l| l.error.clone()) {
            return Some(error);
        }
        let mut calls = self.record.observed().peekable();
        calls.peek()?;
        let failed = |c: &Call| {
            let opens =
                |f: &Failure| matches!(f.stage, CallStage::Connect | CallStage::Tls) && f.why != Why::NoPort;
            c.failure().is_some_and(opens)
        };
        // Calls as they are may hang where those of an experiment are answered.
        let answered = self.record.calls().any(|(_, c)| c.answer().is_some());
        let words = self.record.observed().find_map(|c| c.failure()).map(|f| f.words.clone());
        words.filter(|_| !answered && calls.all(failed))
    }

    fn judgements(&self) -> Judgements<'_> {
        Judgements::new(&self.record, &causes::ALL)
    }

    /// The diagnosis by all observations so far.
    pub fn diagnose(&self) -> Diagnosis {
        let record = &self.record;
        let (mut named, mut ruled_out, mut limits) = (Vec::<Verdict>::new(), Vec::new(), Vec::new());
        let judgements = self.judgements();
        for cause in causes::ALL {
            match judgements.of(cause.id).clone() {
                Judgement::Named(verdict) => named.push(*verdict),
                Judgement::RuledOut(why) => ruled_out.push(RuledOut { cause, why: why.words().to_owned() }),
                Judgement::Open(why) => limits.push(format!("{}: {why}", cause.id)),
                Judgement::Silent => {}
            }
        }
        if is_stopped(&judgements) {
            named.retain(|verdict| verdict.id() == "stopped");
        }
        lost_for_a_reason(&mut named);
        let changed = steady::weigh(record, &mut named, &mut ruled_out);
        limits.extend(trifles(record, &mut named));
        limits.extend(on_a_busy_machine(record, &mut named));
        named.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        limits.extend(failing(record).filter(|_| !named.is_empty()));
        limits.extend(doubts(record));
        let whole = match (named.is_empty(), changed.or_else(|| self.complaint())) {
            (false, _) => Whole::Caused,
            (true, Some(complaint)) => {
                limits.retain(|limit| *limit != complaint);
                limits.insert(0, complaint);
                Whole::Inconclusive
            }
            (true, None) => Whole::Healthy,
        };
        for verdict in &mut named {
            *verdict = verdict.clone().predicting(predict::of(record, verdict));
        }
        let shown = shown::of(record, &named);
        let address = record.addresses().get(record.chosen()).map(ToString::to_string).unwrap_or_default();
        Diagnosis {
            whole,
            url: record.settings.url.clone(),
            method: record.settings.method.clone(),
            command: record.settings.command.clone(),
            address,
            dns_ms: record.lookups().first().map_or(0.0, |l| ms(l.took)),
            call: representative(record, named.first(), shown.arms.as_deref()),
            times: CallTimes::seen(record),
            first: first::seen(record),
            rtt_ms: record.rtt_ms(),
            causes: named,
            ruled_out,
            limits,
            calls: record.calls_made(),
            took_s: record.elapsed.as_secs_f64(),
            served_at_once: at_once::served(record),
            tls: TlsSeen::of(record),
            streamed: record.streamed(),
            machine: Machine { waited_share: record.waited_share(), ..Machine::default() },
            shown,
        }
    }

    /// The symptom that remains when no cause was found.
    fn complaint(&self) -> Option<String> {
        let record = &self.record;
        let observed: Vec<&Call> = record.looked_at().collect();
        let failed: Vec<_> = observed.iter().filter_map(|c| c.failed()).collect();
        if observed.is_empty() {
            return Some("no call was made".to_owned());
        }
        if observed.iter().all(|c| c.answer().is_none()) && failed.is_empty() {
            return Some("no call ended in the time there was (--budget)".to_owned());
        }
        if let Some(failure) = failed.first().filter(|_| failed.len() > 1 || record.group().is_empty()) {
            return Some(format!("{} of {} calls failed: {}", failed.len(), observed.len(), failure.words));
        }
        if let Some(words) = failing(record) {
            return Some(words);
        }
        // One may be a hiccup of this machine.
        let hidden = steady::may_be_starved(record);
        let slow = steady::now_and_then(record).filter(|slow| slow.often && !hidden);
        if let Some(slow) = slow.or_else(|| steady::at_random(record).filter(|slow| slow.often && !hidden)) {
            return Some(format!("{}, and no cause was found for it", slow.words));
        }
        if let Some(words) = idle_limit_order::unseen(record).or_else(|| idle_forgotten::unseen(record)) {
            return Some(words);
        }
        let pause = median_of(&record.group(), Call::longest_gap);
        let body = record.group().first().and_then(|c| c.answer()).map_or(0, |a| a.body_bytes)
            + record.settings.body_bytes;
        // A small response leaves at once, however far it goes.
        if pause >= WORK_MS && body < 10_000 {
            return Some(format!("the answer pauses for {} on the way, and why is unclear", say(pause)));
        }
        let trips = bursts::round_trips(record);
        if trips >= ROUND_TRIPS {
            return Some(format!(
                "on a warm connection the response takes {trips:.0} round trips of {}, and why is unclear",
                say(record.rtt_ms())
            ));
        }
        // While nothing waited for a processor, that is no reason.
        let alone = |c: &Call| c.total.saturating_sub(c.contended.unwrap_or(c.total));
        let quickest = || record.quickest(|c| c.total).max(record.typical(alone));
        let total = if record.is_contended() { quickest() } else { record.typical(|c| c.total) };
        // The time of a large body is the path's rate; without one, time beyond some round trips
        // wants a reason.
        let opening = record.typical(Call::tls_took);
        let explained = opening + 3.0 * path::typical_ms(record) + 2.0 * WORK_MS;
        (total > explained && body < 100_000)
            .then(|| format!("the call takes {}, and no cause was found for it", say(total)))
    }
}

/// Whether a probe takes from the calls of a diagnosis. Those at random times, and those beside which the
/// server's process is watched, are calls beyond all others.
fn counts(probe: &Probe) -> bool {
    probe.calls() > 0 && !matches!(probe, Probe::Scattered(_) | Probe::Behind(_) | Probe::IdleSpans(_))
}

/// A line that is too narrow drops what its queue has no room for, which tells senders its rate; and this
/// machine may drop them. Then that is the reason for the losses.
fn lost_for_a_reason(named: &mut [Verdict]) {
    let is_reason =
        |verdict: &Verdict| verdict.names(&bandwidth::CAUSE) || verdict.names(&local_drops::CAUSE);
    if named.iter().any(|verdict| is_reason(verdict) && verdict.proof() > Proof::Possible) {
        for verdict in named.iter_mut().filter(|verdict| verdict.names(&packet_loss::CAUSE)) {
            *verdict = verdict.clone().behind();
        }
    }
}

/// All threads of the server are stopped, so it has nothing else to show.
fn is_stopped(judgements: &Judgements<'_>) -> bool {
    matches!(judgements.of(stopped::CAUSE.id), Judgement::Named(v) if v.proof() == Proof::Proved)
}

/// The failure of the call, where the server's status says so.
fn failing(record: &Record) -> Option<String> {
    let status = record.group().first().and_then(|c| c.answer()).map(|a| a.status)?;
    (status >= 400).then(|| format!("the call fails with {status}"))
}

/// Doubts that the reader of a diagnosis should know.
fn doubts(record: &Record) -> Vec<String> {
    let mut doubts = Vec::new();
    let s = &record.settings;
    if !s.may_repeat {
        doubts.push(
            "the call was made once: experiments need it repeated, which only GET and HEAD allow by themselves; --repeat-unsafe says \
             that repeating it does no harm"
                .to_owned(),
        );
    }
    if !s.delayed_ack_lever {
        doubts.push("this kernel has no TCP_DELACK_MAX_US (Linux 6.16): no dose-response".to_owned());
    }
    let cold: Vec<f64> = record.warming().filter(|c| !c.fresh).map(|c| ms(c.total)).collect();
    if let (Some(first), Some(last)) = (cold.first(), cold.last()) {
        doubts.push(format!(
            "the server was warming up: its first calls took {} at first and {} later; they are left out",
            say(*first),
            say(*last)
        ));
    }
    for experiment in &record.given_up {
        let begun = record.calls().any(|(probe, _)| probe.experiment == *experiment);
        let made = if begun { "not all of it was made" } else { "it was not made" };
        doubts.push(format!(
            "an experiment, {}: {made}, since it did not fit into the calls and the time that were left ({} of {} calls and {} of {} were \
             used; --budget)",
            experiment.words(),
            record.calls_made(),
            record.calls_allowed(),
            say(ms(record.elapsed)),
            say(ms(s.budget))
        ));
    }
    let mut statuses: Vec<u16> = record.observed().filter_map(|c| c.answer()).map(|a| a.status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    if let Some(words) = steady::one_of_many(record) {
        doubts.push(words);
    } else if statuses.len() > 1 {
        doubts.push(format!("the server does not answer alike: statuses {statuses:?}"));
    }
    if record.observed().any(|c| c.answer().is_some_and(|a| a.endless)) {
        doubts.push(
            "the response is a stream of events, which has no end of its own: we left in its middle, and its time is that of its first \
             byte"
                .to_owned(),
        );
    }
    let hidden = steady::may_be_starved(record);
    for slow in [steady::now_and_then(record), steady::at_random(record)].into_iter().flatten() {
        if !slow.often || hidden {
            doubts.push(slow.words);
        }
    }
    let failures: Vec<_> = record.looked_at().filter_map(|c| c.failed()).collect();
    if let Some(failure) = failures.first() {
        let of = record.looked_at().count();
        doubts.push(format!("{} of {of} calls failed: {}", failures.len(), failure.words));
    }
    doubts
}

/// Takes out what costs too little to be a cause: notes.
fn trifles(record: &Record, named: &mut Vec<Verdict>) -> Vec<String> {
    let lookup = record.lookups().first().map_or(0.0, |l| ms(l.took));
    let total = record.typical(|c| c.total) + lookup;
    let counts = |v: &Verdict| {
        v.fails() || v.cost_ms() >= COSTS_MS && v.cost_ms() >= (COSTS_SHARE * total).min(COSTS_ALWAYS_MS)
    };
    let (causes, small): (Vec<_>, Vec<_>) = std::mem::take(named).into_iter().partition(counts);
    *named = causes;
    small
        .iter()
        .map(|v| {
            format!("{}: {}; that costs {} a call, a note and no cause", v.id(), v.title(), say(v.cost_ms()))
        })
        .collect()
}

/// Where our own calls waited for a processor, what stands on times alone is less certain; arms in
/// random order are not touched by it.
fn on_a_busy_machine(record: &Record, named: &mut [Verdict]) -> Option<String> {
    let share = record.waited_share();
    if share < BUSY_SHARE || record.waited_ms() < BUSY_MS {
        return None;
    }
    for verdict in named.iter_mut().filter(|v| v.is_by_time()) {
        *verdict = verdict.clone().less_sure();
    }
    Some(format!(
        "this machine was busy: our own calls waited {:.0} % of their time for a processor, so that times are less certain",
        100.0 * share
    ))
}

/// The call that all is shown of: that without the change where an experiment decided; else the one
/// in the middle of those that the first cause costs time, or of those that are explained; else the
/// first that was made.
fn representative(record: &Record, first: Option<&Verdict>, arms: Option<&Arms>) -> Call {
    if let Some(arms) = arms {
        return arms.without.clone();
    }
    let mut calls = match first.map(|verdict| verdict.cause().part) {
        Some(CallPart::New) => times::plain(record, true),
        _ => record.group(),
    };
    if calls.is_empty() {
        calls = record.group();
    }
    let cost = first.map_or(0.0, Verdict::cost_ms);
    let met = |call: &&Call| ms(call.total) >= cost;
    if calls.iter().any(met) {
        calls.retain(met);
    }
    calls.sort_by_key(|c| c.total);
    calls.get(calls.len() / 2).copied().or_else(|| record.observed().next()).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
