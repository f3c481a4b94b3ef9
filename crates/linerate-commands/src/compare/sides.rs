//! What the two sides are: a URL or a server to start, and the flags of each.

use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches};
use linerate_lab::comparison::{ComparedSide, Pair};
use linerate_lab::servers::Recipe;
use linerate_load::Plan;

use crate::args::{Cli, CompareArgs, LoadArgs};
use crate::fault::CommandFault;
use crate::load::plan;

/// Stands for the URL of a server that does not run yet.
const NOT_YET: &str = "http://127.0.0.1:1/";

/// Measured time of a run, where the flags do not say it.
const RUN: std::time::Duration = std::time::Duration::from_secs(2);
/// Time before it that does not count.
const WARM_UP: std::time::Duration = std::time::Duration::from_millis(500);

/// One side before anything runs.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) side: ComparedSide,
    /// As the user gave it.
    pub(super) given: String,
    /// Flags of this side alone, as the user gave them.
    pub(super) flags: String,
    /// The server to start; `None`: it runs already.
    pub(super) recipe: Option<Recipe>,
    args: LoadArgs,
    path: Option<String>,
}

/// Both sides, validated: nothing is started by that.
pub(super) fn of(args: &CompareArgs, typed: &[String]) -> Result<Pair<Planned>, CommandFault> {
    let Some(first) = args.load.url.clone() else {
        return Err(CommandFault::input("there is nothing to compare")
            .hint("write for example: linerate compare http://127.0.0.1:8080/ http://127.0.0.1:8081/"));
    };
    refused(&args.load)?;
    let same = args.other.is_none();
    if same && args.a == args.b {
        return Err(CommandFault::input("A and B are the same").hint(
            "name a second URL or server, or give the sides flags of their own: --a '-p 1' --b '-p 100'",
        ));
    }
    let second = args.other.clone().unwrap_or_else(|| first.clone());
    let a = planned(args, typed, ComparedSide::A, first, &args.a, args.a_url.as_ref())?;
    let mut b = planned(args, typed, ComparedSide::B, second, &args.b, args.b_url.as_ref())?;
    if same && a.recipe.is_some() {
        // One server, sent to in two ways.
        b.recipe = None;
    }
    Ok([a, b])
}

fn planned(
    args: &CompareArgs,
    typed: &[String],
    side: ComparedSide,
    given: String,
    flags: &str,
    url: Option<&String>,
) -> Result<Planned, CommandFault> {
    let name = side.name().to_ascii_lowercase();
    let recipe = match given.strip_prefix("cmd:") {
        Some(command) => {
            let recipe = Recipe::parse(command).map_err(|why| {
                CommandFault::input(format!("{}: {why}", side.name()))
                    .hint("write for example 'cmd:./server --port {port}'")
            })?;
            Some(Recipe { url: url.cloned(), patience: args.ready_within, ..recipe })
        }
        None if url.is_some() => {
            return Err(CommandFault::input(format!(
                "--{name}-url is for a server that is started: cmd:..."
            )));
        }
        None => None,
    };
    let mut load = merged(args, typed, &name, flags)?;
    load.url = None;
    if load.duration.is_none() && load.requests.is_none() && load.plan.is_none() && load.replay.is_none() {
        load.duration = Some(RUN);
    }
    load.warm_up = load.warm_up.or(Some(WARM_UP));
    let flags = flags.to_owned();
    let planned = Planned { side, given, flags, recipe, args: load, path: args.path.clone() };
    planned.plan(None)?;
    Ok(planned)
}

/// Flags that mean one run and its report.
fn refused(load: &LoadArgs) -> Result<(), CommandFault> {
    let of_one = [
        ("--dry-run", load.dry_run),
        ("--find", load.find.is_some()),
        ("--explain", load.explain),
        ("--save-responses", load.save_responses.is_some()),
        ("--metrics", load.metrics.is_some()),
        ("--capture", load.capture.is_some()),
        ("--summary", load.summary.is_some()),
        ("--csv", load.csv.is_some()),
        ("--csv-fine", load.csv_fine.is_some()),
        ("--log-requests", load.log_requests.is_some()),
        ("--watch", load.watch.is_some()),
        ("--otlp", load.otlp.is_some()),
        ("--open", load.open),
        ("--junit", load.junit.is_some()),
        ("--annotations", load.annotations.is_some()),
        ("--pid", load.pid.is_some()),
        ("--line", load.line.is_some()),
        ("--pcap-out", load.pcap_out.is_some()),
        ("--abort-on", !load.abort_on.is_empty()),
        ("--agents", load.machines.agents.is_some()),
        ("--agents-local", load.machines.agents_local.is_some()),
        ("--resume", load.machines.resume.is_some()),
        ("--nats", load.machines.bus.nats.is_some()),
    ];
    match of_one.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(CommandFault::input(format!("{flag} is about a single run"))
            .hint("leave it out here, and use it with linerate load")),
        None => Ok(()),
    }
}

/// The flags of both sides, and over them those of one side.
fn merged(args: &CompareArgs, typed: &[String], name: &str, flags: &str) -> Result<LoadArgs, CommandFault> {
    if flags.trim().is_empty() {
        return Ok((*args.load).clone());
    }
    let wrong = |why: &str| CommandFault::input(format!("--{name} {flags:?}: {why}"));
    let more = shell_words::split(flags).map_err(|_| wrong("a quote in it is not closed"))?;
    // By themselves first: a message about them names no flag that stands elsewhere.
    let alone = flags_of_load(&more)
        .map_err(|e| wrong(&first_line(&e)).hint("it holds flags of linerate load: --a '-p 100'"))?;
    if let Some(url) = &alone.url {
        return Err(wrong(&format!("{url} is no flag")).hint("URLs and servers are A and B themselves"));
    }
    refused(&alone)?;
    let all = typed.iter().take_while(|w| *w != "--").cloned();
    let rest = typed.iter().skip_while(|w| *w != "--").cloned();
    let all: Vec<String> = all.chain(more).chain(rest).collect();
    let command = Cli::command().mut_subcommand("compare", |c| c.args_override_self(true));
    let matches = command.try_get_matches_from(all).map_err(|e| wrong(&first_line(&e)))?;
    let of_compare = matches.subcommand_matches("compare").ok_or_else(|| wrong("it cannot be read"))?;
    read(of_compare).map_err(|e| wrong(&first_line(&e)))
}

/// Flags of `load` that stand alone.
pub(crate) fn flags_of_load(words: &[String]) -> Result<LoadArgs, clap::Error> {
    let command = LoadArgs::augment_args(Command::new("load").no_binary_name(true).disable_help_flag(true));
    command.try_get_matches_from(words).and_then(|m| LoadArgs::from_arg_matches(&m))
}

fn read(matches: &ArgMatches) -> Result<LoadArgs, clap::Error> {
    CompareArgs::from_arg_matches(matches).map(|args| *args.load)
}

/// The sentence of clap's message.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

impl Planned {
    /// The plan towards a server that runs now at `url`; without one, as far as it is known before.
    pub(super) fn plan(&self, url: Option<&str>) -> Result<Plan, CommandFault> {
        let is_started = self.given.starts_with("cmd:");
        let url = match (url, is_started) {
            (Some(url), _) => self.with_path(url),
            (None, true) => self.with_path(NOT_YET),
            (None, false) => self.given.clone(),
        };
        let args = LoadArgs { url: Some(url), ..self.args.clone() };
        let meaning = plan::of(&args)?;
        Ok(meaning.plan)
    }

    fn with_path(&self, url: &str) -> String {
        let Some(path) = &self.path else { return url.to_owned() };
        let origin_ends = url.find("://").map_or(0, |at| at + 3);
        let end = url[origin_ends..].find('/').map_or(url.len(), |at| origin_ends + at);
        let slash = if path.starts_with('/') { "" } else { "/" };
        format!("{}{slash}{path}", &url[..end])
    }
}
