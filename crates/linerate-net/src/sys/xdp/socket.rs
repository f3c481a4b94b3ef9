//! A socket on one receive queue: its memory, its four rings and the frames that circulate in them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::ring::{Packet, Ring};
use super::{Frame, Umem};
use crate::Time;
use crate::sys::pages::memory_file;
use crate::sys::poll::timespec;
use crate::sys::{EventFd, check};

/// How a socket is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// Frames, and ring entries, for sending, and for receiving at normal load: a power of two.
    pub(crate) frames: u32,
    /// Frames, and ring entries, for receiving in a flood: a power of two, at least `frames`.
    pub(crate) receive_frames: u32,
    /// Bytes of a frame: a power of two from 2048 to the page size. The kernel keeps [`HEADROOM`]
    /// of them when it receives.
    pub(crate) frame_bytes: usize,
    /// Let the card itself read and write the shared memory if it can.
    pub(crate) zero_copy: bool,
    /// Poll the queue from this thread, for this long at a time (SO_PREFER_BUSY_POLL).
    pub(crate) busy_poll: Option<Duration>,
}

impl Config {
    /// Frames of both directions.
    fn all_frames(&self) -> u32 {
        self.frames + self.receive_frames
    }

    /// Bytes of memory that a socket shares with the kernel.
    pub(crate) fn memory(&self) -> usize {
        self.all_frames() as usize * self.frame_bytes
    }
}

/// Bytes that the kernel keeps free before a received packet (XDP_PACKET_HEADROOM).
pub(crate) const HEADROOM: usize = 256;

/// Packets that one call may send (XDP_MAX_TX_SKB_BUDGET, Linux 6.17; before, it is always 32).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Socket options that the C library does not name here (asm-generic/socket.h).
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Packets per poll of the queue: as many as a poll by interrupt takes (NAPI_POLL_WEIGHT).
const POLLED: u32 = 64;

/// A half of the normal frames that waits unread is a sign of a flood. It is over some seconds after
/// the last sign, once no more than a 16th waits. Reason: a thread that keeps up with a flood sees
/// nothing of it, and needs all frames the moment it loses its CPU.
const FLOOD: u32 = 2;
const CALM: u32 = 16;
const FLOOD_LASTS: Duration = Duration::from_secs(5);

/// Calls per `kick`, at most. Reason: a full ring leaves in fewer; a link that takes nothing must
/// not hold the thread.
const CALLS_PER_KICK: u32 = 512;

/// Bytes of a packet that spans frames. Reason: IP's largest packet, with an Ethernet header.
const GATHERED: usize = 14 + 65_535;

/// Lost packets, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Dropped for other reasons, such as a packet larger than a frame.
    pub(crate) dropped: u64,
    /// The receive ring was full.
    pub(crate) ring_full: u64,
    /// No free frame was left to receive into.
    pub(crate) no_frame: u64,
}

/// A bound AF_XDP socket.
pub(crate) struct QueueSocket {
    fd: OwnedFd,
    umem: Umem,
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<Packet>,
    transmit: Ring<Packet>,
    /// Free for sending.
    free: Vec<Frame>,
    /// Receive frames held back at normal load: the fewer circulate, the more stay in the cache.
    reserve: Vec<Frame>,
    /// Receive frames that the kernel has or that wait to be read, and their number at normal load.
    posted: u32,
    calm: u32,
    /// A flood counts as going on until then.
    flood_until: Time,
    abilities: SocketAbilities,
    /// Frames were pushed since the last `kick`.
    pushed: bool,
    /// This thread polls the queue.
    polls: bool,
    /// The frames so far of a packet that spans several.
    gathered: Vec<u8>,
    /// Packets that were too long to gather.
    too_long: u64,
}

impl QueueSocket {
    /// Ready to read when packets have come.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens and binds. EBUSY: the queue is taken, possibly for a moment by a socket that is
    /// closing.
    pub(crate) fn open(interface: u32, queue: u32, config: &Config) -> io::Result<QueueSocket> {
        let (umem, frames) = Umem::new(config.all_frames(), config.frame_bytes)?;
        let (fd, abilities) = bound(interface, queue, config, &umem)?;
        QueueSocket::over(fd, umem, frames, config, abilities)
    }

    /// A socket that another process has bound, with the memory that it registered. This process is
    /// the first to use its rings.
    pub(crate) fn adopt(
        fd: OwnedFd,
        memory: BorrowedFd<'_>,
        config: &Config,
        abilities: SocketAbilities,
    ) -> io::Result<QueueSocket> {
        let (umem, frames) = Umem::of_file(memory, config.all_frames(), config.frame_bytes)?;
        QueueSocket::over(fd, umem, frames, config, abilities)
    }

    /// Maps the rings, and gives the kernel frames to receive into.
    fn over(
        fd: OwnedFd,
        umem: Umem,
        mut frames: Vec<Frame>,
        config: &Config,
        abilities: SocketAbilities,
    ) -> io::Result<QueueSocket> {
        let (size, received) = (config.frames, config.receive_frames);
        let at = ring_offsets(&fd)?;
        let mut fill =
            Ring::map(fd.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, at.fr.into(), received)?;
        let completion =
            Ring::map(fd.as_fd(), libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t, at.cr.into(), size)?;
        let receive = Ring::map(fd.as_fd(), libc::XDP_PGOFF_RX_RING, at.rx.into(), received)?;
        let transmit = Ring::map(fd.as_fd(), libc::XDP_PGOFF_TX_RING, at.tx.into(), size)?;
        for frame in frames.drain(..size as usize) {
            fill.push(umem.address(&frame));
        }
        fill.publish();
        let reserve = frames.drain(..(received - size) as usize).collect();
        Ok(QueueSocket {
            fd,
            umem,
            fill,
            completion,
            receive,
            transmit,
            free: frames,
            reserve,
            posted: size,
            calm: size,
            flood_until: Time::ZERO,
            abilities,
            pushed: false,
            polls: config.busy_poll.is_some(),
            gathered: Vec::new(),
            too_long: 0,
        })
    }

    /// What it can do.
    pub(crate) fn abilities(&self) -> SocketAbilities {
        self.abilities
    }

    /// Lends up to `max` received frames to `take`; returns how many.
    pub(crate) fn receive(&mut self, now: Time, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let waiting = self.receive.available(u32::MAX);
        let count = waiting.min(u32::try_from(max).unwrap_or(u32::MAX));
        if count == 0 {
            return 0;
        }
        if waiting >= self.calm / FLOOD {
            self.expect_flood(now);
        }
        let is_calm = waiting < self.calm / CALM && now >= self.flood_until;
        self.umem.prefetch(self.receive.peek(0).address);
        for i in 0..count {
            let packet = self.receive.peek(i);
            if i + 1 < count {
                self.umem.prefetch(self.receive.peek(i + 1).address);
            }
            let Some(mut frame) = self.umem.returned(packet.address) else { continue };
            let within = packet.address as usize % self.umem.frame_bytes();
            let more = packet.options & libc::XDP_PKT_CONTD != 0;
            if let Some(bytes) = self.umem.bytes(&mut frame, within, packet.len as usize) {
                if !more && self.gathered.is_empty() {
                    take(bytes);
                } else {
                    // A packet that is too long stays so until its last frame.
                    self.gathered.extend_from_slice(&bytes[..bytes.len().min(GATHERED + 1)]);
                    self.gathered.truncate(GATHERED + 1);
                }
            }
            if !more && !self.gathered.is_empty() {
                if self.gathered.len() <= GATHERED {
                    take(&mut self.gathered);
                } else {
                    self.too_long += 1;
                }
                self.gathered.clear();
            }
            // The fill ring has a slot for every receive frame.
            if is_calm && self.posted > self.calm {
                self.posted -= 1;
                self.reserve.push(frame);
            } else {
                self.fill.push(self.umem.address(&frame));
            }
        }
        self.receive.release(count);
        self.fill.publish();
        count as usize
    }

    /// Posts the reserve too, for some seconds: packets may arrive faster than they are read.
    pub(crate) fn expect_flood(&mut self, now: Time) {
        self.flood_until = now + FLOOD_LASTS;
        if self.reserve.is_empty() {
            return;
        }
        self.posted += self.reserve.len() as u32;
        for frame in self.reserve.drain(..) {
            self.fill.push(self.umem.address(&frame));
        }
        self.fill.publish();
    }

    /// Whether frames wait to be received.
    pub(crate) fn has_received(&mut self) -> bool {
        self.receive.available(1) > 0
    }

    /// Lets `fill` write a frame of `len` bytes; it leaves with the next `kick`. `false` if no
    /// frame is free or `len` exceeds a frame.
    pub(crate) fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.free.is_empty() {
            self.reap();
        }
        let Some(mut frame) = self.free.pop() else { return false };
        let Some(bytes) = self.umem.bytes(&mut frame, 0, len) else {
            self.free.push(frame);
            return false;
        };
        fill(bytes);
        // The ring has a slot for every send frame.
        self.transmit.push(Packet { address: self.umem.address(&frame), len: len as u32, options: 0 });
        self.pushed = true;
        true
    }

    /// Whether a frame is free for sending.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reap();
        }
        !self.free.is_empty()
    }

    /// Takes back frames that have been sent.
    fn reap(&mut self) {
        let count = self.completion.available(u32::MAX);
        for i in 0..count {
            if let Some(frame) = self.umem.returned(self.completion.peek(i)) {
                self.free.push(frame);
            }
        }
        if count > 0 {
            self.completion.release(count);
        }
    }

    /// Makes the kernel send the pushed frames, and wakes the fill ring if the kernel asks for
    /// that.
    pub(crate) fn kick(&mut self) -> io::Result<()> {
        if self.pushed {
            self.transmit.publish();
            self.pushed = false;
        }
        let mut left = self.transmit.waiting();
        for _ in 0..CALLS_PER_KICK {
            if left == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            // SAFETY: neither an address nor bytes are given.
            let sent = unsafe {
                libc::sendto(
                    self.fd.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            let before = std::mem::replace(&mut left, self.transmit.waiting());
            match check(sent as libc::c_int).map_err(|e| (e.raw_os_error(), e)) {
                Ok(_) => break,
                // One call sends a limited number of packets: repeat while it makes progress.
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) if left < before => {
                }
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => break,
                Err((_, error)) => return Err(error),
            }
        }
        self.reap();
        Ok(())
    }

    /// Frames given to the kernel that have not been sent yet.
    pub(crate) fn unsent(&self) -> u32 {
        self.transmit.waiting()
    }

    /// Makes the driver look for receive frames if it waits for a wakeup, and for packets if this
    /// thread polls.
    pub(crate) fn poll_queue(&self) {
        if self.polls || self.fill.needs_wakeup() {
            // SAFETY: neither an address nor a buffer is given.
            unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                );
            }
        }
    }

    /// Packets lost so far.
    pub(crate) fn counts(&self) -> Counts {
        // SAFETY: the statistics are plain numbers: all zeros is a value.
        let mut s: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        if get(&self.fd, libc::XDP_STATISTICS, &mut s).is_err() {
            return Counts::default();
        }
        Counts {
            dropped: s.rx_dropped + self.too_long,
            ring_full: s.rx_ring_full,
            no_frame: s.rx_fill_ring_empty_descs,
        }
    }
}

/// What a socket turned out to be able to do when it was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketAbilities {
    /// The card accesses the memory itself.
    pub(crate) zero_copy: bool,
    /// Packets may come in several frames.
    pub(crate) spans: bool,
}

impl SocketAbilities {
    /// What each of some sockets can do.
    pub(crate) fn of_all(all: impl Iterator<Item = SocketAbilities>) -> SocketAbilities {
        let both = |a: SocketAbilities, b: SocketAbilities| SocketAbilities {
            zero_copy: a.zero_copy && b.zero_copy,
            spans: a.spans && b.spans,
        };
        all.fold(SocketAbilities { zero_copy: true, spans: true }, both)
    }
}

/// A bound socket and its memory, for another process. Nobody has used its rings.
pub(crate) struct BoundSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) memory: OwnedFd,
    pub(crate) abilities: SocketAbilities,
}

impl BoundSocket {
    /// As [`QueueSocket::open`].
    pub(crate) fn open(interface: u32, queue: u32, config: &Config) -> io::Result<BoundSocket> {
        let memory = memory_file(config.memory())?;
        // The kernel keeps hold of the pages when this mapping ends.
        let (umem, _) = Umem::of_file(memory.as_fd(), config.all_frames(), config.frame_bytes)?;
        let (fd, abilities) = bound(interface, queue, config, &umem)?;
        Ok(BoundSocket { fd, memory, abilities })
    }
}

/// A socket with memory and rings, bound.
fn bound(interface: u32, queue: u32, config: &Config, umem: &Umem) -> io::Result<(OwnedFd, SocketAbilities)> {
    // SAFETY: socket takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    register(&fd, umem)?;
    for (ring, entries) in [
        (libc::XDP_UMEM_FILL_RING, config.receive_frames),
        (libc::XDP_RX_RING, config.receive_frames),
        (libc::XDP_UMEM_COMPLETION_RING, config.frames),
        (libc::XDP_TX_RING, config.frames),
    ] {
        set(&fd, libc::SOL_XDP, ring, &entries)?;
    }
    if let Some(time) = config.busy_poll {
        let micros = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX).max(1);
        set(&fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &micros)?;
        set(&fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &POLLED)?;
    }
    // Older kernels work without it.
    let _ = set(&fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &config.frames);
    // Both modes use the same memory, so it is pinned once.
    let abilities = bind_best(&fd, interface, queue, config.zero_copy)?;
    Ok((fd, abilities))
}

impl AsFd for QueueSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets an option that is a plain number or a structure of plain numbers.
fn set<T: Copy>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call, and its size is given; the kernel only reads it.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) })
        .map(|_| ())
}

/// Reads an option of SOL_XDP: a structure of plain numbers, for which every bit pattern is valid.
fn get<T: Copy>(fd: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a structure of that size.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    })
    .map(|_| ())
}

fn register(fd: &OwnedFd, umem: &Umem) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: umem.start(),
        len: umem.len() as u64,
        chunk_size: umem.frame_bytes() as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
}

fn ring_offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the offsets are plain numbers: all zeros is a value.
    let mut at: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get(fd, libc::XDP_MMAP_OFFSETS, &mut at)?;
    Ok(at)
}

/// Binds with zero-copy if that is wanted and possible, else so that packets may span frames, if the
/// kernel can do that. Says which of both it is.
fn bind_best(fd: &OwnedFd, interface: u32, queue: u32, zero_copy: bool) -> io::Result<SocketAbilities> {
    let able = |zero_copy, spans| SocketAbilities { zero_copy, spans };
    let is_busy = |e: &io::Error| e.raw_os_error() == Some(libc::EBUSY);
    // A driver with zero-copy refuses packets larger than a frame by its MTU.
    if zero_copy {
        match bind(fd, interface, queue, libc::XDP_ZEROCOPY) {
            Err(e) if !is_busy(&e) => {}
            bound => return bound.map(|()| able(true, false)),
        }
    }
    match bind(fd, interface, queue, libc::XDP_COPY | libc::XDP_USE_SG) {
        Err(e) if !is_busy(&e) => bind(fd, interface, queue, libc::XDP_COPY).map(|()| able(false, false)),
        bound => bound.map(|()| able(false, true)),
    }
}

fn bind(fd: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and its size is given.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }).map(|_| ())
}

/// Sockets of one wait, at most. Reason: a thread has few; the list is on the stack.
pub(crate) const SOCKETS_PER_WAIT: usize = 64;

/// Waits until a socket has received something, `wake` is signalled or `news` is readable, at most
/// `limit` (`None`: forever). In copy mode this call also sends the pushed frames. A signal ends
/// it. Returns whether `news` is readable.
pub(crate) fn wait_any(
    sockets: &[QueueSocket],
    wake: &EventFd,
    news: BorrowedFd<'_>,
    limit: Option<Duration>,
) -> io::Result<bool> {
    let nobody = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let mut polled = [nobody; SOCKETS_PER_WAIT + 2];
    polled[0] = libc::pollfd { fd: wake.as_raw_fd(), events: libc::POLLIN, ..nobody };
    polled[1] = libc::pollfd { fd: news.as_raw_fd(), events: libc::POLLIN, ..nobody };
    for (poll, socket) in polled[2..].iter_mut().zip(sockets) {
        *poll = libc::pollfd { fd: socket.fd.as_raw_fd(), events: libc::POLLIN, ..nobody };
    }
    let count = 2 + sockets.len().min(SOCKETS_PER_WAIT);
    let spec = limit.map(timespec);
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the list has at least `count` entries; the time lives through the call; no signal
    // mask is given.
    let result = unsafe { libc::ppoll(polled.as_mut_ptr(), count as libc::nfds_t, spec, std::ptr::null()) };
    match check(result) {
        Err(e) if e.raw_os_error() == Some(libc::EINTR) => Ok(false),
        result => result.map(|_| polled[1].revents != 0),
    }
}
