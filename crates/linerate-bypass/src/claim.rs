//! Which listeners are ours, and the opening of the interface: not before somebody waits for a
//! connection, because programs fork between `listen` and then.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use linerate_net::HostSecret;
use linerate_net::link::xdp::{self, Steer, XdpOptions};
use linerate_net::sockets::Sockets;
use linerate_net::stack::{Stack, StackOptions, UseOfEcn};

use crate::messages::tell;
use crate::options::{SocketFamily, StoredOptions};
use crate::table::{self, DescriptorKind};
use crate::world::{BypassWorld, errno_of};
use crate::{kernel, process};

/// Connections that wait to be accepted, at least.
const BACKLOG: u32 = 4096;

struct ClaimedAddresses {
    interface: String,
    addresses: Vec<SocketAddr>,
}

static WANTED: OnceLock<Option<ClaimedAddresses>> = OnceLock::new();

fn wanted() -> Option<&'static ClaimedAddresses> {
    WANTED.get_or_init(|| parse(&std::env::var(crate::CONFIGURATION).ok()?)).as_ref()
}

/// `IF;ADDR:PORT,ADDR:PORT`.
fn parse(text: &str) -> Option<ClaimedAddresses> {
    let parsed = text.split_once(';').and_then(|(interface, list)| {
        let addresses = list.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(ClaimedAddresses { interface: interface.to_owned(), addresses })
    });
    if parsed.is_none() {
        tell(&format!("{}={text} is not IF;ADDR:PORT: all is left to the kernel", crate::CONFIGURATION));
    }
    parsed
}

/// The program listens on `fd`, which is bound to this address.
pub(crate) fn listens(fd: i32, family: SocketFamily, at: SocketAddr) {
    let matches = |named: &SocketAddr| {
        named.port() == at.port()
            && (named.ip() == at.ip()
                || (at.ip().is_unspecified()
                    && (named.is_ipv4() == at.is_ipv4() || family == SocketFamily::V6)))
    };
    if wanted().is_some_and(|wanted| wanted.addresses.iter().any(matches)) {
        table::set(fd, DescriptorKind::Named);
    }
}

/// Somebody waits for the connections of a named listener: they are ours from now on. `at`: its
/// address. If that fails, they stay the kernel's.
pub(crate) fn claim(fd: i32, family: SocketFamily, at: SocketAddr) {
    // Once, whatever becomes of it.
    table::set(fd, DescriptorKind::Kernel);
    let Some(wanted) = wanted() else { return };
    if !process::open(|| open(wanted)) {
        return;
    }
    let mut stored = StoredOptions::default();
    let nonblocking = kernel::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    let claimed = process::with_world(|world| {
        let mut named = wanted.addresses.iter().filter(|named| named.port() == at.port());
        let named =
            *named.find(|named| at.ip().is_unspecified() || at.ip() == named.ip()).ok_or(libc::EINVAL)?;
        let id = world.net.socket().map_err(errno_of)?;
        world.net.bind(id, named).map_err(errno_of)?;
        world.net.listen(id, BACKLOG).map_err(errno_of)?;
        stored.inherit(fd, family, world.net.options_mut(id).map_err(errno_of)?);
        // The kernel's queue is looked at without waiting.
        let flags = kernel::fcntl(fd, libc::F_GETFL, 0)?;
        kernel::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize)?;
        world.add_listener(fd, family, id, std::mem::take(&mut stored), nonblocking);
        Ok(named)
    });
    match claimed {
        Ok(named) => tell(&format!(
            "{named} is served by TCP in user space over {}, process {}",
            wanted.interface,
            std::process::id()
        )),
        Err(libc::EADDRINUSE) => {}
        Err(errno) => tell(&format!("{at} stays the kernel's: {}", std::io::Error::from_raw_os_error(errno))),
    }
}

fn open(wanted: &ClaimedAddresses) -> Option<(BypassWorld, Vec<i32>)> {
    let descriptors = || -> Vec<i32> {
        let folder = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    };
    let before = descriptors();
    let steer = Steer::Listen(wanted.addresses.clone());
    let options = XdpOptions { beside_kernel: true, ..XdpOptions::new(wanted.interface.as_str(), steer) };
    let opened = xdp::open(&options);
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let process = std::process::id();
            tell(&format!(
                "process {process} serves from the kernel: {}\n  hint: {}",
                error.problem, error.hint
            ));
            return None;
        }
    };
    opened.notes.iter().for_each(|note| tell(note));
    let link = opened.links.pop()?;
    let mut addresses: Vec<IpAddr> = wanted.addresses.iter().map(SocketAddr::ip).collect();
    addresses.dedup();
    let options = StackOptions {
        addresses,
        host: HostSecret::of_this_machine(),
        ecn: UseOfEcn::of_this_machine(),
        ..StackOptions::default()
    };
    let new = descriptors().into_iter().filter(|fd| !before.contains(fd) && kernel::is_of_xdp(*fd)).collect();
    Some((BypassWorld::new(Sockets::new(Stack::new(link, options))), new))
}

/// Whether anything may be ours in this process.
pub(crate) fn is_configured() -> bool {
    wanted().is_some()
}
