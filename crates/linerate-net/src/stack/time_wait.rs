//! Connections that are over: TIME_WAIT, and FIN_WAIT_2 of those that the application has closed,
//! in a bounded table of their own. All wait equally long, so they leave in the order they came.

use std::time::Duration;

use super::tuple::Tuple;
use super::wire::{Flags, Seq, TcpHeader};
use crate::Time;

/// The remains of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remains {
    pub(crate) tuple: Tuple,
    /// Of the 4-tuple, for the table; set when it enters it.
    pub(crate) hash: u64,
    /// The next numbers that we would send and expect.
    pub(crate) nxt: Seq,
    pub(crate) rcv_nxt: Seq,
    /// The offset of our timestamps, and the peer's last timestamp.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// The peer's FIN has not come yet.
    pub(crate) fin_wait: bool,
    pub(crate) since: Time,
    /// When a segment was last answered.
    answered: Time,
    /// Its neighbours in the list.
    before: u32,
    after: u32,
}

/// Marks the absence of an entry.
const NONE: u32 = u32::MAX;

impl Remains {
    pub(crate) fn new(
        tuple: Tuple,
        (nxt, rcv_nxt, timestamps): (Seq, Seq, Option<(u32, u32)>),
        fin_wait: bool,
        now: Time,
    ) -> Remains {
        Remains {
            tuple,
            hash: 0,
            nxt,
            rcv_nxt,
            timestamps,
            fin_wait,
            since: now,
            answered: Time::ZERO,
            before: NONE,
            after: NONE,
        }
    }

    /// The header of a reset that the peer will accept.
    pub(crate) fn reset_header(&self) -> TcpHeader {
        TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.nxt,
            ack: self.rcv_nxt,
            flags: Flags::RST | Flags::ACK,
            ..TcpHeader::default()
        }
    }

    /// Whether a new connection may replace it: the peer's SYN has a higher sequence number (RFC
    /// 9293 section 3.10.7.4) or a later timestamp (RFC 6191).
    pub(crate) fn may_begin_anew(&self, tcp: &TcpHeader) -> bool {
        match (self.timestamps, tcp.options.timestamps) {
            (Some((_, recent)), Some((value, _))) if value != recent => {
                (value.wrapping_sub(recent) as i32) > 0
            }
            _ => tcp.seq.gt(self.rcv_nxt),
        }
    }

    /// Whether we may reuse the 4-tuple: timestamps distinguish old segments from new ones (RFC
    /// 6191 section 2), and the last ACK has had time to arrive.
    pub(crate) fn may_connect_anew(&self, now: Time) -> bool {
        self.timestamps.is_some() && !self.fin_wait && now - self.since > Duration::from_secs(1)
    }
}

/// The reaction to a segment for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeWaitReaction {
    Ignore,
    /// Send an ACK with our numbers.
    Acknowledge,
    /// Send a reset: no application will read its data.
    Reset,
    /// The peer opens a new connection.
    Begin,
    /// The peer has reset it.
    Forget,
}

/// Minimum interval between answers of one entry. Reason: as for connections, two ends that
/// disagree must not answer each other forever.
const ANSWER_EVERY: Duration = Duration::from_millis(500);

/// The table of TIME_WAIT.
pub(crate) struct TimeWait {
    slots: Vec<Option<Remains>>,
    free: Vec<u32>,
    /// The oldest and the newest entry of a linked list, so that an entry replaced early leaves no
    /// gap.
    first: u32,
    last: u32,
    limit: usize,
    time: Duration,
    /// Number of entries in FIN_WAIT_2.
    fin_waits: usize,
}

impl TimeWait {
    pub(crate) fn new(limit: u32, time: Duration) -> TimeWait {
        let limit = limit.max(1) as usize;
        TimeWait { slots: Vec::new(), free: Vec::new(), first: NONE, last: NONE, limit, time, fin_waits: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Number of entries in FIN_WAIT_2.
    pub(crate) fn fin_waits(&self) -> usize {
        self.fin_waits
    }

    /// Up to `most` entries in FIN_WAIT_2.
    pub(crate) fn some_fin_waits(&self, most: usize) -> Vec<u32> {
        let all = self.slots.iter().zip(0..);
        let waiting = all.filter(|(remains, _)| remains.as_ref().is_some_and(|remains| remains.fin_wait));
        waiting.map(|(_, index)| index).take(most.min(self.fin_waits)).collect()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Adds an entry with the hash of its 4-tuple; the caller has made room.
    pub(crate) fn insert(&mut self, hash: u64, remains: Remains) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.fin_waits += usize::from(remains.fin_wait);
        self.slots[index as usize] = Some(Remains { hash, ..remains });
        self.append(index);
        index
    }

    fn slot(&mut self, index: u32) -> Option<&mut Remains> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// Links an entry as the newest.
    fn append(&mut self, index: u32) {
        let last = std::mem::replace(&mut self.last, index);
        if let Some(remains) = self.slot(index) {
            (remains.before, remains.after) = (last, NONE);
        }
        match self.slot(last) {
            Some(remains) => remains.after = index,
            None => self.first = index,
        }
    }

    fn unlink(&mut self, before: u32, after: u32) {
        match self.slot(before) {
            Some(remains) => remains.after = after,
            None => self.first = after,
        }
        match self.slot(after) {
            Some(remains) => remains.before = before,
            None => self.last = before,
        }
    }

    /// Restarts its time.
    fn begin_anew(&mut self, now: Time, index: u32) {
        let Some(remains) = self.slot(index) else { return };
        remains.since = now;
        let (before, after) = (remains.before, remains.after);
        self.unlink(before, after);
        self.append(index);
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Remains> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Remains> {
        let remains = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.fin_waits -= usize::from(remains.fin_wait);
        self.unlink(remains.before, remains.after);
        Some(remains)
    }

    /// The oldest entry.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The oldest entry, if its time is over.
    pub(crate) fn expired(&self, now: Time) -> Option<u32> {
        let index = self.oldest()?;
        self.get(index).filter(|remains| remains.since + self.time <= now).map(|_| index)
    }

    /// When the oldest entry's time is over.
    pub(crate) fn next(&self) -> Option<Time> {
        self.get(self.first).map(|remains| remains.since + self.time)
    }

    /// Handles a segment for an entry (RFC 9293 section 3.10.7.4).
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        index: u32,
        tcp: &TcpHeader,
        len: usize,
    ) -> TimeWaitReaction {
        let Some(remains) = self.slot(index) else { return TimeWaitReaction::Ignore };
        let flags = tcp.flags;
        if flags.has(Flags::RST) {
            // A reset with exactly this number ends TIME_WAIT too, as in Linux (tcp_rfc1337=0). A
            // host that restarts with other clocks has no other way to reuse its port. RFC 1337
            // warns of old resets, which have other numbers.
            return if tcp.seq == remains.rcv_nxt {
                TimeWaitReaction::Forget
            } else {
                TimeWaitReaction::Ignore
            };
        }
        if flags.has(Flags::SYN)
            && !flags.has(Flags::ACK | Flags::FIN)
            && !remains.fin_wait
            && remains.may_begin_anew(tcp)
        {
            return TimeWaitReaction::Begin;
        }
        let end = tcp.seq + len as u32;
        if remains.fin_wait && len > 0 && end.gt(remains.rcv_nxt) && !flags.has(Flags::SYN) {
            return TimeWaitReaction::Reset;
        }
        if remains.fin_wait && flags.has(Flags::FIN) && end == remains.rcv_nxt {
            remains.rcv_nxt += 1;
            remains.fin_wait = false;
            if let (Some((_, recent)), Some((value, _))) = (&mut remains.timestamps, tcp.options.timestamps) {
                *recent = value;
            }
            self.fin_waits -= 1;
            self.begin_anew(now, index);
            return TimeWaitReaction::Acknowledge;
        }
        let plain = len == 0 && !flags.has(Flags::FIN | Flags::SYN) && tcp.seq == remains.rcv_nxt;
        if plain {
            return TimeWaitReaction::Ignore;
        }
        // The peer's FIN again: our ACK was lost, and the time restarts.
        if flags.has(Flags::FIN) && !remains.fin_wait && now > remains.since {
            self.begin_anew(now, index);
            return TimeWaitReaction::Acknowledge;
        }
        if now - remains.answered < ANSWER_EVERY {
            return TimeWaitReaction::Ignore;
        }
        remains.answered = now;
        TimeWaitReaction::Acknowledge
    }
}

#[cfg(test)]
mod tests;
