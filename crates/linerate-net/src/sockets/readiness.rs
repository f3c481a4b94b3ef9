//! Sets of sockets whose readiness somebody waits for (epoll(7)): level and edge triggered, once, and
//! exclusive.

use std::collections::VecDeque;

use super::{ERR, HUP, OUT, SocketFailure, SocketId, Sockets};
use crate::link::Link;

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const WAKEUP: u32 = libc::EPOLLWAKEUP as u32;
/// Flags that are not readiness.
const FLAGS: u32 = EDGE | ONCE | EXCLUSIVE | WAKEUP;

/// A set, as an epoll descriptor is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollSetId(u32);

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollEntry {
    /// What it is ready for.
    pub readiness: u32,
    /// The value that the socket was added with.
    pub token: u64,
}

/// Sockets of a set that may be ready, oldest first.
#[derive(Default)]
pub(super) struct PollSet {
    ready: VecDeque<SocketId>,
}

/// That a set contains a socket.
pub(super) struct Watch {
    set: PollSetId,
    /// Readiness and flags (epoll_ctl(2)); no readiness: it was told once.
    wanted: u32,
    token: u64,
    queued: bool,
}

impl Watch {
    fn mask(&self) -> u32 {
        if self.wanted & !FLAGS == 0 { 0 } else { (self.wanted & !FLAGS) | ERR | HUP }
    }
}

/// Queues a socket in a set, if there still is such a set.
fn queue_in(sets: &mut [Option<PollSet>], set: PollSetId, id: SocketId) {
    if let Some(Some(set)) = sets.get_mut(set.0 as usize) {
        set.ready.push_back(id);
    }
}

impl<L: Link> Sockets<L> {
    /// A new set without sockets.
    pub fn poll_set(&mut self) -> PollSetId {
        let free = self.sets.iter().position(Option::is_none).unwrap_or(self.sets.len());
        if free == self.sets.len() {
            self.sets.push(None);
        }
        self.sets[free] = Some(PollSet::default());
        PollSetId(free as u32)
    }

    /// Removes a set.
    pub fn drop_poll_set(&mut self, set: PollSetId) {
        for place in &mut self.slots {
            if let Some(socket) = &mut place.socket {
                socket.watches.retain(|watch| watch.set != set);
            }
        }
        if let Some(place) = self.sets.get_mut(set.0 as usize) {
            *place = None;
        }
    }

    /// Whether a set may have a socket that is ready.
    pub fn may_have_ready(&self, set: PollSetId) -> bool {
        self.sets.get(set.0 as usize).and_then(Option::as_ref).is_some_and(|set| !set.ready.is_empty())
    }

    /// Adds a socket (EPOLL_CTL_ADD): `wanted` has epoll's bits. EEXIST if the set has it.
    pub fn watch(
        &mut self,
        set: PollSetId,
        id: SocketId,
        wanted: u32,
        token: u64,
    ) -> Result<(), SocketFailure> {
        let socket = self.get_mut(id)?;
        if socket.watches.iter().any(|watch| watch.set == set) {
            return Err(libc::EEXIST.into());
        }
        if wanted & EXCLUSIVE != 0 && wanted & (ONCE | super::RDHUP) != 0 {
            return Err(libc::EINVAL.into());
        }
        // Errors are wanted in any case.
        socket.watches.push(Watch { set, wanted: wanted | ERR | HUP, token, queued: false });
        self.offer(set, id)
    }

    /// Changes what is wanted (EPOLL_CTL_MOD). ENOENT if the set has not the socket.
    pub fn rewatch(
        &mut self,
        set: PollSetId,
        id: SocketId,
        wanted: u32,
        token: u64,
    ) -> Result<(), SocketFailure> {
        let socket = self.get_mut(id)?;
        let watch = socket.watches.iter_mut().find(|watch| watch.set == set).ok_or(libc::ENOENT)?;
        if (wanted | watch.wanted) & EXCLUSIVE != 0 {
            return Err(libc::EINVAL.into());
        }
        (watch.wanted, watch.token) = (wanted | ERR | HUP, token);
        self.offer(set, id)
    }

    /// Removes a socket (EPOLL_CTL_DEL). ENOENT if the set has it not.
    pub fn unwatch(&mut self, set: PollSetId, id: SocketId) -> Result<(), SocketFailure> {
        let socket = self.get_mut(id)?;
        let at = socket.watches.iter().position(|watch| watch.set == set).ok_or(libc::ENOENT)?;
        if socket.watches.remove(at).queued
            && let Some(Some(set)) = self.sets.get_mut(set.0 as usize)
        {
            set.ready.retain(|ready| *ready != id);
        }
        Ok(())
    }

    /// Queues a socket in one set if it is ready.
    fn offer(&mut self, set: PollSetId, id: SocketId) -> Result<(), SocketFailure> {
        let ready = self.readiness(id)?;
        let socket = self.get_mut(id)?;
        let Some(watch) = socket.watches.iter_mut().find(|watch| watch.set == set) else { return Ok(()) };
        let wants_out = watch.wanted & OUT != 0 && ready & OUT == 0;
        if ready & watch.mask() != 0 && !watch.queued {
            watch.queued = true;
            queue_in(&mut self.sets, set, id);
        }
        if wants_out {
            self.want_room(id);
        }
        Ok(())
    }

    /// A socket has changed: `for_what` it may be ready now, or 0 for everything.
    pub(super) fn note(&mut self, id: SocketId, for_what: u32) {
        self.turns = self.turns.wrapping_add(1);
        let first = self.turns;
        let place = self.slots.get_mut(id.slot as usize).filter(|place| place.generation == id.generation);
        let Some(socket) = place.and_then(|place| place.socket.as_mut()) else { return };
        let count = socket.watches.len();
        let mut exclusive_told = false;
        for i in 0..count {
            // Sets that share a socket exclusively take turns.
            let watch = &mut socket.watches[(first + i) % count];
            if watch.mask() == 0 || (for_what != 0 && for_what & watch.mask() == 0) {
                continue;
            }
            if watch.wanted & EXCLUSIVE != 0 && std::mem::replace(&mut exclusive_told, true) {
                continue;
            }
            if !std::mem::replace(&mut watch.queued, true) {
                queue_in(&mut self.sets, watch.set, id);
            }
        }
    }

    /// Appends up to `most` sockets of a set that are ready, without waiting. EBADF if there is no
    /// such set.
    pub fn poll(
        &mut self,
        set: PollSetId,
        most: usize,
        found: &mut Vec<PollEntry>,
    ) -> Result<(), SocketFailure> {
        let queue = |sockets: &mut Self| -> Result<usize, SocketFailure> {
            let set = sockets.sets.get(set.0 as usize).and_then(Option::as_ref).ok_or(libc::EBADF)?;
            Ok(set.ready.len())
        };
        let end = found.len().saturating_add(most);
        for _ in 0..queue(self)? {
            if found.len() >= end {
                break;
            }
            let next = self.sets[set.0 as usize].as_mut().and_then(|set| set.ready.pop_front());
            let Some(id) = next else { break };
            // It may have been closed meanwhile.
            let Ok(ready) = self.readiness(id) else { continue };
            let Ok(socket) = self.get_mut(id) else { continue };
            let Some(watch) = socket.watches.iter_mut().find(|watch| watch.set == set) else { continue };
            if !std::mem::take(&mut watch.queued) {
                continue;
            }
            let wants_out = watch.wanted & OUT != 0 && ready & OUT == 0;
            let readiness = ready & watch.mask();
            if readiness != 0 {
                found.push(PollEntry { readiness, token: watch.token });
                if watch.wanted & ONCE != 0 {
                    watch.wanted &= FLAGS;
                } else if watch.wanted & EDGE == 0 {
                    watch.queued = true;
                    queue_in(&mut self.sets, set, id);
                }
            }
            if wants_out {
                self.want_room(id);
            }
        }
        Ok(())
    }
}
