//! `linerate serve`: what was typed and what the configuration file says, the servers it means, and
//! the signals that end them or make them read it again.

mod args;
mod config;
mod events;
mod identity;
mod options;
mod renew;
mod running;
mod tls;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_net::machine;
use linerate_serve::misbehave::{MisbehavingServer, MisbehaviourKind as Wrong};
use linerate_serve::{Address, Counts, Io, ListeningSocket, ServiceState};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

pub(crate) use args::{ServeArgs, place};

use self::args::SiteArgs;
use self::events::say;
pub(crate) use self::running::cannot_listen;
use self::running::{Prepared, RunningServer};
use crate::fault::{CommandFault, Exit};
use crate::load::output::can_be_written;

/// A signal so soon behind the first is the same end, told twice. Reason: `timeout` signals its
/// child and then its group, terminals the group and those in it who pass it on; a drain that stops
/// for that loses what it is for.
const TOLD_TWICE: Duration = Duration::from_millis(250);

/// Runs the command until a signal ends it.
pub(crate) fn run(typed: &ServeArgs) -> Result<Exit, CommandFault> {
    // Before anything is opened: the first descriptors are the service manager's, if it has passed
    // some.
    let sockets = ListeningSocket::inherited().map_err(|e| {
        CommandFault::input(format!("the sockets that were passed cannot be listened on: {e}"))
    })?;
    let typed = &ServeArgs { sockets, ..typed.clone() };
    events::print();
    // Before the signals are taken over: a pipe is waited for as long as its writer is at work, and
    // Ctrl-C must end that.
    let args = settled(typed)?;
    let prepared = Prepared::new(&args)?;
    if args.check_config {
        prepared.warnings().iter().for_each(|warning| say(warning));
        let what = typed.config.as_ref().map_or("the flags".into(), |file| file.display().to_string());
        say(&format!("{what}: sound"));
        return Ok(Exit::Fine);
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])
        .map_err(|e| CommandFault::ours(format!("signals cannot be listened to: {e}")))?;
    let counts = match is_fast(&args) {
        true => serve_until_told(typed, args, prepared, &mut signals)?,
        false => misbehave_until_told(&args, &prepared, &mut signals)?,
    };
    say(&answered(&counts));
    Ok(Exit::Fine)
}

/// What the server did, at its end.
fn answered(counts: &Counts) -> String {
    let left = match counts.open {
        0 => String::new(),
        open => format!("; {open} were still open after --drain"),
    };
    format!("answered {} requests on {} connections{left}", counts.requests, counts.accepted)
}

fn proxies_are_named(args: &ServeArgs) -> Result<(), CommandFault> {
    if args.proxy_protocol == Some(true) && args.trusted_proxy.is_empty() {
        return Err(CommandFault::input("--proxy-protocol needs proxies that are trusted")
            .hint("name their addresses by --trusted-proxy"));
    }
    Ok(())
}

/// What flags and file mean together.
fn settled(typed: &ServeArgs) -> Result<ServeArgs, CommandFault> {
    let mut args = typed.clone().placed()?;
    if let Some(path) = &typed.config {
        args = args.over(config::read(path).map_err(CommandFault::input)?);
    }
    if args.listen.is_empty() && args.places.is_empty() && args.sockets.is_empty() {
        args.listen.push(Address::from(SocketAddr::from(([127, 0, 0, 1], 8080))).into());
    }
    let says = |flag: Option<bool>| flag == Some(true);
    let site = SiteArgs { demo_routes: false, redirect_to_https: None, hsts: None, ..args.site() };
    let usual = site != SiteArgs::default() || !args.hosts.is_empty();
    let usual = usual || says(args.files_only) || says(args.demo_routes);
    if args.listen.is_empty() && args.sockets.is_empty() && usual {
        return Err(CommandFault::input(
            "what stands outside of [[listener]], such as dir, [[route]] and [[host]], is for the addresses of listen, and there are none",
        )
        .hint("name one by listen, or write them in a [[listener]]"));
    }
    check_addresses_differ(&args)?;
    files_alone(&args)?;
    proxies_are_named(&args)?;
    interface_fits(&args)?;
    if !args.io.is_some_and(Io::is_user_space) {
        if args.busy_poll.is_some() {
            return Err(CommandFault::input("--busy-poll is for --io xdp")
                .hint("elsewhere the kernel does it: sysctl net.core.busy_poll"));
        }
        if args.pcap_out.is_some() {
            return Err(CommandFault::input(
                "--pcap-out is for --io xdp, whose packets other programs don't see",
            )
            .hint("elsewhere capture with tcpdump -w FILE or dumpcap"));
        }
        if args.fault.is_some() {
            return Err(CommandFault::input("--fault is for --io xdp")
                .hint("elsewhere let the network do it: tc qdisc add dev IF root netem loss 1%, or an nft rule that drops"));
        }
    }
    if let Some(file) = &args.pcap_out {
        can_be_written("--pcap-out", file, "name a file in a folder that exists")?;
    }
    log_is_named(&args)?;
    if !is_fast(&args) {
        misbehaves_alone(&args)?;
        // Such a server speaks HTTP/1.1 alone, and says so in ALPN.
        args.http2 = Some(false);
    }
    Ok(args)
}

/// Checks that `--interface` and `--io` go together, and with the sockets.
fn interface_fits(args: &ServeArgs) -> Result<(), CommandFault> {
    match (args.io, &args.interface) {
        (Some(Io::Xdp), None) => {
            Err(CommandFault::input("--io xdp bypasses the kernel, so it needs --interface")
                .hint("the interface that packets to the server come in by (ip address shows them)"))
        }
        (Some(Io::Xdp), Some(_)) if args.addresses().iter().any(|at| at.tcp().is_none()) => {
            Err(CommandFault::input("--listen unix: is the kernel's; it does not go with --io xdp"))
        }
        (Some(Io::Xdp), Some(_)) if !args.sockets.is_empty() => Err(CommandFault::input(
            "sockets that a service manager passes are the kernel's; they do not go with --io xdp",
        )),
        (Some(Io::Xdp), Some(_)) if args.defer_accept == Some(true) => {
            Err(CommandFault::input("--defer-accept is the kernel's; it does not go with --io xdp"))
        }
        (Some(Io::Xdp), Some(_)) if args.http3 == Some(true) => {
            Err(CommandFault::input("--http3 needs the kernel's UDP; it does not go with --io xdp"))
        }
        (Some(Io::Xdp), Some(_)) if args.share_port == Some(true) => {
            Err(CommandFault::input("--share-port is the kernel's; with --io xdp one process has the port"))
        }
        (Some(Io::Xdp), Some(_)) | (_, None) => Ok(()),
        (_, Some(_)) => {
            Err(CommandFault::input("--interface is for --io xdp; elsewhere --listen says it all"))
        }
    }
}

fn log_is_named(args: &ServeArgs) -> Result<(), CommandFault> {
    if args.log_format.is_some() && args.access_log.is_none() {
        return Err(CommandFault::input("--log-format says how the access log looks, but there is none")
            .hint("name one by --access-log"));
    }
    Ok(())
}

/// Flags about files need files to serve, and --files-only excludes --demo-routes.
fn files_alone(args: &ServeArgs) -> Result<(), CommandFault> {
    if args.list == Some(true) && args.dir.is_none() {
        return Err(CommandFault::input("--list needs files to list").hint("name a directory by --dir"));
    }
    let has_files =
        args.dir.is_some() || args.routes.iter().any(|route| matches!(route.to, args::To::Dir(_)));
    if args.gzip.is_some() && !has_files {
        return Err(CommandFault::input("--gzip needs files to compress").hint("name a directory by --dir"));
    }
    if args.dir.is_none() && !(args.try_files.is_empty() && args.error_pages.is_empty()) {
        return Err(
            CommandFault::input("try_files and error_pages need files").hint("name a directory by dir")
        );
    }
    if args.files_only != Some(true) {
        return Ok(());
    }
    if args.demo_routes == Some(true) {
        return Err(
            CommandFault::input("--files-only and --demo-routes say opposite things").hint("leave out one")
        );
    }
    if args.dir.is_none() && args.routes.is_empty() {
        return Err(
            CommandFault::input("--files-only needs files to serve").hint("name a directory by --dir")
        );
    }
    Ok(())
}

/// Checks that no two of our sockets need the same address.
fn check_addresses_differ(args: &ServeArgs) -> Result<(), CommandFault> {
    let addresses = args.addresses();
    for (i, at) in addresses.iter().enumerate() {
        if !at.is_open() && addresses[..i].contains(at) {
            let said = if args.listen.iter().filter(|listen| listen.at == *at).count() > 1 {
                format!("--listen gives {at} twice")
            } else {
                format!("--listen and a [[listener]] both give {at}")
            };
            return Err(CommandFault::input(said).hint("leave out one"));
        }
        // Sockets that share a port may differ in how much of the machine they are for.
        let free = args.share_port == Some(true) || args.io.is_some_and(Io::is_user_space);
        if let Some(other) = addresses[..i].iter().find(|other| !free && args::within(other, at)) {
            let said = format!("--listen cannot use both {at} and {other}: one includes the other");
            return Err(CommandFault::input(said).hint("leave out one, or use different ports"));
        }
    }
    match &args.metrics {
        Some(at) if !at.is_open() && addresses.iter().any(|a| a == at || args::within(a, at)) => {
            Err(CommandFault::input(format!("--metrics cannot use {at}: --listen already does"))
                .hint("use another address for --metrics"))
        }
        _ => Ok(()),
    }
}

/// Serves until it gets a signal to end.
fn serve_until_told(
    typed: &ServeArgs,
    args: ServeArgs,
    prepared: Prepared,
    signals: &mut Signals,
) -> Result<Counts, CommandFault> {
    // Before anybody hears that it listens: the window may be closed right then.
    let terminal = Terminal::of_now();
    // Descriptors are what many connections need first; fewer are fewer connections.
    let _ = machine::raise_nofile();
    let io = args.io.unwrap_or_default();
    let mut running = RunningServer::start(args, prepared)?;
    can_accept(io)?;
    let dead = running.end_with_the_last_thread(signals)?;
    running.announce();
    tell(ServiceState::Ready);
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => {
                running.reopen_log();
                continue;
            }
            // Elsewhere it begins an upgrade, which is another process beside this one here
            // (--share-port).
            SIGUSR2 => continue,
            SIGHUP if !terminal.is_gone() => {}
            _ => break,
        }
        if typed.config.is_none() {
            running.reopen_log();
            if let Err(fault) = running.renew_certificates() {
                say(&format!("the certificate stays as it was: {fault}"));
            }
            continue;
        }
        tell(ServiceState::Reloading);
        match settled(typed).and_then(|args| running.reload(args)) {
            Ok(()) => running.announce(),
            Err(fault) => {
                say(&format!("the configuration stays as it was: {fault}"));
                // A program that renamed the log asks for this alone.
                running.reopen_log();
            }
        }
        tell(ServiceState::Ready);
    }
    tell(ServiceState::Stopping);
    if dead.load(std::sync::atomic::Ordering::SeqCst) {
        say(&answered(&running.stop()));
        // Each thread has said why.
        return Err(CommandFault::ours("the server has ended: none of its threads can serve any more"));
    }
    Ok(while_second_signal_kills(signals, || running.stop()))
}

/// Checks that there is a descriptor for a connection. Other I/O needs none from the process.
fn can_accept(io: Io) -> Result<(), CommandFault> {
    match machine::nofile_to_accept() {
        Ok((limit, least)) if limit < least && matches!(io, Io::Auto | Io::Epoll) => {
            let said = format!(
                "the limit of {limit} open files leaves none for a connection: serve needs {least} or more"
            );
            Err(CommandFault::input(said).hint("ulimit -n 1024"))
        }
        _ => Ok(()),
    }
}

/// Tells the service manager, if there is one.
fn tell(state: ServiceState) {
    if let Err(error) = state.notify() {
        say(&format!("the service manager cannot be told ({state:?}): {error}"));
    }
}

/// The only misbehaviour of the fast server is to close.
fn is_fast(args: &ServeArgs) -> bool {
    args.misbehave.iter().all(|w| matches!(w, Wrong::CloseAfter(_)))
}

/// A server that misbehaves has few of the other flags.
fn misbehaves_alone(args: &ServeArgs) -> Result<(), CommandFault> {
    let own = !args.routes.is_empty() || !args.places.is_empty() || !args.hosts.is_empty();
    if !args.header.is_empty() {
        return Err(CommandFault::input("--header does not go with this --misbehave"));
    }
    if args.dir.is_some() || args.access_log.is_some() || own {
        return Err(CommandFault::input(
            "--misbehave answers the built-in routes alone, without files, routes of a file and log",
        )
        .hint("leave out --dir, --access-log, [[route]], [[listener]] and [[host]]"));
    }
    if !args.sockets.is_empty() {
        return Err(CommandFault::input(
            "sockets that a service manager passes do not go with this --misbehave",
        ));
    }
    if args.http3 == Some(true) {
        return Err(CommandFault::input("--http3 does not go with this --misbehave").hint("leave it out"));
    }
    if args.redirect_to_https == Some(true) || args.hsts.is_some() {
        return Err(CommandFault::input("--redirect-to-https and --hsts do not go with this --misbehave")
            .hint("leave them out"));
    }
    if !(args.allow.is_empty() && args.deny.is_empty()) {
        return Err(CommandFault::input("--allow and --deny do not go with this --misbehave"));
    }
    if args.metrics.is_some() {
        return Err(
            CommandFault::input("--metrics does not go with this --misbehave").hint("ask for /stats instead")
        );
    }
    if args.share_port == Some(true) {
        return Err(CommandFault::input("--share-port does not go with this --misbehave"));
    }
    if args.listen.iter().any(|listen| listen.at.tcp().is_none()) {
        return Err(CommandFault::input("--listen unix: does not go with this --misbehave"));
    }
    Ok(())
}

/// Misbehaves until it gets a signal to end.
fn misbehave_until_told(
    args: &ServeArgs,
    prepared: &Prepared,
    signals: &mut Signals,
) -> Result<Counts, CommandFault> {
    let terminal = Terminal::of_now();
    prepared.warnings().iter().for_each(|warning| say(warning));
    let listen = args.listen.iter().zip(prepared.tls()).filter_map(|(one, tls)| Some((one.at.tcp()?, tls)));
    let servers: Result<Vec<_>, CommandFault> = listen
        .map(|(at, tls)| {
            let how = args.misbehave.iter().copied().collect();
            let scheme = if tls.is_some() { "https" } else { "http" };
            MisbehavingServer::spawn_with(at, how, tls)
                .map(|server| (scheme, server))
                .map_err(|e| cannot_listen(&std::io::Error::new(e.kind(), format!("{at}: {e}"))))
        })
        .collect();
    let servers = servers?;
    servers.iter().for_each(|(scheme, server)| say(&format!("listening on {scheme}://{}", server.addr())));
    signals.forever().find(|signal| is_end(*signal) || *signal == SIGHUP && terminal.is_gone());
    Ok(while_second_signal_kills(signals, || {
        let mut counts = Counts::default();
        servers.into_iter().for_each(|(_, server)| counts.merge(&server.counts()));
        counts
    }))
}

fn is_end(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGINT | SIGQUIT)
}

/// Where it was started by hand, perhaps: a window that is closed says SIGHUP too, and there it
/// means the end.
struct Terminal {
    was_there: bool,
}

impl Terminal {
    fn of_now() -> Terminal {
        Terminal { was_there: std::io::stdin().is_terminal() }
    }

    fn is_gone(&self) -> bool {
        self.was_there && !std::io::stdin().is_terminal()
    }
}

/// From now on a second signal ends it at once, as it would any program.
fn while_second_signal_kills<T>(signals: &mut Signals, end: impl FnOnce() -> T) -> T {
    let handle = signals.handle();
    let first = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            signals
                .forever()
                .find(|s| is_end(*s) && first.elapsed() > TOLD_TWICE)
                .is_some_and(|_| std::process::exit(Exit::Interrupted as i32))
        });
        let result = end();
        // It ends when the handle is closed.
        handle.close();
        result
    })
}
