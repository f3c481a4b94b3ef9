//! The threads of a run, and what watches them.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use linerate_net::machine;
use linerate_script::{RunMetrics, SampleTags, ScriptOptions, built_in, judge};
use tokio::sync::oneshot;

use super::host::RunHost;
use super::send::ScriptClients;
use super::shared::{EarlyEnd, RunShared, locked};
use super::worker::{RunPlan, Worker};
use crate::load::Interrupt;

/// How often gauges are sampled and progress is shown.
const SECOND: Duration = Duration::from_secs(1);

/// How often interrupts and thresholds that end the run are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a run that was ended early may still take.
const ENDING: Duration = Duration::from_secs(30);

/// The end of a run.
pub(super) struct RunResult {
    pub(super) metrics: RunMetrics,
    pub(super) elapsed: Duration,
}

/// Threads: one for each core, as far as there are users.
pub(super) fn count(options: &ScriptOptions) -> usize {
    let users: usize = options.scenarios.iter().map(|scenario| scenario.executor.most_users() as usize).sum();
    thread::available_parallelism().map_or(1, usize::from).min(users).max(1)
}

/// A thread that is ready to begin.
struct ReadyThread {
    begin: oneshot::Sender<tokio::time::Instant>,
}

/// Runs all scenarios.
///
/// # Errors
/// A user could not be made.
pub(super) fn run(
    plan: &Arc<RunPlan>,
    interrupt: &Interrupt,
    quiet: bool,
    no_thresholds: bool,
) -> Result<RunResult, String> {
    let shares: Vec<_> =
        (0..plan.threads).map(|_| Arc::new(Mutex::new(RunMetrics::new(&plan.options.thresholds)))).collect();
    let (tell, told) = mpsc::channel();
    let mut handles = Vec::new();
    for (index, metrics) in shares.iter().enumerate() {
        let (plan, metrics, tell) = (Arc::clone(plan), Arc::clone(metrics), tell.clone());
        let named = thread::Builder::new().name(format!("users-{index}"));
        let body = move || work(&plan, index as u64, metrics, tell);
        handles.push(named.spawn(body).map_err(|e| format!("a thread could not be started: {e}"))?);
    }
    drop(tell);
    let mut ready = Vec::new();
    let mut broken = None;
    for said in told {
        match said {
            Ok(one) => ready.push(one),
            Err(why) => broken = Some(why),
        }
    }
    if let Some(why) = broken {
        return Err(why);
    }
    let start = Instant::now();
    for ReadyThread { begin } in ready {
        // A thread that has ended is seen when it is joined.
        let _ = begin.send(start.into());
    }
    let watched = WatchedRun { plan, shares: &shares, start, quiet, no_thresholds };
    let gauges = watched.watch(interrupt, &handles);
    let elapsed = start.elapsed();
    for handle in handles {
        if handle.is_finished() && handle.join().is_err() {
            return Err("a thread panicked".to_owned());
        }
    }
    let mut metrics = watched.all();
    metrics.merge(&gauges);
    Ok(RunResult { metrics, elapsed })
}

fn work(
    plan: &Arc<RunPlan>,
    index: u64,
    metrics: Arc<Mutex<RunMetrics>>,
    tell: mpsc::Sender<Result<ReadyThread, String>>,
) {
    let host = RunHost { shared: Arc::clone(&plan.shared), start: Cell::new(machine::monotonic_now()) };
    let worker = Rc::new(Worker {
        plan: Arc::clone(plan),
        index,
        metrics,
        host: Rc::new(host),
        clients: ScriptClients::new(Arc::clone(&plan.options)),
        start: Cell::new(tokio::time::Instant::now()),
        cuts: RefCell::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let both = runtime.map_err(|e| e.to_string()).and_then(|runtime| Ok((runtime, worker.load_all()?)));
    let (runtime, users) = match both {
        Ok(both) => both,
        Err(why) => return drop(tell.send(Err(why))),
    };
    let (begin, told) = oneshot::channel();
    if tell.send(Ok(ReadyThread { begin })).is_err() {
        return;
    }
    // The main thread goes on once all have said this.
    drop(tell);
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        if let Ok(start) = told.await {
            worker.start.set(start);
            worker.host.start.set(machine::monotonic_now());
            worker.run(users).await;
        }
    });
}

/// A run that is watched.
struct WatchedRun<'a> {
    plan: &'a RunPlan,
    shares: &'a [Arc<Mutex<RunMetrics>>],
    start: Instant,
    quiet: bool,
    no_thresholds: bool,
}

impl WatchedRun<'_> {
    /// The metrics of all threads.
    fn all(&self) -> RunMetrics {
        let mut all = RunMetrics::new(&self.plan.options.thresholds);
        self.shares.iter().for_each(|share| all.merge(&locked(share)));
        all
    }

    /// Watches until all threads have ended. Returns the gauges.
    fn watch(&self, interrupt: &Interrupt, handles: &[thread::JoinHandle<()>]) -> RunMetrics {
        let mut gauges = RunMetrics::new(&self.plan.options.thresholds);
        let (mut next, mut ended) = (SECOND, None);
        while handles.iter().any(|handle| !handle.is_finished()) {
            let elapsed = self.start.elapsed();
            if elapsed >= next {
                next = elapsed + SECOND;
                self.sample(&mut gauges);
                self.show(elapsed);
            }
            if interrupt.asked() {
                self.plan.shared.end(EarlyEnd::Interrupted);
            }
            self.look_at_thresholds(elapsed);
            if self.plan.shared.ended().is_some() && *ended.get_or_insert(elapsed) + ENDING < elapsed {
                break;
            }
            // The last moments are not waited for.
            let pause = if elapsed < LOOK { Duration::from_millis(2) } else { LOOK / 5 };
            thread::sleep(pause);
        }
        if self.shows() {
            eprintln!();
        }
        gauges
    }

    fn sample(&self, gauges: &mut RunMetrics) {
        let shared = &self.plan.shared;
        let users = RunShared::count(&shared.users) as f64;
        let active = RunShared::count(&shared.active) as f64;
        gauges.add(built_in::VUS, active, &SampleTags::default());
        gauges.add(built_in::VUS_MAX, users.max(active), &SampleTags::default());
    }

    fn shows(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    fn show(&self, elapsed: Duration) {
        if !self.shows() {
            return;
        }
        let (shared, seconds) = (&self.plan.shared, elapsed.as_secs());
        eprint!(
            "\rrunning ({:02}m{:02}s), {}/{} VUs, {} complete and {} interrupted iterations",
            seconds / 60,
            seconds % 60,
            RunShared::count(&shared.active),
            RunShared::count(&shared.users),
            RunShared::count(&shared.completed),
            RunShared::count(&shared.interrupted),
        );
    }

    /// Ends the run when a threshold with `abortOnFail` has failed.
    fn look_at_thresholds(&self, elapsed: Duration) {
        let thresholds = &self.plan.options.thresholds;
        let some_abort = thresholds.iter().flat_map(|of| &of.thresholds).any(|t| t.abort_on_fail);
        if self.no_thresholds || !some_abort || self.plan.shared.ended().is_some() {
            return;
        }
        // That they fit their metrics was seen before the run.
        let Ok(judged) = judge(&self.all(), thresholds, elapsed) else { return };
        if let Some(failed) = judged.iter().find(|t| t.aborts) {
            let words = format!("the threshold {} of {} failed", failed.source, failed.key);
            self.plan.shared.end(EarlyEnd::Threshold(words));
        }
    }
}
