//! `linerate bypass`: starts a program with the library that puts its connections on TCP in user space.

mod launch;
mod library;
mod program;
pub(crate) mod status;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use linerate_net::link::xdp::Lender;

use self::launch::Lending;
use self::status::BypassFacts;
use crate::fault::{CommandFault, said};

/// Run a server, unchanged, with its connections on TCP in user space (AF_XDP)
///
/// PROGRAM runs with a library in front of the C library: connections to the addresses of --listen, over this interface, never
/// reach the kernel's TCP. All else goes to the kernel, as without it. Workers without rights, as nginx's, share the interface's receive
/// queues. It needs root. The exit code is PROGRAM's, or 2 or 4 if it was not started. HUP, USR1, USR2, WINCH, QUIT and TERM are passed on.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Examples:\n  linerate bypass --interface eth0 --listen 10.0.0.5:6379 -- redis-server --bind 10.0.0.5 --protected-mode no\n  linerate bypass --interface eth0 --listen 10.0.0.5:80 -- nginx\n  linerate bypass --status"
)]
pub(crate) struct BypassArgs {
    /// The interface whose packets to take
    #[arg(long, value_name = "IF", required_unless_present = "status")]
    pub(crate) interface: Option<String>,

    /// An address that PROGRAM listens on, also as part of 0.0.0.0 or [::]; repeatable
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "status")]
    listen: Vec<SocketAddr>,

    /// Write every packet of connections in user space into FILE, for tcpdump, Wireshark or linerate explain --pcap (at most 1 GiB)
    ///
    /// All processes write into it. It replaces FILE, and only root can read a new one.
    #[arg(long, value_name = "FILE", conflicts_with = "status")]
    pcap_out: Option<PathBuf>,

    /// Show what a running linerate bypass does: its processes, their queues, connections and bytes
    ///
    /// --interface or --pid chooses one if several run in this network namespace. It
    /// answers root and its own user.
    #[arg(long, conflicts_with_all = ["listen", "command"])]
    pub(crate) status: bool,

    /// With --status: the process of the linerate bypass to ask
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// With --status: write it as JSON (- for standard output)
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,

    /// The program and its arguments, after --
    #[arg(value_name = "PROGRAM", required_unless_present = "status", last = true)]
    command: Vec<std::ffi::OsString>,
}

/// Runs the command. Returns the program's exit code.
pub(crate) fn run(args: &BypassArgs) -> Result<u8, CommandFault> {
    for (flag, given) in [("--pid", args.pid.is_some()), ("--json", args.json.is_some())] {
        if given {
            return Err(CommandFault::input(format!("{flag} belongs to --status")));
        }
    }
    check_addresses(&args.listen)?;
    let interface = args.interface.clone().ok_or_else(|| CommandFault::input("no --interface"))?;
    if !is_there(&interface) {
        return Err(CommandFault::input(format!("--interface: there is no interface {interface}"))
            .hint("ip -brief link lists them"));
    }
    let (name, arguments) = args.command.split_first().ok_or_else(|| CommandFault::input("no PROGRAM"))?;
    let file = program::found(name)?;
    let runs = program::check(&file)?;
    let library = library::found()?;
    library::check_loads(&library, &runs)?;
    let facts = BypassFacts {
        interface,
        listen: args.listen.iter().map(SocketAddr::to_string).collect(),
        program: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        started: SystemTime::now(),
    };
    let mut lender =
        Lender::open(&facts.interface, &args.listen).map_err(|error| CommandFault::from(&error))?;
    if let Some(path) = &args.pcap_out {
        record(&mut lender, path).map_err(|error| {
            CommandFault::input(format!("--pcap-out: {} cannot be written: {}", path.display(), said(&error)))
                .hint("name a file in a folder that exists")
        })?;
    }
    launch::run(&file, name, arguments, &library, Lending { lender, facts })
}

/// The program's processes may have no right to open the file, so they get its descriptor with their queues.
fn record(lender: &mut Lender, path: &Path) -> io::Result<()> {
    // What is recorded is what users send: a new file is its owner's alone.
    let file = File::options().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    lender.record_in(file)
}

/// Whether this network namespace has an interface. The names in /sys may be another one's. Without a list, the
/// opening decides.
fn is_there(interface: &str) -> bool {
    let Ok(list) = std::fs::read_to_string("/proc/self/net/dev") else { return true };
    list.lines().filter_map(|line| line.trim().split_once(':')).any(|(name, _)| name == interface)
}

fn check_addresses(listen: &[SocketAddr]) -> Result<(), CommandFault> {
    for (at, address) in listen.iter().enumerate() {
        if address.ip().is_unspecified() || address.port() == 0 {
            return Err(CommandFault::input(format!("--listen {address} names no single address and port"))
                .hint("give the interface's address, such as 10.0.0.5:80"));
        }
        if listen[..at].iter().any(|other| other.port() == address.port()) {
            return Err(CommandFault::input(format!("--listen gives port {} twice", address.port()))
                .hint("one address for each port works so far"));
        }
    }
    Ok(())
}
