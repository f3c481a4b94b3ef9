//! `linerate load`.

mod capture;
mod dry_run;
mod find;
mod machine;
mod machines;
mod metrics;
mod no_proxy;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod route;
mod saved;
pub(crate) mod target;
#[cfg(test)]
mod testing;
mod watch;
mod why;

use std::io::{self, Write};

use linerate_load::plan::check::CheckResult;
use linerate_load::{Outcome, Plan};
use linerate_report::schema::machines::Machines;
use linerate_report::{Report, json, summary};

use crate::args::{LoadArgs, Summary, When};
use crate::fault::{Exit, Fault};
use crate::{environment, terminal};
use capture::Counting;
use output::Sink;

pub(crate) use watch::Interrupt;

/// Runs the command.
pub(crate) fn run(args: &LoadArgs) -> Result<Exit, Fault> {
    if args.machines.resume.is_some() {
        let sink = args.json.as_deref().map(Sink::new);
        return machines::run(args, None, sink.as_ref());
    }
    let meaning = plan::of(args)?;
    if args.dry_run {
        meaning.say_notes();
        let first = linerate_load::first_request(&meaning.plan)?;
        return terminal::print(&dry_run::to_string(&meaning.plan, &first)).map(|()| Exit::Fine);
    }
    if let Some(right) = args.json.as_deref().and_then(crate::args::foreign::json_body) {
        return Err(Fault::input("--json is followed by a body").hint(right));
    }
    let sink = args.json.as_deref().map(Sink::new);
    sink.as_ref().map_or(Ok(()), |sink| sink.probe("--json"))?;
    if let Some(file) = &meaning.plan.pcap_out {
        output::can_be_written("--pcap-out", file, "name a file in a folder that exists")?;
    }
    args.save_responses.as_deref().map_or(Ok(()), saved::prepare)?;
    meaning.say_notes();
    if args.machines.are_wanted() {
        return machines::run(args, Some(meaning.plan.clone()), sink.as_ref());
    }
    let interrupt = Interrupt::listen()?;
    if let Some(check) = &args.find {
        return find::run(args, &meaning.plan, check, sink.as_ref(), &interrupt);
    }
    let serving = args.metrics.as_ref().map(|at| metrics::serve(at, &meaning.plan)).transpose()?;
    let (opened, uncounted) = to_capture(args, &meaning.plan);
    let running = linerate_load::start(meaning.plan.clone())?;
    let counting = opened.map(|opened| opened.count(running.measures_from())).transpose()?;
    let counted = counting.as_ref().map(Counting::counted);
    if let Some(serving) = &serving {
        serving.watch(running.watcher(), counted.cloned());
    }
    let mut outcome = watch::to_the_end(&meaning.plan, running, args.quiet, &interrupt, counted);
    if let Some(counting) = counting {
        counting.finish(&mut outcome);
    }
    outcome.warnings.extend(uncounted);
    let short = args.summary == Some(Summary::Short);
    let beside = if args.explain { Beside::Why(&interrupt) } else { Beside::Nothing };
    let exit = report(&meaning.plan, &outcome, sink.as_ref(), short, beside)?;
    if let Some(folder) = &args.save_responses {
        let _ = writeln!(io::stderr(), "{}", saved::write(folder, &outcome.saved)?);
    }
    if let (Exit::Unreachable, Some(hint)) = (exit, meaning.hint) {
        let _ = writeln!(io::stderr(), "hint: {hint}");
    }
    Ok(exit)
}

/// `--capture auto`: the capture, or why there is none. Over user-space TCP none is needed: it counts each segment itself.
fn to_capture(args: &LoadArgs, plan: &Plan) -> (Option<capture::Opened>, Option<String>) {
    if args.capture != Some(When::Auto) || plan.io == linerate_load::plan::Io::Xdp {
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
enum Beside<'a> {
    Nothing,
    /// The worst request is explained, unless the user interrupts.
    Why(&'a Interrupt),
    /// Each machine's part of the run.
    Machines(&'a Machines),
}

/// Prints and writes what was measured: the summary in any case, then the rest.
fn report(
    plan: &Plan,
    outcome: &Outcome,
    sink: Option<&Sink>,
    short: bool,
    beside: Beside<'_>,
) -> Result<Exit, Fault> {
    let checks: Vec<CheckResult> = plan.checks.iter().map(|check| check.evaluate(outcome)).collect();
    let environment = environment::here();
    let report = Report { plan, outcome, checks: &checks, environment: &environment };
    let to_stderr = sink == Some(&Sink::Stdout);
    let style = terminal::style_beside(to_stderr);
    let mut text = if short { summary::short(&report, style) } else { summary::to_string(&report, style) };
    if let Beside::Machines(machines) = beside {
        text += &linerate_report::machines::to_string(machines, style);
    }
    let document = || match beside {
        Beside::Machines(machines) => json::to_string_of_machines(&report, machines),
        Beside::Nothing | Beside::Why(_) => json::to_string(&report),
    };
    let printed = terminal::print_beside(&text, to_stderr);
    // A file is there before the explanation begins, which takes its time; standard output is written once.
    if let (Some(sink), false) = (sink, to_stderr && matches!(beside, Beside::Why(_))) {
        sink.write(&document())?;
    }
    if let Beside::Why(interrupt) = beside {
        let diagnosis = why::explain(plan, outcome, to_stderr, interrupt)?;
        if let Some(sink) = sink {
            sink.write(&match diagnosis {
                Some(diagnosis) => json::to_string_explained(&report, &diagnosis),
                None => document(),
            })?;
        }
    }
    printed.map(|()| exit(plan, outcome, &checks))
}

fn exit(plan: &Plan, outcome: &Outcome, checks: &[CheckResult]) -> Exit {
    let nothing_answered = outcome.requests.answered == 0 && outcome.requests.sent > 0;
    let expects = plan.requests.iter().any(|r| !r.expect.status.is_empty() || r.expect.body.is_some());
    let (bad, answered) = (outcome.bad.total(), outcome.requests.answered);
    let is_bad = (expects && bad > 0) || (answered > 0 && bad == answered);
    if outcome.interrupted {
        Exit::Interrupted
    } else if outcome.unreachable.is_some() {
        Exit::Unreachable
    } else if outcome.broken.is_some() {
        Exit::Ours
    } else if outcome.aborted.is_some()
        || nothing_answered
        || is_bad
        || outcome.was_down()
        || checks.iter().any(|check| !check.pass)
    {
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
        CheckResult { expr: String::new(), value: None, pass, shown: String::new() }
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
        let aborted = Outcome { aborted: Some("errors>5%@10s".to_owned()), ..fine.clone() };
        assert_eq!(exit(&plan, &aborted, &[check(true)]), Exit::CheckFailed);
        assert_eq!(exit(&plan, &Outcome::default(), &[]), Exit::Fine);
        let mut bad = Outcome { requests: Requests { answered: 2, ..fine.requests }, ..fine.clone() };
        bad.bad.status = 1;
        assert_eq!(exit(&plan, &bad, &[]), Exit::Fine);
        plan.requests[0].expect.status = vec![200];
        assert_eq!(exit(&plan, &bad, &[]), Exit::CheckFailed);
        plan.requests[0].expect.status.clear();
        bad.bad.status = 2;
        assert_eq!(exit(&plan, &bad, &[]), Exit::CheckFailed);
    }
}
