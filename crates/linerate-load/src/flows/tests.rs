//! Users against a server that does anything, in virtual time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use linerate_base::{Random, Time};
use linerate_net::Conn;

use super::journeys::{self, Journeys, StepEnd, UsersOf};
use crate::extract::jar::SetCookie;
use crate::outcome::FlowFigures;
use crate::plan::flow::{FlowPlan, FlowStep, TakeRule, Think, UserFlow, UserPace};
use crate::plan::{Arrival, Plan, Rate, Request, Target};

fn step(request: u32, take: &[(&str, &str)], think: Think, repeat: u32) -> FlowStep {
    let rule = |(name, from): &(&str, &str)| TakeRule { name: (*name).to_owned(), from: (*from).to_owned() };
    FlowStep { request, repeat, expect: None, follow: 2, take: take.iter().map(rule).collect(), think }
}

/// A plan whose first step takes a token and sets a cookie, and whose other steps use both.
fn plan(random: &mut Random) -> Plan {
    let mut requests = Vec::new();
    let mut flows = Vec::new();
    for number in 0..=random.below(2) {
        let mut steps = Vec::new();
        for place in 0..=random.below(4) {
            let think = [
                Think::No,
                Think::Fixed(Duration::from_millis(5)),
                Think::Exponential(Duration::from_millis(9)),
            ];
            let take: &[_] = if place == 0 { &[("token", "header:X-Token")] } else { &[] };
            let think = think[random.below(3) as usize];
            steps.push(step(requests.len() as u32, take, think, 1 + random.below(3) as u32));
            requests.push(Request { name: format!("{number}.{place}"), ..Request::get("/") });
        }
        flows.push(UserFlow { name: format!("flow {number}"), weight: 1.0, steps });
    }
    let users = 1 + random.below(8) as u32;
    let iterations = random.happens(0.5).then(|| 1 + random.below(60));
    let stages = Rate::parse("0..8@300ms,8@200ms,8..1@500ms,1").unwrap();
    let pace = match random.below(3) {
        0 => UserPace::Always,
        1 => UserPace::Stages(stages),
        _ => UserPace::Arriving(Rate::constant(200.0), Arrival::Poisson),
    };
    let is_arriving = matches!(pace, UserPace::Arriving(..));
    let flows = FlowPlan {
        users,
        pace,
        own_connections: is_arriving || random.happens(0.3),
        graceful: Duration::from_millis(random.below(300)),
        iterations,
        keep_cookies: !is_arriving && random.happens(0.3),
        flows,
    };
    let plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
    Plan { requests, flows: Some(flows), seed: random.next_u64(), ..plan }
}

fn text(cell: &[u8]) -> String {
    String::from_utf8(cell.to_vec()).unwrap()
}

/// The server's side of a run: what it gave to whom.
struct Model {
    plan: Plan,
    journeys: Journeys,
    random: Random,
    now: Time,
    /// Requests in flight: number, and the cells it left with.
    flying: Vec<(u64, u16, String, String)>,
    tokens: u64,
    /// The cookie that came with each token.
    given: HashMap<String, String>,
    sent: u64,
    ended: u64,
    /// Connections that are open, and the number of the next one.
    open: HashSet<Conn>,
    next_conn: u32,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let flows = plan.flows.as_ref().unwrap();
        let takes = journeys::reads(&plan, flows).unwrap();
        let journeys = Journeys::new(&plan, flows, &takes, Arc::new(Vec::new()), (0, 1));
        journeys.start(Time::ZERO, Time::ZERO);
        let (now, flying, given) = (Time::ZERO, Vec::new(), HashMap::new());
        let (open, next_conn) = (HashSet::new(), 0);
        Model { plan, journeys, random, now, flying, tokens: 0, given, sent: 0, ended: 0, open, next_conn }
    }

    /// What the engine does: those with a connection first, then a new one for each of the others.
    fn take(&mut self) -> Option<(u64, Time)> {
        if !self.plan.flows.as_ref().unwrap().own_connections {
            return self.journeys.take(self.now, UsersOf::Anyone);
        }
        for conn in self.journeys.released() {
            assert!(self.open.remove(&conn), "a connection is released once");
        }
        while let Some(conn) = self.journeys.due_connection(self.now) {
            if self.random.happens(0.05) {
                self.journeys.unbind_first();
                continue;
            }
            let (number, due) = self.journeys.take(self.now, UsersOf::Connections).unwrap();
            self.journeys.bind(number, conn);
            return Some((number, due));
        }
        let (number, due) = self.journeys.take(self.now, UsersOf::NoConnection)?;
        let conn = Conn::new(self.next_conn, 0);
        self.next_conn += 1;
        self.open.insert(conn);
        self.journeys.bind(number, conn);
        Some((number, due))
    }

    fn send_due(&mut self) {
        while let Some((number, due)) = self.take() {
            assert!(due <= self.now);
            let kind = self.journeys.kind(number);
            self.journeys.fill_cookies(number, b"/a".to_vec(), kind, self.now);
            let (token, cookie) =
                self.journeys.with_cells(number, |cells| (text(&cells[0]), text(cells.last().unwrap())));
            // The token and the cookie that came with it belong to the same user.
            if !token.is_empty() && !self.plan.flows.as_ref().unwrap().keep_cookies {
                assert_eq!(self.given.get(&token), Some(&cookie), "a token or a cookie crossed users");
            }
            let taken: HashSet<_> = self.flying.iter().map(|(_, _, token, _)| token.clone()).collect();
            assert!(token.is_empty() || !taken.contains(&token), "two users have the same token");
            self.flying.push((number, kind, token, cookie));
            self.sent += 1;
        }
    }

    fn end_one(&mut self) {
        let chosen = self.random.below(self.flying.len() as u64) as usize;
        let (number, kind, ..) = self.flying.swap_remove(chosen);
        self.ended += 1;
        let takes = self.plan.requests[usize::from(kind) % self.plan.requests.len()].name.ends_with(".0");
        match self.random.below(21) {
            0 => self.journeys.ended(number, StepEnd::Bad("status 500", &[]), self.now),
            1 => self.journeys.ended(number, StepEnd::Lost("reset"), self.now),
            3 => {
                let to: &[u8] = [b"/x".as_slice(), b"http://elsewhere/"][self.random.below(2) as usize];
                let by_get = self.random.happens(0.5);
                self.journeys.ended(number, StepEnd::Moved { to, by_get, cookies: &[] }, self.now);
            }
            20 => self.journeys.ended(number, StepEnd::Unknown, self.now),
            // A number that is not in flight changes nothing.
            2 => {
                self.journeys.ended(u64::MAX, StepEnd::Lost("reset"), self.now);
                self.answer(number, takes);
                self.journeys.ended(number, StepEnd::Lost("again"), self.now);
            }
            _ => self.answer(number, takes),
        }
    }

    fn answer(&mut self, number: u64, takes: bool) {
        if !takes {
            return self.journeys.ended(number, StepEnd::Good(Vec::new(), &[]), self.now);
        }
        self.tokens += 1;
        let token = format!("t{}", self.tokens);
        let cookie = format!("s=c{}", self.tokens);
        self.given.insert(token.clone(), cookie.clone());
        let set = SetCookie::parse(cookie.as_bytes()).unwrap();
        self.journeys.ended(number, StepEnd::Good(vec![token.into_bytes()], &[set]), self.now);
    }

    fn run(mut self) -> (Plan, u64, Vec<(String, FlowFigures)>) {
        let end = Time::ZERO + Duration::from_millis(1 + self.random.below(2000));
        for _ in 0..100_000 {
            if self.now >= end || self.journeys.is_over() {
                break;
            }
            self.send_due();
            assert!(self.flying.len() <= self.plan.flows.as_ref().unwrap().users as usize);
            let next = self.journeys.next_due(UsersOf::Anyone);
            if self.flying.is_empty() || self.random.happens(0.2) {
                self.now = next.map_or(end, |due| due.max(self.now)).min(end);
            } else {
                self.now = self.now + Duration::from_micros(self.random.below(3000));
                self.end_one();
            }
        }
        self.journeys.close(end);
        let last = end + self.plan.flows.as_ref().unwrap().graceful;
        for _ in 0..100_000 {
            if self.now >= last || self.journeys.is_over() {
                break;
            }
            self.send_due();
            if self.flying.is_empty() {
                let due = self.journeys.next_due(UsersOf::Anyone).unwrap_or(last);
                assert!(due <= last, "a user waits beyond the end");
                self.now = due.max(self.now);
            } else {
                self.now = self.now + Duration::from_micros(self.random.below(3000));
                self.end_one();
            }
        }
        self.journeys.stop();
        let after = last + Duration::from_secs(1);
        assert_eq!(self.journeys.take(after, UsersOf::Anyone), None, "nothing leaves after the stop");
        // Some responses still come after the end, and some never.
        while !self.flying.is_empty() && self.random.happens(0.7) {
            self.end_one();
        }
        assert_eq!(self.sent, self.ended + self.flying.len() as u64);
        let figures = self.journeys.figures();
        for conn in self.journeys.released() {
            assert!(self.open.remove(&conn), "a connection is released once");
        }
        assert!(self.open.is_empty(), "each connection is closed");
        (self.plan, self.sent, figures)
    }
}

#[test]
fn each_iteration_ends_once_and_no_token_crosses_users() {
    let (mut done, mut failed, mut stopped) = (0, 0, 0);
    for seed in 0..1000 {
        let (plan, sent, figures) = Model::new(seed).run();
        let flows = plan.flows.as_ref().unwrap();
        let ended: u64 = figures.iter().map(|(_, f)| f.done + f.failed + f.stopped).sum();
        if let Some(iterations) = flows.iterations {
            assert!(ended <= iterations, "seed {seed}: {ended} of {iterations}");
        }
        // Requests of whole iterations, and at least one of each other.
        let least: u64 = flows
            .flows
            .iter()
            .zip(&figures)
            .map(|(flow, (name, f))| {
                assert_eq!(*name, flow.name);
                assert_eq!(f.failed, f.causes.values().sum::<u64>(), "seed {seed}");
                assert_eq!(f.done, f.duration.count(), "seed {seed}");
                f.done * flow.steps.iter().map(|s| u64::from(s.repeat)).sum::<u64>() + f.failed
            })
            .sum();
        assert!(sent >= least, "seed {seed}: {sent} sent, {least} needed");
        for (_, f) in &figures {
            (done, failed, stopped) = (done + f.done, failed + f.failed, stopped + f.stopped);
        }
    }
    assert!(done > 1000 && failed > 1000 && stopped > 100, "{done} {failed} {stopped}");
}

fn one_step(pace: UserPace, users: u32) -> Plan {
    let flow = UserFlow { name: "f".into(), weight: 1.0, steps: vec![step(0, &[], Think::No, 1)] };
    let own_connections = matches!(pace, UserPace::Arriving(..));
    let flows = FlowPlan {
        users,
        pace,
        own_connections,
        graceful: Duration::ZERO,
        iterations: None,
        keep_cookies: false,
        flows: vec![flow],
    };
    Plan { flows: Some(flows), ..Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/") }
}

fn start(plan: &Plan, place: (u64, u64)) -> Journeys {
    let flows = plan.flows.as_ref().unwrap();
    let takes = journeys::reads(plan, flows).unwrap();
    let journeys = Journeys::new(plan, flows, &takes, Arc::new(Vec::new()), place);
    journeys.start(Time::ZERO, Time::ZERO);
    journeys
}

/// Users that hang delay none that come after them, as far as there is room.
#[test]
fn arriving_users_come_on_time_and_up_to_the_most() {
    let plan = one_step(UserPace::Arriving(Rate::constant(10.0), Arrival::Constant), 25);
    let journeys = start(&plan, (0, 1));
    let mut dues = Vec::new();
    for ms in 0..4000 {
        let now = Time::ZERO + Duration::from_millis(ms);
        while let Some((number, due)) = journeys.take(now, UsersOf::NoConnection) {
            assert_eq!(due, now);
            dues.push((number, due));
        }
    }
    assert_eq!(dues.len(), 25);
    assert_eq!(journeys.next_due(UsersOf::Anyone), None, "no place is free");
    // The next one waited from when it was due.
    let now = Time::ZERO + Duration::from_secs(4);
    journeys.ended(dues[0].0, StepEnd::Good(Vec::new(), &[]), now);
    let (_, due) = journeys.take(now, UsersOf::NoConnection).unwrap();
    assert_eq!(due, Time::ZERO + Duration::from_millis(2500));
    journeys.close(now);
    journeys.stop();
    assert_eq!(journeys.figures()[0].1.unstarted, 14);
}

#[test]
fn stages_say_how_many_users_there_are() {
    let stages = Rate::parse("1..5@4s,2@4s").unwrap();
    let users_at = |second: f64, (core, cores)| {
        let plan = one_step(UserPace::Stages(stages.clone()), 5);
        let journeys = start(&plan, (core, cores));
        let mut most = 0;
        for ms in 0..=(second * 1000.0) as u64 {
            let now = Time::ZERO + Duration::from_millis(ms);
            let mut flying = Vec::new();
            while let Some((number, _)) = journeys.take(now, UsersOf::Anyone) {
                flying.push(number);
            }
            most = flying.len();
            let next = now + Duration::from_millis(1);
            flying.iter().for_each(|n| journeys.ended(*n, StepEnd::Good(Vec::new(), &[]), next));
        }
        most
    };
    for (second, users) in [(0.0, 1), (0.9, 1), (1.1, 2), (3.1, 4), (3.9, 4), (4.5, 2), (8.1, 0)] {
        assert_eq!(users_at(second, (0, 1)), users, "after {second} s");
        assert_eq!(
            users_at(second, (0, 2)) + users_at(second, (1, 2)),
            users,
            "after {second} s on two cores"
        );
    }
}
