//! `linerate demo`: all ways of sending, side by side, against a server in this very process or one
//! of the user's; and the ways of a server to wait.

mod beside;
mod scenarios;

use std::io::{self, IsTerminal, Write, stderr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use linerate_load::plan::http::Http;
use linerate_load::plan::{Stop, Target, Way};
use linerate_load::{Outcome, Plan};
use linerate_net::machine;
use linerate_report::table::{self, WayRow};
use linerate_report::units;
use linerate_serve::{Request, Response, ServerOptions};

use crate::args::{DemoArgs, LoadArgs};
use crate::fault::{CommandFault, Exit};
use crate::load::{Interrupt, plan as load_plan};
use crate::terminal;
use crate::ways::{self, Limit, Seen};

use self::beside::{ServerThreads, ThreadLoads, Used};
use self::scenarios::{HUNDRED, REQUESTS, SCENARIOS, Scenario, WAIT, WAITING};

/// Opening connections and filling caches is not what is compared.
const WARM_UP: Duration = Duration::from_millis(200);
/// Loopback addresses that short connections come from: each brings its own local ports.
const SOURCES: u8 = 8;
/// Time that each way of the 10,000 requests may take. Reason: one at a time to a server that is 20 ms
/// away, they take 200 s.
const HUNDRED_AT_MOST: Duration = Duration::from_millis(1000);

/// How long the demo takes, beside starting and ending.
fn takes(time: Duration) -> Duration {
    let rows = SCENARIOS.len() + WAITING.len();
    (time + WARM_UP) * u32::try_from(rows).unwrap_or(u32::MAX) + HUNDRED_AT_MOST * 4
}

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
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, CommandFault> {
    if let Some(url) = &args.url {
        return against(args, url);
    }
    let interrupt = Interrupt::listen()?;
    let cores = machine::allowed_cores();
    let (server_core, client_core) = (cores[0], cores[cores.len() - 1]);
    let options = ServerOptions { threads: 1, cores: vec![server_core], ..ServerOptions::default() };
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
    let lasts = units::short_seconds(takes(args.time).as_secs_f64().round());
    let each = units::time_ns(args.time.as_nanos() as f64, style.unicode);
    let begins = format!("{places} {each} for each way, about {lasts} s in all.");
    terminal::print(&format!("{}\n\n", style.wrapped("", &begins)))?;
    let machine = if server_core == client_core { 1.0 } else { 2.0 };
    let here = Here { server: ServerThreads::Ours, client_cores: 1.0, machine: Some(machine) };
    let base = base(&format!("http://{}/", server.addr()))?;
    let shown = side_by_side(&SCENARIOS, &base, args.time, &interrupt, &here)?;
    concluded(&shown)?;
    let answered = shown.answered + hundred(&base, &interrupt, &here)?;
    let counted = server.stop().requests;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let counts = format!(
        "The server counted {} requests; the client measured {} responses, after a warm-up of {} for each way.",
        units::count(counted),
        units::count(answered),
        units::time_ns(WARM_UP.as_nanos() as f64, style.unicode),
    );
    terminal::print(&format!("\n{}\n", style.wrapped("", &counts)))?;
    waiting(args, options, &base, &interrupt, &here)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    terminal::print("\nTry the ways on a server of yours: linerate demo http://HOST:PORT/\n")
        .map(|()| Exit::Fine)
}

fn not_started(e: io::Error) -> CommandFault {
    CommandFault::ours(format!("the embedded server could not be started: {e}"))
}

/// The ways of a server to wait.
fn waiting(
    args: &DemoArgs,
    options: ServerOptions,
    base: &Plan,
    interrupt: &Interrupt,
    here: &Here,
) -> Result<(), CommandFault> {
    let style = terminal::style(&io::stdout());
    terminal::print(&format!(
        "\nThe same load on three ways of a server to wait {} for each response:\n\n",
        units::time_ns(WAIT.as_nanos() as f64, style.unicode)
    ))?;
    // Its handler sleeps on purpose.
    let options = ServerOptions { watchdog: false, ..options };
    let server = linerate_serve::spawn_boxed(options, || wait).map_err(not_started)?;
    let base = Plan { target: target(server.addr()), ..base.clone() };
    let waited = side_by_side(&WAITING, &base, args.time, interrupt, here)?;
    server.stop();
    terminal::print(&format!("\n{}", table::to_string(&waited.rows, style)))
}

/// All ways against a server of the user's.
fn against(args: &DemoArgs, url: &str) -> Result<Exit, CommandFault> {
    let base = base(url)?;
    let interrupt = Interrupt::listen()?;
    let server = ServerThreads::at(base.target.addresses.first());
    let cores = machine::allowed_cores().len() as f64;
    let machine = (!matches!(server, ServerThreads::Unknown)).then_some(cores);
    let here = Here { server, client_cores: cores, machine };
    let shown = side_by_side(&SCENARIOS, &base, args.time, &interrupt, &here)?;
    concluded(&shown)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    hundred(&base, &interrupt, &here)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    Ok(if shown.answered == 0 { Exit::CheckFailed } else { Exit::Fine })
}

/// Where server and client are.
struct Here {
    server: ServerThreads,
    /// Cores that the baselines' threads may use.
    client_cores: f64,
    /// Cores that both sides share; `None`: they share none.
    machine: Option<f64>,
}

/// Rows as far as the user let them run.
#[derive(Default)]
struct ShownRows {
    rows: Vec<WayRow>,
    seen: Vec<Seen>,
    /// Ways that this server does not know.
    left_out: Vec<String>,
    answered: u64,
}

/// The table and what follows from it.
fn concluded(shown: &ShownRows) -> Result<(), CommandFault> {
    let style = terminal::style(&io::stdout());
    terminal::print(&format!("\n{}", table::to_string(&shown.rows, style)))?;
    let mut end: Vec<String> = ways::conclusion(&shown.seen).into_iter().collect();
    end.extend(shown.left_out.iter().cloned());
    for text in end {
        terminal::print(&format!("\n{}\n", style.wrapped("", &text)))?;
    }
    Ok(())
}

/// Runs one way after the other, with its words.
fn side_by_side(
    scenarios: &[Scenario],
    base: &Plan,
    time: Duration,
    interrupt: &Interrupt,
    here: &Here,
) -> Result<ShownRows, CommandFault> {
    let style = terminal::style(&io::stdout());
    let mut shown = ShownRows::default();
    for (i, scenario) in scenarios.iter().enumerate() {
        let place = format!("{} of {}  {:<10}", i + 1, scenarios.len(), scenario.name);
        let plan = plan(scenario, base, time);
        let (outcome, used) = measure(&plan, (&place, scenario.how), interrupt, &here.server)?;
        if outcome.interrupted || interrupt.asked() {
            break;
        }
        shown.answered += outcome.requests.answered;
        let refused = outcome.requests.answered == 0 && outcome.requests.failed > 0;
        if scenario.http == Http::Two && refused {
            let what = if base.tls.is_some() { "by ALPN" } else { "in clear text (prior knowledge)" };
            shown
                .left_out
                .push(format!("left out: {}: this server does not speak it {what}.", scenario.name));
            continue;
        }
        let seen = seen(scenario, &outcome, used, here);
        let words = match scenario.waits {
            Some((_, lanes)) => ways::waiting(&seen, WAIT, lanes),
            None => ways::words(&seen, &shown.seen),
        };
        // The words come while there is time to read them; the table is what stays on the screen.
        let row = row(scenario, &outcome, &seen, words);
        terminal::print(&table::words(&row, style))?;
        shown.rows.push(row);
        shown.seen.push(seen);
    }
    Ok(shown)
}

/// 100 requests on each of 100 connections, as the write-up ran them, and by other ways. Returns how many responses came.
fn hundred(base: &Plan, interrupt: &Interrupt, here: &Here) -> Result<u64, CommandFault> {
    let mut all = 0;
    let mut disturbed = false;
    if interrupt.asked() {
        return Ok(all);
    }
    let style = terminal::style(&io::stdout());
    let mut text = format!("\n{} requests:\n", units::count(REQUESTS));
    for scenario in &HUNDRED {
        let plan = Plan { warm_up: Duration::ZERO, ..plan(scenario, base, HUNDRED_AT_MOST) };
        let (outcome, used) = measure(&plan, (scenario.name, scenario.how), interrupt, &here.server)?;
        if outcome.interrupted || interrupt.asked() {
            return Ok(all);
        }
        let answered = outcome.requests.answered;
        all += answered;
        if answered == 0 {
            continue;
        }
        let others = matches!(seen(scenario, &outcome, used, here).limit(), Limit::Others(_));
        let mark = if others { " *" } else { "" };
        disturbed |= others;
        let took = outcome.duration.as_secs_f64();
        let time = |seconds: f64| units::time_us(seconds * 1e6, style.unicode);
        text += &match answered < REQUESTS {
            true => format!(
                "  {:<18} {:>9}   at its rate: {} in {}{mark}\n",
                scenario.name,
                time(took * REQUESTS as f64 / answered as f64),
                units::count(answered),
                time(took)
            ),
            false => format!("  {:<18} {:>9}{mark}\n", scenario.name, time(took)),
        };
    }
    if disturbed {
        text += "  * other programs kept client or server from its core: no time to compare\n";
    }
    terminal::print(&text).map(|()| all)
}

fn target(server: SocketAddr) -> Target {
    Target { url: format!("http://{server}/"), authority: server.to_string(), addresses: vec![server] }
}

/// The plan of GET requests to a URL.
fn base(url: &str) -> Result<Plan, CommandFault> {
    let args = LoadArgs { url: Some(url.to_owned()), ..LoadArgs::default() };
    Ok(load_plan::of(&args)?.plan)
}

fn plan(scenario: &Scenario, base: &Plan, time: Duration) -> Plan {
    let here = base.target.addresses.iter().all(|a| a.is_ipv4() && a.ip().is_loopback());
    let from = match scenario.per_connection {
        Some(_) if here => (1..=SOURCES).map(|n| IpAddr::from(Ipv4Addr::new(127, 0, 0, n))).collect(),
        _ => Vec::new(),
    };
    let mut plan = Plan {
        connections: scenario.connections,
        depth: scenario.depth,
        per_connection: scenario.per_connection,
        stop: Stop { requests: scenario.requests, duration: Some(time) },
        threads: (scenario.way == Way::Loop).then_some(1),
        way: scenario.way,
        from,
        timeout: Duration::from_secs(5),
        warm_up: WARM_UP,
        ..base.clone()
    };
    plan.http.version = scenario.http;
    if let Some((path, _)) = scenario.waits {
        path.clone_into(&mut plan.requests[0].path);
    }
    plan
}

/// Runs one way, with a line that lives while it goes; and what the server used meanwhile.
fn measure(
    plan: &Plan,
    (place, how): (&str, &str),
    interrupt: &Interrupt,
    server: &ServerThreads,
) -> Result<(Outcome, Option<Used>), CommandFault> {
    let live = stderr().is_terminal();
    let running = linerate_load::start(plan.clone())?;
    let begins = Instant::now() + plan.warm_up;
    let mut first = None;
    let mut last = None;
    while !running.finished() {
        if interrupt.asked() {
            running.stop();
        }
        if Instant::now() >= begins {
            let look = ThreadLoads::now(server);
            match first {
                None => first = Some(look),
                Some(_) => last = Some(look),
            }
        }
        if live {
            let so_far = match running.snapshot().requests.answered {
                0 => "warming up".to_owned(),
                n => format!("{} answered", units::count(n)),
            };
            // The count first: a narrow terminal cuts the end.
            terminal::overwrite_line(&format!("{place} {so_far}  {how}"));
        }
        thread::sleep(Duration::from_millis(25));
    }
    if live {
        terminal::overwrite_line("");
    }
    let outcome = running.join();
    if !live && !outcome.interrupted && plan.stop.requests.is_none() {
        let _ = writeln!(stderr(), "{place} {how}: {}/s", units::rate(outcome.rate_rps()));
    }
    let used = first.zip(last).and_then(|(first, last)| first.until(&last));
    match &outcome.unreachable {
        Some(why) => {
            Err(CommandFault::unreachable(format!("{} cannot be reached: {why}", plan.target.authority)))
        }
        None => Ok((outcome, used)),
    }
}

/// What was seen of a way.
fn seen(scenario: &Scenario, outcome: &Outcome, server: Option<Used>, here: &Here) -> Seen {
    let baseline = scenario.way != Way::Loop;
    let rate = outcome.rate_rps();
    let lasted = outcome.duration.as_secs_f64().max(1e-9);
    let cores = outcome.client.cpu.as_secs_f64() / lasted;
    // A baseline's threads share the cores that they may use.
    let busy = if baseline { cores / here.client_cores } else { outcome.client.core_busy };
    // Many threads of a baseline wait for each other.
    let waited = match scenario.way {
        Way::Loop | Way::Poll => outcome.client.waited_share(outcome.duration),
        _ => 0.0,
    };
    // A server elsewhere shares its cores with us and with itself: its waiting names no other program.
    let ours = matches!(here.server, ServerThreads::Ours);
    let server_waited = server.filter(|_| ours).map_or(0.0, |used| used.waited);
    let lost = outcome.requests.failed + outcome.requests.unknown + outcome.bad.total();
    Seen {
        name: scenario.name.to_owned(),
        connections: scenario.connections,
        depth: scenario.depth,
        per_connection: scenario.per_connection,
        streams: scenario.http == Http::Two,
        baseline,
        rate_rps: rate,
        p50_us: outcome.latency.sent().percentile(50.0).ns as f64 / 1e3,
        cpu_us: [
            (outcome.arrived > 0).then(|| outcome.client.cpu.as_secs_f64() * 1e6 / outcome.arrived as f64),
            server.filter(|_| rate > 0.0).map(|used| used.cores * 1e6 / rate),
        ],
        cores: [Some(cores), server.map(|used| used.cores)],
        busiest: [Some(busy), server.map(|used| used.busiest)],
        machine: here.machine,
        held_up: waited.max(server_waited),
        errors: lost as f64 / outcome.requests.sent.max(1) as f64,
    }
}

fn row(scenario: &Scenario, outcome: &Outcome, seen: &Seen, sentence: String) -> WayRow {
    WayRow {
        name: scenario.name.to_owned(),
        how: scenario.how.to_owned(),
        rate_rps: seen.rate_rps,
        p50_us: seen.p50_us,
        p99_us: outcome.latency.sent().percentile(99.0).ns as f64 / 1e3,
        cpu_us: seen.cpu_us[0],
        server_cpu_us: seen.cpu_us[1],
        sentence,
        errors: outcome.requests.failed + outcome.requests.unknown + outcome.bad.total(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time is the same in README, help, book and truth.
    #[test]
    fn it_takes_the_time_that_is_written() {
        let default = Duration::from_millis(1200);
        let most = takes(default).as_secs_f64();
        assert!((18.0..=22.0).contains(&most), "{most} s");
        for page in [include_str!("../../pages/start.md"), include_str!("../../../../README.md")] {
            assert!(page.contains("about 20 seconds"), "{page}");
        }
    }
}
