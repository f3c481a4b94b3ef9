//! `--find`: runs the looks that the search asks for, and says what gave way.

use std::io::{IsTerminal, Write, stderr};
use std::thread;
use std::time::{Duration, Instant};

use linerate_explain::driver::listening_processes;
use linerate_lab::find::{
    BUDGET, LoadUnit, RateObservation, Says, Search, SearchEnd, SearchNext, SearchSettings, SearchStep,
    ShareSlice,
};
use linerate_lab::servers::{Usage, descendants};
use linerate_load::histogram::Histogram;
use linerate_load::outcome::Requests;
use linerate_load::plan::check::CheckResult;
use linerate_load::plan::flow::FlowPlan;
use linerate_load::plan::{Arrival, Check, Comparison, Metric, Pace, Rate, RateStep, Stop};
use linerate_load::{Outcome, Plan, Snapshot};
use linerate_report::schema::outcome::{Document, Find, FindPoint};
use linerate_report::summary::{self, SummaryLength};
use linerate_report::{Report, find, json};

use super::results::Results;
use super::watch::Interrupt;
use crate::args::{FindBy, LoadArgs};
use crate::fault::{CommandFault, Exit};
use crate::{environment, terminal};

/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(50);
/// Pieces into which a look is cut at least: what comes late together is one witness.
const PIECE: Duration = Duration::from_millis(100);
/// The first rate, requests per second.
const START: f64 = 100.0;
/// The highest rate that is tried.
const MOST: f64 = 20e6;
/// Connections of one look at most, where -c does not say it.
const CONNECTIONS: u32 = 4_096;
/// The most connections that are tried when their number is looked for.
const MOST_CONNECTIONS: f64 = 50_000.0;
/// Share of the time for which the sending threads had no core, from which on a look is disturbed.
const AWAY: f64 = 0.2;
/// Part of the limit for which they may be held up.
const PART: f64 = 0.25;
/// Busy share from which on a core has nothing left.
const BUSY: f64 = 0.9;
/// Requests in flight on average, below which each was alone most of the time.
const ALONE: f64 = 0.5;
/// A server that takes no longer than this many times its quickest has no queue.
const AS_QUICK: f64 = 1.5;

/// Carries out the plan of a look: this process, or agents.
pub(super) trait Looker {
    /// Sends it. `look` is shown how it goes, and says when it may end.
    fn send(&mut self, plan: &Plan, look: &mut dyn FnMut(&Snapshot) -> bool)
    -> Result<Outcome, CommandFault>;

    /// How much of the search's time a look has cost that began then.
    fn took(&self, begun: Instant, plan: &Plan, outcome: &Outcome) -> Duration;
}

/// This process.
pub(super) struct Here;

impl Looker for Here {
    fn send(
        &mut self,
        plan: &Plan,
        look: &mut dyn FnMut(&Snapshot) -> bool,
    ) -> Result<Outcome, CommandFault> {
        let running = linerate_load::start(plan.clone())?;
        let (mut last, mut stopped) = (Instant::now(), false);
        while !running.finished() {
            thread::sleep(LOOK);
            if last.elapsed() < PIECE {
                continue;
            }
            last = Instant::now();
            if look(&running.snapshot()) && !stopped {
                stopped = true;
                running.stop();
            }
        }
        Ok(running.join())
    }

    fn took(&self, begun: Instant, _: &Plan, _: &Outcome) -> Duration {
        begun.elapsed()
    }
}

/// The limit that must hold, in the check's unit.
#[derive(Clone, Copy, Debug)]
struct Limit {
    metric: Metric,
    /// Microseconds, or a share of 1.
    value: f64,
    /// The share of requests that may be over it.
    allowed: f64,
}

impl Limit {
    fn of(check: &Check) -> Result<Limit, CommandFault> {
        let hint = "write for example --find 'p99<50ms' or --find 'errors<0.1%'";
        if !matches!(check.comparison, Comparison::Less | Comparison::AtMost) || check.limit <= 0.0 {
            let text =
                format!("--find {}: more load makes it no truer, so there is no highest rate", check.expr);
            return Err(CommandFault::input(text).hint(hint));
        }
        if check.name.is_some() {
            return Err(CommandFault::input(format!(
                "--find {}: it looks at all requests together",
                check.expr
            ))
            .hint(hint));
        }
        match check.metric {
            Metric::Percentile(percent) if percent > 0.0 && percent < 100.0 => {
                Ok(Limit { metric: check.metric, value: check.limit, allowed: 1.0 - percent / 100.0 })
            }
            Metric::ErrorShare if check.limit < 1.0 => {
                Ok(Limit { metric: check.metric, value: check.limit, allowed: check.limit })
            }
            _ => Err(CommandFault::input(format!(
                "--find {}: percentiles and shares of errors can be found",
                check.expr
            ))
            .hint(hint)),
        }
    }

    /// Requests over the limit so far, and all that have ended.
    fn counted(&self, s: &Snapshot) -> ShareSlice {
        self.slice(&s.requests, s.bad.total(), &s.latency)
    }

    /// The same of a whole look. A last snapshot may lack what the threads recorded since.
    fn counted_in_all(&self, outcome: &Outcome) -> ShareSlice {
        self.slice(&outcome.requests, outcome.bad.total(), outcome.main_latency())
    }

    fn slice(&self, r: &Requests, bad: u64, latency: &Histogram) -> ShareSlice {
        let wrong = r.failed + r.unknown + bad;
        let late = match self.metric {
            Metric::Percentile(_) => {
                let over = |(ns, n): (u64, u64)| if ns as f64 / 1e3 > self.value { n } else { 0 };
                latency.iter_recorded().map(over).sum()
            }
            _ => 0,
        };
        ShareSlice { all: r.answered + r.failed + r.unknown, over: wrong + late }
    }

    /// What the check looks at, of a whole look, and whether that is a bound; `None` if it was not measured.
    fn measured(&self, outcome: &Outcome) -> Option<(f64, bool)> {
        match self.metric {
            Metric::Percentile(percent) => microseconds(outcome, percent),
            _ => Some((outcome.errors() as f64 / outcome.requests.due().max(1) as f64, false)),
        }
    }

    /// How far from failing a look is.
    fn score(&self, outcome: &Outcome) -> f64 {
        let due = outcome.requests.due();
        if due == 0 || outcome.requests.answered == 0 {
            return -1.0;
        }
        let errors = outcome.errors() as f64 / due as f64;
        let of_errors = (self.allowed / errors.max(1e-9)).ln();
        match self.metric {
            Metric::Percentile(percent) => {
                let found = outcome.percentile(percent);
                if found.at_least {
                    return -1.0;
                }
                let of_latency = (self.value * 1e3 / (found.ns.max(1)) as f64).ln();
                if errors > self.allowed { of_latency.min(of_errors) } else { of_latency }
            }
            _ => of_errors,
        }
    }
}

/// A percentile in microseconds, and whether requests without a good response make it a bound.
fn microseconds(outcome: &Outcome, percent: f64) -> Option<(f64, bool)> {
    let found = outcome.percentile(percent);
    (found.ns > 0).then_some((found.ns as f64 / 1e3, found.at_least))
}

/// A look and what there is to say about it.
struct Looked {
    step: SearchStep,
    unit: LoadUnit,
    outcome: Outcome,
    score: f64,
    over: f64,
    /// Every connection had a request in flight, and requests waited on our side.
    full: bool,
    /// Cores that the server's processes used, and the busiest thread's share of one.
    server: Option<f64>,
    /// Other work took this client's core, or it stood still, for long enough to matter.
    disturbed: bool,
}

/// Runs the search.
pub(super) fn run(
    args: &LoadArgs,
    plan: &Plan,
    check: &Check,
    results: &Results,
    interrupt: &Interrupt,
    looker: &mut dyn Looker,
) -> Result<Exit, CommandFault> {
    let limit = Limit::of(check)?;
    let unit = match args.find_by {
        Some(FindBy::Connections) => LoadUnit::Connections,
        Some(FindBy::Rate) | None => LoadUnit::Rate,
    };
    let (start, arrival) = first(args, plan, unit)?;
    let most = if unit == LoadUnit::Rate { MOST } else { MOST_CONNECTIONS };
    let mut search =
        Search::new(SearchSettings { unit, allowed: limit.allowed, start, most, budget: BUDGET });
    let server = listener(plan);
    let mut looks: Vec<Looked> = Vec::new();
    let end = loop {
        let step = match search.next_step() {
            SearchNext::Done(end) => break Some(end),
            SearchNext::Look(step) => step,
        };
        if interrupt.asked() {
            break None;
        }
        let begun = Instant::now();
        let plan = match unit {
            LoadUnit::Rate => planned(args, plan, &limit, step, arrival),
            LoadUnit::Connections => planned_closed(plan, &limit, step),
        };
        let (looked, slices) = look(&plan, &limit, (step, unit), server, (interrupt, looker))?;
        if let Some(why) = &looked.outcome.unreachable {
            let proxy = plan.route.proxy.as_ref().map(|proxy| format!(" through the proxy {}", proxy.url));
            let (target, proxy) = (&plan.target.authority, proxy.unwrap_or_default());
            let fault = CommandFault::unreachable(format!("{target}{proxy} could not be reached: {why}"));
            return Err(crate::proxy_hints::with_tls(&plan, why).fold(fault, CommandFault::hint));
        }
        if interrupt.asked() {
            break None;
        }
        let took = looker.took(begun, &plan, &looked.outcome);
        let (score, disturbed) = (looked.score, looked.disturbed);
        search.take(&RateObservation { slices, score, took, disturbed });
        tell(args.quiet, &looked);
        looks.push(looked);
    };
    if !args.quiet && stderr().is_terminal() {
        terminal::overwrite_line("");
    }
    let said: Vec<Says> = search.points().map(|(_, says)| says).collect();
    report(plan, (check, unit), &limit, (&looks, &said), end, results)
}

/// `--rate` says where it begins, or `-c`.
fn first(args: &LoadArgs, plan: &Plan, unit: LoadUnit) -> Result<(f64, Arrival), CommandFault> {
    let is_given = args.connections.is_some() || args.plan.is_some();
    match &plan.pace {
        Pace::Closed if unit == LoadUnit::Connections => {
            let given = plan.flows.as_ref().map_or(plan.connections, |flows| flows.users);
            Ok((if is_given { f64::from(given) } else { 1.0 }, Arrival::default()))
        }
        Pace::Open { .. } if unit == LoadUnit::Connections => {
            Err(CommandFault::input("--find-by connections looks at closed loops, which have no rate")
                .hint("leave --rate out; -c is where it begins"))
        }
        Pace::Closed => Ok((START, Arrival::default())),
        Pace::Open { rate, arrival } if rate.steps.len() == 1 && rate.steps[0].from == rate.steps[0].to => {
            Ok((rate.steps[0].from, *arrival))
        }
        _ => Err(CommandFault::input("--find chooses the rates itself")
            .hint("with it, --rate is one number: where it begins")),
    }
}

/// The plan of one look.
fn planned(args: &LoadArgs, plan: &Plan, limit: &Limit, step: SearchStep, arrival: Arrival) -> Plan {
    let constant = |rate: f64, lasts: Option<Duration>| RateStep { from: rate, to: rate, lasts };
    let limit_s = if limit.metric.is_latency() { limit.value / 1e6 } else { 0.1 };
    let mut steps = vec![constant(step.rate, None)];
    let mut warm_up = step.warm_up;
    if step.burst {
        // Half as much again for twice the limit: what is due in the time of the limit.
        let lasts = Duration::from_secs_f64((2.0 * limit_s).clamp(0.01, 1.0));
        steps.insert(0, constant(step.rate * 1.5, Some(lasts)));
        warm_up += lasts;
    }
    // As many as wait for a response at the limit, twice: fewer would be what gives way.
    let wanted =
        (step.rate * limit_s * 2.0).clamp(f64::from(plan.connections), f64::from(CONNECTIONS)) as u32;
    let connections =
        if args.connections.is_some() || args.plan.is_some() { plan.connections } else { wanted };
    Plan {
        pace: Pace::Open { rate: Rate { steps }, arrival },
        stop: Stop { requests: None, duration: Some(whole_ms(step.lasts)) },
        warm_up,
        connections,
        ..plan.clone()
    }
}

/// A time as the report shows it: "3s975ms", not its nanoseconds too.
fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis((time.as_millis() as u64).max(1))
}

/// The plan of one look at a closed loop.
fn planned_closed(plan: &Plan, limit: &Limit, step: SearchStep) -> Plan {
    // So long that even requests at the limit end within it, several times.
    let longer = if limit.metric.is_latency() {
        Duration::from_secs_f64((4.0 * limit.value / 1e6).min(5.0))
    } else {
        Duration::ZERO
    };
    let flows = plan.flows.clone().map(|flows| FlowPlan {
        users: step.rate as u32,
        // What began has the time of the look, and no more.
        graceful: Duration::ZERO,
        iterations: None,
        ..flows
    });
    let mut planned = Plan {
        connections: step.rate as u32,
        flows,
        pace: Pace::Closed,
        stop: Stop { requests: None, duration: Some(whole_ms(step.lasts.max(longer))) },
        warm_up: step.warm_up,
        ..plan.clone()
    };
    planned.fit_users();
    planned
}

/// One look: what came of it, and its pieces.
fn look(
    plan: &Plan,
    limit: &Limit,
    (step, unit): (SearchStep, LoadUnit),
    server: Option<i32>,
    (interrupt, looker): (&Interrupt, &mut dyn Looker),
) -> Result<(Looked, Vec<ShareSlice>), CommandFault> {
    let usage = || server.map(|pid| Usage::of(&descendants(pid)));
    let (mut slices, mut before, mut full) = (Vec::new(), ShareSlice::default(), false);
    let (used, begun) = (usage(), Instant::now());
    let mut slice = |now: ShareSlice, slices: &mut Vec<ShareSlice>| {
        slices.push(ShareSlice {
            all: now.all.saturating_sub(before.all),
            over: now.over.saturating_sub(before.over),
        });
        before = now;
    };
    let mut outcome = looker.send(plan, &mut |snapshot| {
        let now = limit.counted(snapshot);
        slice(now, &mut slices);
        let most = u64::from(plan.connections) * u64::from(plan.depth);
        full |= snapshot.in_flight >= most && snapshot.overdue > 0;
        // Requests that are due and cannot leave are as lost as late ones, once they are many.
        let lost = unit == LoadUnit::Rate
            && (step.is_lost(now.over, limit.allowed)
                || (!step.whole && snapshot.overdue as f64 > step.rate));
        interrupt.asked() || lost
    })?;
    if outcome.interrupted && !interrupt.asked() {
        // Nobody did that but the search.
        outcome.interrupted = false;
        outcome.warnings.push("this look was ended early: enough requests were over the limit".to_owned());
    }
    let wall = begun.elapsed().as_secs_f64();
    let cores = used.zip(usage()).map(|(before, after)| after.cpu_since(&before).as_secs_f64() / wall);
    slice(limit.counted_in_all(&outcome), &mut slices);
    // What never left is over any limit.
    slices.push(ShareSlice { all: outcome.requests.unsent, over: outcome.requests.unsent });
    let over = linerate_lab::find::RequestShare::of(&slices).value();
    let score = limit.score(&outcome);
    let full = full && unit == LoadUnit::Rate;
    let disturbed = is_disturbed(limit, &outcome);
    Ok((Looked { step, unit, score, over, full, server: cores, disturbed, outcome }, slices))
}

/// Whether what was late may be our own doing: sending threads had no core for much of the time, or
/// as many requests as may be over the limit were held up here for a good part of it.
fn is_disturbed(limit: &Limit, outcome: &Outcome) -> bool {
    let client = &outcome.client;
    if client.waited_share(outcome.duration) > AWAY {
        return true;
    }
    let part = Duration::from_secs_f64(limit.value / 1e6 * PART);
    let late = || client.lateness.percentile_ns(100.0 * (1.0 - limit.allowed / 2.0));
    let held_up = || client.disturbed >= part && client.waited_share(outcome.duration) >= limit.allowed / 2.0;
    limit.metric.is_latency()
        && (client.stood_still >= part || u128::from(late()) >= part.as_nanos() || held_up())
}

impl Looked {
    fn load(&self) -> String {
        load(self.unit, self.step.rate)
    }
}

/// `100 requests/s`, `100 connections`.
fn load(unit: LoadUnit, rate: f64) -> String {
    match unit {
        LoadUnit::Rate if rate == 1.0 => "1 request/s".to_owned(),
        LoadUnit::Rate => format!("{rate:.0} requests/s"),
        LoadUnit::Connections if rate == 1.0 => "1 connection".to_owned(),
        LoadUnit::Connections => format!("{rate:.0} connections"),
    }
}

/// A line of progress.
fn tell(quiet: bool, looked: &Looked) {
    if quiet {
        return;
    }
    let holds = if looked.score >= 0.0 { "holds" } else { "fails" };
    let disturbed = if looked.disturbed { "; this client was disturbed" } else { "" };
    let text = format!("{}: {holds}, {:.2} % over the limit{disturbed}", looked.load(), looked.over * 100.0);
    if stderr().is_terminal() {
        terminal::overwrite_line(&text);
    } else {
        let _ = writeln!(stderr(), "{text}");
    }
}

/// The process that listens at the target, where that is this machine.
fn listener(plan: &Plan) -> Option<i32> {
    let to = plan.target.addresses.first().filter(|to| to.ip().is_loopback())?;
    // A parent that hands the socket to its workers is older than they are.
    listening_processes(*to).into_iter().min().map(u32::cast_signed)
}

fn report(
    plan: &Plan,
    (check, unit): (&Check, LoadUnit),
    limit: &Limit,
    (looks, said): (&[Looked], &[Says]),
    end: Option<SearchEnd>,
    results: &Results,
) -> Result<Exit, CommandFault> {
    let found = found((check, unit), limit, (looks, said), end);
    let to_stderr = results.to_stderr();
    let style = terminal::style_beside(to_stderr);
    let mut text = find::to_string(&found, &plan.target.url, style);
    let knee = found.rate_rps.or(found.connections.map(f64::from)).or(found.holds_at).unwrap_or(0.0);
    let held = looks.iter().filter(|l| l.score >= 0.0 && l.step.rate <= knee * 1.01);
    let best = held.max_by(|a, b| a.step.rate.total_cmp(&b.step.rate)).or(looks.last());
    let mut failed = matches!(
        end,
        Some(SearchEnd::AlwaysFails(_) | SearchEnd::ClientLimit { .. } | SearchEnd::NotMeasured { .. })
    );
    let mut written = Ok(());
    if let Some(best) = best {
        let plan = planned_for(plan, best);
        let checks: Vec<CheckResult> = plan.checks.iter().map(|c| c.evaluate(&best.outcome)).collect();
        failed |= checks.iter().any(|c| !c.pass);
        let environment = environment::here();
        let report =
            Report { plan: &plan, outcome: &best.outcome, checks: &checks, environment: &environment };
        text += &format!(
            "\nThe look at {}:\n{}",
            best.load(),
            summary::to_string(&report, SummaryLength::Short, style)
        );
        let document = Document { find: Some(found.clone()), ..json::document(&report) };
        written = results.write(&document);
    }
    terminal::print_beside(&text, to_stderr)?;
    written?;
    Ok(match end {
        None => Exit::Interrupted,
        Some(_) if failed => Exit::CheckFailed,
        Some(_) => Exit::Fine,
    })
}

/// The plan as it was at a look, for its report.
fn planned_for(plan: &Plan, looked: &Looked) -> Plan {
    if looked.unit == LoadUnit::Connections {
        let stop = Stop { requests: None, duration: Some(whole_ms(looked.step.lasts)) };
        let connections = looked.step.rate as u32;
        return Plan { pace: Pace::Closed, stop, warm_up: looked.step.warm_up, connections, ..plan.clone() };
    }
    let rate = Rate::constant(looked.step.rate);
    let arrival = if let Pace::Open { arrival, .. } = &plan.pace { *arrival } else { Arrival::default() };
    let stop = Stop { requests: None, duration: Some(whole_ms(looked.step.lasts)) };
    Plan { pace: Pace::Open { rate, arrival }, stop, warm_up: looked.step.warm_up, ..plan.clone() }
}

fn found(
    (check, unit): (&Check, LoadUnit),
    limit: &Limit,
    (looks, said): (&[Looked], &[Says]),
    end: Option<SearchEnd>,
) -> Find {
    let points: Vec<FindPoint> = looks.iter().zip(said).map(|(l, says)| point(limit, l, *says)).collect();
    let (name, rate, interval, holds_at) = match end {
        Some(SearchEnd::Knee { rate, low, high }) => ("knee", Some(rate), Some([low, high]), Some(low)),
        Some(SearchEnd::AlwaysFails(_)) => ("always fails", None, None, None),
        Some(SearchEnd::NeverFails(rate)) => ("never fails", Some(rate), None, Some(rate)),
        Some(SearchEnd::ClientLimit { low }) => ("client limit", None, None, low),
        Some(SearchEnd::NotMeasured { low, .. }) => ("not measured", None, None, low),
        None => ("interrupted", None, None, None),
    };
    let (kind, why) = why(unit, limit, (looks, said), end.as_ref());
    let round = |rate: f64| (rate * 10.0).round() / 10.0;
    Find {
        expr: check.expr.clone(),
        end: name.to_owned(),
        by: if unit == LoadUnit::Rate { "rate" } else { "connections" }.to_owned(),
        connections: rate.filter(|_| unit == LoadUnit::Connections).map(|rate| rate as u32),
        interval_connections: interval
            .filter(|_| unit == LoadUnit::Connections)
            .map(|ends| ends.map(|end| end as u32)),
        rate_rps: rate.filter(|_| unit == LoadUnit::Rate).map(round),
        holds_at: holds_at.map(round),
        interval_rps: interval.filter(|_| unit == LoadUnit::Rate).map(|ends| ends.map(round)),
        limit: kind.map(str::to_owned),
        why,
        interrupted: end.is_none(),
        points,
    }
}

/// What gave way, and the same in words.
fn why(
    unit: LoadUnit,
    limit: &Limit,
    (looks, said): (&[Looked], &[Says]),
    end: Option<&SearchEnd>,
) -> (Option<&'static str>, String) {
    // The look that fails for certain at the lowest load, or else the last one that failed.
    let failed = || looks.iter().zip(said).filter(|(l, _)| l.score < 0.0 && !l.disturbed);
    let lowest = failed().filter(|(_, says)| **says == Says::Fails);
    let lowest = lowest.min_by(|(a, _), (b, _)| a.step.rate.total_cmp(&b.step.rate));
    let cause = lowest.or(failed().next_back()).map(|(l, _)| gave_way(limit, l, looks));
    let certain = |low: Option<f64>| match low {
        Some(low) => format!("It holds at {} for certain. ", load(unit, low)),
        None => String::new(),
    };
    match end {
        Some(SearchEnd::NeverFails(rate)) => (
            None,
            format!("It held at {}, more of which are not tried: nothing gave way.", load(unit, *rate)),
        ),
        Some(SearchEnd::ClientLimit { low }) => {
            let n = looks.iter().filter(|l| l.disturbed).count();
            let text = format!(
                "{}This client was the limit: during {n} of {} looks other work took its core, so what failed then says \
                 nothing of the server. A quieter machine, or one for the client alone, can tell.",
                certain(*low),
                looks.len()
            );
            (Some("client"), text)
        }
        Some(SearchEnd::NotMeasured { low, high }) => {
            let above =
                high.map_or(String::new(), |high| format!("It fails at {} for certain. ", load(unit, high)));
            let (kind, cause) =
                cause.map_or((None, String::new()), |(kind, why)| (Some(kind), format!(" {why}")));
            let n = looks.iter().filter(|l| l.disturbed).count();
            let disturbed = if n > 0 {
                format!(" During {n} of {} looks other work took this client's core.", looks.len())
            } else {
                String::new()
            };
            let text = format!(
                "{}{above}The time did not suffice to be certain of more.{cause}{disturbed}",
                certain(*low)
            );
            (kind, text)
        }
        Some(SearchEnd::AlwaysFails(_)) => {
            let begin = match unit {
                LoadUnit::Rate => "The check fails at the lowest rate already.",
                LoadUnit::Connections => "The check fails with one connection already.",
            };
            cause.map_or((None, begin.to_owned()), |(kind, why)| (Some(kind), format!("{begin} {why}")))
        }
        Some(SearchEnd::Knee { .. }) | None => cause.map_or_else(
            || (None, "No look failed, so nothing gave way yet.".to_owned()),
            |(kind, why)| (Some(kind), why),
        ),
    }
}

fn point(limit: &Limit, l: &Looked, says: Says) -> FindPoint {
    let (value, p50) = (limit.measured(&l.outcome), microseconds(&l.outcome, 50.0));
    let is_bound = |found: Option<(f64, bool)>| found.is_some_and(|(_, at_least)| at_least);
    let bounds = [("value", is_bound(value)), ("p50_us", is_bound(p50))];
    let answered = l.outcome.rate_rps();
    let (connections, rate) = match l.unit {
        LoadUnit::Rate => (None, l.step.rate),
        LoadUnit::Connections => (Some(l.step.rate as u32), answered),
    };
    FindPoint {
        connections,
        rate_rps: (rate * 10.0).round() / 10.0,
        lasted_s: l.outcome.duration.as_secs_f64(),
        value: value.map(|(value, _)| value),
        over: l.over,
        p50_us: p50.map(|(us, _)| us),
        at_least: bounds.iter().filter(|(_, is)| *is).map(|(key, _)| (*key).to_owned()).collect(),
        holds: match says {
            Says::Holds => Some(true),
            Says::Fails => Some(false),
            Says::Open | Says::Disturbed | Says::Outdated => None,
        },
        disturbed: says == Says::Disturbed,
        outdated: says == Says::Outdated,
    }
}

/// What gave way at a look that failed.
fn gave_way(limit: &Limit, l: &Looked, looks: &[Looked]) -> (&'static str, String) {
    let at = match l.unit {
        LoadUnit::Rate => format!("at {}", l.load()),
        LoadUnit::Connections => format!("with {}", l.load()),
    };
    let outcome = &l.outcome;
    let late_ms = outcome.client.lateness.percentile_ns(99.0) as f64 / 1e6;
    let errors = outcome.errors() - outcome.requests.unsent.min(outcome.errors());
    let share = errors as f64 / outcome.requests.due().max(1) as f64;
    if outcome.client.core_busy >= 0.95 || (late_ms >= 1.0 && outcome.client.core_busy >= BUSY) {
        let busy = outcome.client.core_busy * 100.0;
        return (
            "client",
            format!(
                "This client gave way: {at} its busiest core was used for {busy:.0} % (-t adds cores, -p depth)."
            ),
        );
    }
    if outcome.requests.answered == 0 {
        return ("errors", unanswered(outcome, &at));
    }
    if share > limit.allowed {
        let status = outcome.status.iter().filter(|(s, _)| **s >= 400).max_by_key(|(_, n)| **n);
        let status =
            status.map_or(String::new(), |(status, n)| format!(", {n} of them with status {status}"));
        return (
            "errors",
            format!(
                "Errors gave way: {at} {:.2} % of the requests failed or got a bad response{status}.",
                share * 100.0
            ),
        );
    }
    if let Some(line) = &outcome.line {
        let bytes = &outcome.window.bytes;
        let bits = outcome.per_second(bytes.received.max(bytes.sent)) * 8.0;
        if bits >= BUSY * line.bits_per_second as f64 {
            return ("link", format!("The link gave way: {at} {} was full.", line.interface));
        }
    }
    let cores = l.server.map_or(String::new(), |c| format!(" Its processes used {c:.2} cores."));
    // A server on whole cores: the next look up uses no more of them.
    let most = looks.iter().filter_map(|l| l.server).fold(0.0, f64::max);
    if l.server.is_some_and(|used| used >= BUSY * used.round().max(1.0) && used >= 0.95 * most) {
        let n = l.server.unwrap_or(1.0).round().max(1.0);
        return (
            "server",
            format!(
                "The server gave way: {at} its processes used {:.2} of {n:.0} cores.",
                l.server.unwrap_or(0.0)
            ),
        );
    }
    // The quickest that any look found it: what it needs without a queue.
    let quickest = looks.iter().filter(|l| l.outcome.requests.answered > 0).map(responds_in_ns);
    waited(limit, l, quickest.fold(f64::INFINITY, f64::min), &at, &cores)
}

/// Mean time from sent to a good response, nanoseconds.
fn responds_in_ns(l: &Looked) -> f64 {
    l.outcome.latency.from_sent.mean_ns()
}

/// What there is to say of a look without a single response: no queue is known that moved.
fn unanswered(outcome: &Outcome, at: &str) -> String {
    let requests = match outcome.requests.due() {
        1 => "the one request that was due had no response".to_owned(),
        due => format!("of {due} requests that were due none had a response"),
    };
    let shut = Duration::from_nanos(outcome.http.shut_ns);
    let why = if shut.is_zero() {
        String::new()
    } else {
        format!(", and the server admitted no stream for {:.1} s", shut.as_secs_f64())
    };
    format!("The server does not respond: {at} {requests}{why}.")
}

/// Nothing that was seen was full: where requests waited.
fn waited(limit: &Limit, l: &Looked, quickest_ns: f64, at: &str, cores: &str) -> (&'static str, String) {
    let outcome = &l.outcome;
    let sent = outcome.latency.from_sent.percentile_ns(99.0) as f64 / 1e3;
    // A server that responds as quickly as to a few requests has no queue: ours is the queue.
    let is_ours = match limit.metric.is_latency() {
        true => sent < limit.value,
        false => responds_in_ns(l) < AS_QUICK * quickest_ns,
    };
    if l.full && is_ours {
        return (
            "connections",
            format!(
                "Our connections gave way: {at} all of them waited for responses, and further requests for them (-c allows more)."
            ),
        );
    }
    let mean_s = outcome.latency.from_sent.mean_ns() / 1e9;
    if l.unit == LoadUnit::Rate
        && limit.metric.is_latency()
        && sent >= limit.value
        && l.step.rate * mean_s < ALONE
    {
        return (
            "server",
            format!(
                "The server is not quicker: {at} each request was alone, and took {} on average.",
                Metric::Mean.shown(mean_s * 1e6)
            ),
        );
    }
    let waits =
        limit.metric.is_latency().then_some("Requests waited in a queue of the server or in front of it");
    let text = waits.unwrap_or("The server gave way");
    (
        "queue",
        format!(
            "{text}: {at} they came faster than it answered, though no core that was seen was full.{cores}"
        ),
    )
}

#[cfg(test)]
mod tests;
