//! Which descriptors are ours, without a lock: signal handlers and our own calls come here too.

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// Descriptors that can be ours. Reason: a table of fixed size needs no lock; Linux allows this many by
/// default (`fs.nr_open`).
const MOST: usize = 1 << 20;

static KINDS: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// Whose a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DescriptorKind {
    /// The kernel's.
    Kernel = 0,
    /// A connection in user space; for the kernel it is a socket that is not connected.
    Connection = 1,
    /// The kernel's listener, beside one of ours.
    Listener = 2,
    /// The kernel's epoll, beside a set of ours.
    Set = 3,
    /// Closed for the program, and kept for the next connection.
    Kept = 4,
    /// A listener of an address that was asked for, which nobody has waited on yet.
    Named = 5,
    /// A connection of the process that this one was forked from.
    Orphan = 6,
}

impl DescriptorKind {
    fn of(number: u8) -> DescriptorKind {
        match number {
            1 => DescriptorKind::Connection,
            2 => DescriptorKind::Listener,
            3 => DescriptorKind::Set,
            4 => DescriptorKind::Kept,
            5 => DescriptorKind::Named,
            6 => DescriptorKind::Orphan,
            _ => DescriptorKind::Kernel,
        }
    }
}

/// Whose this descriptor is.
pub(crate) fn kind(fd: i32) -> DescriptorKind {
    let entry = usize::try_from(fd).ok().and_then(|at| KINDS.get(at));
    entry.map_or(DescriptorKind::Kernel, |kind| DescriptorKind::of(kind.load(Ordering::Acquire)))
}

/// Notes whose it is. `false`: the number is too large to be ours.
pub(crate) fn set(fd: i32, kind: DescriptorKind) -> bool {
    let Some(entry) = usize::try_from(fd).ok().and_then(|at| KINDS.get(at)) else { return false };
    entry.store(kind as u8, Ordering::Release);
    if kind != DescriptorKind::Kernel {
        HIGHEST.fetch_max(fd, Ordering::AcqRel);
    }
    true
}

/// The descriptors of a range that are not the kernel's alone.
pub(crate) fn ours(from: u32, to: u32) -> impl Iterator<Item = (i32, DescriptorKind)> {
    let last = i64::from(HIGHEST.load(Ordering::Acquire)).min(i64::from(to));
    (i64::from(from)..=last)
        .map(|fd| (fd as i32, kind(fd as i32)))
        .filter(|(_, kind)| *kind != DescriptorKind::Kernel)
}

/// This process was forked from one with connections: it has none of them.
pub(crate) fn disown() {
    for (fd, kind) in ours(0, u32::MAX) {
        let left = match kind {
            DescriptorKind::Connection | DescriptorKind::Orphan => DescriptorKind::Orphan,
            DescriptorKind::Named => DescriptorKind::Named,
            _ => DescriptorKind::Kernel,
        };
        set(fd, left);
    }
}
