//! From what was typed to what it means: flags over plan file over defaults.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use linerate_http::client::Body;
use linerate_load::Plan;
use linerate_load::plan::env;
use linerate_load::plan::file::{DEFAULT_SEED, PlanFile};
use linerate_load::plan::flow::FlowPlan;
use linerate_load::plan::form::{FormField, multipart};
use linerate_load::plan::http::{Http, HttpOptions};
use linerate_load::plan::parts::{has_field, set_field};
use linerate_load::plan::route::Route;
use linerate_load::plan::{self, Expectation, Order, Pace, Rate, Request, Stop, Target, Way};

use super::hosts;
use super::machine::Machine;
use super::target::{Url, Wish};
use crate::args::request::read_body_file;
use crate::args::tls::TlsFlags;
use crate::args::{LoadArgs, values};
use crate::fault::CommandFault;
use crate::sources::{PlanSource, curl, har, openapi, replay};

const CONNECTIONS: u32 = 64;
const DURATION: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What will be done, and what the user should know about it.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) plan: Plan,
    /// Said before it begins.
    pub(crate) notes: Vec<String>,
    /// Said when the target cannot be reached.
    pub(crate) hint: Option<&'static str>,
}

impl Meaning {
    pub(crate) fn say_notes(&self) {
        for note in &self.notes {
            let _ = writeln!(std::io::stderr(), "note: {note}");
        }
    }
}

/// The plan that the flags mean. Nothing is sent, nothing is written.
pub(crate) fn of(args: &LoadArgs) -> Result<Meaning, CommandFault> {
    let file = args.plan.as_deref().map(PlanFile::load).transpose().map_err(CommandFault::input)?;
    of_file(args, file)
}

/// The same with a plan file that was read already.
pub(crate) fn of_file(args: &LoadArgs, file: Option<PlanFile>) -> Result<Meaning, CommandFault> {
    let typed = args.url.as_deref().map(Url::parse).transpose()?;
    let source = source(args, typed.as_ref())?;
    let told =
        file.as_ref().and_then(|f| f.url.as_deref()).or(source.as_ref().and_then(|s| s.url.as_deref()));
    let url = match (typed, told) {
        (Some(url), _) => url,
        (None, Some(text)) => Url::parse(text)?,
        (None, None) => return Err(no_url(file.is_some(), source.is_some())),
    };
    let mut notes = source.as_ref().map(|s| s.notes.clone()).unwrap_or_default();
    if source.is_some() && args.url.is_some() && url.path != "/" {
        notes.push(format!(
            "of the URL only the host is used: the requests have paths of their own, not {}",
            url.path
        ));
    }
    let (plan, other_family) = Draft { args, file, source, url }.plan()?;
    contradictions(args, &plan)?;
    Machine::read().check(&plan)?;
    // Compiles every request: slots and fields are in order before anything is sent.
    linerate_load::check(&plan)?;
    notes.extend(unknowable(&plan));
    notes.extend(not_idempotent(&plan));
    let v6 = plan.target.addresses.iter().any(|a| a.is_ipv6());
    let other = if v6 {
        "the name has IPv4 addresses too: -4 uses them"
    } else {
        "the name has IPv6 addresses too: -6 uses them"
    };
    Ok(Meaning { plan, notes, hint: other_family.then_some(other) })
}

fn no_url(file: bool, source: bool) -> CommandFault {
    let fault = CommandFault::input("there is no URL to send to");
    match (file, source) {
        (true, _) => fault.hint("give it here, or in the plan file: url = \"http://127.0.0.1:8080/\""),
        (_, true) => fault.hint("the requests do not say which server; give its URL as well"),
        _ => fault.hint("write for example: linerate load http://127.0.0.1:8080/"),
    }
}

/// What `--curl`, `--har`, `--openapi` or `--replay` gives.
fn source(args: &LoadArgs, url: Option<&Url>) -> Result<Option<PlanSource>, CommandFault> {
    let source = if let Some(command) = &args.curl {
        curl::parse(command)
    } else if let Some(path) = &args.har {
        // A URL may name the recorded server that is meant, or another one that is to get the same requests.
        let origin = url.map(|u| format!("{}://{}", u.scheme(), u.authority));
        match (har::load(path, origin.as_deref()), origin) {
            (Err(_), Some(origin)) => har::load(path, None).map(|source| sent_elsewhere(source, &origin)),
            (loaded, _) => loaded,
        }
    } else if let Some(path) = &args.openapi {
        openapi::load(path, openapi::Options { unsafe_methods: args.unsafe_methods })
    } else if let Some(path) = &args.replay {
        replay::load(path, args.speed.unwrap_or(1.0))
    } else {
        return Ok(None);
    };
    source.map(Some).map_err(CommandFault::input)
}

/// The recording does not know the URL's host: said, since it may be a slip as well as a staging host.
fn sent_elsewhere(mut source: PlanSource, origin: &str) -> PlanSource {
    let recorded = source.url.as_deref().unwrap_or("another host");
    source
        .notes
        .push(format!("nothing was recorded for {origin}: what was recorded for {recorded} goes there"));
    source
}

struct Draft<'a> {
    args: &'a LoadArgs,
    file: Option<PlanFile>,
    source: Option<PlanSource>,
    url: Url,
}

impl Draft<'_> {
    /// The plan, and whether the target has addresses of the other family.
    fn plan(mut self) -> Result<(Plan, bool), CommandFault> {
        let mut flows = super::flows::with_users(self.args, self.in_file(|f| f.flows.clone()))?;
        super::flows::check(self.args, flows.as_ref())?;
        let hosts = hosts::settle(flows.as_mut(), &self.url)?;
        let mut requests = self.requests(flows.as_ref())?;
        let mut data = self.data()?;
        self.fill_form(&mut requests, &data)?;
        let script = flows.as_ref().and_then(|flows| flows.script.as_ref());
        let of_script = script.map(|script| env::of_script(&script.text));
        data.extend(variables(&requests.iter().cloned().chain(of_script).collect::<Vec<_>>())?);
        let of_source = self.source.as_mut().map(|s| std::mem::replace(&mut s.order, Order::Weighted));
        let order = of_source.or_else(|| self.in_file(|f| Some(f.order.clone()))).unwrap_or(Order::Weighted);
        let (pace, stop) = self.pace_and_stop(flows.as_ref())?;
        let args = self.args;
        let from =
            args.from.clone().map(|a| a.0).or_else(|| self.in_file(|f| f.from.clone())).unwrap_or_default();
        let (route, addresses, other_family) = self.way(&self.url, &hosts, &from)?;
        let target =
            Target { url: sent_to(&self.url, &requests), authority: self.url.authority.clone(), addresses };
        // curl takes no offence at options of TLS in clear text.
        let of_source = self.source.as_ref().filter(|_| self.url.is_https()).map(|s| s.wire.tls.clone());
        let keys = self.in_file(|f| Some(f.tls.clone())).or(of_source).unwrap_or_default();
        let tls_flags = args.tls.over(keys);
        let is_about_another = !self.url.is_https() && hosts.iter().any(Url::is_https);
        let tls = if is_about_another { None } else { tls_flags.towards(&self.url)? };
        self.find_hosts(flows.as_mut(), &hosts, &tls_flags, &from)?;
        let way = args.way.map(plan::Way::from).or_else(|| self.in_file(|f| f.way)).unwrap_or_default();
        let mut checks = self.in_file(|f| Some(f.checks.clone())).unwrap_or_default();
        checks.extend(args.check.iter().cloned());
        let mut abort_on = self.in_file(|f| Some(f.abort_on.clone())).unwrap_or_default();
        abort_on.extend(args.abort_on.iter().cloned());
        let mut plan = Plan {
            target,
            requests,
            order,
            flows,
            data,
            connections: self.connections(way, stop),
            depth: args.pipeline.or_else(|| self.in_file(|f| f.pipeline)).unwrap_or(1),
            per_connection: args.per_connection.or_else(|| self.in_file(|f| f.per_connection)),
            stop,
            pace,
            resend: args
                .resend
                .map(plan::Resend::from)
                .or_else(|| self.in_file(|f| f.resend))
                .unwrap_or_default(),
            threads: args.threads.or_else(|| self.in_file(|f| f.threads)),
            way,
            io: args.io.map(plan::Io::from).or_else(|| self.in_file(|f| f.io)).unwrap_or_default(),
            interface: args.interface.clone().or_else(|| self.in_file(|f| f.interface.clone())),
            busy_poll: args.busy_poll.or_else(|| self.in_file(|f| f.busy_poll)),
            pcap_out: args.pcap_out.clone().or_else(|| self.in_file(|f| f.pcap_out.clone())),
            fault: args.fault.clone().or_else(|| self.in_file(|f| f.fault.clone())),
            from,
            route,
            http: self.http()?,
            tls,
            timeout: args.timeout.or_else(|| self.in_file(|f| f.timeout)).unwrap_or(TIMEOUT),
            warm_up: args.warm_up.or_else(|| self.in_file(|f| f.warm_up)).unwrap_or_default(),
            tag: args.tag.clone().or_else(|| self.in_file(|f| f.tag.clone())),
            throughput: args.throughput || self.in_file(|f| f.throughput).unwrap_or(false),
            checks,
            abort_on,
            save_responses: if args.save_responses.is_some() { super::saved::RESPONSES } else { 0 },
            seed: args.seed.or_else(|| self.in_file(|f| f.seed)).unwrap_or(DEFAULT_SEED),
        };
        plan.fit_users();
        Ok((plan, other_family))
    }

    /// The hosts of flows beside the target.
    fn find_hosts(
        &self,
        flows: Option<&mut FlowPlan>,
        hosts: &[Url],
        tls_flags: &TlsFlags,
        from: &[IpAddr],
    ) -> Result<(), CommandFault> {
        let Some(flows) = flows else { return Ok(()) };
        for url in hosts {
            let (route, addresses, _) = self.way(url, hosts, from)?;
            let tls = if url.is_https() { tls_flags.towards(url)? } else { None };
            flows.hosts.push(hosts::found(url, (route, addresses), tls)?);
        }
        Ok(())
    }

    /// Which HTTP connections speak.
    fn http(&self) -> Result<HttpOptions, CommandFault> {
        let args = self.args;
        let typed = if args.http2 { Some(Http::Two) } else { args.http.map(Http::from) };
        let of_source = self.source.as_ref().and_then(|source| source.wire.http);
        let version = typed.or_else(|| self.in_file(|f| f.http)).or(of_source).unwrap_or_default();
        if version == Http::Three && args.explain {
            return Err(CommandFault::input("--explain calls over TCP, and --http 3 is over QUIC")
                .hint("leave out one of the two"));
        }
        let h2_window = args.h2_window.or_else(|| self.in_file(|f| f.h2_window));
        if args.h2_window.is_some()
            && (matches!(version, Http::One | Http::Three) || (version == Http::Auto && !self.url.is_https()))
        {
            return Err(CommandFault::input("--h2-window is about HTTP/2, which connections do not speak")
                .hint("add --http2, or leave it out"));
        }
        let usual = HttpOptions::default();
        Ok(HttpOptions { version, h2_window: h2_window.unwrap_or(usual.h2_window) })
    }

    /// How connections get to a URL, its addresses, and whether it has some of the other family; `hosts`: those beside the
    /// target.
    fn way(
        &self,
        url: &Url,
        hosts: &[Url],
        from: &[IpAddr],
    ) -> Result<(Route, Vec<SocketAddr>, bool), CommandFault> {
        let args = self.args;
        let file = self.file.as_ref().map(|f| &f.route);
        let keys = file.or(self.source.as_ref().map(|s| &s.route)).cloned().unwrap_or_default();
        let mut flags = args.route.over(&keys).map_err(CommandFault::input)?;
        let parsed = keys.resolve.iter().map(|text| values::resolve(text));
        let mut resolve = parsed
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| CommandFault::input(format!("resolve: {why}")))?;
        resolve.extend(args.to.resolve.iter().cloned());
        if !hosts.is_empty() {
            let all: Vec<Url> = std::iter::once(&self.url).chain(hosts).cloned().collect();
            hosts::check_flags(&all, &flags, &resolve)?;
            hosts::for_host(url, &mut flags, &mut resolve);
        }
        let of_source = self.source.as_ref().and_then(|source| source.wire.ipv6);
        let is_typed = args.to.ipv4 || args.to.ipv6;
        let wish = Wish {
            resolve: &resolve,
            ipv4: args.to.ipv4 || (!is_typed && of_source == Some(false)),
            ipv6: args.to.ipv6 || (!is_typed && of_source == Some(true)),
            from,
        };
        super::route::to(url, &flags, &wish, &|name| std::env::var(name).ok())
    }

    fn in_file<T>(&self, what: impl Fn(&PlanFile) -> Option<T>) -> Option<T> {
        self.file.as_ref().and_then(what)
    }

    fn connections(&self, way: Way, stop: Stop) -> u32 {
        let given = self.args.connections.or_else(|| self.in_file(|f| f.connections));
        // Ten requests need no sixty-four connections.
        let useful =
            stop.requests.map_or(CONNECTIONS, |n| u32::try_from(n).unwrap_or(CONNECTIONS).min(CONNECTIONS));
        if way == Way::Poll { 1 } else { given.unwrap_or(useful) }
    }

    fn pace_and_stop(&mut self, flows: Option<&FlowPlan>) -> Result<(Pace, Stop), CommandFault> {
        let rate = self.args.rate.clone().or_else(|| self.in_file(|f| f.rate.clone()));
        let arrival = self.args.arrival.map(plan::Arrival::from).or_else(|| self.in_file(|f| f.arrival));
        let requests = self.args.requests.or_else(|| self.in_file(|f| f.requests));
        let duration = self.args.duration.or_else(|| self.in_file(|f| f.duration));
        let warm_up = self.args.warm_up.or_else(|| self.in_file(|f| f.warm_up)).unwrap_or_default();
        let recorded = self.source.as_mut().and_then(|s| s.pace.take()).filter(|_| rate.is_none());
        let steps = rate.as_ref().or_else(|| flows?.pace.steps());
        let duration = match (duration, requests, steps) {
            // A replayed log ends with its last line.
            (None, None, _) if recorded.is_some() => None,
            (None, None, _) if flows.is_some_and(|flows| flows.iterations.is_some()) => None,
            (None, None, Some(rate)) => Some(lasting(rate, warm_up).unwrap_or(DURATION)),
            (None, None, None) => Some(DURATION),
            (given, _, _) => given,
        };
        let pace = match (rate, arrival) {
            (Some(rate), arrival) => Pace::Open { rate, arrival: arrival.unwrap_or_default() },
            (None, None) => recorded.unwrap_or(Pace::Closed),
            (None, Some(_)) if flows.is_some() => Pace::Closed,
            (None, Some(_)) => {
                return Err(CommandFault::input(
                    "--arrival says how requests are spaced at a rate, and there is no --rate",
                )
                .hint("add --rate, for example --rate 1k"));
            }
        };
        Ok((pace, Stop { requests, duration }))
    }

    fn data(&mut self) -> Result<Vec<plan::DataSet>, CommandFault> {
        let mut sets = self.file.as_mut().map(|f| std::mem::take(&mut f.data)).unwrap_or_default();
        for file in &self.args.data {
            let set = file.load().map_err(CommandFault::input)?;
            if self.args.data.iter().filter(|other| other.name() == file.name()).count() > 1 {
                return Err(CommandFault::input(format!("two data files are named {}", file.name()))
                    .hint("name them: --data users=users.csv --data items=items.csv"));
            }
            sets.retain(|other| other.name != set.name);
            sets.push(set);
        }
        Ok(sets)
    }

    fn requests(&mut self, flows: Option<&FlowPlan>) -> Result<Vec<Request>, CommandFault> {
        let mut requests = match (&mut self.file, &mut self.source) {
            (Some(file), _) => {
                file.fill_paths(&self.url.path);
                std::mem::take(&mut file.request)
            }
            (None, Some(source)) => std::mem::take(&mut source.requests),
            (None, None) => vec![Request {
                name: String::new(),
                weight: 1.0,
                method: "GET".to_owned(),
                path: self.url.path.clone(),
                fields: Vec::new(),
                body: None,
                expect: Expectation::default(),
            }],
        };
        let args = self.args;
        if let Some(path) = &args.raw {
            return raw(args, path, requests.len()).map(|request| vec![request]);
        }
        if let Some(raw) = requests.iter().find(|request| request.is_raw())
            && let Some((flag, _)) = changes_requests(args).into_iter().find(|(_, given)| *given)
        {
            let message = format!("{flag} would change nothing in the bytes of the request {:?}", raw.name);
            return Err(CommandFault::input(message)
                .hint("write it in the plan file, at the requests that are meant"));
        }
        let of_one = [
            ("--method", args.request.method.is_some()),
            ("--body", args.request.body.is_some()),
            ("--body-template", args.body_template.is_some()),
            ("--form", !args.form.is_empty()),
        ];
        if let Some((flag, _)) = of_one.iter().find(|(_, given)| *given && requests.len() > 1) {
            let message = format!("{flag} would make all {} requests the same", requests.len());
            return Err(
                CommandFault::input(message).hint("write it in a plan file, at the request that is meant")
            );
        }
        let body = body(args)?;
        let hosts = flows.map(|flows| flows.hosts_by_request(requests.len())).unwrap_or_default();
        for (nth, request) in requests.iter_mut().enumerate() {
            if request.is_raw() {
                self.expect(request);
                continue;
            }
            if let Some(body) = &body {
                request.body = Some(body.clone());
            }
            request.method = args.request.method_over(&request.method);
            let has_body = args.body_template.is_some() || !args.form.is_empty();
            if has_body && args.request.method.is_none() && request.method == "GET" {
                "POST".clone_into(&mut request.method);
            }
            self.dress(request, hosts.get(nth).is_some_and(|host| *host > 0));
            // Names given elsewhere stay; one made here follows the method.
            if self.file.is_none() && self.source.is_none() {
                request.name = format!("{} {}", request.method, request.path);
            }
        }
        Ok(requests)
    }

    /// The body of a form, whose boundary must occur nowhere in the data.
    fn fill_form(&self, requests: &mut [Request], data: &[plan::DataSet]) -> Result<(), CommandFault> {
        let args = self.args;
        let (Some(request), false) = (requests.first_mut(), args.form.is_empty()) else { return Ok(()) };
        if has_field(&args.request.header, "Content-Type") {
            return Err(CommandFault::input("--form brings its own Content-Type, which names the boundary")
                .hint("leave out -H 'Content-Type: ...'"));
        }
        let parse = |text: &String| {
            FormField::parse(text, Path::new("")).map_err(|why| CommandFault::input(format!("--form: {why}")))
        };
        let fields = args.form.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let seed = args.seed.or_else(|| self.in_file(|f| f.seed)).unwrap_or(DEFAULT_SEED);
        let cells = data.iter().flat_map(|set| set.rows.iter().flatten()).map(String::as_str);
        let (content_type, body) = multipart(&fields, seed, cells);
        set_field(&mut request.fields, "Content-Type", &content_type);
        request.body = Some(body);
        Ok(())
    }

    /// Fields and expectations; `elsewhere`: the request goes to another host than the URL's, and so not with its user.
    fn dress(&self, request: &mut Request, elsewhere: bool) {
        let args = self.args;
        args.request.dress(&mut request.fields, self.url.user.as_ref().filter(|_| !elsewhere));
        self.expect(request);
    }

    fn expect(&self, request: &mut Request) {
        let args = self.args;
        if let Some(statuses) = &args.expect_status {
            request.expect.status.clone_from(&statuses.0);
        }
        if let Some(text) = &args.expect_body {
            request.expect.body = Some(text.clone());
        }
    }
}

/// The URL of what is sent, as it is reported. Requests to different paths have their server in common.
fn sent_to(url: &Url, requests: &[Request]) -> String {
    let mut paths = requests.iter().map(|request| request.path.as_str());
    let first = paths.next().unwrap_or("/");
    let path = if paths.all(|path| path == first) { first } else { "/" };
    url.shown_with(path)
}

/// How long a rate lasts after the warm-up, when it ends by itself.
fn lasting(rate: &Rate, warm_up: Duration) -> Option<Duration> {
    rate.duration().map(|all| all.saturating_sub(warm_up)).filter(|left| !left.is_zero())
}

/// Flags about requests that are made here, not taken as they are.
fn changes_requests(args: &LoadArgs) -> [(&'static str, bool); 6] {
    let r = &args.request;
    [
        ("-X", r.method.is_some()),
        ("-H", !r.header.is_empty()),
        ("-u", r.user.is_some()),
        ("--compressed", r.compressed),
        ("--tag", args.tag.is_some()),
        ("--explain", args.explain),
    ]
}

/// A request that is a file's bytes, head and all.
fn raw(args: &LoadArgs, path: &str, planned: usize) -> Result<Request, CommandFault> {
    let made_from = args.plan.is_some()
        || args.curl.is_some()
        || args.har.is_some()
        || args.openapi.is_some()
        || args.replay.is_some();
    let elsewhere = ("a plan from elsewhere", made_from || planned > 1);
    let data = ("--data", !args.data.is_empty());
    let mut others = changes_requests(args).into_iter().chain([data, elsewhere]);
    if let Some((flag, _)) = others.find(|(_, given)| *given) {
        return Err(CommandFault::input(format!(
            "--raw sends the file as it is, so {flag} would change nothing"
        ))
        .hint("leave out one of the two"));
    }
    let bytes = read_body_file("--raw", path.strip_prefix('@').unwrap_or(path))?;
    if bytes.is_empty() {
        return Err(CommandFault::input(format!("--raw: {path} is empty"))
            .hint("write a request into it: a head, an empty line, a body"));
    }
    let name = format!("raw {path}");
    let expect = Expectation {
        status: args.expect_status.as_ref().map(|s| s.0.clone()).unwrap_or_default(),
        body: args.expect_body.clone(),
        trailer: None,
        response: None,
    };
    let (method, target) = (String::new(), "/".to_owned());
    Ok(Request {
        name,
        weight: 1.0,
        method,
        path: target,
        fields: Vec::new(),
        body: Some(Body::raw(bytes)),
        expect,
    })
}

/// A warning about raw requests, whose responses and repetition cannot be judged.
fn unknowable(plan: &Plan) -> Option<String> {
    plan.requests.iter().any(Request::is_raw).then(|| {
        "--raw: what is sent is not looked at, so one response is expected for each time that it is sent: if the file holds several          requests, the responses to the others count as unsolicited; if it holds less than one, the server waits and so do we. It is          never sent again, since whether that would do something twice cannot be known"
            .to_owned()
    })
}

/// The variables of the environment that requests name.
fn variables(requests: &[Request]) -> Result<Option<plan::DataSet>, CommandFault> {
    env::data_set(requests, |name| std::env::var_os(name)).map_err(|(index, error)| {
        let name = requests.get(index).map_or("", |request| request.name.as_str());
        CommandFault::input(format!("request \"{name}\": {error}"))
            .hint("set it before the command: NAME=VALUE linerate load ...")
    })
}

/// The body that flags give: a file is sent as it is, unless it is declared a template.
fn body(args: &LoadArgs) -> Result<Option<Body>, CommandFault> {
    if let Some(template) = &args.body_template {
        let Some(path) = template.strip_prefix('@') else {
            return Err(CommandFault::input(format!("--body-template: {template} does not name a file"))
                .hint("write --body-template @FILE, or --body TEXT"));
        };
        return read_body_file("--body-template", path).map(|bytes| Some(Body::text(bytes)));
    }
    let Some(text) = &args.request.body else { return Ok(None) };
    Ok(Some(match text.strip_prefix('@') {
        Some(path) => Body::raw(read_body_file("--body", path)?),
        None => text.as_str().into(),
    }))
}

/// Flags that cannot both be meant.
fn contradictions(args: &LoadArgs, plan: &Plan) -> Result<(), CommandFault> {
    if plan.way == Way::Poll && args.connections.is_some_and(|c| c > 1) {
        return Err(CommandFault::input(
            "--way poll sends one request at a time on one connection, and -c asks for more",
        )
        .hint("leave out -c, or use --way threads, async or loop"));
    }
    if matches!(plan.way, Way::Poll | Way::Threads) && args.threads.is_some() {
        return Err(CommandFault::input("-t counts the threads of event loops; --way poll has one thread and --way threads one for each connection")
            .hint("leave out -t, or say how many with -c"));
    }
    if args.explain
        && (plan.route.unix.is_some() || plan.route.proxy.is_some() || plan.route.haproxy.is_some())
    {
        let message =
            "--explain calls the server over TCP alone, without a proxy and without the PROXY protocol";
        return Err(CommandFault::input(message).hint("leave out --explain"));
    }
    let expects = plan.requests.iter().any(|request| request.expect.response.is_some());
    if expects && (plan.throughput || args.dry_run) {
        let flag = if args.dry_run { "--dry-run" } else { "--throughput" };
        return Err(CommandFault::input(format!("{flag} does not go with expect of a request"))
            .hint("leave out one of the two"));
    }
    if plan.throughput && args.explain {
        return Err(CommandFault::input("--explain needs latencies, which --throughput does not record")
            .hint("leave out one of the two"));
    }
    if args.machines.are_wanted() && plan.aborts_by_name() {
        let message = "agents do not tell requests apart by name while the run lasts";
        return Err(CommandFault::input(message).hint("leave the name out of --abort-on"));
    }
    if let Some(check) = plan.checks.iter().find(|c| plan.throughput && c.metric.is_latency()) {
        return Err(CommandFault::input(format!(
            "--throughput gives latencies up, and {} needs them",
            check.expr
        ))
        .hint("leave out one of the two"));
    }
    Ok(())
}

/// A warning about pipelined requests that are not idempotent: this is allowed, but may not be intended.
fn not_idempotent(plan: &Plan) -> Option<String> {
    const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
    let changes = |r: &&Request| !r.is_raw() && !IDEMPOTENT.contains(&r.method.as_str());
    let unsafe_one = plan.requests.iter().find(changes)?;
    (plan.depth > 1).then(|| {
        format!(
            "{} is not idempotent: when the server closes a connection without announcing it, the requests in flight on it \
             end as \"unknown\", since sending them again could do things twice (RFC 9112 section 9.3)",
            unsafe_one.method
        )
    })
}

#[cfg(test)]
mod tests;
