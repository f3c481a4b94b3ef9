use linerate_load::plan::Target;
use proptest::prelude::*;

use super::*;

fn document(agents: usize) -> RunDocument {
    let share = |i| RunShare {
        agent: format!("a{i}"),
        incarnation: "1".to_owned(),
        first_thread: i as u32,
        threads: 1,
        part: 0,
    };
    RunDocument {
        version: crate::document::VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        run: "r".to_owned(),
        plan: Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/"),
        sealed: Default::default(),
        log_requests: false,
        shares: (0..agents).map(share).collect(),
    }
}

fn figures(answers: &[u64]) -> IntervalFigures {
    let mut figures = IntervalFigures::default();
    figures.requests.sent = answers.len() as u64;
    figures.requests.answered = answers.len() as u64;
    *figures.status.entry(200).or_default() += answers.len() as u64;
    answers.iter().for_each(|nanos| figures.latency.record(*nanos, 1));
    figures
}

/// The messages of an agent that measured these latencies, second by second.
fn messages(agent: usize, seconds: &[Vec<u64>]) -> Vec<Vec<u8>> {
    let message = |seq, word| AgentMessage {
        schema: SCHEMA.to_owned(),
        run: "r".to_owned(),
        agent: format!("a{agent}"),
        incarnation: "1".to_owned(),
        part: 0,
        seq,
        word,
    };
    let (mut sum, mut all) = (IntervalFigures::default(), Vec::new());
    for (second, answers) in (0..).zip(seconds) {
        let figures = Box::new(figures(answers));
        sum.merge(&figures);
        let word = MessageWord::Interval { second, in_flight: 0, open: 1, figures };
        all.push(message(second, word).to_bytes().unwrap());
    }
    let mut digests = Digests::default();
    (0..).zip(&all).for_each(|(seq, bytes)| digests.insert(seq, &digest_of(bytes)));
    let plan = document(0).plan;
    let word = MessageWord::Final {
        digest: digests.to_hex(),
        left: false,
        outcome: Box::new(sum.into_outcome(&plan)),
    };
    all.push(message(seconds.len() as u64, word).to_bytes().unwrap());
    all
}

impl Merger {
    /// Adds a message of the agent that it names.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let named = serde_json::from_slice::<AgentMessage>(bytes).map_or(String::new(), |m| m.agent);
        self.add_from(&named, bytes)
    }
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
    let word = MessageWord::Interval { second: 1, in_flight: 1, open: 1, figures: Box::new(lost) };
    let from_a1 = AgentMessage {
        schema: SCHEMA.to_owned(),
        run: "r".to_owned(),
        agent: "a1".to_owned(),
        incarnation: "1".to_owned(),
        part: 0,
        seq: 0,
        word,
    };
    assert!(merger.add(&from_a1.to_bytes().unwrap()));
    let a1 = &merger.agents()[1];
    assert_eq!(a1.standing, Standing::Open { last_second: Some(1) });
    let r = a1.figures.requests;
    assert_eq!((r.sent, r.answered, r.unknown), (2, 1, 1));
}

#[test]
fn strangers_and_forgeries_are_refused() {
    let all = messages(0, &[vec![1], vec![2]]);
    let mut merger = Merger::new(document(1));
    for wrong in [&b"{}"[..], b"", &messages(5, &[vec![1]])[0]] {
        assert!(!merger.add(wrong));
    }
    // An agent says what another one measured.
    assert!(!merger.add_from("a1", &all[0]));
    let mut other: AgentMessage = serde_json::from_slice(&all[0]).unwrap();
    if let MessageWord::Interval { figures, .. } = &mut other.word {
        figures.latency.record(99, 1);
    }
    assert!(merger.add(&other.to_bytes().unwrap()));
    assert!(!merger.add(&all[0]));
    assert!(merger.add(&all[1]) && merger.add(&all[2]));
    assert_eq!(merger.agents()[0].standing, Standing::Altered);
    assert!(!merger.is_complete());
    assert_eq!(merger.refused(), 5);
}

#[test]
fn the_agent_that_stood_still_for_the_longest_time_is_named() {
    let mut merger = Merger::new(document(3));
    for (agent, still) in [(0, 300), (1, 1_200), (2, 0)] {
        let mut all = messages(agent, &[vec![1_000_000; 10]]);
        let mut last: AgentMessage = serde_json::from_slice(&all.pop().unwrap()).unwrap();
        let MessageWord::Final { outcome, .. } = &mut last.word else { panic!("{last:?}") };
        outcome.client.stood_still = Duration::from_millis(still);
        all.push(last.to_bytes().unwrap());
        all.iter().for_each(|bytes| assert!(merger.add(bytes)));
    }
    let client = merger.outcome().client;
    assert_eq!(client.stood_still, Duration::from_millis(1_200));
    assert_eq!(client.stood_still_agent.as_deref(), Some("a1"));
    let each: Vec<u128> = merger.agents().iter().map(|a| a.figures.stood_still.as_millis()).collect();
    assert_eq!(each, [300, 1_200, 0]);
}
