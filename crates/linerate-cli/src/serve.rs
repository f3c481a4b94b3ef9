//! `linerate serve`: what was typed, the servers it means, and the signals that end them.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linerate_load::plan::units::{parse_count, parse_duration};
use linerate_net::machine;
use linerate_serve::misbehave::{Fault as Wrong, MisbehavingServer};
use linerate_serve::{
    AccessLog, Counts, FileRoot, Handle, Io, Limits, LogFormat, LogTarget, Notices, Request, Response,
    ServerOptions, spawn_site, spawn_with,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::fault::{Exit, Fault};

/// Answer requests: files, built-in routes, on an event loop per core
///
/// Without --dir it answers the built-in routes alone: / (hello), /bytes/N, /delay/MS (waits as a coroutine), /block/MS (blocks,
/// to be caught at it), /echo, /upper (POST), /status/CODE, /stream/N, /stats. POST / gives the body back.
///
/// SIGTERM and Ctrl-C: no more connections are accepted, what was received is answered, then it ends; a second one ends it at
/// once. SIGHUP: the access log is opened anew.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Examples:\n  linerate serve --dir public --access-log access.log --metrics 127.0.0.1:9090\n  \
                             linerate serve --listen 127.0.0.1:0 --misbehave nagle-split"
)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 picks one; repeatable
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: Vec<SocketAddr>,
    /// Threads, each with its own loop and connections (as many as there are cores)
    #[arg(short, long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Pin each thread to a core of its own
    #[arg(long)]
    pin: bool,
    /// What moves the bytes: auto, epoll or uring
    #[arg(long, value_name = "IO", default_value = "auto")]
    io: Io,
    /// Serve the files of this directory; what is not there falls to the built-in routes
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write a line per answer to this file, - for standard output
    #[arg(long, value_name = "FILE|-")]
    access_log: Option<String>,
    /// How its lines look: common, combined or json
    #[arg(long, value_name = "FORMAT", default_value = "combined", requires = "access_log")]
    log_format: LogFormat,
    /// Counters for Prometheus at this address
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Connections open at once; those beyond are refused (200000)
    #[arg(long, value_name = "N", value_parser = count)]
    max_connections: Option<u64>,
    /// Largest request body in bytes; beyond it 413 (16 MiB)
    #[arg(long, value_name = "BYTES", value_parser = count)]
    max_body: Option<u64>,
    /// Time for a request's head; then 408 (15s)
    #[arg(long, value_name = "TIME", value_parser = time)]
    header_timeout: Option<Duration>,
    /// Time between an answer and the next request; then the connection is closed (75s)
    #[arg(long, value_name = "TIME", value_parser = time)]
    idle_timeout: Option<Duration>,
    /// How long answers on their way are waited for at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = drain)]
    drain: Duration,
    /// Accept a connection only when it has sent something (TCP_DEFER_ACCEPT); cheaper for short ones
    #[arg(long)]
    defer_accept: bool,
    /// Do it wrong on purpose, for teaching and tests; repeatable
    ///
    /// Each shows a symptom. nagle-split: calls after the first take about 40 ms more. tiny-chunks[=BYTES]: a packet per few
    /// bytes. close-after=N: new connections all the time. stall=MS: half of each answer, a pause, the rest. slow-read[=BYTES_PER_S]:
    /// uploads wait on a zero window. accept-delay=MS: connecting takes whole seconds under load. no-100-continue: clients that
    /// expect it send their body late. think=MS: the first byte is late. lanes=N: with think, time grows with the
    /// concurrency. no-keep-alive: each call pays for a connection.
    #[arg(long, value_name = "NAME[=VALUE]")]
    misbehave: Vec<Wrong>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "an address and a port are needed, as in 127.0.0.1:8080 or [::1]:8080".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        n @ 1..=1024 => Ok(n as usize),
        n => Err(format!("{n} threads: 1 to 1024 are possible")),
    }
}

fn count(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("0 would answer nothing; at least 1 is needed".to_owned()),
        n => Ok(n),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => {
            Err("no time at all would close every connection; write for example 10s".to_owned())
        }
        time => Ok(time),
    }
}

fn drain(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}

/// What runs.
enum Running {
    Well(Handle),
    Badly(Vec<MisbehavingServer>),
}

impl Running {
    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Running::Well(server) => server.addrs().to_vec(),
            Running::Badly(servers) => servers.iter().map(MisbehavingServer::addr).collect(),
        }
    }

    fn stop(self) -> Counts {
        match self {
            Running::Well(server) => server.stop(),
            Running::Badly(servers) => servers.first().map(MisbehavingServer::counts).unwrap_or_default(),
        }
    }
}

/// Runs the command until a signal ends it.
pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Fault> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| Fault::ours(format!("signals cannot be listened to: {e}")))?;
    let log = access_log(args)?;
    let running = start(args, log.clone())?;
    let metrics = match (args.metrics, &running) {
        (Some(at), Running::Well(server)) => Some(serve_metrics(at, server)?),
        (Some(_), Running::Badly(_)) => {
            return Err(
                Fault::input("--metrics does not go with this --misbehave").hint("ask for /stats instead")
            );
        }
        (None, _) => None,
    };
    for address in running.addresses() {
        say(&format!("listening on http://{address}"));
    }
    if let Some(metrics) = &metrics {
        say(&format!("metrics on http://{}/metrics", metrics.addr()));
    }
    for signal in signals.forever() {
        match (signal, &log) {
            (SIGHUP, Some(log)) => log.reopen(),
            (SIGHUP, None) => {}
            _ => break,
        }
    }
    // From now on a second signal ends it at once, as it would any program.
    let handle = signals.handle();
    let second = std::thread::spawn(move || {
        signals.forever().find(|s| *s != SIGHUP).is_some_and(|_| std::process::exit(Exit::Interrupted as i32))
    });
    let counts = running.stop();
    handle.close();
    // It ends when the handle is closed.
    let _ = second.join();
    say(&format!(
        "answered {} requests on {} connections{}",
        counts.requests,
        counts.accepted,
        if counts.open > 0 {
            format!("; {} were still open after --drain", counts.open)
        } else {
            String::new()
        }
    ));
    Ok(Exit::Fine)
}

fn access_log(args: &ServeArgs) -> Result<Option<AccessLog>, Fault> {
    let Some(place) = &args.access_log else { return Ok(None) };
    let target = if place == "-" { LogTarget::Stdout } else { LogTarget::File(place.into()) };
    AccessLog::open(target, args.log_format, Notices::default())
        .map(Some)
        .map_err(|e| Fault::input(format!("the access log {place} cannot be written: {e}")))
}

fn start(args: &ServeArgs, log: Option<AccessLog>) -> Result<Running, Fault> {
    let mut close_after = None;
    let mut wrong = args.misbehave.clone();
    if let [Wrong::CloseAfter(n)] = wrong[..] {
        // The fast server can do this one itself.
        close_after = Some(n);
        wrong.clear();
    }
    if !wrong.is_empty() {
        if args.dir.is_some() || log.is_some() {
            return Err(Fault::input("--misbehave answers the built-in routes alone, without files and log")
                .hint("leave out --dir and --access-log"));
        }
        let servers: Result<Vec<_>, Fault> = (args.listen.iter())
            .map(|at| {
                MisbehavingServer::spawn(*at, wrong.iter().copied().collect())
                    .map_err(|e| cannot_listen(*at, &e))
            })
            .collect();
        return servers.map(Running::Badly);
    }
    let root =
        match &args.dir {
            None => None,
            Some(dir) => Some(FileRoot::open(dir).map_err(|e| {
                Fault::input(format!("the directory {} cannot be served: {e}", dir.display()))
            })?),
        };
    // Descriptors are what many connections need first; fewer are fewer connections.
    let _ = machine::raise_nofile();
    let cores = machine::allowed_cores();
    let mut limits = Limits::default();
    limits.header_time = args.header_timeout.unwrap_or(limits.header_time);
    limits.idle_time = args.idle_timeout.unwrap_or(limits.idle_time);
    limits.request.body = args.max_body.unwrap_or(limits.request.body);
    let threads = args.threads.unwrap_or(cores.len());
    if let Some(most) = args.max_connections {
        // The threads share nothing: each has its part.
        limits.connections = usize::try_from(most.div_ceil(threads as u64)).unwrap_or(usize::MAX);
    }
    let options = ServerOptions {
        listen: args.listen.clone(),
        threads,
        cores: if args.pin { cores } else { Vec::new() },
        io: args.io,
        close_after,
        defer_accept: args.defer_accept,
        limits,
        access_log: log,
        drain: args.drain,
        ..ServerOptions::default()
    };
    spawn_site(options, root).map(Running::Well).map_err(|e| cannot_listen(args.listen[0], &e))
}

fn cannot_listen(at: SocketAddr, error: &std::io::Error) -> Fault {
    Fault::ours(format!("cannot listen on {at}: {error}")).hint("--listen with port 0 picks a free one")
}

fn serve_metrics(at: SocketAddr, server: &Handle) -> Result<Handle, Fault> {
    let counter = server.counter();
    let options = ServerOptions { listen: vec![at], ..ServerOptions::default() };
    spawn_with(options, move || {
        let counter = counter.clone();
        move |request: Request| {
            let answer = match request.path() {
                "/metrics" | "/" => Response::text(counter().to_prometheus())
                    .with_content_type("text/plain; version=0.0.4; charset=utf-8"),
                _ => Response::status(404),
            };
            std::future::ready(answer)
        }
    })
    .map_err(|e| cannot_listen(at, &e))
}

/// A line on standard error; when nobody reads it, the server serves all the same.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
