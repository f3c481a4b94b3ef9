//! What an agent measures goes into its spool and onto the bus. Measuring never waits for either.

#[cfg(test)]
mod seeds;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_load::request_log;
use linerate_load::{Join, Outcome, Plan, RunPlace};
use linerate_net::{Time, machine};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{AgentEvent, AgentState, EARLY, SPOOLS, engine};
use crate::bus::{BusError, BusOptions, Changes, NatsBus, is_order, is_refusal, keys};
use crate::document::{RunDocument, RunShare, SCHEMA, Takeover};
use crate::figures::IntervalFigures;
use crate::message::{AgentMessage, Digests, LOGGED, LOGS_PER_SECOND, LoggedRequest, MessageWord, digest_of};
use crate::spool::{self, Spool, Spooled, SpooledRun};

/// Messages that wait in memory for the broker. Reason: three hours at one a second; older ones are
/// in the spool alone.
const QUEUE: usize = 10_000;

/// Bytes of them. Reason: those with each request are long.
const QUEUE_BYTES: usize = 256 << 20;

/// Share of the most that an agent sends, from which on it held a closed loop back. Reason: timers
/// cost some of it.
const HELD: f64 = 0.9;

/// How long the agent tries to publish its last messages after the run.
const LAST_WORDS: Duration = Duration::from_secs(60);

impl AgentState {
    /// Runs the share and publishes an interval each second.
    pub(super) async fn measure(
        &self,
        document: &RunDocument,
        plan: &Plan,
        go: u64,
        (share, takeover): (RunShare, Option<Takeover>),
        place: RunPlace,
        superseded: watch::Receiver<bool>,
    ) {
        let run = &document.run;
        let plan = Plan { threads: Some(share.threads), ..plan.clone() };
        let (bus, subject) = (self.bus.clone(), keys::subject(run, &self.options.name));
        let part = if share.part == 0 { String::new() } else { format!("-{}", share.part) };
        let file = self.options.spool.join(format!("linerate-{run}-{}{part}.jsonl", self.options.name));
        let spooled = SpooledRun { document: document.clone(), go, takeover };
        let mut log = self.log(&spooled, &share, &file);
        let queue = Arc::clone(&log.queue);
        let publishing = tokio::spawn(publish(bus, subject, Arc::clone(&queue)));
        let start = place.start.unwrap_or_else(machine::monotonic_now);
        let begins = place.join.map_or(Duration::ZERO, |join| join.at);
        let until = Duration::from_nanos((start + begins).nanos_since(machine::monotonic_now()));
        sleep(until.saturating_sub(EARLY)).await;
        let place = in_time(place, start);
        let joins = place.join.map_or(Duration::ZERO, |join| join.at);
        log.second = joins.saturating_sub(plan.warm_up).as_secs();
        let measure_from = start + plan.warm_up;
        let (to, entries) = document.log_requests.then(request_log::channel).unzip();
        let mut outcome = match self.engine.start(plan, place, to) {
            Err(error) => {
                let warning = format!("agent {} could not begin its part: {error}", self.options.name);
                Outcome { broken: Some(error), warnings: vec![warning], ..Outcome::default() }
            }
            Ok(running) => self.follow((running, entries), run, measure_from, &mut log, superseded).await,
        };
        if share.part == 0 && joins > Duration::ZERO {
            let missed = outcome.requests.unsent;
            outcome.warnings.push(format!(
                "agent {} was late and joined at {} s; {missed} requests that were due before are unsent",
                self.options.name,
                joins.as_secs()
            ));
        }
        if let Some(most) = self.options.max_rate.filter(|_| place.gap.is_some())
            && outcome.rate_rps() >= HELD * most
        {
            outcome.client.saturated = true;
            let reason = format!("agent {} sends at most {most} requests/s (--max-rate)", self.options.name);
            outcome.client.reason = Some(reason);
        }
        log.finish(outcome);
        self.say_trouble(&mut log);
        queue.close();
        let why = match timeout(LAST_WORDS, publishing).await {
            Ok(Ok(0)) => {
                self.keep_in_mind(run, file);
                (self.say)(AgentEvent::Ended { run: run.clone() });
                return;
            }
            Ok(Ok(1)) => "one message is longer than NATS takes".to_owned(),
            Ok(Ok(n)) => format!("{n} messages are longer than NATS takes"),
            Ok(Err(_)) => "publishing them failed".to_owned(),
            Err(_) => format!("NATS did not take them within {} s", LAST_WORDS.as_secs()),
        };
        (self.say)(AgentEvent::Unpublished { run: run.clone(), spool: file, why });
    }

    /// All that is in a spool is with the broker: it can go once the run's result is complete.
    fn keep_in_mind(&self, run: &str, file: PathBuf) {
        let mut spools = self.spools();
        if spools.len() >= SPOOLS {
            spools.pop_first();
        }
        spools.entry(run.to_owned()).or_default().push(file);
    }

    /// A log with its spool, whose first line is the run.
    fn log(&self, spooled: &SpooledRun, share: &RunShare, file: &Path) -> MessageLog {
        let spool = Spool::create(file).and_then(|mut spool| {
            spool.append(&serde_json::to_vec(spooled)?)?;
            Ok(spool)
        });
        let (spool, trouble) = match spool {
            Ok(spool) => (Some(spool), None),
            Err(error) => (None, Some(error)),
        };
        let mut log = MessageLog {
            run: spooled.document.run.clone(),
            agent: self.options.name.clone(),
            incarnation: self.incarnation.clone(),
            part: share.part,
            file: file.to_owned(),
            spool,
            trouble,
            queue: Arc::default(),
            digests: Digests::default(),
            before: IntervalFigures::default(),
            second: 0,
            left: false,
            requests: UnsentEntries::default(),
        };
        self.say_trouble(&mut log);
        log
    }

    fn say_trouble(&self, log: &mut MessageLog) {
        if let Some(error) = log.trouble.take() {
            (self.say)(AgentEvent::NoSpool { why: format!("{}: {error}", log.file.display()) });
        }
    }

    /// Logs each second until the run ends, is to stop, or the share is another's.
    async fn follow(
        &self,
        (running, entries): (Box<dyn engine::RunningShare>, Option<request_log::Receiver>),
        run: &str,
        measure_from: Time,
        log: &mut MessageLog,
        mut superseded: watch::Receiver<bool>,
    ) -> Outcome {
        let mut stop = Changes::whenever(&self.bus.runs, &[keys::stop(run)]);
        let mut given_up = false;
        let name = &self.options.name;
        while !running.finished() {
            if superseded.has_changed().is_ok_and(|changed| changed) {
                superseded.mark_unchanged();
                running.stop();
                given_up = true;
            }
            if *self.leaving.borrow() && !log.left {
                running.stop();
                log.left = true;
            }
            next_second(&*running, measure_from, &mut stop, log).await;
            if let Some(entries) = &entries {
                log.take_requests(entries, false);
            }
            self.say_trouble(log);
        }
        let joined = tokio::task::spawn_blocking(move || running.join()).await;
        let mut outcome = joined.unwrap_or_else(|error| Outcome {
            broken: Some(format!("agent {name} cannot say what it measured: {error}")),
            ..Outcome::default()
        });
        if let Some(entries) = &entries {
            log.take_requests(entries, true);
        }
        if given_up {
            outcome.interrupted = false;
            let said = format!("agent {name} returned after its share was given to another; it ended");
            outcome.warnings.push(said);
        } else if log.left {
            outcome.interrupted = false;
            let said =
                format!("agent {name} was told to leave at {} s, and sent nothing from then on", log.second);
            outcome.warnings.push(said);
        }
        outcome
    }
}

/// The same place, unless its time is over: an agent that is late joins at the next whole second.
fn in_time(place: RunPlace, start: Time) -> RunPlace {
    let now = machine::monotonic_now();
    let join = place.join.unwrap_or(Join { at: Duration::ZERO, accounted: Duration::ZERO, sent: 0 });
    if start + join.at > now {
        return place;
    }
    let next = Duration::from_nanos(now.nanos_since(start)) + EARLY;
    RunPlace { join: Some(Join { at: Duration::from_secs(next.as_secs() + 1), ..join }), ..place }
}

/// Waits for the end of a second, of the run, or for the order to stop.
async fn next_second(
    running: &dyn engine::RunningShare,
    measure_from: Time,
    stop: &mut Changes,
    log: &mut MessageLog,
) {
    const SLICE: Duration = Duration::from_millis(20);
    let (now, end) = (machine::monotonic_now(), measure_from + Duration::from_secs(log.second + 1));
    if now >= end {
        let snapshot = running.snapshot();
        log.interval(
            log.second,
            (snapshot.in_flight, snapshot.open),
            IntervalFigures::of_snapshot(&snapshot),
        );
        log.second += 1;
        return;
    }
    let left = Duration::from_nanos(end.nanos_since(now)).min(SLICE);
    if stop.next_until(Instant::now() + left).await.is_some_and(|entry| is_order(&entry)) {
        running.stop();
        sleep(left).await;
    }
}

/// Numbers the messages, and keeps each in the spool and for the broker.
struct MessageLog {
    run: String,
    agent: String,
    incarnation: String,
    part: u32,
    file: PathBuf,
    spool: Option<Spool>,
    /// Why the spool ended.
    trouble: Option<std::io::Error>,
    queue: Arc<BrokerQueue>,
    digests: Digests,
    before: IntervalFigures,
    /// The second that is measured now.
    second: u64,
    /// The agent ends before the run does.
    left: bool,
    requests: UnsentEntries,
}

/// Requests of the log that are not in a message yet.
#[derive(Debug, Default)]
struct UnsentEntries {
    held: Vec<LoggedRequest>,
    /// In which second how many messages were sent.
    sent: (u64, u64),
    left_out: u64,
    /// What the sending threads left out, as far as it was told.
    told: u64,
}

impl UnsentEntries {
    /// Whether one more message may be sent in this second.
    fn may_send(&mut self, second: u64) -> bool {
        if self.sent.0 != second {
            self.sent = (second, 0);
        }
        self.sent.1 += 1;
        self.sent.1 <= LOGS_PER_SECOND
    }
}

impl MessageLog {
    fn interval(&mut self, second: u64, (in_flight, open): (u64, u64), now: IntervalFigures) {
        let figures = Box::new(now.since(&self.before));
        // What could not be written down is in the next interval.
        if self.put(MessageWord::Interval { second, in_flight, open, figures }).is_ok() {
            self.before = now;
        }
    }

    /// Takes the requests that the sending threads handed over; what is too much for the bus is left
    /// out and counted. `is_last`: all that is held goes.
    fn take_requests(&mut self, entries: &request_log::Receiver, is_last: bool) {
        while let Some(chunk) = entries.try_next() {
            self.requests.held.extend(chunk.iter().map(LoggedRequest::of));
        }
        let left_out = entries.left_out();
        self.requests.left_out += left_out - std::mem::replace(&mut self.requests.told, left_out);
        while self.requests.held.len() >= LOGGED || (is_last && !self.requests.held.is_empty()) {
            let rest = self.requests.held.split_off(self.requests.held.len().min(LOGGED));
            let some = std::mem::replace(&mut self.requests.held, rest);
            // The last ones wait for no second to come.
            let second = if is_last { u64::MAX } else { self.second };
            if !self.requests.may_send(second) {
                self.requests.left_out += some.iter().map(LoggedRequest::requests).sum::<u64>();
                continue;
            }
            let left_out = std::mem::take(&mut self.requests.left_out);
            if self.put(MessageWord::Requests { entries: some, left_out }).is_err() {
                self.requests.left_out += left_out;
            }
        }
        if is_last && self.requests.left_out > 0 {
            let left_out = std::mem::take(&mut self.requests.left_out);
            drop(self.put(MessageWord::Requests { entries: Vec::new(), left_out }));
        }
    }

    /// The rest since the last interval, then the last word.
    fn finish(&mut self, mut outcome: Outcome) {
        self.interval(self.second, (0, 0), IntervalFigures::of_outcome(&outcome));
        outcome.series.clear();
        outcome.series_fine.clear();
        outcome.saved.clear();
        let (digest, left) = (self.digests.to_hex(), self.left);
        let requests = outcome.requests;
        let whole = MessageWord::Final { digest: digest.clone(), left, outcome: Box::new(outcome) };
        let Err(error) = self.put(whole) else { return };
        // Without a last message the coordinator would not know that this agent has ended.
        let broken = format!("agent {} cannot write down what it measured: {error}", self.agent);
        let outcome = Outcome { requests, broken: Some(broken), ..Outcome::default() };
        // It has numbers and text alone.
        drop(self.put(MessageWord::Final { digest, left, outcome: Box::new(outcome) }));
    }

    fn put(&mut self, word: MessageWord) -> Result<(), serde_json::Error> {
        let message = AgentMessage {
            schema: SCHEMA.to_owned(),
            run: self.run.clone(),
            agent: self.agent.clone(),
            incarnation: self.incarnation.clone(),
            part: self.part,
            seq: self.digests.count(),
            word,
        };
        let bytes = message.to_bytes()?;
        self.digests.insert(message.seq, &digest_of(&bytes));
        if let Some(spool) = &mut self.spool
            && let Err(error) = spool.append(&bytes)
        {
            // A full disk: what follows is in memory alone.
            self.spool = None;
            self.trouble = Some(error);
        }
        self.queue.push(message.id(), bytes);
        Ok(())
    }
}

/// Messages in flight to the broker. Measuring never waits for it.
#[derive(Default)]
struct BrokerQueue {
    state: Mutex<(VecDeque<(String, bytes::Bytes)>, bool)>,
    changed: Notify,
}

impl BrokerQueue {
    fn push(&self, id: String, bytes: Vec<u8>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.push_back((id, bytes.into()));
        let mut waiting: usize = state.0.iter().map(|(_, bytes)| bytes.len()).sum();
        while state.0.len() > QUEUE || (waiting > QUEUE_BYTES && state.0.len() > 1) {
            waiting -= state.0.pop_front().map_or(0, |(_, bytes)| bytes.len());
        }
        self.changed.notify_one();
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_one();
    }

    /// The oldest message, and whether no more will come.
    fn first(&self) -> (Option<(String, bytes::Bytes)>, bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.0.front().cloned(), state.1)
    }

    fn done(&self, id: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.front().is_some_and(|(first, _)| first == id) {
            state.0.pop_front();
        }
    }
}

/// Publishes until the queue is closed and empty; each message until the broker has stored it.
/// Messages that the broker refuses for good are left out; how many.
async fn publish(bus: NatsBus, subject: String, queue: Arc<BrokerQueue>) -> u64 {
    const AGAIN: Duration = Duration::from_millis(500);
    let mut refused = 0;
    loop {
        match queue.first() {
            (None, true) => return refused,
            (None, false) => queue.changed.notified().await,
            (Some((id, bytes)), _) => {
                let too_long = bytes.len() > bus.client.server_info().max_payload;
                refused += u64::from(too_long);
                if too_long || bus.publish(subject.clone(), &id, bytes).await.is_ok() {
                    queue.done(&id);
                } else {
                    sleep(AGAIN).await;
                }
            }
        }
    }
}

/// What became of a spool's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Messages that the broker has now.
    pub published: u64,
    /// Lines that a crash or a full disk cut short.
    pub torn: u64,
    /// Messages that are longer than the broker takes.
    pub too_long: u64,
}

/// Publishes what a spool holds. The broker and the coordinator drop what they have already.
pub async fn replay(bus: &BusOptions, file: &std::path::Path) -> Result<Replayed, BusError> {
    let spooled = spool::read(file).map_err(|e| BusError::new(format!("{}: {e}", file.display())))?;
    if spooled.messages.is_empty() {
        return Err(BusError::new(format!("{} holds no message of a run", file.display()))
            .hint("name a spool file that an agent wrote: linerate-RUN-AGENT.jsonl"));
    }
    let bus = NatsBus::open(bus).await?;
    if let Some(run) = spooled.run.as_ref().filter(|run| keys::is_name(&run.document.run)) {
        let written = bus.complaints.or(write_run(&bus, run)).await;
        written.map_err(|error| {
            other_user(error, "replay the spool first as a user who starts loads, and then as the agent")
        })?;
    }
    let published = bus.complaints.or(publish_spool(&bus, spooled)).await;
    published.map_err(|error| {
        other_user(error, "the broker knows the run: replay the spool as the agent, which writes the results")
    })
}

/// A user who lacks a permission is told which one has it. Reason: those who start loads cannot write
/// results, and agents cannot start loads.
fn other_user(error: BusError, hint: &str) -> BusError {
    if is_refusal(&error.what) { error.hint(hint) } else { error }
}

/// Another broker than that of the run knows nothing of it.
async fn write_run(bus: &NatsBus, run: &SpooledRun) -> Result<(), BusError> {
    let name = &run.document.run;
    let document = serde_json::to_vec(&run.document).map_err(BusError::new)?;
    bus.create_if_missing(&keys::document(name), document).await?;
    bus.create_if_missing(&keys::go(name), run.go.to_string().into_bytes()).await?;
    if let Some(takeover) = &run.takeover {
        let key = keys::takeover(name, &takeover.share.part.to_string());
        let takeover = serde_json::to_vec(takeover).map_err(BusError::new)?;
        bus.create_if_missing(&key, takeover).await?;
    }
    Ok(())
}

async fn publish_spool(bus: &NatsBus, spooled: Spooled) -> Result<Replayed, BusError> {
    let mut replayed = Replayed { torn: spooled.torn, ..Replayed::default() };
    for (message, bytes) in spooled.messages {
        if !keys::is_name(&message.run) || !keys::is_name(&message.agent) {
            replayed.torn += 1;
        } else if bytes.len() > bus.client.server_info().max_payload {
            replayed.too_long += 1;
        } else {
            bus.publish(keys::subject(&message.run, &message.agent), &message.id(), bytes.into()).await?;
            replayed.published += 1;
        }
    }
    Ok(replayed)
}
