//! Receiving and sending: parts of buffers, and calls that wait.

use linerate_net::link::xdp::BorrowerCounter;
use linerate_net::sockets::{CallFlags, IN, OUT, RDHUP, SocketId, WaitFlags, WaitingCall};

use crate::kernel::{self, SignalMask};
use crate::messages::tell_once;
use crate::process::with_world;
use crate::tally;
use crate::waiters::WaitedFor;
use crate::waiting::{Patience, wait};
use crate::world::{BypassWorld, errno_of};

fn call_flags(flags: i32) -> CallFlags {
    let has = |flag| flags & flag != 0;
    CallFlags {
        peek: has(libc::MSG_PEEK),
        truncate: has(libc::MSG_TRUNC),
        no_signal: has(libc::MSG_NOSIGNAL),
    }
}

/// The socket of a descriptor, and whether a call with these flags waits.
fn begin(world: &mut BypassWorld, fd: i32, flags: i32) -> Result<(SocketId, bool), i32> {
    let socket = world.socket(fd)?;
    Ok((socket.id, !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0))
}

/// recv(2) into several buffers.
pub(crate) fn receive(fd: i32, parts: &mut [&mut [u8]], flags: i32) -> Result<usize, i32> {
    let got = receive_parts(fd, parts, flags)?;
    if flags & libc::MSG_PEEK == 0 {
        tally::count(BorrowerCounter::BytesIn, got);
    }
    Ok(got)
}

fn receive_parts(fd: i32, parts: &mut [&mut [u8]], flags: i32) -> Result<usize, i32> {
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EINVAL);
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(libc::EAGAIN);
    }
    let call = call_flags(flags);
    let (id, waits, mut got) = with_world(|world| {
        let (id, waits) = begin(world, fd, flags)?;
        if waits {
            return Ok((id, true, 0));
        }
        let mut got = 0;
        for part in parts.iter_mut() {
            match world.net.recv(id, part, call) {
                Ok(len) => {
                    got += len;
                    if len < part.len() || call.peek {
                        break;
                    }
                }
                Err(_) if got > 0 => break,
                Err(failure) => return Err(errno_of(failure)),
            }
        }
        Ok((id, false, got))
    })?;
    if !waits {
        return Ok(got);
    }
    for part in parts.iter_mut() {
        // Only the first part waits, unless all must be full.
        let dont_wait = got > 0 && flags & libc::MSG_WAITALL == 0;
        let how = WaitFlags { dont_wait, wait_all: flags & libc::MSG_WAITALL != 0 };
        match receive_part(id, part, call, how) {
            Ok(len) => {
                got += len;
                if len < part.len() || call.peek {
                    break;
                }
            }
            Err(_) if got > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(got)
}

fn receive_part(id: SocketId, part: &mut [u8], call: CallFlags, how: WaitFlags) -> Result<usize, i32> {
    let (mut waiting, limit) = with_world(|world| {
        let limit = world.net.options_mut(id).map_err(errno_of)?.receive_timeout;
        Ok((world.net.begin_receive(id, part.len(), how).map_err(errno_of)?, limit))
    })?;
    let patience = Patience::of(limit.filter(|_| !how.dont_wait), SignalMask::NONE);
    let done = wait(
        patience,
        &mut Vec::new(),
        |_| Ok(WaitedFor::Sockets(vec![(id, IN | RDHUP)])),
        |world, _| {
            let done = world.net.continue_receive(&mut waiting, id, part, call);
            done.map(|done| done.map_err(errno_of))
        },
    );
    ended(done, &waiting)
}

/// What a call returns whose waiting is over.
fn ended(done: Result<Option<usize>, i32>, waiting: &WaitingCall) -> Result<usize, i32> {
    match done {
        Ok(Some(len)) => Ok(len),
        Ok(None) => waiting.interrupted().map_err(|_| libc::EAGAIN),
        Err(libc::EINTR) => waiting.interrupted().map_err(|failure| failure.errno),
        Err(errno) => Err(errno),
    }
}

/// send(2) of several buffers.
pub(crate) fn transmit(fd: i32, parts: &[&[u8]], flags: i32) -> Result<usize, i32> {
    let sent = transmit_parts(fd, parts, flags)?;
    tally::count(BorrowerCounter::BytesOut, sent);
    Ok(sent)
}

fn transmit_parts(fd: i32, parts: &[&[u8]], flags: i32) -> Result<usize, i32> {
    if flags & libc::MSG_ZEROCOPY != 0 {
        tell_once("MSG_ZEROCOPY is not there for connections in user space");
        return Err(libc::ENOBUFS);
    }
    if flags & libc::MSG_OOB != 0 {
        tell_once("urgent data (MSG_OOB) cannot be sent on connections in user space");
        return Err(libc::EOPNOTSUPP);
    }
    let call = call_flags(flags);
    let (id, waits, mut sent) = with_world(|world| {
        let (id, waits) = begin(world, fd, flags)?;
        if waits {
            return Ok((id, true, 0));
        }
        let mut sent = 0;
        for part in parts {
            match world.net.send(id, part, call) {
                Ok(len) => {
                    sent += len;
                    if len < part.len() {
                        break;
                    }
                }
                Err(_) if sent > 0 => break,
                Err(failure) => return Err(errno_of(failure)),
            }
        }
        world.flush_soon(false);
        Ok((id, false, sent))
    })?;
    if !waits {
        return Ok(sent);
    }
    for part in parts {
        match transmit_part(id, part, call) {
            Ok(len) => {
                sent += len;
                if len < part.len() {
                    break;
                }
            }
            Err(_) if sent > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    with_world(|world| {
        world.turn_now();
        Ok(sent)
    })
}

fn transmit_part(id: SocketId, part: &[u8], call: CallFlags) -> Result<usize, i32> {
    let (mut waiting, limit) = with_world(|world| {
        let limit = world.net.options_mut(id).map_err(errno_of)?.send_timeout;
        Ok((world.net.begin_send(id, WaitFlags::default()).map_err(errno_of)?, limit))
    })?;
    let done = wait(
        Patience::of(limit, SignalMask::NONE),
        &mut Vec::new(),
        |_| Ok(WaitedFor::Sockets(vec![(id, OUT)])),
        |world, _| {
            let done = world.net.continue_send(&mut waiting, id, part, call);
            done.map(|done| done.map_err(errno_of))
        },
    );
    ended(done, &waiting)
}

/// sendfile(2) to a connection, from this place of the file. Returns the bytes that were taken.
pub(crate) fn send_file(fd: i32, file: i32, at: i64, count: usize) -> Result<usize, i32> {
    let mut done = 0;
    loop {
        let (id, waits, taken) = with_world(|world| {
            let (id, waits) = begin(world, fd, 0)?;
            let mut buffer = std::mem::take(&mut world.buffer);
            let taken = file_part(world, id, file, at + done as i64, count - done, &mut buffer);
            world.buffer = buffer;
            world.flush_soon(waits);
            Ok((id, waits, taken))
        })?;
        match taken {
            Ok(len) => done += len,
            Err(libc::EAGAIN) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        }
        // Nothing taken and no error: the file has ended.
        if done == count || !waits || taken == Ok(0) {
            return if done == 0 { taken } else { Ok(done) };
        }
        let patience = Patience::of(None, SignalMask::NONE);
        let is_ready = wait(
            patience,
            &mut Vec::new(),
            |_| Ok(WaitedFor::Sockets(vec![(id, OUT)])),
            |world, _| {
                let ready = world.net.readiness(id).map_err(errno_of);
                ready.map(|ready| (ready & !IN != 0).then_some(())).transpose()
            },
        );
        match is_ready {
            Ok(_) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends as much of a file as the send buffer takes.
fn file_part(
    world: &mut BypassWorld,
    id: SocketId,
    file: i32,
    at: i64,
    count: usize,
    buffer: &mut [u8],
) -> Result<usize, i32> {
    let mut done = 0;
    while done < count {
        let piece = buffer.len().min(count - done);
        let read = match kernel::pread(file, &mut buffer[..piece], at + done as i64) {
            Ok(0) => break,
            Ok(read) => read,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(if errno == libc::ESPIPE { libc::EINVAL } else { errno }),
        };
        match world.net.send(id, &buffer[..read], CallFlags::default()) {
            Ok(len) => {
                done += len;
                if len < read {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(failure) => return Err(errno_of(failure)),
        }
    }
    tally::count(BorrowerCounter::BytesOut, done);
    Ok(done)
}
