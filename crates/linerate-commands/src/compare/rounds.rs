//! The rounds: servers are started, both sides run in turns, and whatever happens the rounds that
//! were measured are handed back.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use linerate_lab::comparison::{ComparedSide, MetricVerdict, Pair, Rounds, order};
use linerate_lab::figures::{RunFigures, ServerUse};
use linerate_lab::servers::{LabServer, Member, Recipe, ServerTrouble, pin_this_thread, resident};
use linerate_load::Plan;
use linerate_net::machine;
use linerate_report::summary;

use super::sides::Planned;
use crate::args::CompareArgs;
use crate::fault::CommandFault;
use crate::load::Interrupt;
use crate::terminal;

/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(50);

/// The measured rounds, and how the comparison ended.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) rounds: Rounds,
    pub(super) targets: Pair<String>,
    pub(super) sending: Pair<String>,
    pub(super) server_cores: Vec<usize>,
    pub(super) run: Duration,
    pub(super) warm_up: Duration,
    pub(super) io: String,
    pub(super) warnings: Vec<String>,
    pub(super) interrupted: bool,
    pub(super) broken: Option<String>,
}

/// Starts what is to be started, and runs all rounds.
pub(super) fn measure(
    args: &CompareArgs,
    planned: &Pair<Planned>,
    interrupt: &Interrupt,
) -> Result<Measured, CommandFault> {
    let mut measured = Measured::default();
    let cores = places(args, planned, &mut measured);
    let mut servers: Pair<Option<LabServer>> = [None, None];
    for (planned, server) in planned.iter().zip(&mut servers) {
        let Some(recipe) = &planned.recipe else { continue };
        match (Recipe { cores: cores.clone(), ..recipe.clone() }).start(&|| interrupt.asked()) {
            Ok(started) => *server = Some(started),
            Err(ServerTrouble::Interrupted) => measured.interrupted = true,
            Err(trouble) => return Err(not_started(planned, &trouble)),
        }
    }
    if measured.interrupted {
        return Ok(measured);
    }
    let url = |i: usize| {
        // Where both sides are one server, it is A's.
        let of_both = (planned[0].given == planned[1].given).then_some(0);
        servers[i].as_ref().or(of_both.and_then(|i: usize| servers[i].as_ref())).map(|s| s.url().to_owned())
    };
    let urls = [url(0), url(1)];
    let plans = [planned[0].plan(urls[0].as_deref())?, planned[1].plan(urls[1].as_deref())?];
    measured.targets = [plans[0].target.url.clone(), plans[1].target.url.clone()];
    measured.run = plans[0].stop.duration.unwrap_or_default();
    measured.warm_up = plans[0].warm_up;
    let mut progress = Progress::new(args);
    for round in 0..args.rounds {
        let done = one_round(round, &plans, &mut servers, &mut measured, interrupt, &mut progress)?;
        if !done {
            break;
        }
        progress.round(round, &measured.rounds);
        if let Some(why) = hopeless(&measured.rounds) {
            measured.broken = Some(why);
            break;
        }
    }
    progress.clear();
    Ok(measured)
}

fn not_started(planned: &Planned, trouble: &ServerTrouble) -> CommandFault {
    let message = format!("{} ({}): {trouble}", planned.side.name(), planned.given);
    match trouble {
        ServerTrouble::Start { .. } => {
            CommandFault::input(message).hint("name a program that exists: cmd:./server --port {port}")
        }
        ServerTrouble::NoUrl { .. } => CommandFault::unreachable(message).hint(format!(
            "say where it answers: {{port}} among its arguments, or --{}-url http://127.0.0.1:8080/",
            planned.side.name().to_ascii_lowercase()
        )),
        ServerTrouble::NotReady { .. } => {
            CommandFault::unreachable(message).hint("give it more time: --ready-within 1m")
        }
        _ => CommandFault::unreachable(message),
    }
}

/// Gives servers that are started the first half of the cores, and the client the others.
fn places(args: &CompareArgs, planned: &Pair<Planned>, measured: &mut Measured) -> Vec<usize> {
    let starts = planned.iter().any(|p| p.recipe.is_some());
    let cores = machine::allowed_cores();
    if !starts || args.no_pin {
        return Vec::new();
    }
    if cores.len() < 2 {
        measured.warnings.push("servers and client share one core: every figure is of both".to_owned());
        return Vec::new();
    }
    let (servers, client) = cores.split_at(cores.len() / 2);
    match pin_this_thread(client) {
        Ok(()) => {
            measured.server_cores = servers.to_vec();
            servers.to_vec()
        }
        Err(why) => {
            measured.warnings.push(format!("servers and client were not given cores of their own: {why}"));
            Vec::new()
        }
    }
}

/// Why more rounds would tell nothing, after the first ones. One run without a response may be this
/// machine's fault; two are not.
fn hopeless(rounds: &Rounds) -> Option<String> {
    let (first, last) = (rounds.pairs.first()?, rounds.pairs.last()?);
    let bad = |side: ComparedSide| {
        let (run, name) = (&last[side.index()], side.name());
        let silent = |run: &RunFigures| run.answered == 0;
        if let Some(fault) = &run.fault {
            let again = rounds.pairs.len() > 1 && silent(&first[side.index()]);
            return (again || run.unreachable).then(|| format!("{name}: {fault}"));
        }
        let status = run.statuses().first().map_or(String::new(), |s| format!(" (status {s})"));
        run.is_all_bad().then(|| format!("{name}: not one response was good{status}"))
    };
    [ComparedSide::A, ComparedSide::B].into_iter().filter(|_| rounds.pairs.len() < 3).find_map(bad)
}

/// Runs both sides once; `false` when it could not.
fn one_round(
    round: u32,
    plans: &Pair<Plan>,
    servers: &mut Pair<Option<LabServer>>,
    measured: &mut Measured,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<bool, CommandFault> {
    let mut pair: Pair<Option<RunFigures>> = [None, None];
    for side in order(round) {
        let i = side.index();
        if let Some(why) = servers[i].as_mut().and_then(LabServer::ended) {
            measured.broken = Some(format!("{}: {why}", side.name()));
            return Ok(false);
        }
        let one = one_run(&plans[i], servers[i].as_ref(), interrupt, &mut |at, of| {
            progress.run(round, side, at, of)
        });
        let one = match one {
            Ok(one) => one,
            Err(fault) if round == 0 => return Err(fault),
            Err(fault) => {
                measured.broken = Some(fault.to_string().trim_start_matches("error: ").to_owned());
                return Ok(false);
            }
        };
        let Some((run, how)) = one else {
            measured.interrupted = true;
            return Ok(false);
        };
        measured.io.clone_from(&how.io);
        measured.sending[i] = how.words;
        // A run of a server that ended meanwhile says nothing about it.
        if let Some(why) = servers[i].as_mut().and_then(LabServer::ended) {
            measured.broken = Some(format!("{}: {why}", side.name()));
            return Ok(false);
        }
        pair[i] = Some(run);
    }
    if let [Some(a), Some(b)] = pair {
        measured.rounds.push([a, b]);
    }
    Ok(true)
}

/// How a run was sent.
pub(crate) struct How {
    pub(crate) words: String,
    pub(crate) io: String,
}

/// One run of one side; `None`: the user asked to stop.
pub(crate) fn one_run(
    plan: &Plan,
    server: Option<&LabServer>,
    interrupt: &Interrupt,
    tell: &mut dyn FnMut(Duration, Duration),
) -> Result<Option<(RunFigures, How)>, CommandFault> {
    let running = linerate_load::start(plan.clone())?;
    let measures_from = running.measures_from();
    let whole = plan.warm_up + plan.stop.duration.unwrap_or_default();
    let begun = Instant::now();
    let mut before = None;
    let mut measures = false;
    let mut members: Vec<Member> = Vec::new();
    let mut peak = 0;
    let mut stopped = false;
    let mut nap = Duration::from_millis(1);
    while !running.finished() {
        if interrupt.asked() && !stopped {
            stopped = true;
            running.stop();
        }
        let until = measures_from.duration_since(SystemTime::now()).unwrap_or_default();
        if !measures && until.is_zero() {
            measures = true;
            before = server.map(LabServer::usage);
            members = server.map(LabServer::members).unwrap_or_default();
        }
        peak = peak.max(resident(&members));
        tell(begun.elapsed(), whole);
        nap = (nap * 2).min(LOOK);
        thread::sleep(if measures { nap } else { nap.min(until) });
    }
    let used = server.zip(before).map(|(server, before)| ServerUse::between(&before, &server.usage(), peak));
    let outcome = running.join();
    if stopped {
        return Ok(None);
    }
    let how = How { words: summary::done(plan, &outcome), io: outcome.io.clone() };
    Ok(Some((RunFigures::of(plan, &outcome, used.as_ref()), how)))
}

/// Progress of the rounds, on standard error.
struct Progress {
    rounds: u32,
    quiet: bool,
    redraws: bool,
    shown: Instant,
    so_far: String,
}

impl Progress {
    fn new(args: &CompareArgs) -> Progress {
        let redraws = io::stderr().is_terminal() && terminal::can_redraw();
        Progress {
            rounds: args.rounds,
            quiet: args.load.quiet,
            redraws,
            shown: Instant::now(),
            so_far: String::new(),
        }
    }

    fn draw(&mut self, text: &str) {
        terminal::overwrite_line(text);
    }

    /// During a run.
    fn run(&mut self, round: u32, side: ComparedSide, at: Duration, of: Duration) {
        if self.quiet || !self.redraws || self.shown.elapsed() < Duration::from_millis(200) {
            return;
        }
        self.shown = Instant::now();
        let time = if of.is_zero() {
            format!("{:.1} s", at.as_secs_f64())
        } else {
            format!("{:.1} of {:.1} s", at.as_secs_f64().min(of.as_secs_f64()), of.as_secs_f64())
        };
        let text = format!("round {} of {}  {}  {time}{}", round + 1, self.rounds, side.name(), self.so_far);
        self.draw(&text);
    }

    /// After a round.
    fn round(&mut self, round: u32, rounds: &Rounds) {
        let verdicts = rounds.verdicts();
        let shown =
            ["rate_rps", "p99_us"].into_iter().filter_map(|id| verdicts.iter().find(|c| c.metric.id == id));
        let parts: Vec<String> = shown
            .filter_map(|c| {
                let interval =
                    c.ci95.map_or(String::new(), |(low, high)| format!(" ({low:.3} to {high:.3})"));
                let better = match c.verdict {
                    MetricVerdict::Better(side) => format!(", {} better", side.name()),
                    MetricVerdict::NoDifference
                    | MetricVerdict::TooFewRounds
                    | MetricVerdict::NotMeasured => String::new(),
                };
                Some(format!("{} B/A {:.3}{interval}{better}", c.metric.short, c.ratio?))
            })
            .collect();
        self.so_far =
            if parts.is_empty() { String::new() } else { format!("  so far: {}", parts.join("; ")) };
        if !self.quiet && !self.redraws {
            let _ = writeln!(io::stderr(), "round {} of {}{}", round + 1, self.rounds, self.so_far);
        }
    }

    fn clear(&mut self) {
        if !self.quiet && self.redraws {
            terminal::overwrite_line("");
        }
    }
}
