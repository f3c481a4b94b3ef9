//! The connections of the process and the descriptors that name them. A call returns an errno where it
//! fails.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use linerate_net::link::pcap::Pcap;
use linerate_net::link::xdp::Xdp;
use linerate_net::sockets::{PollEntry, PollSetId, SocketFailure, SocketId, Sockets};
use linerate_net::{FlowState, Time, Transport};

use crate::kernel;
use crate::messages::tell;
use crate::options::{SocketFamily, StoredOptions};
use crate::table::{self, DescriptorKind};
use crate::tally;
use crate::waiters::Waiters;

/// Of waits that find enough to do, one in so many moves packets, and one in so many looks at the
/// kernel's descriptors. Reason: both are system calls.
const MOVES: u64 = 16;
pub(crate) const LOOKS: u64 = 64;
/// Of turns, one in so many counts lost packets. Reason: system calls too.
const LOSSES: u64 = 1024;
/// Descriptors kept for later connections, at most, and of a program's limit of open files at most this
/// share. Reason: the program needs them too.
const KEPT: usize = 1024;
const KEPT_SHARE: usize = 8;

/// What descriptors name: copies of a descriptor (dup) share it.
pub(crate) struct OpenSocket {
    pub(crate) id: SocketId,
    /// O_NONBLOCK.
    pub(crate) nonblocking: bool,
    pub(crate) family: SocketFamily,
    pub(crate) stored: StoredOptions,
    /// Calls of accept, for turns with the kernel's listener.
    pub(crate) accepts: u64,
    is_listener: bool,
    descriptors: usize,
}

/// A set of the program's epoll.
pub(crate) struct OpenSet {
    pub(crate) id: PollSetId,
    descriptors: usize,
}

/// What a descriptor names.
#[derive(Clone, Copy)]
enum NamedThing {
    Socket(usize),
    Set(usize),
}

/// Things with numbers, which are used again.
struct Numbered<T> {
    things: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered { things: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, thing: T) -> usize {
        if let Some(at) = self.free.pop() {
            self.things[at] = Some(thing);
            return at;
        }
        self.things.push(Some(thing));
        self.things.len() - 1
    }

    fn get(&self, at: usize) -> Option<&T> {
        self.things.get(at)?.as_ref()
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.things.get_mut(at)?.as_mut()
    }

    fn remove(&mut self, at: usize) {
        self.things[at] = None;
        self.free.push(at);
    }
}

/// All connections of the process.
pub(crate) struct BypassWorld {
    pub(crate) net: Sockets<Pcap<Xdp>>,
    named: Vec<Option<NamedThing>>,
    sockets: Numbered<OpenSocket>,
    sets: Numbered<OpenSet>,
    /// Sockets of the kernel whose copies stand for connections, by family.
    placeholders: [Option<i32>; 2],
    kept: [BTreeSet<i32>; 2],
    most_kept: usize,
    pub(crate) waiters: Waiters,
    /// Turns so far.
    pub(crate) turns: u64,
    pub(crate) waits: u64,
    /// Packets lost on this machine, at the last count.
    lost: u64,
    pub(crate) found: Vec<PollEntry>,
    /// Bytes of files on their way.
    pub(crate) buffer: Vec<u8>,
    /// Packets may come.
    begun: bool,
    /// A listener was closed, so new connections are the kernel's.
    leaves: bool,
    /// Packets come by receive queues.
    has_queues: bool,
    /// What children close from now on.
    pub(crate) to_hold: Option<Vec<i32>>,
    /// Listeners that the operator has not been told of.
    pub(crate) to_announce: Vec<String>,
}

impl BypassWorld {
    /// No connections yet.
    pub(crate) fn new(net: Sockets<Pcap<Xdp>>) -> BypassWorld {
        BypassWorld {
            net,
            named: Vec::new(),
            sockets: Numbered::new(),
            sets: Numbered::new(),
            placeholders: [None; 2],
            kept: [BTreeSet::new(), BTreeSet::new()],
            most_kept: KEPT.min(kernel::open_files() / KEPT_SHARE),
            waiters: Waiters::default(),
            turns: 0,
            waits: 0,
            lost: 0,
            found: Vec::new(),
            buffer: vec![0; 1 << 16],
            begun: false,
            leaves: false,
            has_queues: true,
            to_hold: None,
            to_announce: Vec::new(),
        }
    }

    fn name(&self, fd: i32) -> Result<NamedThing, i32> {
        usize::try_from(fd).ok().and_then(|at| *self.named.get(at)?).ok_or(libc::EBADF)
    }

    fn set_name(&mut self, fd: i32, named: Option<NamedThing>) {
        let Ok(at) = usize::try_from(fd) else { return };
        if self.named.len() <= at {
            self.named.resize(at + 1, None);
        }
        self.named[at] = named;
    }

    /// The socket of a descriptor.
    pub(crate) fn socket(&mut self, fd: i32) -> Result<&mut OpenSocket, i32> {
        let NamedThing::Socket(at) = self.name(fd)? else { return Err(libc::ENOTSOCK) };
        self.sockets.get_mut(at).ok_or(libc::EBADF)
    }

    /// Its number among the sockets.
    pub(crate) fn id(&mut self, fd: i32) -> Result<SocketId, i32> {
        Ok(self.socket(fd)?.id)
    }

    /// The set of a descriptor.
    pub(crate) fn set(&self, fd: i32) -> Result<PollSetId, i32> {
        let NamedThing::Set(at) = self.name(fd)? else { return Err(libc::EINVAL) };
        self.sets.get(at).map(|set| set.id).ok_or(libc::EBADF)
    }

    /// The kernel's listener `fd` gets one of ours beside it.
    pub(crate) fn add_listener(
        &mut self,
        fd: i32,
        family: SocketFamily,
        id: SocketId,
        stored: StoredOptions,
        nonblocking: bool,
    ) {
        let socket =
            OpenSocket { id, nonblocking, family, stored, accepts: 0, is_listener: true, descriptors: 1 };
        let at = self.sockets.add(socket);
        self.set_name(fd, Some(NamedThing::Socket(at)));
        table::set(fd, DescriptorKind::Listener);
    }

    /// The set beside the program's epoll.
    pub(crate) fn set_beside(&mut self, epoll: i32) -> Result<PollSetId, i32> {
        if let Ok(set) = self.set(epoll) {
            return Ok(set);
        }
        let id = self.net.poll_set();
        let at = self.sets.add(OpenSet { id, descriptors: 1 });
        self.set_name(epoll, Some(NamedThing::Set(at)));
        if !table::set(epoll, DescriptorKind::Set) {
            return Err(libc::EMFILE);
        }
        Ok(id)
    }

    /// A descriptor for a connection: the lowest one kept, or a new copy.
    fn descriptor(&mut self, family: SocketFamily, closed_by_exec: bool) -> Result<i32, i32> {
        let flags = if closed_by_exec { libc::FD_CLOEXEC as usize } else { 0 };
        if let Some(fd) = self.kept[family as usize].pop_first() {
            kernel::fcntl(fd, libc::F_SETFD, flags)?;
            return Ok(fd);
        }
        let placeholder = match self.placeholders[family as usize] {
            Some(placeholder) => placeholder,
            None => {
                let made = kernel::tcp_socket(family.number())?;
                // Out of the way of programs, which are used to small numbers.
                let high = kernel::fcntl(made, libc::F_DUPFD_CLOEXEC, 500).unwrap_or(made);
                if high != made {
                    kernel::close(made)?;
                }
                self.placeholders[family as usize] = Some(high);
                high
            }
        };
        let command = if closed_by_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        kernel::fcntl(placeholder, command, 0)
    }

    /// The next connection of a listener, with a descriptor (SOCK_CLOEXEC, SOCK_NONBLOCK).
    pub(crate) fn accept(&mut self, listener: i32, flags: i32) -> Result<(i32, SocketAddr), i32> {
        let (id, family) = self.socket(listener).map(|socket| (socket.id, socket.family))?;
        let (accepted, peer) = self.net.accept(id).map_err(errno_of)?;
        let fd = match self.descriptor(family, flags & libc::SOCK_CLOEXEC != 0) {
            Ok(fd) if table::set(fd, DescriptorKind::Connection) => fd,
            other => {
                self.net.close(accepted).map_err(errno_of)?;
                return Err(other.map_or_else(|errno| errno, |_| libc::EMFILE));
            }
        };
        let stored = self.socket(listener)?.stored.clone();
        let at = self.sockets.add(OpenSocket {
            id: accepted,
            nonblocking: flags & libc::SOCK_NONBLOCK != 0,
            family,
            stored,
            accepts: 0,
            is_listener: false,
            descriptors: 1,
        });
        self.set_name(fd, Some(NamedThing::Socket(at)));
        Ok((fd, peer))
    }

    /// Closes a descriptor for the program. Returns whether the kernel's must be closed too.
    pub(crate) fn close(&mut self, fd: i32) -> Result<bool, i32> {
        let kind = table::kind(fd);
        let named = self.name(fd)?;
        self.set_name(fd, None);
        match named {
            NamedThing::Set(at) => {
                if let Some(set) = self.sets.get_mut(at) {
                    set.descriptors -= 1;
                    if set.descriptors == 0 {
                        self.net.drop_poll_set(set.id);
                        self.sets.remove(at);
                    }
                }
            }
            NamedThing::Socket(at) => {
                let family = self.sockets.get(at).map_or(SocketFamily::V4, |socket| socket.family);
                self.release(at)?;
                if kind == DescriptorKind::Connection && self.kept[family as usize].len() < self.most_kept {
                    table::set(fd, DescriptorKind::Kept);
                    self.kept[family as usize].insert(fd);
                    return Ok(false);
                }
            }
        }
        table::set(fd, DescriptorKind::Kernel);
        Ok(true)
    }

    fn release(&mut self, at: usize) -> Result<(), i32> {
        let Some(socket) = self.sockets.get_mut(at) else { return Ok(()) };
        socket.descriptors -= 1;
        if socket.descriptors > 0 {
            return Ok(());
        }
        let (id, is_listener) = (socket.id, socket.is_listener);
        if is_listener {
            self.leave();
        }
        self.sockets.remove(at);
        self.net.close(id).map_err(errno_of)?;
        self.flush_soon(true);
        Ok(())
    }

    /// The listeners are there, so packets may come.
    pub(crate) fn begin(&mut self) {
        if !self.begun {
            let begun = self.link_mut().begin();
            self.unless_lost(begun);
            self.begun = true;
        }
    }

    /// A listener is closed. A successor of this process may have the same one of the kernel's, so new
    /// connections go there.
    fn leave(&mut self) {
        if self.begun && !self.leaves {
            let left = self.link_mut().leave();
            self.unless_lost(left);
            self.leaves = true;
        }
    }

    fn unless_lost(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            tell(&format!("linerate bypass cannot be reached: {error}"));
            self.waiters.is_lost = true;
        }
    }

    /// Whether the last connection of a process that gets no new ones has ended.
    fn has_left(&self) -> bool {
        let stack = self.net.stack();
        self.leaves && stack.waiting().0 == 0 && stack.unfinished() == 0
    }

    /// The program chose the number of a kept descriptor, or closes all: it is the kernel's again.
    pub(crate) fn forget_kept(&mut self, fd: i32) {
        if self.kept.iter_mut().any(|kept| kept.remove(&fd)) {
            table::set(fd, DescriptorKind::Kernel);
        }
    }

    /// `copy` is a copy of `fd` (dup), already the kernel's.
    pub(crate) fn copied(&mut self, fd: i32, copy: i32) -> Result<(), i32> {
        let named = self.name(fd)?;
        if !table::set(copy, table::kind(fd)) {
            kernel::close(copy)?;
            return Err(libc::EMFILE);
        }
        match named {
            NamedThing::Socket(at) => {
                self.sockets.get_mut(at).into_iter().for_each(|socket| socket.descriptors += 1)
            }
            NamedThing::Set(at) => self.sets.get_mut(at).into_iter().for_each(|set| set.descriptors += 1),
        }
        self.set_name(copy, Some(named));
        Ok(())
    }

    /// Moves packets, waiting until this time at most. Returns whether anything happened.
    fn turn(&mut self, until: Time) -> bool {
        self.turns += 1;
        let happened = self.net.turn(Some(until)).unwrap_or_else(|error| {
            // The link's errors are permanent; the next call finds no world.
            tell(&format!("connections in user space end: {error}"));
            self.waiters.is_lost = true;
            false
        });
        while let Some(news) = self.net.news() {
            tell(&news);
        }
        let now = self.net.now();
        self.write_capture(now);
        self.hand_over();
        if self.has_left() {
            // Another process may have the queues.
            self.waiters.is_lost = true;
        }
        self.count();
        self.tell_waiters();
        happened
    }

    fn link_mut(&mut self) -> &mut Xdp {
        self.net.stack_mut().link_mut().link_mut()
    }

    /// Descriptors that children close.
    pub(crate) fn held(&self) -> Vec<i32> {
        let link = self.net.stack().link();
        link.link().lent_descriptors().into_iter().chain(link.descriptor()).collect()
    }

    /// Writes the recorded packets, if there is a file for them and if that is due at this time.
    pub(crate) fn write_capture(&mut self, now: Time) {
        let link = self.net.stack_mut().link_mut();
        link.write_if_due(now);
        if let Some(trouble) = link.trouble() {
            tell(&trouble);
        }
    }

    /// Gives the queues to a successor that needs them, and keeps the connections.
    fn hand_over(&mut self) {
        let stack = self.net.stack_mut();
        if stack.link().link().is_asked_for_queues() {
            let mut flows = Vec::new();
            stack.flows(0, usize::MAX, |flow| flows.push((flow.remote, flow.local.port())));
            let done = stack.link_mut().link_mut().give_queues_back(&flows);
            self.unless_lost(done);
            self.to_hold = Some(self.held());
        } else if self.has_queues && !stack.link().link().has_queues() {
            // Their numbers are the program's again.
            self.has_queues = false;
            self.to_hold = Some(self.held());
        }
    }

    /// Tells the launcher what the stack counts.
    fn count(&mut self) {
        let Some(tally) = tally::tally() else { return };
        let stack = self.net.stack();
        if self.turns.is_multiple_of(LOSSES) {
            let counts = stack.link().link().counts();
            self.lost = counts.overrun + counts.too_large;
        }
        let stats = stack.stats();
        tally.note(stack.unfinished() as u64, stats.retransmits, self.lost, stats.resets_out);
    }

    /// Moves packets without waiting, until nothing is unsent that could leave, or two rounds.
    pub(crate) fn turn_now(&mut self) {
        if self.turn(Time::ZERO) {
            self.turn(Time::ZERO);
        }
    }

    /// The link has something to say: it gets the moment that it needs.
    pub(crate) fn turn_for_news(&mut self) {
        let now = self.net.now();
        self.turn(now + std::time::Duration::from_micros(1));
    }

    /// Moves packets at some of a busy program's waits.
    pub(crate) fn turn_sometimes(&mut self) {
        self.waits += 1;
        if self.waits.is_multiple_of(MOVES) {
            self.turn_now();
        }
    }

    /// There is something to send. It leaves when this thread waits next, unless that may be late.
    pub(crate) fn flush_soon(&mut self, thread_may_end: bool) {
        if self.waiters.has_driver() || (thread_may_end && self.waiters.has_any()) {
            self.turn_now();
        }
    }

    /// Wakes the threads whose descriptors are ready.
    pub(crate) fn tell_waiters(&mut self) {
        let net = &self.net;
        self.waiters.tell(|id| net.readiness(id).unwrap_or(u32::MAX), |set| net.may_have_ready(set));
    }

    /// Connections with something to send or unacknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        let mut count = 0;
        self.net.stack().flows(0, usize::MAX, |flow| {
            let ends = matches!(flow.state, FlowState::FinWait1 | FlowState::Closing | FlowState::LastAck);
            count += usize::from(ends || flow.unsent_bytes + flow.unacked_bytes > 0);
        });
        count
    }

    /// Closes all connections, as the kernel does when a process ends.
    pub(crate) fn close_all(&mut self) {
        for at in 0..self.sockets.things.len() {
            if let Some(socket) = self.sockets.get_mut(at) {
                socket.descriptors = 1;
                let _ = self.release(at);
            }
        }
    }
}

/// The errno of a failure; raises SIGPIPE if the kernel would.
pub(crate) fn errno_of(failure: SocketFailure) -> i32 {
    if failure.raises_sigpipe {
        kernel::raise_sigpipe();
    }
    failure.errno
}
