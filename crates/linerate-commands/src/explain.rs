//! `linerate explain`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use linerate_explain::driver::{Explained, Http, Origin, Request};
use linerate_explain::probe::{Experiment, Probe, Writes};
use linerate_explain::{ProbeTls, Settings, Whole};
use linerate_http::client::RequestSpec;
use linerate_load::plan::parts;
use linerate_report::explain as report;

use crate::args::{self, ExplainArgs, ExplainSummary, LoadArgs, PidArgument, Written};
use crate::baseline;
use crate::fault::{CommandFault, Exit};
use crate::line;
use crate::load::Interrupt;
use crate::load::output::ReportSinks;
use crate::load::route;
use crate::load::target::{HostPort, Url, Wish};
use crate::passive::{self, Wanted};
use crate::{environment, pipelining, terminal, tls_hints, why};

/// Time for calls of our own where no flag says another.
const BUDGET: Duration = Duration::from_secs(15);

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs) -> Result<Exit, CommandFault> {
    if let Some(id) = &args.why {
        return why::run(id, args.html.as_deref());
    }
    let mut args = args.clone();
    if let Some(url) = args.passive.take_url() {
        if args.url.is_some() {
            return Err(CommandFault::input(format!("--capture is auto or off, not {url}")));
        }
        args.url = Some(url);
    }
    if let Some(server) = line::own_server(args.url.as_deref())? {
        args.url = Some(server.url().to_owned());
        if args.pid == PidArgument::Auto {
            args.pid = PidArgument::Named(server.pid());
        }
        return here_or_over_line(&args);
    }
    here_or_over_line(&args)
}

fn here_or_over_line(args: &ExplainArgs) -> Result<Exit, CommandFault> {
    let Some(line) = args.line else { return explain(args, None) };
    // What is to be explained is looked up where names have servers.
    let url = args.url.as_deref().map(Url::parse).transpose()?;
    let wish = Wish { resolve: &args.to.resolve, ipv4: true, ipv6: false, from: &[] };
    let addresses = url.map_or(Ok(Vec::new()), |url| url.addresses(&wish).map(|found| found.0))?;
    line::leads_to(&addresses)?;
    line::over(line, |laid| {
        if !args.quiet {
            let _ = writeln!(std::io::stderr(), "note: over a shaped line: {line}");
        }
        let exit = explain(args, Some(&addresses))?;
        for doubt in laid.doubts() {
            let _ = writeln!(std::io::stderr(), "warning: {doubt}");
        }
        Ok(exit)
    })
}

/// Explains what the flags ask for; `addresses`, if the place is looked up already.
fn explain(args: &ExplainArgs, addresses: Option<&[SocketAddr]>) -> Result<Exit, CommandFault> {
    if args.passive.is_asked(args.url.as_deref()) {
        return watch(args);
    }
    let Some(url) = args.url.as_deref() else {
        return Err(CommandFault::input("there is no URL to explain")
            .hint("write for example: linerate explain http://127.0.0.1:8080/")
            .hint("or look at packets: linerate explain --pcap FILE, or --capture --port N"));
    };
    args.passive.refuse_beside_url().map_err(CommandFault::input)?;
    if args.pipelining {
        return does_pipelining_pay(args);
    }
    let url = Url::parse(url)?;
    let request = request(args, &url)?;
    let mut settings = settings(args, &url, &request)?;
    if let Some(addresses) = addresses {
        (settings.addresses, settings.named) = (addresses.to_vec(), false);
    }
    let before = args.baseline.as_deref().map(|file| baseline::read(file, &settings)).transpose()?;
    settings.compares = before.as_ref().map(report::Baseline::parts).unwrap_or_default();
    let sinks = ReportSinks::of(args.json.as_deref(), args.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let quiet = args.quiet || !terminal::can_redraw();
    let mut interrupted = false;
    let explained = linerate_explain::explain(&request, settings, |probe| {
        progress(probe, quiet);
        interrupted = interrupt.asked();
        !interrupted
    })
    .map_err(CommandFault::input)?;
    if !quiet {
        terminal::overwrite_line("");
    }
    match explained {
        Explained::Unreachable(_) if interrupted => Ok(Exit::Interrupted),
        Explained::Unreachable(why) => Err(unreachable(&why)),
        Explained::Diagnosed(diagnosis, _) => {
            let to_stderr = sinks.to_stderr();
            let since = before.map(|before| report::Since::of(&before, &diagnosis));
            let since = since.as_ref();
            let style = terminal::style_beside(to_stderr);
            let text = match args.summary {
                Some(ExplainSummary::Full) => report::to_string(&diagnosis, since, style),
                Some(ExplainSummary::Screen) | None => report::to_screen(&diagnosis, since, style),
            };
            if let Some(sink) = &sinks.json {
                sink.write(&report::to_json(&diagnosis, since, &environment::here()))?;
            }
            if let Some(sink) = &sinks.html {
                sink.write(&report::page::to_string(&diagnosis, since, &environment::here()))?;
            }
            terminal::print_beside(&text, to_stderr)?;
            Ok(match diagnosis.whole {
                _ if interrupted => Exit::Interrupted,
                _ if since.is_some_and(|s| !s.is_fine()) => Exit::CheckFailed,
                Whole::Healthy => Exit::Fine,
                Whole::Caused | Whole::Inconclusive => Exit::CheckFailed,
            })
        }
    }
}

fn unreachable(why: &str) -> CommandFault {
    tls_hints::of(why).into_iter().fold(CommandFault::unreachable(why), CommandFault::hint)
}

/// The request as it is sent.
fn request(args: &ExplainArgs, url: &Url) -> Result<Request, CommandFault> {
    let agent = concat!("linerate/", env!("CARGO_PKG_VERSION"));
    let usual = [("Host", url.authority.as_str()), ("User-Agent", agent), ("Accept", "*/*")];
    let mut fields: Vec<_> = usual.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    args.request.dress(&mut fields, url.user.as_ref());
    let spec = RequestSpec {
        method: args.request.method_over("GET"),
        // Slots are load's: here braces mean themselves.
        target: parts::literal(&url.path).into_owned(),
        fields: fields.into_iter().map(|(n, v)| (n, parts::literal(&v).into_owned())).collect(),
        body: args.request.literal_body()?,
    };
    let http = http(args, url, &spec)?;
    let origin = args.origin.as_deref().map(|text| origin(args, text, http)).transpose()?;
    let (host, port) =
        route::instead(url, &args.connect_to)?.unwrap_or_else(|| (url.host().to_owned(), url.port()));
    Ok(Request { host, port, tls: tls(args, url, http)?, http, spec, origin })
}

/// Which HTTP is spoken.
fn http(args: &ExplainArgs, url: &Url, spec: &RequestSpec) -> Result<Http, CommandFault> {
    let typed = if args.http2 { Some(args::Http::Two) } else { args.http };
    let http = typed.map_or(Http::Auto, driver_http).fitting(spec);
    if args.h2_window.is_some() && (http == Http::One || (http == Http::Auto && !url.is_https())) {
        return Err(CommandFault::input("--h2-window is about HTTP/2, and calls speak HTTP/1.1")
            .hint("add --http2, or leave it out"));
    }
    Ok(http)
}

/// The same for the library.
pub(crate) fn driver_http(http: args::Http) -> Http {
    match http {
        args::Http::Auto => Http::Auto,
        args::Http::One => Http::One,
        args::Http::Two => Http::Two,
    }
}

/// How TLS is spoken with that URL's server; `None`: it is plain HTTP.
fn tls(args: &ExplainArgs, url: &Url, http: Http) -> Result<Option<ProbeTls>, CommandFault> {
    let Some(plan) = args.tls.towards(url)? else { return Ok(None) };
    let bad = |error: &dyn std::fmt::Display| CommandFault::input(error);
    let mut options = plan.options().map_err(|e| bad(&e))?;
    options.alpn = http.alpn();
    Ok(Some(ProbeTls::of(&options, &plan.name).map_err(|e| bad(&e))?))
}

/// The server behind the proxy, by its URL.
fn origin(args: &ExplainArgs, text: &str, http: Http) -> Result<Origin, CommandFault> {
    let url = Url::parse(text)?;
    if url.user.is_some() {
        return Err(CommandFault::input("--origin: user and password are those of the call")
            .hint("give them once, with --user or in the call's URL"));
    }
    let wish = Wish { resolve: &[], ipv4: args.to.ipv4, ipv6: args.to.ipv6, from: &[] };
    let address = url.addresses(&wish)?.0[0];
    let target = parts::literal(&url.path).into_owned();
    let tls = if url.is_https() { tls(args, &url, http)? } else { None };
    Ok(Origin { address, authority: url.authority, target, tls })
}

fn settings(args: &ExplainArgs, url: &Url, request: &Request) -> Result<Settings, CommandFault> {
    let literal = request.host.parse::<std::net::IpAddr>().is_ok();
    // A name is looked up while the clock runs, unless its addresses are given.
    let given = literal || args.to.ipv4 || args.to.ipv6 || !args.to.resolve.is_empty();
    let wish = Wish { resolve: &args.to.resolve, ipv4: args.to.ipv4, ipv6: args.to.ipv6, from: &[] };
    let what = if args.connect_to.is_empty() { "the URL asks for" } else { "--connect-to leads to" };
    let place = HostPort { host: &request.host, port: request.port, what };
    let addresses = if given { place.addresses(&wish)?.addresses } else { Vec::new() };
    let safe = matches!(request.spec.method.as_str(), "GET" | "HEAD");
    let pid = match args.pid {
        PidArgument::Named(pid) if !Path::new(&format!("/proc/{pid}")).exists() => {
            return Err(CommandFault::input(format!("--pid: there is no process {pid}")));
        }
        PidArgument::Named(pid) => Some(pid),
        PidArgument::Auto | PidArgument::Off => None,
    };
    Ok(Settings {
        url: url.shown(),
        method: request.spec.method.clone(),
        command: environment::again(std::env::args().collect(), document(args)),
        named: !given,
        addresses,
        may_repeat: safe || args.repeat_unsafe,
        writes: match args.writes {
            Written::One => Writes::One,
            Written::Apart => Writes::Apart,
        },
        budget: args.budget.unwrap_or(BUDGET),
        pid,
        find_pid: args.pid == PidArgument::Auto,
        capture: !args.passive.is_off(),
        origin: request.origin.as_ref().map(|o| {
            let scheme = if o.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}{}", o.authority, o.target)
        }),
        seed: u64::from(std::process::id()),
        window: args.h2_window.unwrap_or(linerate_http::h2::WINDOW),
        ..Settings::default()
    })
}

/// Packets instead of calls.
fn watch(args: &ExplainArgs) -> Result<Exit, CommandFault> {
    if args.baseline.is_some() {
        return Err(CommandFault::input(
            "--baseline compares calls that explain makes, and packets are no such calls",
        )
        .hint("give the URL: linerate explain --baseline FILE URL"));
    }
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    let wanted = Wanted { budget: args.budget, json, html, quiet: args.quiet };
    passive::run(&args.passive, &wanted)
}

/// `--pipelining`: the request is sent many times.
fn does_pipelining_pay(args: &ExplainArgs) -> Result<Exit, CommandFault> {
    let method =
        args.request.method.as_deref().unwrap_or(if args.request.body.is_some() { "POST" } else { "GET" });
    if !matches!(method, "GET" | "HEAD") && !args.repeat_unsafe {
        return Err(CommandFault::input(format!(
            "--pipelining sends the request again and again, and {method} may do harm"
        ))
        .hint("--repeat-unsafe says that repeating it does none"));
    }
    let load = LoadArgs {
        url: args.url.clone(),
        request: args.request.clone(),
        to: args.to.clone(),
        tls: args.tls.clone(),
        ..LoadArgs::default()
    };
    let sinks = ReportSinks::of(args.json.as_deref(), args.html.as_deref())?;
    pipelining::run(&load, &sinks, args.quiet)
}

/// The file that the diagnosis is written to as a document, where it can be read again.
fn document(args: &ExplainArgs) -> Option<&Path> {
    let special = |path: &Path| std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    args.json.as_deref().filter(|path| *path != Path::new("-") && !special(path))
}

/// Shows the current probe on one line, which the next one overwrites.
pub(crate) fn progress(probe: &Probe, quiet: bool) {
    if quiet {
        return;
    }
    let about = match probe {
        Probe::Call(call) => Some(call.experiment),
        Probe::SideBySide(lanes) => lanes.iter().flatten().map(|call| call.experiment).next(),
        _ => None,
    };
    let words = match probe {
        Probe::Resolve => "looking the name up",
        Probe::NameServers => "asking the name servers",
        Probe::Connect(_) => "connecting",
        Probe::Burst(_) => "several calls at once",
        Probe::Held(..) => "a call beside idle connections",
        Probe::Together(_) => "calls at once, on one connection and on several",
        Probe::Scattered(_) => "calls at random times",
        Probe::Behind(_) => Experiment::Behind.words(),
        Probe::IdleSpans(_) => Experiment::IdleSpans.words(),
        Probe::IdleLimit(_) => "how long the server behind keeps an idle connection",
        Probe::Rate(..) => "how fast the answer comes, alone and beside another",
        Probe::Call(_) | Probe::SideBySide(_) => match about.unwrap_or(Experiment::Observe) {
            Experiment::Observe => "making the call, on new and kept connections",
            Experiment::Behind => Experiment::Behind.words(),
            Experiment::IdleSpans => Experiment::IdleSpans.words(),
            Experiment::QuickAck => "acknowledging at once, in turns with as usual",
            Experiment::Dose => "acknowledging 8, 16, 24 and 32 ms late",
            Experiment::NoDelay | Experiment::Apart => "ways of writing the request",
            Experiment::Expect => "with and without Expect",
            Experiment::Coding => "with and without compression",
            Experiment::Redirect => "following redirects",
            Experiment::Idle => "after a pause",
            Experiment::Segment => "smaller segments",
            Experiment::PerConnection => "several connections, some calls on each",
            Experiment::Origin => "with and without the proxy",
            Experiment::SourcePort => "from other source ports",
            Experiment::Paced => "after a pause, in turns with right away",
            Experiment::Cork => "segments that the response fills",
            Experiment::Rested => "after a rest",
            Experiment::Resume => "resumed TLS sessions, in turns with full handshakes",
            Experiment::Group | Experiment::Version => "other TLS handshakes, in turns with the usual ones",
            Experiment::Window => "larger HTTP/2 windows, in turns with the usual ones",
            Experiment::Turns => "a row of calls on one connection",
            Experiment::Timed => "calls at moments at which it stops, and at others",
            Experiment::Part => "a part of the answer",
            Experiment::Packed => "the answer compressed",
            Experiment::IdleOrder => "calls as the server behind closes idle connections",
            Experiment::Tail
            | Experiment::Scattered
            | Experiment::Burst
            | Experiment::Rate
            | Experiment::Held
            | Experiment::Streams
            | Experiment::HeadOfLine => "more calls",
        },
    };
    terminal::overwrite_line(words);
}
