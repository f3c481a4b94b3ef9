//! Connections that are over: TIME_WAIT, and FIN_WAIT_2 of those that the application has left, in a bounded table of their own.
//! All wait equally long, so the order in which they came is the order in which they go.

use std::collections::VecDeque;
use std::time::Duration;

use super::tuple::Tuple;
use super::wire::{Flags, Seq, TcpHeader};
use crate::Time;

/// What is left of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remains {
    pub(crate) tuple: Tuple,
    /// What we would send next, and what we would expect.
    pub(crate) nxt: Seq,
    pub(crate) rcv_nxt: Seq,
    /// The offset of our timestamps, and the peer's last one.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// The peer's FIN did not come yet.
    pub(crate) fin_wait: bool,
    pub(crate) since: Time,
    /// Answered last.
    answered: Time,
}

impl Remains {
    pub(crate) fn new(
        tuple: Tuple,
        (nxt, rcv_nxt, timestamps): (Seq, Seq, Option<(u32, u32)>),
        fin_wait: bool,
        now: Time,
    ) -> Remains {
        Remains { tuple, nxt, rcv_nxt, timestamps, fin_wait, since: now, answered: Time::ZERO }
    }

    /// Whether a new connection may take the place: a SYN of the peer's with a higher sequence number (RFC 9293 section
    /// 3.10.7.4) or a later timestamp (RFC 6191).
    pub(crate) fn may_begin_anew(&self, tcp: &TcpHeader) -> bool {
        match (self.timestamps, tcp.options.timestamps) {
            (Some((_, recent)), Some((value, _))) if value != recent => {
                (value.wrapping_sub(recent) as i32) > 0
            }
            _ => tcp.seq.gt(self.rcv_nxt),
        }
    }

    /// Whether we may begin anew: our timestamps make sure that nothing old is taken for new (RFC 6191 section 2), and the
    /// last ACK has had time to arrive.
    pub(crate) fn may_connect_anew(&self, now: Time) -> bool {
        self.timestamps.is_some() && !self.fin_wait && now - self.since > Duration::from_secs(1)
    }
}

/// What is to be done with a segment for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ignore,
    /// An ACK tells the peer where we were.
    Acknowledge,
    /// Nobody is there to take it.
    Reset,
    /// The peer begins anew.
    Begin,
    /// The peer has reset it.
    Forget,
}

/// How often one entry answers. Reason: as for connections, two that disagree must not talk for ever.
const ANSWER_EVERY: Duration = Duration::from_millis(500);

/// The table.
pub(crate) struct TimeWait {
    slots: Vec<Option<Remains>>,
    free: Vec<u32>,
    /// Since when, and which. An entry whose time began anew is in it twice, and the earlier is void.
    order: VecDeque<(Time, u32)>,
    limit: usize,
    time: Duration,
}

impl TimeWait {
    pub(crate) fn new(limit: u32, time: Duration) -> TimeWait {
        TimeWait {
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            limit: limit.max(1) as usize,
            time,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Adds one; the caller has made room.
    pub(crate) fn insert(&mut self, remains: Remains) -> u32 {
        let since = remains.since;
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(remains);
                index
            }
            None => {
                self.slots.push(Some(remains));
                self.slots.len() as u32 - 1
            }
        };
        self.order.push_back((since, index));
        index
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Remains> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Remains> {
        let remains = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(remains)
    }

    /// The one that came first.
    pub(crate) fn oldest(&mut self) -> Option<u32> {
        while let Some(&(since, index)) = self.order.front() {
            if self.get(index).is_some_and(|remains| remains.since == since) {
                return Some(index);
            }
            self.order.pop_front();
        }
        None
    }

    /// One whose time is over.
    pub(crate) fn expired(&mut self, now: Time) -> Option<u32> {
        let index = self.oldest()?;
        self.get(index).filter(|remains| remains.since + self.time <= now).map(|_| index)
    }

    /// When the first one's time is over.
    pub(crate) fn next(&mut self) -> Option<Time> {
        let index = self.oldest()?;
        self.get(index).map(|remains| remains.since + self.time)
    }

    /// A segment came for one (RFC 9293 section 3.10.7.4; RFC 1337: a reset does not end TIME_WAIT).
    pub(crate) fn handle_segment(&mut self, now: Time, index: u32, tcp: &TcpHeader, len: usize) -> Verdict {
        let many = self.order.len() > 2 * self.limit;
        let Some(Some(remains)) = self.slots.get_mut(index as usize) else { return Verdict::Ignore };
        let flags = tcp.flags;
        if flags.has(Flags::RST) {
            let kills = remains.fin_wait && tcp.seq == remains.rcv_nxt;
            return if kills { Verdict::Forget } else { Verdict::Ignore };
        }
        if flags.has(Flags::SYN) && !flags.has(Flags::ACK) && !remains.fin_wait && remains.may_begin_anew(tcp)
        {
            return Verdict::Begin;
        }
        let end = tcp.seq + len as u32;
        if remains.fin_wait && len > 0 && end.gt(remains.rcv_nxt) && !flags.has(Flags::SYN) {
            return Verdict::Reset;
        }
        if remains.fin_wait && flags.has(Flags::FIN) && end == remains.rcv_nxt {
            remains.rcv_nxt += 1;
            remains.fin_wait = false;
            if let (Some((_, recent)), Some((value, _))) = (&mut remains.timestamps, tcp.options.timestamps) {
                *recent = value;
            }
            remains.since = now;
            self.order.push_back((now, index));
            return Verdict::Acknowledge;
        }
        let plain = len == 0 && !flags.has(Flags::FIN | Flags::SYN) && tcp.seq == remains.rcv_nxt;
        if plain {
            return Verdict::Ignore;
        }
        // The peer's FIN again: our ACK was lost, and the time begins anew.
        if flags.has(Flags::FIN) && !remains.fin_wait && now > remains.since && !many {
            remains.since = now;
            self.order.push_back((now, index));
            return Verdict::Acknowledge;
        }
        if now - remains.answered < ANSWER_EVERY {
            return Verdict::Ignore;
        }
        remains.answered = now;
        Verdict::Acknowledge
    }
}
