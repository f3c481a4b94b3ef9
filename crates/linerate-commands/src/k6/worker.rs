//! One thread of a run: its users, and when they iterate.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::machine;
use linerate_script::schedule::{wanted_from, wanted_until};
use linerate_script::{
    CallEnd, Executor, RunMetrics, ScriptCall, ScriptHost, ScriptOptions, ScriptProgram, ScriptUser,
    UserAction, UserCallPlace, UserReply, UserScenario, built_in,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::host::RunHost;
use super::send::ScriptClients;
use super::shared::{CutSignal, EarlyEnd, RunShared};

/// What all threads do.
#[derive(Debug)]
pub(super) struct RunPlan {
    pub(super) program: Arc<ScriptProgram>,
    pub(super) options: Arc<ScriptOptions>,
    pub(super) shared: Arc<RunShared>,
    /// JSON of what `setup` returned.
    pub(super) setup: Option<Arc<str>>,
    pub(super) threads: usize,
    pub(super) runs: Vec<ScenarioRun>,
}

/// A scenario in a run.
#[derive(Debug)]
pub(super) struct ScenarioRun {
    pub(super) scenario: UserScenario,
    /// Users of the scenarios before it.
    first_user: u64,
    /// Iterations that have begun.
    begun: AtomicU64,
    name: Arc<str>,
    executor: Arc<str>,
    tags: Arc<[(String, String)]>,
    env: Arc<[(String, String)]>,
}

impl ScenarioRun {
    pub(super) fn all(options: &ScriptOptions) -> Vec<ScenarioRun> {
        let mut first_user = 1;
        let run = |scenario: &UserScenario| {
            let own = first_user;
            first_user += u64::from(scenario.executor.most_users());
            ScenarioRun {
                first_user: own,
                begun: AtomicU64::new(0),
                name: scenario.name.as_str().into(),
                executor: scenario.executor.name().into(),
                tags: options.tags.iter().chain(&scenario.tags).cloned().collect(),
                env: scenario.env.iter().cloned().collect(),
                scenario: scenario.clone(),
            }
        };
        options.scenarios.iter().map(run).collect()
    }

    /// Threads that take part in it.
    pub(super) fn threads(&self, all: usize) -> u64 {
        (all as u64).min(u64::from(self.scenario.executor.most_users())).max(1)
    }

    fn place(&self, in_scenario: u64) -> UserCallPlace {
        UserCallPlace {
            scenario: Arc::clone(&self.name),
            executor: Arc::clone(&self.executor),
            after: self.scenario.start,
            in_scenario,
            tags: Arc::clone(&self.tags),
            env: Arc::clone(&self.env),
        }
    }
}

/// One thread.
pub(super) struct Worker {
    pub(super) plan: Arc<RunPlan>,
    pub(super) index: u64,
    pub(super) metrics: Arc<Mutex<RunMetrics>>,
    pub(super) host: Rc<RunHost>,
    pub(super) clients: ScriptClients,
    pub(super) start: Cell<Instant>,
    /// Of all users.
    pub(super) cuts: RefCell<Vec<Rc<CutSignal>>>,
}

/// A user in a scenario.
pub(super) struct RunUser {
    user: ScriptUser,
    /// In its scenario, from 0.
    index: u64,
    iteration: u64,
    pub(super) cut: Rc<CutSignal>,
}

impl Worker {
    /// A user of this number in its scenario.
    pub(super) fn load(&self, run: &ScenarioRun, index: u64) -> Result<RunUser, String> {
        let number = run.first_user + index;
        let host = Rc::clone(&self.host) as Rc<dyn ScriptHost>;
        let program = Arc::clone(&self.plan.program);
        let loaded = ScriptUser::load(program, host, Arc::clone(&self.metrics), number);
        let (user, _) = loaded.map_err(|e| format!("user {number}: {e}"))?;
        let cut = Rc::<CutSignal>::default();
        self.cuts.borrow_mut().push(Rc::clone(&cut));
        self.plan.shared.users.fetch_add(1, Ordering::Relaxed);
        Ok(RunUser { user, index, iteration: 0, cut })
    }

    /// All users that are there from the start, by scenario.
    pub(super) fn load_all(&self) -> Result<Vec<Vec<RunUser>>, String> {
        let of = |run: &ScenarioRun| {
            let at_first = match &run.scenario.executor {
                Executor::ArrivalRate { pre_allocated, .. } => *pre_allocated,
                other => other.most_users(),
            };
            let threads = run.threads(self.plan.threads);
            let mine = (0..u64::from(at_first)).filter(|user| user % threads == self.index);
            mine.map(|user| self.load(run, user)).collect()
        };
        self.plan.runs.iter().map(of).collect()
    }

    /// Runs all scenarios to their end.
    pub(super) async fn run(self: Rc<Self>, users: Vec<Vec<RunUser>>) {
        let mut scenarios = JoinSet::new();
        for (at, users) in users.into_iter().enumerate() {
            let worker = Rc::clone(&self);
            scenarios.spawn_local(async move { worker.scenario(at, users).await });
        }
        let plan = Arc::clone(&self.plan);
        let mut ended = false;
        loop {
            tokio::select! {
                next = scenarios.join_next() => if next.is_none() { return },
                () = plan.shared.wait_end(), if !ended => {
                    ended = true;
                    self.cuts.borrow().iter().for_each(|cut| cut.cut());
                }
            }
        }
    }

    async fn scenario(self: Rc<Self>, at: usize, users: Vec<RunUser>) {
        let run = &self.plan.runs[at];
        let begin = self.start.get() + run.scenario.start;
        tokio::select! {
            () = sleep_until(begin) => {}
            () = self.plan.shared.wait_end() => return,
        }
        let end = begin + run.scenario.executor.duration();
        let cuts: Vec<_> = users.iter().map(|user| Rc::clone(&user.cut)).collect();
        let mut tasks = JoinSet::new();
        if matches!(run.scenario.executor, Executor::ArrivalRate { .. }) {
            let worker = Rc::clone(&self);
            tasks.spawn_local(async move { super::arrivals::arrive(worker, at, users, begin).await });
        } else {
            for user in users {
                let worker = Rc::clone(&self);
                tasks.spawn_local(async move { worker.user(at, user, begin, end).await });
            }
        }
        let mut is_cut = false;
        loop {
            tokio::select! {
                next = tasks.join_next() => match next {
                    None => return,
                    Some(Err(error)) => self.plan.shared.end(EarlyEnd::Broken(format!("a user panicked: {error}"))),
                    Some(Ok(())) => {}
                },
                () = sleep_until(end + run.scenario.graceful_stop), if !is_cut => {
                    is_cut = true;
                    cuts.iter().for_each(|cut| cut.cut());
                }
            }
        }
    }

    /// A user's iterations, one after the other.
    async fn user(self: Rc<Self>, at: usize, mut user: RunUser, begin: Instant, end: Instant) {
        let run = &self.plan.runs[at];
        match &run.scenario.executor {
            Executor::ConstantVus { .. } => {
                while Instant::now() < end && self.iterate(run, &mut user).await {}
            }
            Executor::PerVuIterations { iterations, .. } => {
                let mut left = *iterations;
                while left > 0 && Instant::now() < end && self.iterate(run, &mut user).await {
                    left -= 1;
                }
            }
            Executor::SharedIterations { iterations, .. } => {
                while Instant::now() < end && run.begun.load(Ordering::Relaxed) < *iterations {
                    let number = run.begun.fetch_add(1, Ordering::Relaxed);
                    if number >= *iterations || !self.iterate_as(run, &mut user, number).await {
                        break;
                    }
                }
            }
            Executor::RampingVus { start, stages, graceful_ramp_down } => {
                let place = u32::try_from(user.index).unwrap_or(u32::MAX);
                while let Some(from) = wanted_from(*start, stages, place, begin.elapsed()) {
                    if user.cut.unless_cut(sleep_until(begin + from)).await.is_none() {
                        break;
                    }
                    let until = begin + wanted_until(*start, stages, place, from);
                    if !self.ramped(run, &mut user, until, *graceful_ramp_down).await {
                        break;
                    }
                }
            }
            Executor::ArrivalRate { .. } => {}
        }
        self.plan.shared.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Iterates as long as the user is wanted. Whether it may be wanted again.
    async fn ramped(
        &self,
        run: &ScenarioRun,
        user: &mut RunUser,
        until: Instant,
        graceful: Duration,
    ) -> bool {
        let (cut, is_ramped) = (Rc::clone(&user.cut), Rc::new(Cell::new(false)));
        let seen = Rc::clone(&is_ramped);
        let timer = tokio::task::spawn_local(async move {
            sleep_until(until + graceful).await;
            seen.set(true);
            cut.cut();
        });
        while Instant::now() < until && self.iterate(run, user).await {}
        timer.abort();
        if is_ramped.get() && self.plan.shared.ended().is_none() {
            user.cut.reset();
        }
        // It may have ended a moment early.
        sleep_until(until).await;
        !user.cut.is_cut()
    }

    async fn iterate(&self, run: &ScenarioRun, user: &mut RunUser) -> bool {
        let number = run.begun.fetch_add(1, Ordering::Relaxed);
        self.iterate_as(run, user, number).await
    }

    /// One iteration; whether the user may go on.
    pub(super) async fn iterate_as(&self, run: &ScenarioRun, user: &mut RunUser, in_scenario: u64) -> bool {
        if user.cut.is_cut() {
            return false;
        }
        let shared = &self.plan.shared;
        let since = machine::monotonic_now();
        let call = ScriptCall {
            function: run.scenario.exec.clone(),
            argument: self.plan.setup.clone(),
            iteration: user.iteration,
            place: run.place(in_scenario),
        };
        user.iteration += 1;
        shared.begun.fetch_add(1, Ordering::Relaxed);
        shared.active.fetch_add(1, Ordering::Relaxed);
        let end = self.call(&mut user.user, user.index as usize, &user.cut, call).await;
        shared.active.fetch_sub(1, Ordering::Relaxed);
        match end {
            CallEnd::Stopped => {
                shared.interrupted.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            CallEnd::Aborted(reason) => {
                // As k6 has it: this iteration counts.
                user.user.iterated((machine::monotonic_now() - since).as_secs_f64() * 1e3);
                shared.completed.fetch_add(1, Ordering::Relaxed);
                shared.end(EarlyEnd::Aborted(reason));
                return false;
            }
            CallEnd::Threw(why) => self.host.log("error", &why),
            CallEnd::Returned(_) => {}
        }
        let took = machine::monotonic_now() - since;
        user.user.iterated(took.as_secs_f64() * 1e3);
        shared.completed.fetch_add(1, Ordering::Relaxed);
        let rest = self.plan.options.min_iteration.saturating_sub(took);
        if rest.is_zero() {
            // Others get their turn even if the script neither sends nor sleeps.
            tokio::task::yield_now().await;
            return true;
        }
        user.cut.unless_cut(sleep(rest)).await.is_some()
    }

    /// A call of a script, to its end.
    pub(super) async fn call(
        &self,
        user: &mut ScriptUser,
        number: usize,
        cut: &CutSignal,
        call: ScriptCall,
    ) -> CallEnd {
        let mut reply = UserReply::Call(call);
        loop {
            let since = machine::monotonic_now();
            let action = user.resume(reply);
            let ran = (machine::monotonic_now() - since).as_nanos();
            self.plan.shared.script_ns.fetch_add(u64::try_from(ran).unwrap_or(u64::MAX), Ordering::Relaxed);
            reply = match action {
                UserAction::Ended(end) => return end,
                UserAction::Sleep(time) => match cut.unless_cut(sleep(time)).await {
                    Some(()) => UserReply::Slept,
                    None => UserReply::Stop,
                },
                UserAction::Send(batch) => {
                    match cut.unless_cut(self.clients.send(user, number, batch)).await {
                        Some(ended) => UserReply::Responses(ended),
                        None => UserReply::Stop,
                    }
                }
            };
        }
    }

    /// Counts iterations that no user was there for.
    pub(super) fn dropped(&self, run: &ScenarioRun) {
        let tags = linerate_script::SampleTags { scenario: &run.name, wide: &run.tags, ..Default::default() };
        let mut metrics = self.metrics.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        metrics.add(built_in::DROPPED, 1.0, &tags);
    }

    pub(super) fn begun(&self, run: &ScenarioRun) -> u64 {
        run.begun.fetch_add(1, Ordering::Relaxed)
    }
}
