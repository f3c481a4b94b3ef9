//! `linerate demo`: all ways of sending, side by side, against a server in this very process or one
//! of the user's; and the ways of a server to wait.

use std::io::{self, IsTerminal, Write, stderr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use linerate_load::plan::{Stop, Target, Way};
use linerate_load::{Outcome, Plan};
use linerate_net::machine;
use linerate_report::table::{self, Row};
use linerate_report::units;
use linerate_serve::{Request, Response, ServerOptions};

use crate::args::{DemoArgs, LoadArgs};
use crate::fault::{Exit, Fault};
use crate::load::{Interrupt, plan as load_plan};
use crate::terminal;

/// Connections, as in the write-up's `-c 100`.
const CONNECTIONS: u32 = 100;
/// Requests in flight on each of the few connections that pipeline.
const DEPTH: u32 = 100;
const PIPELINED_CONNECTIONS: u32 = 8;
/// Opening connections and filling caches is not what is compared.
const WARM_UP: Duration = Duration::from_millis(200);
/// Loopback addresses that short connections come from: each brings its own local ports.
const SOURCES: u8 = 8;

/// A way of sending and what one sees in it.
struct Scenario {
    name: &'static str,
    how: &'static str,
    way: Way,
    connections: u32,
    depth: u32,
    per_connection: Option<u32>,
    sentence: &'static str,
    /// The path to ask for instead of the URL's.
    path: Option<&'static str>,
}

const USUAL: Scenario = Scenario {
    name: "",
    how: "",
    way: Way::Loop,
    connections: CONNECTIONS,
    depth: 1,
    per_connection: None,
    sentence: "",
    path: None,
};

const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "poll",
        how: "one request at a time on one connection",
        way: Way::Poll,
        connections: 1,
        sentence: "Each request waits for the response before it: every one pays for a whole round trip, and nothing overlaps.",
        ..USUAL
    },
    Scenario {
        name: "threads",
        how: "100 blocking threads, a connection each",
        way: Way::Threads,
        sentence: "The waiting overlaps, but each response wakes a thread of its own: the kernel switches threads for every request.",
        ..USUAL
    },
    Scenario {
        name: "async",
        how: "100 tasks on an async runtime, a connection each",
        way: Way::Async,
        sentence: "Switching tasks is cheaper than switching threads; each still makes its own system calls for every request.",
        ..USUAL
    },
    Scenario {
        name: "keep-alive",
        how: "an event loop, 100 connections held open",
        sentence: "One wake-up serves all connections that have something: what is left is a send and a receive for each request.",
        ..USUAL
    },
    Scenario {
        name: "short",
        how: "an event loop, a new connection for each request",
        per_connection: Some(1),
        sentence: "Opening and closing a connection costs several times what the request itself does.",
        ..USUAL
    },
    Scenario {
        name: "mixed 3",
        how: "3 requests on each connection",
        per_connection: Some(3),
        sentence: "Three requests share the price of a connection.",
        ..USUAL
    },
    Scenario {
        name: "mixed 10",
        how: "10 requests on each connection",
        per_connection: Some(10),
        sentence: "With ten, the price of the connection begins to vanish: this is why keep-alive is worth having at all.",
        ..USUAL
    },
    Scenario {
        name: "pipelined",
        how: "8 connections, 100 requests in flight on each",
        connections: PIPELINED_CONNECTIONS,
        depth: DEPTH,
        sentence: "One write carries many requests and one read brings many responses: what a system call costs is shared by \
                   all of them.",
        ..USUAL
    },
];

/// What a response of the second table waits.
const WAIT: Duration = Duration::from_millis(10);

/// Ways of a server to wait.
const WAITING: [Scenario; 3] = [
    Scenario {
        name: "blocking",
        path: Some("/blocking"),
        how: "a handler that sleeps on the server's one thread",
        sentence: "The thread sleeps, and with it everything else that it serves: 100 responses a second at most.",
        ..USUAL
    },
    Scenario {
        name: "threads",
        path: Some("/threads"),
        how: "16 threads that sleep beside the event loop",
        sentence: "As many wait at once as there are threads, and each response is handed from one thread to another.",
        ..USUAL
    },
    Scenario {
        name: "coroutines",
        path: Some("/coroutines"),
        how: "a handler that awaits a timer",
        sentence: "A request that waits is a few hundred bytes beside its connection: all 100 wait at once.",
        ..USUAL
    },
];

/// Responds after `WAIT`, as the path says.
async fn wait(request: Request) -> Response {
    match request.path() {
        "/blocking" => thread::sleep(WAIT),
        "/threads" => {
            if let Err(busy) = linerate_serve::blocking(|| thread::sleep(WAIT)).await {
                return busy.into();
            }
        }
        _ => linerate_serve::sleep(WAIT).await,
    }
    Response::text("waited\n")
}

/// Runs the command.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Fault> {
    if let Some(url) = &args.url {
        return against(args, url);
    }
    let interrupt = Interrupt::listen()?;
    let cores = machine::allowed_cores();
    let (server_core, client_core) = (cores[0], cores[cores.len() - 1]);
    let options = ServerOptions { cores: vec![server_core], ..ServerOptions::default() };
    let not_started = |e: io::Error| Fault::ours(format!("the embedded server could not be started: {e}"));
    let server = linerate_serve::spawn(options.clone()).map_err(not_started)?;
    // The sending threads inherit it, those of the baselines too.
    let _ = machine::pin_to_core(client_core);
    let style = terminal::style(&io::stdout());
    let places = if server_core == client_core {
        "Server and client share this machine's only core, so the ratios are smaller than with two."
            .to_owned()
    } else {
        format!(
            "Server on core {server_core}, client on core {client_core}, both in this process, over loopback."
        )
    };
    terminal::print(&format!(
        "{places} {} for each way.\n\n",
        units::time_ns(args.time.as_nanos() as f64, style.unicode)
    ))?;
    let base = base(&format!("http://{}/", server.addr()))?;
    let shown = side_by_side(&SCENARIOS, &base, args.time, &interrupt)?;
    let counted = server.stop().requests;
    terminal::print(&format!("\n{}", table::to_string(&shown.rows, style)))?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let counts = format!(
        "The server counted {} requests; the client measured {} responses, after a warm-up of {} for each way.",
        units::count(counted),
        units::count(shown.answered),
        units::time_ns(WARM_UP.as_nanos() as f64, style.unicode),
    );
    let mut end = format!("\n{}\n", style.wrapped("", &counts));
    if shown.disturbed {
        end += &format!("{}\n", style.warn(&style.wrapped("", DISTURBED)));
    }
    terminal::print(&end)?;
    terminal::print(&format!(
        "\nThe same load on three ways of a server to wait {} for each response:\n\n",
        units::time_ns(WAIT.as_nanos() as f64, style.unicode)
    ))?;
    // Its handler sleeps on purpose.
    let options = ServerOptions { watchdog: false, ..options };
    let server = linerate_serve::spawn_with(options, || wait).map_err(not_started)?;
    let base = Plan { target: target(server.addr()), ..base };
    let waited = side_by_side(&WAITING, &base, args.time, &interrupt)?;
    server.stop();
    terminal::print(&format!("\n{}", table::to_string(&waited.rows, style)))?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    terminal::print("\nTry the ways on a server of yours: linerate demo http://HOST:PORT/\n")
        .map(|()| Exit::Fine)
}

const DISTURBED: &str =
    "note: something else used this machine's cores meanwhile; on a quiet machine the ratios are firmer.";

/// All ways against a server of the user's.
fn against(args: &DemoArgs, url: &str) -> Result<Exit, Fault> {
    let base = base(url)?;
    let interrupt = Interrupt::listen()?;
    let style = terminal::style(&io::stdout());
    let shown = side_by_side(&SCENARIOS, &base, args.time, &interrupt)?;
    let mut end = format!("\n{}", table::to_string(&shown.rows, style));
    if interrupt.asked() {
        return terminal::print(&end).map(|()| Exit::Interrupted);
    }
    if shown.disturbed {
        end += &format!("\n{}\n", style.warn(&style.wrapped("", DISTURBED)));
    }
    terminal::print(&end)?;
    Ok(if shown.answered == 0 { Exit::CheckFailed } else { Exit::Fine })
}

/// Rows as far as the user let them run.
#[derive(Default)]
struct Shown {
    rows: Vec<Row>,
    answered: u64,
    disturbed: bool,
}

/// Runs one way after the other, with its words.
fn side_by_side(
    scenarios: &[Scenario],
    base: &Plan,
    time: Duration,
    interrupt: &Interrupt,
) -> Result<Shown, Fault> {
    let style = terminal::style(&io::stdout());
    let mut shown = Shown::default();
    for (i, scenario) in scenarios.iter().enumerate() {
        let place = format!("{} of {}  {:<10}", i + 1, scenarios.len(), scenario.name);
        let mut plan = self::plan(scenario, base, time);
        if let Some(path) = scenario.path {
            path.clone_into(&mut plan.requests[0].path);
        }
        let outcome = measure(&plan, (&place, scenario.how), interrupt)?;
        if outcome.interrupted || interrupt.asked() {
            break;
        }
        shown.answered += outcome.requests.answered;
        shown.disturbed |= is_disturbed(scenario, &outcome);
        // The words come while there is time to read them; the table is what stays on the screen.
        let row = row(scenario, &outcome);
        terminal::print(&table::words(&row, style))?;
        shown.rows.push(row);
    }
    Ok(shown)
}

/// Whether an event loop, which is alone on its core, had to wait for it for more than a tenth of the time.
fn is_disturbed(scenario: &Scenario, outcome: &Outcome) -> bool {
    scenario.way == Way::Loop && outcome.client.run_queue_wait > outcome.duration / 10
}

fn target(server: SocketAddr) -> Target {
    Target { url: format!("http://{server}/"), authority: server.to_string(), addresses: vec![server] }
}

/// The plan of GET requests to a URL.
fn base(url: &str) -> Result<Plan, Fault> {
    let args = LoadArgs { url: Some(url.to_owned()), ..LoadArgs::default() };
    Ok(load_plan::of(&args)?.plan)
}

fn plan(scenario: &Scenario, base: &Plan, time: Duration) -> Plan {
    let here = base.target.addresses.iter().all(|a| a.is_ipv4() && a.ip().is_loopback());
    let from = match scenario.per_connection {
        Some(_) if here => (1..=SOURCES).map(|n| IpAddr::from(Ipv4Addr::new(127, 0, 0, n))).collect(),
        _ => Vec::new(),
    };
    Plan {
        connections: scenario.connections,
        depth: scenario.depth,
        per_connection: scenario.per_connection,
        stop: Stop { requests: None, duration: Some(time) },
        threads: (scenario.way == Way::Loop).then_some(1),
        way: scenario.way,
        from,
        timeout: Duration::from_secs(5),
        warm_up: WARM_UP,
        ..base.clone()
    }
}

/// Runs one way, with a line that lives while it goes.
fn measure(plan: &Plan, (place, how): (&str, &str), interrupt: &Interrupt) -> Result<Outcome, Fault> {
    let live = stderr().is_terminal();
    let running = linerate_load::start(plan.clone())?;
    while !running.finished() {
        if interrupt.asked() {
            running.stop();
        }
        if live {
            let so_far = match running.snapshot().requests.answered {
                0 => "warming up".to_owned(),
                n => format!("{} answered", units::count(n)),
            };
            // The count first: a narrow terminal cuts the end.
            terminal::overwrite_line(&format!("{place} {so_far}  {how}"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    if live {
        terminal::overwrite_line("");
    }
    let outcome = running.join();
    if !live && !outcome.interrupted {
        let _ = writeln!(stderr(), "{place} {how}: {}/s", units::rate(outcome.rate_rps()));
    }
    match &outcome.unreachable {
        Some(why) => Err(Fault::unreachable(format!("{} cannot be reached: {why}", plan.target.authority))),
        None => Ok(outcome),
    }
}

fn row(scenario: &Scenario, outcome: &Outcome) -> Row {
    let latency = outcome.latency.sent();
    Row {
        name: scenario.name.to_owned(),
        how: scenario.how.to_owned(),
        rate_rps: outcome.rate_rps(),
        p50_us: latency.percentile(50.0).ns as f64 / 1e3,
        p99_us: latency.percentile(99.0).ns as f64 / 1e3,
        cpu_us: (outcome.arrived > 0)
            .then(|| outcome.client.cpu.as_secs_f64() * 1e6 / outcome.arrived as f64),
        sentence: scenario.sentence.to_owned(),
        errors: outcome.requests.failed + outcome.requests.unknown + outcome.bad.total(),
    }
}
