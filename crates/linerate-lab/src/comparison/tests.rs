use linerate_load::histogram::Histogram;

use super::*;
use crate::check::MetricCheck;
use crate::latencies::RunLatencies;

fn of<'a>(verdicts: &'a [ComparedMetric], id: &str) -> &'a ComparedMetric {
    verdicts.iter().find(|c| c.metric.id == id).unwrap_or_else(|| panic!("{id}: {verdicts:?}"))
}

fn run(rate: f64, p99: f64) -> RunFigures {
    let mut histogram = Histogram::new();
    (1..=1_000).for_each(|i| histogram.record((p99 * 1e3 * f64::from(i) / 990.0) as u64, 1));
    RunFigures {
        values: [("rate_rps", rate), ("p99_us", p99)].into(),
        latencies: RunLatencies::new(&histogram, &Histogram::new()),
        sent: 1_000,
        answered: 1_000,
        received: 100_000,
        status: [(200, 1_000)].into(),
        ..RunFigures::default()
    }
}

/// Rounds in which the machine is as fast as each number says, and B has a p99 that is `worse`.
fn rounds(speeds: &[f64], worse: f64) -> Rounds {
    let mut rounds = Rounds::default();
    for (i, speed) in speeds.iter().enumerate() {
        let wobble = 1.0 + 0.002 * (i as f64 * 2.4).sin();
        rounds.push([
            run(1_000.0 * speed, 500.0 / speed),
            run(1_000.0 * speed * wobble, 500.0 / speed * worse * wobble),
        ]);
    }
    rounds
}

const SPEEDS: [f64; 6] = [1.0, 0.7, 1.3, 0.9, 0.6, 1.1];

#[test]
fn the_order_is_a_b_b_a() {
    let all: Vec<ComparedSide> = (0..4).flat_map(order).collect();
    assert_eq!(
        all,
        [
            ComparedSide::A,
            ComparedSide::B,
            ComparedSide::B,
            ComparedSide::A,
            ComparedSide::A,
            ComparedSide::B,
            ComparedSide::B,
            ComparedSide::A
        ]
    );
}

#[test]
fn a_machine_that_drifts_hides_no_difference() {
    let verdicts = rounds(&SPEEDS, 1.1).verdicts();
    let (rate, p99) = (of(&verdicts, "rate_rps"), of(&verdicts, "p99_us"));
    assert_eq!(rate.verdict, MetricVerdict::NoDifference);
    assert!(rate.more_rounds.is_none_or(|n| n > 0) && rate.finds < 0.02);
    assert_eq!(p99.verdict, MetricVerdict::Better(ComparedSide::A));
    let ((low, high), ratio) = (p99.ci95.unwrap(), p99.ratio.unwrap());
    assert!(low < 1.1 && 1.1 < high && (ratio - 1.1).abs() < 0.005, "{p99:?}");
    assert!(p99.p_corrected.unwrap() >= p99.p.unwrap());
    let [a, b] = p99.means.unwrap();
    assert!((b / a - ratio).abs() < 1e-9);
    assert_eq!(
        of(&rounds(&SPEEDS, 0.9).verdicts(), "p99_us").verdict,
        MetricVerdict::Better(ComparedSide::B)
    );
}

#[test]
fn two_rounds_have_no_verdict_and_say_so() {
    let rounds = rounds(&SPEEDS[..2], 2.0);
    let verdicts = rounds.verdicts();
    assert!(verdicts.iter().all(|c| c.ci95.is_none() && c.verdict != MetricVerdict::NoDifference));
    assert_eq!(of(&verdicts, "p99_us").verdict, MetricVerdict::TooFewRounds);
    assert!(
        rounds.warnings().iter().any(|w| w.contains("2 of at least 3 rounds")),
        "{:?}",
        rounds.warnings()
    );
    assert!(Rounds::default().verdicts().is_empty());
    assert!(Rounds::default().warnings()[0].contains("no round"));
}

#[test]
fn rounds_that_failed_are_left_out_and_named() {
    let mut all = rounds(&SPEEDS, 1.0);
    all.pairs[2][1] =
        RunFigures { fault: Some("no request was answered".to_owned()), ..RunFigures::default() };
    assert_eq!(all.counted(), 5);
    assert!(all.verdicts().iter().all(|c| (c.rounds, c.rounds_of) == (5, 6)));
    let said = "B failed in 1 of 6 rounds, which are left out. Round 3: no request was answered";
    assert!(all.warnings().iter().any(|w| w == said), "{:?}", all.warnings());
    let left = all.left_out();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(
        (left[0].round, left[0].side, left[0].why.as_str()),
        (3, ComparedSide::B, "no request was answered")
    );
    assert_eq!(left[0].metrics.len(), all.verdicts().len());
}

#[test]
fn a_round_that_a_metric_lacks_is_named_with_its_reason() {
    let mut all = rounds(&SPEEDS[..3], 1.0);
    for pair in &mut all.pairs {
        for run in pair {
            run.values.insert("cpu_us_per_request", 5.0);
        }
    }
    assert_eq!(all.left_out(), []);
    let run = &mut all.pairs[1][0];
    run.values.remove("cpu_us_per_request");
    run.missing.insert("cpu_us_per_request", "it was 0, of which there is no ratio");
    let left = all.left_out();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].round, left[0].side), (2, ComparedSide::A));
    assert_eq!(left[0].metrics, ["cpu_us_per_request"]);
    let said = "round 2 of A is left out of server CPU/request: it was 0, of which there is no ratio";
    assert!(all.warnings().iter().any(|w| w == said), "{:?}", all.warnings());
}

#[test]
fn a_round_that_got_no_response_counts_in_percentiles() {
    let (mut all, mut waited) = (rounds(&SPEEDS, 1.0), Histogram::new());
    waited.record(10_000_000_000, 1_000);
    for pair in all.pairs.iter_mut().step_by(2) {
        pair[1] = RunFigures {
            fault: Some("no request was answered".to_owned()),
            latencies: RunLatencies::new(&Histogram::new(), &waited),
            values: [("rate_rps", 1.0)].into(),
            ..RunFigures::default()
        };
    }
    let verdicts = all.verdicts();
    // Nor does its rate look better for it.
    let rate = of(&verdicts, "rate_rps");
    assert_eq!((rate.rounds, rate.rounds_of), (6, 6));
    assert!(rate.ratio.unwrap() < 0.1, "{rate:?}");
    let said =
        "B failed in 3 of 6 rounds, which count in latencies and the rate alone. Rounds 1, 3, 5: no request";
    assert!(all.warnings().iter().any(|w| w.starts_with(said)), "{:?}", all.warnings());
    let p99 = of(&verdicts, "p99_us");
    assert_eq!((p99.rounds, p99.at_least), (6, [false, true]));
    let check = |text: &str| MetricCheck::parse(text).unwrap();
    let checked = all.checked(&[check("p99 ratio<1.1"), check("p99 ratio<1000"), check("p99 lo<1000")], &[]);
    assert!(checked.iter().all(|c| !c.pass), "{checked:?}");
    // Too few whole rounds are no lack of verdicts.
    let few = Rounds { pairs: all.pairs[..4].to_vec() };
    let said = "2 of at least 3 rounds were measured whole: only latencies and the rate may have verdicts";
    assert_eq!(few.warnings()[0], said);
    // Where both sides have such rounds, their percentiles are no figures.
    all.pairs.iter_mut().for_each(|pair| pair[0].latencies = pair[1].latencies.clone());
    let p99 = of(&all.verdicts(), "p99_us").clone();
    assert_eq!((p99.verdict, p99.ratio), (MetricVerdict::NotMeasured, None));
}

/// Rounds in which these requests of a side had no good response after 0.1 ms.
fn with_failures(side: usize, worse: f64) -> Rounds {
    let (mut all, mut waited) = (rounds(&SPEEDS, worse), Histogram::new());
    waited.record(100_000, 2);
    for pair in &mut all.pairs {
        let mut good = Histogram::new();
        let p99 = pair[side].values["p99_us"];
        (1..=1_000).for_each(|i| good.record((p99 * 1e3 * f64::from(i) / 990.0) as u64, 1));
        pair[side].latencies = RunLatencies::new(&good, &waited);
    }
    all
}

#[test]
fn a_mean_over_failed_requests_is_a_bound_and_wins_nothing() {
    let mean = |all: &Rounds| of(&all.verdicts(), "mean_us").clone();
    let slow = mean(&with_failures(1, 2.0));
    assert_eq!((slow.at_least, slow.verdict), ([false, true], MetricVerdict::Better(ComparedSide::A)));
    assert!((slow.ratio.unwrap() - 2.0).abs() < 0.1 && slow.ci95.is_none(), "{slow:?}");
    // The side that failed looks faster.
    let all = with_failures(0, 2.0);
    let fast = mean(&all);
    assert_eq!((fast.at_least, fast.verdict), ([true, false], MetricVerdict::NotMeasured));
    let checked = all.checked(&[MetricCheck::parse("mean ratio>1.1").unwrap()], &[]);
    assert!(!checked[0].pass && checked[0].shown.contains("without a good response"), "{checked:?}");
}

#[test]
fn a_percentile_of_too_few_requests_is_not_measured_and_passes_no_check() {
    let all = rounds(&SPEEDS, 1.0);
    let verdicts = all.verdicts();
    assert_eq!(of(&verdicts, "p999_us").verdict, MetricVerdict::NotMeasured);
    let checked = all.checked(&[MetricCheck::parse("p99.9 ratio<1.1").unwrap()], &[]);
    assert!(!checked[0].pass && checked[0].shown.contains("too few requests"), "{checked:?}");
}

fn warned(change: impl Fn(&mut Pair<RunFigures>)) -> String {
    let mut all = rounds(&[1.0; 4], 1.0);
    assert_eq!(all.warnings(), Vec::<String>::new());
    all.pairs.iter_mut().for_each(change);
    all.warnings().join("\n")
}

#[test]
fn doubts_are_named() {
    let status = warned(|pair| pair[1].status = [(500, 1_000)].into());
    assert!(status.contains("0.0 % of A's responses") || status.contains("100.0 % of A's"), "{status}");
    assert!(status.contains("different work"), "{status}");
    assert!(
        warned(|pair| pair[0].received = 200_000).contains("a response of A has 200 bytes, one of B 100")
    );
    assert_eq!(warned(|pair| pair[0].received = 101_000), "");
    assert!(
        warned(|pair| pair[0].client_limit = Some("full".to_owned())).contains("limit in 4 of 4 runs of A")
    );
    assert!(
        warned(|pair| pair[1].server_waited = Some(0.5))
            .contains("too noisy: in 4 of 4 runs of B the server")
    );
    assert!(warned(|pair| pair[1].errors = 30).contains("3.00 % of B's"));
    assert!(warned(|pair| pair[1].errors = 30).contains("those of good responses"));
    let mut noisy = rounds(&SPEEDS, 1.0);
    assert!(noisy.warnings().iter().any(|w| w.contains("spread by")), "{:?}", noisy.warnings());
    noisy.pairs.truncate(0);
}

#[test]
fn a_saved_comparison_is_compared_by_the_ratio_of_ratios() {
    let now = rounds(&SPEEDS, 1.2);
    let then = rounds(&[0.2, 0.3, 0.25, 0.21], 1.0);
    let saved: BTreeMap<String, Vec<f64>> =
        ["rate_rps", "p99_us", "gone"].map(|id| (id.to_owned(), then.log_ratios(id))).into();
    let since = since(&saved, &now);
    assert_eq!(since.len(), 2, "{since:?}");
    assert_eq!(since[0].verdict, MetricVerdict::NoDifference);
    assert!(
        (since[1].change - 1.2).abs() < 0.01 && since[1].verdict == MetricVerdict::Better(ComparedSide::A),
        "{since:?}"
    );
    let check = MetricCheck::parse("p99 change<1.1").unwrap();
    let checked = now.checked(&[check], &since);
    assert!(!checked[0].pass && checked[0].shown.contains("sure at 95 %"), "{checked:?}");
}
