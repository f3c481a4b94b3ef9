//! Adds up what agents measured. The order of messages does not matter, and a second copy of a
//! message changes nothing.

use std::collections::BTreeMap;

use linerate_load::outcome::{Interval, Outcome};

use crate::document::{RunDocument, SCHEMA, Share};
use crate::figures::Figures;
use crate::message::{Message, MessageDigest, Word, digest_of, digest_of_all};

/// Most seconds of a run whose series is kept. Reason: a week; a hostile agent could name any.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

/// Most messages of one agent. Reason: one a second and the last; see [`MOST_SECONDS`].
const MOST_MESSAGES: u64 = MOST_SECONDS + 2;

/// Sums the messages of one run.
#[derive(Debug)]
pub struct Merger {
    document: RunDocument,
    parts: Vec<Part>,
    /// The run second by second, all agents together.
    seconds: BTreeMap<u64, Figures>,
    /// Messages that are not of this run, or that contradict what an agent said before.
    refused: u64,
}

/// One agent's sum.
#[derive(Debug, Default)]
struct Part {
    digests: BTreeMap<u64, MessageDigest>,
    seconds: BTreeMap<u64, u64>,
    sum: Figures,
    in_flight: u64,
    open: u64,
    latest: Option<u64>,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    seq: u64,
    digest: String,
    outcome: Box<Outcome>,
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
    /// It has ended, and messages are missing: the numbers of those.
    Missing(Vec<u64>),
    /// Its messages are not those that it says it sent.
    Altered,
}

/// One agent's share of the result.
#[derive(Clone, Debug)]
pub struct AgentResult {
    /// The agent's part of the plan.
    pub share: Share,
    /// Whether its figures are whole.
    pub standing: Standing,
    /// What it measured; of an agent that did not end, the sum of its intervals.
    pub outcome: Outcome,
}

impl Merger {
    /// Nothing yet.
    pub fn new(document: RunDocument) -> Merger {
        let parts = document.shares.iter().map(|_| Part::default()).collect();
        Merger { document, parts, seconds: BTreeMap::new(), refused: 0 }
    }

    /// Adds a message as it came; whether it was new and of this run.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        let message = serde_json::from_slice::<Message>(bytes).ok();
        let added = message.is_some_and(|message| self.add_message(message, digest_of(bytes)));
        self.refused += u64::from(!added);
        added
    }

    fn add_message(&mut self, message: Message, digest: MessageDigest) -> bool {
        let of_this_run = message.schema == SCHEMA && message.run == self.document.run;
        let mine = |s: &Share| s.agent == message.agent && s.incarnation == message.incarnation;
        let (true, Some(i)) = (of_this_run, self.document.shares.iter().position(mine)) else { return false };
        let part = &mut self.parts[i];
        let behind_last = part.last.as_ref().is_some_and(|last| message.seq >= last.seq);
        if part.digests.contains_key(&message.seq) || behind_last || message.seq >= MOST_MESSAGES {
            return false;
        }
        match message.word {
            Word::Interval { second, in_flight, open, figures } => {
                if second > MOST_SECONDS {
                    return false;
                }
                part.digests.insert(message.seq, digest);
                part.seconds.insert(message.seq, second);
                part.sum.merge(&figures);
                self.seconds.entry(second).or_default().merge(&figures);
                if part.latest.is_none_or(|latest| latest < message.seq) {
                    (part.latest, part.in_flight, part.open) = (Some(message.seq), in_flight, open);
                }
            }
            Word::Final { digest, outcome } => {
                // An agent that contradicts itself is shown as altered, not believed.
                if part.digests.last_key_value().is_some_and(|(seq, _)| *seq > message.seq) {
                    return false;
                }
                part.last = Some(Last { seq: message.seq, digest, outcome });
                (part.in_flight, part.open) = (0, 0);
            }
        }
        true
    }

    /// Whether every agent has ended and all its messages are here.
    pub fn is_complete(&self) -> bool {
        self.parts.iter().all(|part| part.standing() == Standing::Complete)
    }

    /// Agents that have not sent their last message.
    pub fn unfinished(&self) -> impl Iterator<Item = &Share> {
        self.document.shares.iter().zip(&self.parts).filter(|(_, part)| part.last.is_none()).map(|(s, _)| s)
    }

    /// Messages that were not added: copies, and those of nobody in this run.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The run's figures so far, with requests in flight and open connections.
    pub fn so_far(&self) -> (Figures, u64, u64) {
        let mut sum = Figures::default();
        self.parts.iter().for_each(|part| sum.merge(&part.sum));
        let of = |what: fn(&Part) -> u64| self.parts.iter().map(what).sum();
        (sum, of(|p| p.in_flight), of(|p| p.open))
    }

    /// Each agent's share of the result.
    pub fn agents(&self) -> Vec<AgentResult> {
        let result = |(share, part): (&Share, &Part)| AgentResult {
            share: share.clone(),
            standing: part.standing(),
            outcome: part.outcome(&self.document),
        };
        self.document.shares.iter().zip(&self.parts).map(result).collect()
    }

    /// What all agents measured together.
    pub fn outcome(&self) -> Outcome {
        let mut whole = Outcome::default();
        let mut unreachable = None;
        for part in &self.parts {
            let outcome = part.outcome(&self.document);
            whole.merge(&outcome);
            unreachable = unreachable.or(outcome.unreachable);
        }
        whole.unreachable = unreachable.filter(|_| whole.connections.opened == 0);
        whole.series = self.series();
        whole.tidy_samples();
        whole
    }

    /// The run second by second. Seconds without a message are gaps.
    pub fn series(&self) -> Vec<Interval> {
        self.seconds.iter().map(interval).collect()
    }

    /// The last seconds of [`series`](Merger::series), at most so many.
    pub fn recent(&self, most: usize) -> Vec<Interval> {
        let mut recent: Vec<Interval> = self.seconds.iter().rev().take(most).map(interval).collect();
        recent.reverse();
        recent
    }
}

/// One second of the run.
fn interval((second, figures): (&u64, &Figures)) -> Interval {
    Interval {
        t_s: (*second + 1) as f64,
        rate_rps: figures.requests.answered as f64,
        p50_us: figures.latency.percentile_ns(50.0) as f64 / 1e3,
        p99_us: figures.latency.percentile_ns(99.0) as f64 / 1e3,
        failed: figures.requests.failed,
        tcp: figures.tcp,
        segments: None,
    }
}

impl Part {
    fn standing(&self) -> Standing {
        let Some(last) = &self.last else {
            return Standing::Open { last_second: self.seconds.values().max().copied() };
        };
        let missing: Vec<u64> = (0..last.seq).filter(|seq| !self.digests.contains_key(seq)).collect();
        if !missing.is_empty() {
            return Standing::Missing(missing);
        }
        let whole = Figures::of_outcome(&last.outcome);
        let same = digest_of_all(self.digests.values()) == last.digest
            && whole.requests == self.sum.requests
            && whole.latency.count() == self.sum.latency.count();
        if same { Standing::Complete } else { Standing::Altered }
    }

    fn outcome(&self, document: &RunDocument) -> Outcome {
        match &self.last {
            Some(last) => (*last.outcome).clone(),
            None => {
                let mut outcome = self.sum.clone().into_outcome(&document.plan);
                let seconds = self.seconds.values().max().map_or(0, |second| second + 1);
                outcome.duration = std::time::Duration::from_secs(seconds);
                outcome
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_load::Plan;
    use linerate_load::plan::Target;
    use proptest::prelude::*;

    use super::*;

    fn document(agents: usize) -> RunDocument {
        let share = |i| Share {
            agent: format!("a{i}"),
            incarnation: "1".to_owned(),
            first_thread: i as u32,
            threads: 1,
        };
        RunDocument {
            schema: SCHEMA.to_owned(),
            run: "r".to_owned(),
            plan: Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/"),
            shares: (0..agents).map(share).collect(),
        }
    }

    fn figures(answers: &[u64]) -> Figures {
        let mut figures = Figures::default();
        figures.requests.sent = answers.len() as u64;
        figures.requests.answered = answers.len() as u64;
        *figures.status.entry(200).or_default() += answers.len() as u64;
        answers.iter().for_each(|nanos| figures.latency.record(*nanos, 1));
        figures
    }

    /// The messages of an agent that measured these latencies, second by second.
    fn messages(agent: usize, seconds: &[Vec<u64>]) -> Vec<Vec<u8>> {
        let message = |seq, word| Message {
            schema: SCHEMA.to_owned(),
            run: "r".to_owned(),
            agent: format!("a{agent}"),
            incarnation: "1".to_owned(),
            seq,
            word,
        };
        let (mut sum, mut all) = (Figures::default(), Vec::new());
        for (second, answers) in (0..).zip(seconds) {
            let figures = Box::new(figures(answers));
            sum.merge(&figures);
            all.push(message(second, Word::Interval { second, in_flight: 0, open: 1, figures }).to_bytes());
        }
        let digests: Vec<_> = all.iter().map(|bytes| digest_of(bytes)).collect();
        let plan = document(0).plan;
        let word =
            Word::Final { digest: digest_of_all(&digests), outcome: Box::new(sum.into_outcome(&plan)) };
        all.push(message(seconds.len() as u64, word).to_bytes());
        all
    }

    fn recorded(outcome: &Outcome) -> Vec<(u64, u64)> {
        outcome.latency.from_sent.iter_recorded().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the order and however many copies: the sum is that of a single recorder.
        #[test]
        fn order_and_copies_change_nothing(
            agents in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(1u64..5_000_000_000, 0..6), 0..5), 1..4),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
            copies in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let mut all: Vec<Vec<u8>> =
                agents.iter().enumerate().flat_map(|(i, seconds)| messages(i, seconds)).collect();
            for (a, b) in order {
                let (a, b) = (a.index(all.len()), b.index(all.len()));
                all.swap(a, b);
            }
            let mut merger = Merger::new(document(agents.len()));
            for (i, bytes) in all.iter().enumerate() {
                prop_assert!(merger.add(bytes));
                if let Some(copy) = copies.get(i) {
                    prop_assert!(!merger.add(&all[copy.index(i + 1)]));
                }
            }
            prop_assert!(merger.is_complete());
            let single: Vec<u64> = agents.iter().flatten().flatten().copied().collect();
            let whole = merger.outcome();
            let expected = figures(&single);
            prop_assert_eq!(whole.requests, expected.requests);
            prop_assert_eq!(recorded(&whole), expected.latency.iter_recorded().collect::<Vec<_>>());
            let in_series: f64 = whole.series.iter().map(|i| i.rate_rps).sum();
            prop_assert_eq!(in_series as usize, single.len());
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = messages(0, &[vec![1], vec![2, 3], vec![4]]);
        let mut merger = Merger::new(document(2));
        for seq in [0, 2, 3] {
            assert!(merger.add(&all[seq]));
        }
        assert!(!merger.is_complete());
        assert_eq!(merger.agents()[0].standing, Standing::Missing(vec![1]));
        assert_eq!(merger.agents()[1].standing, Standing::Open { last_second: None });
        assert_eq!(merger.unfinished().map(|s| s.agent.as_str()).collect::<Vec<_>>(), ["a1"]);
        assert!(merger.add(&all[1]));
        assert_eq!(merger.agents()[0].standing, Standing::Complete);
        // The other agent died in its second second, with a request in flight.
        let mut lost = figures(&[7]);
        lost.requests.sent = 2;
        let word = Word::Interval { second: 1, in_flight: 1, open: 1, figures: Box::new(lost) };
        let from_a1 = Message {
            schema: SCHEMA.to_owned(),
            run: "r".to_owned(),
            agent: "a1".to_owned(),
            incarnation: "1".to_owned(),
            seq: 0,
            word,
        };
        assert!(merger.add(&from_a1.to_bytes()));
        let a1 = &merger.agents()[1];
        assert_eq!(a1.standing, Standing::Open { last_second: Some(1) });
        let r = a1.outcome.requests;
        assert_eq!((r.sent, r.answered, r.unknown), (2, 1, 1));
    }

    #[test]
    fn strangers_and_forgeries_are_refused() {
        let all = messages(0, &[vec![1], vec![2]]);
        let mut merger = Merger::new(document(1));
        for wrong in [&b"{}"[..], b"", &messages(5, &[vec![1]])[0]] {
            assert!(!merger.add(wrong));
        }
        let mut other: Message = serde_json::from_slice(&all[0]).unwrap();
        if let Word::Interval { figures, .. } = &mut other.word {
            figures.latency.record(99, 1);
        }
        assert!(merger.add(&other.to_bytes()));
        assert!(!merger.add(&all[0]));
        assert!(merger.add(&all[1]) && merger.add(&all[2]));
        assert_eq!(merger.agents()[0].standing, Standing::Altered);
        assert!(!merger.is_complete());
        assert_eq!(merger.refused(), 4);
    }
}
