//! Two network namespaces with a veth pair between them. User-space TCP needs an interface of its
//! own, and nothing here may touch those of the machine.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{self, Command, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

/// The client's end: interface and address.
pub const CLIENT: (&str, &str) = ("lab-client", "10.78.0.2");

/// The servers' end: interface and address.
pub const SERVER: (&str, &str) = ("lab-server", "10.78.0.1");

/// A free address of the same network, for a client over user-space TCP.
pub const FROM: &str = "10.78.0.9";

/// Why there is no veth pair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VethTrouble {
    /// Namespaces are root's.
    #[error("network namespaces and AF_XDP need root")]
    NotRoot,
    /// `ip` or `nsenter`.
    #[error("ip or nsenter is not installed")]
    Missing,
    /// The kernel or a command refused something.
    #[error("{0}")]
    Other(String),
}

/// A veth pair. The calling thread is in the client's namespace.
#[derive(Debug)]
pub struct VethPair {
    // Both namespaces end with the last thread, process and descriptor in them, and the pair with them.
    server: File,
}

/// Runs `work` on a thread of its own in the client's namespace. The threads that it starts are
/// there too; no other thread of this process is.
pub fn inside<T: Send>(work: impl FnOnce(&VethPair) -> T + Send) -> Result<T, VethTrouble> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| VethPair::lay().map(|pair| work(&pair)));
        inside.join().unwrap_or_else(|_| Err(VethTrouble::Other("its thread panicked".to_owned())))
    })
}

impl VethPair {
    /// Lays it. The calling thread changes its namespace.
    fn lay() -> Result<VethPair, VethTrouble> {
        let server = new_namespace()?;
        let client = new_namespace()?;
        let pair = VethPair { server };
        let peer = pair.path();
        ip(&format!("link add {} type veth peer name {} netns {peer}", CLIENT.0, SERVER.0))?;
        end(CLIENT)?;
        enter(&pair.server)?;
        end(SERVER)?;
        enter(&client)?;
        Ok(pair)
    }

    /// Other processes reach the servers' namespace by this path as long as the pair is there.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.server.as_raw_fd())
    }

    /// Words in front of a server's command, so that it runs in the servers' namespace.
    pub fn enter(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net={}", self.path()), "--".to_owned()]
    }
}

/// Moves the calling thread to a new network namespace.
fn new_namespace() -> Result<File, VethTrouble> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
        Errno::EPERM => VethTrouble::NotRoot,
        e => VethTrouble::Other(format!("a network namespace cannot be made: {}", e.desc())),
    })?;
    File::open("/proc/thread-self/ns/net")
        .map_err(|e| VethTrouble::Other(format!("/proc/thread-self/ns/net: {e}")))
}

fn enter(namespace: &File) -> Result<(), VethTrouble> {
    setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|e| VethTrouble::Other(format!("a network namespace cannot be entered: {}", e.desc())))
}

/// Gives the calling thread's end its address.
fn end((interface, address): (&str, &str)) -> Result<(), VethTrouble> {
    ip(&format!("address add {address}/24 dev {interface}"))?;
    ip(&format!("link set {interface} up"))?;
    ip("link set lo up")
}

/// Runs `ip` in the calling thread's namespace.
fn ip(words: &str) -> Result<(), VethTrouble> {
    let other = |why: &str| VethTrouble::Other(format!("ip {words}: {}", why.trim()));
    let done = Command::new("ip").args(words.split(' ')).stdin(Stdio::null()).output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(other(&String::from_utf8_lossy(&done.stderr))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(VethTrouble::Missing),
        Err(e) => Err(other(&e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_pair_is_seen_inside_alone() {
        let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let there = inside(|pair| {
            let server = std::fs::read_link(pair.path()).unwrap();
            // No server: its namespace refuses the connection, so the way to it is open.
            let refused = TcpStream::connect((SERVER.1, 1)).map_err(|e| e.kind());
            let bound = TcpListener::bind((CLIENT.1, 0)).is_ok();
            (std::fs::read_link("/proc/thread-self/ns/net").unwrap(), server, refused.err(), bound)
        });
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), here);
        match there {
            Ok((client, server, refused, bound)) => {
                assert!(client != here && server != here && client != server);
                assert_eq!((refused, bound), (Some(io::ErrorKind::ConnectionRefused), true));
            }
            // Not every machine that runs the tests lets them.
            Err(trouble) => {
                assert!(matches!(trouble, VethTrouble::NotRoot | VethTrouble::Missing), "{trouble}")
            }
        }
    }
}
