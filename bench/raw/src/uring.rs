//! The raw client on io_uring: multishot receive into provided buffers on direct descriptors. It
//! counts bytes and parses nothing.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use io_uring::types::{BufRingEntry, DestinationSlot, Fixed, Timespec};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};

use crate::client::{RawClientCounts, RawClientOptions};
use crate::sys::PeerAddress;

/// The group id of our receive buffers.
pub(crate) const GROUP: u16 = 0;
/// `IORING_RECVSEND_POLL_FIRST`: the response cannot have arrived yet, so skip the first attempt.
const POLL_FIRST: u16 = 1;

/// Bytes of all receive buffers together. More would only use more cache.
const BUFFERS: usize = 1 << 20;

const RECEIVE: u64 = 1 << 32;
const CLOSE: u64 = 2 << 32;
const SEND: u64 = 3 << 32;
const END: u64 = 4 << 32;
const KIND: u64 = !0 << 32;

/// Runs until the time is over; responses in flight then are not counted.
pub fn run(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    if o.short { short(o) } else { kept(o) }
}

/// A ring in its three parts. The ring is never freed: the process ends with the run.
pub(crate) struct RawRing {
    submitter: Submitter<'static>,
    queue: SubmissionQueue<'static>,
    completions: CompletionQueue<'static>,
}

impl RawRing {
    /// `at_once`: entries that one turn of the loop may submit.
    pub(crate) fn new(at_once: usize) -> io::Result<RawRing> {
        let entries = at_once.next_power_of_two().clamp(256, 16_384) as u32;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_no_sqarray()
            .setup_cqsize(entries * 2)
            .build(entries)?;
        let (mut submitter, queue, completions) = Box::leak(Box::new(ring)).split();
        submitter.register_ring_fd()?;
        Ok(RawRing { submitter, queue, completions })
    }

    /// Schedules a completion for the end of the run, so that waits need no timer of their own.
    fn end_after(&mut self, lasts: &Timespec) -> io::Result<()> {
        self.push(&[opcode::Timeout::new(lasts).build().user_data(END)])
    }

    /// Makes room for direct descriptors.
    pub(crate) fn direct(&mut self, count: u32) -> io::Result<()> {
        self.submitter.register_files_sparse(count)
    }

    /// The next completion since the last wait.
    pub(crate) fn next(&mut self) -> Option<cqueue::Entry> {
        self.completions.next()
    }

    pub(crate) fn push(&mut self, entries: &[squeue::Entry]) -> io::Result<()> {
        if self.queue.capacity() - self.queue.len() < entries.len() {
            self.queue.sync();
            self.submitter.submit()?;
            self.queue.sync();
        }
        // SAFETY: what entries point to (rows, the peer's address, response buffers, the time)
        // lives until the loops return, and the ring does nothing after that.
        // and the ring does nothing after that.
        unsafe { self.queue.push_multiple(entries) }.map_err(io::Error::other)
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.queue.sync();
        match self.submitter.submit_and_wait(1) {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => return Err(e),
            _ => {}
        }
        self.queue.sync();
        self.completions.sync();
        Ok(())
    }
}

fn failed(what: &str, code: i32) -> io::Error {
    io::Error::other(format!("{what}: {}", io::Error::from_raw_os_error(-code)))
}

/// The ring of buffers the kernel receives into.
pub(crate) struct RingBuffers {
    entries: *mut BufRingEntry,
    count: u16,
    tail: u16,
    len: usize,
    memory: Vec<u8>,
}

impl RingBuffers {
    pub(crate) fn new(ring: &RawRing, len: usize) -> io::Result<RingBuffers> {
        let count = (BUFFERS / len).next_power_of_two().clamp(16, 4096) as u16;
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        let (rw, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping, page-aligned as the kernel wants it; never unmapped,
        // so valid as long as the ring.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rw, shared, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `at` has room for `count` entries and lives until the process ends.
        unsafe { ring.submitter.register_buf_ring_with_flags(at as u64, count, GROUP, 0)? };
        let memory = vec![0; usize::from(count) * len];
        let mut b = RingBuffers { entries: at.cast(), count, tail: 0, len, memory };
        (0..count).for_each(|i| b.give(i));
        b.publish();
        Ok(b)
    }

    /// Returns buffer `id` to the kernel, effective with the next [`RingBuffers::publish`].
    pub(crate) fn give(&mut self, id: u16) {
        let place = usize::from(self.tail & (self.count - 1));
        let address = self.memory.as_mut_ptr() as u64 + (usize::from(id) * self.len) as u64;
        // SAFETY: `place` is below `count`, so inside the mapping; the kernel does not read it
        // before the tail moves.
        let entry = unsafe { &mut *self.entries.add(place) };
        entry.set_addr(address);
        entry.set_len(self.len as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// The first `len` bytes of buffer `id`, which the kernel has filled.
    pub(crate) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        let start = usize::from(id) * self.len;
        &self.memory[start..start + len.min(self.len)]
    }

    pub(crate) fn publish(&self) {
        // SAFETY: `entries` is the ring's first entry, whose reserved field is the tail that the
        // kernel reads.
        unsafe { (*BufRingEntry::tail(self.entries).cast::<AtomicU16>()).store(self.tail, Ordering::Release) }
    }
}

#[derive(Clone, Copy, Default)]
struct RingClientConnection {
    /// Bytes received of the current response.
    got: usize,
    /// Bytes of requests that may be sent and were not.
    credit: usize,
}

fn kept(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    let request = o.request();
    let answer = o.learn()?;
    let fds = (0..o.connections).map(|_| o.connect(answer)).collect::<io::Result<Vec<_>>>()?;
    let lasts = Timespec::from(o.lasts);
    let mut ring = RawRing::new(o.connections * 2)?;
    ring.submitter.register_files(&fds)?;
    let window = (o.depth * answer).next_power_of_two();
    let mut buffers = RingBuffers::new(&ring, o.receive.unwrap_or(window.clamp(16 << 10, 64 << 10)))?;
    let row = request.repeat(o.depth);
    // A send takes all bytes; the responses show that it finished, so it needs no completion.
    let send = |slot: usize, len: usize| {
        opcode::Send::new(Fixed(slot as u32), row.as_ptr(), len as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(SEND | slot as u64)
    };
    let receive = |slot: usize| {
        opcode::RecvMulti::new(Fixed(slot as u32), GROUP).build().user_data(RECEIVE | slot as u64)
    };
    let mut connections = vec![RingClientConnection::default(); o.connections];
    let mut touched = Vec::with_capacity(o.connections * 4);
    let mut counts = RawClientCounts::default();
    let start = Instant::now();
    ring.end_after(&lasts)?;
    for slot in 0..o.connections {
        ring.push(&[receive(slot), send(slot, row.len())])?;
    }
    loop {
        ring.wait()?;
        while let Some(e) = ring.completions.next() {
            let slot = (e.user_data() & !KIND) as usize;
            match e.user_data() & KIND {
                RECEIVE => {}
                END => {
                    counts.elapsed = start.elapsed();
                    return Ok(counts);
                }
                _ => return Err(failed("send", e.result())),
            }
            if let Some(id) = cqueue::buffer_select(e.flags()) {
                buffers.give(id);
                let c = &mut connections[slot];
                let n = e.result() as usize;
                let whole = (c.got + n) / answer;
                c.got = (c.got + n) % answer;
                c.credit += whole * request.len();
                counts.answered += whole as u64;
                counts.received += n as u64;
                counts.reads += 1;
                touched.push(slot);
            } else if e.result() != -libc::ENOBUFS {
                return Err(failed("receive", e.result()));
            }
            if !cqueue::more(e.flags()) {
                ring.push(&[receive(slot)])?;
            }
        }
        buffers.publish();
        for slot in touched.drain(..) {
            let len = std::mem::take(&mut connections[slot].credit);
            if len > 0 {
                ring.push(&[send(slot, len)])?;
            }
        }
    }
}

/// socket -> connect -> send -> receive -> close as one chain of linked entries; one call submits
/// many chains.
fn short(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    let request = o.request();
    let answer = o.learn()?;
    let peer = PeerAddress::new(o.target);
    let lasts = Timespec::from(o.lasts);
    let mut ring = RawRing::new(o.connections * 8)?;
    ring.submitter.register_files_sparse(o.connections as u32)?;
    let mut buffers = vec![0u8; o.connections * answer];
    let at = buffers.as_mut_ptr();
    let mut counts = RawClientCounts::default();
    let chain = |slot: usize| {
        let fd = Fixed(slot as u32);
        let file = DestinationSlot::try_from_slot_target(slot as u32).ok();
        let linked = squeue::Flags::IO_HARDLINK;
        let quiet = linked | squeue::Flags::SKIP_SUCCESS;
        let (address, len) = peer.as_raw();
        // SAFETY: `buffers` has `answer` bytes for each slot and outlives the ring's use.
        let into = unsafe { at.add(slot * answer) };
        let receive = opcode::Recv::new(fd, into, answer as u32).flags(libc::MSG_WAITALL).ioprio(POLL_FIRST);
        let send = opcode::Send::new(fd, request.as_ptr(), request.len() as u32).flags(libc::MSG_NOSIGNAL);
        [
            opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).file_index(file).build().flags(quiet),
            opcode::Connect::new(fd, address, len).build().flags(quiet),
            send.build().flags(quiet),
            receive.build().flags(linked).user_data(RECEIVE | slot as u64),
            opcode::Close::new(fd).build().user_data(CLOSE | slot as u64),
        ]
    };
    let start = Instant::now();
    ring.end_after(&lasts)?;
    for slot in 0..o.connections {
        ring.push(&chain(slot))?;
    }
    loop {
        ring.wait()?;
        while let Some(e) = ring.completions.next() {
            match e.user_data() & KIND {
                RECEIVE => {
                    counts.reads += 1;
                    counts.received += e.result().max(0) as u64;
                    match usize::try_from(e.result()) == Ok(answer) {
                        true => counts.answered += 1,
                        false => counts.broken += 1,
                    }
                }
                CLOSE => ring.push(&chain((e.user_data() & !KIND) as usize))?,
                END => {
                    counts.elapsed = start.elapsed();
                    return Ok(counts);
                }
                _ => return Err(failed("a linked entry", e.result())),
            }
        }
    }
}
