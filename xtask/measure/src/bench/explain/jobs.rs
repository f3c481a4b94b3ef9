//! Schedules the cases: those that only wait run side by side, those about CPU time one after the
//! other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::ExplainBenchOptions;
use super::case::Case;
use super::results::{self, DiagnosisRun};
use super::servers::Programs;
use super::stage::{self, CaseStage};

/// A case at a round-trip time, and how many diagnoses of it there shall be.
#[derive(Clone, Copy, Debug)]
struct Setting {
    case: &'static Case,
    rtt_ms: u64,
    upto: usize,
}

/// State that all workers share.
struct Jobs<'a> {
    programs: &'a Programs,
    options: &'a ExplainBenchOptions,
    begin: Instant,
    waiting: Mutex<VecDeque<Setting>>,
    runs: Mutex<Vec<DiagnosisRun>>,
    /// Diagnoses that there shall be in all.
    wanted: usize,
}

/// Makes all runs that are missing; returns these and the ones that were there.
pub(super) fn run(
    cases: &[&'static Case],
    programs: &Programs,
    options: &ExplainBenchOptions,
) -> Result<Vec<DiagnosisRun>> {
    let runs = match &options.results {
        Some(path) => results::read(path)?,
        None => Vec::new(),
    };
    report_lacking(cases, programs);
    let able: Vec<_> = cases.iter().copied().filter(|c| stage::lacks(c, programs).is_none()).collect();
    let settings = match options.sample {
        Some(all) => sampled(&options.settings(&able), all, options.seed),
        None => {
            let whole = |(case, rtt_ms)| Setting { case, rtt_ms, upto: options.wanted(case) };
            options.settings(&able).into_iter().map(whole).collect()
        }
    };
    let wanted = most(&settings).values().sum();
    let (alone, together): (Vec<Setting>, Vec<Setting>) =
        settings.into_iter().partition(|s| s.case.alone && options.jobs > 1);
    let jobs = Jobs {
        programs,
        options,
        begin: Instant::now(),
        waiting: Mutex::new(together.into()),
        runs: Mutex::new(runs),
        wanted,
    };
    jobs.work(options.jobs)?;
    *jobs.waiting.lock().unwrap_or_else(PoisonError::into_inner) = alone.into();
    jobs.work(1)?;
    Ok(jobs.runs.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Programs that this machine lacks, once each, with the servers that are left out for it.
fn report_lacking(cases: &[&'static Case], programs: &Programs) {
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for lack in cases.iter().filter_map(|case| stage::lacks(case, programs)) {
        *missing.entry(lack).or_default() += 1;
    }
    for (lack, cases) in missing {
        println!("{lack}: {cases} cases are left out");
    }
}

/// How many diagnoses of each there shall be.
fn most(settings: &[Setting]) -> BTreeMap<(&'static str, u64), usize> {
    let mut most = BTreeMap::new();
    for s in settings {
        let n: &mut usize = most.entry((s.case.name, s.rtt_ms)).or_default();
        *n = s.upto.max(*n);
    }
    most
}

/// `all` diagnoses, spread evenly: all settings in an order made from the seed, and then again, until there are enough.
fn sampled(settings: &[(&'static Case, u64)], all: usize, seed: u64) -> Vec<Setting> {
    let mut order = settings.to_vec();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for i in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    let rounds = (1..).flat_map(|upto| order.iter().map(move |(case, rtt_ms)| (*case, *rtt_ms, upto)));
    let enough = if order.is_empty() { 0 } else { all };
    rounds.take(enough).map(|(case, rtt_ms, upto)| Setting { case, rtt_ms, upto }).collect()
}

impl Jobs<'_> {
    /// Runs all jobs, this many at once.
    fn work(&self, workers: u8) -> Result<()> {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..workers).map(|_| scope.spawn(|| self.one_after_the_other())).collect();
            all.into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn one_after_the_other(&self) -> Result<()> {
        while !self.over() {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(setting) = next else { break };
            self.diagnose(setting)?;
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.options.slice.is_some_and(|s| self.begin.elapsed() > Duration::from_secs(s))
    }

    /// As many diagnoses of a case as are missing.
    fn diagnose(&self, setting: Setting) -> Result<()> {
        let Setting { case, rtt_ms: rtt, upto } = setting;
        let same = |r: &&DiagnosisRun| r.case == case.name && r.rtt_ms == rtt;
        let has = self.runs.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(same).count();
        if has >= upto {
            return Ok(());
        }
        let fixed = self.without_the_fault(case, rtt);
        let mut stage = None;
        for _ in has..upto {
            if self.over() {
                break;
            }
            // One that shall be cold is started anew.
            if case.cold {
                stage = None;
            }
            let stage = match &stage {
                Some(stage) => stage,
                None => match CaseStage::new(case, rtt, self.programs) {
                    Ok(new) => stage.insert(new),
                    Err(e) => {
                        println!("{}: not run, {e:#}", case.name);
                        return Ok(());
                    }
                },
            };
            let mut run = stage.explain(self.programs)?;
            if run.was_interrupted() {
                println!("{}: interrupted, not counted", case.name);
                return Ok(());
            }
            // A slow lookup is predicted as if a cache answered it: that is the call without one.
            let part =
                |part: &str| if case.truth == "dns-slow" { "call".to_owned() } else { part.to_owned() };
            run.fixed_ms = run.predicted.as_ref().and_then(|p| fixed.get(&part(&p.part)).copied());
            self.note(run)?;
        }
        for doubt in stage.iter().flat_map(CaseStage::doubts) {
            println!("{}: {doubt}", case.name);
        }
        Ok(())
    }

    /// The times of the call's parts without the fault; none if they cannot be measured.
    fn without_the_fault(&self, case: &Case, rtt: u64) -> BTreeMap<String, f64> {
        let Some(mended) = case.mended() else { return BTreeMap::new() };
        let takes = CaseStage::new(&mended, rtt, self.programs).and_then(|stage| stage.takes(self.programs));
        takes.unwrap_or_else(|e| {
            println!("{}: not measured without the fault, {e:#}", case.name);
            BTreeMap::new()
        })
    }

    fn note(&self, run: DiagnosisRun) -> Result<()> {
        let named: Vec<String> = run.causes.iter().map(|(id, cost)| format!("{id} {cost:.1}")).collect();
        let said = run.error.clone().unwrap_or_else(|| format!("{} {}", run.verdict, named.join(", ")));
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = runs.len() + 1;
        println!(
            "{done:>4} of {}  {:<28} {:>3} ms  {:>5.1} s  {said}",
            self.wanted.max(done),
            run.case,
            run.rtt_ms,
            run.took_s
        );
        if let Some(path) = &self.options.results {
            results::add(path, &run)?;
        }
        runs.push(run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::explain::cells;

    #[test]
    fn a_sample_is_spread_evenly_and_its_seed_makes_it() {
        let settings: Vec<(&'static Case, u64)> = cells::all().iter().map(|c| (c, 0)).collect();
        let n = settings.len();
        let sample = sampled(&settings, 2 * n + 5, 7);
        let counts = most(&sample);
        assert_eq!((sample.len(), counts.len(), counts.values().sum::<usize>()), (2 * n + 5, n, 2 * n + 5));
        assert!(counts.values().all(|c| (2..=3).contains(c)));
        let names = |s: &[Setting]| s.iter().map(|s| s.case.name).collect::<Vec<_>>();
        assert_eq!(names(&sample), names(&sampled(&settings, 2 * n + 5, 7)));
        assert_ne!(names(&sample), names(&sampled(&settings, 2 * n + 5, 8)));
        assert!(sampled(&[], 3, 1).is_empty());
    }
}
