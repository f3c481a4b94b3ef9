//! The program as a process: signals go to it, and its exit code is ours.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use linerate_net::link::xdp::Lender;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use super::status::{self, BypassFacts};
use crate::fault::{CommandFault, said};

/// Added to a signal's number for the exit code, as shells do.
const SIGNALLED: i32 = 128;

/// The number of the descriptor by which the program asks for receive queues, or one above it. Reason:
/// programs are used to small numbers.
const DOOR: i32 = 500;

/// What the program gets its packets by.
pub(super) struct Lending {
    pub(super) lender: Lender,
    pub(super) facts: BypassFacts,
}

/// Starts a program with the library, and waits for the end of it and of all it has started.
pub(super) fn run(
    file: &Path,
    name: &OsStr,
    arguments: &[OsString],
    library: &Path,
    lending: Lending,
) -> Result<u8, CommandFault> {
    let failed = |what: &str, why: String| CommandFault::ours(format!("{what}: {why}"));
    // Children of a program that goes to the background become ours.
    set_child_subreaper(true).map_err(|e| failed("prctl", e.desc().to_owned()))?;
    // SIGINT comes from the terminal, which sends it to the program too.
    let watched = [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
    let mut signals = Signals::new(watched).map_err(|e| failed("signals", said(&e)))?;
    let mut preload = library.as_os_str().to_owned();
    if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        preload.push(":");
        preload.push(more);
    }
    let mut command = Command::new(file);
    let Lending { mut lender, facts } = lending;
    let door = lender.door(DOOR).map_err(|e| failed("descriptors", said(&e)))?;
    let configuration = format!("{};{};{}", facts.interface, door.as_raw_fd(), facts.listen.join(","));
    command.arg0(name).args(arguments).env("LD_PRELOAD", preload).env("LINERATE_BYPASS", configuration);
    let child = command
        .spawn()
        .map_err(|e| CommandFault::input(format!("{} does not start: {}", file.display(), said(&e))))?;
    drop(door);
    // It ends with this process.
    let (stop, _running) = std::io::pipe().map_err(|e| failed("a pipe", said(&e)))?;
    let say = |words: &str| eprintln!("linerate bypass: {words}");
    lender.notes().iter().for_each(|note| say(note));
    let roster = lender.roster();
    if let Err(error) = status::serve(roster.clone(), facts) {
        say(&format!("--status will not find this: {error}"));
    }
    thread::spawn(move || {
        if let Err(error) = lender.run(stop.as_fd(), say) {
            say(&format!("the program serves from the kernel: {error}"));
        }
    });
    let main = Pid::from_raw(child.id().cast_signed());
    let mut code = None;
    for signal in signals.forever() {
        match signal {
            SIGINT => {}
            SIGCHLD => {
                if reap(main, &mut code)? {
                    break;
                }
            }
            signal => pass_on(signal, main, code.is_some()),
        }
    }
    if let Some(words) = status::summary(&roster.status()) {
        say(&words);
    }
    Ok(code.unwrap_or(0))
}

/// Takes notice of children that ended. Returns whether none is left.
fn reap(main: Pid, code: &mut Option<u8>) -> Result<bool, CommandFault> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == main => *code = u8::try_from(status).ok(),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                *code = u8::try_from(SIGNALLED + signal as i32).ok();
            }
            Ok(WaitStatus::StillAlive) => return Ok(false),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => return Ok(true),
            Err(e) => return Err(CommandFault::ours(format!("waiting for the program: {}", e.desc()))),
        }
    }
}

/// Passes a signal to the program, or, after it went to the background, to what it left.
fn pass_on(signal: i32, main: Pid, main_ended: bool) {
    let Ok(signal) = Signal::try_from(signal) else { return };
    let to = if main_ended { children() } else { vec![main] };
    for pid in to {
        // It may have ended meanwhile.
        let _ = kill(pid, signal);
    }
}

/// This process's children.
fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let numbers = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|word| word.parse().ok()).map(Pid::from_raw).collect()
    };
    lists.flat_map(numbers).collect()
}
