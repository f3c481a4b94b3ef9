//! Starting a run, watching it, ending it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use linerate_net::link::pcap::PcapFile;
use linerate_net::{FlowInfo, PhysicalLine, machine};

use crate::engine::board::{Board, Mark};
use crate::engine::gaps::Gaps;
use crate::limits::{DEAF_LOOK, INTERVALS, STOPPED};
use crate::local;
use crate::outcome::{Core, FineSample, FineSeries, Interval, Outcome, Ranked, Snapshot, Spread};
use crate::plan::{Plan, Way};
use crate::request_log;
use crate::route::Names;
use crate::start::{RunPlace, StartError, Work};
use crate::watch::ThreadWatch;
use crate::ways;

/// A run under way.
///
/// ```no_run
/// use std::time::Duration;
///
/// use linerate_load::plan::{Plan, Target};
///
/// let run = linerate_load::start(Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/"))?;
/// while !run.finished() {
///     std::thread::sleep(Duration::from_secs(1));
///     println!("{:?}", run.snapshot());
/// }
/// let outcome = run.join();
/// # Ok::<(), linerate_load::StartError>(())
/// ```
#[derive(Debug)]
pub struct Running {
    boards: Vec<Arc<Board>>,
    workers: Vec<JoinHandle<Outcome>>,
    collector: JoinHandle<CollectedRun>,
    plan: Plan,
    done: Arc<AtomicBool>,
    latest: Arc<Mutex<Snapshot>>,
    started: SystemTime,
    warm_up: Duration,
    warning: Option<String>,
    capture: Option<Arc<PcapFile>>,
    names: Option<Arc<Names>>,
}

/// Tells how a run is going, from any thread. Neither it nor who asks it ever waits for the network.
#[derive(Clone, Debug)]
pub struct Watcher {
    latest: Arc<Mutex<Snapshot>>,
    /// Weak, because a board holds the log of requests, which ends with the run and not with the
    /// last watcher.
    boards: Vec<Weak<Board>>,
}

impl Watcher {
    /// How it is going, as it was at most a tenth of a second ago.
    pub fn snapshot(&self) -> Snapshot {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for the connections of a TCP of our own (`--io xdp`); the cores look through them bit by bit.
    pub fn ask_for_flows(&self) {
        self.boards().for_each(|board| board.ask_for_flows());
    }

    /// The connections that were asked for, of each core those with the longest queues; `None` until all cores have looked.
    pub fn flows(&self) -> Option<Vec<FlowInfo>> {
        let waits = self.boards().any(|board| board.flows_wanted());
        (!waits).then(|| self.boards().flat_map(|board| board.flows()).collect())
    }

    /// None once the run has ended.
    fn boards(&self) -> impl Iterator<Item = Arc<Board>> {
        self.boards.iter().filter_map(Weak::upgrade)
    }
}

/// Tells watchers how a run goes that takes place elsewhere.
///
/// ```
/// use linerate_load::{Snapshot, SnapshotFeed};
///
/// let feed = SnapshotFeed::default();
/// let watcher = feed.watcher();
/// feed.show(Snapshot { in_flight: 3, ..Snapshot::default() });
/// assert_eq!(watcher.snapshot().in_flight, 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct SnapshotFeed(Arc<Mutex<Snapshot>>);

impl SnapshotFeed {
    /// For a thread that wants to know how it is going.
    pub fn watcher(&self) -> Watcher {
        Watcher { latest: Arc::clone(&self.0), boards: Vec::new() }
    }

    /// How it is going now.
    pub fn show(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// Starts a run on its own threads.
pub fn start(plan: Plan) -> Result<Running, StartError> {
    start_at(plan, None, None)
}

/// As [`start`]; what becomes of each request that counts is handed over while the run lasts.
///
/// ```no_run
/// use linerate_load::plan::{Plan, Target};
/// use linerate_load::request_log;
///
/// let (log, entries) = request_log::channel();
/// let run = linerate_load::start_logged(Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/"), log)?;
/// while let Some(chunk) = entries.next() {
///     for entry in chunk.into_iter().flat_map(|entry| entry.each()) {
///         println!("{} {:?} {}", entry.number, entry.end, entry.status);
///     }
/// }
/// eprintln!("{} left out; {:?}", entries.left_out(), run.join().requests);
/// # Ok::<(), linerate_load::StartError>(())
/// ```
pub fn start_logged(plan: Plan, log: request_log::Sender) -> Result<Running, StartError> {
    start_at(plan, None, Some(log))
}

/// Starts this process's part of a run that several machines send. `plan.threads` is the number of
/// this process's threads.
///
/// ```no_run
/// use std::time::Duration;
///
/// use linerate_load::RunPlace;
/// use linerate_load::plan::{Plan, Target};
///
/// // One of two processes that send 64 requests at a time together, with two threads each.
/// let all = Plan { connections: 64, threads: Some(2), ..Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/") };
/// let start = linerate_net::machine::monotonic_now() + Duration::from_secs(1);
/// let place = RunPlace { first_thread: 2, all_threads: 4, start: Some(start), join: None, gap: None };
/// println!("{:?}", linerate_load::start_part(all, place)?.join().requests);
/// # Ok::<(), linerate_load::StartError>(())
/// ```
pub fn start_part(plan: Plan, place: RunPlace) -> Result<Running, StartError> {
    start_part_with(plan, place, None)
}

/// As [`start_part`] and [`start_logged`].
pub fn start_part_logged(
    plan: Plan,
    place: RunPlace,
    log: request_log::Sender,
) -> Result<Running, StartError> {
    start_part_with(plan, place, Some(log))
}

fn start_part_with(
    plan: Plan,
    place: RunPlace,
    log: Option<request_log::Sender>,
) -> Result<Running, StartError> {
    crate::check_part(&plan)?;
    let last = plan.threads.and_then(|own| own.checked_add(place.first_thread));
    if last.is_none_or(|last| last > place.all_threads.min(plan.connections)) {
        let needs = "a part of a run needs a connection for each thread of all parts";
        return Err(StartError::Plan(needs.to_owned()));
    }
    start_at(plan, Some(place), log)
}

fn start_at(
    plan: Plan,
    place: Option<RunPlace>,
    log: Option<request_log::Sender>,
) -> Result<Running, StartError> {
    plan.validate()?;
    machine::raise_nofile()
        .map_err(|e| StartError::Machine(format!("the limit of open files can't be read: {e}")))?;
    let ways::Works { works, boards, pinned, own_descriptors, warning, capture, names } =
        ways::works(&plan, place, log)?;
    let now = machine::monotonic_now();
    let until_start = place.and_then(|p| p.start).map(|at| Duration::from_nanos(at.nanos_since(now)));
    let started = SystemTime::now() + until_start.unwrap_or_default();
    let cores = machine::allowed_cores();
    let spawn = |(i, work): (usize, Work)| {
        let core = pinned.then(|| cores[i % cores.len()]);
        let board = Arc::clone(&boards[i.min(boards.len() - 1)]);
        thread::Builder::new()
            .name(format!("load-{i}"))
            .spawn(move || watched(core, own_descriptors, &board, work))
            .map_err(|e| StartError::Machine(format!("a thread could not be started: {e}")))
    };
    let workers = works.into_iter().enumerate().map(spawn).collect::<Result<Vec<_>, _>>()?;
    let done = Arc::new(AtomicBool::new(false));
    let latest = Arc::new(Mutex::new(Snapshot::default()));
    let collector = {
        let addresses = plan.target.addresses.clone();
        let collector = Collector::new(boards.clone(), addresses, Arc::clone(&latest));
        let done = Arc::clone(&done);
        thread::Builder::new()
            .name("collect".to_owned())
            .spawn(move || collector.run(&done))
            .map_err(|e| StartError::Machine(format!("a thread could not be started: {e}")))?
    };
    let warm_up = plan.warm_up;
    Ok(Running { boards, workers, collector, plan, done, latest, started, warm_up, warning, capture, names })
}

/// Runs a thread's part under its own observation.
fn watched(core: Option<usize>, own_descriptors: bool, board: &Board, work: Work) -> Outcome {
    // Going without any of these costs some speed, nothing else.
    if let Some(core) = core {
        let _ = machine::pin_to_core(core);
    }
    let _ = machine::set_timer_slack_ns(1);
    if own_descriptors {
        let _ = machine::own_descriptors();
    }
    if core.is_some() {
        board.work_on(machine::thread_id());
    }
    let watch = ThreadWatch::begin();
    let mut outcome = work().unwrap_or_else(|error| Outcome {
        warnings: vec![format!("a sending thread ended early: {error}")],
        broken: Some(error),
        ..Outcome::default()
    });
    board.work_on(None);
    outcome.client.merge(&watch.end());
    outcome
}

impl Running {
    /// How it is going. Never waits for the network.
    pub fn snapshot(&self) -> Snapshot {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For another thread that wants to know how it is going.
    pub fn watcher(&self) -> Watcher {
        Watcher { latest: Arc::clone(&self.latest), boards: self.boards.iter().map(Arc::downgrade).collect() }
    }

    /// When measuring begins, or began.
    pub fn measures_from(&self) -> SystemTime {
        self.started + self.warm_up
    }

    /// Whether it has ended by itself.
    pub fn finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Asks it to end now: nothing more is sent, responses under way get a moment (at most a second).
    pub fn stop(&self) {
        self.boards.iter().for_each(|b| b.ask_to_stop());
    }

    /// Waits for the end.
    pub fn join(self) -> Outcome {
        let mut outcome = Outcome { warnings: Vec::from_iter(self.warning), ..Outcome::default() };
        let mut unreachable = None;
        for worker in self.workers {
            match worker.join() {
                Ok(part) => {
                    outcome.merge(&part);
                    unreachable = unreachable.or(part.unreachable);
                }
                Err(_) => {
                    outcome.warnings.push("a sending thread panicked; its figures are missing".to_owned())
                }
            }
        }
        self.done.store(true, Ordering::Relaxed);
        if outcome.bytes.received == 0 {
            outcome.connections.unaccepted = self.boards.first().map_or(0, |board| board.unaccepted());
        }
        let CollectedRun { disturbed, gaps, rest, fine } = self.collector.join().unwrap_or_default();
        outcome.client.disturbed = disturbed;
        // Event loops know their own; callers that block know none.
        if self.plan.way != Way::Loop {
            (outcome.client.stood_still, outcome.client.stood_still_in_all) = (gaps.longest, gaps.total);
        }
        let of_one = self.plan.host_count() > 1;
        outcome.unreachable = unreachable.filter(|_| of_one || outcome.connections.opened == 0);
        outcome.started_at = Some(self.started + self.warm_up);
        outcome.series = self.latest.lock().unwrap_or_else(PoisonError::into_inner).series.clone();
        let begins = outcome.series.last().map_or(0.0, |last| last.t_s);
        outcome.series.extend(rest.and_then(|rest| rest.lasting(outcome.window.time.as_secs_f64() - begins)));
        outcome.series_fine = fine.finish(FineSample {
            t_s: outcome.window.time.as_secs_f64(),
            answered: outcome.window.answered,
            failed: outcome.requests.failed,
            unknown: outcome.requests.unknown,
            bad: outcome.bad.total(),
            bytes_sent: outcome.window.bytes.sent,
            bytes_received: outcome.window.bytes.received,
            in_flight: None,
            client_cpu_s: None,
            ..FineSample::default()
        });
        outcome.line = line(&self.plan);
        outcome.lookups = self.names.map(|names| names.counts()).filter(|counts| counts.again > 0);
        outcome.tidy_samples();
        crate::watch::judge(&self.plan, &mut outcome);
        if let Some(capture) = &self.capture
            && let Some(trouble) = capture.trouble()
        {
            let left_out = capture.stats().left_out;
            outcome.warnings.push(format!("{trouble}: {left_out}"));
        }
        outcome
    }
}

/// The line that a plan's requests go over.
fn line(plan: &Plan) -> Option<PhysicalLine> {
    if let Some(interface) = &plan.interface {
        return PhysicalLine::of(interface);
    }
    let targets: Vec<_> = plan.all_addresses().iter().map(SocketAddr::ip).collect();
    PhysicalLine::towards(&targets)
}

/// What a collector has in the end.
#[derive(Debug, Default)]
struct CollectedRun {
    /// The bound on what this machine added to a latency.
    disturbed: Duration,
    /// How long all of this process stood still.
    gaps: Gaps,
    /// What came after the last whole interval, as one of a second.
    rest: Option<Interval>,
    fine: FineSeries,
}

/// Gathers the cores' words ten times a second: the latest snapshot, and the series second by second.
#[derive(Debug)]
struct Collector {
    boards: Vec<Arc<Board>>,
    addresses: Vec<SocketAddr>,
    next_deaf_look: Duration,
    latest: Arc<Mutex<Snapshot>>,
    begun: Instant,
    parts: Vec<Snapshot>,
    waiting: Vec<VecDeque<Mark>>,
    /// The final marks of cores that have ended.
    ended: Vec<Option<Mark>>,
    /// How long each sending thread has waited for its core so far, nanoseconds.
    waited: Vec<Option<u64>>,
    /// The most that any waited between two looks.
    most: u64,
    /// Processor time of each sending thread so far, nanoseconds.
    used: Vec<Option<u64>>,
    /// The sum of it when the current interval began.
    used_before: u64,
    last: Mark,
    series: Vec<Interval>,
    /// Seconds in an interval of the series.
    width: u32,
    merged: u32,
    fine: FineSeries,
}

impl Collector {
    fn new(boards: Vec<Arc<Board>>, addresses: Vec<SocketAddr>, latest: Arc<Mutex<Snapshot>>) -> Collector {
        let cores = boards.len();
        Collector {
            boards,
            addresses,
            next_deaf_look: DEAF_LOOK,
            latest,
            begun: Instant::now(),
            parts: vec![Snapshot::default(); cores],
            waiting: vec![VecDeque::new(); cores],
            ended: vec![None; cores],
            waited: vec![None; cores],
            most: 0,
            used: vec![None; cores],
            used_before: 0,
            last: Mark::default(),
            series: Vec::new(),
            width: 1,
            merged: 0,
            fine: FineSeries::default(),
        }
    }

    /// Until all is done.
    fn run(mut self, done: &AtomicBool) -> CollectedRun {
        let mut gaps = Gaps::default();
        while !done.load(Ordering::Relaxed) {
            let pause = self.fine.pause();
            let until = machine::monotonic_now() + pause;
            thread::sleep(pause);
            let now = machine::monotonic_now();
            if now - until >= STOPPED {
                gaps.note(until, now, self.parts.iter().any(|part| part.measuring));
            }
            self.collect();
            self.look_for_deafness();
        }
        self.collect();
        let rest = self.rest();
        CollectedRun { disturbed: Duration::from_nanos(self.most), gaps, rest, fine: self.fine }
    }

    /// What the cores had at their ends beyond the last interval, as one of a second.
    fn rest(&self) -> Option<Interval> {
        let ends: Option<Vec<&Mark>> = self.ended.iter().map(Option::as_ref).collect();
        let now = Mark::sum(ends?.into_iter());
        let [now_all, last_all] =
            [&now, &self.last].map(|m| m.answered + m.failed + m.unknown + m.bytes.sent);
        (now_all > last_all).then(|| self.since_last(&now, 1.0))
    }

    /// What came since the last interval ended, as one of so many seconds.
    fn since_last(&self, now: &Mark, seconds: f64) -> Interval {
        let (mut latency, mut waited) = (now.latency.clone(), now.waited.clone());
        latency.subtract(&self.last.latency);
        waited.subtract(&self.last.waited);
        let used: u64 = self.used.iter().flatten().sum();
        let busy = used.saturating_sub(self.used_before) as f64 / 1e9 / seconds;
        let interval = Interval {
            t_s: self.series.last().map_or(0.0, |i| i.t_s) + seconds,
            rate_rps: (now.answered - self.last.answered) as f64 / seconds,
            failed: now.failed - self.last.failed,
            unknown: now.unknown - self.last.unknown,
            bad: now.bad - self.last.bad,
            tcp: now.tcp.since(&self.last.tcp),
            segments: now.segments.map(|s| s.since(&self.last.segments.unwrap_or_default())),
            bytes: now.bytes.since(&self.last.bytes),
            client_busy: self.used.iter().any(Option::is_some).then_some(busy),
            spread: Spread::of(&latency),
            ..Interval::default()
        };
        let ranked = Ranked { good: &latency, waited: &waited };
        interval.with_percentiles(ranked, now.answered > self.last.answered)
    }

    /// A sample of all cores, by what each said last.
    fn sample(&mut self) {
        let Some(measured) = self.parts.iter().map(|part| part.measured).max().filter(|m| !m.is_zero())
        else {
            return;
        };
        let mut sample =
            FineSample { t_s: measured.as_secs_f64(), in_flight: Some(0), ..FineSample::default() };
        for (part, ended) in self.parts.iter().zip(&self.ended) {
            let r = &part.requests;
            let (counts, bytes, in_flight) = match ended {
                Some(end) => ([end.answered, end.failed, end.unknown, end.bad], end.bytes, 0),
                None => ([r.answered, r.failed, r.unknown, part.bad.total()], part.bytes, part.in_flight),
            };
            let sums = [&mut sample.answered, &mut sample.failed, &mut sample.unknown, &mut sample.bad];
            sums.into_iter().zip(counts).for_each(|(sum, n)| *sum += n);
            sample.bytes_sent += bytes.sent;
            sample.bytes_received += bytes.received;
            sample.in_flight = sample.in_flight.map(|n| n + in_flight);
        }
        let used: u64 = self.used.iter().flatten().sum();
        sample.client_cpu_s = self.used.iter().any(Option::is_some).then_some(used as f64 / 1e9);
        self.fine.push(sample);
    }

    /// While no byte has come back: does the server accept connections at all?
    fn look_for_deafness(&mut self) {
        let heard = self.parts.iter().any(|part| part.bytes.received > 0);
        let elapsed = self.begun.elapsed();
        if elapsed < self.next_deaf_look || heard {
            return;
        }
        self.next_deaf_look = elapsed + DEAF_LOOK;
        if let Some(board) = self.boards.first() {
            board.say_unaccepted(local::unaccepted(&self.addresses));
        }
    }

    /// A request that waits for our thread waits no longer than the thread waited for its core meanwhile.
    fn look_at_cores(&mut self) {
        for ((board, before), used) in self.boards.iter().zip(&mut self.waited).zip(&mut self.used) {
            let now = board.worker().and_then(machine::sched_stat_of);
            // A thread that has ended keeps what it used.
            *used = now.map(|s| s.on_cpu_ns).or(*used);
            let now = now.map(|s| s.waiting_ns);
            if let (Some(before), Some(now)) = (*before, now) {
                self.most = self.most.max(now.saturating_sub(before));
            }
            *before = now;
        }
    }

    fn collect(&mut self) {
        self.look_at_cores();
        for (i, board) in self.boards.iter().enumerate() {
            let (snapshot, marks, last) = board.collect();
            self.ended[i] = last;
            if let Some(snapshot) = snapshot {
                self.parts[i] = snapshot;
            }
            self.waiting[i].extend(marks);
        }
        if self.series.is_empty() && !self.parts.iter().any(|part| part.measuring) {
            self.used_before = self.used.iter().flatten().sum();
        }
        self.sample();
        while self.has_second() {
            self.finish_second();
        }
        let mut whole = Snapshot { elapsed: self.begun.elapsed(), measuring: true, ..Snapshot::default() };
        self.parts.iter().for_each(|part| whole.merge(part));
        let core = |(part, board): (&Snapshot, &Arc<Board>)| Core::of(part, board.worker());
        whole.cores = self.parts.iter().zip(&self.boards).map(core).collect();
        whole.series.clone_from(&self.series);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = whole;
    }

    /// Whether some core has ended a second, and all others have too, or will not.
    fn has_second(&self) -> bool {
        let some = self.waiting.iter().any(|marks| !marks.is_empty());
        some && self.waiting.iter().zip(&self.ended).all(|(marks, end)| !marks.is_empty() || end.is_some())
    }

    /// All cores have ended a second: one more interval, unless several are merged into one.
    fn finish_second(&mut self) {
        let marks = self.waiting.iter_mut().zip(&self.ended);
        let marks: Vec<Mark> =
            marks.filter_map(|(marks, end)| marks.pop_front().or_else(|| end.clone())).collect();
        let now = Mark::sum(marks.iter());
        self.merged += 1;
        if self.merged < self.width {
            return;
        }
        self.merged = 0;
        let interval = self.since_last(&now, f64::from(self.width));
        self.used_before = self.used.iter().flatten().sum();
        self.series.push(interval);
        self.last = now;
        if self.series.len() >= INTERVALS {
            self.halve();
        }
    }

    /// Merges pairs of intervals.
    fn halve(&mut self) {
        self.series = self.series.chunks(2).map(Interval::merged).collect();
        self.width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kinds::Kinds;
    use crate::engine::recorder::Recorder;
    use crate::plan::Target;
    use linerate_net::Time;

    /// A watcher that outlives the run, as that of a metrics server does, keeps nothing of it.
    #[test]
    fn the_log_of_requests_ends_with_the_run_however_long_it_is_watched() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::at(listener.local_addr().unwrap());
        drop(listener);
        let stop = crate::plan::Stop { requests: Some(4), duration: None };
        let plan = Plan { connections: 1, threads: Some(1), stop, ..Plan::get(target, "/") };
        let (to, entries) = request_log::channel();
        let running = start_logged(plan, to).unwrap();
        let watcher = running.watcher();
        running.join();
        let (ended, end) = std::sync::mpsc::channel();
        thread::spawn(move || {
            while entries.next().is_some() {}
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(10)).expect("the log ends");
        assert_eq!(watcher.flows(), Some(Vec::new()));
    }

    /// With many threads and few requests most threads end before the first second does.
    #[test]
    fn the_series_goes_on_when_a_core_has_ended() {
        let plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
        let kinds = Kinds::new(&plan, 0, 1).unwrap();
        let answered = |n| {
            let mut recorder = Recorder::new(Time::ZERO, false, &kinds, false);
            recorder.requests.answered = n;
            recorder
        };
        let boards = vec![Arc::new(Board::default()), Arc::new(Board::default())];
        let mut collector = Collector::new(boards.clone(), Vec::new(), Arc::default());
        boards[1].mark(&answered(10), None);
        collector.collect();
        assert!(collector.series.is_empty(), "the other core may still be in its first second");
        boards[0].mark_last(&answered(3), None);
        boards[1].mark(&answered(30), None);
        collector.collect();
        let rates: Vec<_> = collector.series.iter().map(|interval| interval.rate_rps).collect();
        assert_eq!(rates, [13.0, 20.0]);
        collector.collect();
        assert_eq!(collector.series.len(), 2);
    }
}
