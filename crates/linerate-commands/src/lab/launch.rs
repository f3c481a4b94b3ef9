//! Servers of a scenario: what they need is looked for, what they have as source is built, and they
//! are started with their files.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use linerate_lab::limits::LOOK;
use linerate_lab::relay::LabRelay;
use linerate_lab::scenario::ServerPart;
use linerate_lab::servers::{LabServer, Recipe, ServerTrouble};
use linerate_lab::veth::{self, VethPair};
use linerate_net::machine;
use linerate_report::units;

use super::rows::origin;
use crate::args::LabArgs;
use crate::line::LaidLine;
use crate::load::Interrupt;

/// Why a server's rows are left out, and how to install it.
type LeftOut = (String, String);

/// A server of a group, and what belongs to it. All of it ends with this.
pub(super) struct Started {
    pub(super) server: Option<LabServer>,
    relay: Option<LabRelay>,
    pub(super) url: String,
    // The folder goes last, when nothing reads it any more.
    _folder: Option<Folder>,
}

/// A folder with a server's files; dropping it removes it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is between a group's client and its servers.
#[derive(Clone, Copy, Debug)]
pub(super) enum LabNetwork<'a> {
    /// Nothing: both are in this machine's network.
    Here,
    /// A veth pair.
    Veth(&'a VethPair),
    /// A shaped line. The calling thread is at the client's end.
    Line(&'a LaidLine),
}

/// Starts a server with what belongs to it; an error is why its rows are left out, and how to
/// install it.
pub(super) fn started(
    part: &ServerPart,
    delay: Option<Duration>,
    (args, cores, network): (&LabArgs, &[usize], LabNetwork<'_>),
    interrupt: &Interrupt,
) -> Result<Started, LeftOut> {
    let start = |pair| started_here(part, delay, (args, cores, pair), interrupt);
    match network {
        LabNetwork::Here => start(None),
        LabNetwork::Veth(pair) => start(Some(pair)),
        LabNetwork::Line(laid) => {
            laid.at_the_server(|| start(None)).map_err(|e| (e.to_string(), String::new()))?
        }
    }
}

fn started_here(
    part: &ServerPart,
    delay: Option<Duration>,
    (args, cores, pair): (&LabArgs, &[usize], Option<&VethPair>),
    interrupt: &Interrupt,
) -> Result<Started, LeftOut> {
    let other = |why: String| (why, String::new());
    let mut started = match (&part.command, &part.url) {
        (Some(command), _) => launched(part, command, (args, cores, pair), interrupt)?,
        (None, url) => {
            Started { server: None, relay: None, url: url.clone().unwrap_or_default(), _folder: None }
        }
    };
    if let Some(delay) = delay {
        let to: SocketAddr = address(&started.url)
            .ok_or_else(|| other(format!("{} has no address that a relay can reach", started.url)))?;
        let relay =
            LabRelay::start(to, delay).map_err(|e| other(format!("the relay could not be started: {e}")))?;
        started.url = format!("http://{}/", relay.address());
        started.relay = Some(relay);
    }
    Ok(started)
}

/// The address of an `http://` URL.
fn address(url: &str) -> Option<SocketAddr> {
    use std::net::ToSocketAddrs;
    let authority = origin(url).strip_prefix("http://")?;
    let with_port = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    with_port.to_socket_addrs().ok()?.next()
}

fn launched(
    part: &ServerPart,
    command: &str,
    (args, cores, pair): (&LabArgs, &[usize], Option<&VethPair>),
    interrupt: &Interrupt,
) -> Result<Started, LeftOut> {
    let other = |why: String| (why, String::new());
    let mut words = shell_words::split(command).map_err(|e| other(e.to_string()))?;
    look_for(part, words.first(), interrupt)?;
    let cores = own_cores(part, cores).map_err(other)?;
    // This very program, wherever it is.
    if words.first().is_some_and(|w| w == "linerate")
        && let Ok(me) = std::env::current_exe()
    {
        words[0] = me.display().to_string();
    }
    let port = free_port().map_err(|e| other(format!("no port is free: {e}")))?;
    let mut places = Places::of(port, pair);
    let mut own = None;
    if let Some(build) = &part.build {
        places.dir = built(part, build, args, interrupt)?.display().to_string();
    } else if !part.files.is_empty() {
        own = Some(folder(part, &mut places).map_err(other)?);
    }
    let entered = pair.map(VethPair::enter).unwrap_or_default();
    let recipe = Recipe {
        words: entered.into_iter().chain(words.iter().map(|w| places.fill(w))).collect(),
        url: Some(format!("{}://{}/", part.scheme(), places.fill("{address}:{port}"))),
        cores: cores.to_vec(),
        patience: args.ready_within,
    };
    match recipe.start(&|| interrupt.asked()) {
        Ok(server) => {
            let url = server.url().to_owned();
            Ok(Started { server: Some(server), relay: None, url, _folder: own })
        }
        Err(ServerTrouble::Interrupted) => Err(other("interrupted".to_owned())),
        Err(trouble) => Err((format!("{} did not start: {trouble}", part.name), part.install.clone())),
    }
}

/// The cores that a server is given, of those for servers.
fn own_cores<'a>(part: &ServerPart, cores: &'a [usize]) -> Result<&'a [usize], String> {
    let Some(wanted) = part.cores else { return Ok(cores) };
    let there = if cores.is_empty() { machine::allowed_cores().len() } else { cores.len() };
    if wanted > there {
        let needs = units::several(wanted as u64, "core", "cores");
        return Err(format!("its server needs {needs} of its own, and servers have {there} here"));
    }
    // Without cores of their own they share all.
    Ok(cores.get(..wanted).unwrap_or(cores))
}

/// Looks for what a server needs.
fn look_for(part: &ServerPart, program: Option<&String>, interrupt: &Interrupt) -> Result<(), LeftOut> {
    // A program that is built need not be there yet.
    let program = program.filter(|p| part.build.is_none() && *p != "linerate");
    for program in program.into_iter().chain(&part.needs) {
        if !is_installed(program) {
            return Err((format!("{program} is not installed"), part.install.clone()));
        }
    }
    match &part.check {
        Some(check) if !succeeds(check, Stdio::null, interrupt) => {
            Err((format!("{} is not installed ({check} fails)", part.name), part.install.clone()))
        }
        _ => Ok(()),
    }
}

/// Runs a command to its end, or until the user asks to stop.
fn succeeds(command: &str, output: fn() -> Stdio, interrupt: &Interrupt) -> bool {
    let words = shell_words::split(command).unwrap_or_default();
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output());
    let Ok(mut child) = command.spawn() else { return false };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if !interrupt.asked() => thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// The folder in which a server was built. It is kept, because building downloads and takes long.
fn built(part: &ServerPart, build: &str, args: &LabArgs, interrupt: &Interrupt) -> Result<PathBuf, LeftOut> {
    let other = |why: String| (why, String::new());
    let place = cache().ok_or_else(|| other("neither XDG_CACHE_HOME nor HOME is set".to_owned()))?;
    let mut hasher = DefaultHasher::new();
    (build, &part.files).hash(&mut hasher);
    let path = place.join("linerate/lab").join(format!("{}-{:016x}", part.name, hasher.finish()));
    // It is written last, so what was interrupted is built again.
    let done = path.join("built");
    if done.is_file() {
        return Ok(path);
    }
    if !args.build {
        let scenario = args.scenario.as_deref().unwrap_or_default();
        let why = format!("{} has to be built, which downloads its libraries", part.name);
        return Err((why, format!("linerate lab {scenario} --build")));
    }
    let cannot =
        |e: std::io::Error| other(format!("its files could not be written to {}: {e}", path.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(cannot)?;
    let places = Places { dir: path.display().to_string(), ..Places::of(0, None) };
    places.write_files(part, &path).map_err(cannot)?;
    let output = if args.quiet { Stdio::null } else { Stdio::inherit };
    let command = places.fill(build);
    if !succeeds(&command, output, interrupt) {
        return Err(other(format!("{} cannot be built: {command} fails", part.name)));
    }
    std::fs::write(done, "").map_err(cannot)?;
    Ok(path)
}

/// The user's folder for what can be made again.
fn cache() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|v: &OsString| !v.is_empty()).map(PathBuf::from);
    of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache"))).filter(|p| p.is_absolute())
}

/// What commands and files leave open.
struct Places {
    port: u16,
    address: &'static str,
    interface: &'static str,
    dir: String,
}

impl Places {
    fn of(port: u16, pair: Option<&VethPair>) -> Places {
        let (interface, address) = if pair.is_some() { veth::SERVER } else { ("lo", "127.0.0.1") };
        Places { port, address, interface, dir: String::new() }
    }

    fn fill(&self, text: &str) -> String {
        let text = text.replace("{port}", &self.port.to_string()).replace("{address}", self.address);
        text.replace("{interface}", self.interface).replace("{dir}", &self.dir)
    }

    /// Writes a server's files into a folder.
    fn write_files(&self, part: &ServerPart, folder: &Path) -> std::io::Result<()> {
        for (name, text) in &part.files {
            std::fs::write(folder.join(name), self.fill(text))?;
        }
        Ok(())
    }
}

fn free_port() -> std::io::Result<u16> {
    std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|a| a.port())
}

/// Whether a program is there, by its path or in PATH.
fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are found where only root's PATH leads.
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
        .any(|folder| folder.join(program).is_file())
}

/// A new folder with a server's files. Only this user may read it.
fn folder(part: &ServerPart, places: &mut Places) -> Result<Folder, String> {
    let path = std::env::temp_dir().join(format!("linerate-lab-{}-{}", std::process::id(), places.port));
    places.dir = path.display().to_string();
    let cannot = |e: std::io::Error| format!("its files could not be written to {}: {e}", path.display());
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(cannot)?;
    let folder = Folder(path.clone());
    places.write_files(part, &path).map_err(cannot)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_command() {
        let interrupt = Interrupt::default();
        let part = |text: &str| -> ServerPart {
            let text = format!(
                "name = 'a'\nabout = 'b'\n[[server]]\nname = 's'\ninstall = 'get it'\n{text}\n\
                 [[group]]\nname = 'g'\n[[group.row]]\nname = 'r'\nserver = 's'\n"
            );
            linerate_lab::scenario::parse(&text).unwrap().servers.remove(0)
        };
        let looked = |text: &str| look_for(&part(text), Some(&"sh".to_owned()), &interrupt);
        assert_eq!(looked("command = 'sh'"), Ok(()));
        assert_eq!(looked("command = 'sh'\nneeds = ['/bin/sh']\ncheck = 'true'"), Ok(()));
        for (text, why) in [
            ("command = 'sh'\nneeds = ['/no/such.jar']", "/no/such.jar is not installed"),
            ("command = 'sh'\ncheck = 'sh -c \"exit 1\"'", "s is not installed (sh -c \"exit 1\" fails)"),
            ("command = 'sh'\ncheck = '/no/such'", "s is not installed (/no/such fails)"),
        ] {
            assert_eq!(looked(text), Err((why.to_owned(), "get it".to_owned())), "{text}");
        }
    }

    #[test]
    fn a_server_that_needs_more_cores_than_there_are_is_left_out() {
        let part = |n: usize| {
            let text = format!(
                "name = 'a'\nabout = 'b'\n[[server]]\nname = 's'\ncommand = 'sh'\ncores = {n}\n\
                 [[group]]\nname = 'g'\n[[group.row]]\nname = 'r'\nserver = 's'\n"
            );
            linerate_lab::scenario::parse(&text).map(|mut scenario| scenario.servers.remove(0))
        };
        assert_eq!(own_cores(&part(2).unwrap(), &[4, 5, 6]), Ok(&[4, 5][..]));
        let why = own_cores(&part(2).unwrap(), &[4]).unwrap_err();
        assert_eq!(why, "its server needs 2 cores of its own, and servers have 1 here");
        assert!(part(0).is_err());
    }

    #[test]
    fn the_address_of_a_url_is_found() {
        assert_eq!(address("http://127.0.0.1/x"), Some(([127, 0, 0, 1], 80).into()));
        assert_eq!(address("https://127.0.0.1/"), None);
    }
}
