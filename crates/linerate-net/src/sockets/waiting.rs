//! Calls that wait, as a program makes them on a socket that blocks. They wait by returning `None`: the
//! caller moves packets ([`Sockets::turn`]) until [`WaitingCall::until`] at most, and calls again.

use super::{CallFlags, SocketFailure, SocketId, Sockets};
use crate::Time;
use crate::link::Link;

/// How a call waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitFlags {
    /// MSG_DONTWAIT: not at all.
    pub dont_wait: bool,
    /// MSG_WAITALL: a receive waits for all it has room for.
    pub wait_all: bool,
}

/// A `recv` or `send` under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    done: usize,
    /// Bytes with which a receive is content.
    least: usize,
    until: Time,
}

impl WaitingCall {
    /// Until when it waits; [`Time::NEVER`]: for any time.
    pub fn until(&self) -> Time {
        self.until
    }

    /// What the call returns if a signal ends it: the bytes so far, or EINTR.
    pub fn interrupted(&self) -> Result<usize, SocketFailure> {
        if self.done > 0 { Ok(self.done) } else { Err(libc::EINTR.into()) }
    }

    /// What it returns once its time is over.
    fn end(&self, now: Time) -> Option<Result<usize, SocketFailure>> {
        if now < self.until {
            return None;
        }
        Some(if self.done > 0 { Ok(self.done) } else { Err(libc::EAGAIN.into()) })
    }
}

impl<L: Link> Sockets<L> {
    /// Begins a `recv` of `len` bytes. Its time is SO_RCVTIMEO.
    pub fn begin_receive(
        &mut self,
        id: SocketId,
        len: usize,
        how: WaitFlags,
    ) -> Result<WaitingCall, SocketFailure> {
        let now = self.now();
        let options = &self.get(id)?.options;
        let least = if how.wait_all { len } else { (options.rcvlowat as usize).min(len) };
        let time = options.receive_timeout.map_or(Time::NEVER, |time| now + time);
        Ok(WaitingCall { done: 0, least: least.max(1), until: if how.dont_wait { now } else { time } })
    }

    /// Begins a `send`. Its time is SO_SNDTIMEO.
    pub fn begin_send(&mut self, id: SocketId, how: WaitFlags) -> Result<WaitingCall, SocketFailure> {
        let now = self.now();
        let time = self.get(id)?.options.send_timeout.map_or(Time::NEVER, |time| now + time);
        Ok(WaitingCall { done: 0, least: 0, until: if how.dont_wait { now } else { time } })
    }

    /// Continues a `recv` into the same buffer; `None`: it waits.
    pub fn continue_receive(
        &mut self,
        call: &mut WaitingCall,
        id: SocketId,
        into: &mut [u8],
        flags: CallFlags,
    ) -> Option<Result<usize, SocketFailure>> {
        let now = self.now();
        let socket = match self.get(id) {
            Ok(socket) => socket,
            Err(failure) => return Some(Err(failure)),
        };
        let unread = self.sides(socket).map_or(0, |sides| sides.unread);
        // Bytes come before an error, which the next call tells.
        let no_more = socket.error.is_some() || socket.receive_shut;
        if flags.peek && unread < call.least && !no_more && now < call.until {
            return None;
        }
        if call.done > 0 && unread == 0 && no_more {
            return Some(Ok(call.done));
        }
        match self.recv(id, &mut into[call.done..], flags) {
            Ok(len) => {
                call.done += len;
                if len == 0 || flags.peek || call.done >= call.least {
                    return Some(Ok(call.done));
                }
            }
            Err(failure) if failure.errno != libc::EAGAIN => return Some(Err(failure)),
            Err(_) => {}
        }
        call.end(now)
    }

    /// Continues a `send` of the same bytes; `None`: it waits.
    pub fn continue_send(
        &mut self,
        call: &mut WaitingCall,
        id: SocketId,
        bytes: &[u8],
        flags: CallFlags,
    ) -> Option<Result<usize, SocketFailure>> {
        let now = self.now();
        let broken = self.get(id).is_ok_and(|socket| socket.error.is_some() || socket.send_shut);
        if call.done > 0 && broken {
            return Some(Ok(call.done));
        }
        match self.send(id, &bytes[call.done..], flags) {
            Ok(len) => {
                call.done += len;
                if call.done == bytes.len() {
                    return Some(Ok(call.done));
                }
            }
            Err(failure) if failure.errno != libc::EAGAIN => return Some(Err(failure)),
            Err(_) => {}
        }
        call.end(now)
    }
}
