//! `linerate load`.

mod beside;
mod busy;
mod capture;
mod dry_run;
mod endpoint;
mod exchange;
mod exposition;
mod find;
pub(crate) mod flows;
pub(crate) mod hooks;
mod hosts;
mod machine;
mod machines;
mod metrics;
mod occupancy;
mod open;
mod otlp;
pub(crate) mod output;
pub(crate) mod plan;
mod request_log;
mod results;
pub(crate) mod route;
mod saved;
mod server;
pub(crate) mod target;
#[cfg(test)]
mod testing;
mod watch;
mod why;

use std::io::{self, Write};

use linerate_load::outcome::Failure;
use linerate_load::plan::check::CheckResult;
use linerate_load::{Outcome, Plan};
use linerate_report::schema::line::ShapedLine;
use linerate_report::schema::machines::{AgentShare, Machines};
use linerate_report::schema::outcome as schema;
use linerate_report::summary::{self, SummaryLength};
use linerate_report::{Report, json, verdict};

use crate::args::{LoadArgs, Summary, When};
use crate::fault::{CommandFault, Exit};
use crate::line::{self, LaidLine};
use crate::{environment, proxy_hints, terminal};
use capture::Counting;
use results::Results;

pub(crate) use watch::Interrupt;

/// Runs the command.
pub(crate) fn run(args: &LoadArgs) -> Result<Exit, CommandFault> {
    let results = Results::of(args);
    if args.machines.resume.is_some() {
        results.probe(args, None)?;
        return machines::run(args, None, &results, (None, None));
    }
    if let Some(server) = line::own_server(args.url.as_deref())? {
        return run(&LoadArgs { url: Some(server.url().to_owned()), ..args.clone() });
    }
    let meaning = plan::of(args)?;
    if args.line.is_some() {
        line::leads_to(&meaning.plan.all_addresses())?;
    }
    if args.dry_run {
        meaning.say_notes();
        let first = linerate_load::first_request(&meaning.plan)?;
        return terminal::print(&dry_run::to_string(&meaning.plan, &first)).map(|()| Exit::Fine);
    }
    if let Some(right) = args.json.as_deref().and_then(crate::args::foreign::json_body) {
        return Err(CommandFault::input("--json is followed by a body").hint(right));
    }
    results.probe(args, meaning.plan.pcap_out.as_deref())?;
    let server = server::FiguresSource::of(args, &meaning.plan)?;
    let collector = args.otlp.as_deref().map(otlp::Collector::parse).transpose()?;
    args.save_responses.as_deref().map_or(Ok(()), saved::prepare)?;
    meaning.say_notes();
    if args.machines.bus.nats.is_some() && !args.machines.are_wanted() {
        return Err(CommandFault::input("--nats is for agents, and none are asked for")
            .hint("add --agents N, or leave --nats out: this machine then sends alone"));
    }
    if args.machines.are_wanted() {
        if let Err(error) = linerate_load::check_part(&meaning.plan) {
            return Err(
                CommandFault::from(error).hint("agents send by event loops alone, as --way loop does")
            );
        }
        if let Some(check) = &args.find {
            return machines::find(args, &meaning.plan, check, &results);
        }
        let beside = (server, collector);
        return machines::run(args, Some(meaning.plan.clone()), &results, beside);
    }
    let alone =
        |line: Option<&LaidLine>| on_this_machine(args, &meaning, &results, (server, collector), line);
    match args.line {
        None => alone(None),
        Some(line) => line::over(line, |laid| alone(Some(laid))),
    }
}

/// Sends from this machine alone, and reports.
fn on_this_machine(
    args: &LoadArgs,
    meaning: &plan::Meaning,
    results: &Results,
    beside: (Option<server::FiguresSource>, Option<otlp::Collector>),
    line: Option<&LaidLine>,
) -> Result<Exit, CommandFault> {
    let interrupt = Interrupt::listen()?;
    if let Some(check) = &args.find {
        return find::run(args, &meaning.plan, check, results, &interrupt, &mut find::Here);
    }
    let mut sent = send(args, &meaning.plan, beside, &interrupt)?;
    sent.outcome.warnings.extend(line.into_iter().flat_map(LaidLine::doubts));
    let length = Summary::length(args.summary);
    let beside = if args.explain { ReportExtras::Why(&interrupt) } else { ReportExtras::Nothing };
    let beside = Extra {
        beside,
        server: sent.server.as_ref(),
        line: line.map(LaidLine::document),
        logged: sent.logged,
        page: sent.page.take(),
    };
    let outcome = &sent.outcome;
    let exit = report(&meaning.plan, outcome, results, length, beside)?;
    if let Some(folder) = &args.save_responses {
        let _ = writeln!(io::stderr(), "{}", saved::write(folder, &outcome.saved)?);
    }
    say_hints(meaning, outcome, exit);
    sent.unwritten.map_or(Ok(exit), Err)
}

/// Says what the person can do about a server that could not be reached, or not always.
fn say_hints(meaning: &plan::Meaning, outcome: &Outcome, exit: Exit) {
    let (why, more) = if exit == Exit::Unreachable {
        (outcome.unreachable.as_deref(), meaning.hint)
    } else {
        // A server refuses a client's certificate after the connection is open.
        let detail = outcome.failures.details.get(Failure::Connect.name()).map(String::as_str);
        (detail.filter(|why| why.starts_with("TLS")), None)
    };
    let hints = why.into_iter().flat_map(|why| proxy_hints::with_tls(&meaning.plan, why));
    for hint in more.into_iter().chain(hints) {
        let _ = writeln!(io::stderr(), "hint: {hint}");
    }
}

/// A run that has ended, and what was seen beside it.
struct Sent {
    outcome: Outcome,
    server: Option<schema::Server>,
    logged: Option<schema::RequestLog>,
    /// Why the log of requests is not whole.
    unwritten: Option<CommandFault>,
    /// The live page, which waits for the report.
    page: Option<open::Open>,
}

/// Sends the load, with everything that watches it.
fn send(
    args: &LoadArgs,
    plan: &Plan,
    (server, collector): (Option<server::FiguresSource>, Option<otlp::Collector>),
    interrupt: &Interrupt,
) -> Result<Sent, CommandFault> {
    let serving = args.metrics.as_ref().map(|at| metrics::serve(at, plan)).transpose()?;
    let mut page = args.open.then(|| open::serve(plan)).transpose()?;
    let (opened, uncounted) = to_capture(args, plan);
    let log = args.log_requests.as_deref().map(|file| request_log::prepare(file, plan));
    let (running, logging) = match log {
        None => (linerate_load::start(plan.clone())?, None),
        Some((to, ready)) => {
            let running = linerate_load::start_logged(plan.clone(), to)?;
            (running, Some(ready.start()?))
        }
    };
    let counting = opened.map(|opened| opened.count(running.measures_from())).transpose()?;
    let counted = counting.as_ref().map(Counting::counted);
    if let Some(serving) = &serving {
        serving.watch(running.watcher(), counted.cloned());
    }
    if let Some(page) = &mut page {
        page.watch(running.watcher(), counted.cloned())?;
    }
    let export = |collector: otlp::Collector| {
        collector.export(plan, running.measures_from(), (running.watcher(), counted.cloned()))
    };
    let exporting = collector.map(export).transpose()?;
    let watching = server.map(|server| server.watch(running.measures_from())).transpose()?;
    let mut outcome = watch::to_the_end(plan, running, args.quiet, interrupt, counted);
    if let Some(counting) = counting {
        counting.finish(&mut outcome);
    }
    if let Some(exporting) = exporting {
        exporting.finish(&mut outcome);
    }
    let server = watching.and_then(|watching| watching.finish(&mut outcome));
    outcome.warnings.extend(uncounted);
    let (logged, unwritten) = logging.map(|logging| logging.finish(&mut outcome)).unzip();
    Ok(Sent { outcome, server, logged, unwritten: unwritten.flatten(), page })
}

/// `--capture auto`: the capture, or why there is none. Over user-space TCP none is needed: it counts each segment itself.
fn to_capture(args: &LoadArgs, plan: &Plan) -> (Option<capture::Opened>, Option<String>) {
    if args.capture != Some(When::Auto) || plan.io.is_user_space() {
        return (None, None);
    }
    match capture::open(plan) {
        Ok(opened) => (Some(opened), None),
        Err(why) => {
            let note = format!("segments are not counted one by one: {why}");
            let _ = writeln!(io::stderr(), "note: --capture: {note}");
            (None, Some(note))
        }
    }
}

/// What a report has beside the run's figures.
#[derive(Clone, Copy)]
enum ReportExtras<'a> {
    Nothing,
    /// The worst request is explained, unless the user interrupts.
    Why(&'a Interrupt),
    /// Each machine's part of the run.
    Machines(&'a Machines, &'a [AgentShare]),
}

/// The same, with what was seen beside the run.
struct Extra<'a> {
    beside: ReportExtras<'a>,
    server: Option<&'a schema::Server>,
    /// With `--line`: what it carried.
    line: Option<ShapedLine>,
    /// What `--log-requests` wrote.
    logged: Option<schema::RequestLog>,
    /// The live page, which the report takes the place of.
    page: Option<open::Open>,
}

/// Prints and writes what was measured: the summary in any case, then the rest.
fn report(
    plan: &Plan,
    outcome: &Outcome,
    results: &Results,
    length: SummaryLength,
    Extra { beside, server, line, logged, page }: Extra<'_>,
) -> Result<Exit, CommandFault> {
    let checks: Vec<CheckResult> = plan.checks.iter().map(|check| check.evaluate(outcome)).collect();
    let environment = environment::here();
    let report = Report { plan, outcome, checks: &checks, environment: &environment };
    let to_stderr = results.to_stderr();
    let style = terminal::style_beside(to_stderr);
    let mut text = summary::to_string(&report, length, style);
    if let ReportExtras::Machines(machines, _) = beside {
        text += &linerate_report::machines::to_string(machines, style);
    }
    if let Some(server) = server {
        text += &linerate_report::load_page::server(server, style);
    }
    if let Some(line) = &line {
        text += &linerate_report::load_page::shaped_line(line, style);
    }
    let mut document = json::document(&report);
    document.server = server.cloned();
    document.request_log = logged;
    document.shaped_line = line;
    if let ReportExtras::Machines(machines, shares) = beside {
        document.machines = Some(machines.clone());
        document.complete = Some(machines.complete);
        document.agents = Some(shares.to_vec());
    }
    let printed = terminal::print_beside(&text, to_stderr);
    // A file is there before the explanation begins, which takes its time.
    let written = match beside {
        ReportExtras::Why(_) => results.write_files(&document),
        ReportExtras::Nothing | ReportExtras::Machines(..) => results.write(&document),
    };
    if let Some(page) = page {
        page.finish(&document);
    }
    written?;
    if let ReportExtras::Why(interrupt) = beside {
        let diagnosis = why::explain(plan, outcome, to_stderr, interrupt)?;
        if let Some(diagnosis) = &diagnosis {
            json::explain(&mut document, diagnosis, &environment);
        }
        results.write_rest(&document)?;
    }
    printed.map(|()| exit(plan, outcome, &checks))
}

fn exit(plan: &Plan, outcome: &Outcome, checks: &[CheckResult]) -> Exit {
    if outcome.interrupted {
        Exit::Interrupted
    } else if outcome.unreachable.is_some() {
        Exit::Unreachable
    } else if outcome.broken.is_some() {
        Exit::Ours
    } else if !verdict::reasons(plan, outcome).is_empty() || checks.iter().any(|check| !check.pass) {
        Exit::CheckFailed
    } else {
        Exit::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_load::outcome::{Down, Requests};

    fn check(pass: bool) -> CheckResult {
        CheckResult { expr: String::new(), value: None, at_least: false, pass, shown: String::new() }
    }

    #[test]
    fn exit_codes_by_rule() {
        let mut plan = super::testing::plan("http://127.0.0.1/");
        let requests = Requests { sent: 1, answered: 1, ..Requests::default() };
        let fine = Outcome { requests, ..Outcome::default() };
        assert_eq!(exit(&plan, &fine, &[check(true)]), Exit::Fine);
        assert_eq!(exit(&plan, &fine, &[check(true), check(false)]), Exit::CheckFailed);
        let none = Outcome {
            requests: Requests { sent: 1, failed: 1, ..Requests::default() },
            ..Outcome::default()
        };
        assert_eq!(exit(&plan, &none, &[]), Exit::CheckFailed);
        let mut down = Down { at_end: true, ..Down::default() };
        let with = |down: &Down| Outcome { down: Some(down.clone()), ..fine.clone() };
        assert_eq!(exit(&plan, &with(&down), &[]), Exit::CheckFailed);
        down = Down::default();
        down.spans.push(0, 999_999_999);
        assert_eq!(exit(&plan, &with(&down), &[]), Exit::Fine);
        down.spans.push(2_000_000_000, 3_000_000_000);
        assert_eq!(exit(&plan, &with(&down), &[]), Exit::CheckFailed);
        let unreachable = Outcome { unreachable: Some("refused".to_owned()), ..none.clone() };
        assert_eq!(exit(&plan, &unreachable, &[]), Exit::Unreachable);
        let broken = Outcome { broken: Some("the interface is gone".to_owned()), ..fine.clone() };
        assert_eq!(exit(&plan, &broken, &[check(true)]), Exit::Ours);
        assert_eq!(
            exit(&plan, &Outcome { interrupted: true, ..unreachable }, &[check(false)]),
            Exit::Interrupted
        );
        let mut swapped = fine.clone();
        swapped.requests.out_of_order_responses = 1;
        assert_eq!(exit(&plan, &swapped, &[check(true)]), Exit::CheckFailed);
        let aborted = Outcome { aborted: Some("errors>5%@10s".to_owned()), ..fine.clone() };
        assert_eq!(exit(&plan, &aborted, &[check(true)]), Exit::CheckFailed);
        assert_eq!(exit(&plan, &Outcome::default(), &[]), Exit::Fine);
        let mut bad = Outcome { requests: Requests { answered: 2, ..fine.requests }, ..fine.clone() };
        bad.bad.status = 1;
        assert_eq!(exit(&plan, &bad, &[]), Exit::Fine);
        plan.requests[0].expect.status = vec![200];
        assert_eq!(exit(&plan, &bad, &[]), Exit::CheckFailed);
        plan.requests[0].expect.status.clear();
        plan.requests[0].expect.trailer = Some(("grpc-status".to_owned(), "0".to_owned()));
        assert_eq!(exit(&plan, &bad, &[]), Exit::CheckFailed);
        plan.requests[0].expect.trailer = None;
        bad.bad.status = 2;
        assert_eq!(exit(&plan, &bad, &[]), Exit::CheckFailed);
    }
}
