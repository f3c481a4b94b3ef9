//! Handshakes in progress at listeners: SYN-RECEIVED without a connection, so that a flood of SYNs
//! costs little.

use std::net::SocketAddr;
use std::time::Duration;

use super::flow::{Agreed, Flow};
use super::options::{StackLimits, UseOfEcn};
use super::shared::{SharedPools, timestamp};
use super::tuple::Tuple;
use super::wheel::Wheel;
use super::wire::{Addr, Ecn, Flags, Options, Seq, TcpHeader};
use crate::{ListenOptions, Time};

/// A listener.
pub(crate) struct StackListener {
    pub(crate) at: SocketAddr,
    pub(crate) backlog: u32,
    pub(crate) defer: Option<Duration>,
    /// Handshakes in progress.
    pub(crate) halves: u32,
    /// Connections that may still be accepted; `None`: any number.
    pub(crate) room: Option<u32>,
}

impl StackListener {
    pub(crate) fn new(at: SocketAddr, options: &ListenOptions) -> StackListener {
        StackListener { at, backlog: options.backlog.max(1), defer: options.defer, halves: 0, room: None }
    }

    /// Whether it listens there. An unspecified address stands for all of its family (IPv6's for
    /// IPv4's too, as on Linux).
    pub(crate) fn takes(&self, to: &Addr, port: u16) -> bool {
        let ip = self.at.ip();
        let all = ip.is_unspecified() && (ip.is_ipv6() || to.is_v4());
        self.at.port() == port && (all || ip == to.ip())
    }
}

/// A handshake in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) tuple: Tuple,
    pub(crate) hash: u64,
    pub(crate) listener: u32,
    pub(crate) agreed: Agreed,
    pub(crate) retries: u8,
    /// Its ACK came, and now it waits for data (TCP_DEFER_ACCEPT).
    pub(crate) deferred: bool,
    /// When its SYN-ACK was last retransmitted, or an unacceptable segment answered.
    answered: Time,
}

/// The parameters that result from a SYN. `mss`: the largest segment of our link.
pub(crate) fn agree(now: Time, syn: &TcpHeader, tuple: &Tuple, mss: u16, shared: &SharedPools) -> Agreed {
    let options = &syn.options;
    let shift = super::flow::shift_for(shared.limits.largest_window);
    Agreed {
        iss: Seq(shared.first_seq(now, tuple)),
        irs: syn.seq,
        window: syn.window,
        scale: options.window_scale.map(|out| (out, shift)),
        sack: options.sack_permitted,
        timestamp: options.timestamps.map(|(value, _)| value),
        mss: mss.min(options.mss.unwrap_or(536).max(64)),
        ecn: shared.ecn != UseOfEcn::Off && syn.asks_for_ecn(),
        sent_at: Some(now),
    }
}

/// The answer to a SYN, with only options that the peer offered.
pub(crate) fn syn_ack(
    now: Time,
    tuple: &Tuple,
    agreed: &Agreed,
    mss: u16,
    shared: &SharedPools,
) -> TcpHeader {
    let offset = shared.timestamp_offset(tuple);
    let shift = agreed.scale.map_or(0, |(_, shift)| shift);
    let mut options = Flow::syn_options(mss, shift, now, offset, 0);
    options.window_scale = options.window_scale.filter(|_| agreed.scale.is_some());
    options.sack_permitted = agreed.sack;
    options.timestamps = agreed.timestamp.map(|echo| (timestamp(now, offset), echo));
    TcpHeader {
        src_port: tuple.local_port,
        dst_port: tuple.remote_port,
        seq: agreed.iss,
        ack: agreed.irs + 1,
        flags: (Flags::SYN | Flags::ACK).with(Flags::ECE, agreed.ecn),
        window: shared.limits.first_window.min(0xffff) as u16,
        urgent: 0,
        ecn: Ecn::NotCapable,
        options,
    }
}

/// A challenge ACK of a handshake (RFC 5961 section 3).
pub(crate) fn challenge(now: Time, tuple: &Tuple, agreed: &Agreed, shared: &SharedPools) -> TcpHeader {
    let offset = shared.timestamp_offset(tuple);
    let timestamps = agreed.timestamp.map(|echo| (timestamp(now, offset), echo));
    let shift = agreed.scale.map_or(0, |(_, shift)| shift);
    TcpHeader {
        src_port: tuple.local_port,
        dst_port: tuple.remote_port,
        seq: agreed.iss + 1,
        ack: agreed.irs + 1,
        flags: Flags::ACK,
        window: (shared.limits.first_window.min(0xffff) >> shift) as u16,
        urgent: 0,
        ecn: Ecn::NotCapable,
        options: Options { timestamps, ..Options::default() },
    }
}

/// All handshakes in progress.
pub(crate) struct Halves {
    slots: Vec<Option<Half>>,
    free: Vec<u32>,
    wheel: Wheel,
    limit: usize,
}

impl Halves {
    pub(crate) fn new(limit: u32, now: Time) -> Halves {
        Halves { slots: Vec::new(), free: Vec::new(), wheel: Wheel::new(now), limit: limit as usize }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() - self.free.len() >= self.limit
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(
        &mut self,
        now: Time,
        tuple: Tuple,
        hash: u64,
        listener: u32,
        agreed: Agreed,
        limits: &StackLimits,
    ) -> u32 {
        let half = Half { tuple, hash, listener, agreed, retries: 0, deferred: false, answered: Time::ZERO };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(half);
                index
            }
            None => {
                self.slots.push(Some(half));
                self.slots.len() as u32 - 1
            }
        };
        self.wheel.set(index, Some(now + limits.first_rto));
        index
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Half> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Half> {
        let half = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.wheel.set(index, None);
        Some(half)
    }

    /// The handshakes of a removed listener.
    pub(crate) fn of(&self, listener: u32) -> Vec<u32> {
        let of = |(i, half): (usize, &Option<Half>)| {
            half.is_some_and(|half| half.listener == listener).then_some(i as u32)
        };
        self.slots.iter().enumerate().filter_map(of).collect()
    }

    /// The ACK came; now it waits for data.
    pub(crate) fn defer(&mut self, index: u32, until: Time) {
        if let Some(Some(half)) = self.slots.get_mut(index as usize)
            && !half.deferred
        {
            half.deferred = true;
            self.wheel.set(index, Some(until));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Removes a handshake whose timer has expired.
    pub(crate) fn pop(&mut self, now: Time) -> Option<u32> {
        self.wheel.pop(now)
    }

    /// Schedules its SYN-ACK again, at growing intervals (RFC 6298 section 5.5). `false`: the
    /// retries are used up.
    pub(crate) fn retry(&mut self, now: Time, index: u32, limits: &StackLimits) -> bool {
        let Some(Some(half)) = self.slots.get_mut(index as usize) else { return false };
        if half.retries >= limits.handshake_retries {
            return false;
        }
        half.retries += 1;
        half.answered = now;
        // Its round trip cannot be measured any more.
        half.agreed.sent_at = None;
        let wait = limits.first_rto * (1 << half.retries.min(6));
        self.wheel.set(index, Some(now + wait.min(limits.largest_rto)));
        true
    }

    /// Its SYN came again. Returns whether to answer, at a limited rate.
    pub(crate) fn again(&mut self, now: Time, index: u32) -> bool {
        let may = self.may_answer(now, index);
        if may && let Some(Some(half)) = self.slots.get_mut(index as usize) {
            half.agreed.sent_at = None;
        }
        may
    }

    /// Whether to answer an unacceptable segment now, at a limited rate (RFC 5961 section 10).
    pub(crate) fn may_answer(&mut self, now: Time, index: u32) -> bool {
        const EVERY: Duration = Duration::from_millis(100);
        let Some(Some(half)) = self.slots.get_mut(index as usize) else { return false };
        let may = now - half.answered >= EVERY;
        if may {
            half.answered = now;
        }
        may
    }
}
