//! Which case is diagnosed when: those that only wait side by side, those about processor time one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Options;
use super::case::Case;
use super::results::{self, Run};
use super::servers::Programs;
use super::stage::{self, Stage};

/// A case at a round-trip time.
type Setting = (&'static Case, u64);

/// What all workers share.
struct Jobs<'a> {
    programs: &'a Programs,
    options: &'a Options,
    begin: Instant,
    waiting: Mutex<VecDeque<Setting>>,
    runs: Mutex<Vec<Run>>,
}

/// Makes all runs that are missing; returns these and the ones that were there.
pub(super) fn run(cases: &[&'static Case], programs: &Programs, options: &Options) -> Result<Vec<Run>> {
    let runs = match &options.results {
        Some(path) => results::read(path)?,
        None => Vec::new(),
    };
    for case in cases {
        if let Some(lack) = stage::lacks(case, programs) {
            println!("{}: not run, {lack}", case.name);
        }
    }
    let able: Vec<_> = cases.iter().copied().filter(|c| stage::lacks(c, programs).is_none()).collect();
    let (alone, together): (Vec<Setting>, Vec<Setting>) =
        options.settings(&able).into_iter().partition(|(case, _)| case.alone && options.jobs > 1);
    let jobs = Jobs {
        programs,
        options,
        begin: Instant::now(),
        waiting: Mutex::new(together.into()),
        runs: Mutex::new(runs),
    };
    jobs.work(options.jobs)?;
    *jobs.waiting.lock().unwrap_or_else(PoisonError::into_inner) = alone.into();
    jobs.work(1)?;
    Ok(jobs.runs.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Jobs<'_> {
    /// Until nothing waits any more, by so many at once.
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
            let Some((case, rtt)) = next else { break };
            self.diagnose(case, rtt)?;
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.options.slice.is_some_and(|s| self.begin.elapsed() > Duration::from_secs(s))
    }

    /// As many diagnoses of a case as are missing.
    fn diagnose(&self, case: &'static Case, rtt: u64) -> Result<()> {
        let same = |r: &&Run| r.case == case.name && r.rtt_ms == rtt;
        let has = self.runs.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(same).count();
        let wanted = self.options.wanted(case);
        if has >= wanted {
            return Ok(());
        }
        let fixed = self.without_the_fault(case, rtt);
        let stage = match Stage::new(case, rtt, self.programs) {
            Ok(stage) => stage,
            Err(e) => {
                println!("{}: not run, {e:#}", case.name);
                return Ok(());
            }
        };
        for _ in has..wanted {
            if self.over() {
                break;
            }
            let mut run = stage.explain(self.programs)?;
            run.fixed_ms = run.predicted.as_ref().and_then(|p| fixed.get(&p.part).copied());
            self.note(run)?;
        }
        for doubt in stage.doubts() {
            println!("{}: {doubt}", case.name);
        }
        Ok(())
    }

    /// What the parts of the call take where nothing is wrong; none where that cannot be had.
    fn without_the_fault(&self, case: &Case, rtt: u64) -> BTreeMap<String, f64> {
        let Some(mended) = case.mended() else { return BTreeMap::new() };
        let takes = Stage::new(&mended, rtt, self.programs).and_then(|stage| stage.takes(self.programs));
        takes.unwrap_or_else(|e| {
            println!("{}: not measured without the fault, {e:#}", case.name);
            BTreeMap::new()
        })
    }

    fn note(&self, run: Run) -> Result<()> {
        let named: Vec<String> = run.causes.iter().map(|(id, cost)| format!("{id} {cost:.1}")).collect();
        let said = run.error.clone().unwrap_or_else(|| format!("{} {}", run.verdict, named.join(", ")));
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{:<18} {:>3} ms  {:>5.1} s  {said}", run.case, run.rtt_ms, run.took_s);
        if let Some(path) = &self.options.results {
            results::add(path, &run)?;
        }
        runs.push(run);
        Ok(())
    }
}
