//! What a user's script and the run share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_base::{Random, Time};

use crate::action::{
    ExpectedStatuses, QueuedRequest, UserAction, UserCallPlace, UserReply, UserRequest, UserResponse,
};
use crate::exchange::UserJars;
use crate::jar::ScriptJar;
use crate::limits::{GROUPS, LONGEST_RUN, USER_MEMORY};
use crate::metrics::RunMetrics;
use crate::program::ScriptProgram;
use crate::sample::SampleTags;

/// The run, as far as a script sees it.
pub trait ScriptHost {
    /// The time.
    fn now(&self) -> Time;
    /// Writes a line of the script's console, or one about it. `level`: `info`, `warning` ...
    fn log(&self, level: &str, text: &str);
    /// The state of the run.
    fn facts(&self) -> RunFacts;
    /// The script says that the run has failed.
    fn fail(&self, reason: &str);
    /// How long a script may run without a request or a pause.
    fn longest_run(&self) -> Duration {
        LONGEST_RUN
    }
    /// Bytes of JavaScript's own memory in one user.
    fn memory(&self) -> usize {
        USER_MEMORY
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// Since its start, milliseconds.
    pub elapsed_ms: f64,
    /// Its start, milliseconds since 1970.
    pub start_ms: f64,
    /// Whole iterations.
    pub completed: u64,
    /// Those cut off.
    pub interrupted: u64,
    /// Users within an iteration.
    pub active: u64,
    /// Users that there are.
    pub users: u64,
}

/// A user, seen from its script.
pub(crate) struct UserState {
    pub(crate) program: Arc<ScriptProgram>,
    pub(crate) host: Rc<dyn ScriptHost>,
    pub(crate) metrics: Arc<Mutex<RunMetrics>>,
    /// `__VU`
    pub(crate) number: u64,
    pub(crate) jars: UserJars,
    action: RefCell<Option<UserAction>>,
    reply: RefCell<Option<UserReply>>,
    pub(crate) place: RefCell<UserCallPlace>,
    pub(crate) iteration: Cell<u64>,
    /// `::a::b`, and those around it.
    groups: RefCell<Vec<Arc<str>>>,
    group: RefCell<Arc<str>>,
    groups_seen: Cell<usize>,
    /// Tags of all its samples: those of run and scenario, and its own.
    pub(crate) wide: RefCell<Vec<(String, String)>>,
    pub(crate) own_tags: RefCell<Vec<(String, String)>>,
    pub(crate) expected: RefCell<Option<ExpectedStatuses>>,
    pub(crate) random: RefCell<Random>,
    /// The script is being loaded.
    pub(crate) is_loading: Cell<bool>,
    stopped: Cell<bool>,
    /// It ran for too long.
    overran: Cell<bool>,
    aborted: RefCell<Option<String>>,
    refused: RefCell<Option<String>>,
    resumed: Cell<Time>,
    /// Requests that leave at the next turn.
    pub(super) queued: RefCell<Vec<QueuedRequest>>,
    /// Jars that its init code has made, and its own: they stay from one iteration to the next.
    pub(super) lasting_jars: Cell<usize>,
    /// There are timers, such requests, or promises that nobody caught.
    pub(super) has_background: Cell<bool>,
    modules: Cell<usize>,
}

impl UserState {
    pub(crate) fn new(
        program: Arc<ScriptProgram>,
        host: Rc<dyn ScriptHost>,
        metrics: Arc<Mutex<RunMetrics>>,
        number: u64,
    ) -> UserState {
        let jars = UserJars::default();
        jars.0.borrow_mut().push(ScriptJar::default());
        let now = host.now();
        UserState {
            random: RefCell::new(Random::new(now.as_nanos() ^ number)),
            program,
            host,
            metrics,
            number,
            jars,
            action: RefCell::default(),
            reply: RefCell::default(),
            place: RefCell::default(),
            iteration: Cell::new(0),
            groups: RefCell::default(),
            group: RefCell::new("".into()),
            groups_seen: Cell::new(0),
            wide: RefCell::default(),
            own_tags: RefCell::default(),
            expected: RefCell::new(Some(ExpectedStatuses::default())),
            is_loading: Cell::new(true),
            stopped: Cell::new(false),
            overran: Cell::new(false),
            aborted: RefCell::default(),
            refused: RefCell::default(),
            resumed: Cell::new(now),
            queued: RefCell::default(),
            lasting_jars: Cell::new(1),
            has_background: Cell::new(false),
            modules: Cell::new(0),
        }
    }

    pub(crate) fn metrics(&self) -> MutexGuard<'_, RunMetrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Within the user's coroutine: says what it wants, and waits for the reply.
    pub(super) fn ask(&self, action: UserAction) -> UserReply {
        *self.action.borrow_mut() = Some(action);
        super::stack::rest();
        let reply = self.reply.borrow_mut().take().unwrap_or(UserReply::Stop);
        if matches!(reply, UserReply::Stop) {
            self.stopped.set(true);
        }
        reply
    }

    /// From outside: gives the reply, before the coroutine goes on.
    pub(super) fn give(&self, reply: UserReply) {
        self.resumed.set(self.host.now());
        *self.reply.borrow_mut() = Some(reply);
    }

    /// From outside: what the coroutine wants, after it has paused.
    pub(super) fn wanted(&self) -> Option<UserAction> {
        self.action.borrow_mut().take()
    }

    /// Whether what runs is to be cut off.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// A call begins.
    pub(super) fn begin(&self, place: UserCallPlace, iteration: u64) {
        self.iteration.set(iteration);
        let mut wide = place.tags.to_vec();
        wide.extend(self.own_tags.borrow().iter().cloned());
        *self.wide.borrow_mut() = wide;
        *self.place.borrow_mut() = place;
        self.groups.borrow_mut().clear();
        *self.group.borrow_mut() = "".into();
        self.overran.set(false);
        let keeps = self.program.options().is_some_and(|options| options.no_cookies_reset);
        let mut jars = self.jars.0.borrow_mut();
        jars.truncate(self.lasting_jars.get());
        if let Some(jar) = jars.first_mut().filter(|_| !keeps) {
            jar.clear();
        }
    }

    /// Whether the script is to be interrupted.
    pub(super) fn interrupts(&self) -> bool {
        if self.host.now() - self.resumed.get() > self.host.longest_run() {
            self.overran.set(true);
            return true;
        }
        self.stopped.get() || self.aborted.borrow().is_some()
    }

    /// Why it was interrupted, if it ran for too long.
    pub(super) fn overrun(&self) -> Option<String> {
        let words = || {
            let seconds = self.host.longest_run().as_secs_f64();
            format!(
                "the script ran for {seconds} s without a request or a pause, so it was cut off\nhint: look for an endless loop"
            )
        };
        self.overran.take().then(words)
    }

    pub(super) fn abort(&self, reason: &str) {
        self.aborted.borrow_mut().get_or_insert_with(|| reason.to_owned());
    }

    pub(super) fn take_abort(&self) -> Option<String> {
        self.aborted.borrow_mut().take()
    }

    pub(super) fn refuse(&self, why: &str) {
        self.refused.borrow_mut().get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn take_refusal(&self) -> Option<String> {
        self.refused.borrow_mut().take()
    }

    pub(super) fn count_module(&self) -> usize {
        self.modules.set(self.modules.get() + 1);
        self.modules.get()
    }

    pub(crate) fn group(&self) -> Arc<str> {
        Arc::clone(&self.group.borrow())
    }

    pub(super) fn enter_group(&self, name: &str) -> Result<(), String> {
        self.groups_seen.set(self.groups_seen.get() + 1);
        let mut groups = self.groups.borrow_mut();
        if groups.len() >= GROUPS {
            return Err(format!("more than {GROUPS} groups within each other"));
        }
        if name.contains("::") {
            return Err(format!("the group {name:?} cannot have :: in its name"));
        }
        let whole = format!("{}::{name}", self.group.borrow()).into();
        groups.push(self.group.replace(whole));
        Ok(())
    }

    /// Leaves a group that was entered this long ago.
    pub(super) fn leave_group(&self, took: Duration) {
        let around = self.groups.borrow_mut().pop();
        let group = self.group();
        self.sampled(|metrics, tags| {
            let tags = SampleTags { group: &group, ..tags };
            metrics.add(crate::metrics::built_in::GROUP_DURATION, took.as_secs_f64() * 1e3, &tags);
        });
        *self.group.borrow_mut() = around.unwrap_or_else(|| "".into());
    }

    /// Counts samples with the tags of this user.
    pub(crate) fn sampled(&self, f: impl FnOnce(&mut RunMetrics, SampleTags<'_>)) {
        let (place, wide, group) = (self.place.borrow(), self.wide.borrow(), self.group());
        let tags =
            SampleTags { group: &group, scenario: &place.scenario, check: None, custom: &[], wide: &wide };
        f(&mut self.metrics(), tags);
    }

    /// Counts a request.
    pub(crate) fn record(&self, request: &UserRequest, response: &UserResponse) {
        self.sampled(|metrics, tags| metrics.request(request, response, tags));
    }
}
