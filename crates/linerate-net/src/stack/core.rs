//! The stack without its link: packets enter here, and `flush` collects what to send.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::cookie;
use super::demux::{Demux, Owner};
use super::entry::StackConnection;
use super::flow::{Flow, FlowActions, TcpState, believable, shift_for};
use super::handshake::{self, Halves, StackListener};
use super::holders::Holders;
use super::options::StackOptions;
use super::paths::Paths;
use super::ports::Ports;
use super::reply::Replies;
use super::shared::{SharedPools, timestamp};
use super::time_wait::{Remains, TimeWait, TimeWaitReaction};
use super::tuple::Tuple;
use super::wheel::Wheel;
use super::wire::{self, Addr, Flags, Malformed, Message, Packet, Seq, TcpHeader};
use crate::closing::{Closing, ClosingQueue};
use crate::link::Checksums;
use crate::table::Table;
use crate::{Conn, Data, Event, Listener, NetErrorKind, Time, TransportLimits};

/// Everything except the link.
pub(super) struct Core {
    pub(super) now: Time,
    pub(super) limits: TransportLimits,
    pub(super) addresses: Vec<Addr>,
    pub(super) table: Table<StackConnection>,
    pub(super) demux: Demux,
    pub(super) halves: Halves,
    pub(super) waits: TimeWait,
    pub(super) wheel: Wheel,
    pub(super) shared: SharedPools,
    pub(super) ports: Ports,
    pub(super) paths: Paths,
    pub(super) listeners: Vec<Option<StackListener>>,
    /// Slots that have changed since the last flush.
    pub(super) dirty: Vec<u32>,
    /// Connections with something to read that were resumed or read in part.
    pub(super) ready: VecDeque<Conn>,
    /// Events found between turns.
    pub(super) pending: Vec<Event>,
    pub(super) closing: ClosingQueue,
    pub(super) replies: Replies,
    pub(super) holders: Holders,
    /// The link's own MTU when it was last read.
    pub(super) mtu: usize,
    /// Until then no connection is stalled for long enough to end, and for an urgent need.
    pub(super) next_stalled: [Time; 2],
    /// When a cookie was last sent.
    cookies_at: Option<Time>,
}

/// How long cookies are accepted after the last one was sent.
const COOKIES_NS: u64 = 130_000_000_000;
/// Handshakes in progress that are a sign of a flood. Reason: honest clients on a fast network
/// complete theirs before there are as many.
const FLOOD: usize = 1024;
/// How long a cookie is one.
const FLOOD_NS: u64 = 1_000_000_000;
/// How long an ACK of a cookie is dropped instead of being answered by a reset.
const OVERTAKEN_NS: u64 = 10_000_000_000;

impl Core {
    pub(super) fn new(options: StackOptions, now: Time) -> Core {
        let stack = options.stack;
        Core {
            now,
            limits: options.limits,
            addresses: options.addresses.into_iter().map(Addr::from).collect(),
            table: Table::new(options.limits.connections.min(super::demux::MAX_INDEX)),
            demux: Demux::new(),
            halves: Halves::new(stack.handshakes, now),
            waits: TimeWait::new(stack.time_wait, stack.time_wait_time),
            wheel: Wheel::new(now),
            shared: SharedPools::new(stack, options.ecn, options.seed, options.host),
            ports: Ports::new(stack.ports),
            paths: Paths::default(),
            listeners: Vec::new(),
            dirty: Vec::new(),
            ready: VecDeque::new(),
            pending: Vec::new(),
            closing: ClosingQueue::default(),
            replies: Replies::new(stack.replies_per_s),
            holders: Holders::default(),
            mtu: 0,
            next_stalled: [Time::ZERO; 2],
            cookies_at: None,
        }
    }

    /// The link's MTU shrank. Segments in flight that are too large are retransmitted in pieces.
    #[cold]
    pub(super) fn narrow(&mut self, mtu: usize) {
        for slot in 0..self.table.slots() as u32 {
            if let Some((_, entry)) = self.table.by_slot(slot) {
                entry.flow.limit_mss(mss_of(mtu, &entry.flow.tuple.remote));
            }
        }
    }

    pub(super) fn hash(&self, tuple: &Tuple) -> u64 {
        tuple.hash(self.shared.keys.demux)
    }

    pub(super) fn find(&self, tuple: &Tuple, hash: u64) -> Option<Owner> {
        self.demux.find(hash, |owner| match owner {
            Owner::Flow(slot) => self.table.at(slot).is_some_and(|entry| entry.flow.tuple == *tuple),
            Owner::Half(index) => self.halves.get(index).is_some_and(|half| half.tuple == *tuple),
            Owner::Wait(index) => self.waits.get(index).is_some_and(|remains| remains.tuple == *tuple),
        })
    }

    /// Handles a packet from the link. `mtu`: the largest packet that the link takes.
    pub(super) fn handle_packet(
        &mut self,
        bytes: &[u8],
        checksums: Checksums,
        mtu: usize,
        events: &mut Vec<Event>,
    ) {
        self.shared.stats.packets_in += 1;
        let packet = match Packet::parse(bytes, checksums) {
            Ok(packet) => packet,
            Err(Malformed::Checksum) => return self.shared.stats.bad_checksum += 1,
            Err(Malformed::NotOurs) => return self.handle_message(bytes, events),
            Err(_) => return self.shared.stats.malformed += 1,
        };
        let ours = self.addresses.is_empty() || self.addresses.contains(&packet.dst);
        if !ours || !packet.src.is_somebody() {
            return;
        }
        let payload = bytes.get(packet.from..packet.to).unwrap_or_default();
        let tuple = Tuple::of(&packet);
        let hash = self.hash(&tuple);
        let tcp = &packet.tcp;
        match self.find(&tuple, hash) {
            Some(Owner::Flow(slot)) => self.for_flow(slot, tcp, payload, events),
            Some(Owner::Half(index)) => self.for_half(index, tcp, payload, mtu, events),
            Some(Owner::Wait(index)) => self.for_wait(index, tuple, hash, tcp, payload, mtu),
            None => self.for_nobody(tuple, hash, tcp, payload, mtu, events),
        }
    }

    /// A packet that is not TCP may be a message about one of our segments.
    #[cold]
    fn handle_message(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        let told = match Message::parse(bytes) {
            Ok(told) => told,
            Err(Malformed::Checksum) => return self.shared.stats.bad_checksum += 1,
            Err(_) => return self.shared.stats.malformed += 1,
        };
        let tuple = told.tuple;
        let kind = match told.verdict {
            wire::IcmpMeaning::TooBig(mtu) => return self.narrow_path(&told, mtu),
            wire::IcmpMeaning::Refused => NetErrorKind::Refused,
            wire::IcmpMeaning::Unreachable => NetErrorKind::Unreachable,
        };
        // RFC 5927 section 5.2: only an attempt ends by it, and only if it quotes our SYN. Whatever
        // a connection in use is told, its own retransmissions decide.
        if let Some(Owner::Flow(slot)) = self.find(&tuple, self.hash(&tuple))
            && let Some((conn, entry)) = self.table.by_slot(slot)
            && entry.flow.handle_unreachable(told.seq, kind)
        {
            self.shared.stats.unreachable += 1;
            return self.failed(conn, events);
        }
        self.shared.stats.unreachable_refused += 1;
    }

    /// A router says that a segment of ours was too large.
    fn narrow_path(&mut self, told: &Message, mtu: usize) {
        let tuple = told.tuple;
        let news = believable(mtu, told.len, tuple.remote.is_v4());
        let owner = self.find(&tuple, self.hash(&tuple));
        if let (Some(mtu), Some(Owner::Flow(slot))) = (news, owner)
            && let Some((conn, entry)) = self.table.by_slot(slot)
            && entry.flow.handle_too_big(told.seq, mss_of(mtu, &tuple.remote))
        {
            self.shared.stats.too_big += 1;
            self.paths.note(self.now, tuple.remote, mtu);
            return self.touch(conn);
        }
        self.shared.stats.too_big_refused += 1;
    }

    fn for_flow(&mut self, slot: u32, tcp: &TcpHeader, payload: &[u8], events: &mut Vec<Event>) {
        let Some((conn, entry)) = self.table.by_slot(slot) else { return };
        let told = entry.flow.handle_segment(self.now, tcp, payload, &mut self.shared);
        if told.has(FlowActions::RESET) {
            let tuple = entry.flow.tuple;
            // In SYN-SENT the segment belongs to an earlier connection; otherwise no application
            // will read its bytes.
            let over = !entry.connecting;
            self.replies.reset(self.now, &tuple, tcp, payload.len(), &mut self.shared.stats);
            if over && entry.closing.is_some() {
                return self.remove(conn);
            }
            if over {
                // It has shut both directions down, and may read what came before.
                let told = entry.flow.abort();
                return self.act(conn, told, events);
            }
        }
        if told.has(FlowActions::MOVE) {
            return self.move_to_another_port(conn);
        }
        self.act(conn, told, events);
        if std::mem::take(&mut self.shared.early_news) {
            self.note_early(conn);
        }
    }

    /// Acts on what a flow reported.
    pub(super) fn act(&mut self, conn: Conn, told: FlowActions, events: &mut Vec<Event>) {
        let now = self.now;
        let Some(entry) = self.table.get_mut(conn) else { return };
        if !entry.dirty && told != FlowActions::NOTHING {
            entry.dirty = true;
            self.dirty.push(conn.slot);
        }
        if told.has(FlowActions::ESTABLISHED) && entry.connecting {
            entry.connecting = false;
            events.push(Event::connected(conn, now));
            limit_by_path(&mut self.paths, now, &mut entry.flow);
        }
        if told.has(FlowActions::FAILED) {
            return self.failed(conn, events);
        }
        if told.has(FlowActions::READABLE) {
            if entry.closing.is_some() {
                // Beyond the limit the window closes.
                let discarded = &mut entry.low_water_or_discarded;
                if u64::from(*discarded) < self.limits.closing_bytes {
                    let count = |bytes: &mut [u8]| *discarded = discarded.saturating_add(bytes.len() as u32);
                    entry.flow.read(now, usize::MAX, &mut self.shared, count);
                    entry.flow.note_read();
                }
            } else if !entry.paused && !entry.reported && entry.is_readable() {
                entry.reported = true;
                events.push(Event::Readable { conn, data: Data { conn, token: 0 } });
            }
        }
        if told.has(FlowActions::OVER) {
            self.retire(conn);
        }
    }

    /// A flow has failed: frees its 4-tuple and reports the failure in order.
    pub(super) fn failed(&mut self, conn: Conn, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        let hash = entry.hash;
        if entry.closing.is_some() {
            return self.remove(conn);
        }
        let Some(error) = entry.flow.error else { return };
        if entry.connecting {
            self.shared.stats.failed_opens += 1;
        }
        if entry.connecting || entry.paused || entry.ended {
            entry.connecting = false;
            entry.failed = true;
            events.push(Event::Failed { conn, error });
        } else if !entry.reported {
            entry.reported = true;
            events.push(Event::Readable { conn, data: Data { conn, token: 0 } });
        }
        entry.flow.stop_sending(self.now, &mut self.shared);
        let by_cookie = std::mem::take(&mut entry.by_cookie);
        let remains =
            by_cookie.then(|| Remains::new(entry.flow.tuple, entry.flow.remains(), false, self.now));
        self.leave(conn.slot, hash, remains);
    }

    /// Frees a connection's 4-tuple, or hands it to `remains`.
    pub(super) fn leave(&mut self, slot: u32, hash: u64, remains: Option<Remains>) {
        let Some(remains) = remains else { return self.demux.remove(hash, Owner::Flow(slot)) };
        if self.waits.is_full()
            && let Some(oldest) = self.waits.oldest()
        {
            self.shared.stats.time_waits_cut += 1;
            self.forget(oldest);
        }
        let index = self.waits.insert(hash, remains);
        self.shared.stats.time_waits += 1;
        self.demux.replace(hash, Owner::Flow(slot), Owner::Wait(index));
    }

    /// Removes a connection that the application has closed, and frees all it held.
    pub(super) fn remove(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        // A late copy of the segment with the cookie would make the connection again. So its end is
        // remembered, whichever side closed first. If the peer has not seen the end, it stays as in
        // FIN_WAIT_2: a reset answers new data.
        let ended = entry.flow.state == TcpState::Closed;
        let remains =
            entry.by_cookie.then(|| Remains::new(entry.flow.tuple, entry.flow.remains(), !ended, self.now));
        let hash = entry.hash;
        self.leave(conn.slot, hash, remains);
        self.drop_entry(conn);
    }

    /// Frees the slot of a connection that has left the table of 4-tuples, and all it held.
    pub(super) fn drop_entry(&mut self, conn: Conn) {
        if let Some(entry) = self.table.get_mut(conn) {
            entry.flow.dispose(&mut self.shared);
            self.table.drop_entry(conn);
        }
    }

    /// Ends a connection and frees its slot. Only an entry for TIME_WAIT (or FIN_WAIT_2) remains,
    /// if one is due.
    pub(super) fn retire(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        if entry.closing.is_none() {
            return;
        }
        let fin_wait = match entry.flow.state {
            TcpState::TimeWait => false,
            TcpState::FinWait2 => true,
            _ => return self.remove(conn),
        };
        // The entry itself sends the ACK that is still due.
        let remains = Remains::new(entry.flow.tuple, entry.flow.remains(), fin_wait, self.now);
        let (hash, owes) = (entry.hash, entry.flow.wants_to_send());
        self.leave(conn.slot, hash, Some(remains));
        if owes {
            self.acknowledge(&remains);
        }
        self.drop_entry(conn);
    }

    /// Removes an entry of TIME_WAIT.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(remains) = self.waits.remove(index) {
            self.demux.remove(remains.hash, Owner::Wait(index));
        }
    }

    /// Sends the ACK of a connection that is over.
    fn acknowledge(&mut self, remains: &Remains) {
        self.answer_of(remains, Flags::ACK);
    }

    /// Sends a segment without data of a connection that is over.
    pub(super) fn answer_of(&mut self, remains: &Remains, flags: Flags) {
        let mut tcp = TcpHeader {
            src_port: remains.tuple.local_port,
            dst_port: remains.tuple.remote_port,
            seq: remains.nxt,
            ack: remains.rcv_nxt,
            flags,
            window: u16::MAX,
            ..TcpHeader::default()
        };
        tcp.options.timestamps =
            remains.timestamps.map(|(offset, recent)| (timestamp(self.now, offset), recent));
        self.replies.push(&remains.tuple, tcp);
    }

    fn for_wait(&mut self, index: u32, tuple: Tuple, hash: u64, tcp: &TcpHeader, payload: &[u8], mtu: usize) {
        match self.waits.handle_segment(self.now, index, tcp, payload.len()) {
            TimeWaitReaction::Ignore => {}
            TimeWaitReaction::Acknowledge => {
                if let Some(remains) = self.waits.get(index).copied() {
                    self.acknowledge(&remains);
                }
            }
            TimeWaitReaction::Reset => {
                // A late segment with a cookie would make the connection again.
                if self.cookies_at.is_none_or(|at| self.now.nanos_since(at) > COOKIES_NS) {
                    self.forget(index);
                }
                self.replies.reset(self.now, &tuple, tcp, payload.len(), &mut self.shared.stats);
            }
            TimeWaitReaction::Forget => self.forget(index),
            TimeWaitReaction::Begin => {
                let least = self.waits.get(index).map(|remains| remains.nxt);
                self.shared.stats.time_waits_reused += 1;
                self.forget(index);
                self.begin(tuple, hash, tcp, mtu, least);
            }
        }
    }

    fn for_nobody(
        &mut self,
        tuple: Tuple,
        hash: u64,
        tcp: &TcpHeader,
        payload: &[u8],
        mtu: usize,
        events: &mut Vec<Event>,
    ) {
        if tcp.flags.has(Flags::RST) {
            return;
        }
        let (syn, ack) = (tcp.flags.has(Flags::SYN), tcp.flags.has(Flags::ACK));
        if self.listener_for(&tuple).is_some() {
            if !ack {
                // Neither a SYN nor an ACK: no answer, as in Linux, so that scans (FIN, NULL, XMAS)
                // learn nothing (RFC 9293 section 3.10.7.2). The same holds for a SYN with a FIN.
                if syn && !tcp.flags.has(Flags::FIN) {
                    self.begin(tuple, hash, tcp, mtu, None);
                }
                return;
            }
            if !syn && self.by_cookie(tuple, hash, tcp, payload, events) {
                return;
            }
            if self.may_have_overtaken_a_cookie(tcp) {
                return;
            }
        }
        self.replies.reset(self.now, &tuple, tcp, payload.len(), &mut self.shared.stats);
    }

    pub(super) fn listener_for(&self, tuple: &Tuple) -> Option<usize> {
        let takes =
            |l: &Option<StackListener>| l.as_ref().is_some_and(|l| l.takes(&tuple.local, tuple.local_port));
        self.listeners.iter().position(takes)
    }

    /// Whether the program must accept connections before a listener takes others.
    fn has_full_queue(&self, listener: usize) -> bool {
        self.listeners.get(listener).is_some_and(|l| l.as_ref().is_some_and(|l| l.room == Some(0)))
    }

    /// Handles a SYN for a listener. `least`: the new sequence numbers begin after it.
    fn begin(&mut self, tuple: Tuple, hash: u64, tcp: &TcpHeader, mtu: usize, least: Option<Seq>) {
        let Some(index) = self.listener_for(&tuple) else {
            return self.replies.reset(self.now, &tuple, tcp, 0, &mut self.shared.stats);
        };
        let queue_full = self.has_full_queue(index);
        if self.table.is_full() || queue_full {
            return self.shared.stats.syns_dropped += 1;
        }
        let mss = mss_of(mtu, &tuple.remote);
        let mut agreed = handshake::agree(self.now, tcp, &tuple, mss, &self.shared);
        if let Some(least) = least.filter(|least| agreed.iss.le(*least + (1 << 16))) {
            agreed.iss = least + (1 << 17);
        }
        let full = self.halves.is_full();
        let Some(Some(listening)) = self.listeners.get_mut(index) else { return };
        if full || listening.halves >= listening.backlog {
            self.cookies_at = Some(self.now);
            self.shared.stats.cookies_sent += 1;
            agreed.iss = cookie::make(self.shared.keys.cookies, self.now, &tuple, &agreed);
            let mut answer = handshake::syn_ack(self.now, &tuple, &agreed, mss, &self.shared);
            match &mut answer.options.timestamps {
                Some((value, _)) => *value = cookie::mark_timestamp(*value, &agreed),
                // Without timestamps the cookie has no room for these options.
                None => {
                    (answer.options.window_scale, answer.options.sack_permitted) = (None, false);
                    answer.flags = Flags::SYN | Flags::ACK;
                }
            }
            return self.replies.push(&tuple, answer);
        }
        listening.halves += 1;
        let half = self.halves.insert(self.now, tuple, hash, index as u32, agreed, &self.shared.limits);
        self.demux.insert(hash, Owner::Half(half));
        let answer = handshake::syn_ack(self.now, &tuple, &agreed, mss, &self.shared);
        self.replies.push(&tuple, answer);
    }

    /// Whether SYNs arrive that nobody completes.
    pub(super) fn is_flooded(&self) -> bool {
        let cookies = self.cookies_at.is_some_and(|at| self.now.nanos_since(at) < FLOOD_NS);
        cookies || self.halves.len() >= FLOOD
    }

    /// Whether this is the last ACK of a handshake that was answered by a cookie.
    fn is_cookie(&self, tuple: &Tuple, tcp: &TcpHeader) -> bool {
        let recent = self.cookies_at.is_some_and(|at| self.now.nanos_since(at) <= COOKIES_NS);
        recent && cookie::check(self.shared.keys.cookies, self.now, tuple, tcp, 0).is_some()
    }

    /// Whether this may be a later segment of a connection whose cookie is still in flight. The
    /// peer has received nothing but the cookie, so that is what the segment acknowledges.
    fn may_have_overtaken_a_cookie(&self, tcp: &TcpHeader) -> bool {
        let recent = self.cookies_at.is_some_and(|at| self.now.nanos_since(at) < OVERTAKEN_NS);
        recent && cookie::may_be(self.now, tcp.ack - 1)
    }

    /// Accepts a connection by the cookie in its last ACK.
    fn by_cookie(
        &mut self,
        tuple: Tuple,
        hash: u64,
        tcp: &TcpHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> bool {
        if !self.is_cookie(&tuple, tcp) {
            return false;
        }
        let shift = shift_for(self.shared.limits.largest_window);
        let Some(agreed) = cookie::check(self.shared.keys.cookies, self.now, &tuple, tcp, shift) else {
            return false;
        };
        let Some(index) = self.listener_for(&tuple).filter(|index| !self.has_full_queue(*index)) else {
            return false;
        };
        self.shared.stats.cookies_taken += 1;
        let flow = Flow::accept(tuple, &agreed, self.now, &mut self.shared);
        self.accept(StackConnection::by_cookie(flow, hash), Listener(index as u32), tcp, payload, events)
    }

    /// Handles a segment of a handshake in progress (RFC 9293 section 3.10.7.4, SYN-RECEIVED).
    fn for_half(&mut self, index: u32, tcp: &TcpHeader, payload: &[u8], mtu: usize, events: &mut Vec<Event>) {
        let Some(half) = self.halves.get(index).copied() else { return };
        let (flags, agreed, now) = (tcp.flags, &half.agreed, self.now);
        if flags.has(Flags::RST) {
            let (offset, window) = (tcp.seq - (agreed.irs + 1), self.shared.limits.first_window.min(0xffff));
            if offset == 0 {
                self.abandon(index);
            } else if offset < window && self.halves.may_answer(now, index) {
                // RFC 5961 section 3.2: a real peer will repeat the reset with the right number.
                self.shared.stats.challenges += 1;
                let ack = handshake::challenge(now, &half.tuple, agreed, &self.shared);
                self.replies.push(&half.tuple, ack);
            }
            return;
        }
        if flags.has(Flags::SYN) {
            // The same SYN again, or a forged one. Either way, repeat our SYN-ACK.
            if self.halves.again(now, index) {
                self.answer(index, mtu);
            }
            return;
        }
        if !flags.has(Flags::ACK) {
            return;
        }
        if tcp.ack != agreed.iss + 1 {
            // A cookie may have answered the first SYN, and a retransmission found room.
            if !flags.has(Flags::SYN) && self.is_cookie(&half.tuple, tcp) {
                self.abandon(index);
                self.by_cookie(half.tuple, half.hash, tcp, payload, events);
                return;
            }
            if self.may_have_overtaken_a_cookie(tcp) {
                return;
            }
            return self.replies.reset(now, &half.tuple, tcp, payload.len(), &mut self.shared.stats);
        }
        let offset = tcp.seq - (agreed.irs + 1);
        let old = matches!((agreed.timestamp, tcp.options.timestamps),
            (Some(recent), Some((value, _))) if (value.wrapping_sub(recent) as i32) < 0);
        if offset > 0xffff || old {
            if self.halves.again(now, index) {
                self.answer(index, mtu);
            }
            return;
        }
        let Some(Some(listening)) = self.listeners.get(half.listener as usize) else {
            return self.abandon(index);
        };
        if let Some(defer) = listening.defer
            && payload.is_empty()
            && !flags.has(Flags::FIN)
        {
            return self.halves.defer(index, now + defer);
        }
        self.promote(index, tcp, payload, events);
    }

    /// Turns a handshake into a connection.
    fn promote(&mut self, index: u32, tcp: &TcpHeader, payload: &[u8], events: &mut Vec<Event>) {
        let listener = self.halves.get(index).map_or(usize::MAX, |half| half.listener as usize);
        if self.table.is_full() || self.has_full_queue(listener) {
            // The SYN-ACK will be retransmitted, and the ACK will come again.
            return;
        }
        let Some(half) = self.halves.remove(index) else { return };
        if let Some(Some(listening)) = self.listeners.get_mut(half.listener as usize) {
            listening.halves -= 1;
        }
        self.demux.remove(half.hash, Owner::Half(index));
        let mut flow = Flow::accept(half.tuple, &half.agreed, self.now, &mut self.shared);
        if half.agreed.sent_at.is_none() {
            flow.sample_by_echo(self.now, tcp, &self.shared);
        }
        self.accept(
            StackConnection::new(flow, half.hash, false),
            Listener(half.listener),
            tcp,
            payload,
            events,
        );
    }

    /// Creates the connection that this segment completes.
    fn accept(
        &mut self,
        entry: StackConnection,
        listener: Listener,
        tcp: &TcpHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> bool {
        let (peer, hash) = (entry.flow.tuple.peer(), entry.hash);
        let Ok(conn) = self.table.insert(entry) else { return false };
        if let Some(Some(listening)) = self.listeners.get_mut(listener.0 as usize) {
            listening.room = listening.room.map(|room| room.saturating_sub(1));
        }
        self.demux.insert(hash, Owner::Flow(conn.slot));
        self.shared.stats.passive_opens += 1;
        if !self.paths.is_empty()
            && let Some(entry) = self.table.get_mut(conn)
        {
            limit_by_path(&mut self.paths, self.now, &mut entry.flow);
        }
        events.push(Event::Accepted { listener, conn, peer });
        self.for_flow(conn.slot, tcp, payload, events);
        true
    }

    /// Gives up a handshake.
    pub(super) fn abandon(&mut self, index: u32) {
        if let Some(half) = self.halves.remove(index) {
            if let Some(Some(listening)) = self.listeners.get_mut(half.listener as usize) {
                listening.halves -= 1;
            }
            self.demux.remove(half.hash, Owner::Half(index));
        }
    }

    /// Sends its SYN-ACK again.
    fn answer(&mut self, index: u32, mtu: usize) {
        if let Some(half) = self.halves.get(index) {
            let mss = mss_of(mtu, &half.tuple.remote);
            let answer = handshake::syn_ack(self.now, &half.tuple, &half.agreed, mss, &self.shared);
            self.replies.push(&half.tuple, answer);
        }
    }

    /// Runs the timers that react to silence. All packets received before `at` must have been
    /// handled.
    pub(super) fn expire(&mut self, at: Time, mtu: usize, events: &mut Vec<Event>) {
        while let Some(slot) = self.wheel.pop(at) {
            let Some((conn, entry)) = self.table.by_slot(slot) else { continue };
            // It may have moved back since, or belong to an earlier connection in this slot.
            let told = entry.flow.handle_deadline(at, &mut self.shared);
            if told == FlowActions::NOTHING {
                self.wheel.set_by(slot, entry.flow.deadline());
            } else {
                self.act(conn, told, events);
            }
        }
        // While many replies wait for the link, those to new SYNs come first.
        while !self.replies.is_behind()
            && let Some(index) = self.halves.pop(at)
        {
            self.expire_half(index, mtu, events);
        }
    }

    /// Runs the timers of closed connections, which depend on time alone.
    pub(super) fn expire_closed(&mut self) {
        while let Some(index) = self.waits.expired(self.now) {
            self.forget(index);
        }
        self.expire_closing();
    }

    fn expire_half(&mut self, index: u32, mtu: usize, events: &mut Vec<Event>) {
        let Some(half) = self.halves.get(index).copied() else { return };
        if half.deferred {
            // No data came: the connection is accepted without any.
            let agreed = &half.agreed;
            let mut tcp = TcpHeader {
                seq: agreed.irs + 1,
                ack: agreed.iss + 1,
                flags: Flags::ACK,
                window: agreed.window >> agreed.scale.map_or(0, |(out, _)| out),
                ..TcpHeader::default()
            };
            tcp.options.timestamps = agreed.timestamp.map(|value| (value, 0));
            return self.promote(index, &tcp, &[], events);
        }
        if self.halves.retry(self.now, index, &self.shared.limits) {
            self.shared.stats.retransmits += 1;
            self.answer(index, mtu);
        } else {
            self.abandon(index);
        }
    }

    fn expire_closing(&mut self) {
        while self.closing.next().is_some_and(|at| at <= self.now) {
            let table = &self.table;
            let what = |conn| table.get(conn).and_then(|entry| entry.closing);
            let Some(conn) = self.closing.expired(self.now, what) else { return };
            self.end_patience(conn);
        }
    }

    /// Stops waiting for the peer's FIN on a closed connection.
    pub(super) fn end_patience(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        let Some(closing) = entry.closing else { return };
        entry.closing = Some(Closing::Flush);
        entry.flow.become_orphan(self.now, &self.shared);
        if closing == Closing::AfterPeer {
            entry.flow.finish();
        }
        self.touch(conn);
    }

    /// Schedules the flow for the next flush.
    pub(super) fn touch(&mut self, conn: Conn) {
        if let Some(entry) = self.table.get_mut(conn)
            && !entry.dirty
        {
            entry.dirty = true;
            self.dirty.push(conn.slot);
        }
    }

    /// The earliest timer.
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        [self.wheel.next(), self.halves.next(), self.waits.next(), self.closing.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Reports the events found between turns.
    pub(super) fn report(&mut self, events: &mut Vec<Event>) {
        for event in self.pending.drain(..) {
            let conn = match &event {
                Event::Failed { conn, .. } | Event::Drained { conn } | Event::Readable { conn, .. } => *conn,
                _ => continue,
            };
            if self.table.get(conn).is_some_and(|entry| entry.closing.is_none()) {
                events.push(event);
            }
        }
        for _ in 0..self.ready.len() {
            let Some(conn) = self.ready.pop_front() else { break };
            let Some(entry) = self.table.get_mut(conn) else { continue };
            if entry.closing.is_none() && !entry.paused && entry.has_news() {
                events.push(Event::Readable { conn, data: Data { conn, token: 0 } });
            } else {
                entry.reported = false;
            }
        }
    }

    /// Reports a connection's failure if the application does not read it.
    pub(super) fn fail_unread(&mut self, conn: Conn) {
        if let Some(entry) = self.table.get_mut(conn)
            && let Some(error) = entry.flow.error.filter(|_| !entry.failed)
        {
            entry.failed = true;
            self.pending.push(Event::Failed { conn, error });
        }
    }

    /// Whether no listener has this address yet.
    pub(super) fn is_free(&self, at: SocketAddr) -> bool {
        let same = |l: &StackListener| {
            l.at.port() == at.port()
                && (l.at.ip() == at.ip() || l.at.ip().is_unspecified() || at.ip().is_unspecified())
        };
        !self.listeners.iter().flatten().any(same)
    }
}

/// Limits a new connection to a narrow path that is already known.
fn limit_by_path(paths: &mut Paths, now: Time, flow: &mut Flow) {
    if paths.is_empty() {
        return;
    }
    if let Some(mtu) = paths.mtu(now, &flow.tuple.remote) {
        flow.limit_mss(mss_of(mtu, &flow.tuple.remote));
    }
}

/// Payload of a full segment towards a host, before options are subtracted.
pub(super) fn mss_of(mtu: usize, to: &Addr) -> u16 {
    let headers = to.header_len() + super::wire::TCP_HEADER;
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX).max(64)
}
