//! Plan files: TOML that says everything flags can say, and more. The format is described in `docs/PLAN.md`.

mod error;
mod flows;
mod requests;
mod route;
pub mod table;
mod tls;

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_net::InputFile;
use linerate_net::link::fault::FaultOptions;
use toml::de::DeValue;

pub use error::FileError;
pub use route::RouteKeys;
pub use tls::TlsKeys;

use self::table::{Item, Keys, PlanText, Table};
use super::abort::AbortOn;
use super::data::{check_columns, check_name, load_csv, said};
use super::flow::FlowPlan;
use super::http::{Http, LARGEST_WINDOW, LEAST_WINDOW};
use super::limits::{
    BUSY_POLL, MAX_CHECKS, MAX_CONNECTIONS, MAX_DATA_SETS, MAX_DURATION, MAX_PIPELINE, MAX_PLAN_BYTES,
    MAX_REQUESTS, MAX_THREADS, MAX_TIMEOUT,
};
use super::parts::{is_token, parse_addresses};
use super::units::quoted;
use super::{Arrival, Check, DataSet, Io, Order, Rate, Request, Resend, Way};

/// Seed of a plan that names none.
pub const DEFAULT_SEED: u64 = 1;

/// Keys at the top, beside those that requests share.
const RUN_KEYS: &[&str] = &[
    "url",
    "connections",
    "pipeline",
    "requests",
    "duration",
    "rate",
    "arrival",
    "per_connection",
    "resend",
    "threads",
    "way",
    "io",
    "http",
    "h2_window",
    "interface",
    "busy_poll",
    "pcap_out",
    "fault",
    "from",
    "timeout",
    "warm_up",
    "tag",
    "throughput",
    "seed",
    "order",
    "checks",
    "abort_on",
    "request",
    "data",
];

const DATA_KEYS: &[&str] = &["name", "file", "columns", "rows"];

const TOP: Keys = Keys {
    known: &[RUN_KEYS, flows::RUN_KEYS, route::KEYS, tls::KEYS, requests::SHARED_KEYS],
    elsewhere: &[(requests::OWN_KEYS, "belongs to a request: write it below [[request]]")],
};

const REQUEST: Keys = Keys {
    known: &[requests::OWN_KEYS, requests::SHARED_KEYS],
    elsewhere: &[
        (&["hooks"], "belongs to a step: write the request as a [[flow]] of one step"),
        (
            RUN_KEYS,
            "belongs to the whole plan: write it at the top, before the first [[request]] or [[data]]",
        ),
    ],
};

const DATA: Keys = Keys {
    known: &[DATA_KEYS],
    elsewhere: &[(
        RUN_KEYS,
        "belongs to the whole plan: write it at the top, before the first [[request]] or [[data]]",
    )],
};

/// The contents of a plan file. `None`: it doesn't say, so flags or defaults decide.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFile {
    /// `url`: where to.
    pub url: Option<String>,
    /// `connections`.
    pub connections: Option<u32>,
    /// `pipeline`: requests in flight on each connection.
    pub pipeline: Option<u32>,
    /// `requests`: stop after this many.
    pub requests: Option<u64>,
    /// `duration`: stop after this time.
    pub duration: Option<Duration>,
    /// `rate`: open loop.
    pub rate: Option<Rate>,
    /// `arrival`.
    pub arrival: Option<Arrival>,
    /// `resend`: which requests go out again.
    pub resend: Option<Resend>,
    /// `per_connection`: close a connection after this many requests.
    pub per_connection: Option<u32>,
    /// `threads`.
    pub threads: Option<u32>,
    /// `way`.
    pub way: Option<Way>,
    /// `io`.
    pub io: Option<Io>,
    /// `http`: which version.
    pub http: Option<Http>,
    /// `h2_window`: HTTP/2's window, bytes.
    pub h2_window: Option<u32>,
    /// `interface`: for `io = "xdp"`.
    pub interface: Option<String>,
    /// `busy_poll`: how long the interface's queue is polled at a time.
    pub busy_poll: Option<Duration>,
    /// `pcap_out`: a file for its packets; what is not absolute lies beside the plan.
    pub pcap_out: Option<PathBuf>,
    /// `fault`: what goes wrong on purpose.
    pub fault: Option<String>,
    /// `from`: source addresses.
    pub from: Option<Vec<IpAddr>>,
    /// `timeout`.
    pub timeout: Option<Duration>,
    /// `warm_up`.
    pub warm_up: Option<Duration>,
    /// The keys of the way to the target.
    pub route: RouteKeys,
    /// The keys of HTTPS.
    pub tls: TlsKeys,
    /// `tag`.
    pub tag: Option<String>,
    /// `throughput`.
    pub throughput: Option<bool>,
    /// `seed`.
    pub seed: Option<u64>,
    /// `checks`.
    pub checks: Vec<Check>,
    /// `abort_on`.
    pub abort_on: Vec<AbortOn>,
    /// `order`: by weight unless it says otherwise.
    pub order: Order,
    /// `[[request]]`: at least one. A path it does not give is empty until [`PlanFile::fill_paths`].
    pub request: Vec<Request>,
    /// `[[flow]]`, whose steps are then the requests.
    pub flows: Option<FlowPlan>,
    /// `[[data]]`.
    pub data: Vec<DataSet>,
}

impl PlanFile {
    /// Reads a plan file and the files it names. Nothing is left half-done: it is all there and sound, or an error.
    pub fn load(path: &Path) -> Result<PlanFile, FileError> {
        PlanFile::parse(&read_text(path, "large data goes into [[data]] files")?, path)
    }

    /// As [`PlanFile::load`], of text; `path` is what errors name, and what file names in it are relative to.
    pub fn parse(text: &str, path: &Path) -> Result<PlanFile, FileError> {
        let source = PlanText { path, text };
        let parsed = source.parse()?;
        let top = Table::new(source, 0..0, parsed.get_ref(), TOP)?;
        let mut plan = read_run(&top)?;
        let data = read_data(&top)?;
        let flows = flows::read(&top)?;
        if let Some(mut flows) = flows {
            for request in &mut flows.requests {
                request.fill_form(plan.seed.unwrap_or(DEFAULT_SEED), &data);
            }
            flows.check(&data, matches!(plan.http, Some(Http::Two | Http::Three)))?;
            plan.request = flows.requests.into_iter().map(|placed| placed.request).collect();
            plan.flows = Some(flows.plan);
            plan.data = data.into_iter().map(|(set, _)| set).collect();
            return Ok(plan);
        }
        let mut requests = read_requests(&top)?;
        for request in &mut requests {
            request.fill_form(plan.seed.unwrap_or(DEFAULT_SEED), &data);
        }
        plan.order = top.read("order", |item| read_order(item, &requests))?.unwrap_or(Order::Weighted);
        for request in &requests {
            request.check(&data, matches!(plan.http, Some(Http::Two | Http::Three)))?;
        }
        plan.request = requests.into_iter().map(|r| r.request).collect();
        plan.data = data.into_iter().map(|(set, _)| set).collect();
        Ok(plan)
    }

    /// Gives requests without a path that of the target's URL (path and query), and names to those without one.
    pub fn fill_paths(&mut self, path_and_query: &str) {
        for request in &mut self.request {
            if request.path.is_empty() {
                request.path = path_and_query.to_owned();
            }
            if request.name.is_empty() {
                request.name = format!("{} {}", request.method, request.path);
            }
        }
    }
}

/// The text of a file for people to write; `advice` for one that is too large.
///
/// # Errors
/// When it can't be read, is larger than [`MAX_PLAN_BYTES`], or is no text.
pub fn read_text(path: &Path, advice: &str) -> Result<String, FileError> {
    let cannot = |e: &std::io::Error| FileError::whole(path, format!("cannot be read: {}", said(e)));
    let file = InputFile::open(path).map_err(|e| cannot(&e))?;
    let mut bytes = Vec::new();
    file.take(MAX_PLAN_BYTES + 1).read_to_end(&mut bytes).map_err(|e| cannot(&e))?;
    if bytes.len() as u64 > MAX_PLAN_BYTES {
        let most = MAX_PLAN_BYTES >> 20;
        return Err(FileError::whole(path, format!("is larger than {most} MiB; {advice}")));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(e.as_bytes());
        FileError::at(path, &text, at..at + 1, "is not UTF-8 text here; TOML files are")
    })
}

fn read_run(top: &Table<'_>) -> Result<PlanFile, FileError> {
    const A_NANOSECOND: Duration = Duration::from_nanos(1);
    // With flows, some keys are about users.
    let has_flows = top.get("flow").is_some();
    let small = |key: &str, most: u64| top.read(key, |i| i.whole(1, most).map(|n| n as u32));
    Ok(PlanFile {
        url: top.read("url", read_url)?,
        connections: if has_flows { None } else { small("connections", MAX_CONNECTIONS)? },
        pipeline: small("pipeline", MAX_PIPELINE)?,
        requests: top.read("requests", read_count)?,
        duration: top.read("duration", |i| i.duration(A_NANOSECOND, MAX_DURATION))?,
        rate: top.read("rate", |item| read_rate(item, "rate"))?,
        arrival: if has_flows { None } else { top.read("arrival", read_arrival)? },
        per_connection: small("per_connection", u64::from(u32::MAX))?,
        resend: top.read("resend", |i| i.choice(&Resend::ALL.map(|r| (r.name(), r))))?,
        threads: small("threads", MAX_THREADS)?,
        way: top.read("way", |i| {
            i.choice(&[
                ("loop", Way::Loop),
                ("poll", Way::Poll),
                ("threads", Way::Threads),
                ("async", Way::Async),
            ])
        })?,
        io: top.read("io", |i| i.choice(&Io::ALL.map(|io| (io.name(), io))))?,
        http: top.read("http", |i| i.choice(&Http::ALL.map(|h| (h.name(), h))))?,
        h2_window: top
            .read("h2_window", |i| i.whole(LEAST_WINDOW.into(), LARGEST_WINDOW.into()).map(|n| n as u32))?,
        interface: top
            .read("interface", |i| i.text("the name of an interface, such as \"eth0\"").map(str::to_owned))?,
        busy_poll: top.read("busy_poll", |i| i.duration(*BUSY_POLL.start(), *BUSY_POLL.end()))?,
        pcap_out: top.read("pcap_out", |i| {
            let name = i.text("a file's name, such as \"run.pcap\"")?;
            Ok(top.source.path.parent().unwrap_or(Path::new("")).join(name))
        })?,
        fault: top.read("fault", read_fault)?,
        from: top.read("from", read_addresses)?,
        timeout: top.read("timeout", |i| i.duration(A_NANOSECOND, MAX_TIMEOUT))?,
        warm_up: top.read("warm_up", |i| i.duration(Duration::ZERO, MAX_DURATION))?,
        route: route::read(top)?,
        tls: tls::read(top)?,
        tag: top.read("tag", read_tag)?,
        throughput: top.read("throughput", Item::flag)?,
        seed: top.read("seed", |i| i.whole(0, u64::MAX))?,
        checks: top.read("checks", read_checks)?.unwrap_or_default(),
        abort_on: top.read("abort_on", read_aborts)?.unwrap_or_default(),
        order: Order::Weighted,
        request: Vec::new(),
        flows: None,
        data: Vec::new(),
    })
}

fn read_url(item: &Item<'_>) -> Result<String, FileError> {
    const EXAMPLE: &str = "write for example \"http://127.0.0.1:8080/path\"";
    let url = item.text("a URL such as \"http://127.0.0.1:8080/\"")?;
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(item.error(format!("{} is no URL; {EXAMPLE}", quoted(url))));
    };
    if !requests::is_scheme(scheme) {
        return Err(item.error(format!("unknown scheme {}; {EXAMPLE}", quoted(scheme))));
    }
    if rest.is_empty() || rest.starts_with(['/', '?', ':', '#']) {
        return Err(item.error(format!("the URL has no host; {EXAMPLE}")));
    }
    Ok(url.to_owned())
}

/// `requests = 1000`; a likely slip is `[[requests]]`.
fn read_count(item: &Item<'_>) -> Result<u64, FileError> {
    if matches!(item.value.get_ref(), DeValue::Array(_) | DeValue::Table(_)) {
        let message = "requests is how many to send; a request itself is written as [[request]]";
        return Err(item.source.error(item.key_span.clone(), message));
    }
    item.whole(1, u64::MAX)
}

fn read_arrival(item: &Item<'_>) -> Result<Arrival, FileError> {
    item.choice(&[("constant", Arrival::Constant), ("poisson", Arrival::Poisson)])
}

fn read_rate(item: &Item<'_>, key: &str) -> Result<Rate, FileError> {
    let rate = match (item.value.get_ref(), item.number()) {
        (DeValue::String(text), _) => Rate::parse(text).map_err(String::from),
        (_, Some(number)) => {
            let rate = Rate::constant(number);
            rate.check().map(|()| rate).map_err(|why| format!("{key}: {why}"))
        }
        _ => {
            let what = if key == "rate" { "requests" } else { "users" };
            Err(format!("{key} must be {what} per second, such as 500, \"50k\" or \"0..5000@30s,5000@60s\""))
        }
    };
    rate.map_err(|why| item.error(why))
}

fn read_addresses(item: &Item<'_>) -> Result<Vec<IpAddr>, FileError> {
    let mut addresses = Vec::new();
    for one in item.one_or_more() {
        let text = one.text("IP addresses, such as \"127.0.0.2\" or [\"127.0.0.2\", \"127.0.0.3\"]")?;
        addresses.extend(parse_addresses(text).map_err(|why| one.error(format!("from: {why}")))?);
    }
    Ok(addresses)
}

fn read_fault(item: &Item<'_>) -> Result<String, FileError> {
    let text = item.text("what goes wrong, such as \"loss=1%,delay=20ms\"")?;
    text.parse::<FaultOptions>().map_err(|why| item.error(format!("fault: {why}")))?;
    Ok(text.to_owned())
}

fn read_tag(item: &Item<'_>) -> Result<String, FileError> {
    let name = item.text("a header's name, such as \"X-Request-Id\"")?;
    match is_token(name) {
        true => Ok(name.to_owned()),
        false => Err(item.error(format!("tag: {} is no header name", quoted(name)))),
    }
}

fn read_checks(item: &Item<'_>) -> Result<Vec<Check>, FileError> {
    let items = item.array("an array such as [\"p99<50ms\", \"errors<0.1%\"]")?;
    if items.len() > MAX_CHECKS {
        return Err(
            item.error(format!("there are {} checks; at most {MAX_CHECKS} are possible", items.len()))
        );
    }
    let check = |one: &Item<'_>| {
        Check::parse(one.text("strings such as \"p99<50ms\"")?).map_err(|why| one.error(why))
    };
    items.iter().map(check).collect()
}

fn read_aborts(item: &Item<'_>) -> Result<Vec<AbortOn>, FileError> {
    const WHAT: &str = "conditions such as \"errors>5%@10s\"";
    let one = |one: &Item<'_>| AbortOn::parse(one.text(WHAT)?).map_err(|why| one.error(why));
    item.one_or_more().iter().map(one).collect()
}

fn read_requests<'a>(top: &Table<'a>) -> Result<Vec<requests::Placed<'a>>, FileError> {
    let tables = match top.get("request") {
        Some(item) => {
            let tables = item.tables(REQUEST)?;
            if tables.is_empty() {
                return Err(item.error("there is no request in it; leave it out to ask for the URL itself"));
            }
            if tables.len() > MAX_REQUESTS {
                let message =
                    format!("there are {} requests; at most {MAX_REQUESTS} are possible", tables.len());
                return Err(item.error(message));
            }
            tables
        }
        // All that the only request has is at the top.
        None => vec![Table::empty(top.source)],
    };
    let read = |table: Table<'a>| {
        let expect = flows::read_expect(&table)?;
        let mut placed = requests::read(table, top, None)?;
        placed.request.expect.response = flows::with_statuses(expect, &mut placed.request);
        match placed.origin {
            Some(_) => Err(placed.at_path(
                "path begins with /; the server's address goes into url at the top, or into a step of a flow",
            )),
            None => Ok(placed),
        }
    };
    tables.into_iter().map(read).collect()
}

/// `"weighted"`, `"listed"`, or the names of requests one after the other.
fn read_order(item: &Item<'_>, requests: &[requests::Placed<'_>]) -> Result<Order, FileError> {
    if item.value.get_ref().is_str() {
        let listed = item.choice(&[("weighted", false), ("listed", true)])?;
        let all = || (0..requests.len() as u32).collect();
        return Ok(if listed { Order::Listed(all()) } else { Order::Weighted });
    }
    let what = "\"weighted\", \"listed\", or an array of requests' names";
    let names = item.array(what)?;
    if names.is_empty() {
        return Err(item.error(format!("order must be {what}, not an empty array")));
    }
    let index = |one: &Item<'_>| {
        let name = one.text("names of requests")?;
        let mut same =
            requests.iter().enumerate().filter(|(_, r)| r.request.name == name).map(|(i, _)| i as u32);
        match (same.next(), same.next()) {
            (Some(index), None) => Ok(index),
            (Some(_), Some(_)) => Err(one.error(format!("several requests are named {}", quoted(name)))),
            (None, _) if requests.iter().all(|r| r.request.name.is_empty()) => {
                Err(one.error("there is no [[request]] with a name or a path to choose from"))
            }
            (None, _) => {
                let known: Vec<String> = requests.iter().map(|r| quoted(&r.request.name)).take(10).collect();
                Err(one.error(format!(
                    "no request is named {}; known are {}",
                    quoted(name),
                    known.join(", ")
                )))
            }
        }
    };
    Ok(Order::Listed(names.iter().map(index).collect::<Result<_, _>>()?))
}

/// The data sets, each with the value that errors about its content point at.
fn read_data<'a>(top: &Table<'a>) -> Result<Vec<(DataSet, Item<'a>)>, FileError> {
    let Some(item) = top.get("data") else { return Ok(Vec::new()) };
    let tables = item.tables(DATA)?;
    if tables.len() > MAX_DATA_SETS {
        return Err(
            item.error(format!("there are {} data sets; at most {MAX_DATA_SETS} are possible", tables.len()))
        );
    }
    let mut sets: Vec<(DataSet, Item<'a>)> = Vec::new();
    for table in tables {
        let name = match table.get("name") {
            Some(item) => {
                let name = item.text("a string")?;
                check_name(name).map_err(|why| item.error(why))?;
                name
            }
            None => "csv",
        };
        if sets.iter().any(|(set, _)| set.name == name) {
            let span = table.get("name").map_or(table.span.clone(), Item::span);
            return Err(table.source.error(span, format!("two data sets are named {}", quoted(name))));
        }
        sets.push(read_set(&table, name)?);
    }
    Ok(sets)
}

fn read_set<'a>(table: &Table<'a>, name: &str) -> Result<(DataSet, Item<'a>), FileError> {
    match (table.get("file"), table.get("columns"), table.get("rows")) {
        (Some(file), None, None) => {
            let path =
                table.source.path.parent().unwrap_or(Path::new("")).join(file.text("a CSV file's name")?);
            Ok((load_csv(name, &path).map_err(|why| file.error(why))?, file.clone()))
        }
        (None, Some(columns), Some(rows)) => Ok((read_inline(name, columns, rows)?, rows.clone())),
        (Some(_), Some(other), _) | (Some(_), None, Some(other)) => {
            let message = format!("file and {} are both given; a data set has one source", other.key);
            Err(table.source.error(other.key_span.clone(), message))
        }
        _ => {
            let message = "a data set needs file = \"users.csv\", or columns and rows";
            Err(table.source.error(table.span.clone(), message))
        }
    }
}

fn read_inline(name: &str, columns: &Item<'_>, rows: &Item<'_>) -> Result<DataSet, FileError> {
    let names = columns.array("an array of names")?;
    let names: Vec<String> =
        names.iter().map(|i| i.text("an array of names").map(str::to_owned)).collect::<Result<_, _>>()?;
    check_columns(&names).map_err(|why| columns.error(why))?;
    let what = "an array of rows, each an array of values";
    let mut read = Vec::new();
    for row in rows.array(what)? {
        let cells: Vec<String> = row.array(what)?.iter().map(Item::scalar).collect::<Result<_, _>>()?;
        if cells.len() != names.len() {
            return Err(row.error(format!(
                "the row has {} values, columns has {}",
                cells.len(),
                names.len()
            )));
        }
        read.push(cells);
    }
    match read.is_empty() {
        true => Err(rows.error("rows is empty; requests draw from it, so there must be one")),
        false => Ok(DataSet { name: name.to_owned(), columns: names, rows: read }),
    }
}

#[cfg(test)]
mod tests;
