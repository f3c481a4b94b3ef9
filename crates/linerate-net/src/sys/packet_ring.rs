//! AF_PACKET with a ring that the kernel fills block by block (TPACKET_V3, packet(7) and the
//! kernel's packet_mmap.rst).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::check;

/// One instruction of a classic BPF program: code, jumps, operand.
pub(crate) type Instruction = (u16, u8, u8, u32);

/// Bytes of a block. Reason: the kernel hands a block over when it is full or its timeout has
/// passed, and the largest loopback segment (64 KiB) has to fit.
const BLOCK: u32 = 128 << 10;
/// Blocks in the ring. Reason: 32 MiB hold 0.1 s of loopback at full speed. Slow traffic fills no
/// blocks and lasts 2.5 s, longer than the reader is ever away.
pub(crate) const BLOCKS: u32 = 256;
/// Milliseconds after which the kernel hands over a block that is not full.
const RETIRE_MS: u32 = 10;

/// A packet socket and its ring.
#[derive(Debug)]
pub(crate) struct PacketRing {
    socket: OwnedFd,
    ring: *mut u8,
    bytes: usize,
    /// The block to read next.
    next: usize,
}

// SAFETY: only this value uses and unmaps the mapping, and nothing in it belongs to a thread.
unsafe impl Send for PacketRing {}

/// A packet in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPacket<'a> {
    pub(crate) time_ns: i64,
    pub(crate) wire_len: u32,
    pub(crate) data: &'a [u8],
}

impl PacketRing {
    /// A ring of packets that pass `filter`, each from its network header on: of interface `index`,
    /// or of all if it is 0. `incoming_only` omits what this machine sends (loopback receives
    /// everything it sends).
    pub(crate) fn open(index: u32, incoming_only: bool, filter: &[Instruction]) -> io::Result<PacketRing> {
        // Protocol 0: the socket receives nothing before the filter and the ring exist.
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor was just made, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(
            &socket,
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V3 as libc::c_int),
        )?;
        if incoming_only {
            set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        }
        attach(&socket, filter)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK,
            tp_block_nr: BLOCKS,
            tp_frame_size: 2048,
            tp_frame_nr: BLOCK / 2048 * BLOCKS,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let bytes = BLOCK as usize * BLOCKS as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of the socket's ring, of the size just agreed on; the kernel
        // chooses the address.
        let ring = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // From here on, drop unmaps it.
        let this = PacketRing { socket, ring: ring.cast(), bytes, next: 0 };
        bind(&this.socket, index, libc::ETH_P_ALL as u16)?;
        Ok(this)
    }

    /// Waits up to `timeout_ms` for a block.
    pub(crate) fn wait(&self, timeout_ms: i32) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid element for the time of the call.
        match check(unsafe { libc::poll(&mut poll, 1, timeout_ms) }) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    /// Lends each packet of the next block to `each`, then returns the block. False if no block is
    /// ready.
    pub(crate) fn block(&mut self, mut each: impl FnMut(RingPacket<'_>)) -> bool {
        let at = self.next * BLOCK as usize;
        // SAFETY: `next` is below BLOCKS, so the whole block lies in the mapping, which lives as
        // long as `self`; it begins with the descriptor, aligned as blocks are to pages.
        let descriptor = unsafe { self.ring.add(at) }.cast::<libc::tpacket_block_desc>();
        // SAFETY: the field is in the mapping, aligned to 4, and the kernel writes it only as a
        // whole, so both sides can access it atomically.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*descriptor).hdr.bh1.block_status) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the status says that we own the block until we return it, so the kernel does not
        // write to it. The slice ends before that, since `each` cannot keep what it is lent.
        let block = unsafe { std::slice::from_raw_parts(self.ring.add(at), BLOCK as usize) };
        // SAFETY: within the block, which we own; plain integers, for which every bit pattern is
        // valid.
        let header = unsafe { (*descriptor).hdr.bh1 };
        let mut offset = header.offset_to_first_pkt as usize;
        for _ in 0..header.num_pkts {
            let Some((packet, next)) = packet(block, offset) else { break };
            each(packet);
            offset += next;
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS as usize;
        true
    }

    /// Packets dropped since the last call because the ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        // SAFETY: all zeroes is a valid value of this plain structure.
        let mut stats: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: both pointers are valid for the sizes given, for the time of the call.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut len,
            )
        };
        if check(done).is_ok() { u64::from(stats.tp_drops) } else { 0 }
    }
}

/// The packet at `offset` of a block, and the offset from it to the next.
fn packet(block: &[u8], offset: usize) -> Option<(RingPacket<'_>, usize)> {
    let header = block.get(offset..)?.get(..size_of::<libc::tpacket3_hdr>())?;
    // SAFETY: the slice is as long as the structure, whose fields are integers, for which every bit
    // pattern is valid; read unaligned.
    let header = unsafe { header.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() };
    let start = offset + usize::from(header.tp_mac);
    let data = block.get(start..start + header.tp_snaplen as usize)?;
    let time_ns = i64::from(header.tp_sec) * 1_000_000_000 + i64::from(header.tp_nsec);
    // 0 marks the last one of a block.
    Some((RingPacket { time_ns, wire_len: header.tp_len, data }, header.tp_next_offset as usize))
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is valid for its size for the time of the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(done).map(drop)
}

fn attach(socket: &OwnedFd, filter: &[Instruction]) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> =
        filter.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // `program` points into the vector, which outlives the call.
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Binds a packet socket to an interface. It receives frames of this protocol; 0: none.
pub(super) fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is valid for `len` for the time of the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// An interface's index by its name.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: a valid C string for the time of the call.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|index| *index != 0)
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, of that size; it is not used again.
        unsafe { libc::munmap(self.ring.cast(), self.bytes) };
    }
}
