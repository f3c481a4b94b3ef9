//! A server as a process of its own: started in its own process group on cores of its own, awaited,
//! watched, and ended by its id in any case.

mod output;
mod tree;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::invalid::InvalidLab;
use crate::limits::{GRACE, LOOK};
use output::Output;
pub use tree::{Member, Usage, descendants, members, resident};

/// Servers that run now, by their process group: what ends the whole process at once ends them too.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// How to start a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Program and arguments; `{port}` in them stands for a free port.
    pub words: Vec<String>,
    /// Its URL, if it does not print that.
    pub url: Option<String>,
    /// The cores that it may use; empty: all.
    pub cores: Vec<usize>,
    /// How long it may take to become ready.
    pub patience: Duration,
}

/// Why a server does not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerTrouble {
    /// The program could not be started.
    #[error("{program} could not be started: {why}")]
    Start {
        /// The program.
        program: String,
        /// The system's words.
        why: String,
    },
    /// It ended before it was ready.
    #[error("it ended before it was ready ({how}){said}")]
    Ended {
        /// Its exit code or signal.
        how: String,
        /// Its last words, on lines of their own.
        said: String,
    },
    /// It printed no URL in time.
    #[error("it printed no URL within {patience:?}{said}")]
    NoUrl {
        /// How long was waited.
        patience: Duration,
        /// Its last words.
        said: String,
    },
    /// Nothing accepts connections at its URL.
    #[error("{url} accepts no connections after {patience:?}{said}")]
    NotReady {
        /// Where it should answer.
        url: String,
        /// How long was waited.
        patience: Duration,
        /// Its last words.
        said: String,
    },
    /// The user asked to stop meanwhile.
    #[error("interrupted while it was started")]
    Interrupted,
}

impl Recipe {
    /// From `cmd:...`, whose words are split as a shell would, without any other meaning.
    ///
    /// # Errors
    /// A quote is not closed, or there is no word.
    pub fn parse(command: &str) -> Result<Recipe, InvalidLab> {
        let words = shell_words::split(command);
        let words = words.map_err(|_| InvalidLab("a quote in it is not closed".to_owned()))?;
        if words.is_empty() {
            return Err(InvalidLab("no program is named after cmd:".to_owned()));
        }
        Ok(Recipe { words, url: None, cores: Vec::new(), patience: Duration::from_secs(10) })
    }

    /// The words with a port in the place of `{port}`.
    fn with_port(&self) -> (Vec<String>, Option<u16>) {
        const PLACE: &str = "{port}";
        let wants = |text: &String| text.contains(PLACE);
        if !self.words.iter().chain(&self.url).any(wants) {
            return (self.words.clone(), None);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let port = listener.and_then(|l| l.local_addr()).map_or(0, |address| address.port());
        (self.words.iter().map(|w| w.replace(PLACE, &port.to_string())).collect(), Some(port))
    }

    /// Starts it and waits until it accepts connections. `stop` is asked while it waits.
    pub fn start(&self, stop: &dyn Fn() -> bool) -> Result<LabServer, ServerTrouble> {
        let (words, port) = self.with_port();
        let url = match (&self.url, port) {
            (Some(url), Some(port)) => Some(url.replace("{port}", &port.to_string())),
            (Some(url), None) => Some(url.clone()),
            (None, Some(port)) => Some(format!("http://127.0.0.1:{port}/")),
            (None, None) => None,
        };
        let mut child = self.spawn(&words)?;
        let output = Output::read(child.stdout.take(), child.stderr.take());
        let group = child.id().cast_signed();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(group);
        // From here on it is ended when this value is dropped, whatever happens.
        let mut server = LabServer { child, group, url: String::new(), output, ended: None };
        server.url = server.ready(url, self.patience, stop)?;
        Ok(server)
    }

    fn spawn(&self, words: &[String]) -> Result<Child, ServerTrouble> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).process_group(0);
        // Python keeps back what it prints to a pipe, the URL too.
        command.env("PYTHONUNBUFFERED", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cores = self.cores.clone();
        // A process inherits the cores of the thread that starts it, so that no thread of it ever
        // runs elsewhere.
        let start = move || {
            if !cores.is_empty() {
                let _ = pin_this_thread(&cores);
            }
            command.spawn()
        };
        let spawned = thread::spawn(start).join().unwrap_or_else(|_| Err(std::io::Error::other("a panic")));
        spawned.map_err(|e| ServerTrouble::Start {
            program: words[0].clone(),
            why: e.to_string().split(" (os error").next().unwrap_or_default().to_owned(),
        })
    }
}

/// Restricts the calling thread, and what it starts, to these cores.
///
/// # Errors
/// There is no such core, or it is not allowed to run there.
pub fn pin_this_thread(cores: &[usize]) -> std::io::Result<()> {
    let refused = |e: Errno| std::io::Error::new(std::io::Error::from(e).kind(), e.desc());
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core).map_err(refused)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(refused)
}

/// A server that runs. Dropping it ends it.
#[derive(Debug)]
pub struct LabServer {
    child: Child,
    group: i32,
    url: String,
    output: Output,
    ended: Option<String>,
}

impl LabServer {
    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The number of its first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, with its last words, if it has.
    pub fn ended(&mut self) -> Option<String> {
        self.look().map(|how| format!("it ended ({how}){}", self.output.last_words()))
    }

    /// Its exit code or signal, if it has ended.
    fn look(&mut self) -> Option<String> {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some(status.to_string());
        }
        self.ended.clone()
    }

    /// What its processes have used until now.
    pub fn usage(&self) -> Usage {
        Usage::of(&members(self.group))
    }

    /// The processes that it consists of.
    pub fn members(&self) -> Vec<Member> {
        members(self.group)
    }

    fn ready(
        &mut self,
        url: Option<String>,
        patience: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<String, ServerTrouble> {
        let begun = Instant::now();
        let mut found = url;
        loop {
            if let Some(how) = self.look() {
                // Its last words may still be in the pipe.
                self.output.settle();
                return Err(ServerTrouble::Ended { how, said: self.output.last_words() });
            }
            if stop() {
                return Err(ServerTrouble::Interrupted);
            }
            if found.is_none() {
                found = self.output.url();
            }
            if let Some(url) = &found
                && accepts(url)
            {
                return Ok(url.clone());
            }
            if begun.elapsed() > patience {
                let said = self.output.last_words();
                return Err(match found {
                    None => ServerTrouble::NoUrl { patience, said },
                    Some(url) => ServerTrouble::NotReady { url, patience, said },
                });
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends it: asks it to, waits for a moment, and then makes it.
    fn stop(&mut self) {
        let members = members(self.group);
        let outside: Vec<Member> = members.iter().copied().filter(|m| m.group != self.group).collect();
        let group = Pid::from_raw(self.group);
        let signal = |signal: Signal| {
            let _ = killpg(group, signal);
            // A process that left the group is still this server's.
            for member in outside.iter().filter(|m| m.is_alive()) {
                let _ = kill(Pid::from_raw(member.pid), signal);
            }
        };
        signal(Signal::SIGTERM);
        let begun = Instant::now();
        while begun.elapsed() < GRACE && (self.look().is_none() || members.iter().any(Member::is_alive)) {
            thread::sleep(LOOK);
        }
        if self.look().is_none() || members.iter().any(Member::is_alive) {
            signal(Signal::SIGKILL);
        }
        let _ = self.child.wait();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|g| *g != self.group);
    }
}

impl Drop for LabServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Kills all servers that run, at once: for a process that is about to end without ending them.
pub fn kill_all() {
    let running = match RUNNING.try_lock() {
        Ok(running) => running.clone(),
        Err(_) => return,
    };
    for group in running {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// Whether something accepts connections at a URL's address.
fn accepts(url: &str) -> bool {
    address_of(url)
        .is_some_and(|address| TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())
}

/// The address of `http://HOST[:PORT]/...`.
fn address_of(url: &str) -> Option<SocketAddr> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let has_port = authority.rsplit(']').next()?.contains(':');
    let default = if scheme == "https" { 443 } else { 80 };
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{default}") };
    authority.to_socket_addrs().ok()?.next()
}

#[cfg(test)]
mod tests;
