//! Receive buffers that the kernel picks from (a provided-buffer ring).

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::pages::KernelPages;
use crate::limits::FULL_BUFFERS;

const CACHE_LINE: usize = 64;
/// Bytes added to each buffer's size, so that buffers do not share cache sets.
const STAGGER: usize = 5 * CACHE_LINE;

/// Buffers that the share of filled ones is taken of.
const REMEMBERED: u32 = 4096;

/// The owner of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// It is in the ring: the kernel may write to it.
    Kernels,
    /// The kernel has written to it, and it was not given back yet.
    Ours,
    /// It is idle.
    Nobodys,
}

/// Buffers that the kernel picks from. Invariant: a buffer is in the ring exactly while the kernel
/// owns it.
pub(crate) struct Buffers {
    ring: KernelPages,
    data: KernelPages,
    /// Size of a buffer.
    size: usize,
    /// Distance between buffers. Not a power of two: small messages would otherwise always use the
    /// same few cache lines.
    stride: usize,
    whose: Vec<Whose>,
    /// Idle buffers, the last used on top because its memory is still in the cache.
    idle: Vec<u16>,
    /// How many buffers the kernel should have.
    wanted: usize,
    /// How many buffers the kernel has.
    given: usize,
    /// Buffers that came back lately, and of them those that were filled.
    came: u32,
    filled: u32,
    tail: u16,
}

impl Buffers {
    /// Makes `count` buffers, a power of two up to 32768, of `size` bytes. The kernel begins with
    /// `wanted` of them.
    pub(crate) fn new(count: u16, size: usize, wanted: usize) -> io::Result<Buffers> {
        debug_assert!(count.is_power_of_two() && size > 0);
        let ring = KernelPages::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let stride = size.next_multiple_of(CACHE_LINE) + STAGGER;
        let data = KernelPages::new(usize::from(count) * stride)?;
        Ok(Buffers {
            ring,
            data,
            size,
            stride,
            whose: vec![Whose::Nobodys; usize::from(count)],
            idle: (0..count).rev().collect(),
            wanted: wanted.clamp(1, usize::from(count)),
            given: 0,
            came: 0,
            filled: 0,
            tail: 0,
        })
    }

    /// Address of the ring, for registering it.
    pub(crate) fn ring_address(&self) -> u64 {
        self.ring.start() as u64
    }

    pub(crate) fn count(&self) -> u16 {
        self.whose.len() as u16
    }

    /// Bytes that each has room for.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Raises the number of buffers the kernel gets; returns whether it rose.
    pub(crate) fn want_more(&mut self) -> bool {
        let before = self.wanted;
        let mostly_filled = self.filled > self.came / 2;
        let most = if mostly_filled { FULL_BUFFERS.max(before) } else { usize::MAX };
        self.wanted = (self.wanted * 2).min(most).min(self.whose.len());
        self.wanted > before
    }

    /// Gives the kernel buffers until it has as many as it should.
    pub(crate) fn top_up(&mut self) {
        let before = self.tail;
        while self.given < self.wanted
            && let Some(id) = self.idle.pop()
        {
            self.place(id);
        }
        if self.tail != before {
            self.publish();
        }
    }

    fn place(&mut self, id: u16) {
        let mask = self.count() - 1;
        let at = usize::from(self.tail & mask);
        self.whose[usize::from(id)] = Whose::Kernels;
        // SAFETY: `at` is below the number of entries the mapping has room for. The entry is not
        // visible to the kernel until `publish`: there are never more than `count` buffers, so the
        // tail cannot overtake the kernel's head. The tail itself shares the first entry's last two
        // bytes, which none of these setters touches.
        let entry = unsafe { &mut *self.ring.start().cast::<BufRingEntry>().add(at) };
        entry.set_addr(self.address(id) as u64);
        entry.set_len(self.size as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.given += 1;
    }

    fn publish(&self) {
        let base = self.ring.start().cast::<BufRingEntry>();
        // SAFETY: the address of the tail within a mapping that is page-aligned, hence aligned for
        // u16, and lives as long as we do; the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn address(&self, id: u16) -> *mut u8 {
        // SAFETY: ids are below `count`, so the offset lies within the mapping.
        unsafe { self.data.start().add(usize::from(id) * self.stride) }
    }

    /// Takes a buffer into which the kernel has written `len` bytes.
    pub(crate) fn taken(&mut self, id: u16, len: usize) {
        if self.came == REMEMBERED {
            (self.came, self.filled) = (self.came / 2, self.filled / 2);
        }
        self.came += 1;
        self.filled += u32::from(len >= self.size);
        if let Some(whose) = self.whose.get_mut(usize::from(id)) {
            debug_assert_eq!(*whose, Whose::Kernels, "the kernel only uses what it was given");
            *whose = Whose::Ours;
            self.given -= 1;
        }
    }

    /// The first `len` bytes of a buffer we own.
    pub(crate) fn get(&mut self, id: u16, len: usize) -> Option<&mut [u8]> {
        if self.whose.get(usize::from(id)) != Some(&Whose::Ours) {
            return None;
        }
        let len = len.min(self.size);
        // SAFETY: the buffer lies within the mapping and is initialised (zeroed pages). The kernel
        // does not write to it while we own it, and `self` is borrowed mutably, so no other borrow
        // of it exists.
        Some(unsafe { std::slice::from_raw_parts_mut(self.address(id), len) })
    }

    /// Returns a taken buffer.
    pub(crate) fn give_back(&mut self, id: u16) {
        if self.whose.get(usize::from(id)) != Some(&Whose::Ours) {
            return;
        }
        self.whose[usize::from(id)] = Whose::Nobodys;
        if self.given < self.wanted {
            self.place(id);
            self.publish();
        } else {
            self.idle.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_the_kernels_or_ours() {
        let mut buffers = Buffers::new(4, 100, 2).expect("memory");
        buffers.top_up();
        assert_eq!((buffers.given, buffers.idle.len()), (2, 2));
        assert!(buffers.get(0, 1).is_none(), "the kernel may write to it");
        buffers.taken(0, 50);
        assert_eq!(buffers.get(0, 1000).map(|b| b.len()), Some(100), "never more than its size");
        buffers.give_back(0);
        buffers.give_back(0);
        buffers.give_back(3);
        assert!(buffers.get(0, 1).is_none());
        assert_eq!(buffers.given, 2);
        assert!(buffers.get(9, 1).is_none());
        assert!(buffers.want_more());
        assert!(!buffers.want_more(), "there are no more");
        buffers.top_up();
        assert_eq!((buffers.given, buffers.idle.len()), (4, 0));
    }

    /// 16 MiB of filled buffers would leave the cache before they are read.
    #[test]
    fn there_are_few_filled_buffers_and_many_others() {
        for (len, most) in [(100, FULL_BUFFERS), (10, 1024)] {
            let mut buffers = Buffers::new(1024, 100, 32).expect("memory");
            for _ in 0..10 {
                buffers.top_up();
                for id in 0..1024 {
                    if buffers.whose[usize::from(id)] == Whose::Kernels {
                        buffers.taken(id, len);
                    }
                }
                for _ in 0..10 {
                    buffers.want_more();
                }
                (0..1024).for_each(|id| buffers.give_back(id));
            }
            assert_eq!(buffers.wanted, most, "{len}");
        }
    }
}
