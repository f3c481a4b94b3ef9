//! `linerate agent`: carries out its share of runs that a coordinator writes on NATS.

use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use linerate_load::plan::units::{parse_duration, parse_scaled};
use linerate_machines::agent::{self, AgentEvent, AgentOptions, Replayed};
use linerate_machines::allow::AllowList;
use linerate_machines::signing::{SigningKey, TrustedKey};
use linerate_machines::{BusError, BusOptions};
use tokio::sync::watch;

use crate::args::machines::BusFlags;
use crate::fault::{CommandFault, Exit};
use crate::load::Interrupt;

/// How often the signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Send a share of loads that linerate load --agents starts on many machines
///
/// The agent waits on NATS for runs. It sends only to targets that --allow-target lists, by default to this machine
/// alone. What it measures is published each second and kept in a spool file until the broker has it.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "Examples:\n  linerate agent --nats tls://nats.example.com --creds agent.creds --labels region=eu --allow-target shop.example.com\n  linerate load --nats tls://nats.example.com --creds load.creds --agents region=eu -c 1000 --rate 100k -d 1m https://shop.example.com/\n  linerate agent replay --nats nats://127.0.0.1 linerate-RUN-NAME.jsonl"
)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,

    #[command(flatten)]
    bus: BusFlags,

    /// Its name, unique among all agents [default: the host's name]
    #[arg(long, value_name = "ID")]
    name: Option<String>,

    /// Labels by which a load can choose agents
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    labels: Vec<String>,

    /// What this agent may load: hosts, HOST:PORT, addresses, networks such as 10.0.0.0/8, or * for all [default: this machine]
    #[arg(long, value_name = "LIST", value_parser = allowed)]
    allow_target: Option<AllowList>,

    /// Refuse runs that none of these public NKEYs has signed (see linerate load --sign-key)
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = TrustedKey::parse)]
    trust_key: Vec<TrustedKey>,

    /// Most requests/s that this agent sends: open loops of more are refused, closed loops are held back
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_rate: Option<f64>,

    /// Refuse runs that last longer
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_duration: Option<Duration>,

    /// Folder for spool files
    #[arg(long, value_name = "DIR", default_value = ".")]
    spool: PathBuf,

    /// End after one run
    #[arg(long)]
    once: bool,

    /// Keep trying to reach NATS for this long at the start [default: try once]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
}

/// What else an agent can do.
#[derive(Clone, Debug, Subcommand)]
enum AgentCommand {
    /// Make an NKEY: write its seed to a file and print its public key
    ///
    /// The seed identifies a user to NATS (--nkey) or signs runs (--sign-key). The public key goes into nats-server's
    /// configuration, and to --trust-key.
    NewKey {
        /// Where the seed goes; an existing file is kept
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Publish what a spool file holds: fills the gaps of a run whose broker was lost
    Replay {
        #[command(flatten)]
        bus: BusFlags,

        /// The file that the agent wrote
        #[arg(value_name = "SPOOL")]
        file: PathBuf,
    },
}

fn allowed(text: &str) -> Result<AllowList, String> {
    AllowList::parse(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("an agent that allows no time can take no run".to_owned()),
        time => Ok(time),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match parse_scaled(text) {
        Some(rate) if rate > 0.0 => Ok(rate),
        _ => Err("requests/s, for example 5000 or 10k".to_owned()),
    }
}

/// Runs the command.
pub(crate) fn run(args: &AgentArgs) -> Result<Exit, CommandFault> {
    if let Some(AgentCommand::NewKey { file }) = &args.command {
        return new_key(file);
    }
    if let Some(AgentCommand::Replay { bus, file }) = &args.command {
        let replayed = block_on(agent::replay(&bus_options(bus)?, file))?.map_err(fault_of)?;
        let Replayed { published, torn, too_long } = replayed;
        let torn = if torn > 0 { format!("; {torn} torn lines were left out") } else { String::new() };
        crate::terminal::print(&format!("{published} messages published{torn}\n"))?;
        if too_long > 0 {
            let what =
                format!("{}: {too_long} messages are longer than this NATS server takes", file.display());
            return Err(
                CommandFault::ours(what).hint("raise max_payload in its configuration, and replay again")
            );
        }
        return Ok(Exit::Fine);
    }
    let options = options(args)?;
    if options.trusted.is_empty() && options.allowed.is_wide() {
        let _ = writeln!(
            std::io::stderr(),
            "warning: agent {} may load many machines, and every user of the bus that may start runs can use it: \
             --trust-key names those who may",
            options.name
        );
    }
    let interrupt = Interrupt::listen()?;
    let name = options.name.clone();
    let stop = watch::Sender::new(false);
    let served = agent::serve(options, stop.subscribe(), move |event| say(&name, &event));
    let served = interruptible(&interrupt, &stop, served)?;
    served.map_err(fault_of)?;
    Ok(if interrupt.asked() { Exit::Interrupted } else { Exit::Fine })
}

/// Writes a new seed, which its owner alone can read, and prints the public key.
fn new_key(file: &Path) -> Result<Exit, CommandFault> {
    let (seed, public) = SigningKey::new_seed().map_err(fault_of)?;
    let mut options = OpenOptions::new();
    let written = options.write(true).create_new(true).mode(0o600).open(file);
    written.and_then(|mut file| file.write_all(format!("{seed}\n").as_bytes())).map_err(|e| {
        CommandFault::input(format!("{}: {e}", file.display())).hint("name a file that does not exist yet")
    })?;
    crate::terminal::print(&format!("{public}\n")).map(|()| Exit::Fine)
}

fn options(args: &AgentArgs) -> Result<AgentOptions, CommandFault> {
    let is_label =
        |label: &str| label.split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty());
    let wrong = args.labels.iter().find(|label| !is_label(label));
    if let Some(label) = wrong {
        return Err(CommandFault::input(format!("--labels {label}: a label is KEY=VALUE"))
            .hint("for example region=eu"));
    }
    if !args.spool.is_dir() {
        return Err(CommandFault::input(format!(
            "--spool {}: there is no such folder",
            args.spool.display()
        )));
    }
    Ok(AgentOptions {
        bus: bus_options(&args.bus)?,
        name: args.name.clone().unwrap_or_else(host_name),
        labels: args.labels.clone(),
        allowed: args.allow_target.clone().unwrap_or_else(AllowList::loopback),
        trusted: args.trust_key.clone(),
        max_rate: args.max_rate,
        max_duration: args.max_duration,
        spool: args.spool.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        runs: args.once.then_some(1),
        wait: args.wait.unwrap_or_default(),
    })
}

/// The host's name, as far as it can be an agent's name.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let name: String = name.trim().chars().take(64).map(fits).collect();
    if name.is_empty() { "agent".to_owned() } else { name }
}

/// The way to NATS that the flags name.
pub(crate) fn bus_options(flags: &BusFlags) -> Result<BusOptions, CommandFault> {
    let Some(url) = flags.nats.clone() else {
        return Err(CommandFault::input("--nats is missing").hint("for example --nats nats://127.0.0.1:4222"));
    };
    Ok(BusOptions {
        url,
        credentials: flags.creds.clone(),
        nkey: flags.nkey.clone(),
        ca: flags.nats_ca.clone(),
        certificate: flags.nats_cert.clone().zip(flags.nats_key.clone()),
    })
}

/// Runs something on a small runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, CommandFault> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| CommandFault::ours(format!("a runtime could not be started: {e}")))?;
    Ok(runtime.block_on(future))
}

/// Runs something to its end; `stop` becomes true when the user interrupts.
pub(crate) fn interruptible<T>(
    interrupt: &Interrupt,
    stop: &watch::Sender<bool>,
    work: impl Future<Output = T>,
) -> Result<T, CommandFault> {
    block_on(async {
        tokio::pin!(work);
        loop {
            match tokio::time::timeout(LOOK, &mut work).await {
                Ok(done) => return done,
                Err(_) if interrupt.asked() => drop(stop.send_replace(true)),
                Err(_) => {}
            }
        }
    })
}

pub(crate) fn fault_of(error: BusError) -> CommandFault {
    let fault = if error.is_input { CommandFault::input(error.what) } else { CommandFault::ours(error.what) };
    match error.hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

fn say(name: &str, event: &AgentEvent) {
    let text = match event {
        AgentEvent::Unreached { why } => format!("tries again: {why}"),
        AgentEvent::Waiting => "waits for runs".to_owned(),
        AgentEvent::Refused { run, why } => format!("does not take part in run {run}: {why}"),
        AgentEvent::Started { run, url } => format!("run {run} begins: {url}"),
        AgentEvent::Ended { run } => format!("run {run} has ended, its results are published"),
        AgentEvent::Unpublished { run, spool, why } => format!(
            "run {run} has ended, its results are not all published: {why}\n  hint: linerate agent replay --nats URL {}",
            spool.display()
        ),
        AgentEvent::NoSpool { why } => format!("keeps results in memory alone: {why}"),
    };
    let _ = writeln!(std::io::stderr(), "agent {name} {text}");
}
