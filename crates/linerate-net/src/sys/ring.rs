//! io_uring: requests with the memory they need, and their completions.
//!
//! Soundness: while a request is in flight, the ring owns the memory that the kernel reads or
//! writes. Parcels and addresses are moved in and come back with the completion; lent bytes and
//! receive buffers stay. The ring is not dropped before every request has completed.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::squeue::{self, Flags};
use io_uring::types::{CancelBuilder, DestinationSlot, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use socket2::SockAddr;

use super::buffers::Buffers;
use super::check;
use super::socket::{address, unknown_address};
use crate::Lent;
use crate::outbox::{GATHER, LentTable, Outbox};

/// Requests between two submissions, at most. Reason: one turn's worth; more are submitted at once.
const REQUESTS: u32 = 1024;
/// Completions that fit in the ring. Reason: a few for each request; the kernel keeps the excess.
const COMPLETIONS: u32 = 4096;
/// Bytes of one send. Reason: only the completion of a send shows how much has left.
const SEND_BYTES: usize = 1 << 20;
/// The kernel continues until all is sent, so a completion means all or an error. No SIGPIPE if the
/// peer is gone.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
/// The group id under which our receive buffers are registered.
const BUFFER_GROUP: u16 = 0;

/// How a request names a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An ordinary descriptor.
    Plain(RawFd),
    /// An index in the ring's table of direct descriptors.
    Direct(u32),
}

/// Applies a request's constructor to either kind of descriptor.
macro_rules! with_target {
    ($target:expr, |$fd:ident| $build:expr) => {
        match $target {
            Target::Plain(fd) => {
                let $fd = Fd(fd);
                $build
            }
            Target::Direct(index) => {
                let $fd = Fixed(index);
                $build
            }
        }
    };
}

/// The caller's identification of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// At most 127.
    pub(crate) kind: u8,
    pub(crate) slot: u32,
}

/// Stands in for the index of held memory if there is none.
const NOTHING_HELD: u64 = 0xff_ffff;
/// Marks requests that complete visibly only if they fail, and whose completion is not awaited.
const UNCOUNTED: u64 = 1 << 63;

fn user_data(tag: Tag, held: u64) -> u64 {
    u64::from(tag.kind & 0x7f) << 56 | held << 32 | u64::from(tag.slot)
}

/// Bytes in flight to the kernel, with the iovecs that describe them.
pub(crate) struct Parcel {
    pub(crate) outbox: Outbox,
    header: libc::msghdr,
    pieces: [libc::iovec; GATHER],
}

impl Parcel {
    pub(crate) fn new() -> Box<Parcel> {
        // SAFETY: both are plain data in which all zeros is a value (null pointers, no lengths).
        let (header, pieces) = unsafe { (mem::zeroed(), mem::zeroed()) };
        Box::new(Parcel { outbox: Outbox::default(), header, pieces })
    }

    /// Describes the first bytes of the outbox; returns the number of pieces.
    fn describe(&mut self, lent: &LentTable) -> usize {
        let mut room = SEND_BYTES;
        let mut count = 0;
        for (iov, piece) in self.pieces.iter_mut().zip(self.outbox.pieces(lent)) {
            let len = piece.len().min(room);
            *iov = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: len };
            count += 1;
            room -= len;
            if room == 0 {
                break;
            }
        }
        count
    }
}

/// Where the kernel writes the address of an accepted peer.
struct Name {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

enum RingMemory {
    Free,
    Parcel(Box<Parcel>),
    /// Held only to keep the memory alive.
    Address(#[expect(dead_code, reason = "the kernel reads it")] Box<SockAddr>),
    Name(Box<Name>),
    /// The result is a new descriptor.
    Installing,
}

/// The buffer, parcel, address or descriptor that a completion hands to the caller.
pub(crate) enum Gift {
    Nothing,
    /// A buffer with received bytes, which must be given back.
    Buffer(u16),
    /// The unsent rest of the parcel, and its memory.
    Parcel(Box<Parcel>),
    Peer(SocketAddr),
    Descriptor(OwnedFd),
}

/// A completion.
pub(crate) struct Done {
    pub(crate) tag: Tag,
    /// The call's result, or -errno.
    pub(crate) result: i32,
    /// The request stays active: more completions follow.
    pub(crate) more: bool,
    pub(crate) gift: Gift,
}

/// How a ring is made.
pub(crate) struct RingOptions {
    /// Number of receive buffers, a power of two.
    pub(crate) buffers: u16,
    pub(crate) buffer_bytes: usize,
    /// How many of them the kernel has at first.
    pub(crate) buffers_at_first: usize,
}

pub(crate) struct Ring {
    /// Leaked only if requests could not be ended.
    memory: mem::ManuallyDrop<Memory>,
    ring: mem::ManuallyDrop<IoUring>,
    completions: Vec<cqueue::Entry>,
    next: usize,
    /// Completions that came while another was awaited.
    stash: VecDeque<Done>,
    /// Requests whose last completion has not been seen.
    in_flight: u64,
}

/// Memory that the kernel may access while requests are in flight.
struct Memory {
    buffers: Buffers,
    lent: LentTable,
    held: Vec<RingMemory>,
    free: Vec<u32>,
}

/// How to receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    /// Receive one buffer, instead of buffer after buffer until cancelled.
    pub(crate) once: bool,
    /// No bytes can have arrived yet, so the kernel need not look first.
    pub(crate) nothing_yet: bool,
}

/// How to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Send {
    /// The next request waits for it.
    pub(crate) link: bool,
    /// What does not fill a segment waits for what comes next.
    pub(crate) more: bool,
}

impl Send {
    fn flags(self) -> i32 {
        SEND_FLAGS | if self.more { libc::MSG_MORE } else { 0 }
    }
}

/// The value of each option in `set_option`; static, since the kernel reads it later.
static ON: libc::c_int = 1;
static ABORT: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };

/// An option that can be set on a direct descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DirectOption {
    NoDelay,
    /// Closing resets.
    Abort,
}

impl Ring {
    pub(crate) fn new(options: &RingOptions) -> io::Result<Ring> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_clamp()
            .setup_cqsize(COMPLETIONS)
            .build(REQUESTS)?;
        let buffers = Buffers::new(options.buffers, options.buffer_bytes, options.buffers_at_first)?;
        let memory = Memory { buffers, lent: LentTable::default(), held: Vec::new(), free: Vec::new() };
        let mut this = Ring {
            memory: mem::ManuallyDrop::new(memory),
            ring: mem::ManuallyDrop::new(ring),
            completions: Vec::with_capacity(COMPLETIONS as usize),
            next: 0,
            stash: VecDeque::new(),
            in_flight: 0,
        };
        let (address, count) = (this.memory.buffers.ring_address(), this.memory.buffers.count());
        // SAFETY: the address is that of `count` entries that live until `Memory` is dropped, which
        // happens after the ring was closed.
        unsafe { this.ring.submitter().register_buf_ring_with_flags(address, count, BUFFER_GROUP, 0) }?;
        this.memory.buffers.top_up();
        // Saves a look-up in each call; older kernels work without it.
        let _ = this.ring.submitter().register_ring_fd();
        Ok(this)
    }

    /// Makes room for direct descriptors, once: `own` that we assign by index from 0, and behind
    /// them `accepted` that the kernel assigns. Their sum must not exceed the process's limit on
    /// open files.
    pub(crate) fn add_direct(&mut self, own: u32, accepted: u32) -> io::Result<()> {
        self.ring.submitter().register_files_sparse(own + accepted)?;
        // struct io_uring_file_index_range and IORING_REGISTER_FILE_ALLOC_RANGE.
        let range = [own, accepted, 0, 0];
        const ALLOC_RANGE: libc::c_uint = 25;
        // SAFETY: the kernel reads 16 bytes that live through the call.
        let result = unsafe {
            libc::syscall(libc::SYS_io_uring_register, self.ring.as_raw_fd(), ALLOC_RANGE, range.as_ptr(), 0)
        };
        check(result as libc::c_int).map(|_| ())
    }

    /// Turns an ordinary descriptor into a direct one, at once, before what is queued.
    pub(crate) fn register(&mut self, index: u32, fd: &impl AsRawFd) -> io::Result<()> {
        self.ring.submitter().register_files_update(index, &[fd.as_raw_fd()]).map(|_| ())
    }

    /// Whether the kernel knows the request with this opcode.
    pub(crate) fn knows(&self, code: u8) -> bool {
        let mut probe = io_uring::Probe::new();
        self.ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(code)
    }

    pub(crate) fn lent(&mut self) -> &mut LentTable {
        &mut self.memory.lent
    }

    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        &mut self.memory.buffers
    }

    fn hold(&mut self, held: RingMemory) -> u64 {
        match self.memory.free.pop() {
            Some(index) => {
                self.memory.held[index as usize] = held;
                u64::from(index)
            }
            None => {
                self.memory.held.push(held);
                self.memory.held.len() as u64 - 1
            }
        }
    }

    fn unhold(&mut self, index: u32) -> RingMemory {
        self.memory.free.push(index);
        mem::replace(&mut self.memory.held[index as usize], RingMemory::Free)
    }

    /// Makes room for requests that must be submitted together.
    pub(crate) fn make_room(&mut self, requests: usize) -> io::Result<()> {
        while {
            let queue = self.ring.submission();
            queue.capacity() - queue.len() < requests
        } {
            self.enter(0, None)?;
        }
        Ok(())
    }

    /// Queues a request.
    ///
    /// # Safety
    /// All memory it names has to stay valid and unmoved until its last completion: in `memory`, or
    /// static.
    unsafe fn push(&mut self, entry: &squeue::Entry, counted: bool) {
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // The queue is full. If the kernel takes nothing (it is out of memory), only trying
            // again helps.
            let _ = self.enter(0, None);
        }
        self.in_flight += u64::from(counted);
    }

    fn linked(entry: squeue::Entry, link: bool) -> squeue::Entry {
        if link { entry.flags(Flags::IO_LINK) } else { entry }
    }

    /// Receives into buffers that the kernel picks.
    pub(crate) fn receive(&mut self, tag: Tag, target: Target, how: Receive) {
        // IORING_RECVSEND_POLL_FIRST and IORING_RECV_MULTISHOT.
        const POLL_FIRST: u16 = 1;
        const MULTISHOT: u16 = 2;
        let first = if how.nothing_yet { POLL_FIRST } else { 0 };
        let many = if how.once { 0 } else { MULTISHOT };
        let entry = with_target!(target, |fd| {
            opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(BUFFER_GROUP)
                .ioprio(first | many)
                .build()
        });
        let entry = entry.flags(Flags::BUFFER_SELECT).user_data(user_data(tag, NOTHING_HELD));
        // SAFETY: it names no memory; the buffers are registered.
        unsafe { self.push(&entry, true) };
    }

    /// Takes up to `len` bytes out of a TCP socket without copying them (tcp(7), MSG_TRUNC).
    pub(crate) fn discard(&mut self, tag: Tag, target: Target, len: u32) {
        let entry = with_target!(target, |fd| {
            opcode::Recv::new(fd, std::ptr::null_mut(), len).flags(libc::MSG_TRUNC).build()
        });
        // SAFETY: with MSG_TRUNC, TCP writes nothing to the buffer, which is null.
        unsafe { self.push(&entry.user_data(user_data(tag, NOTHING_HELD)), true) };
    }

    /// Creates a TCP socket as a direct descriptor; the requests linked behind it use it.
    pub(crate) fn socket(&mut self, index: u32, to: SocketAddr) {
        let domain = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let slot = DestinationSlot::try_from_slot_target(index).ok();
        let entry =
            opcode::Socket::new(domain, libc::SOCK_STREAM, libc::IPPROTO_TCP).file_index(slot).build();
        // SAFETY: it names no memory.
        unsafe { self.push_quiet(entry, Flags::IO_LINK) };
    }

    /// Sends lent bytes, from the start of `range`; `false` if no such bytes were lent.
    pub(crate) fn send_lent(
        &mut self,
        tag: Tag,
        target: Target,
        what: (Lent, &Range<usize>),
        how: Send,
    ) -> bool {
        let Ok(bytes) = self.memory.lent.range(what.0, what.1) else { return false };
        let (start, len) = (bytes.as_ptr(), bytes.len().min(SEND_BYTES) as u32);
        let entry = with_target!(target, |fd| opcode::Send::new(fd, start, len).flags(how.flags()).build());
        // SAFETY: lent bytes stay where they are as long as the ring lives.
        unsafe { self.push(&Self::linked(entry, how.link).user_data(user_data(tag, NOTHING_HELD)), true) };
        true
    }

    /// Sends the first bytes of a parcel. Its completion brings it back.
    pub(crate) fn send(&mut self, tag: Tag, target: Target, mut parcel: Box<Parcel>, how: Send) {
        let count = parcel.describe(&self.memory.lent);
        let entry = if count == 1 {
            let piece = parcel.pieces[0];
            let (start, len) = (piece.iov_base.cast_const().cast::<u8>(), piece.iov_len as u32);
            with_target!(target, |fd| opcode::Send::new(fd, start, len).flags(how.flags()).build())
        } else {
            parcel.header.msg_iov = parcel.pieces.as_mut_ptr();
            parcel.header.msg_iovlen = count as _;
            let header = &raw const parcel.header;
            with_target!(target, |fd| opcode::SendMsg::new(fd, header).flags(how.flags() as u32).build())
        };
        let held = self.hold(RingMemory::Parcel(parcel));
        // SAFETY: the header and the pieces' descriptions are in the box, and only its pointer
        // moves. The pieces are heap memory that the box's outbox owns (or, as `Bytes`, co-owns and
        // never writes to), or lent for the ring's life. The box is held until the completion and
        // is unreachable meanwhile.
        unsafe { self.push(&Self::linked(entry, how.link).user_data(user_data(tag, held)), true) };
    }

    pub(crate) fn connect(&mut self, tag: Tag, target: Target, to: SocketAddr, link: bool) {
        let to = Box::new(SockAddr::from(to));
        let (start, len) = (to.as_ptr().cast::<libc::sockaddr>(), to.len());
        let held = self.hold(RingMemory::Address(to));
        let entry = with_target!(target, |fd| opcode::Connect::new(fd, start, len).build());
        // SAFETY: the address is in a box that is held until the completion.
        unsafe { self.push(&Self::linked(entry, link).user_data(user_data(tag, held)), true) };
    }

    /// Accepts one connection as a direct descriptor: the result is its index.
    pub(crate) fn accept(&mut self, tag: Tag, listener: &impl AsRawFd) {
        // SAFETY: sockaddr_storage is plain bytes: all zeros is a value.
        let storage = unsafe { mem::zeroed() };
        let mut name =
            Box::new(Name { storage, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t });
        let (start, len) = ((&raw mut name.storage).cast::<libc::sockaddr>(), &raw mut name.len);
        let held = self.hold(RingMemory::Name(name));
        let entry = opcode::Accept::new(Fd(listener.as_raw_fd()), start, len)
            .file_index(Some(DestinationSlot::auto_target()))
            .build();
        // SAFETY: the name is in a box that is held until the completion.
        unsafe { self.push(&entry.user_data(user_data(tag, held)), true) };
    }

    /// Reports each signal of an eventfd.
    pub(crate) fn watch(&mut self, tag: Tag, fd: &impl AsRawFd) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.user_data(user_data(tag, NOTHING_HELD)), true) };
    }

    /// Reports when the peer's FIN came, and when the connection failed; the result is poll(2)'s.
    pub(crate) fn watch_end(&mut self, tag: Tag, target: Target) {
        let events = (libc::POLLERR | libc::POLLHUP) as u32;
        let entry = with_target!(target, |fd| opcode::PollAdd::new(fd, events).multi(true).build());
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.user_data(user_data(tag, NOTHING_HELD)), true) };
    }

    /// Queues a request that names no memory, or only static memory, and whose completion is not
    /// awaited.
    ///
    /// # Safety
    /// The request must name no other memory.
    unsafe fn push_quiet(&mut self, entry: squeue::Entry, link: Flags) {
        let entry = entry.flags(Flags::SKIP_SUCCESS | link).user_data(UNCOUNTED);
        // SAFETY: the caller's promise.
        unsafe { self.push(&entry, false) };
    }

    /// Ends a request that receives, or another that holds no memory.
    pub(crate) fn cancel(&mut self, tag: Tag) {
        let builder = CancelBuilder::user_data(user_data(tag, NOTHING_HELD));
        // SAFETY: it names no memory.
        unsafe { self.push_quiet(opcode::AsyncCancel2::new(builder).build(), Flags::empty()) };
    }

    /// Ends every request on a descriptor.
    pub(crate) fn cancel_all(&mut self, target: Target) {
        let builder = with_target!(target, |fd| CancelBuilder::fd(fd)).all();
        // SAFETY: it names no memory.
        unsafe { self.push_quiet(opcode::AsyncCancel2::new(builder).build(), Flags::empty()) };
    }

    /// shutdown(2): `how` is one of the `libc::SHUT_*`. The kernel always leaves it to another
    /// thread, which looks the descriptor up only then. Until the completion the descriptor must
    /// not be reused.
    pub(crate) fn shutdown(&mut self, tag: Tag, target: Target, how: i32) {
        let entry = with_target!(target, |fd| opcode::Shutdown::new(fd, how).build());
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.user_data(user_data(tag, NOTHING_HELD)), true) };
    }

    /// Closes a descriptor; requests queued later run after it.
    pub(crate) fn close(&mut self, target: Target) {
        let entry = with_target!(target, |fd| opcode::Close::new(fd).build());
        // SAFETY: it names no memory.
        unsafe { self.push_quiet(entry, Flags::empty()) };
    }

    /// Sets an option of a direct descriptor, before the requests queued later. Needs Linux 6.7.
    pub(crate) fn set_option(&mut self, target: Target, option: DirectOption) {
        let (level, name, start, len) = match option {
            DirectOption::NoDelay => {
                (libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const ON).cast(), size_of_val(&ON))
            }
            DirectOption::Abort => {
                (libc::SOL_SOCKET, libc::SO_LINGER, (&raw const ABORT).cast(), size_of_val(&ABORT))
            }
        };
        let entry = with_target!(target, |fd| {
            opcode::SetSockOpt::new(fd, level as u32, name as u32, start, len as u32).build()
        });
        // SAFETY: the value is static.
        unsafe { self.push_quiet(entry, Flags::empty()) };
    }

    /// Whether the kernel makes ordinary descriptors of direct ones: Linux 6.8.
    pub(crate) fn installs(&self) -> bool {
        self.knows(opcode::FixedFdInstall::CODE)
    }

    /// Makes an ordinary descriptor of a direct one. Its completion brings it.
    pub(crate) fn ask_install(&mut self, tag: Tag, index: u32) {
        let held = self.hold(RingMemory::Installing);
        let entry = opcode::FixedFdInstall::new(Fixed(index), 0).build();
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.user_data(user_data(tag, held)), true) };
    }

    /// The same, at once.
    pub(crate) fn install(&mut self, index: u32) -> Option<OwnedFd> {
        const INSTALL: Tag = Tag { kind: 0x7f, slot: 0 };
        self.ask_install(INSTALL, index);
        loop {
            self.enter(1, None).ok()?;
            while let Some(done) = self.next_fresh() {
                if done.tag == INSTALL {
                    return if let Gift::Descriptor(fd) = done.gift { Some(fd) } else { None };
                }
                self.stash.push_back(done);
            }
        }
    }

    /// Whether completions are pending, here or in the ring.
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.stash.is_empty() || self.next < self.completions.len() || !self.ring.completion().is_empty()
    }

    pub(crate) fn has_requests(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Submits what is queued and waits for `want` completions, at most `limit` (`None`: forever).
    /// A signal or the timeout ends the wait without an error.
    pub(crate) fn enter(&mut self, want: usize, limit: Option<Duration>) -> io::Result<()> {
        let result = match limit {
            _ if want == 0 => {
                let pending = self.ring.submission().len() as u32;
                // IORING_ENTER_GETEVENTS: the kernel runs deferred work only if asked.
                const GETEVENTS: u32 = 1;
                // SAFETY: no argument is given, and what is queued is valid by `push`'s promise.
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(pending, 0, GETEVENTS, None) }
            }
            None => self.ring.submitter().submit_and_wait(want),
            Some(limit) => {
                let spec = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&spec))
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                // EBUSY and EAGAIN: the kernel wants its completions taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(e),
            },
        }
    }

    /// The next completion.
    pub(crate) fn next(&mut self) -> Option<Done> {
        self.stash.pop_front().or_else(|| self.next_fresh())
    }

    fn next_fresh(&mut self) -> Option<Done> {
        loop {
            if self.next == self.completions.len() {
                self.completions.clear();
                self.next = 0;
                self.completions.extend(self.ring.completion());
            }
            let entry = self.completions.get(self.next)?;
            self.next += 1;
            let (data, result, flags) = (entry.user_data(), entry.result(), entry.flags());
            if data & UNCOUNTED == 0 {
                return Some(self.done(data, result, flags));
            }
        }
    }

    fn done(&mut self, data: u64, result: i32, flags: u32) -> Done {
        let tag = Tag { kind: (data >> 56) as u8 & 0x7f, slot: data as u32 };
        let more = cqueue::more(flags);
        self.in_flight -= u64::from(!more);
        let mut gift = Gift::Nothing;
        if let Some(id) = cqueue::buffer_select(flags) {
            self.memory.buffers.taken(id, usize::try_from(result).unwrap_or(0));
            gift = Gift::Buffer(id);
        }
        let held = (data >> 32) & NOTHING_HELD;
        if held != NOTHING_HELD {
            match self.unhold(held as u32) {
                RingMemory::Parcel(mut parcel) => {
                    parcel.outbox.advance(usize::try_from(result).unwrap_or(0));
                    gift = Gift::Parcel(parcel);
                }
                RingMemory::Name(name) => {
                    gift = Gift::Peer(address(&name.storage).unwrap_or_else(unknown_address))
                }
                RingMemory::Installing if result >= 0 => {
                    // SAFETY: the kernel just made this descriptor for us, and nothing else owns it.
                    let fd = unsafe { OwnedFd::from_raw_fd(result) };
                    gift = Gift::Descriptor(fd);
                }
                RingMemory::Address(_) | RingMemory::Installing | RingMemory::Free => {}
            }
        }
        Done { tag, result, more, gift }
    }
}

/// How often, and how long each time, `drop` waits for the last completions before it leaks their
/// memory.
const DROP_ROUNDS: u32 = 500;
const DROP_WAIT: Duration = Duration::from_millis(10);

impl Drop for Ring {
    fn drop(&mut self) {
        // Queued requests must still run: they close descriptors.
        let _ = self.enter(0, None);
        for _ in 0..DROP_ROUNDS {
            while self.next().is_some() {}
            let before = self.in_flight;
            // Waits for all at once: in one call, the kernel runs only as much deferred work as is
            // awaited.
            if before == 0 || self.enter(before as usize, Some(DROP_WAIT)).is_err() {
                break;
            }
            while self.next().is_some() {}
            if self.in_flight == before {
                let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build();
                // SAFETY: it names no memory.
                unsafe { self.push_quiet(cancel, Flags::empty()) };
            }
        }
        if self.in_flight == 0 {
            // SAFETY: neither is used again. The ring is closed before its memory is freed.
            unsafe {
                mem::ManuallyDrop::drop(&mut self.ring);
                mem::ManuallyDrop::drop(&mut self.memory);
            }
        }
        // Otherwise both are leaked, because the kernel may still write to that memory.
    }
}
