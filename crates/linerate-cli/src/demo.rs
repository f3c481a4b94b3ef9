//! `linerate demo`: all ways of sending, side by side, against a server in this very process.

use std::io::{self, IsTerminal, Write, stderr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use linerate_load::plan::{Expectation, Io, Order, Pace, Request, Resend, Stop, Target, Way};
use linerate_load::{Outcome, Plan};
use linerate_net::machine;
use linerate_report::table::{self, Row};
use linerate_report::units;
use linerate_serve::ServerOptions;

use crate::args::DemoArgs;
use crate::fault::{Exit, Fault};
use crate::load::Interrupt;
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
}

const USUAL: Scenario = Scenario {
    name: "",
    how: "",
    way: Way::Loop,
    connections: CONNECTIONS,
    depth: 1,
    per_connection: None,
    sentence: "",
};

const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "poll",
        how: "one request at a time on one connection",
        way: Way::Poll,
        connections: 1,
        sentence: "Each request waits for the answer before it: every one pays for a whole round trip, and nothing overlaps.",
        ..USUAL
    },
    Scenario {
        name: "threads",
        how: "100 blocking threads, a connection each",
        way: Way::Threads,
        sentence: "The waiting overlaps, but each answer wakes a thread of its own: the kernel switches threads for every request.",
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
        sentence: "One write carries many requests and one read brings many answers: what a system call costs is shared by \
                   all of them.",
        ..USUAL
    },
];

/// Runs the command.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Fault> {
    let interrupt = Interrupt::listen()?;
    let cores = machine::allowed_cores();
    let (server_core, client_core) = (cores[0], cores[cores.len() - 1]);
    let options = ServerOptions { cores: vec![server_core], ..ServerOptions::default() };
    let server = linerate_serve::spawn(options)
        .map_err(|e| Fault::ours(format!("the embedded server could not be started: {e}")))?;
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
    let mut rows = Vec::new();
    let mut answered = 0;
    let mut disturbed = false;
    for (i, scenario) in SCENARIOS.iter().enumerate() {
        let label = format!("{} of {}  {:<10} {}", i + 1, SCENARIOS.len(), scenario.name, scenario.how);
        let outcome = measure(&plan(scenario, server.addr(), args.time), &label, &interrupt)?;
        if outcome.interrupted || interrupt.asked() {
            break;
        }
        answered += outcome.requests.answered;
        disturbed |= is_disturbed(scenario, &outcome);
        // The words come while there is time to read them; the table is what stays on the screen.
        let row = row(scenario, &outcome);
        terminal::print(&table::words(&row, style))?;
        rows.push(row);
    }
    let counted = server.stop().requests;
    terminal::print(&format!("\n{}", table::to_string(&rows, style)))?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let counts = format!(
        "The server counted {} requests; the client measured {} answers, after a warm-up of {} for each way.",
        units::count(counted),
        units::count(answered),
        units::time_ns(WARM_UP.as_nanos() as f64, style.unicode),
    );
    let mut end = format!("\n{}\n", style.wrapped("", &counts));
    if disturbed {
        let note = "note: something else used this machine's cores meanwhile; on a quiet machine the ratios are firmer.";
        end += &format!("{}\n", style.warn(&style.wrapped("", note)));
    }
    end += &format!(
        "Try it on a server of yours: linerate load -c {PIPELINED_CONNECTIONS} -p {DEPTH} http://HOST:PORT/\n"
    );
    terminal::print(&end).map(|()| Exit::Fine)
}

/// Whether an event loop, which is alone on its core, had to wait for it for more than a tenth of the time.
fn is_disturbed(scenario: &Scenario, outcome: &Outcome) -> bool {
    scenario.way == Way::Loop && outcome.client.run_queue_wait > outcome.duration / 10
}

fn plan(scenario: &Scenario, server: SocketAddr, time: Duration) -> Plan {
    let from = match scenario.per_connection {
        Some(_) => (1..=SOURCES).map(|n| IpAddr::from(Ipv4Addr::new(127, 0, 0, n))).collect(),
        None => Vec::new(),
    };
    Plan {
        target: Target {
            url: format!("http://{server}/"),
            authority: server.to_string(),
            addresses: vec![server],
        },
        requests: vec![Request {
            name: "GET /".to_owned(),
            weight: 1.0,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            fields: Vec::new(),
            body: None,
            expect: Expectation::default(),
        }],
        order: Order::Weighted,
        data: Vec::new(),
        connections: scenario.connections,
        depth: scenario.depth,
        per_connection: scenario.per_connection,
        resend: Resend::default(),
        stop: Stop { requests: None, duration: Some(time) },
        pace: Pace::Closed,
        threads: (scenario.way == Way::Loop).then_some(1),
        way: scenario.way,
        io: Io::Auto,
        interface: None,
        busy_poll: None,
        pcap_out: None,
        fault: None,
        from,
        timeout: Duration::from_secs(5),
        warm_up: WARM_UP,
        tag: None,
        route: Default::default(),
        http: Default::default(),
        tls: None,
        throughput: false,
        checks: Vec::new(),
        abort_on: Vec::new(),
        save_responses: 0,
        seed: 1,
    }
}

/// Runs one way, with a line that lives while it goes.
fn measure(plan: &Plan, label: &str, interrupt: &Interrupt) -> Result<Outcome, Fault> {
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
            terminal::overwrite_line(&format!("{label}: {so_far}"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    if live {
        terminal::overwrite_line("");
    }
    let outcome = running.join();
    if !live && !outcome.interrupted {
        let rate = outcome.requests.answered as f64 / outcome.duration.as_secs_f64().max(1e-9);
        let _ = writeln!(stderr(), "{label}: {}/s", units::rate(rate));
    }
    match &outcome.unreachable {
        Some(why) => Err(Fault::ours(format!("the embedded server cannot be reached: {why}"))),
        None => Ok(outcome),
    }
}

fn row(scenario: &Scenario, outcome: &Outcome) -> Row {
    let answered = outcome.requests.answered;
    let latency = &outcome.latency.from_sent;
    Row {
        name: scenario.name.to_owned(),
        how: scenario.how.to_owned(),
        rate_rps: answered as f64 / outcome.duration.as_secs_f64().max(1e-9),
        p50_us: latency.percentile_ns(50.0) as f64 / 1e3,
        p99_us: latency.percentile_ns(99.0) as f64 / 1e3,
        cpu_us: (answered > 0).then(|| outcome.client.cpu.as_secs_f64() * 1e6 / answered as f64),
        sentence: scenario.sentence.to_owned(),
        errors: outcome.requests.failed + outcome.requests.unknown + outcome.bad.total(),
    }
}
