//! Medians and ratios of paired rounds.

use linerate_lab::stats;

use super::round::ProgramRun;
use super::scenario::{Figure, RAW, Want};

/// The middle of some figures.
pub(crate) fn median(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| stats::median(of))
}

/// A ratio over paired rounds: its median and how far single rounds were from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// The median of the rounds' ratios.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) least: f64,
    /// The largest.
    pub(crate) most: f64,
    /// The interval that holds the true ratio in 95 of 100 cases, as `linerate compare` computes it.
    pub(crate) ci95: Option<(f64, f64)>,
    /// Rounds in which both ran without fault.
    pub(crate) rounds: usize,
}

/// One figure of a run.
pub(crate) fn figure(run: &ProgramRun, f: Figure) -> f64 {
    match f {
        Figure::Rate => run.rate,
        Figure::Cpu => run.cpu_us,
        Figure::P99 => run.p99_us.unwrap_or(f64::NAN),
        Figure::PerCore => 1e6 / run.cpu_us,
        Figure::Memory => run.user_kb.unwrap_or(f64::NAN),
    }
}

/// The median of a program's figure over its good runs.
pub(crate) fn of_program(runs: &[ProgramRun], program: &str, f: Figure) -> Option<f64> {
    let good = runs.iter().filter(|r| r.program == program && r.fault.is_none());
    median(&good.map(|r| figure(r, f)).collect::<Vec<_>>())
}

/// The raw client that is the ceiling: the one with the better median rate.
pub(crate) fn better_raw(runs: &[ProgramRun]) -> Option<&'static str> {
    let rate = |p: &&'static str| of_program(runs, p, Figure::Rate);
    let both = ["raw epoll", "raw uring"].into_iter().filter(|p| rate(p).is_some());
    both.max_by(|a, b| rate(a).partial_cmp(&rate(b)).unwrap_or(std::cmp::Ordering::Equal))
}

/// `ours` over `theirs`, round by round.
pub(crate) fn ratio(runs: &[ProgramRun], ours: &str, theirs: &str, f: Figure) -> Option<Ratio> {
    let theirs = if theirs == RAW { better_raw(runs)? } else { theirs };
    let good = |p: &str, round: usize| {
        runs.iter().find(|r| r.program == p && r.round == round && r.fault.is_none()).map(|r| figure(r, f))
    };
    let rounds = runs.iter().map(|r| r.round).max()? + 1;
    let all: Vec<f64> = (0..rounds).filter_map(|i| Some(good(ours, i)? / good(theirs, i)?)).collect();
    let (least, most) = all.iter().fold((f64::MAX, f64::MIN), |(l, m), &x| (l.min(x), m.max(x)));
    let logs: Vec<f64> = all.iter().map(|ratio| ratio.ln()).collect();
    let ci95 = stats::mean(&logs).map(|i| (i.low.exp(), i.high.exp()));
    Some(Ratio { median: median(&all)?, least, most, ci95, rounds: all.len() })
}

/// Whether a ratio is what is wanted.
pub(crate) fn reached(want: &Want, r: &Ratio) -> bool {
    if want.figure.more_is_better() { r.median >= want.limit } else { r.median <= want.limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &'static str, round: usize, rate: f64) -> ProgramRun {
        ProgramRun {
            program,
            round,
            rate,
            answered: 1,
            server_requests: None,
            cpu_us: 1.0,
            p99_us: None,
            user_kb: None,
            server_busy: 0.0,
            client_busy: 0.0,
            waited: 0.0,
            max_rss_kb: 0,
            fault: None,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[1.0, 9.0, 3.0, 5.0]), Some(4.0));
    }

    #[test]
    fn ratios_are_paired_and_faulty_rounds_left_out() {
        let mut runs = vec![
            run("linerate", 0, 10.0),
            run("wrk", 0, 5.0),
            run("linerate", 1, 30.0),
            run("wrk", 1, 10.0),
            run("linerate", 2, 1.0),
            run("wrk", 2, 10.0),
        ];
        runs[4].fault = Some("it fell".into());
        let r = ratio(&runs, "linerate", "wrk", Figure::Rate).expect("two rounds");
        assert_eq!(r, Ratio { median: 2.5, least: 2.0, most: 3.0, ci95: None, rounds: 2 });
    }

    #[test]
    fn three_rounds_have_the_interval_of_compare() {
        let pairs = [(10.0, 5.0), (21.0, 10.0), (19.0, 10.0)];
        let both = |(i, (ours, theirs))| [run("linerate", i, ours), run("wrk", i, theirs)];
        let runs: Vec<ProgramRun> = pairs.into_iter().enumerate().flat_map(both).collect();
        let (low, high) = ratio(&runs, "linerate", "wrk", Figure::Rate).and_then(|r| r.ci95).expect("three");
        assert!(1.7 < low && low < 1.9 && 2.1 < high && high < 2.3, "{low} to {high}");
    }

    #[test]
    fn the_better_raw_client_is_the_ceiling() {
        let runs = [run("linerate", 0, 8.0), run("raw epoll", 0, 10.0), run("raw uring", 0, 16.0)];
        assert_eq!(better_raw(&runs), Some("raw uring"));
        assert_eq!(ratio(&runs, "linerate", RAW, Figure::Rate).map(|r| r.median), Some(0.5));
    }
}
