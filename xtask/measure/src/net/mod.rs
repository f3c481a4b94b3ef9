//! `net`: programs in a network of one's own, between two namespaces, with delay, loss, rate, MTU and targeted drops.

mod measure;
mod values;

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use linerate_netbox::values::{bytes, probability, rate, time};
use linerate_netbox::{Conditions, LinkDirection, NamespaceProcess, NetBox, NetboxBuilder, NetboxReport};
use signal_hook::consts::SIGINT;
use values::{Sided, reorder, rule, sided};

use xtask::shell;

/// Set in the first process of its own PID namespace.
const INSIDE: &str = "LINERATE_NET_INSIDE";
/// How long a server may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What `net` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum NetCommand {
    /// Runs a command in the client's namespace, a server in the other one, and takes both down again.
    ///
    /// Both see their addresses in $CLIENT, $SERVER, $CLIENT6 and $SERVER6. Example:
    /// cargo xtask net run --delay 20ms --loss 1% --server 'linerate serve --listen $SERVER:80' -- curl http://10.99.2.1/
    Run(Box<NetRunOptions>),
    /// Measures the box itself: how exact its delay is, how much goes through.
    Measure(measure::NetMeasureOptions),
}

/// What `net run` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct NetRunOptions {
    #[command(flatten)]
    conditions: NetImpairments,
    /// A command line (for sh) that runs in the server's namespace until the other one has ended.
    #[arg(long, value_name = "CMD")]
    server: Option<String>,
    /// Start when this TCP port of the server listens (default: any).
    #[arg(long, value_name = "PORT", requires = "server")]
    ready: Option<u16>,
    /// Don't wait for the server to listen.
    #[arg(long, conflicts_with = "ready")]
    no_wait: bool,
    /// Say at the end what the box did.
    #[arg(long)]
    stats: bool,
    /// What runs in the client's namespace.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// What is wrong with the network. A value holds for both directions, or with `up:` (client to server) or `down:` before it
/// for one.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NetImpairments {
    /// One-way delay, for instance 20ms: a round trip takes 40.
    #[arg(long, value_name = "TIME", value_parser = |s: &str| sided(s, time))]
    delay: Vec<Sided<Duration>>,
    /// Up to so much more delay, in order.
    #[arg(long, value_name = "TIME", value_parser = |s: &str| sided(s, time))]
    jitter: Vec<Sided<Duration>>,
    /// How many frames are lost, for instance 1% or down:0.1%.
    #[arg(long, value_name = "SHARE", value_parser = |s: &str| sided(s, probability))]
    loss: Vec<Sided<f64>>,
    /// How many frames arrive twice.
    #[arg(long, value_name = "SHARE", value_parser = |s: &str| sided(s, probability))]
    duplicate: Vec<Sided<f64>>,
    /// How many frames come late, and by how much: 1%, or 1%:5ms.
    #[arg(long, value_name = "SHARE[:TIME]", value_parser = |s: &str| sided(s, reorder))]
    reorder: Vec<Sided<(f64, Duration)>>,
    /// Bits per second: 10mbit, 1gbit.
    #[arg(long, value_name = "RATE", value_parser = |s: &str| sided(s, rate))]
    rate: Vec<Sided<u64>>,
    /// Bytes that may wait for the rate: 256kB (the default).
    #[arg(long, value_name = "SIZE", value_parser = |s: &str| sided(s, bytes))]
    queue: Vec<Sided<usize>>,
    /// Largest IP packet; larger ones are answered by ICMP.
    #[arg(long, value_name = "SIZE", value_parser = |s: &str| sided(s, bytes))]
    mtu: Vec<Sided<usize>>,
    /// Packets beyond the MTU vanish without ICMP.
    #[arg(long)]
    black_hole: bool,
    /// Drop these frames, in both directions unless one is given: syn=1, down:data=3/flow, up:udp=all (see docs/NETBOX.md).
    #[arg(long, value_name = "RULE", value_parser = |s: &str| sided(s, rule))]
    drop: Vec<Sided<linerate_netbox::DropRule>>,
    /// What chance grows from: the same seed loses the same frames.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl NetImpairments {
    /// From words as they are typed.
    pub(crate) fn parse(words: &str) -> Result<NetImpairments> {
        #[derive(Debug, clap::Parser)]
        struct Alone {
            #[command(flatten)]
            options: NetImpairments,
        }
        let words = ["net"].into_iter().chain(words.split_whitespace());
        Ok(<Alone as clap::Parser>::try_parse_from(words)?.options)
    }

    /// This delay each way.
    pub(crate) fn delay_both(&mut self, value: Duration) {
        self.delay = vec![Sided { way: None, value }];
    }

    /// The box.
    pub(crate) fn builder(&self) -> NetboxBuilder {
        let mut b = NetBox::builder().seed(self.seed);
        b = set(b, &self.delay, |c, v| c.delay = v);
        b = set(b, &self.jitter, |c, v| c.jitter = v);
        b = set(b, &self.loss, |c, v| c.loss = v);
        b = set(b, &self.duplicate, |c, v| c.duplicate = v);
        b = set(b, &self.reorder, |c, v| (c.reorder, c.reorder_by) = v);
        b = set(b, &self.rate, |c, v| c.rate = Some(v));
        b = set(b, &self.queue, |c, v| c.queue = Some(v));
        b = set(b, &self.mtu, |c, v| c.mtu = Some(v));
        b = set(b, &self.drop, |c, v| c.drops.push(v));
        for way in [LinkDirection::Up, LinkDirection::Down] {
            b = b.way(way, |c| c.black_hole = self.black_hole && c.mtu.is_some());
        }
        b
    }
}

/// Lays each value over the conditions of its direction, or of both.
fn set<T: Clone>(
    mut b: NetboxBuilder,
    values: &[Sided<T>],
    put: impl Fn(&mut Conditions, T),
) -> NetboxBuilder {
    for v in values {
        for way in [LinkDirection::Up, LinkDirection::Down] {
            if v.way.is_none_or(|w| w == way) {
                b = b.way(way, |c| put(c, v.value.clone()));
            }
        }
    }
    b
}

/// Does it; the exit code is that of the command, 2 when what was asked cannot be.
pub(crate) fn main(net: &NetCommand) -> ExitCode {
    in_own_processes(|| match net {
        NetCommand::Run(run) => inside(run),
        NetCommand::Measure(options) => measure::run(options).map(|()| 0),
    })
}

/// Does `work` in a process that leaves nothing behind, however it ends.
pub(crate) fn in_own_processes(work: impl FnOnce() -> Result<u8>) -> ExitCode {
    let done = if std::env::var_os(INSIDE).is_some() { work() } else { outside() };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs this same command as the first process of a PID namespace. When it ends, all that it
/// started ends as well. It ends when this process does, even by kill -9.
fn outside() -> Result<u8> {
    ensure!(shell::is_root(), "network namespaces take root");
    for program in ["setpriv", "unshare", "ip"] {
        ensure!(shell::find(program).is_some(), "{program} is missing (Debian: util-linux, iproute2)");
    }
    // The first Ctrl-C is for the command, which may have something to say before it ends; the second one is for us.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted))?;
    signal_hook::flag::register(SIGINT, interrupted)?;
    let mut c = Command::new("setpriv");
    c.args(["--pdeathsig", "KILL", "--", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    c.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = c.status().context("cannot start setpriv")?;
    Ok(code(status))
}

fn code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(255);
    u8::try_from(code).unwrap_or(255)
}

fn inside(run: &NetRunOptions) -> Result<u8> {
    let net = run.conditions.builder().start()?;
    if !net.real_time() {
        eprintln!("note: without real-time scheduling (chrt), delays are as exact as the machine is idle");
    }
    let server = run.server.as_ref().map(|line| start_server(&net, line, run)).transpose()?;
    let mut command = net.client().command(&run.command[0]);
    command.args(&run.command[1..]);
    surroundings(&net, &mut command);
    let status = net.client().spawn(command)?.wait()?;
    drop(server);
    let report = net.report();
    if run.stats {
        eprintln!("{}", told(&report));
    }
    for warning in doubts(&report) {
        eprintln!("warning: {warning}");
    }
    Ok(code(status))
}

/// The addresses, for scripts.
fn surroundings(net: &NetBox, command: &mut Command) {
    let (client, server) = (net.client(), net.server());
    command.env("CLIENT", client.ip().to_string()).env("SERVER", server.ip().to_string());
    command.env("CLIENT6", client.ip6().to_string()).env("SERVER6", server.ip6().to_string());
    command.env_remove(INSIDE);
}

fn start_server(net: &NetBox, line: &str, run: &NetRunOptions) -> Result<NamespaceProcess> {
    let mut c = net.server().command("sh");
    c.args(["-c", line]).stdin(Stdio::null());
    surroundings(net, &mut c);
    let mut server = net.server().spawn(c).context("the server")?;
    if run.no_wait {
        return Ok(server);
    }
    let start = Instant::now();
    loop {
        let ports = net.server().listening()?;
        if run.ready.map_or(!ports.is_empty(), |p| ports.contains(&p)) {
            return Ok(server);
        }
        if let Some(status) = server.try_wait()? {
            bail!("the server ended before it listened ({status}): {line}");
        }
        ensure!(start.elapsed() < READY_WITHIN, "the server does not listen after {READY_WITHIN:?}: {line}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The box's counts, a line per direction.
fn told(report: &NetboxReport) -> String {
    let line = |name: &str, c: &linerate_netbox::FrameCounts| {
        let parts = [
            ("by rule", c.targeted),
            ("too big", c.too_big),
            ("lost", c.lost),
            ("queue full", c.queue_full),
            ("duplicated", c.duplicated),
            ("reordered", c.reordered),
            ("still under way", (c.received + c.duplicated).saturating_sub(c.delivered + c.dropped())),
        ];
        let parts: Vec<String> = parts.iter().filter(|p| p.1 > 0).map(|(n, v)| format!("{n} {v}")).collect();
        let rest = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        format!("{name}: {} frames in, {} out{rest}", c.received, c.delivered)
    };
    format!("{}\n{}", line("up", &report.up), line("down", &report.down))
}

/// Faults of the box that were not requested.
pub(crate) fn doubts(report: &NetboxReport) -> Vec<String> {
    let mut all = Vec::new();
    if report.missed > 0 {
        all.push(format!(
            "{} frames were dropped before the box saw them: this machine is too busy",
            report.missed
        ));
    }
    let overflow = report.up.overflow + report.down.overflow;
    if overflow > 0 {
        all.push(format!("{overflow} frames were dropped because too much was under way"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        run: NetRunOptions,
    }

    #[test]
    fn a_value_is_for_both_directions_or_one() {
        let line = "net --delay 20ms --loss down:1% --rate up:10mbit --mtu 1400 --black-hole --drop up:syn=1 -- true";
        let cli = Cli::try_parse_from(line.split(' ')).expect("it is understood");
        let shown = format!("{:?}", cli.run.conditions.builder());
        let (up, down) = shown.split_once("down: Conditions").expect("two directions");
        for (part, has) in [
            (up, "delay: 20ms"),
            (down, "delay: 20ms"),
            (up, "loss: 0.0"),
            (down, "loss: 0.01"),
            (up, "rate: Some(10000000)"),
            (down, "rate: None"),
            (down, "mtu: Some(1400), black_hole: true"),
            (up, "drops: [DropRule"),
            (down, "drops: []"),
        ] {
            assert!(part.contains(has), "{has} is not in {part}");
        }
    }

    #[test]
    fn what_the_box_did() {
        let mut r = NetboxReport::default();
        (r.up.received, r.up.delivered, r.up.lost) = (10, 9, 1);
        assert_eq!(told(&r), "up: 10 frames in, 9 out (lost 1)\ndown: 0 frames in, 0 out");
        assert!(doubts(&r).is_empty());
        r.missed = 3;
        assert!(doubts(&r)[0].starts_with("3 frames"));
    }
}
