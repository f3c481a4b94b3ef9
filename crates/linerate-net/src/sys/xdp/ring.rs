//! The rings: one side produces, the other consumes, and each publishes its index.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::pages::KernelPages;

/// The entry of a ring: plain numbers, for which every bit pattern is valid.
pub(super) trait RingEntry: Copy {}
impl RingEntry for u64 {}

/// A packet's place and length (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Packet {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}
impl RingEntry for Packet {}

/// A mapped ring, seen from our side: we produce into it or consume from it, never both.
pub(super) struct Ring<T> {
    pages: KernelPages,
    at: Offsets,
    mask: u32,
    /// Our index; `publish` shows it to the kernel.
    ours: u32,
    /// The kernel's index when we last looked.
    theirs: u32,
    entries: PhantomData<T>,
}

/// Offsets of a ring's parts from the start of its mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

impl From<libc::xdp_ring_offset> for Offsets {
    fn from(o: libc::xdp_ring_offset) -> Offsets {
        Offsets {
            producer: o.producer as usize,
            consumer: o.consumer as usize,
            flags: o.flags as usize,
            entries: o.desc as usize,
        }
    }
}

impl<T: RingEntry> Ring<T> {
    /// Maps a ring of `size` entries, a power of two, which the kernel has already allocated.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        offset: libc::off_t,
        at: Offsets,
        size: u32,
    ) -> io::Result<Ring<T>> {
        debug_assert!(size.is_power_of_two());
        let len = at.entries + size as usize * size_of::<T>();
        let numbers_inside = [at.producer, at.consumer, at.flags].iter().all(|&o| o % 4 == 0 && o + 4 <= len);
        if !numbers_inside || !at.entries.is_multiple_of(align_of::<T>()) {
            return Err(io::Error::other(
                "the kernel's rings are laid out in a way this program does not know",
            ));
        }
        let pages = KernelPages::shared(fd, len, offset)?;
        Ok(Ring { pages, at, mask: size - 1, ours: 0, theirs: 0, entries: PhantomData })
    }

    fn number(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` checked that the offset is aligned and lies within the mapping, which
        // starts at a page and lives as long as `self`. The kernel accesses these numbers
        // atomically, as we do.
        unsafe { AtomicU32::from_ptr(self.pages.start().add(offset).cast()) }
    }

    fn slot(&self, index: u32) -> *mut T {
        // SAFETY: the mask keeps the index below the number of entries the mapping has room for;
        // `map` checked the alignment.
        unsafe { self.pages.start().add(self.at.entries).cast::<T>().add((index & self.mask) as usize) }
    }

    /// Whether the kernel needs a call before it looks at this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.number(self.at.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Producing: appends an entry. The caller has no more frames than the ring has slots, so the
    /// ring cannot overflow.
    pub(super) fn push(&mut self, entry: T) {
        // SAFETY: the slot is within the mapping, and the kernel does not read it before `publish`.
        // Fewer entries than slots are in flight (see above), so the entry overwritten here was
        // consumed.
        unsafe { self.slot(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Producing: shows the pushed entries to the kernel.
    pub(super) fn publish(&self) {
        self.number(self.at.producer).store(self.ours, Ordering::Release);
    }

    /// Producing: entries that the kernel has not consumed.
    pub(super) fn waiting(&self) -> u32 {
        self.ours.wrapping_sub(self.number(self.at.consumer).load(Ordering::Acquire))
    }

    /// Consuming: how many entries there are, at most `max`. Reads the kernel's index only if no
    /// entry is known to be left.
    pub(super) fn available(&mut self, max: u32) -> u32 {
        if self.theirs == self.ours {
            self.theirs = self.number(self.at.producer).load(Ordering::Acquire);
        }
        self.theirs.wrapping_sub(self.ours).min(self.mask + 1).min(max)
    }

    /// Consuming: the entry `ahead` places behind the next. `available` must have counted it;
    /// otherwise the result is an old entry.
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: the slot is within the mapping, every bit pattern is valid, and the kernel does
        // not write to what it has produced until we release it.
        unsafe { self.slot(self.ours.wrapping_add(ahead)).read() }
    }

    /// Consuming: returns the next `count` slots to the kernel.
    pub(super) fn release(&mut self, count: u32) {
        self.ours = self.ours.wrapping_add(count);
        self.number(self.at.consumer).store(self.ours, Ordering::Release);
    }
}
