//! Opening a share of an interface. Everything is checked and opened before the first packet is
//! redirected.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::Time;
use crate::clock::{Clock, monotonic};
use crate::link::Checksums;
use crate::sys::EventFd;
use crate::sys::xdp::{
    self, Attachment, BpfMap, Config, MapKind, Mode, Program, QueueSocket, SocketAbilities,
};

use super::addresses::BorrowedAddresses;
use super::ethernet::Mac;
use super::neighbours::Neighbours;
use super::netlink::{Interface, Netlink};
use super::news::Monitor;
use super::preflight::{self, XdpError};
use super::program::{Ours, program};
use super::steer::Rule;
use super::{Steer, Xdp, XdpCounts, ethernet, limits};

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, with zero-copy if supported; otherwise in the kernel's receive path.
    #[default]
    Auto,
    /// In the driver, with copies.
    Native,
    /// In the kernel's receive path, which every interface supports.
    Generic,
}

/// How to open an interface.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// Which packets to redirect.
    pub steer: Steer,
    /// Number of links, one for each thread. An interface never gets more links than it has receive
    /// queues.
    pub threads: usize,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Poll the card's queue from the working thread, for this long at a time
    /// (SO_PREFER_BUSY_POLL). Interrupts only stop if the interface's `napi_defer_hard_irqs` and
    /// `gro_flush_timeout` are set. Those outlive a process, so they are not set here.
    pub busy_poll: Option<Duration>,
    /// Which side verifies checksums.
    pub checksums: Checksums,
}

impl XdpOptions {
    /// The default: one thread, the best mode, all checksums verified.
    pub fn new(interface: impl Into<String>, steer: Steer) -> XdpOptions {
        XdpOptions {
            interface: interface.into(),
            steer,
            threads: 1,
            mode: XdpMode::default(),
            busy_poll: None,
            checksums: Checksums::Full,
        }
    }
}

/// The opened links and what they use.
#[derive(Debug)]
pub struct Opened {
    /// One link for each thread, each with its share of the receive queues.
    pub links: Vec<Xdp>,
    /// A server's addresses, with the chosen ports in place of 0.
    pub listen: Vec<SocketAddr>,
    /// The interface's addresses, for which an unspecified address stands.
    pub addresses: Vec<IpAddr>,
    /// The mode: "native, zero-copy", "native, copy" or "generic, copy".
    pub how: &'static str,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// State that the links of an interface share. Dropping the last of them detaches the program.
#[derive(Debug)]
pub(super) struct SharedInterface {
    pub(super) interface: String,
    pub(super) rules: Vec<Rule>,
    pub(super) holder: InterfaceHolder,
}

/// Who has attached the program.
#[derive(Debug)]
pub(super) enum InterfaceHolder {
    /// This process.
    Us {
        attachment: Attachment,
        map: BpfMap<4>,
        /// Bound but not listening, to keep other programs off the server's ports.
        _reserved: Vec<Socket>,
    },
    /// The lender at the other end.
    Lender(OwnedFd),
}

impl SharedInterface {
    /// Follows a change of the interface's MAC address. A lender does so by itself.
    pub(super) fn steer_to(&self, mac: Mac) -> io::Result<()> {
        let InterfaceHolder::Us { attachment, map, .. } = &self.holder else { return Ok(()) };
        let ours = Ours::ToSocket { map: map.number() };
        attachment.replace(&Program::load(&program(&self.rules, mac, ours))?)
    }

    /// The lender, if it has attached the program.
    pub(super) fn lender(&self) -> Option<BorrowedFd<'_>> {
        match &self.holder {
            InterfaceHolder::Lender(control) => Some(control.as_fd()),
            InterfaceHolder::Us { .. } => None,
        }
    }

    /// Whether packets to this address are redirected to us.
    pub(super) fn steers(&self, address: IpAddr) -> bool {
        self.rules.iter().any(|rule| rule.address == address)
    }
}

/// Opens an interface.
///
/// # Errors
/// Something is missing or in the way; the error says in words what to do. Nothing has changed
/// then.
pub fn open(options: &XdpOptions) -> Result<Opened, XdpError> {
    let name = &options.interface;
    let FoundInterface { mut netlink, interface, mac, queues } = find(name)?;
    let mut notes = Vec::new();
    let threads = threads(options, queues, &mut notes);
    if queues as usize > threads * limits::QUEUES_PER_THREAD {
        return Err(preflight::too_many_queues(name, queues, threads));
    }
    let (steer, reserved) = reserve(&options.steer)?;
    let networks = netlink.networks().map_err(|e| preflight::kernel("its addresses", &e))?;
    notes.extend(preflight::shared_network(name, interface.index, &networks));
    let own: Vec<IpAddr> =
        (networks.iter()).filter(|(of, ..)| *of == interface.index).map(|(_, address, _)| *address).collect();
    let rules = rules(name, &steer, &own)?;
    let from = if let Steer::From(from) = &steer { &from[..] } else { &[] };
    let mut borrowed = BorrowedAddresses::borrow(&mut netlink, interface.index, name, from, monotonic())?;
    let taken = take(options, &interface, queues, |map| program(&rules, mac, Ours::ToSocket { map }))?;
    notes.extend(taken.notes);
    let shared = Arc::new(SharedInterface {
        interface: name.clone(),
        rules,
        holder: InterfaceHolder::Us { attachment: taken.attachment, map: taken.map, _reserved: reserved },
    });
    let mut parts: Vec<Vec<QueueSocket>> = (0..threads).map(|_| Vec::new()).collect();
    for (queue, socket) in taken.sockets.into_iter().enumerate() {
        parts[queue % threads].push(socket);
    }
    let link = |(n, queues): (usize, _)| {
        let (addresses, shared) = (borrowed.take(), Arc::clone(&shared));
        let part = LinkPart { addresses, is_generic: taken.mode == Mode::Generic, speaks: n == 0 };
        Xdp::new(queues, &interface, mac, options.checksums, shared, part)
    };
    let links: io::Result<Vec<Xdp>> = parts.into_iter().enumerate().map(link).collect();
    let links = links.map_err(|e| preflight::refused("a descriptor", &e))?;
    let listen = if let Steer::Listen(places) = steer { places } else { Vec::new() };
    Ok(Opened { links, listen, addresses: own, how: taken.how, notes })
}

/// An interface that can be used.
pub(super) struct FoundInterface {
    pub(super) netlink: Netlink,
    pub(super) interface: Interface,
    pub(super) mac: Mac,
    /// Receive queues.
    pub(super) queues: u32,
}

/// Looks at an interface, and whether this process may use it.
pub(super) fn find(name: &str) -> Result<FoundInterface, XdpError> {
    preflight::capabilities()?;
    let mut netlink = Netlink::open().map_err(|e| preflight::kernel("about interfaces", &e))?;
    let interface = patiently(|| usable(&mut netlink, name), |e| *e == preflight::has_program(name))?;
    let mac = interface.mac.ok_or_else(|| preflight::not_ethernet(name))?;
    // If the limit cannot be raised, a later step reports what is missing.
    let _ = xdp::memory_limit_raised();
    let queues =
        xdp::receive_queues(name).map_err(|e| preflight::kernel("how many receive queues there are", &e))?;
    Ok(FoundInterface { netlink, interface, mac, queues })
}

/// What differs between the links of an interface.
pub(super) struct LinkPart {
    pub(super) addresses: Option<BorrowedAddresses>,
    /// The program runs in the kernel's receive path.
    pub(super) is_generic: bool,
    /// It speaks for all.
    pub(super) speaks: bool,
}

impl Xdp {
    pub(super) fn new(
        queues: Vec<QueueSocket>,
        interface: &Interface,
        mac: Mac,
        checksums: Checksums,
        shared: Arc<SharedInterface>,
        part: LinkPart,
    ) -> io::Result<Xdp> {
        let largest = frame_bytes(interface) - xdp::HEADROOM - ethernet::HEADER;
        Ok(Xdp {
            queues,
            detour: None,
            first: 0,
            mac,
            interface: interface.index,
            mtu: interface.mtu.min(largest),
            largest,
            checksums,
            // The kernel's receive path hands over segments that it has put together, too.
            completes: checksums == Checksums::Full
                && (part.is_generic || xdp::is_software(&shared.interface)),
            neighbours: Neighbours::new(),
            netlink: Netlink::open()?,
            looked_for: Vec::new(),
            look_again: Time::ZERO,
            next_epoch: monotonic() + limits::EPOCH,
            wake: Arc::new(EventFd::new()?),
            look_for_wake: Time::ZERO,
            clock: Clock::default(),
            counts: XdpCounts::default(),
            addresses: part.addresses,
            monitor: Monitor::open(interface.index)?,
            look_for_news: Time::ZERO,
            is_up: true,
            was_up: true,
            unsure: true,
            speaks: part.speaks,
            said: VecDeque::new(),
            lost_large: false,
            shared,
        })
    }
}

pub(super) fn rules(name: &str, steer: &Steer, own: &[IpAddr]) -> Result<Vec<Rule>, XdpError> {
    let rules = steer.rules(own);
    if (1..=limits::RULES).contains(&rules.len()) {
        return Ok(rules);
    }
    Err(preflight::error(
        format!("{name} has {} addresses and ports to be steered by", rules.len()),
        format!("1 to {} are possible: name the address to listen on, or fewer of them", limits::RULES),
    ))
}

/// The interface, if it can be used.
fn usable(netlink: &mut Netlink, name: &str) -> Result<Interface, XdpError> {
    let interface = netlink.interface(name).map_err(|e| preflight::kernel("about interfaces", &e))?;
    let interface = interface.ok_or_else(|| preflight::no_interface(name))?;
    match () {
        () if interface.mac.is_none() || interface.loopback => Err(preflight::not_ethernet(name)),
        () if !interface.up => Err(preflight::is_down(name)),
        () if interface.has_program => Err(preflight::has_program(name)),
        () => Ok(interface),
    }
}

/// How many threads can have a share.
fn threads(options: &XdpOptions, queues: u32, notes: &mut Vec<String>) -> usize {
    let name = &options.interface;
    let wanted = options.threads.max(1);
    let mut most = queues as usize;
    // Packets to a client arrive on the queue that the card's hash selects. Only veth keeps them on
    // the queue that the request left by.
    if matches!(options.steer, Steer::From(_)) && queues > 1 && !xdp::is_veth(name) {
        most = 1;
        if wanted > 1 {
            notes.push(format!(
                "one thread drives all {queues} receive queues of {name}: answers come on any of them"
            ));
        }
    } else if wanted > most {
        notes.push(format!(
            "{most} of {wanted} threads: {name} has {queues} receive queue{} (ethtool -L {name} may give it more)",
            if queues == 1 { "" } else { "s" }
        ));
    }
    wanted.min(most)
}

/// Binds a server's addresses with the kernel, without listening. No other program and no
/// connection of the kernel can then take the port, and port 0 picks one.
fn reserve(steer: &Steer) -> Result<(Steer, Vec<Socket>), XdpError> {
    let Steer::Listen(places) = steer else { return Ok((steer.clone(), Vec::new())) };
    let mut sockets = Vec::new();
    let mut bound = Vec::new();
    for &place in places {
        let bind = || -> io::Result<(Socket, SocketAddr)> {
            let socket = Socket::new(Domain::for_address(place), Type::STREAM.cloexec(), None)?;
            if place.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            // Connections of an earlier server in TIME-WAIT do not prevent it.
            socket.set_reuse_address(true)?;
            socket.bind(&place.into())?;
            let at = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok((socket, at))
        };
        let (socket, at) = patiently(bind, busy).map_err(|e| preflight::cannot_reserve(place, &e))?;
        sockets.push(socket);
        bound.push(at);
    }
    Ok((Steer::Listen(bound), sockets))
}

pub(super) fn frame_bytes(interface: &Interface) -> usize {
    let needed = interface.mtu + ethernet::HEADER + xdp::HEADROOM;
    if needed <= 2048 { 2048 } else { 4096 }
}

struct TakenQueues {
    sockets: Vec<QueueSocket>,
    map: BpfMap<4>,
    attachment: Attachment,
    how: &'static str,
    notes: Vec<String>,
    mode: Mode,
}

/// Opens a socket on each queue and attaches the program, in the best mode that works.
fn take(
    options: &XdpOptions,
    interface: &Interface,
    queues: u32,
    program: impl Fn(u32) -> Vec<u64>,
) -> Result<TakenQueues, XdpError> {
    let (sockets, _) = sockets(options, interface, queues, QueueSocket::open)?;
    let map = BpfMap::new(MapKind::Sockets, queues).map_err(|e| preflight::refused("a BPF map", &e))?;
    for (queue, socket) in (0..queues).zip(&sockets) {
        map.set(queue.to_ne_bytes(), socket.as_fd().as_raw_fd() as u32)
            .map_err(|e| preflight::refused("the map of sockets", &e))?;
    }
    let loaded =
        Program::load(&program(map.number())).map_err(|e| preflight::refused("the XDP program", &e))?;
    let abilities = SocketAbilities::of_all(sockets.iter().map(QueueSocket::abilities));
    let AttachedProgram { attachment, how, notes, mode } =
        attach(options, interface.index, &loaded, abilities)?;
    Ok(TakenQueues { sockets, map, attachment, how, notes, mode })
}

/// An attached program and how it runs.
pub(super) struct AttachedProgram {
    pub(super) attachment: Attachment,
    pub(super) how: &'static str,
    pub(super) notes: Vec<String>,
    pub(super) mode: Mode,
}

/// Attaches a program in the best mode that works.
pub(super) fn attach(
    options: &XdpOptions,
    interface: u32,
    loaded: &Program,
    abilities: SocketAbilities,
) -> Result<AttachedProgram, XdpError> {
    let modes = match options.mode {
        XdpMode::Auto => &[Mode::Native, Mode::Generic][..],
        XdpMode::Native => &[Mode::Native],
        XdpMode::Generic => &[Mode::Generic],
    };
    let mut refusal: Option<io::Error> = None;
    for &mode in modes {
        match patiently(|| Attachment::new(loaded, interface, mode), busy) {
            Ok(attachment) => {
                let how = match mode {
                    Mode::Native if abilities.zero_copy => "native, zero-copy",
                    Mode::Native => "native, copy",
                    Mode::Generic => "generic, copy",
                };
                let note = refusal.map(|e| {
                    format!(
                        "the driver of {} cannot run XDP programs ({}): generic mode, slower",
                        options.interface,
                        preflight::in_words(&e)
                    )
                });
                // In the driver, the kernel does without offloads by itself.
                let whole = (mode == Mode::Generic && !abilities.spans)
                    .then(|| preflight::frames_only(&options.interface));
                let notes = note.into_iter().chain(whole).collect();
                return Ok(AttachedProgram { attachment, how, notes, mode });
            }
            Err(e) if busy(&e) => return Err(preflight::has_program(&options.interface)),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                return Err(preflight::refused("the XDP program", &e));
            }
            // The driver's own message says most.
            Err(e) => refusal = refusal.or(Some(e)),
        }
    }
    let error = refusal.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(preflight::refused(&format!("an XDP program on {}", options.interface), &error))
}

/// Opens a socket on each queue, with frames for floods if there is memory for them, else with the
/// normal number.
pub(super) fn sockets<S>(
    options: &XdpOptions,
    interface: &Interface,
    queues: u32,
    open: impl Fn(u32, u32, &Config) -> io::Result<S>,
) -> Result<(Vec<S>, Config), XdpError> {
    // No virtual interface can do it, and to hear that takes 5 ms.
    let zero_copy = options.mode == XdpMode::Auto && !xdp::is_software(&options.interface);
    let config = |receive_frames| Config {
        frames: limits::FRAMES,
        receive_frames,
        frame_bytes: frame_bytes(interface),
        zero_copy,
        busy_poll: options.busy_poll,
    };
    let (large, usual) = (config(limits::FLOOD_FRAMES), config(limits::FRAMES));
    let name = &options.interface;
    let all = |config: &Config, waits| {
        sockets_of(name, queues, waits, |queue| open(interface.index, queue, config))
    };
    if large.memory() * queues as usize <= limits::FLOOD_MEMORY
        && let Some(sockets) = all(&large, false)?
    {
        return Ok((sockets, large));
    }
    let sockets = all(&usual, true)?;
    let sockets = sockets.ok_or_else(|| preflight::too_little_memory(name, queues, usual.memory()))?;
    Ok((sockets, usual))
}

/// `None` if there is too little memory. `waits`: waits for memory that was just released.
fn sockets_of<S>(
    name: &str,
    queues: u32,
    waits: bool,
    open: impl Fn(u32) -> io::Result<S>,
) -> Result<Option<Vec<S>>, XdpError> {
    let mut sockets = Vec::new();
    let no_memory = |e: &io::Error| e.raw_os_error() == Some(libc::ENOBUFS);
    for queue in 0..queues {
        let leaving = |e: &io::Error| busy(e) || (waits && no_memory(e));
        match patiently(|| open(queue), leaving) {
            Ok(socket) => sockets.push(socket),
            Err(e) if busy(&e) => return Err(preflight::queue_busy(name, queue)),
            Err(e) if no_memory(&e) => return Ok(None),
            Err(e) => return Err(preflight::refused("an AF_XDP socket", &e)),
        }
    }
    Ok(Some(sockets))
}

/// Retries for a while if whatever is in the way is just leaving.
pub(super) fn patiently<T, E>(
    mut what: impl FnMut() -> Result<T, E>,
    leaving: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let until = monotonic() + limits::BUSY_PATIENCE;
    loop {
        match what() {
            Err(e) if leaving(&e) && monotonic() < until => thread::sleep(limits::LOOK_AGAIN),
            result => return result,
        }
    }
}

pub(super) fn busy(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::EADDRINUSE))
}
