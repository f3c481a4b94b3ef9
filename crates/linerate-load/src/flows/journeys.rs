//! The machine of users: what each does next, and when it is due. No I/O, no clock.

mod hosts;
mod steps;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_base::{Random, Time, derive};
use linerate_net::Conn;

use hosts::JourneyHost;

use super::comings::Comings;
use super::user::{JourneyUser, StepFlight, StepPlace, UserQueue};
use crate::extract::expect::{BodySchema, ResponseTest, StepExpect};
use crate::extract::jar::SetCookie;
use crate::extract::reading::{StepReads, StepTake};
use crate::extract::take::Extractor;
use crate::limits::{FLOW_CAUSES, REFUSED_PAUSE};
use crate::outcome::FlowFigures;
use crate::plan::flow::{FlowPlan, FlowStep, SchemaText, StepExpectation, Think, UserFlow};
use crate::plan::limits::USER_CONNECTIONS;
use crate::plan::{Plan, Request};

/// Rows of all data sets, by set, then by row.
pub(crate) type DataRows = Vec<Vec<Vec<Box<[u8]>>>>;

/// The users of one core, as one of the plan's hosts sees them. Its supply, its templates and its recorder share them.
#[derive(Clone, Debug)]
pub(crate) struct Journeys {
    state: Arc<Mutex<JourneyState>>,
    /// The number of the host.
    host: usize,
}

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
    /// Requests of the largest group.
    widest: usize,
    /// At least one.
    hosts: Vec<JourneyHost>,
    /// Users between two iterations, where there are several hosts. Otherwise they wait at the one.
    resting: UserQueue,
    /// The number of the next ticket.
    next_ticket: u64,
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
    /// Requests in flight, by their numbers.
    flights: HashMap<u64, StepFlight>,
    /// Number of the next request.
    next: u64,
    /// Iterations that may still begin, and the number of the next one in the whole run.
    left: u64,
    next_iteration: u64,
    cores: u64,
    /// Users within an iteration.
    active: u64,
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
    host: usize,
    repeat: u32,
    follow: u32,
    /// Places of the values that it takes.
    values: Vec<usize>,
    think: Think,
    /// Steps of the group that begins here; 0: it is in none.
    group: usize,
}

fn compiled(expect: &StepExpectation) -> Result<StepExpect, String> {
    let tests = expect.parts.iter().map(|(from, wanted)| ResponseTest::new(from, wanted.as_deref()));
    let tests = tests.collect::<Result<Vec<_>, _>>()?;
    let schema = |schema: &SchemaText| BodySchema::new(schema.file.as_deref(), &schema.text);
    let schema = expect.schema.as_ref().map(schema).transpose()?;
    Ok(StepExpect { tests, schema, max: expect.max })
}

/// What each request expects of its response by itself.
pub(crate) fn expectations(plan: &Plan) -> Result<Vec<StepReads>, String> {
    let of = |request: &Request| {
        let expect = request.expect.response.as_ref().map(compiled).transpose()?;
        Ok(StepReads { expect, ..StepReads::default() })
    };
    plan.requests.iter().map(of).collect()
}

/// What each step reads of its response, by its request.
pub(crate) fn reads(plan: &Plan, flows: &FlowPlan) -> Result<Vec<StepReads>, String> {
    let names = flows.names();
    let mut reads = expectations(plan)?;
    for step in flows.flows.iter().flat_map(|flow| &flow.steps) {
        let place = reads.get_mut(step.request as usize).ok_or("a step has no request")?;
        place.expect = step.expect.as_ref().map(compiled).transpose()?;
        if step.hooks.judge.is_some() {
            place.is_judged = true;
            place.expect.get_or_insert_default();
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
        let runs = |flow: &UserFlow| FlowRun::new(flow, plan, reads);
        let runs: Vec<FlowRun> = flows.flows.iter().map(runs).collect();
        let data_cells = rows.iter().map(|set| set.first().map_or(0, Vec::len)).sum();
        let cells = data_cells + flows.names().len() + flows.made_columns().len() + 2;
        let share = |all: u64| all / cores + u64::from(all % cores > core);
        let most = share(u64::from(flows.users));
        let comings = Comings::of(&flows.pace, plan.seed, (core, cores));
        let at_first = if matches!(comings, Comings::Arriving(_)) { 0 } else { most };
        let user = |n| JourneyUser::new(plan.seed, n * cores + core, cells);
        let state = JourneyState {
            comings,
            start: Time::ZERO,
            most,
            free: Vec::new(),
            own_connections: flows.own_connections,
            widest: flows.widest(),
            hosts: (0..plan.host_count()).map(|host| JourneyHost::of(plan, host)).collect(),
            resting: UserQueue::default(),
            next_ticket: 0,
            graceful: flows.graceful,
            last: None,
            core,
            cells,
            weights: runs.iter().map(|flow| flow.weight).sum(),
            flows: runs,
            rows,
            data_cells,
            users: (0..at_first).map(user).collect(),
            flights: HashMap::new(),
            next: 0,
            left: flows.iterations.map_or(u64::MAX, share),
            next_iteration: core,
            cores,
            active: 0,
            requests: u16::try_from(plan.requests.len()).unwrap_or(u16::MAX),
            keep_cookies: flows.keep_cookies,
            seed: plan.seed,
            measure_from: Time::ZERO,
            stopped: false,
        };
        Journeys { state: Arc::new(Mutex::new(state)), host: 0 }
    }

    /// The number of the host that sees them.
    pub(crate) fn host(&self) -> usize {
        self.host
    }

    /// The same users, as another host sees them.
    pub(crate) fn at_host(&self, host: usize) -> Journeys {
        Journeys { host, ..self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, JourneyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Users come from `start` on; iterations that are due from `measure_from` on count.
    pub(crate) fn start(&self, start: Time, measure_from: Time) {
        if self.host > 0 {
            return;
        }
        let mut state = self.lock();
        (state.start, state.measure_from) = (start, measure_from);
        if !matches!(state.comings, Comings::Arriving(_)) {
            (0..state.users.len()).for_each(|user| state.rest(user as u32, start));
        }
    }

    /// Joins a run late: users that were due before `from` have not come.
    pub(crate) fn join(&self, from: Time) {
        if self.host > 0 {
            return;
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        state.count_unstarted(from);
        if let Comings::Arriving(schedule) = &mut state.comings {
            while schedule.peek().is_some_and(|ns| state.start + Duration::from_nanos(ns) < from) {
                schedule.pop();
            }
        }
        state.hosts.iter_mut().for_each(|host| (host.due, host.unbound) = Default::default());
        state.resting = UserQueue::default();
        (0..state.users.len()).for_each(|user| state.rest(user as u32, from));
    }

    /// The number in the whole run of the user whose request this is.
    pub(crate) fn user(&self, number: u64) -> Option<u64> {
        let state = self.lock();
        state.flights.get(&number).map(|flight| state.users[flight.user as usize].number)
    }

    /// Takes a request of a user that is due at `now`: its number, and since when it was due.
    pub(crate) fn take(&self, now: Time, of: UsersOf) -> Option<(u64, Time)> {
        let mut state = self.lock();
        loop {
            let (due, user) = state.pop_due(now, of, self.host)?;
            if state.users[user as usize].at.is_none() && !state.begin(user, due) {
                continue;
            }
            if let Some(taken) = state.send_next(user, of, now) {
                return Some(taken);
            }
        }
    }

    /// When the next user is due.
    pub(crate) fn next_due(&self, of: UsersOf) -> Option<Time> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.stopped || state.is_over() {
            return None;
        }
        // They wait for the first host's engine.
        let beginning = if self.host == 0 { state.next_beginning() } else { None };
        let unbound = state.next_unbound(self.host).into_iter().chain(beginning).min();
        let JourneyState { hosts, users, .. } = state;
        let host = &mut hosts[self.host];
        match of {
            UsersOf::Connections => host.next_bound(users),
            UsersOf::NoConnection => unbound,
            UsersOf::Anyone => {
                let held = host.held.iter().map(|(due, _, _)| *due).min();
                held.into_iter().chain(host.next_bound(users)).chain(unbound).min()
            }
        }
    }

    /// A connection is established. Returns how many requests each may carry from now on, if that was not known before.
    pub(crate) fn learn(&self, has_streams: bool, now: Time) -> Option<u32> {
        let mut state = self.lock();
        // One connection without streams is enough: no request waits behind another one then.
        let host = self.host;
        let streams = has_streams && state.hosts[host].streams != Some(false);
        if state.widest == 1 || state.hosts[host].streams.replace(streams) == Some(streams) {
            return None;
        }
        (0..state.users.len()).for_each(|user| state.queue(user as u32, now));
        Some(state.depth(host))
    }

    /// Requests that a connection may carry at once, as far as that is known.
    pub(crate) fn depth(&self) -> u32 {
        self.lock().depth(self.host)
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
        let each = if state.hosts[self.host].streams == Some(false) {
            state.widest.min(USER_CONNECTIONS)
        } else {
            1
        };
        u32::try_from(wanted.saturating_mul(each as u64)).unwrap_or(u32::MAX)
    }

    /// The connection of the user that is due first.
    pub(crate) fn due_connection(&self, now: Time) -> Option<Conn> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let host = &mut state.hosts[self.host];
        let (due, user) = host.due.first(&state.users)?;
        let has_streams = host.has_streams();
        state.users[user as usize].free_connection(has_streams).filter(|_| due <= now && !state.stopped)
    }

    /// The connection of the user that is due first takes nothing more: it needs another one.
    pub(crate) fn unbind_first(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let host = &mut state.hosts[self.host];
        let has_streams = host.has_streams();
        let Some((due, user)) = host.due.pop(&state.users) else { return };
        let entry = &mut state.users[user as usize];
        let shut = entry.free_connection(has_streams).and_then(|conn| entry.shut(conn));
        host.released.extend(shut);
        state.enqueue(user, due);
    }

    /// The connection of the user that is due first takes nothing now, since others are in flight on it.
    pub(crate) fn hold_first(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let host = &mut state.hosts[self.host];
        let Some((due, user)) = host.due.pop(&state.users) else { return };
        host.held.extend(state.users[user as usize].ticket.map(|ticket| (due, user, ticket)));
    }

    /// Connections may take something again.
    pub(crate) fn resume(&self) {
        let mut guard = self.lock();
        let host = &mut guard.hosts[self.host];
        host.held.drain(..).for_each(|held| host.due.push(held));
    }

    /// A request leaves on this connection, which is its user's from now on.
    pub(crate) fn bind(&self, number: u64, conn: Conn, now: Time) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(flight) = state.flights.get_mut(&number).filter(|_| state.own_connections) else { return };
        let (user, host, before) = (flight.user, flight.request.host, flight.conn.replace(conn));
        if before == Some(conn) {
            return;
        }
        state.hosts[host].released.extend(state.users[user as usize].placed(host, before, conn));
        state.queue(user, now);
    }

    /// Whether two requests are of the same user, whose connection has streams.
    pub(crate) fn share_connection(&self, one: u64, other: u64) -> bool {
        let state = self.lock();
        let user = |number| state.flights.get(&number).map(|flight| (flight.user, flight.request.host));
        state.hosts[self.host].has_streams() && user(one).is_some() && user(one) == user(other)
    }

    /// Connections whose user is gone, each once.
    pub(crate) fn released(&self) -> Vec<Conn> {
        std::mem::take(&mut self.lock().hosts[self.host].released)
    }

    /// No iteration begins from `now` on, and those that began may go on for a while.
    pub(crate) fn close(&self, now: Time) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.last.is_some() {
            return;
        }
        // Those that were due before, while the thread slept, still come.
        while let Some(due) = state.next_arrival().filter(|due| *due < now && !state.stopped) {
            let user = state.arrive();
            if state.begin(user, due) {
                state.queue(user, due);
            }
        }
        state.count_unstarted(now);
        let last = now + state.graceful;
        state.last = Some(last);
        let waiting: Vec<_> = std::iter::from_fn(|| state.pop_waiting()).collect();
        waiting.into_iter().for_each(|(due, user)| state.queue(user, due));
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
        while let Some((_, user)) = state.pop_waiting() {
            state.halt(user);
        }
    }

    /// The kind of a request in flight.
    pub(crate) fn kind(&self, number: u64) -> u16 {
        self.lock().flights.get(&number).map_or(0, |flight| flight.kind)
    }

    /// Looks at the row of a request in flight.
    pub(crate) fn with_cells<R>(&self, number: u64, look: impl FnOnce(&[Box<[u8]>]) -> R) -> R {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(flight) = state.flights.get_mut(&number) else {
            return look(&vec![Box::default(); state.cells]);
        };
        let cells = &mut state.users[flight.user as usize].cells;
        let mut exchange = |cells: &mut [Box<[u8]>]| {
            if let [before @ .., location, cookies] = cells {
                let made = before.len().saturating_sub(flight.made.len());
                before[made..].swap_with_slice(&mut flight.made);
                std::mem::swap(location, &mut flight.request.location);
                std::mem::swap(cookies, &mut flight.cookies);
            }
        };
        exchange(cells);
        let seen = look(cells);
        exchange(cells);
        seen
    }

    /// What a script made for a request in flight.
    pub(crate) fn set_made(&self, number: u64, made: Vec<Box<[u8]>>) {
        if let Some(flight) = self.lock().flights.get_mut(&number) {
            flight.made = made;
        }
    }

    /// The target of a request is known: fills its cookies in. Says whether there are any.
    pub(crate) fn fill_cookies(&self, number: u64, target: Vec<u8>, kind_with: u16, now: Time) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(flight) = state.flights.get_mut(&number) else { return false };
        let host = &state.hosts[flight.request.host].cookies;
        let field = state.users[flight.user as usize].jar.field(host, &target, now);
        flight.target = target;
        flight.cookies = field.into();
        let has_cookies = !flight.cookies.is_empty();
        if has_cookies {
            flight.kind = kind_with;
        }
        has_cookies
    }

    /// A request that was taken ended.
    pub(crate) fn ended(&self, number: u64, end: StepEnd<'_>, now: Time) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(flight) = state.flights.remove(&number) else { return };
        let user = flight.user;
        let entry = &mut state.users[user as usize];
        if let StepEnd::Good(_, cookies) | StepEnd::Bad(_, cookies) | StepEnd::Moved { cookies, .. } = end {
            let host = &state.hosts[flight.request.host].cookies;
            cookies.iter().for_each(|cookie| entry.jar.store(cookie, host, &flight.target, now));
        }
        state.hosts[flight.request.host].released.extend(entry.landed(flight.conn));
        let step = flight.request.step;
        match end {
            StepEnd::Good(values, _) => entry.taken.push((step, values)),
            StepEnd::Moved { to, by_get, .. } => state.follow(flight, (to, by_get), now),
            StepEnd::Bad(why, _) => state.break_off(user, (step, why), Duration::ZERO),
            // Without a pause it would fail again and again at the same moment.
            StepEnd::Lost(why) => state.break_off(user, (step, why), REFUSED_PAUSE),
            StepEnd::Unknown if state.stopped => entry.halt(),
            StepEnd::Unknown => state.break_off(user, (step, "the outcome is unknown"), REFUSED_PAUSE),
        }
        state.go_on(user, now);
    }

    /// What iterations became, at the end of the run.
    pub(crate) fn figures(&self) -> Vec<(String, FlowFigures)> {
        self.stop();
        let mut state = self.lock();
        for (_, flight) in std::mem::take(&mut state.flights) {
            state.finish(flight.user, Time::ZERO);
        }
        state.flows.iter_mut().map(|flow| (flow.name.clone(), std::mem::take(&mut flow.figures))).collect()
    }
}

impl JourneyState {
    fn is_over(&mut self) -> bool {
        if self.active > 0 {
            return false;
        }
        let nobody_waits = self.next_arrival().is_none()
            && self.resting.first(&self.users).is_none()
            && self.hosts.iter_mut().all(|host| {
                host.next_bound(&self.users).is_none() && host.next_unbound(&self.users).is_none()
            });
        self.left == 0 || self.last.is_some() || nobody_waits
    }

    fn depth(&self, host: usize) -> u32 {
        if self.hosts[host].has_streams() { self.widest as u32 } else { 1 }
    }

    /// When the next new user comes, if it may.
    fn next_arrival(&self) -> Option<Time> {
        let Comings::Arriving(schedule) = &self.comings else { return None };
        let may = self.left > 0 && self.last.is_none() && self.active < self.most;
        schedule.peek().filter(|_| may).map(|ns| self.start + Duration::from_nanos(ns))
    }

    /// When the next user that needs a connection to a host is due.
    fn next_unbound(&mut self, host: usize) -> Option<Time> {
        let arrival = if self.hosts.len() == 1 { self.next_arrival() } else { None };
        self.hosts[host].next_unbound(&self.users).into_iter().chain(arrival).min()
    }

    /// Takes a user that waits, whenever it is due.
    fn pop_waiting(&mut self) -> Option<(Time, u32)> {
        let at_host = self.hosts.iter_mut().find_map(|host| host.pop_waiting(&self.users));
        let popped = at_host.or_else(|| self.resting.pop(&self.users));
        popped.inspect(|(_, user)| self.users[*user as usize].ticket = None)
    }

    /// The user that is due first at a host, and since when.
    fn pop_due(&mut self, now: Time, of: UsersOf, host: usize) -> Option<(Time, u32)> {
        if self.stopped {
            return None;
        }
        let bound = self.hosts[host].next_bound(&self.users);
        let popped = if of != UsersOf::NoConnection && bound.is_some_and(|due| due <= now) {
            self.hosts[host].due.pop(&self.users)
        } else {
            let next = self.next_unbound(host).filter(|due| *due <= now && of != UsersOf::Connections)?;
            let unbound = &mut self.hosts[host].unbound;
            match unbound.first(&self.users) {
                Some((due, _)) if due == next => unbound.pop(&self.users),
                _ => Some((next, self.arrive())),
            }
        };
        popped.inspect(|(_, user)| self.users[*user as usize].ticket = None)
    }

    /// The next request of a user leaves, if it has one: its number, and since when it was due.
    fn send_next(&mut self, user: u32, of: UsersOf, now: Time) -> Option<(u64, Time)> {
        let entry = &mut self.users[user as usize];
        let has_streams = self.hosts[entry.next_host()].has_streams();
        let conn = if of == UsersOf::Connections { entry.free_connection(has_streams) } else { None };
        let request = entry.pending.pop_front()?;
        let (number, due) = (self.next, request.due);
        self.next += 1;
        entry.leaves(request.host, conn);
        let kind = self.kind_of(user, &request);
        let (target, cookies, made) = Default::default();
        self.flights.insert(number, StepFlight { user, kind, request, target, cookies, made, conn });
        self.queue(user, now);
        Some((number, due))
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
        let entry = &mut self.users[user as usize];
        entry.at = Some(StepPlace { flow, step: 0, made: 0 });
        entry.since = due;
        if !self.keep_cookies {
            entry.jar.clear();
        }
        let row =
            self.rows.iter().flat_map(|set| &set[usize::try_from(number % set.len() as u64).unwrap_or(0)]);
        entry.cells.iter_mut().zip(row).for_each(|(cell, data)| cell.clone_from(data));
        entry.cells[self.data_cells..].fill(Box::default());
        self.begin_step(user, due);
        true
    }

    /// What is left of a step or group may leave at this time, as far as its user has room for it, unless the run is over
    /// by then.
    fn queue(&mut self, user: u32, at: Time) {
        let entry = &self.users[user as usize];
        let host = &self.hosts[entry.next_host()];
        let (at_once, waits_for_one) = (host.at_once(), self.own_connections && host.has_streams());
        if entry.pending.is_empty() || entry.ticket.is_some() || entry.flying >= at_once {
            return;
        }
        if self.stopped || self.last.is_some_and(|last| at > last) {
            return self.halt(user);
        }
        // The others follow the first on its connection.
        if waits_for_one && entry.is_connecting() && entry.free_connection(true).is_none() {
            return;
        }
        self.enqueue(user, at);
    }

    /// A user may send at this time, and needs a connection first if it has none.
    fn enqueue(&mut self, user: u32, at: Time) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let entry = &mut self.users[user as usize];
        entry.ticket = Some(ticket);
        if entry.at.is_none() && self.hosts.len() > 1 {
            return self.resting.push((at, user, ticket));
        }
        let host = &mut self.hosts[entry.next_host()];
        let has_connection = !self.own_connections || entry.free_connection(host.has_streams()).is_some();
        let waiting = if has_connection { &mut host.due } else { &mut host.unbound };
        waiting.push((at, user, ticket));
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
            self.enqueue(user, again);
        }
    }
}

impl FlowRun {
    fn new(flow: &UserFlow, plan: &Plan, reads: &[StepReads]) -> FlowRun {
        let step = |(index, step): (usize, &FlowStep)| StepRun {
            name: plan.requests.get(step.request as usize).map(|r| r.name.clone()).unwrap_or_default(),
            request: u16::try_from(step.request).unwrap_or(u16::MAX),
            host: step.host as usize,
            repeat: step.repeat.max(1),
            follow: step.follow,
            values: reads
                .get(step.request as usize)
                .map_or(Vec::new(), |t| t.takes.iter().map(|t| t.value).collect()),
            think: step.think,
            group: flow.group_at(index),
        };
        FlowRun {
            name: flow.name.clone(),
            weight: flow.weight,
            steps: flow.steps.iter().enumerate().map(step).collect(),
            figures: FlowFigures::default(),
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
