//! `[[flow]]`: users and their steps.

use std::time::Duration;

use toml::de::DeValue;

use super::error::FileError;
use super::requests::{self, Placed};
use super::table::{Item, Keys, Table};
use crate::defaults::GRACEFUL;
use crate::extract::expect::{BodySchema, ResponseTest};
use crate::extract::take::Extractor;
use crate::plan::data::check_name;
use crate::plan::env::each_of;
use crate::plan::flow::{
    FlowHost, FlowPlan, FlowStep, MADE_SLOT, PlanScript, SIGN_PREFIX, SchemaText, StepExpectation, StepHooks,
    TakeRule, Think, UserCount, UserFlow, UserPace,
};
use crate::plan::limits::{
    MAX_CONNECTIONS, MAX_FLOWS, MAX_FOLLOW, MAX_GRACEFUL, MAX_GROUP, MAX_HOSTS, MAX_PLAN_BYTES, MAX_REPEAT,
    MAX_REQUESTS, MAX_TAKES, MAX_THINK, MAX_TIMEOUT,
};
use crate::plan::units::quoted;
use crate::plan::{DataSet, Request, Target};

/// Keys at the top that only flows need.
pub(super) const RUN_KEYS: &[&str] =
    &["users", "user_rate", "iterations", "cookies", "graceful", "script", "flow"];

/// Keys of a step, beside those of its request.
const STEP_KEYS: &[&str] = &["name", "path", "group", "take", "think", "repeat", "follow", "expect", "hooks"];

const ABSENT: &str = "is not supported in flows";

const FLOW: Keys = Keys {
    known: &[&["name", "weight", "step"]],
    elsewhere: &[
        (requests::SHARED_KEYS, "belongs to a step: write it below [[flow.step]]"),
        (
            &["path", "group", "take", "think", "repeat", "follow", "expect", "hooks"],
            "belongs to a step: write it below [[flow.step]]",
        ),
        (RUN_KEYS, "belongs to the whole plan: write it at the top, before the first [[flow]]"),
    ],
};

const STEP: Keys = Keys {
    known: &[STEP_KEYS, requests::SHARED_KEYS],
    elsewhere: &[
        (&["weight"], "belongs to the flow: write it below [[flow]]"),
        (&["raw", "if", "while", "host", "url"], ABSENT),
        (&["script"], "belongs to the whole plan: write it at the top, before the first [[flow]]"),
    ],
};

/// Keys that say how requests follow each other, which flows say themselves.
const INSTEAD: [(&str, &str); 7] = [
    ("request", "write it as a [[flow]] of one step"),
    ("rate", "user_rate says how many users begin in a second"),
    ("requests", "iterations says when to stop"),
    ("pipeline", "a user waits for each response; leave it out"),
    ("order", "steps have an order, and flows have a weight; leave it out"),
    ("tag", "it is not supported in flows; leave it out"),
    ("throughput", "flows need each response as it comes; leave it out"),
];

/// The flows, and their steps' requests in the order of the file.
pub(super) struct PlacedFlows<'a> {
    pub(super) plan: FlowPlan,
    pub(super) requests: Vec<Placed<'a>>,
    /// Values that each request takes, with their places.
    takes: Vec<Vec<Item<'a>>>,
    /// The group of each request and its pause, with their places.
    groups: Vec<[Option<Item<'a>>; 2]>,
}

/// Reads `[[flow]]`; `None`: there is none.
pub(super) fn read<'a>(top: &Table<'a>) -> Result<Option<PlacedFlows<'a>>, FileError> {
    let Some(item) = top.get("flow") else {
        return match RUN_KEYS.iter().find_map(|key| top.get(key)) {
            Some(other) => {
                let message = format!("{} is about flows, and there is no [[flow]]", other.key);
                Err(other.source.error(other.key_span.clone(), message))
            }
            None => Ok(None),
        };
    };
    for (key, advice) in INSTEAD {
        if let Some(other) = top.get(key) {
            let message = format!("{key} does not go with [[flow]]: {advice}");
            return Err(other.source.error(other.key_span.clone(), message));
        }
    }
    let (users, pace) = read_users(top)?;
    let is_arriving = matches!(pace, UserPace::Arriving(..));
    let keeps = top.read("connections", |item| match item.number() {
        Some(_) => Err(item.error("with flows, users says how many connections there are, or --users N; connections is \"keep\" or \"new\"")),
        None => item.choice(&[("keep", true), ("new", false)]),
    })?;
    if let (true, Some(true), Some(item)) = (is_arriving, keeps, top.get("connections")) {
        return Err(item.error("each user of user_rate is new, and so is its connection"));
    }
    let plan = FlowPlan {
        users,
        pace,
        own_connections: is_arriving || keeps == Some(false),
        graceful: top.read("graceful", |i| i.duration(Duration::ZERO, MAX_GRACEFUL))?.unwrap_or(GRACEFUL),
        iterations: top.read("iterations", |item| item.whole(1, u64::MAX - 1))?,
        keep_cookies: top.read("cookies", |i| i.choice(&[("keep", true), ("new", false)]))?.unwrap_or(false),
        script: top.read("script", read_script)?,
        flows: Vec::new(),
        hosts: Vec::new(),
    };
    if let (true, true, Some(item)) = (is_arriving, plan.keep_cookies, top.get("cookies")) {
        return Err(item.error("each user of user_rate is new, and has no cookies to keep"));
    }
    let mut placed = PlacedFlows { plan, requests: Vec::new(), takes: Vec::new(), groups: Vec::new() };
    let tables = item.tables(FLOW)?;
    if tables.is_empty() || tables.len() > MAX_FLOWS {
        return Err(item.error(format!("there are {} flows; 1 to {MAX_FLOWS} are possible", tables.len())));
    }
    for (index, table) in tables.into_iter().enumerate() {
        placed.add(&table, top, index)?;
    }
    let steps = || placed.plan.flows.iter().flat_map(|flow| &flow.steps);
    if let Some(item) = top.get("script").filter(|_| steps().all(|step| step.hooks == StepHooks::default())) {
        return Err(item.error("no step calls the script; write hooks = { sign = \"sign\" } below a step"));
    }
    if is_arriving && placed.plan.users == 0 {
        placed.plan.users = placed.plan.usual_users();
    }
    Ok(Some(placed))
}

/// How many users there are, 0 if that is not said, and when they come.
fn read_users(top: &Table<'_>) -> Result<(u32, UserPace), FileError> {
    let users = top.read("users", |item| match item.number() {
        Some(_) => item.whole(1, MAX_CONNECTIONS).map(|n| UserCount { most: n as u32, stages: None }),
        None => UserCount::parse(item.text("a number such as 100, or stages such as \"1..50@10s,50@60s\"")?)
            .map_err(|why| item.error(why)),
    })?;
    let arrival = top.read("arrival", super::read_arrival)?;
    let Some(rate) = top.read("user_rate", |item| super::read_rate(item, "user_rate"))? else {
        if let Some(item) = top.get("arrival") {
            return Err(
                item.error("arrival says how users of user_rate are spaced, and there is no user_rate")
            );
        }
        let users = users.map(|users| (users.most, users.stages.map_or(UserPace::Always, UserPace::Stages)));
        return Ok(users.unwrap_or((0, UserPace::Always)));
    };
    if let (Some(UserCount { stages: Some(_), .. }), Some(item)) = (&users, top.get("users")) {
        return Err(item.error("with user_rate, users is the most at the same time: a number"));
    }
    let most = users.map_or(0, |users| users.most);
    Ok((most, UserPace::Arriving(rate, arrival.unwrap_or_default())))
}

impl<'a> PlacedFlows<'a> {
    fn add(&mut self, table: &Table<'a>, top: &Table<'a>, index: usize) -> Result<(), FileError> {
        let name = table.read("name", |item| requests::read_name(item).map(str::to_owned))?;
        let name = name.unwrap_or_else(|| format!("flow {}", index + 1));
        if self.plan.flows.iter().any(|flow| flow.name == name) {
            let span = table.get("name").map_or(table.span.clone(), Item::span);
            return Err(table.source.error(span, format!("two flows are named {}", quoted(&name))));
        }
        let Some(item) = table.get("step") else {
            let message = "a flow needs steps: write [[flow.step]] below it";
            return Err(table.source.error(table.span.clone(), message));
        };
        let mut steps = Vec::new();
        for step in item.tables(STEP)? {
            if self.requests.len() == MAX_REQUESTS {
                return Err(item.error(format!("there are more than {MAX_REQUESTS} steps")));
            }
            steps.push(self.step(step, top)?);
        }
        if steps.is_empty() {
            return Err(item.error("a flow has at least one step"));
        }
        let weight = table.read("weight", Item::positive)?.unwrap_or(1.0);
        let flow = UserFlow { name, weight, steps };
        self.check_groups(&flow)?;
        self.plan.flows.push(flow);
        Ok(())
    }

    /// Whether the steps of each group follow one another, and what else a group has to be.
    fn check_groups(&self, flow: &UserFlow) -> Result<(), FileError> {
        let items = |index: usize| &self.groups[flow.steps[index].request as usize];
        let mut index = 0;
        while let Some(step) = flow.steps.get(index) {
            let members = flow.group_at(index);
            let ([Some(item), _], Some(name)) = (items(index), &step.group) else {
                index += 1;
                continue;
            };
            let group = quoted(name);
            let requests: u64 =
                flow.steps[index..index + members].iter().map(|step| u64::from(step.repeat)).sum();
            if flow.steps[..index].iter().any(|other| other.group == step.group) {
                return Err(item.error(format!("the steps of group {group} do not follow one another")));
            }
            if requests == 1 || requests > MAX_GROUP as u64 {
                let are = if requests == 1 { "is 1 request" } else { &format!("are {requests} requests") };
                return Err(
                    item.error(format!("in group {group} there {are}; 2 to {MAX_GROUP} are possible"))
                );
            }
            let early = (index..index + members - 1).find_map(|member| items(member)[1].as_ref());
            if let Some(think) = early {
                return Err(think.error(format!("the pause after group {group} is that of its last step")));
            }
            index += members;
        }
        Ok(())
    }

    /// `hooks = { body = "order", sign = "sign", judge = "judge" }`.
    fn read_hooks(&self, item: &Item<'a>, table: &Table<'a>) -> Result<StepHooks, FileError> {
        const WHAT: &str = "a table such as { body = \"order\", sign = \"sign\", judge = \"judge\" }";
        if self.plan.script.is_none() {
            return Err(
                item.error("hooks names functions of a script: write script = \"sign.js\" at the top")
            );
        }
        let mut hooks = StepHooks::default();
        for entry in item.entries(WHAT)? {
            let place = match entry.key.as_str() {
                "body" => &mut hooks.body,
                "sign" => &mut hooks.sign,
                "judge" => &mut hooks.judge,
                other => {
                    let message = format!("{} is no hook; known are body, sign and judge", quoted(other));
                    return Err(entry.source.error(entry.key_span.clone(), message));
                }
            };
            *place = Some(entry.text("the name of a function that the script exports")?.to_owned());
        }
        if hooks == StepHooks::default() {
            return Err(item.error(format!("hooks must be {WHAT}")));
        }
        let body = requests::BODY_KEYS.iter().find_map(|key| table.get(key));
        if let (Some(_), Some(body)) = (&hooks.body, body) {
            return Err(body.error("the script makes the body; leave this one out"));
        }
        Ok(hooks)
    }

    fn step(&mut self, table: Table<'a>, top: &Table<'a>) -> Result<FlowStep, FileError> {
        let request = self.requests.len() as u32;
        let think = table.read("think", |item| match item.number() {
            Some(_) => item.duration(Duration::ZERO, MAX_THINK).map(Think::Fixed),
            None => Think::parse(item.text("a pause such as \"1s\", \"1s..3s\" or \"exp:2s\"")?)
                .map_err(|why| item.error(why)),
        })?;
        let repeat = table.read("repeat", |item| item.whole(1, MAX_REPEAT))?.unwrap_or(1) as u32;
        let follow = table.read("follow", |item| item.whole(0, MAX_FOLLOW.into()))?.unwrap_or(0) as u32;
        let expect = read_expect(&table)?;
        let items = table
            .read("take", |item| item.entries("a table such as { token = \"json:$.token\" }"))?
            .unwrap_or_default();
        let take = items.iter().map(read_take).collect::<Result<Vec<_>, _>>()?;
        if take.len() > MAX_TAKES {
            return Err(items[MAX_TAKES].error(format!("a step takes at most {MAX_TAKES} values")));
        }
        let group = table.read("group", |item| requests::read_name(item).map(str::to_owned))?;
        self.groups.push(["group", "think"].map(|key| table.get(key).cloned()));
        let span = table.get("name").map_or(table.span.clone(), Item::span);
        let source = table.source;
        let mut hooks = table.read("hooks", |item| self.read_hooks(item, &table))?.unwrap_or_default();
        let made = hooks.body.is_some().then_some(MADE_SLOT);
        let mut placed = requests::read(table, top, made)?;
        if hooks.sign.is_some() {
            hooks.uses = signed(&placed.request);
        }
        let expect = with_statuses(expect, &mut placed.request);
        let name = &placed.request.name;
        if !name.is_empty() && self.requests.iter().any(|other| other.request.name == *name) {
            let message = format!("two steps are named {}; each needs a name of its own", quoted(name));
            return Err(source.error(span, message));
        }
        let host = placed.origin.take().map_or(Ok(0), |origin| self.host(origin, &placed))?;
        self.requests.push(placed);
        self.takes.push(items);
        Ok(FlowStep {
            request,
            host,
            repeat,
            expect,
            follow,
            take,
            think: think.unwrap_or_default(),
            group,
            hooks,
        })
    }

    /// The number of a host that a step names. Its addresses are not known yet.
    fn host(&mut self, origin: String, step: &Placed<'a>) -> Result<u32, FileError> {
        let hosts = &mut self.plan.hosts;
        let known = hosts.iter().position(|host| host.target.url == origin);
        let nth = known.unwrap_or(hosts.len());
        if nth == MAX_HOSTS {
            return Err(step.at_path(format!("the steps of a plan go to at most {MAX_HOSTS} other hosts")));
        }
        if known.is_none() {
            let target = Target { url: origin, authority: String::new(), addresses: Vec::new() };
            hosts.push(FlowHost { target, lookup: None, tls: None });
        }
        Ok(nth as u32 + 1)
    }

    /// Compiles the requests of a flow with the values that are there when they are sent. Returns the names of all values.
    fn check_slots(
        &self,
        flow: &UserFlow,
        data: &[(DataSet, Item<'_>)],
        http2: bool,
    ) -> Result<Vec<String>, FileError> {
        let mut names: Vec<String> = Vec::new();
        let mut index = 0;
        let with = |names: &[String], step: &FlowStep| {
            let made = step.hooks.body.iter().map(|_| MADE_SLOT.to_owned());
            names.iter().cloned().chain(step.hooks.uses.iter().cloned()).chain(made).collect::<Vec<_>>()
        };
        while let Some(first) = flow.steps.get(index) {
            let members = &flow.steps[index..index + flow.group_at(index).max(1)];
            let known = names.len();
            names.extend(members.iter().flat_map(|step| &step.take).map(|take| take.name.clone()));
            // A step that is repeated one at a time has its own values.
            let has_own = first.group.is_none() && first.repeat > 1;
            let known = if has_own { names.len() } else { known };
            for step in members {
                let request = &self.requests[step.request as usize];
                let checked = request.check_with(data, http2, &with(&names[..known], step));
                if first.group.is_some() && request.check_with(data, http2, &with(&names, step)).is_ok() {
                    checked.map_err(|error| {
                        error.because("a value is there once all of its group are answered")
                    })?;
                } else {
                    checked?;
                }
            }
            index += members.len();
        }
        Ok(names)
    }

    /// Compiles all requests, and finds values that nothing uses.
    pub(super) fn check(&self, data: &[(DataSet, Item<'_>)], http2: bool) -> Result<(), FileError> {
        if let Some((_, item)) = data.iter().find(|(set, _)| self.plan.script.is_some() && set.name == "sign")
        {
            return Err(item.error("slots of a script begin with sign; name the data otherwise"));
        }
        for flow in &self.plan.flows {
            let mut names = self.check_slots(flow, data, http2)?;
            names.extend(self.plan.made_columns());
            for (index, step) in flow.steps.iter().enumerate() {
                let first = match flow.group_at(index) {
                    // Of its own values, only a step that is repeated has some.
                    0 if step.repeat > 1 => index,
                    0 => index + 1,
                    members => index + members,
                };
                for item in &self.takes[step.request as usize] {
                    let later = flow.steps.get(first..).unwrap_or_default();
                    let mut is_used = false;
                    for step in later {
                        is_used |= self.requests[step.request as usize].uses(data, &item.key, &names)?;
                    }
                    if !is_used {
                        let message = format!("no later step uses {{{{{}}}}}; leave it out", item.key);
                        return Err(item.source.error(item.key_span.clone(), message));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a response must be like, and its statuses if `expect` names them.
type StatedExpectation = (StepExpectation, Option<Vec<u16>>);

/// `expect` of a step or of a request.
pub(super) fn read_expect(table: &Table<'_>) -> Result<Option<StatedExpectation>, FileError> {
    let expect = table.read("expect", expectation)?;
    match (&expect, table.get("expect_status")) {
        (Some((_, Some(_))), Some(item)) => Err(item.error("expect has a status too; keep one of the two")),
        _ => Ok(expect),
    }
}

/// Gives the statuses that `expect` names to its request.
pub(super) fn with_statuses(
    expect: Option<StatedExpectation>,
    request: &mut Request,
) -> Option<StepExpectation> {
    let (expect, statuses) = expect?;
    if let Some(statuses) = statuses {
        request.expect.status = statuses;
    }
    Some(expect)
}

/// `expect = { status = "2xx", header = { Name = "value" }, json = { "$.ok" = true }, regex = "...", schema = "item.json", max_ms = 200 }`,
/// and the statuses of it.
fn expectation(item: &Item<'_>) -> Result<StatedExpectation, FileError> {
    const WHAT: &str = "a table such as { status = 200, json = { \"$.ok\" = true }, max_ms = 200 }";
    const KNOWN: &str = "status, header, json, regex, schema and max_ms";
    let mut expect = StepExpectation::default();
    let mut statuses = None;
    let entries = item.entries(WHAT)?;
    if entries.is_empty() {
        return Err(item.error(format!("expect is empty; known are {KNOWN}")));
    }
    for entry in &entries {
        match entry.key.as_str() {
            "status" => statuses = Some(requests::read_statuses(entry)?),
            "max_ms" => {
                expect.max = Some(Duration::from_millis(entry.whole(1, MAX_TIMEOUT.as_millis() as u64)?))
            }
            kind @ ("header" | "json") => {
                if matches!(entry.value.get_ref(), DeValue::String(_)) {
                    let name = entry.text("a name")?;
                    add_test(&mut expect, entry, format!("{kind}:{name}"), None)?;
                    continue;
                }
                for part in entry.entries("a name, or a table of names and values")? {
                    add_test(&mut expect, &part, format!("{kind}:{}", part.key), Some(part.scalar()?))?;
                }
            }
            "regex" => {
                let pattern = entry.text("a regular expression")?;
                add_test(&mut expect, entry, format!("regex:{pattern}"), None)?;
            }
            "schema" => expect.schema = Some(read_schema(entry)?),
            other => {
                let message = format!("{} is not expected of a response; known are {KNOWN}", quoted(other));
                return Err(entry.source.error(entry.key_span.clone(), message));
            }
        }
    }
    match expect.parts.get(MAX_TAKES) {
        Some(_) => Err(item.error(format!("a step expects at most {MAX_TAKES} parts of its response"))),
        None => Ok((expect, statuses)),
    }
}

/// `schema = "item.json"`, or the schema itself as a table.
fn read_schema(item: &Item<'_>) -> Result<SchemaText, FileError> {
    let schema = match item.value.get_ref() {
        DeValue::Table(_) => SchemaText { file: None, text: requests::plain_json(item)? },
        _ => {
            let file =
                item.text("a file with a JSON Schema, such as \"item.json\", or a schema as a table")?;
            let bytes = requests::read_file(item, "schema")?;
            let not_text = |_| item.error(format!("expect: schema {file}: it is not UTF-8 text"));
            let text = std::str::from_utf8(&bytes).map_err(not_text)?;
            SchemaText { file: Some(file.to_owned()), text: text.trim_start_matches('\u{feff}').to_owned() }
        }
    };
    let compiled = BodySchema::new(schema.file.as_deref(), &schema.text);
    compiled.map(|_| schema).map_err(|why| item.error(format!("expect: {why}")))
}

fn add_test(
    expect: &mut StepExpectation,
    item: &Item<'_>,
    from: String,
    wanted: Option<String>,
) -> Result<(), FileError> {
    ResponseTest::new(&from, wanted.as_deref()).map_err(|why| item.error(format!("expect: {why}")))?;
    expect.parts.push((from, wanted));
    Ok(())
}

/// A script's text, from a file beside the plan.
fn read_script(item: &Item<'_>) -> Result<PlanScript, FileError> {
    let file = item.text("a file with a script, such as \"sign.js\"")?;
    let bytes = requests::read_file(item, "script")?;
    if bytes.len() as u64 > MAX_PLAN_BYTES {
        return Err(item.error(format!("the script is larger than {} MiB", MAX_PLAN_BYTES >> 20)));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| item.error("the script is not UTF-8 text"))?;
    Ok(PlanScript { file: file.to_owned(), text: text.to_owned() })
}

/// Names of the slots `{{sign.NAME}}` of a request.
fn signed(request: &Request) -> Vec<String> {
    let mut uses = Vec::new();
    each_of(request, SIGN_PREFIX, |_, _, name| {
        let slot = format!("{SIGN_PREFIX}{name}");
        if !uses.contains(&slot) {
            uses.push(slot);
        }
    });
    uses
}

fn read_take(item: &Item<'_>) -> Result<TakeRule, FileError> {
    const MADE: [&str; 3] = ["seq", "now_ms", "uuid"];
    let at_name = |message: String| item.source.error(item.key_span.clone(), message);
    check_name(&item.key).map_err(|why| at_name(why.to_string()))?;
    if MADE.contains(&item.key.as_str()) {
        return Err(at_name(format!("{{{{{}}}}} is a slot already; choose another name", item.key)));
    }
    let from = item.text("where the value comes from, such as \"json:$.token\"")?;
    Extractor::parse(from).map_err(|why| item.error(format!("take: {why}")))?;
    Ok(TakeRule { name: item.key.clone(), from: from.to_owned() })
}
