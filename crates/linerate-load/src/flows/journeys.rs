//! The machine of users: what each does next, and when it is due. No I/O, no clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_base::{Random, Time, derive};
use linerate_net::Conn;

use crate::extract::expect::{ResponseTest, StepExpect};
use crate::extract::jar::{CookieHost, CookieJar, SetCookie};
use crate::extract::reading::{StepReads, StepTake};
use crate::extract::redirect;
use crate::extract::take::Extractor;
use crate::limits::{FLOW_CAUSES, REFUSED_PAUSE};
use crate::outcome::FlowFigures;
use crate::plan::flow::{FlowPlan, Think, UserPace};
use crate::plan::schedule::Schedule;
use crate::plan::{Pace, Plan, Rate};

/// Rows of all data sets, by set, then by row.
pub(crate) type DataRows = Vec<Vec<Vec<Box<[u8]>>>>;

/// The users of one core. Its supply, its templates and its recorder share them.
#[derive(Clone, Debug)]
pub(crate) struct Journeys(Arc<Mutex<JourneyState>>);

/// The end of a request, as far as its user is concerned.
#[derive(Debug)]
pub(crate) enum StepEnd<'a> {
    /// A good response, with what the step takes from it.
    Good(Vec<Vec<u8>>, &'a [SetCookie]),
    /// A redirect that is followed: where to, and whether by a GET in any case.
    Moved { to: &'a [u8], by_get: bool, cookies: &'a [SetCookie] },
    /// A response that was not good: why.
    Bad(&'a str, &'a [SetCookie]),
    /// No response: why.
    Lost(&'a str),
    /// Nobody knows what became of it, maybe because the run is over.
    Unknown,
}

/// When users come.
#[derive(Debug)]
enum Comings {
    Always,
    Stages(Rate),
    Arriving(Schedule),
}

/// Which users a request is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsersOf {
    /// All: connections belong to nobody.
    Anyone,
    /// Those with a connection of their own.
    Connections,
    /// Those that still need one.
    NoConnection,
}

#[derive(Debug)]
struct JourneyState {
    comings: Comings,
    start: Time,
    /// Users at the same time, at most.
    most: u64,
    /// Places of users that are gone.
    free: Vec<u32>,
    /// Each user has a connection of its own.
    own_connections: bool,
    /// When users are due that need a connection first.
    unbound: BinaryHeap<Reverse<(Time, u32)>>,
    /// Connections whose user is gone.
    released: Vec<Conn>,
    /// How long iterations may go on after the end, and until when once that is known.
    graceful: Duration,
    last: Option<Time>,
    core: u64,
    flows: Vec<FlowRun>,
    /// The sum of all weights.
    weights: f64,
    rows: Arc<DataRows>,
    /// Cells of the data before the values of a user.
    data_cells: usize,
    /// Cells of a user.
    cells: usize,
    users: Vec<JourneyUser>,
    /// When users are due.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    /// Users whose request is in flight, by its number.
    flights: HashMap<u64, StepFlight>,
    /// Number of the next request.
    next: u64,
    /// Iterations that may still begin, and the number of the next one in the whole run.
    left: u64,
    next_iteration: u64,
    cores: u64,
    /// Users within an iteration.
    active: u64,
    host: CookieHost,
    authority: String,
    /// Requests of the plan.
    requests: u16,
    keep_cookies: bool,
    seed: u64,
    measure_from: Time,
    stopped: bool,
}

#[derive(Debug)]
struct FlowRun {
    name: String,
    weight: f64,
    steps: Vec<StepRun>,
    figures: FlowFigures,
}

#[derive(Debug)]
struct StepRun {
    name: String,
    request: u16,
    repeat: u32,
    follow: u32,
    /// Places of the values that it takes.
    values: Vec<usize>,
    think: Think,
}

#[derive(Debug)]
struct JourneyUser {
    random: Random,
    /// Its number in the whole run, from 0.
    number: u64,
    /// Its own connection.
    conn: Option<Conn>,
    /// Redirects of this step so far, and whether the next request is a GET because of them.
    redirects: u32,
    by_get: bool,
    /// The step of an iteration, and how often it was made in a row. `None`: between two iterations.
    at: Option<StepPlace>,
    /// When the iteration was due.
    since: Time,
    /// The row of its templates: data, values, cookies.
    cells: Vec<Box<[u8]>>,
    jar: CookieJar,
}

#[derive(Clone, Copy, Debug)]
struct StepPlace {
    flow: usize,
    step: usize,
    made: u32,
}

#[derive(Debug)]
struct StepFlight {
    user: u32,
    kind: u16,
    target: Vec<u8>,
}

impl Comings {
    fn of(pace: &UserPace, seed: u64, (core, cores): (u64, u64)) -> Comings {
        match pace {
            UserPace::Always => Comings::Always,
            UserPace::Stages(stages) => Comings::Stages(stages.clone()),
            UserPace::Arriving(rate, arrival) => {
                let pace = Pace::Open { rate: rate.clone(), arrival: *arrival };
                let part = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                let schedule = Schedule::new(&pace, seed, part(core), part(cores));
                schedule.map_or(Comings::Always, Comings::Arriving)
            }
        }
    }
}

impl JourneyUser {
    fn new(seed: u64, number: u64, cells: usize) -> JourneyUser {
        JourneyUser {
            random: Random::new(derive(seed, 0x75_73_65_72 + number)),
            number,
            conn: None,
            redirects: 0,
            by_get: false,
            at: None,
            since: Time::ZERO,
            cells: vec![Box::default(); cells],
            jar: CookieJar::default(),
        }
    }
}

/// What each step reads of its response, by its request.
pub(crate) fn reads(plan: &Plan, flows: &FlowPlan) -> Result<Vec<StepReads>, String> {
    let names = flows.names();
    let mut reads: Vec<StepReads> = plan.requests.iter().map(|_| StepReads::default()).collect();
    for step in flows.flows.iter().flat_map(|flow| &flow.steps) {
        let place = reads.get_mut(step.request as usize).ok_or("a step has no request")?;
        if let Some(expect) = &step.expect {
            let tests = expect.parts.iter().map(|(from, wanted)| ResponseTest::new(from, wanted.as_deref()));
            let tests = tests.collect::<Result<Vec<_>, _>>()?;
            place.expect = Some(StepExpect { tests, max: expect.max });
        }
        for rule in &step.take {
            let from = Extractor::parse(&rule.from).map_err(|why| format!("{}: {why}", rule.name))?;
            let value = names.iter().position(|name| *name == rule.name).ok_or("a value has no name")?;
            place.takes.push(StepTake { value, shown: format!("{} = {:?}", rule.name, rule.from), from });
        }
    }
    Ok(reads)
}

impl Journeys {
    /// The users of core number `core` of `cores`. They are idle until [`Journeys::start`].
    pub(crate) fn new(
        plan: &Plan,
        flows: &FlowPlan,
        reads: &[StepReads],
        rows: Arc<DataRows>,
        (core, cores): (u64, u64),
    ) -> Journeys {
        let step = |step: &crate::plan::flow::FlowStep| StepRun {
            name: plan.requests.get(step.request as usize).map(|r| r.name.clone()).unwrap_or_default(),
            request: u16::try_from(step.request).unwrap_or(u16::MAX),
            repeat: step.repeat.max(1),
            follow: step.follow,
            values: reads
                .get(step.request as usize)
                .map_or(Vec::new(), |t| t.takes.iter().map(|t| t.value).collect()),
            think: step.think,
        };
        let run = |flow: &crate::plan::flow::UserFlow| FlowRun {
            name: flow.name.clone(),
            weight: flow.weight,
            steps: flow.steps.iter().map(step).collect(),
            figures: FlowFigures::default(),
        };
        let runs: Vec<FlowRun> = flows.flows.iter().map(run).collect();
        let data_cells = rows.iter().map(|set| set.first().map_or(0, Vec::len)).sum();
        let cells = data_cells + flows.names().len() + 2;
        let share = |all: u64| all / cores + u64::from(all % cores > core);
        let most = share(u64::from(flows.users));
        let comings = Comings::of(&flows.pace, plan.seed, (core, cores));
        let at_first = if matches!(comings, Comings::Arriving(_)) { 0 } else { most };
        let user = |n| JourneyUser::new(plan.seed, n * cores + core, cells);
        let authority = plan.target.authority.as_str();
        let name = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        Journeys(Arc::new(Mutex::new(JourneyState {
            comings,
            start: Time::ZERO,
            most,
            free: Vec::new(),
            own_connections: flows.own_connections,
            unbound: BinaryHeap::new(),
            released: Vec::new(),
            graceful: flows.graceful,
            last: None,
            core,
            cells,
            weights: runs.iter().map(|flow| flow.weight).sum(),
            flows: runs,
            rows,
            data_cells,
            users: (0..at_first).map(user).collect(),
            due: BinaryHeap::new(),
            flights: HashMap::new(),
            next: 0,
            left: flows.iterations.map_or(u64::MAX, share),
            next_iteration: core,
            cores,
            active: 0,
            host: CookieHost {
                name: name.map_or(authority, |(name, _)| name).to_owned(),
                is_https: plan.tls.is_some(),
            },
            authority: authority.to_owned(),
            requests: u16::try_from(plan.requests.len()).unwrap_or(u16::MAX),
            keep_cookies: flows.keep_cookies,
            seed: plan.seed,
            measure_from: Time::ZERO,
            stopped: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, JourneyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Users come from `start` on; iterations that are due from `measure_from` on count.
    pub(crate) fn start(&self, start: Time, measure_from: Time) {
        let mut state = self.lock();
        (state.start, state.measure_from) = (start, measure_from);
        if !matches!(state.comings, Comings::Arriving(_)) {
            (0..state.users.len()).for_each(|user| state.rest(user as u32, start));
        }
    }

    /// Joins a run late: users that were due before `from` have not come.
    pub(crate) fn join(&self, from: Time) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.count_unstarted(from);
        if let Comings::Arriving(schedule) = &mut state.comings {
            while schedule.peek().is_some_and(|ns| state.start + Duration::from_nanos(ns) < from) {
                schedule.pop();
            }
        }
        let users = state.users.len();
        (state.due, state.unbound) = Default::default();
        (0..users).for_each(|user| state.rest(user as u32, from));
    }

    /// The number in the whole run of the user whose request this is.
    pub(crate) fn user(&self, number: u64) -> Option<u64> {
        let state = self.lock();
        state.flights.get(&number).map(|flight| state.users[flight.user as usize].number)
    }

    /// Takes a user that is due at `now`: the number of its request, and since when it was due.
    pub(crate) fn take(&self, now: Time, of: UsersOf) -> Option<(u64, Time)> {
        let mut state = self.lock();
        loop {
            let (due, user) = state.pop_due(now, of)?;
            if state.users[user as usize].at.is_none() && !state.begin(user, due) {
                continue;
            }
            let Some(place) = state.users[user as usize].at else { continue };
            let kind = state.kind_of(user, place);
            let number = state.next;
            state.next += 1;
            state.flights.insert(number, StepFlight { user, kind, target: Vec::new() });
            return Some((number, due));
        }
    }

    /// When the next user is due.
    pub(crate) fn next_due(&self, of: UsersOf) -> Option<Time> {
        let state = self.lock();
        if state.stopped || state.is_over() {
            return None;
        }
        let with = state.due.peek().map(|Reverse((due, _))| *due);
        match of {
            UsersOf::Connections => with,
            UsersOf::NoConnection => state.next_unbound(),
            UsersOf::Anyone => with.into_iter().chain(state.next_unbound()).min(),
        }
    }

    /// Whether each user has a connection of its own.
    pub(crate) fn own_connections(&self) -> bool {
        self.lock().own_connections
    }

    /// Users that there may be at a time, as far as connections have to be open for them.
    pub(crate) fn wanted(&self, now: Time) -> u32 {
        let state = self.lock();
        let wanted = match &state.comings {
            Comings::Stages(stages) if !state.own_connections => {
                let all = stages.at(now - state.start);
                // Users are dealt out like everything else.
                let mine = (all as u64).saturating_sub(state.core).div_ceil(state.cores);
                mine.max(state.active).max(1)
            }
            _ => state.most,
        };
        u32::try_from(wanted).unwrap_or(u32::MAX)
    }

    /// The connection of the user that is due first.
    pub(crate) fn due_connection(&self, now: Time) -> Option<Conn> {
        let state = self.lock();
        let Reverse((due, user)) = *state.due.peek()?;
        state.users[user as usize].conn.filter(|_| due <= now && !state.stopped)
    }

    /// The connection of the user that is due first takes nothing more: it needs another one.
    pub(crate) fn unbind_first(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(Reverse((due, user))) = state.due.pop() else { return };
        state.released.extend(state.users[user as usize].conn.take());
        state.unbound.push(Reverse((due, user)));
    }

    /// A request leaves on this connection, which is its user's from now on.
    pub(crate) fn bind(&self, number: u64, conn: Conn) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(flight) = state.flights.get(&number).filter(|_| state.own_connections) else { return };
        let before = state.users[flight.user as usize].conn.replace(conn);
        state.released.extend(before.filter(|before| *before != conn));
    }

    /// Connections whose user is gone, each once.
    pub(crate) fn released(&self) -> Vec<Conn> {
        std::mem::take(&mut self.lock().released)
    }

    /// No iteration begins from `now` on, and those that began may go on for a while.
    pub(crate) fn close(&self, now: Time) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.last.is_some() {
            return;
        }
        state.count_unstarted(now);
        let last = now + state.graceful;
        state.last = Some(last);
        let waiting = std::mem::take(&mut state.due).into_iter().chain(std::mem::take(&mut state.unbound));
        for Reverse((due, user)) in waiting.collect::<Vec<_>>() {
            if state.users[user as usize].at.is_some() {
                state.wait(user, due);
            }
        }
    }

    /// Whether no request follows.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// No step begins from now on.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.stopped, true) {
            return;
        }
        while let Some(Reverse((_, user))) = state.due.pop().or_else(|| state.unbound.pop()) {
            state.stop_user(user);
        }
    }

    /// The kind of a request in flight.
    pub(crate) fn kind(&self, number: u64) -> u16 {
        self.lock().flights.get(&number).map_or(0, |flight| flight.kind)
    }

    /// Looks at the row of a request in flight.
    pub(crate) fn with_cells<R>(&self, number: u64, look: impl FnOnce(&[Box<[u8]>]) -> R) -> R {
        let state = self.lock();
        let user = state.flights.get(&number).map(|flight| &state.users[flight.user as usize]);
        match user {
            Some(user) => look(&user.cells),
            None => look(&vec![Box::default(); state.cells]),
        }
    }

    /// The target of a request is known: fills its cookies in. Says whether there are any.
    pub(crate) fn fill_cookies(&self, number: u64, target: Vec<u8>, kind_with: u16, now: Time) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(flight) = state.flights.get_mut(&number) else { return false };
        let user = &mut state.users[flight.user as usize];
        let field = user.jar.field(&state.host, &target, now);
        flight.target = target;
        let has_cookies = !field.is_empty();
        if has_cookies {
            flight.kind = kind_with;
        }
        if let Some(cell) = user.cells.last_mut() {
            *cell = field.into();
        }
        has_cookies
    }

    /// A request that was taken ended.
    pub(crate) fn ended(&self, number: u64, end: StepEnd<'_>, now: Time) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(StepFlight { user, target, .. }) = state.flights.remove(&number) else { return };
        if let StepEnd::Good(_, cookies) | StepEnd::Bad(_, cookies) | StepEnd::Moved { cookies, .. } = end {
            let jar = &mut state.users[user as usize].jar;
            cookies.iter().for_each(|cookie| jar.store(cookie, &state.host, &target, now));
        }
        match end {
            StepEnd::Good(values, _) => state.advance(user, values, now),
            StepEnd::Moved { to, by_get, .. } => state.follow(user, (&target, to, by_get), now),
            StepEnd::Bad(why, _) => state.fail(user, why, now, Duration::ZERO),
            // Without a pause it would fail again and again at the same moment.
            StepEnd::Lost(why) => state.fail(user, why, now, REFUSED_PAUSE),
            StepEnd::Unknown if state.stopped => state.stop_user(user),
            StepEnd::Unknown => state.fail(user, "the outcome is unknown", now, REFUSED_PAUSE),
        }
    }

    /// What iterations became, at the end of the run.
    pub(crate) fn figures(&self) -> Vec<(String, FlowFigures)> {
        self.stop();
        let mut state = self.lock();
        for (_, flight) in std::mem::take(&mut state.flights) {
            state.stop_user(flight.user);
        }
        state.flows.iter_mut().map(|flow| (flow.name.clone(), std::mem::take(&mut flow.figures))).collect()
    }
}

impl JourneyState {
    fn is_over(&self) -> bool {
        let is_waited_for = self.due.is_empty() && self.unbound.is_empty() && self.next_arrival().is_none();
        self.active == 0 && (self.left == 0 || self.last.is_some() || is_waited_for)
    }

    /// When the next new user comes, if it may.
    fn next_arrival(&self) -> Option<Time> {
        let Comings::Arriving(schedule) = &self.comings else { return None };
        let may = self.left > 0 && self.last.is_none() && self.active < self.most;
        schedule.peek().filter(|_| may).map(|ns| self.start + Duration::from_nanos(ns))
    }

    fn next_unbound(&self) -> Option<Time> {
        let waiting = self.unbound.peek().map(|Reverse((due, _))| *due);
        waiting.into_iter().chain(self.next_arrival()).min()
    }

    /// The user that is due first, and since when.
    fn pop_due(&mut self, now: Time, of: UsersOf) -> Option<(Time, u32)> {
        if self.stopped {
            return None;
        }
        let is_due = |heap: &BinaryHeap<Reverse<(Time, u32)>>| {
            heap.peek().is_some_and(|Reverse((due, _))| *due <= now)
        };
        if of != UsersOf::NoConnection && is_due(&self.due) {
            return self.due.pop().map(|Reverse(next)| next);
        }
        let next = self.next_unbound().filter(|due| *due <= now && of != UsersOf::Connections)?;
        if self.unbound.peek().is_some_and(|Reverse((due, _))| *due == next) {
            return self.unbound.pop().map(|Reverse(next)| next);
        }
        Some((next, self.arrive()))
    }

    /// A new user comes: it has nothing yet.
    fn arrive(&mut self) -> u32 {
        let Comings::Arriving(schedule) = &mut self.comings else { return 0 };
        let number = schedule.popped() * self.cores + self.core;
        schedule.pop();
        let user = JourneyUser::new(self.seed, number, self.cells);
        match self.free.pop() {
            Some(place) => {
                self.users[place as usize] = user;
                place
            }
            None => {
                self.users.push(user);
                self.users.len() as u32 - 1
            }
        }
    }

    /// Users that were due and found no place until the end.
    fn count_unstarted(&mut self, now: Time) {
        let Comings::Arriving(schedule) = &self.comings else { return };
        let warm = schedule.due_before(self.measure_from.nanos_since(self.start));
        let due = schedule.due_before(now.nanos_since(self.start));
        let mut left = due.saturating_sub(warm).min(self.left);
        for flow in &mut self.flows {
            let share = ((due as f64 * flow.weight / self.weights).round() as u64).min(left);
            flow.figures.unstarted += share;
            left -= share;
        }
        if let Some(flow) = self.flows.last_mut() {
            flow.figures.unstarted += left;
        }
    }

    /// Begins an iteration, if there is one left.
    fn begin(&mut self, user: u32, due: Time) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= u64::from(self.left != u64::MAX);
        let number = self.next_iteration;
        self.next_iteration += self.cores;
        self.active += 1;
        let mut draw = Random::new(derive(self.seed, 0x66_6c_6f_77 + number)).unit() * self.weights;
        let chosen = self.flows.iter().position(|flow| {
            draw -= flow.weight;
            draw < 0.0
        });
        let flow = chosen.unwrap_or(self.flows.len() - 1);
        let user = &mut self.users[user as usize];
        user.at = Some(StepPlace { flow, step: 0, made: 0 });
        user.since = due;
        if !self.keep_cookies {
            user.jar.clear();
        }
        let row =
            self.rows.iter().flat_map(|set| &set[usize::try_from(number % set.len() as u64).unwrap_or(0)]);
        user.cells.iter_mut().zip(row).for_each(|(cell, data)| cell.clone_from(data));
        user.cells[self.data_cells..].fill(Box::default());
        true
    }

    /// A step went well: to the next one.
    fn advance(&mut self, user: u32, values: Vec<Vec<u8>>, now: Time) {
        let entry = &mut self.users[user as usize];
        let Some(place) = &mut entry.at else { return };
        (entry.redirects, entry.by_get) = (0, false);
        let flow = &self.flows[place.flow];
        let step = &flow.steps[place.step];
        for (place, value) in step.values.iter().zip(values) {
            entry.cells[self.data_cells + place] = value.into();
        }
        let pause = step.think.next(&mut entry.random);
        place.made += 1;
        if place.made >= step.repeat {
            (place.step, place.made) = (place.step + 1, 0);
        }
        if place.step == flow.steps.len() {
            let (flow, took) = (place.flow, now - entry.since);
            if let Some(figures) = self.leave(user, flow) {
                figures.done += 1;
                figures.duration.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), 1);
            }
            return self.rest(user, now + pause);
        }
        self.wait(user, now + pause);
    }

    /// The kind of a user's next request. Those that follow redirects come behind the usual ones and
    /// those with cookies.
    fn kind_of(&self, user: u32, place: StepPlace) -> u16 {
        let user = &self.users[user as usize];
        let form = if user.redirects == 0 { 0 } else { 2 + 2 * u16::from(user.by_get) };
        self.flows[place.flow].steps[place.step].request + form * self.requests
    }

    /// A step is redirected.
    fn follow(&mut self, user: u32, (from, to, by_get): (&[u8], &[u8], bool), now: Time) {
        let entry = &mut self.users[user as usize];
        let Some(place) = entry.at else { return };
        let flow = &mut self.flows[place.flow];
        let most = flow.steps[place.step].follow;
        if entry.redirects == most {
            return self.fail(user, &format!("more than {most} redirects"), now, Duration::ZERO);
        }
        let target = match redirect::resolve(to, from, (self.host.is_https, &self.authority)) {
            Ok(target) => target,
            Err(why) => return self.fail(user, &why, now, Duration::ZERO),
        };
        entry.redirects += 1;
        entry.by_get |= by_get;
        let cell = entry.cells.len() - 2;
        entry.cells[cell] = target.strip_prefix(b"/").unwrap_or(&target).into();
        flow.figures.redirects += u64::from(entry.since >= self.measure_from);
        self.wait(user, now);
    }

    /// The iteration of a user fails; it begins another one after the pause.
    fn fail(&mut self, user: u32, why: &str, now: Time, pause: Duration) {
        let Some(place) = self.users[user as usize].at else { return };
        let steps = &self.flows[place.flow].steps;
        let cause = format!("{}: {why}", steps[place.step].name);
        let skipped = steps[place.step..].iter().map(|step| u64::from(step.repeat)).sum::<u64>();
        let skipped = skipped - u64::from(place.made) - 1;
        if let Some(figures) = self.leave(user, place.flow) {
            figures.failed += 1;
            figures.skipped += skipped;
            figures.note(&cause, 1);
        }
        self.rest(user, now + pause);
    }

    fn stop_user(&mut self, user: u32) {
        let Some(place) = self.users[user as usize].at else { return };
        if let Some(figures) = self.leave(user, place.flow) {
            figures.stopped += 1;
        }
    }

    /// The iteration of a user is over. Returns the figures that it counts in, if it does.
    fn leave(&mut self, user: u32, flow: usize) -> Option<&mut FlowFigures> {
        let user = &mut self.users[user as usize];
        user.at.take()?;
        (user.redirects, user.by_get) = (0, false);
        self.active -= 1;
        self.released.extend(user.conn.take());
        (user.since >= self.measure_from).then(|| &mut self.flows[flow].figures)
    }

    /// A user continues its iteration at this time, unless the run is over by then.
    fn wait(&mut self, user: u32, until: Time) {
        if self.stopped || self.last.is_some_and(|last| until > last) {
            return self.stop_user(user);
        }
        let has_connection = !self.own_connections || self.users[user as usize].conn.is_some();
        let waiting = if has_connection { &mut self.due } else { &mut self.unbound };
        waiting.push(Reverse((until, user)));
    }

    /// A user has finished: it begins again at this time, if it is wanted then.
    fn rest(&mut self, user: u32, until: Time) {
        let number = self.users[user as usize].number;
        let again = match &self.comings {
            _ if self.stopped || self.last.is_some() => None,
            Comings::Always => Some(until),
            Comings::Stages(stages) => {
                stages.reaches((number + 1) as f64, until - self.start).map(|at| self.start + at)
            }
            Comings::Arriving(_) => {
                self.free.push(user);
                None
            }
        };
        if let Some(again) = again {
            self.wait(user, again);
        }
    }
}

impl FlowFigures {
    /// Counts a cause; what is beyond those told apart counts as others.
    pub(crate) fn note(&mut self, cause: &str, n: u64) {
        const OTHERS: &str = "other causes";
        let is_known = self.causes.contains_key(cause) || self.causes.len() < FLOW_CAUSES;
        *self.causes.entry(if is_known { cause } else { OTHERS }.to_owned()).or_default() += n;
    }
}
