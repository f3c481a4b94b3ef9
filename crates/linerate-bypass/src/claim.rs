//! Which listeners are ours, and the asking for receive queues: not before somebody waits for a
//! connection, because programs fork between `listen` and then.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_net::link::pcap::{self, Pcap, PcapFile};
use linerate_net::link::xdp::{Borrower, LendersReply, Xdp};
use linerate_net::sockets::Sockets;
use linerate_net::stack::{Stack, StackOptions, UseOfEcn};
use linerate_net::{HostSecret, machine};

use crate::kernel::SignalMask;
use crate::messages::{tell, tell_once};
use crate::options::{SocketFamily, StoredOptions};
use crate::process::locked;
use crate::table::{self, DescriptorKind};
use crate::world::{BypassWorld, errno_of};
use crate::{kernel, polling, process, tally};

/// Connections that wait to be accepted, at least.
const BACKLOG: u32 = 4096;
/// How long the first reply of the launcher may take. Reason: it lends nothing for 0.1 s, and may then
/// wait a second for a queue that another process has just left.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a process without a queue looks whether it has got one. Reason: a look is a system call.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a process that passes its listeners on is left to accept the connections that it has already. Reason:
/// those that wait when it closes a listener are reset; nginx gives its old workers as long.
const ACCEPTS_THE_REST: Duration = Duration::from_millis(100);
/// Registrations of listeners in epolls that are remembered, at most. Reason: a bound; programs have a
/// few.
const REGISTERED: usize = 1024;

struct ClaimedAddresses {
    interface: String,
    /// The descriptor of the launcher.
    door: i32,
    addresses: Vec<SocketAddr>,
}

/// How far the asking has come.
enum QueueRequest {
    NotYet,
    /// When to look again.
    Waits(Borrower, Instant),
    /// The process has got queues, or will never get any.
    Over,
}

/// What came of asking.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskOutcome {
    Lent,
    Waits,
    Never,
}

/// A listener in an epoll of the kernel's.
#[derive(Clone, Copy)]
struct Registered {
    epoll: i32,
    listener: i32,
    event: (u32, u64),
}

static WANTED: OnceLock<Option<ClaimedAddresses>> = OnceLock::new();
static ASKING: Mutex<QueueRequest> = Mutex::new(QueueRequest::NotYet);
static WAITS: AtomicBool = AtomicBool::new(false);
static REGISTRATIONS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
/// Named listeners whose program wants calls to wait. The kernel's flag belongs to all processes, and the
/// first that gets queues sets it.
static BLOCKING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn wanted() -> Option<&'static ClaimedAddresses> {
    WANTED.get_or_init(|| parse(&std::env::var(crate::CONFIGURATION).ok()?)).as_ref()
}

/// `IF;DESCRIPTOR;ADDR:PORT,ADDR:PORT`.
fn parse(text: &str) -> Option<ClaimedAddresses> {
    let mut parts = text.split(';');
    let mut parsed = || {
        let (interface, door, list) = (parts.next()?, parts.next()?, parts.next()?);
        let addresses = list.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(ClaimedAddresses { interface: interface.to_owned(), door: door.parse().ok()?, addresses })
    };
    let parsed = parsed();
    if parsed.is_none() {
        tell(&format!(
            "{}={text} is not IF;DESCRIPTOR;ADDR:PORT: all is left to the kernel",
            crate::CONFIGURATION
        ));
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
        let flags = kernel::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        note_blocking(fd, flags & libc::O_NONBLOCK == 0);
    }
}

/// A named listener has come from another process, which may have queues and close the listener soon.
pub(crate) fn is_handed() {
    // Without a launcher there is nobody to tell.
    if let Some(wanted) = wanted()
        && Borrower::announce_successor(wanted.door).is_ok()
    {
        thread::sleep(ACCEPTS_THE_REST);
    }
}

/// Notes whether the program wants calls on a named listener to wait.
pub(crate) fn note_blocking(listener: i32, blocks: bool) {
    let mut list = locked(&BLOCKING);
    list.retain(|fd| *fd != listener);
    if blocks && list.len() < REGISTERED {
        list.push(listener);
    }
}

/// Whether calls on a named listener wait.
pub(crate) fn blocks(listener: i32) -> bool {
    locked(&BLOCKING).contains(&listener)
}

/// A listener's family and address.
type BoundTo = fn(i32) -> Option<(SocketFamily, SocketAddr)>;

/// Somebody waits for the connections of a named listener: they are ours if we get queues. While we
/// wait for queues, and without any, they are the kernel's.
pub(crate) fn claim(fd: i32, bound: BoundTo) {
    let Some(wanted) = wanted() else { return };
    match ask(wanted) {
        AskOutcome::Lent => take_all(wanted, Some(fd), bound),
        AskOutcome::Waits => {}
        AskOutcome::Never => {
            table::set(fd, DescriptorKind::Kernel);
        }
    }
}

/// Whether this process waits for queues.
pub(crate) fn waits() -> bool {
    WAITS.load(Ordering::Relaxed)
}

/// A process that waits for queues looks for them.
pub(crate) fn look(bound: BoundTo) {
    if let Some(wanted) = wanted()
        && ask(wanted) == AskOutcome::Lent
    {
        take_all(wanted, None, bound);
    }
}

/// How a wait beside the launcher ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BesideLauncher {
    /// So many of the kernel's are ready, or none and the time is over.
    Over(usize),
    /// The launcher has replied, which the next look finds.
    Replied,
}

/// Waits until one of these of the kernel's is ready, or the launcher has replied. Fills in what each is ready
/// for.
pub(crate) fn wait_beside(
    list: &mut [libc::pollfd],
    limit: Option<Duration>,
    signals: SignalMask,
) -> Result<BesideLauncher, i32> {
    let mut asking = locked(&ASKING);
    let QueueRequest::Waits(borrower, next) = &mut *asking else { return Ok(BesideLauncher::Replied) };
    let lender = borrower.descriptor().unwrap_or(-1);
    *next = Instant::now();
    drop(asking);
    let mut polled = list.to_vec();
    polled.push(libc::pollfd { fd: lender, events: libc::POLLIN, revents: 0 });
    let ready = kernel::poll(&mut polled, limit, signals)?;
    let replied = polled.pop().is_some_and(|entry| entry.revents != 0);
    list.copy_from_slice(&polled);
    match ready - usize::from(replied) {
        0 if replied => Ok(BesideLauncher::Replied),
        count => Ok(BesideLauncher::Over(count)),
    }
}

/// Takes a listener and those in epolls. Others of the same addresses that this process never waits for
/// are another process's.
fn take_all(wanted: &ClaimedAddresses, first: Option<i32>, bound: BoundTo) {
    let registered = std::mem::take(&mut *locked(&REGISTRATIONS));
    let listeners = first.into_iter().chain(registered.iter().map(|entry| entry.listener));
    for fd in listeners.filter(|fd| table::kind(*fd) == DescriptorKind::Named) {
        if let Some((family, at)) = bound(fd) {
            take(wanted, fd, family, at);
        }
    }
    for Registered { epoll, listener, event } in registered {
        if table::kind(listener) == DescriptorKind::Listener && kernel::epoll_has(epoll, listener) {
            // Without a set, the kernel's epoll remains.
            let _ = polling::watch(epoll, libc::EPOLL_CTL_ADD, listener, Some(event));
        }
    }
    begin();
}

/// Notes what the program does with a named listener in an epoll.
pub(crate) fn register(epoll: i32, op: i32, listener: i32, event: Option<(u32, u64)>) {
    let mut list = locked(&REGISTRATIONS);
    list.retain(|entry| (entry.epoll, entry.listener) != (epoll, listener));
    if let Some(event) = event.filter(|_| op != libc::EPOLL_CTL_DEL && list.len() < REGISTERED) {
        list.push(Registered { epoll, listener, event });
    }
}

/// The program closes a named listener. If it was the last, a process that waits for queues needs none.
pub(crate) fn unregister(listener: i32) {
    locked(&REGISTRATIONS).retain(|entry| entry.listener != listener);
    note_blocking(listener, false);
    let others = table::ours(0, u32::MAX)
        .any(|(fd, kind)| fd != listener && matches!(kind, DescriptorKind::Named | DescriptorKind::Listener));
    // Another thread that asks right now gets them all the same. A child has nothing of its parent's.
    if waits()
        && !others
        && !process::is_child()
        && let Ok(mut asking) = ASKING.try_lock()
    {
        let before = kernel::errno();
        WAITS.store(false, Ordering::Relaxed);
        *asking = QueueRequest::Over;
        process::hold(Vec::new());
        kernel::set_errno(before);
    }
}

/// Asks for queues, or looks whether they have come.
fn ask(wanted: &ClaimedAddresses) -> AskOutcome {
    let mut asking = match ASKING.try_lock() {
        Ok(asking) => asking,
        // Another thread asks.
        Err(TryLockError::WouldBlock) => return AskOutcome::Waits,
        Err(TryLockError::Poisoned(asking)) => asking.into_inner(),
    };
    if process::is_child() {
        return AskOutcome::Never;
    }
    let (mut borrower, limit) = match std::mem::replace(&mut *asking, QueueRequest::Over) {
        QueueRequest::Over => return if process::has_world() { AskOutcome::Lent } else { AskOutcome::Never },
        QueueRequest::Waits(borrower, next) if Instant::now() < next => {
            *asking = QueueRequest::Waits(borrower, next);
            return AskOutcome::Waits;
        }
        QueueRequest::Waits(borrower, _) => (borrower, Duration::ZERO),
        QueueRequest::NotYet => match Borrower::ask(wanted.door) {
            Ok(borrower) => {
                process::hold(borrower.descriptor().into_iter().collect());
                tally::begin(borrower.tally());
                (borrower, PATIENCE)
            }
            Err(error) => {
                tell_kernels(&format!("linerate bypass cannot be asked for a receive queue: {error}"));
                return AskOutcome::Never;
            }
        },
    };
    WAITS.store(false, Ordering::Relaxed);
    match borrower.reply(limit, &wanted.interface, &wanted.addresses) {
        Ok(Some(LendersReply::Lent { link, host, capture })) => {
            let world = world(wanted, recorded(*link, capture), host);
            process::hold(world.held());
            process::open(world);
            return AskOutcome::Lent;
        }
        Ok(Some(LendersReply::Gone)) => tell_kernels("linerate bypass has ended"),
        Err(error) => tell_kernels(&format!("{}\n  hint: {}", error.problem, error.hint)),
        Ok(waits) => {
            if let Some(LendersReply::Wait(why)) = waits {
                tell_kernels(&why);
            }
            WAITS.store(true, Ordering::Relaxed);
            *asking = QueueRequest::Waits(borrower, Instant::now() + LOOK_AGAIN);
            return AskOutcome::Waits;
        }
    }
    process::hold(Vec::new());
    AskOutcome::Never
}

fn tell_kernels(why: &str) {
    tell_once(&format!("process {} serves from the kernel: {why}", std::process::id()));
}

/// `at`: the listener's address.
fn take(wanted: &ClaimedAddresses, fd: i32, family: SocketFamily, at: SocketAddr) {
    // Once, whatever becomes of it.
    table::set(fd, DescriptorKind::Kernel);
    let mut stored = StoredOptions::default();
    let nonblocking = !blocks(fd);
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
        world.to_announce.push(format!("{named} is served by TCP in user space over {}", wanted.interface));
        Ok(())
    });
    match claimed {
        Ok(()) | Err(libc::EADDRINUSE) => {}
        Err(errno) => tell(&format!("{at} stays the kernel's: {}", std::io::Error::from_raw_os_error(errno))),
    }
}

/// The listeners are there: packets may come.
fn begin() {
    let announced = process::with_world(|world| {
        world.begin();
        Ok(std::mem::take(&mut world.to_announce))
    });
    for words in announced.into_iter().flatten() {
        tell(&format!("{words}, process {}", std::process::id()));
    }
}

/// A link whose packets go to the launcher's file, if it has one.
fn recorded(link: Xdp, capture: Option<File>) -> Pcap<Xdp> {
    let shared = |file| PcapFile::shared(file, pcap::FILE_BYTES, machine::wall_offset_ns());
    Pcap::new(link, capture.map(shared))
}

fn world(wanted: &ClaimedAddresses, link: Pcap<Xdp>, host: Option<HostSecret>) -> BypassWorld {
    let mut addresses: Vec<IpAddr> = wanted.addresses.iter().map(SocketAddr::ip).collect();
    addresses.dedup();
    let options =
        StackOptions { addresses, host, ecn: UseOfEcn::of_this_machine(), ..StackOptions::default() };
    BypassWorld::new(Sockets::new(Stack::new(link, options)))
}

/// Whether anything may be ours in this process.
pub(crate) fn is_configured() -> bool {
    wanted().is_some()
}
