//! Users against a server that does anything, in virtual time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use linerate_base::{Random, Time};
use linerate_net::Conn;

use super::journeys::{self, DataRows, Journeys, StepEnd, UsersOf};
use crate::extract::jar::SetCookie;
use crate::outcome::FlowFigures;
use crate::plan::flow::{FlowHost, FlowPlan, FlowStep, StepHooks, TakeRule, Think, UserFlow, UserPace};
use crate::plan::http::Http;
use crate::plan::tls::TargetTls;
use crate::plan::{Arrival, Plan, Rate, Request, Target};

fn step(request: u32, take: &[(&str, &str)], think: Think, repeat: u32) -> FlowStep {
    let rule = |(name, from): &(&str, &str)| TakeRule { name: (*name).to_owned(), from: (*from).to_owned() };
    FlowStep {
        host: 0,
        request,
        repeat,
        expect: None,
        follow: 2,
        take: take.iter().map(rule).collect(),
        think,
        group: None,
        hooks: StepHooks::default(),
    }
}

/// Steps, the first of which takes a token and sets a cookie. Some of them leave together.
fn steps(random: &mut Random, flow: u64, requests: &mut Vec<Request>) -> Vec<FlowStep> {
    let (mut steps, mut group): (Vec<FlowStep>, Option<String>) = (Vec::new(), None);
    for place in 0..=random.below(6) {
        let think =
            [Think::No, Think::Fixed(Duration::from_millis(5)), Think::Exponential(Duration::from_millis(9))];
        let take: &[_] = if place == 0 { &[("token", "header:X-Token")] } else { &[] };
        let most = if random.happens(0.1) { 12 } else { 3 };
        let repeat = 1 + random.below(most) as u32;
        if random.happens(0.5) {
            group = random.happens(0.6).then(|| format!("group {place}"));
        }
        let step = step(requests.len() as u32, take, think[random.below(3) as usize], repeat);
        steps.push(FlowStep { group: group.clone(), ..step });
        requests.push(Request { name: format!("{flow}.{place}"), ..Request::get("/") });
    }
    steps
}

fn plan(random: &mut Random) -> Plan {
    let mut requests = Vec::new();
    let count = random.below(2);
    let flow = |number| {
        let steps = steps(random, number, &mut requests);
        UserFlow { name: format!("flow {number}"), weight: 1.0, steps }
    };
    let mut flows: Vec<UserFlow> = (0..=count).map(flow).collect();
    let version = [Http::One, Http::Two, Http::Auto][random.below(3) as usize];
    let users = 1 + random.below(8) as u32;
    let iterations = random.happens(0.5).then(|| 1 + random.below(60));
    let stages = Rate::parse("0..8@300ms,8@200ms,8..1@500ms,1").unwrap();
    let pace = match random.below(3) {
        0 => UserPace::Always,
        1 => UserPace::Stages(stages),
        _ => UserPace::Arriving(Rate::constant(200.0), Arrival::Poisson),
    };
    let is_arriving = matches!(pace, UserPace::Arriving(..));
    let others = random.below(3);
    for step in flows.iter_mut().flat_map(|flow| &mut flow.steps) {
        step.host = random.below(others + 1) as u32;
    }
    let hosts = (81..81 + others as u16).map(|port| FlowHost {
        target: Target::at(([127, 0, 0, 1], port).into()),
        lookup: None,
        tls: (version == Http::Auto).then(|| TargetTls::towards("127.0.0.1")),
    });
    let flows = FlowPlan {
        hosts: hosts.collect(),
        users,
        pace,
        own_connections: is_arriving || random.happens(0.3),
        graceful: Duration::from_millis(random.below(300)),
        iterations,
        keep_cookies: !is_arriving && random.happens(0.3),
        script: None,
        flows,
    };
    let mut plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
    plan.http.version = version;
    // What connections speak is then known by the first of them.
    plan.tls = (plan.http.version == Http::Auto).then(|| TargetTls::towards("127.0.0.1"));
    Plan { requests, flows: Some(flows), seed: random.next_u64(), ..plan }
}

fn text(cell: &[u8]) -> String {
    String::from_utf8(cell.to_vec()).unwrap()
}

/// A row for each iteration: its number.
fn numbers() -> Arc<DataRows> {
    static ROWS: OnceLock<Arc<DataRows>> = OnceLock::new();
    let rows = || (0..100_000).map(|n: u32| vec![n.to_string().into_bytes().into()]).collect();
    Arc::clone(ROWS.get_or_init(|| Arc::new(vec![rows()])))
}

/// A request in flight.
struct Flying {
    number: u64,
    kind: u16,
    user: u64,
    iteration: String,
    /// The row of its template.
    cells: Vec<String>,
    /// The flow, and the first step of the group.
    place: (usize, usize),
    due: Time,
    conn: Option<Conn>,
    /// The number of the host that it goes to.
    host: usize,
}

/// The server's side of a run: what it gave to whom.
struct Model {
    plan: Plan,
    journeys: Journeys,
    random: Random,
    now: Time,
    flying: Vec<Flying>,
    tokens: u64,
    /// The user and the cookie that each token was given with, and the user of each cookie.
    given: HashMap<String, (u64, String)>,
    owners: HashMap<String, u64>,
    /// The user of each iteration.
    iterations: HashMap<String, u64>,
    sent: u64,
    ended: u64,
    /// Whether connections have streams.
    streams: bool,
    learnt: bool,
    /// Connections that are open, the host and the user of each, and the number of the next one.
    open: HashMap<Conn, (usize, Option<u64>)>,
    next_conn: u32,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let flows = plan.flows.as_ref().unwrap();
        let takes = journeys::reads(&plan, flows).unwrap();
        let journeys = Journeys::new(&plan, flows, &takes, numbers(), (0, 1));
        journeys.start(Time::ZERO, Time::ZERO);
        let streams = match plan.http.version {
            Http::One => false,
            Http::Two => true,
            _ => random.happens(0.5),
        };
        Model {
            journeys,
            now: Time::ZERO,
            flying: Vec::new(),
            tokens: 0,
            given: HashMap::new(),
            owners: HashMap::new(),
            iterations: HashMap::new(),
            sent: 0,
            ended: 0,
            streams,
            learnt: plan.tls.is_none(),
            open: HashMap::new(),
            next_conn: 0,
            random,
            plan,
        }
    }

    fn flows(&self) -> &FlowPlan {
        self.plan.flows.as_ref().unwrap()
    }

    /// The users, as each host sees them.
    fn hosts(&self) -> Vec<Journeys> {
        (0..self.plan.host_count()).map(|host| self.journeys.at_host(host)).collect()
    }

    fn connect(&mut self, host: usize) -> Conn {
        let conn = Conn::new(self.next_conn, 0);
        self.next_conn += 1;
        self.open.insert(conn, (host, None));
        conn
    }

    fn close_released(&mut self) {
        for (host, users) in self.hosts().into_iter().enumerate() {
            for conn in users.released() {
                let (of, _) = self.open.remove(&conn).expect("a connection is released once");
                assert_eq!(of, host, "a connection is released to its own host");
                assert!(self.flying.iter().all(|f| f.conn != Some(conn)), "a connection in use is released");
            }
        }
    }

    /// What the engine of a host does: those with a connection first, then a new one for each of the others.
    fn take(&mut self, host: usize) -> Option<(u64, Time, Option<Conn>)> {
        let users = self.journeys.at_host(host);
        if !self.flows().own_connections {
            return users.take(self.now, UsersOf::Anyone).map(|(number, due)| (number, due, None));
        }
        while let Some(conn) = users.due_connection(self.now) {
            assert_eq!(self.open[&conn].0, host, "a connection to another host");
            if self.random.happens(0.05) {
                users.unbind_first();
                continue;
            }
            if self.random.happens(0.05) && self.flying.iter().any(|f| f.conn == Some(conn)) {
                users.hold_first();
                continue;
            }
            let (number, due) = users.take(self.now, UsersOf::Connections).unwrap();
            users.bind(number, conn, self.now);
            return Some((number, due, Some(conn)));
        }
        self.close_released();
        let (number, due) = users.take(self.now, UsersOf::NoConnection)?;
        let conn = self.connect(host);
        users.bind(number, conn, self.now);
        Some((number, due, Some(conn)))
    }

    fn send_due(&mut self) {
        self.hosts().iter().for_each(Journeys::resume);
        self.journeys.sort_out(self.now);
        for host in 0..self.plan.host_count() {
            self.send_due_to(host);
        }
        self.close_released();
        // The engine has sent something by now, and sees what the server speaks.
        if !self.learnt && self.sent > 0 {
            self.learnt = true;
            for users in self.hosts() {
                users.learn(self.streams, self.now);
            }
            self.send_due();
        }
    }

    fn send_due_to(&mut self, host: usize) {
        while let Some((number, due, conn)) = self.take(host) {
            assert!(due <= self.now);
            let kind = self.journeys.kind(number);
            self.journeys.fill_cookies(number, b"/a".to_vec(), kind, self.now);
            let cells = self.cells(number);
            let [iteration, token, _, cookie] = &cells[..] else { panic!("{cells:?}") };
            let user = self.journeys.user(number).unwrap();
            let place = self.place(kind);
            let is_first = place.1 == 0;
            let (iteration, row) = (iteration.clone(), cells.clone());
            let flying = Flying { number, kind, user, iteration, cells: row, place, due, conn, host };
            let step = self.plan.requests.len().min(usize::from(kind));
            let hosts = self.flows().hosts_by_request(self.plan.requests.len());
            assert!(hosts.get(step).is_none_or(|of| *of == host), "a step goes to its host");
            // The token and the cookie that came with it belong to this user.
            if let Some((of, with)) = self.given.get(token) {
                assert_eq!(*of, user, "a token crossed users");
                // Another one may have come while a group that asks for some is in flight.
                let in_group = self.flows().flows[place.0].steps[place.1].group.is_some();
                let may_differ = (is_first && in_group) || self.flows().keep_cookies;
                assert!(may_differ || with == cookie, "{with} {cookie}");
            } else {
                assert!(token.is_empty() && is_first, "{token} in {place:?}");
            }
            assert!(cookie.is_empty() || self.owners[cookie] == user, "a cookie crossed users");
            self.check_together(&flying);
            assert_eq!(*self.iterations.entry(flying.iteration.clone()).or_insert(user), user);
            self.flying.push(flying);
            self.check_connections(user);
            self.sent += 1;
        }
    }

    fn cells(&self, number: u64) -> Vec<String> {
        self.journeys.with_cells(number, |cells| cells.iter().map(|cell| text(cell)).collect())
    }

    /// The flow of a request, and the first step of its group.
    fn place(&self, kind: u16) -> (usize, usize) {
        let request = u32::from(kind) % self.plan.requests.len() as u32;
        for (index, flow) in self.flows().flows.iter().enumerate() {
            if let Some(at) = flow.steps.iter().position(|step| step.request == request) {
                let name = &flow.steps[at].group;
                let before = flow.steps[..at].iter().rev().take_while(|s| name.is_some() && s.group == *name);
                return (index, at - before.count());
            }
        }
        panic!("no step has this request")
    }

    /// What a user has in flight is of one step, or of one group that was due at one time.
    fn check_together(&self, new: &Flying) {
        let is_redirect = |kind: u16| usize::from(kind) >= 2 * self.plan.requests.len();
        for other in self.flying.iter().filter(|f| f.user == new.user) {
            assert_eq!((&other.iteration, other.place), (&new.iteration, new.place));
            let step = &self.flows().flows[new.place.0].steps[new.place.1];
            assert!(step.group.is_some(), "a step leaves while another is in flight");
            let redirects = is_redirect(other.kind) || is_redirect(new.kind);
            assert!(redirects || other.due == new.due, "a group is due at one time");
        }
    }

    fn check_connections(&mut self, user: u64) {
        let own: Vec<&Flying> = self.flying.iter().filter(|f| f.user == user).collect();
        let most = match (self.learnt, self.streams) {
            (false, _) => 1,
            (true, true) => 100,
            (true, false) => 6,
        };
        assert!(own.len() <= most, "{}", own.len());
        for flying in &own {
            let Some(conn) = flying.conn else { continue };
            let (host, of) = self.open.get_mut(&conn).unwrap();
            assert_eq!((*host, *of.get_or_insert(user)), (flying.host, user), "a connection has one user");
            let carries = own.iter().filter(|f| f.conn == Some(conn)).count();
            assert!(self.streams || carries == 1, "a connection without streams carries {carries}");
        }
        for host in 0..self.plan.host_count() {
            let open = self.open.values().filter(|of| **of == (host, Some(user))).count();
            assert!(self.streams || open <= 6, "{open} connections of a user");
        }
    }

    /// A connection ends without a response to what it carried, which leaves again on others.
    fn send_again(&mut self) {
        let chosen = self.random.below(self.flying.len() as u64) as usize;
        let Flying { conn: Some(before), host, .. } = self.flying[chosen] else { return };
        let mut conn = None;
        for index in 0..self.flying.len() {
            if self.flying[index].conn == Some(before) {
                // Those with streams go together, and sometimes not.
                let fresh = conn.filter(|_| self.streams && self.random.happens(0.8));
                let new = fresh.unwrap_or_else(|| self.connect(host));
                conn = Some(new);
                self.journeys.bind(self.flying[index].number, new, self.now);
                self.flying[index].conn = Some(new);
            }
        }
        let user = self.flying[chosen].user;
        self.close_released();
        self.check_connections(user);
    }

    fn end_one(&mut self) {
        if self.random.happens(0.03) {
            return self.send_again();
        }
        let chosen = self.random.below(self.flying.len() as u64) as usize;
        // It may have to leave again, as it was.
        let Flying { number, kind, user, cells, .. } = self.flying.swap_remove(chosen);
        assert_eq!(self.cells(number), cells);
        self.ended += 1;
        let takes = self.plan.requests[usize::from(kind) % self.plan.requests.len()].name.ends_with(".0");
        match self.random.below(41) {
            0 => self.journeys.ended(number, StepEnd::Bad("status 500", &[]), self.now),
            1 => self.journeys.ended(number, StepEnd::Lost("reset"), self.now),
            3 | 4 => {
                let all: [&[u8]; 3] = [b"/x", b"http://elsewhere/", b"//127.0.0.1:81/y"];
                let to = all[self.random.below(3) as usize];
                let by_get = self.random.happens(0.5);
                self.journeys.ended(number, StepEnd::Moved { to, by_get, cookies: &[] }, self.now);
            }
            20 => self.journeys.ended(number, StepEnd::Unknown, self.now),
            // A number that is not in flight changes nothing.
            2 => {
                self.journeys.ended(u64::MAX, StepEnd::Lost("reset"), self.now);
                self.answer((number, user), takes);
                self.journeys.ended(number, StepEnd::Lost("again"), self.now);
            }
            _ => self.answer((number, user), takes),
        }
    }

    fn answer(&mut self, (number, user): (u64, u64), takes: bool) {
        if !takes {
            return self.journeys.ended(number, StepEnd::Good(Vec::new(), &[]), self.now);
        }
        self.tokens += 1;
        let token = format!("t{}", self.tokens);
        let cookie = format!("s=c{}", self.tokens);
        self.given.insert(token.clone(), (user, cookie.clone()));
        self.owners.insert(cookie.clone(), user);
        let set = SetCookie::parse(cookie.as_bytes()).unwrap();
        self.journeys.ended(number, StepEnd::Good(vec![token.into_bytes()], &[set]), self.now);
    }

    /// Users have at most so many requests in flight together.
    fn check_flying(&self) {
        let users: HashSet<u64> = self.flying.iter().map(|f| f.user).collect();
        assert!(users.len() <= self.flows().users as usize);
    }

    fn next_due(&self) -> Option<Time> {
        self.hosts().iter().filter_map(|users| users.next_due(UsersOf::Anyone)).min()
    }

    fn run(mut self) -> (Plan, u64, u64, Vec<(String, FlowFigures)>) {
        let end = Time::ZERO + Duration::from_millis(1 + self.random.below(2000));
        for _ in 0..100_000 {
            if self.now >= end || self.journeys.is_over() {
                break;
            }
            self.send_due();
            self.check_flying();
            let next = self.next_due();
            if self.flying.is_empty() || self.random.happens(0.2) {
                self.now = next.map_or(end, |due| due.max(self.now)).min(end);
            } else {
                self.now = self.now + Duration::from_micros(self.random.below(3000));
                self.end_one();
            }
        }
        self.journeys.close(end);
        let last = end + self.flows().graceful;
        for _ in 0..100_000 {
            if self.now >= last || self.journeys.is_over() {
                break;
            }
            self.send_due();
            if self.flying.is_empty() {
                let due = self.next_due().unwrap_or(last);
                assert!(due <= last, "a user waits beyond the end");
                self.now = due.max(self.now);
            } else {
                self.now = self.now + Duration::from_micros(self.random.below(3000));
                self.end_one();
            }
        }
        self.journeys.stop();
        let after = last + Duration::from_secs(1);
        self.journeys.sort_out(after);
        for users in self.hosts() {
            assert_eq!(users.take(after, UsersOf::Anyone), None, "nothing leaves after the stop");
        }
        // Some responses still come after the end, and some never.
        while !self.flying.is_empty() && self.random.happens(0.7) {
            self.end_one();
        }
        assert_eq!(self.sent, self.ended + self.flying.len() as u64);
        let figures = self.journeys.figures();
        self.flying.clear();
        self.close_released();
        assert!(self.open.is_empty(), "each connection is closed");
        (self.plan, self.sent, self.iterations.len() as u64, figures)
    }
}

#[test]
fn each_iteration_ends_once_and_no_token_crosses_users() {
    let (mut done, mut failed, mut stopped) = (0, 0, 0);
    for seed in 0..1000 {
        let (plan, sent, begun, figures) = Model::new(seed).run();
        let flows = plan.flows.as_ref().unwrap();
        let ended: u64 = figures.iter().map(|(_, f)| f.done + f.failed + f.stopped).sum();
        assert_eq!(ended, begun, "seed {seed}: each iteration that began has one outcome");
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
                assert_eq!((f.done, f.failed), (f.duration.count(), f.waited.count()), "seed {seed}");
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
        hosts: Vec::new(),
        users,
        pace,
        own_connections,
        graceful: Duration::ZERO,
        iterations: None,
        keep_cookies: false,
        script: None,
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

/// A thread that slept over the end: the user that was due just before it has not stayed away.
#[test]
fn a_user_that_is_due_before_the_end_still_comes() {
    let plan = one_step(UserPace::Arriving(Rate::constant(10.0), Arrival::Constant), 25);
    let journeys = start(&plan, (0, 1));
    let at = |ms| Time::ZERO + Duration::from_millis(ms);
    let mut came = 0;
    while journeys.take(at(1850), UsersOf::NoConnection).is_some() {
        came += 1;
    }
    journeys.close(at(2000));
    let (_, due) = journeys.take(at(2100), UsersOf::NoConnection).unwrap();
    assert_eq!((came, due), (19, at(1900)));
    assert_eq!(journeys.take(at(2200), UsersOf::NoConnection), None, "the time is over");
    assert_eq!(journeys.figures()[0].1.unstarted, 0);
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
