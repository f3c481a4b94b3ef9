//! `linerate explain --pcap` and `--capture`: what packets show.

mod live;
mod owners;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_explain::passive::words::{self, PassiveVerdict};
use linerate_explain::passive::{
    CaptureLimits, FileError, KeyLog, LinkType, Observation, Observer, Packet, findings, limits, read_with,
};
use linerate_net::capture::{Capture, CaptureError, CaptureOptions};
use linerate_report::passive as report;

use crate::args::{KEYS_ALONE, PassiveArgs};
use crate::fault::{CommandFault, Exit, said};
use crate::load::Interrupt;
use crate::load::output::ReportSinks;
use crate::terminal;

/// Options besides the packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// How long to watch; `None`: without end.
    pub(crate) budget: Option<Duration>,
    pub(crate) json: Option<&'a Path>,
    pub(crate) html: Option<&'a Path>,
    pub(crate) quiet: bool,
}

/// Runs the command.
pub(crate) fn run(args: &PassiveArgs, wanted: &Wanted<'_>) -> Result<Exit, CommandFault> {
    if args.keylog.is_some() && args.pcap.is_none() {
        return Err(CommandFault::input(KEYS_ALONE));
    }
    let sinks = ReportSinks::of(wanted.json, wanted.html)?;
    let (seen, source, interrupted) = match &args.pcap {
        Some(path) => {
            let keys = args.keylog.as_deref().map(key_log).transpose()?;
            (from_file(path, args.port, keys)?, path.display().to_string(), false)
        }
        None => match (wanted.budget, args.interval) {
            (Some(budget), None) => watch(args, budget, wanted.quiet)?,
            _ => return live::run(args, wanted, &sinks),
        },
    };
    report(&seen, &source, &sinks, interrupted, |watched| {
        sinks.json.as_ref().map_or(Ok(()), |sink| sink.write(&report::json::to_string(watched)))
    })
}

/// Reports what was seen; the exit code is that of its verdict.
fn report(
    seen: &Observation,
    source: &str,
    sinks: &ReportSinks,
    interrupted: bool,
    write_json: impl FnOnce(&report::Watched<'_>) -> Result<(), CommandFault>,
) -> Result<Exit, CommandFault> {
    let findings = findings::of(seen);
    let watched = report::Watched { source, seen, findings: &findings };
    write_json(&watched)?;
    if let Some(sink) = &sinks.html {
        sink.write(&report::page::to_string(&watched))?;
    }
    let to_stderr = sinks.to_stderr();
    let text = report::to_text(&watched, terminal::style_beside(to_stderr));
    terminal::print_beside(&text, to_stderr)?;
    Ok(match words::verdict(seen, &findings) {
        _ if interrupted => Exit::Interrupted,
        PassiveVerdict::Healthy => Exit::Fine,
        PassiveVerdict::Caused | PassiveVerdict::Inconclusive => Exit::CheckFailed,
    })
}

/// The keys in a key log.
fn key_log(path: &Path) -> Result<Arc<KeyLog>, CommandFault> {
    let shown = path.display();
    let example = "a client writes one, for example: SSLKEYLOGFILE=keys.log curl https://HOST/";
    let mut text = Vec::new();
    let most = limits::KEYLOG_BYTES as u64;
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut text));
    read.map_err(|e| {
        CommandFault::input(format!("--keylog: {shown} cannot be read: {}", said(&e))).hint(example)
    })?;
    if text.len() as u64 > most {
        return Err(CommandFault::input(format!("--keylog: {shown} has more than {} MiB", most >> 20))
            .hint("keep the lines of the sessions in the capture"));
    }
    let keys = KeyLog::parse(&text)
        .map_err(|e| CommandFault::input(format!("--keylog: {shown} is no key log: {e}")).hint(example))?;
    Ok(Arc::new(keys))
}

fn from_file(path: &Path, port: Option<u16>, keys: Option<Arc<KeyLog>>) -> Result<Observation, CommandFault> {
    let shown = path.display();
    let read = if path == Path::new("-") {
        read_with(io::stdin().lock(), CaptureLimits::default(), port, keys)
    } else {
        if path.is_dir() {
            return Err(
                CommandFault::input(format!("--pcap: {shown} is a folder")).hint("name a capture in it")
            );
        }
        let file = File::open(path).map_err(|e| {
            CommandFault::input(format!("--pcap: {shown} cannot be read: {}", said(&e)))
                .hint("a capture is made by, for example: tcpdump -i any -w FILE 'tcp port 8080'")
        })?;
        read_with(file, CaptureLimits::default(), port, keys)
    };
    read.map_err(|e| match e {
        FileError::Io(e) => CommandFault::ours(format!("--pcap: {shown} cannot be read: {}", said(&e))),
        e => CommandFault::input(format!("--pcap: {shown}: {e}")),
    })
}

/// A capture of other programs' calls.
struct PortCapture {
    capture: Capture,
    port: u16,
    /// What is captured, in words.
    source: String,
}

impl PortCapture {
    fn of(args: &PassiveArgs) -> Result<PortCapture, CommandFault> {
        let Some(port) = args.port else {
            return Err(CommandFault::input(
                "--capture without a URL needs --port: which calls are to be watched",
            )
            .hint("for example: linerate explain --capture --port 8080"));
        };
        let options = CaptureOptions {
            interface: args.interface.clone(),
            port: Some(port),
            ..CaptureOptions::default()
        };
        let capture = Capture::open(&options).map_err(|e| refused(&e))?;
        let of = args.interface.as_deref().unwrap_or("all interfaces");
        Ok(PortCapture { capture, port, source: format!("the packets of port {port} on {of}") })
    }

    /// Lends the packets that come within a time.
    fn packets(&mut self, within: Duration, mut each: impl FnMut(&Packet<'_>)) -> Result<(), CommandFault> {
        let taken = self.capture.next(within, |p| {
            each(&Packet { time_ns: p.time_ns, link: LinkType::Raw, data: p.data, wire_len: p.wire_len });
        });
        taken.map(drop).map_err(|e| CommandFault::ours(format!("capturing failed: {}", said(&e))))
    }
}

/// Watches the packets of this machine; what was seen, from where, and whether it was interrupted.
fn watch(
    args: &PassiveArgs,
    budget: Duration,
    quiet: bool,
) -> Result<(Observation, String, bool), CommandFault> {
    let mut opened = PortCapture::of(args)?;
    let interrupt = Interrupt::listen()?;
    // A script that starts the calls to watch waits for this line.
    let _ = writeln!(
        io::stderr(),
        "watching {} for {} s; Ctrl-C ends it and reports",
        opened.source,
        budget.as_secs()
    );
    let mut observer = Observer::new(CaptureLimits::default()).only_port(Some(opened.port));
    let end = Instant::now() + budget;
    let mut told = Instant::now();
    let show = !quiet && terminal::can_redraw();
    let mut interrupted = false;
    while !interrupted && Instant::now() < end {
        opened.packets(Duration::from_millis(50), |packet| observer.packet(packet))?;
        interrupted = interrupt.asked();
        if show && told.elapsed() > Duration::from_millis(250) {
            told = Instant::now();
            let (packets, requests) = observer.progress();
            let _ = write!(io::stderr(), "\r\x1b[K{packets} packets, {requests} requests");
        }
    }
    if show {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    observer.dropped(opened.capture.dropped());
    Ok((observer.finish(), opened.source, interrupted))
}

fn refused(error: &CaptureError) -> CommandFault {
    match error {
        CaptureError::NoInterface(_) => {
            CommandFault::input(format!("--interface: {error}")).hint("ip link names those there are")
        }
        CaptureError::NotPermitted => CommandFault::ours(error.to_string())
            .hint("run it as root, or give the program the capability once: sudo setcap cap_net_raw+ep $(command -v linerate)")
            .hint("without it: sudo tcpdump -i any -w FILE 'tcp port N', then linerate explain --pcap FILE"),
        _ => CommandFault::ours(error.to_string()),
    }
}
