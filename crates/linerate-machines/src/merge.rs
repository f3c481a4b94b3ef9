//! Adds up what agents measured. The order of messages does not matter, and a second copy of a
//! message changes nothing. Memory is bounded by the number of agents, not by the run's length.

mod series;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use linerate_load::Plan;
use linerate_load::outcome::{Interval, MachineNow, Outcome, Requests, Window};
use linerate_load::request_log::LogEntry;

use self::series::RunSeries;
use crate::document::{MOST_AGENTS, RunDocument, RunShare, SCHEMA, Takeover};
use crate::figures::IntervalFigures;
use crate::message::{
    AgentMessage, Digests, LOGS_PER_SECOND, LoggedRequest, MessageDigest, MessageWord, digest_of,
};

/// Most seconds of a run whose series is kept. Reason: a week; a hostile agent could name any.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

/// Most messages of one agent. Reason: one a second, those of the log, and the last; see
/// [`MOST_SECONDS`].
const MOST_MESSAGES: u64 = MOST_SECONDS * (1 + LOGS_PER_SECOND) + 2;

/// Sums the messages of one run.
#[derive(Debug)]
pub struct Merger {
    document: RunDocument,
    parts: Vec<AgentSum>,
    /// Where the part of an agent, its incarnation and its number is.
    places: HashMap<(String, String, u32), usize>,
    /// When the shares that were taken over begin.
    joined: BTreeMap<RunShare, Duration>,
    /// All intervals of all agents.
    sum: IntervalFigures,
    /// The outcomes of the agents that have ended.
    ended: Outcome,
    /// Why the first agent that could not reach the server failed.
    unreachable: Option<String>,
    series: RunSeries,
    /// Parts whose messages are all here.
    complete: usize,
    /// Messages that are not of this run, or that contradict what an agent said before.
    refused: u64,
    /// Of these, messages that cannot be read at all.
    unread: u64,
    /// Requests of the log that were not taken yet.
    logged: Vec<LogEntry>,
    /// Requests that agents left out of the log.
    log_left_out: u64,
}

/// One agent's sum.
#[derive(Debug, Default)]
struct AgentSum {
    digests: Digests,
    last_second: Option<u64>,
    /// Of its intervals.
    requests: Requests,
    samples: u64,
    /// All its intervals, until it has ended: its outcome then takes their place.
    sum: IntervalFigures,
    in_flight: u64,
    open: u64,
    latest: Option<u64>,
    /// Responses in the latest interval.
    answered: u64,
    last: Option<Last>,
}

/// What an agent said at its end.
#[derive(Debug)]
struct Last {
    seq: u64,
    digest: String,
    samples: u64,
    left: bool,
    figures: AgentFigures,
}

/// How an agent's part of the run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All its messages are here, and they are those that it sent.
    Complete,
    /// It has not ended yet, or its last message is not here. The last second that it reported.
    Open {
        /// From the start of measuring; `None`: it has not reported at all.
        last_second: Option<u64>,
    },
    /// It was told to end before the run did; all its messages are here. The last second that it
    /// reported.
    Left {
        /// From the start of measuring.
        last_second: Option<u64>,
    },
    /// It has ended, and messages are missing: the numbers of those.
    Missing(Vec<u64>),
    /// Its messages are not those that it says it sent.
    Altered,
}

/// One agent's share of the result.
#[derive(Clone, Debug)]
pub struct AgentResult {
    /// The agent's part of the plan.
    pub share: RunShare,
    /// Whether its figures are whole.
    pub standing: Standing,
    /// What it measured; of an agent that did not end, the sum of its intervals.
    pub figures: AgentFigures,
}

/// The figures that reports show of one agent. Its histograms are in the outcome of all agents.
#[derive(Clone, Debug, Default)]
pub struct AgentFigures {
    /// Requests.
    pub requests: Requests,
    /// How long it measured.
    pub duration: Duration,
    /// Responses per second while it sent.
    pub rate_rps: f64,
    /// Median latency, nanoseconds, with requests without a good response behind all others.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Whether a request without a good response stands at the median: it is then a bound.
    pub p50_at_least: bool,
    /// The same of the 99th percentile.
    pub p99_at_least: bool,
    /// Errors as checks count them: failed, unknown, unsent and bad requests, and surplus responses.
    pub errors: u64,
    /// 99th percentile of how late requests left, nanoseconds.
    pub lateness_p99_ns: u64,
    /// When it was to begin, on its own clock; `None`: it has not said so.
    pub started_at: Option<SystemTime>,
    /// How late its last thread began.
    pub start_late: Duration,
    /// The longest that one of its threads stood still.
    pub stood_still: Duration,
    /// Whether it, not the server, was the limit.
    pub saturated: bool,
}

impl AgentFigures {
    fn of(outcome: &Outcome) -> AgentFigures {
        let latency = outcome.latency.main();
        let (p50, p99) = (latency.percentile(50.0), latency.percentile(99.0));
        AgentFigures {
            requests: outcome.requests,
            duration: outcome.duration,
            rate_rps: outcome.rate_rps(),
            p50_ns: p50.ns,
            p99_ns: p99.ns,
            p50_at_least: p50.at_least,
            p99_at_least: p99.at_least,
            errors: outcome.errors(),
            lateness_p99_ns: outcome.client.lateness.percentile_ns(99.0),
            started_at: outcome.started_at,
            start_late: outcome.client.start_late,
            stood_still: outcome.client.stood_still,
            saturated: outcome.client.saturated,
        }
    }
}

impl Merger {
    /// Nothing yet.
    pub fn new(document: RunDocument) -> Merger {
        let parts = document.shares.iter().map(|_| AgentSum::default()).collect();
        let places = document.shares.iter().enumerate().map(|(i, share)| (place(share), i)).collect();
        Merger {
            document,
            parts,
            places,
            joined: BTreeMap::new(),
            sum: IntervalFigures::default(),
            ended: Outcome::default(),
            unreachable: None,
            series: RunSeries::new(),
            complete: 0,
            refused: 0,
            unread: 0,
            logged: Vec::new(),
            log_left_out: 0,
        }
    }

    /// Adds the share that an agent takes over; whether it was new.
    pub fn add_takeover(&mut self, takeover: &Takeover) -> bool {
        let is_new = takeover.run == self.document.run
            && !self.places.contains_key(&place(&takeover.share))
            && self.document.shares.len() < 2 * MOST_AGENTS;
        if is_new {
            self.joined.insert(takeover.share.clone(), Duration::from_nanos(takeover.at_ns));
            self.places.insert(place(&takeover.share), self.parts.len());
            self.document.shares.push(takeover.share.clone());
            self.parts.push(AgentSum::default());
        }
        is_new
    }

    /// Shares that have not ended and are behind by more than `most`, at this moment of the run.
    pub fn lagging(&self, elapsed: Duration, most: Duration) -> Vec<RunShare> {
        let warm_up = self.document.plan.warm_up;
        let is_behind = |(share, part): &(&RunShare, &AgentSum)| {
            let joined = self.joined.get(*share).copied().unwrap_or_default();
            let reported = warm_up + Duration::from_secs(part.seconds());
            part.last.is_none() && elapsed > reported.max(joined) + most
        };
        let parts = self.document.shares.iter().zip(&self.parts);
        parts.filter(is_behind).map(|(share, _)| share.clone()).collect()
    }

    /// The run's name.
    pub fn run(&self) -> &str {
        &self.document.run
    }

    /// All shares of the run.
    pub fn shares(&self) -> &[RunShare] {
        &self.document.shares
    }

    /// The plan that the agents carry out.
    pub fn plan(&self) -> &Plan {
        &self.document.plan
    }

    /// What a lost agent's share has reported: the seconds that are accounted for, and the requests
    /// that it sent.
    pub fn reported(&self, share: &RunShare) -> (u64, u64) {
        let part = self.places.get(&place(share)).map(|i| &self.parts[*i]);
        part.map_or((0, 0), |part| (part.seconds(), part.requests.sent))
    }

    /// Adds a message as it came; whether it was new and of this run. `sender`: the agent that may
    /// write where it was written; what it says of another agent does not count.
    pub fn add_from(&mut self, sender: &str, bytes: &[u8]) -> bool {
        let added = match serde_json::from_slice::<AgentMessage>(bytes) {
            Ok(message) => message.agent == sender && self.add_message(message, digest_of(bytes)),
            Err(_) => {
                self.unread += 1;
                false
            }
        };
        self.refused += u64::from(!added);
        added
    }

    fn add_message(&mut self, message: AgentMessage, digest: MessageDigest) -> bool {
        let AgentMessage { schema, run, agent, incarnation, part, seq, word } = message;
        let of_this_run = schema == SCHEMA && run == self.document.run;
        let sender = (agent, incarnation, part);
        let (true, Some(i)) = (of_this_run, self.places.get(&sender)) else {
            return false;
        };
        let part = &mut self.parts[*i];
        let behind_last = part.last.as_ref().is_some_and(|last| seq >= last.seq);
        if part.digests.contains(seq) || behind_last || seq >= MOST_MESSAGES {
            return false;
        }
        match word {
            MessageWord::Interval { second, in_flight, open, figures } => {
                if second > MOST_SECONDS {
                    return false;
                }
                part.digests.insert(seq, &digest);
                part.add(second, &figures);
                self.sum.merge(&figures);
                self.series.add(second, &figures);
                if part.last.is_none() && part.latest.is_none_or(|latest| latest < seq) {
                    (part.latest, part.in_flight, part.open) = (Some(seq), in_flight, open);
                    part.answered = figures.requests.answered;
                }
            }
            MessageWord::Requests { entries, left_out } => {
                part.digests.insert(seq, &digest);
                let entries: Vec<LogEntry> = entries.iter().filter_map(LoggedRequest::entry).collect();
                self.logged.extend(entries);
                self.log_left_out += left_out;
            }
            MessageWord::Final { digest, left, mut outcome } => {
                // An agent that contradicts itself is shown as altered, not believed.
                if part.digests.highest().is_some_and(|highest| highest > seq) {
                    return false;
                }
                let samples = outcome.latency.main().count();
                part.last = Some(Last { seq, digest, samples, left, figures: AgentFigures::of(&outcome) });
                part.sum = IntervalFigures::default();
                (part.in_flight, part.open) = (0, 0);
                outcome.client.stood_still_agent = Some(sender.0);
                self.ended.merge(&outcome);
                self.unreachable = self.unreachable.take().or(outcome.unreachable);
            }
        }
        self.complete += usize::from(matches!(part.standing(), Standing::Complete | Standing::Left { .. }));
        true
    }

    /// Whether every agent has ended and all its messages are here.
    pub fn is_complete(&self) -> bool {
        self.complete == self.parts.len()
    }

    /// Agents that have not sent their last message.
    pub fn unfinished(&self) -> impl Iterator<Item = &RunShare> {
        self.document.shares.iter().zip(&self.parts).filter(|(_, part)| part.last.is_none()).map(|(s, _)| s)
    }

    /// Messages that were not added: copies, and those of agents outside this run.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The requests of the log that came since it was called last.
    pub fn take_logged(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.logged)
    }

    /// Requests that agents left out of the log.
    pub fn log_left_out(&self) -> u64 {
        self.log_left_out
    }

    /// Messages on the run's subjects that cannot be read.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// The run's figures so far, with requests in flight and open connections.
    pub fn so_far(&self) -> (IntervalFigures, u64, u64) {
        let of = |what: fn(&AgentSum) -> u64| self.parts.iter().map(what).sum();
        (self.sum.clone(), of(|p| p.in_flight), of(|p| p.open))
    }

    /// How each agent is doing, with the shares that it took over.
    pub fn now(&self) -> Vec<MachineNow> {
        let mut all: Vec<MachineNow> = Vec::new();
        for (share, part) in self.document.shares.iter().zip(&self.parts) {
            let ended = part.last.is_some();
            let answered = if ended { 0 } else { part.answered };
            match all.iter_mut().find(|agent| agent.name == share.agent) {
                Some(agent) => {
                    agent.answered += answered;
                    agent.requests.merge(&part.requests);
                    agent.ended &= ended;
                }
                None => all.push(MachineNow {
                    name: share.agent.clone(),
                    answered,
                    requests: part.requests,
                    ended,
                }),
            }
        }
        all
    }

    /// Each agent's share of the result.
    pub fn agents(&self) -> Vec<AgentResult> {
        let result = |(share, part): (&RunShare, &AgentSum)| AgentResult {
            share: share.clone(),
            standing: part.standing(),
            figures: match &part.last {
                Some(last) => last.figures.clone(),
                None => AgentFigures::of(&part.outcome(&self.document.plan)),
            },
        };
        self.document.shares.iter().zip(&self.parts).map(result).collect()
    }

    /// What all agents measured together.
    pub fn outcome(&self) -> Outcome {
        let mut whole = self.ended.clone();
        for part in self.parts.iter().filter(|part| part.last.is_none()) {
            whole.merge(&part.outcome(&self.document.plan));
        }
        let reached_nobody = whole.connections.opened == 0;
        whole.unreachable = self.unreachable.clone().filter(|_| reached_nobody);
        whole.series = self.series();
        whole.tidy_samples();
        whole
    }

    /// The run second by second; of a long one, by longer intervals. Seconds without a message are
    /// gaps.
    pub fn series(&self) -> Vec<Interval> {
        self.recent(usize::MAX)
    }

    /// The last intervals of [`series`](Merger::series), at most `most`.
    pub fn recent(&self, most: usize) -> Vec<Interval> {
        self.series.recent(most)
    }
}

fn place(share: &RunShare) -> (String, String, u32) {
    (share.agent.clone(), share.incarnation.clone(), share.part)
}

impl AgentSum {
    fn add(&mut self, second: u64, figures: &IntervalFigures) {
        self.last_second = self.last_second.max(Some(second));
        self.requests.merge(&figures.requests);
        self.samples += figures.ranked().count();
        if self.last.is_none() {
            self.sum.merge(figures);
        }
    }

    /// Seconds that it has reported.
    fn seconds(&self) -> u64 {
        self.last_second.map_or(0, |second| second + 1)
    }

    fn standing(&self) -> Standing {
        let Some(last) = &self.last else {
            return Standing::Open { last_second: self.last_second };
        };
        if !self.digests.are_all_below(last.seq) {
            return Standing::Missing(self.digests.missing_below(last.seq));
        }
        let same = self.digests.to_hex() == last.digest
            && last.figures.requests == self.requests
            && last.samples == self.samples;
        match (same, last.left) {
            (false, _) => Standing::Altered,
            (true, true) => Standing::Left { last_second: self.last_second },
            (true, false) => Standing::Complete,
        }
    }

    /// The outcome of an agent that has not ended.
    fn outcome(&self, plan: &Plan) -> Outcome {
        let mut outcome = self.sum.clone().into_outcome(plan);
        outcome.duration = Duration::from_secs(self.seconds());
        let (answered, bytes) = (outcome.requests.answered, outcome.bytes);
        outcome.window = Window { answered, bytes, time: outcome.duration };
        outcome.arrived = answered;
        outcome
    }
}
