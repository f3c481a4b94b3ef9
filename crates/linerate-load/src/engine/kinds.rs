//! The plan's requests, compiled for one core.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use linerate_client::{BodyPart, Out, Requests, Run};
use linerate_http::client::{
    CellError, Expect, Rendered, RequestSpec, StreamTemplate, Template, TemplateError, Values,
};
use linerate_net::{Lent, NetError, Time, Transport};

use crate::extract::reading::StepReads;
use crate::flows::hooks::{FlowHooks, HookedRequest, HookedResponse};
use crate::flows::journeys::{self, DataRows, Journeys, StepEnd};
use crate::limits::{BATCH_BYTES, RENDERED_BYTES, SAMPLE_HEAD_BYTES};
use crate::plan::env;
use crate::plan::http::Http;
use crate::plan::parts::has_field;
use crate::plan::pick::Picker;
use crate::plan::{DataSet, Expectation, Plan, Request};

/// All kinds of requests and how their numbers map to them.
#[derive(Debug)]
pub(crate) struct Kinds {
    kinds: Vec<RequestKind>,
    picker: Picker,
    /// By data set, then by row.
    sets: Arc<DataRows>,
    flows: Option<UserKinds>,
    /// What is read of the responses to each request of the plan; empty: nothing of any.
    reads: Vec<StepReads>,
    seed: u64,
    /// This core's number and how many there are: request `n` of this core is number `n * cores + core` of the run.
    core: u64,
    cores: u64,
    scratch: Vec<u8>,
    /// Columns that are never shown.
    hidden: std::ops::Range<usize>,
    /// Large bodies in the transport's keeping, by where they are in memory.
    bodies: HashMap<usize, Lent>,
}

/// The kinds of a plan with flows. Behind those of its requests come the same ones with cookies. Where
/// redirects are followed, both follow again to another target, and once more as GETs.
#[derive(Debug)]
struct UserKinds {
    journeys: Journeys,
    /// Paths of the plan's requests, where no slot is in them.
    paths: Vec<Option<Vec<u8>>>,
    /// Whether each request of the plan follows redirects.
    follows: Vec<bool>,
    /// The script of the plan.
    hooks: Option<FlowHooks>,
}

/// The name of the slot for a user's cookies. No plan can write it: names have no colon.
const COOKIES_SLOT: &str = ":cookies";

/// The name of the slot for a redirect's target, without its first slash.
const LOCATION_SLOT: &str = ":location";

/// One kind of request.
#[derive(Debug)]
pub(crate) struct RequestKind {
    pub(crate) name: String,
    pub(crate) expect: Expect,
    pub(crate) idempotent: bool,
    pub(crate) expectation: Expectation,
    /// It asks for another protocol.
    upgrades: bool,
    /// Its responses have a status of gRPC's.
    pub(crate) is_grpc: bool,
    usual: Template,
    closing: Template,
    /// For HTTP/2 or HTTP/3, where connections may speak it.
    streamed: Option<StreamTemplate>,
    lent: Option<RequestBatch>,
}

/// Copies of a request one after the other, then one that says `Connection: close`, in the transport's keeping.
#[derive(Clone, Debug)]
struct RequestBatch {
    bytes: Arc<[u8]>,
    lent: Lent,
    copies: usize,
    len: usize,
    closing_len: usize,
}

/// A request of the plan that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Its own text.
    #[error("request \"{name}\": {source}")]
    Template {
        /// Which request.
        name: String,
        /// Why its template cannot be compiled.
        source: TemplateError,
    },
    /// What its flow takes.
    #[error("{0}")]
    Flow(String),
    /// A cell of the data it draws from.
    #[error("request \"{name}\" with row {row} of the data, column \"{column}\": {source}")]
    Cell {
        /// Which request.
        name: String,
        /// The row, counted from 1.
        row: usize,
        /// The column as slots name it.
        column: String,
        /// Why the cell cannot stand in its slot.
        source: CellError,
    },
}

/// Compiles a request of the plan; `closing` adds `Connection: close`.
pub(crate) fn compile(plan: &Plan, request: &Request, closing: bool) -> Result<Template, RequestError> {
    if request.is_raw() {
        return Ok(Template::raw(&request.body.clone().unwrap_or_default()));
    }
    Template::compile(&spec(plan, request, closing), &columns(plan)).map_err(|e| misfit(request, e))
}

/// Compiles a request for HTTP/2 or HTTP/3, where connections may speak it.
fn compile_streamed(plan: &Plan, request: &Request) -> Result<Option<StreamTemplate>, RequestError> {
    let Some(coding) = plan.field_coding() else { return Ok(None) };
    let (spec, columns) = (spec(plan, request, false), columns(plan));
    let compiled = StreamTemplate::compile_coded(&spec, &columns, plan.tls.is_some(), coding);
    compiled.map(Some).map_err(|e| misfit(request, e))
}

fn misfit(request: &Request, source: TemplateError) -> RequestError {
    RequestError::Template { name: request.name.clone(), source }
}

/// A request of the plan with all that is added to it.
fn spec(plan: &Plan, request: &Request, closing: bool) -> RequestSpec {
    let has = |name: &str| request.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let mut fields = Vec::with_capacity(request.fields.len() + 3);
    if !has("host") {
        fields.push(("Host".to_owned(), plan.target.authority.clone()));
    }
    fields.extend(request.fields.iter().cloned());
    let mut target = request.path.clone();
    if let Some(proxy) = plan.route.forwarder() {
        // RFC 9112 section 3.2.2.
        target = format!("http://{}{target}", plan.target.authority);
        fields.extend(proxy.authorization().map(|value| ("Proxy-Authorization".to_owned(), value)));
    }
    if let Some(tag) = &plan.tag {
        fields.push((tag.clone(), "{{seq}}".to_owned()));
    }
    if closing && !has("connection") {
        fields.push(("Connection".to_owned(), "close".to_owned()));
    }
    if matches!(plan.http.version, Http::Two | Http::Three) && has("te") && !has("connection") {
        // The form of HTTP/1.1 is shown, and never sent.
        fields.push(("Connection".to_owned(), "TE".to_owned()));
    }
    RequestSpec {
        method: request.method.clone(),
        target,
        fields,
        body: request.body.clone().unwrap_or_default(),
    }
}

/// The same with a user's cookies, unless it has a Cookie field of its own.
fn with_cookies(request: &Request) -> Request {
    let mut request = request.clone();
    if !has_field(&request.fields, "cookie") {
        request.fields.push(("Cookie".to_owned(), format!("{{{{{COOKIES_SLOT}}}}}")));
    }
    request
}

/// The request that follows a redirect; `by_get`: without what it carried, `leaves`: without what is meant for its own
/// host alone (RFC 9110, section 15.4).
fn redirected(request: &Request, by_get: bool, leaves: bool) -> Request {
    const OF_HOST: [&str; 3] = ["authorization", "cookie", "host"];
    const OF_CONTENT: [&str; 5] =
        ["content-type", "content-encoding", "content-language", "content-location", "content-md5"];
    let mut request = Request { path: format!("/{{{{{LOCATION_SLOT}}}}}"), ..request.clone() };
    if leaves {
        request.fields.retain(|(name, _)| !OF_HOST.contains(&name.to_ascii_lowercase().as_str()));
    }
    if by_get {
        request.body = None;
        request.fields.retain(|(name, _)| !OF_CONTENT.contains(&name.to_ascii_lowercase().as_str()));
        if request.method != "HEAD" {
            "GET".clone_into(&mut request.method);
        }
    }
    request
}

/// The further forms that users send the requests of a plan in, at the host of this number.
fn of_users(plan: &Plan, host: usize) -> Vec<Request> {
    let Some(flows) = &plan.flows else { return Vec::new() };
    let targets: &[Option<bool>] = if flows.follows() { &[None, Some(false), Some(true)] } else { &[None] };
    let hosts = flows.hosts_by_request(plan.requests.len());
    let mut forms = Vec::new();
    for target in targets {
        let to = |(nth, request): (usize, &Request)| match target {
            Some(get) => redirected(request, *get, hosts[nth] != host),
            None => request.clone(),
        };
        let requests: Vec<Request> = plan.requests.iter().enumerate().map(to).collect();
        let with: Vec<Request> = requests.iter().map(with_cookies).collect();
        forms.extend(requests.into_iter().filter(|_| target.is_some()).chain(with));
    }
    forms
}

/// Whether a request is a gRPC call.
fn is_grpc(request: &Request) -> bool {
    let is_content_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let content_type = request.fields.iter().find(is_content_type);
    content_type.is_some_and(|(_, value)| value.starts_with("application/grpc"))
}

/// Names of all columns of all data sets, as slots name them.
fn columns(plan: &Plan) -> Vec<String> {
    let of_data = plan.data.iter().flat_map(|d| d.columns.iter().map(move |c| format!("{}.{}", d.name, c)));
    let mut columns: Vec<String> = of_data.collect();
    if let Some(flows) = &plan.flows {
        columns.extend(flows.names());
        columns.extend(flows.made_columns());
        columns.extend([LOCATION_SLOT.to_owned(), COOKIES_SLOT.to_owned()]);
    }
    columns
}

/// Which columns are variables of the environment.
fn variables(plan: &Plan) -> std::ops::Range<usize> {
    let mut before = 0;
    for set in plan.data.iter().filter(|set| !set.rows.is_empty()) {
        if set.name == env::NAME {
            return before..before + set.columns.len();
        }
        before += set.columns.len();
    }
    0..0
}

/// The rows of a data set, as templates take them.
fn rows(set: &DataSet) -> Vec<Vec<Box<[u8]>>> {
    set.rows.iter().map(|row| row.iter().map(|cell| cell.as_bytes().into()).collect()).collect()
}

impl RequestKind {
    /// Whether this status is good. 101 is so only where another protocol was asked for (RFC 9110 section 15.2.2).
    pub(crate) fn good_status(&self, status: u16) -> bool {
        let asked = status != 101 || self.upgrades || !self.expectation.status.is_empty();
        asked && self.expectation.good_status(status)
    }

    /// Whether this status is expected by name.
    pub(crate) fn expects(&self, status: u16) -> bool {
        self.expectation.status.contains(&status)
    }

    /// Rendering copies cells as they are: each must be one that may stand where its slot is.
    fn check(&self, plan: &Plan, sets: &[Vec<Vec<Box<[u8]>>>]) -> Result<(), RequestError> {
        let longest = sets.iter().map(Vec::len).max().unwrap_or(0);
        let (mut scratch, mut cells) = (Vec::new(), Vec::new());
        // What users take is checked when it is known.
        let taken =
            plan.flows.as_ref().map_or(0, |flows| flows.names().len() + flows.made_columns().len() + 2);
        for i in 0..longest {
            let mut row = row(sets, i as u64, &mut scratch);
            if taken > 0 {
                cells.clear();
                cells.extend_from_slice(row);
                cells.resize(row.len() + taken, Box::from(&b"1"[..]));
                row = &cells;
            }
            self.usual.check_row(row).map_err(|source| RequestError::Cell {
                name: self.name.clone(),
                row: i + 1,
                column: columns(plan).get(source.column).cloned().unwrap_or_default(),
                source,
            })?;
        }
        Ok(())
    }
}

/// Row `n` modulo their number of each set, side by side. Only with several sets are cells copied.
fn row<'a>(sets: &'a [Vec<Vec<Box<[u8]>>>], n: u64, scratch: &'a mut Vec<Box<[u8]>>) -> &'a [Box<[u8]>] {
    let nth = |set: &'a Vec<Vec<Box<[u8]>>>| &set[usize::try_from(n % set.len() as u64).unwrap_or(0)];
    match sets {
        [] => &[],
        [one] => nth(one),
        several => {
            scratch.clear();
            scratch.extend(several.iter().flat_map(nth).cloned());
            scratch
        }
    }
}

impl Kinds {
    pub(crate) fn new(plan: &Plan, core: u32, cores: u32) -> Result<Kinds, RequestError> {
        Kinds::with_users(plan, (core, cores), None)
    }

    /// As [`Kinds::new`], of a plan as it is for one of its hosts, with the users that all hosts share.
    pub(crate) fn with_users(
        plan: &Plan,
        (core, cores): (u32, u32),
        users: Option<Journeys>,
    ) -> Result<Kinds, RequestError> {
        let host = users.as_ref().map_or(0, Journeys::host);
        let kind = |request: &Request| {
            let usual = compile(plan, request, false)?;
            Ok(RequestKind {
                name: request.name.clone(),
                expect: usual.expect(),
                idempotent: usual.is_idempotent(),
                expectation: request.expect.clone(),
                is_grpc: is_grpc(request),
                upgrades: request.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case("upgrade")),
                closing: compile(plan, request, true)?,
                streamed: compile_streamed(plan, request)?,
                usual,
                lent: None,
            })
        };
        let mut kinds = plan.requests.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        for request in of_users(plan, host) {
            kinds.push(kind(&request)?);
        }
        let sets: DataRows = plan.data.iter().filter(|d| !d.rows.is_empty()).map(rows).collect();
        for kind in &kinds {
            kind.check(plan, &sets)?;
        }
        let (core, cores) = (u64::from(core), u64::from(cores.max(1)));
        let sets = Arc::new(sets);
        let reads = match &plan.flows {
            Some(flows) => journeys::reads(plan, flows),
            None if plan.requests.iter().any(|r| r.expect.response.is_some()) => journeys::expectations(plan),
            None => Ok(Vec::new()),
        };
        let reads = reads.map_err(RequestError::Flow)?;
        let flows = plan.flows.as_ref().map(|flows| {
            let new = || Journeys::new(plan, flows, &reads, Arc::clone(&sets), (core, cores));
            let journeys = users.unwrap_or_else(new);
            let path = |r: &Request| (!r.path.contains("{{")).then(|| r.path.clone().into_bytes());
            let mut follows = vec![false; plan.requests.len()];
            for step in flows.flows.iter().flat_map(|flow| &flow.steps).filter(|step| step.follow > 0) {
                follows[step.request as usize] = true;
            }
            let made = flows.made_columns().len() + 2;
            let mut names = columns(plan);
            names.truncate(names.len().saturating_sub(made));
            let hooks = FlowHooks::load(plan, names).map_err(RequestError::Flow)?;
            let paths = plan.requests.iter().map(path).collect();
            Ok(UserKinds { journeys, paths, follows, hooks })
        });
        Ok(Kinds {
            kinds,
            picker: Picker::new(plan),
            sets,
            flows: flows.transpose()?,
            reads,
            seed: plan.seed,
            core,
            cores,
            scratch: Vec::new(),
            hidden: variables(plan),
            bodies: HashMap::new(),
        })
    }

    /// Prebuilds what does not change from request to request, in the transport's keeping.
    pub(crate) fn lend_to<T: Transport>(&mut self, transport: &mut T, depth: u32) {
        for kind in &mut self.kinds {
            for body in kind.usual.shared() {
                self.bodies.entry(address(body)).or_insert_with(|| transport.lend(Arc::clone(body)));
            }
            let (Some(usual), Some(closing)) = (kind.usual.fixed(), kind.closing.fixed()) else { continue };
            let copies = (BATCH_BYTES / usual.len().max(1)).clamp(1, depth.max(1) as usize);
            let mut bytes = Vec::with_capacity(copies * usual.len() + closing.len());
            for _ in 0..copies {
                bytes.extend_from_slice(usual);
            }
            bytes.extend_from_slice(closing);
            let (len, closing_len) = (usual.len(), closing.len());
            let bytes = Arc::from(bytes);
            let lent = transport.lend(Arc::clone(&bytes));
            kind.lent = Some(RequestBatch { bytes, lent, copies, len, closing_len });
        }
    }

    pub(crate) fn get(&self, kind: u16) -> &RequestKind {
        &self.kinds[kind as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RequestKind> {
        self.kinds.iter()
    }

    /// The names of the kinds, each once, and which of them each kind has.
    pub(crate) fn names(&self) -> (Vec<String>, Vec<usize>) {
        let mut names: Vec<String> = Vec::new();
        let mut by_name = HashMap::new();
        let of_kind = self.kinds.iter().map(|kind| {
            *by_name.entry(kind.name.as_str()).or_insert_with(|| {
                names.push(kind.name.clone());
                names.len() - 1
            })
        });
        let of_kind = of_kind.collect();
        (names, of_kind)
    }

    /// This core's number and how many there are.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.core, self.cores)
    }

    /// Number in the whole run of this core's request `local`.
    pub(crate) fn number(&self, local: u64) -> u64 {
        local * self.cores + self.core
    }

    /// This core's request with a number in the whole run, if it is this core's.
    pub(crate) fn local(&self, number: u64) -> Option<u64> {
        (number % self.cores == self.core).then_some(number / self.cores)
    }

    /// The kind of a request, and how many of the `count` from it on are of the same kind.
    pub(crate) fn pick(&self, first: u64, count: u32) -> (u16, u32) {
        if let Some(flows) = &self.flows {
            return (flows.journeys.kind(first), count);
        }
        if self.kinds.len() == 1 {
            return (0, count);
        }
        let kind = self.picker.pick(self.number(first));
        let same = (1..count).take_while(|i| self.picker.pick(self.number(first + u64::from(*i))) == kind);
        (u16::try_from(kind).unwrap_or(u16::MAX), 1 + u32::try_from(same.count()).unwrap_or(0))
    }

    /// The users, where the plan has flows.
    pub(crate) fn journeys(&self) -> Option<&Journeys> {
        Some(&self.flows.as_ref()?.journeys)
    }

    /// Requests of the plan. Kinds beyond are the same ones with a user's cookies.
    pub(crate) fn requests(&self) -> u16 {
        let requests = if self.flows.is_some() { self.reads.len() } else { self.kinds.len() };
        u16::try_from(requests).unwrap_or(u16::MAX)
    }

    /// What is read of the responses to requests of a kind, where the plan has flows or expects something.
    pub(crate) fn reads(&self, kind: u16) -> Option<&StepReads> {
        if self.reads_nothing() {
            return None;
        }
        self.reads.get(usize::from(kind % self.requests().max(1)))
    }

    /// Whether nothing is read of any response.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.reads.is_empty()
    }

    /// Whether the step of a kind expects something of its response.
    pub(crate) fn has_expectation(&self, kind: u16) -> bool {
        self.reads(kind).is_some_and(|reads| reads.expect.is_some())
    }

    /// Whether requests of a kind follow redirects.
    pub(crate) fn follows(&self, kind: u16) -> bool {
        let place = usize::from(kind % self.requests().max(1));
        self.flows.as_ref().is_some_and(|flows| flows.follows.get(place) == Some(&true))
    }

    /// A request of a user cannot be made.
    pub(crate) fn refuse(&self, local: u64, why: &str, now: Time) {
        if let Some(flows) = &self.flows {
            flows.journeys.ended(local, StepEnd::Lost(why), now);
        }
    }

    /// How long the script of the plan has run.
    pub(crate) fn script_time(&self) -> Duration {
        let hooks = self.flows.as_ref().and_then(|flows| flows.hooks.as_ref());
        hooks.map_or(Duration::ZERO, FlowHooks::spent)
    }

    /// What the script of the plan finds wrong with the response to a request, if something.
    pub(crate) fn judge(&self, local: u64, kind: u16, response: &HookedResponse<'_>) -> Option<String> {
        let flows = self.flows.as_ref()?;
        let hooks = flows.hooks.as_ref()?;
        let cells = flows.journeys.with_cells(local, <[_]>::to_vec);
        let request = usize::from(kind % self.requests().max(1));
        hooks.judge(&HookedRequest { request, number: self.number(local), cells: &cells }, response)
    }

    /// Lets the script of the plan make its part of a request.
    fn make(&self, flows: &UserKinds, hooks: &FlowHooks, local: u64, now_ms: u64) -> Result<(), String> {
        let kind = flows.journeys.kind(local);
        let request = usize::from(kind % self.requests().max(1));
        let cells = flows.journeys.with_cells(local, <[_]>::to_vec);
        let of = HookedRequest { request, number: self.number(local), cells: &cells };
        let made = hooks.make(&of, |made| {
            flows.journeys.set_made(local, made.to_vec());
            let mut bytes = Vec::new();
            self.render(kind, local, false, now_ms, &mut bytes);
            bytes
        })?;
        flows.journeys.set_made(local, made);
        Ok(())
    }

    /// A request of a user is about to leave: lets the script see it, and adds its cookies.
    ///
    /// # Errors
    /// A value cannot stand where the request uses it, or the script cannot make its part.
    pub(crate) fn prepare(&self, local: u64, now: Time, now_ms: u64) -> Result<(), String> {
        let Some(flows) = &self.flows else { return Ok(()) };
        if let Some(hooks) = &flows.hooks {
            self.make(flows, hooks, local, now_ms)?;
        }
        let kind = usize::from(flows.journeys.kind(local));
        let usual = &self.kinds[kind].usual;
        flows.journeys.with_cells(local, |cells| usual.check_row(cells)).map_err(|e| e.to_string())?;
        let target = flows.paths.get(kind).cloned().flatten().unwrap_or_else(|| {
            let mut bytes = Vec::new();
            self.with_values(local, 0, |values| usual.render(values, &mut bytes));
            bytes.split(|b| *b == b' ').nth(1).unwrap_or_default().to_vec()
        });
        let with = u16::try_from(kind + flows.paths.len()).unwrap_or(u16::MAX);
        flows.journeys.fill_cookies(local, target, with, now);
        Ok(())
    }

    /// Renders one request.
    pub(crate) fn render(&self, kind: u16, local: u64, closing: bool, now_ms: u64, out: &mut Vec<u8>) {
        self.with_values(local, now_ms, |values| self.template(kind, closing).render(values, out));
    }

    /// Renders one request stretch by stretch, so that large bodies stay where they are.
    pub(crate) fn render_parts(
        &self,
        (kind, closing): (u16, bool),
        local: u64,
        now_ms: u64,
        scratch: &mut Vec<u8>,
        each: impl FnMut(Rendered<'_>),
    ) {
        let template = self.template(kind, closing);
        self.with_values(local, now_ms, |values| template.render_parts(values, scratch, each));
    }

    fn template(&self, kind: u16, closing: bool) -> &Template {
        let kind = self.get(kind);
        if closing { &kind.closing } else { &kind.usual }
    }

    #[inline]
    fn with_values(&self, local: u64, now_ms: u64, fill: impl FnOnce(&Values<'_>)) {
        let seq = self.number(local);
        if let Some(flows) = &self.flows {
            return flows
                .journeys
                .with_cells(local, |row| fill(&Values { seq, now_ms, seed: self.seed, row }));
        }
        let mut cells = Vec::new();
        let row = row(&self.sets, seq, &mut cells);
        fill(&Values { seq, now_ms, seed: self.seed, row });
    }

    /// The head of a request for people to read, without secrets and variables of the environment. The head of
    /// its response tells the version; fields are written as HTTP/1.1 writes them, as curl does.
    pub(crate) fn shown(&self, kind: u16, local: u64, response: &[u8]) -> String {
        const SECRET: [&str; 4] = ["authorization:", "proxy-authorization:", "cookie:", "x-api-key:"];
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        let seq = self.number(local);
        let mut cells = match &self.flows {
            Some(flows) => flows.journeys.with_cells(local, <[_]>::to_vec),
            None => row(&self.sets, seq, &mut Vec::new()).to_vec(),
        };
        for cell in self.hidden.clone() {
            cells[cell] = Box::from(&b"***"[..]);
        }
        let values = Values { seq, now_ms: 0, seed: self.seed, row: &cells };
        self.template(kind, false).render_parts(&values, &mut scratch, |part| {
            if let Rendered::Copied(part) = part {
                bytes.extend_from_slice(part);
            }
        });
        let text = String::from_utf8_lossy(&bytes);
        let head = text.split("\r\n\r\n").next().unwrap_or_default();
        let is_secret = |line: &str| SECRET.iter().any(|s| line.to_ascii_lowercase().starts_with(s));
        let mut shown = head.lines().filter(|line| !is_secret(line)).collect::<Vec<_>>().join("\n");
        let later = ["HTTP/2", "HTTP/3"].into_iter().find(|name| response.starts_with(name.as_bytes()));
        if let Some(version) = later {
            shown = shown.replacen(" HTTP/1.1", &format!(" {version}"), 1);
        }
        shown.chars().take(SAMPLE_HEAD_BYTES).collect()
    }

    /// Sends `count` requests of a kind; the last of them says `Connection: close` when `closing`. Returns the bytes.
    pub(crate) fn send(&mut self, out: &mut impl Out, what: Sending) -> Result<u64, NetError> {
        match &self.kinds[what.kind as usize].lent {
            Some(batch) => send_lent(out, batch, what.count as usize, what.closing),
            None if self.get(what.kind).usual.shares() => self.send_parts(out, what),
            None => self.send_rendered(out, what),
        }
    }

    /// Sends requests whose large bodies the transport keeps.
    fn send_parts(&mut self, out: &mut impl Out, what: Sending) -> Result<u64, NetError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (mut bytes, mut sent) = (0, Ok(()));
        for i in 0..what.count {
            let closing = what.closing && i + 1 == what.count;
            let local = what.first + u64::from(i);
            self.render_parts((what.kind, closing), local, what.now_ms, &mut scratch, |part| {
                if sent.is_err() {
                    return;
                }
                let (len, result) = match part {
                    Rendered::Copied(part) => (part.len(), out.send(part)),
                    Rendered::Shared(body, range) => {
                        let lent = self.bodies.get(&address(body)).copied();
                        (range.len(), out.send_shared(body, lent, range))
                    }
                };
                bytes += len as u64;
                sent = result;
            });
        }
        self.scratch = scratch;
        sent.map(|()| bytes)
    }

    fn send_rendered(&mut self, out: &mut impl Out, what: Sending) -> Result<u64, NetError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let mut bytes = 0;
        let mut sent = Ok(());
        for i in 0..what.count {
            let closing = what.closing && i + 1 == what.count;
            self.render(what.kind, what.first + u64::from(i), closing, what.now_ms, &mut scratch);
            if scratch.len() >= RENDERED_BYTES || i + 1 == what.count {
                sent = out.send(&scratch);
                bytes += scratch.len() as u64;
                scratch.clear();
                if sent.is_err() {
                    break;
                }
            }
        }
        self.scratch = scratch;
        sent.map(|()| bytes)
    }
}

/// Where a body is in memory, which no other is while it is held.
fn address(body: &Arc<[u8]>) -> usize {
    body.as_ptr() as usize
}

/// Requests to send: `count` of this core's numbers from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) kind: u16,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) closing: bool,
    /// Wall-clock time in milliseconds, for `{{now_ms}}`.
    pub(crate) now_ms: u64,
}

/// Requests while they are sent, with the time for those that name it.
pub(crate) struct Rendering<'a> {
    pub(crate) kinds: &'a mut Kinds,
    pub(crate) now_ms: u64,
}

impl Requests for Rendering<'_> {
    #[inline]
    fn write_h1(&mut self, run: &Run, closing: bool, out: &mut impl Out) -> Result<u64, NetError> {
        let Run { kind, first, count, .. } = *run;
        self.kinds.send(out, Sending { kind, first, count, closing, now_ms: self.now_ms })
    }

    #[inline]
    fn fixed_block(&self, kind: u16) -> Option<&[u8]> {
        self.kinds.get(kind).streamed.as_ref()?.fixed()
    }

    fn write_h2(&mut self, run: &Run, block: &mut Vec<u8>, mut body: impl FnMut(BodyPart<'_>)) {
        let mut scratch = std::mem::take(&mut self.kinds.scratch);
        let kinds = &*self.kinds;
        let Some(template) = &kinds.get(run.kind).streamed else { return };
        kinds.with_values(run.first, self.now_ms, |values| {
            template.render_block(values, block);
            template.render_body(values, &mut scratch, |part| match part {
                Rendered::Copied(bytes) => body(BodyPart::Copied(bytes)),
                Rendered::Shared(bytes, range) => {
                    let lent = kinds.bodies.get(&address(bytes)).copied();
                    body(BodyPart::Shared(bytes, lent, range));
                }
            });
        });
        self.kinds.scratch = scratch;
    }
}

fn send_lent(out: &mut impl Out, batch: &RequestBatch, count: usize, closing: bool) -> Result<u64, NetError> {
    let mut send = |range| out.send_shared(&batch.bytes, Some(batch.lent), range);
    let mut usual = count - usize::from(closing);
    let mut bytes = 0;
    let whole = batch.copies * batch.len;
    while usual > batch.copies || (usual > 0 && !closing) {
        let n = usual.min(batch.copies);
        send(0..n * batch.len)?;
        bytes += n * batch.len;
        usual -= n;
    }
    if closing {
        let range = whole - usual * batch.len..whole + batch.closing_len;
        bytes += range.len();
        send(range)?;
    }
    Ok(bytes as u64)
}
