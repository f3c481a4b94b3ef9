//! `bench flows`: flows of plan files and a k6 script by linerate, in turns with k6 and Locust, each on one core.

mod program;
mod scenario;
mod window;

use anyhow::{Result, bail, ensure};

use super::alone::AloneFinding;
use super::figures::of_program;
use super::round::{ProgramCost, ProgramRun, line, measured};
use super::scenario::Figure;
use super::server::{BenchServer, ServerCounts};
use super::table::{TablePage, as_table, thousands};
use super::{
    CommonBenchOptions, Tools, alone_on_this_machine, build_with, chosen, circumstances, elsewhere, typed,
};
use program::{FlowProgram, JourneyRun};
use scenario::{JourneyScenario, JourneyTask, SCENARIOS, SCRIPT};
use window::RunWindow;
use xtask::shell;

/// Beyond the planned time a program gets this long to start its users and to end, seconds.
const GRACE_S: f64 = 40.0;

/// Ours have nothing to warm up: no compiler works while they run.
const OUR_WARM_UP_S: f64 = 1.0;

/// A run goes on for longer than what is measured of it, seconds.
const BEYOND_S: f64 = 0.5;

/// How long users think, and when their memory is looked at, seconds after the first request.
const THINKING_S: f64 = 6.0;
const LOOK: RunWindow = RunWindow { from_s: 3.5, to_s: 5.7 };

/// Requests of a user that thinks then.
const BEFORE_THINKING: u64 = 2;

/// What is wanted of script users with a runtime each: so many in so much memory.
const SCRIPT_USERS: f64 = 20_000.0;
const SCRIPT_USERS_GB: f64 = 4.5;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FlowBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
    /// Programs to compare with, of those installed (k6, locust, or none).
    #[arg(long, value_delimiter = ',', default_value = "k6,locust")]
    peers: Vec<String>,
    /// Seconds that the peers run before they are measured (linerate: at most 1).
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    warm_up: f64,
    /// The profile of Cargo.toml to build linerate with; anything but release is a rehearsal.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Measures; `false` when a figure was missed.
pub(crate) fn run(options: &FlowBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<12} {}", s.name, s.what));
        return Ok(true);
    }
    ensure!(options.warm_up >= 0.0 && options.warm_up <= 600.0, "--warm-up takes 0 to 600 seconds");
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(|| build_with(&options.profile, &["linerate-cli", "linerate-bench-raw"]))?
    {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::built(&options.profile, common, "", false)?;
    let mut page = TablePage::new(head(options, &tools));
    let programs = programs(options, &mut page)?;
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        match s.task {
            JourneyTask::Steps { users } => steps(&tools, options, s, users, &programs, &mut page),
            JourneyTask::Thinking { few, many } => thinking(&tools, s, [few, many], &programs, &mut page),
        }
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

/// The command, the machine and what is not in the tables.
fn head(o: &FlowBenchOptions, t: &Tools) -> String {
    let profile = if o.profile == "release" { String::new() } else { format!(" --profile {}", o.profile) };
    format!(
        "`cargo xtask bench flows {} --peers {} --warm-up {}{profile}`\n\n{}\n\
         Requests per core: requests by the server's count in the time that is measured, for each second of the program's \
         CPU in it (user and system). It begins {} s after the first request of a peer and {} s after the first of \
         linerate. Each program runs on one core (GOMAXPROCS=1).",
        typed(&o.common),
        o.peers.join(","),
        o.warm_up,
        circumstances(t),
        o.warm_up,
        o.warm_up.min(OUR_WARM_UP_S)
    )
}

/// Ours, and the peers that are wanted and installed.
fn programs(o: &FlowBenchOptions, page: &mut TablePage) -> Result<Vec<FlowProgram>> {
    let known = FlowProgram::ALL.map(FlowProgram::peer);
    if let Some(name) = o.peers.iter().find(|name| *name != "none" && !known.contains(&Some(name))) {
        bail!("unknown peer {name}: k6, locust, none");
    }
    let mut all = Vec::new();
    for program in FlowProgram::ALL {
        match program.peer() {
            Some(name) if !o.peers.iter().any(|peer| peer == name) => {}
            Some(name) if shell::find(name).is_none() => {
                println!("  {name} is not installed: left out");
                page.add_doubt(format!("{name} is not installed: left out"));
            }
            _ => all.push(program),
        }
    }
    Ok(all)
}

/// Five steps, again and again.
fn steps(
    t: &Tools,
    o: &FlowBenchOptions,
    s: &JourneyScenario,
    users: u32,
    programs: &[FlowProgram],
    page: &mut TablePage,
) {
    let one = |program: FlowProgram, round| {
        let warm_up = if program.peer().is_some() { o.warm_up } else { o.warm_up.min(OUR_WARM_UP_S) };
        let window = RunWindow { from_s: warm_up, to_s: warm_up + t.seconds };
        let run = JourneyRun { users, seconds: window.to_s + BEYOND_S, thinking: false };
        let (run, cost, seen) = against(t, program, &run, round)?;
        let (requests, cpu_s) = window.work(&cost, &seen)?;
        let (rate, client_busy) = (requests / t.seconds, cpu_s / t.seconds);
        anyhow::Ok(ProgramRun { rate, client_busy, cpu_us: cpu_s * 1e6 / requests, ..run })
    };
    let runs = in_turns(t, programs, one, line);
    let row = |program: &FlowProgram| {
        let figure = |figure| of_program(&runs, program.name(), figure);
        let cell = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), thousands);
        let cpu = figure(Figure::Cpu).map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.2}"));
        format!(
            "| {} | {} | {} | {cpu} |",
            program.name(),
            cell(figure(Figure::PerCore)),
            cell(figure(Figure::Rate))
        )
    };
    let head = format!("| {} | requests per core and second | requests/s | CPU us per request |", s.what);
    page.add_block(as_table(&head, &programs.iter().map(row).collect::<Vec<_>>()));
    page.add_compared(s.name, s.what, s.wants, &runs);
}

/// Memory of users that think: what a run with many has more than one with few.
fn thinking(t: &Tools, s: &JourneyScenario, users: [u32; 2], programs: &[FlowProgram], page: &mut TablePage) {
    let programs: Vec<FlowProgram> = programs.iter().copied().filter(|program| program.can(true)).collect();
    let [few, many] = users;
    let mut open = Vec::new();
    let one = |program: FlowProgram, round| {
        let mut memory_kb = [0.0; 2];
        let mut last = ProgramRun::failed(program.name(), round, String::new());
        for (users, memory_kb) in users.into_iter().zip(&mut memory_kb) {
            let run = JourneyRun { users, seconds: THINKING_S, thinking: true };
            let (run, cost, seen) = against(t, program, &run, round)?;
            let all = u64::from(users) * BEFORE_THINKING;
            ensure!(seen.requests == Some(all), "{:?} requests of {users} users, not {all}", seen.requests);
            let quiet_s = seen.last_us.saturating_sub(seen.first_us) as f64 / 1e6;
            ensure!(
                quiet_s < LOOK.from_s,
                "the last of {users} users began to think only after {quiet_s:.1} s"
            );
            *memory_kb = LOOK.memory_kb(&cost, &seen)?;
            last = ProgramRun { waited: last.waited.max(run.waited), ..run };
            open.push((program, seen.connections));
        }
        let user_kb = (memory_kb[1] - memory_kb[0]) / f64::from(many - few);
        anyhow::Ok(ProgramRun { user_kb: Some(user_kb), ..last })
    };
    let told = |run: &ProgramRun| match (&run.fault, run.user_kb) {
        (None, Some(kb)) => format!("round {} {:<22} {kb:>8.2} kB per user", run.round + 1, run.program),
        _ => line(run),
    };
    let runs = in_turns(t, &programs, one, told);
    let row = |program: &FlowProgram| {
        let kb = of_program(&runs, program.name(), Figure::Memory);
        let kb = kb.map_or_else(|| "-".to_owned(), |kb| format!("{kb:.2}"));
        let open = open.iter().filter(|(of, _)| of == program).map(|(_, connections)| *connections).max();
        format!(
            "| {} | {kb} | {} |",
            program.name(),
            open.map_or_else(|| "-".to_owned(), |n| thousands(n as f64))
        )
    };
    let head = format!(
        "| {} | kB of resident memory each ({} users less {few}) | connections of {} users |",
        s.what,
        thousands(many.into()),
        thousands(many.into())
    );
    let own = "A user of `linerate k6 run` has a JavaScript runtime of its own, so its target is that of users with their \
               own runtime. Its connections belong to all users of a thread.";
    page.add_block(format!("{}\n{own}\n", as_table(&head, &programs.iter().map(row).collect::<Vec<_>>())));
    page.add_compared(s.name, s.what, s.wants, &runs);
    if let Some(kb) = of_program(&runs, SCRIPT, Figure::Memory) {
        let gb = kb * 1024.0 * SCRIPT_USERS / 1e9;
        let what = format!("memory of {} script users, from that of one", thousands(SCRIPT_USERS));
        let wanted = format!("at most {SCRIPT_USERS_GB} GB");
        page.add_alone(
            s.name,
            s.what,
            vec![AloneFinding::new(&what, wanted, format!("{gb:.2} GB"), gb <= SCRIPT_USERS_GB)],
        );
    }
}

/// Paired rounds in rotating order.
fn in_turns(
    t: &Tools,
    programs: &[FlowProgram],
    mut one: impl FnMut(FlowProgram, usize) -> Result<ProgramRun>,
    told: impl Fn(&ProgramRun) -> String,
) -> Vec<ProgramRun> {
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..programs.len() {
            let program = programs[(i + round) % programs.len()];
            let run = one(program, round);
            let run = run.unwrap_or_else(|e| ProgramRun::failed(program.name(), round, format!("{e:#}")));
            println!("  {}", told(&run));
            runs.push(run);
        }
    }
    runs
}

/// One run against a fresh server. It counts only if both sides agree on the requests.
fn against(
    t: &Tools,
    program: FlowProgram,
    run: &JourneyRun,
    round: usize,
) -> Result<(ProgramRun, ProgramCost, ServerCounts)> {
    let dir = tempfile::tempdir()?;
    let response = if run.thinking { "memory-response.txt" } else { "response.txt" };
    let response = shell::root().join("bench/journey").join(response).display().to_string();
    let server = BenchServer::bare(t, dir.path(), &["--response", &response])?;
    let command = program.command(t, run, server.address(), dir.path())?;
    let done = measured(t, &command, run.seconds + GRACE_S, dir.path());
    let seen = server.end()?;
    let (out, cost) = done?;
    let said = program.said(&out, dir.path())?;
    let (answered, counted) = (said.answered, seen.requests.unwrap_or(0));
    // What was in flight at the end, a request of each user.
    let most = answered + said.slack + u64::from(run.users);
    ensure!((answered..=most).contains(&counted), "says {answered} answered, the server counted {counted}");
    Ok((ProgramRun::of_client(program.name(), round, &said, &cost, &seen), cost, seen))
}
