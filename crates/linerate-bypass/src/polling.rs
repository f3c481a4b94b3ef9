//! Waiting for readiness of connections in user space and of the kernel's descriptors together.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::link::xdp::BorrowerCounter;
use linerate_net::sockets::{ERR, HUP, IN, OUT, SocketId};

use crate::kernel::{self, SignalMask};
use crate::options::SocketFamily;
use crate::process::with_world;
use crate::table::{self, DescriptorKind};
use crate::tally;
use crate::waiters::WaitedFor;
use crate::waiting::{Patience, wait};
use crate::world::{BypassWorld, LOOKS, errno_of};

/// POLLRDNORM and POLLWRNORM: the same as POLLIN and POLLOUT of a TCP socket.
const NORMAL: [(u32, u32); 2] = [(IN, libc::POLLRDNORM as u32), (OUT, libc::POLLWRNORM as u32)];

/// Bits of poll(2) without aliases.
fn wanted(events: libc::c_short) -> u32 {
    let events = u32::from(events as u16);
    NORMAL.iter().fold(events, |events, (bit, alias)| if events & alias != 0 { events | bit } else { events })
}

fn told(ready: u32, events: libc::c_short) -> libc::c_short {
    let all = NORMAL.iter().fold(ready, |all, (bit, alias)| if ready & bit != 0 { all | alias } else { all });
    (all & (u32::from(events as u16) | ERR | HUP)) as libc::c_short
}

/// poll(2) of descriptors of which some are ours.
pub(crate) fn poll(
    list: &mut [libc::pollfd],
    limit: Option<Duration>,
    signals: SignalMask,
) -> Result<usize, i32> {
    // Entries of the kernel's descriptors keep their order; ours are ignored there.
    let mut polled: Vec<libc::pollfd> = list.to_vec();
    for entry in &mut polled {
        if matches!(table::kind(entry.fd), DescriptorKind::Connection | DescriptorKind::Kept) {
            entry.fd = -1;
        }
        entry.revents = 0;
    }
    kernel::poll(&mut polled, Some(Duration::ZERO), SignalMask::NONE)?;
    let sockets = with_world(|world| {
        let mut sockets: Vec<(usize, SocketId)> = Vec::new();
        for (at, entry) in list.iter().enumerate() {
            if matches!(table::kind(entry.fd), DescriptorKind::Connection | DescriptorKind::Listener) {
                sockets.push((at, world.id(entry.fd)?));
            }
        }
        Ok(sockets)
    })?;
    let events: Vec<libc::c_short> = list.iter().map(|entry| entry.events).collect();
    let found = wait(
        Patience::of(limit, signals),
        &mut polled,
        |_| {
            let each = sockets.iter().map(|(at, id)| (*id, wanted(events[*at])));
            Ok(WaitedFor::Sockets(each.collect()))
        },
        |world, polled| {
            let count = tell_poll(world, list, polled, &sockets);
            (count > 0).then_some(Ok(count))
        },
    )?;
    Ok(found.unwrap_or(0))
}

/// Fills in what each is ready for.
fn tell_poll(
    world: &BypassWorld,
    list: &mut [libc::pollfd],
    polled: &[libc::pollfd],
    sockets: &[(usize, SocketId)],
) -> usize {
    for (entry, kernels) in list.iter_mut().zip(polled) {
        let kept = table::kind(entry.fd) == DescriptorKind::Kept;
        entry.revents = if kept { libc::POLLNVAL } else { kernels.revents };
    }
    for (at, id) in sockets {
        let entry = &mut list[*at];
        match world.net.readiness(*id) {
            Ok(ready) => entry.revents |= told(ready, entry.events),
            // Another thread closed it.
            Err(_) => entry.revents = libc::POLLNVAL,
        }
    }
    list.iter().filter(|entry| entry.revents != 0).count()
}

/// Events of a set that are there now.
fn tell_epoll(world: &mut BypassWorld, epoll: i32, out: &mut [libc::epoll_event]) -> Result<usize, i32> {
    let set = world.set(epoll)?;
    world.found.clear();
    world.net.poll(set, out.len(), &mut world.found).map_err(errno_of)?;
    for (place, entry) in out.iter_mut().zip(&world.found) {
        *place = libc::epoll_event { events: entry.readiness, u64: entry.token };
    }
    Ok(world.found.len())
}

/// epoll_wait(2) of an epoll with a set of ours beside it.
pub(crate) fn epoll_wait(
    epoll: i32,
    out: &mut [libc::epoll_event],
    limit: Option<Duration>,
    signals: SignalMask,
) -> Result<usize, i32> {
    let now = with_world(|world| {
        world.turn_sometimes();
        let ours = tell_epoll(world, epoll, out)?;
        if ours == 0 || !world.waits.is_multiple_of(LOOKS) {
            return Ok(ours);
        }
        Ok(ours + kernel::epoll_look(epoll, &mut out[ours..]).unwrap_or(0))
    })?;
    if now > 0 {
        return Ok(now);
    }
    // A call that does not wait looks at the kernel's events too.
    let revents = if limit == Some(Duration::ZERO) { libc::POLLIN } else { 0 };
    let mut polled = vec![libc::pollfd { fd: epoll, events: libc::POLLIN, revents }];
    let found = wait(
        Patience::of(limit, signals),
        &mut polled,
        |world| Ok(WaitedFor::Set(world.set(epoll)?)),
        |world, polled| {
            let ours = match tell_epoll(world, epoll, out) {
                Ok(ours) => ours,
                Err(errno) => return Some(Err(errno)),
            };
            let mut all = ours;
            if polled[0].revents != 0 && ours < out.len() {
                match kernel::epoll_look(epoll, &mut out[ours..]) {
                    Ok(more) => all += more,
                    Err(errno) if ours == 0 => return Some(Err(errno)),
                    Err(_) => {}
                }
            }
            (all > 0).then_some(Ok(all))
        },
    )?;
    Ok(found.unwrap_or(0))
}

/// epoll_ctl(2) on the set beside an epoll.
pub(crate) fn watch(epoll: i32, op: i32, fd: i32, event: Option<(u32, u64)>) -> Result<(), i32> {
    with_world(|world| {
        let id = world.id(fd)?;
        let set = world.set_beside(epoll)?;
        let result = match (op, event) {
            (libc::EPOLL_CTL_DEL, _) => world.net.unwatch(set, id),
            (libc::EPOLL_CTL_ADD, Some((wanted, token))) => world.net.watch(set, id, wanted, token),
            (libc::EPOLL_CTL_MOD, Some((wanted, token))) => world.net.rewatch(set, id, wanted, token),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => return Err(libc::EFAULT),
            _ => return Err(libc::EINVAL),
        };
        if world.waiters.has_any() {
            world.tell_waiters();
        }
        result.map_err(errno_of)
    })
}

/// Who has the next connection.
pub(crate) enum NextConnection {
    /// Ours: its descriptor, its peer, and its listener's family.
    Ours(i32, SocketAddr, SocketFamily),
    /// The kernel may have one.
    Kernels,
}

/// Of calls, one in so many asks the kernel's listener first, so that ours cannot starve it.
const KERNEL_FIRST: u64 = 64;

/// accept4(2), without waiting.
pub(crate) fn accept(listener: i32, flags: i32) -> Result<NextConnection, i32> {
    with_world(|world| {
        let socket = world.socket(listener)?;
        socket.accepts += 1;
        let (accepts, family) = (socket.accepts, socket.family);
        if accepts.is_multiple_of(KERNEL_FIRST) {
            let mut polled = [libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 }];
            if kernel::poll(&mut polled, Some(Duration::ZERO), SignalMask::NONE)? > 0 {
                return Ok(NextConnection::Kernels);
            }
        }
        match world.accept(listener, flags) {
            Ok((fd, peer)) => {
                tally::count(BorrowerCounter::Accepted, 1);
                Ok(NextConnection::Ours(fd, peer, family))
            }
            Err(libc::EAGAIN) => Ok(NextConnection::Kernels),
            Err(errno) => Err(errno),
        }
    })
}

/// Waits for a connection if this listener's calls do. Returns whether there may be one.
pub(crate) fn await_connection(listener: i32) -> Result<bool, i32> {
    let (nonblocking, id) = with_world(|world| {
        let socket = world.socket(listener)?;
        Ok((socket.nonblocking, socket.id))
    })?;
    if nonblocking {
        return Ok(false);
    }
    let mut polled = vec![libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 }];
    let found = wait(
        Patience::of(None, SignalMask::NONE),
        &mut polled,
        |_| Ok(WaitedFor::Sockets(vec![(id, IN)])),
        |world, polled| {
            let ready = world.net.readiness(id).unwrap_or(IN);
            (polled[0].revents != 0 || ready != 0).then_some(Ok(()))
        },
    )?;
    Ok(found.is_some())
}
