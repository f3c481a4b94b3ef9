//! One connection: RFC 9293's state machine. Its inputs are segments and the time; its outputs are
//! segments, events and its next deadline. It knows neither link nor application.

mod ack;
mod arrive;
mod congestion;
mod cubic;
mod hystart;
mod loss;
mod pace;
mod parts;
mod path;
mod reassembly;
mod receive;
mod recovery;
mod rtt;
mod send;
mod timer;
mod urgent;
mod view;

pub(crate) use self::cubic::Congestion;
use self::parts::{Acks, Negotiated, Receive, SegmentPacer, Send, Suspicion, Timer, Timers};
pub(crate) use self::parts::{Scoreboard, Sent};
pub(crate) use self::path::believable;
pub(crate) use self::recovery::Recovery;
use self::recovery::{Rack, TailProbe};
pub(crate) use self::rtt::Rtt;
use super::options::UseOfEcn;
use super::pool::Cursor;
use super::shared::{SharedPools, timestamp};
use super::tuple::Tuple;
use super::wire::{Flags, Options, Seq, TcpHeader};
use crate::{NetError, NetErrorKind, TcpInfo, Time};

/// RFC 9293 section 3.3.2, without the states that have tables of their own: LISTEN, the listener's
/// SYN-RECEIVED, TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpState {
    SynSent,
    /// After a simultaneous open.
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    /// Closed by both sides; it is about to move to the table of TIME_WAIT.
    TimeWait,
    /// Closed, with nothing left to do.
    Closed,
}

/// The result of a call, for the stack to act upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowActions(u8);

impl FlowActions {
    pub(crate) const NOTHING: FlowActions = FlowActions(0);
    /// The handshake is complete.
    pub(crate) const ESTABLISHED: FlowActions = FlowActions(1);
    /// Bytes or the end can be read.
    pub(crate) const READABLE: FlowActions = FlowActions(2);
    /// The connection failed; `error` says why.
    pub(crate) const FAILED: FlowActions = FlowActions(4);
    /// There may be something to send.
    pub(crate) const SEND: FlowActions = FlowActions(8);
    /// The state is TIME_WAIT or closed.
    pub(crate) const OVER: FlowActions = FlowActions(16);
    /// A reset must answer the segment.
    pub(crate) const RESET: FlowActions = FlowActions(32);
    /// Everything sent, including our FIN, is acknowledged.
    pub(crate) const FIN_ACKED: FlowActions = FlowActions(64);
    /// The connection should be tried from another port.
    pub(crate) const MOVE: FlowActions = FlowActions(128);

    pub(crate) fn has(self, other: FlowActions) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn add(&mut self, other: FlowActions) {
        self.0 |= other.0;
    }
}

/// The parameters that both ends negotiated in the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// Our initial sequence number, and the peer's.
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    /// The peer's window, not scaled.
    pub(crate) window: u16,
    /// The peer's shift and ours; `None`: no window scaling.
    pub(crate) scale: Option<(u8, u8)>,
    pub(crate) sack: bool,
    /// TSval of the peer's last segment.
    pub(crate) timestamp: Option<u32>,
    /// Payload of a full segment without options, bytes.
    pub(crate) mss: u16,
    /// RFC 3168.
    pub(crate) ecn: bool,
    /// When our SYN left, if it was sent once.
    pub(crate) sent_at: Option<Time>,
}

/// Counters of a connection. Separate from [`TcpInfo`], which also has fields that need no
/// counting: there are many flows.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    retransmits: u32,
    out_of_order: u32,
    dsack_dups: u32,
    reordered: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    rwnd_limited_us: u64,
}

/// A connection.
pub(crate) struct Flow {
    pub(crate) tuple: Tuple,
    pub(crate) state: TcpState,
    /// Why the connection failed.
    pub(crate) error: Option<NetError>,
    send: Send,
    pub(crate) receive: Receive,
    acks: Acks,
    timers: Timers,
    agreed: Negotiated,
    pub(crate) congestion: Congestion,
    pace: SegmentPacer,
    recovery: Recovery,
    rack: Rack,
    tail: TailProbe,
    rtt: Rtt,
    suspicion: Suspicion,
    counters: Counters,
}

/// The shift needed to announce a window of `largest` bytes.
pub(crate) fn shift_for(largest: u32) -> u8 {
    (0..14).find(|shift| largest >> shift <= 0xffff).unwrap_or(14)
}

impl Flow {
    fn blank(tuple: Tuple, now: Time, shared: &mut SharedPools) -> Flow {
        let offset = shared.timestamp_offset(&tuple);
        let limits = &shared.limits;
        Flow {
            tuple,
            state: TcpState::Closed,
            error: None,
            send: Send::new(now),
            receive: Receive::new(limits.first_window, now),
            acks: Acks::new(),
            timers: Timers::new(now),
            agreed: Negotiated::new(offset, now),
            congestion: Congestion::new(536),
            pace: SegmentPacer::default(),
            recovery: Recovery::default(),
            rack: Rack::default(),
            tail: TailProbe::default(),
            rtt: Rtt::new(limits.first_rto),
            suspicion: Suspicion::default(),
            counters: Counters::default(),
        }
    }

    /// Opens a connection. `mss`: payload of a full segment without options, bytes.
    pub(crate) fn connect(tuple: Tuple, mss: u16, now: Time, shared: &mut SharedPools) -> Flow {
        let mut flow = Flow::blank(tuple, now, shared);
        flow.state = TcpState::SynSent;
        (flow.send.mss, flow.receive.mss) = (mss, mss);
        flow.agreed.scale_in = shift_for(shared.limits.largest_window);
        flow.agreed.ecn = shared.ecn == UseOfEcn::Ask;
        flow.ask_from(tuple, now, shared);
        flow
    }

    /// Sends a SYN from this local end: the first one, or one in place of a port that the peer does
    /// not accept.
    pub(crate) fn ask_from(&mut self, tuple: Tuple, now: Time, shared: &SharedPools) {
        self.tuple = tuple;
        self.send.iss = Seq(shared.first_seq(now, &tuple));
        (self.send.una, self.send.nxt) = (self.send.iss, self.send.iss + 1);
        self.send.syn_due = true;
        // The timer is set when the SYN leaves.
        self.set_timer(Timer::None, Time::NEVER);
    }

    /// Creates a connection from a handshake.
    pub(crate) fn accept(tuple: Tuple, agreed: &Agreed, now: Time, shared: &mut SharedPools) -> Flow {
        let mut flow = Flow::blank(tuple, now, shared);
        flow.send.iss = agreed.iss;
        (flow.send.una, flow.send.nxt) = (agreed.iss + 1, agreed.iss + 1);
        flow.establish(agreed, now, shared);
        flow
    }

    /// The round trip of a SYN-ACK that was sent again, by the timestamp that came back (RFC 7323
    /// section 4.1). Without it the first loss costs a second.
    pub(crate) fn sample_by_echo(&mut self, now: Time, tcp: &TcpHeader, shared: &SharedPools) {
        let Some((_, echo)) = tcp.options.timestamps.filter(|_| self.agreed.timestamps) else { return };
        let ms = timestamp(now, self.agreed.ts_offset).wrapping_sub(echo);
        // An echo that is not ours may be anything.
        if u128::from(ms) <= shared.limits.largest_rto.as_millis() {
            // The clock's unit may hide nearly one of them.
            self.rtt.sample((u64::from(ms) + 1) * 1_000_000, &shared.limits);
        }
    }

    /// Completes the handshake.
    fn establish(&mut self, agreed: &Agreed, now: Time, shared: &SharedPools) {
        self.state = TcpState::Established;
        (self.agreed.sack, self.agreed.ecn) = (agreed.sack, agreed.ecn);
        if let Some(value) = agreed.timestamp {
            self.agreed.timestamps = true;
            (self.agreed.ts_recent, self.agreed.ts_recent_at) = (value, now);
        }
        if let Some((out, into)) = agreed.scale {
            (self.agreed.scaled, self.agreed.scale_out, self.agreed.scale_in) = (true, out, into);
        } else {
            self.agreed.scale_in = 0;
            self.receive.size = self.receive.size.min(0xffff);
        }
        self.send.mss = agreed.mss.saturating_sub(if self.agreed.timestamps { 12 } else { 0 });
        self.receive.mss = self.send.mss;
        self.congestion = Congestion::new(self.send.mss);
        self.receive.nxt = agreed.irs + 1;
        self.receive.edge = self.receive.nxt + self.receive.size.min(0xffff);
        self.acks.last = self.receive.nxt;
        self.send.wnd = u32::from(agreed.window);
        self.send.max_wnd = self.send.wnd;
        (self.send.wl1, self.send.wl2) = (agreed.irs, self.send.una);
        (self.recovery.until, self.send.reduced_until) = (self.send.una, self.send.una - 1);
        self.rack.furthest = self.send.una;
        self.timers.backoff = 0;
        self.set_timer(Timer::None, Time::NEVER);
        self.timers.waiting_since = now;
        if let Some(at) = agreed.sent_at {
            self.rtt.sample(now.nanos_since(at), &shared.limits);
        }
    }

    /// The options of our SYN.
    pub(crate) fn syn_options(mss: u16, shift: u8, now: Time, offset: u32, echo: u32) -> Options {
        Options {
            mss: Some(mss),
            window_scale: Some(shift),
            sack_permitted: true,
            timestamps: Some((timestamp(now, offset), echo)),
            ..Options::default()
        }
    }

    /// Bytes handed over and not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.send.out.len() - self.sent_bytes()
    }

    /// Bytes of `out` that were sent. The SYN and the FIN have numbers but are not in it.
    fn sent_bytes(&self) -> usize {
        if self.state == TcpState::SynSent || self.state == TcpState::SynReceived {
            return 0;
        }
        (self.send.nxt - self.send.una - u32::from(self.send.fin_sent && !self.fin_acked())) as usize
    }

    /// Whether our FIN has left.
    pub(crate) fn fin_sent(&self) -> bool {
        self.send.fin_sent
    }

    fn fin_acked(&self) -> bool {
        self.send.fin_sent && self.send.una == self.send.nxt
    }

    /// Bytes that may be buffered for the wire, as in a kernel's send buffer: twice what the windows
    /// admit, so that one half can be in flight and the other one waits.
    fn send_buffer(&self, shared: &SharedPools) -> usize {
        let (least, most) = shared.limits.send_buffer;
        let window = self.congestion.window.min(self.send.wnd) as usize;
        (2 * window).clamp(least, most).min(shared.pool.share())
    }

    /// Bytes queued, those in flight included.
    pub(crate) fn queued(&self) -> usize {
        self.send.out.len()
    }

    /// Bytes that the application may hand over before it has to wait.
    pub(crate) fn send_room(&self, shared: &SharedPools) -> usize {
        self.send_buffer(shared).saturating_sub(self.send.out.len())
    }

    /// Bytes handed over beyond the send buffer. An application that sends more waits until there
    /// are none.
    pub(crate) fn held_back(&self, shared: &SharedPools) -> usize {
        match self.unsent() {
            0 => 0,
            unsent => self.send.out.len().saturating_sub(self.send_buffer(shared)).min(unsent),
        }
    }

    /// For how many milliseconds the peer has taken none of the bytes that are queued for it.
    pub(crate) fn stalled_ms(&self, now: Time) -> u32 {
        if self.send.out.is_empty() || self.error.is_some() {
            return 0;
        }
        parts::millis(now).wrapping_sub(self.send.moved_ms)
    }

    /// Whether bytes can be read.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.receive.inbox.is_empty()
    }

    pub(crate) fn inbox_len(&self) -> usize {
        self.receive.inbox.len()
    }

    /// Whether everything handed over has been acknowledged.
    pub(crate) fn all_acked(&self) -> bool {
        self.send.out.is_empty()
    }

    /// Bytes will be queued at this time.
    pub(crate) fn begin_push(&mut self, now: Time) {
        if self.send.out.is_empty() {
            self.send.moved_ms = parts::millis(now);
        }
    }

    /// Queues bytes to send.
    pub(crate) fn push(&mut self, bytes: &[u8], shared: &mut SharedPools) -> Result<(), NetError> {
        shared.pool.append(&mut self.send.out, bytes).map_err(|_| NetError::of(NetErrorKind::NoMemory))
    }

    /// Queues a range of lent bytes to send.
    pub(crate) fn push_lent(
        &mut self,
        lent: u32,
        range: std::ops::Range<usize>,
        shared: &mut SharedPools,
    ) -> Result<(), NetError> {
        shared
            .pool
            .append_lent(&mut self.send.out, lent, range)
            .map_err(|_| NetError::of(NetErrorKind::NoMemory))
    }

    /// Queues our FIN behind the bytes to send.
    pub(crate) fn finish(&mut self) {
        self.send.fin = true;
    }

    /// Frees everything; the connection is over.
    pub(crate) fn dispose(&mut self, shared: &mut SharedPools) {
        shared.pool.clear(&mut self.send.out);
        shared.pool.clear(&mut self.receive.inbox);
        self.send.cursor = Cursor::default();
        if let Some(mut early) = self.receive.early.take() {
            early.clear(&mut shared.pool);
        }
        let mut sent = std::mem::take(&mut self.send.sent);
        sent.clear();
        shared.give_back(sent);
        (self.send.sacked, self.send.lost) = (0, 0);
        self.state = TcpState::Closed;
        self.set_timer(Timer::None, Time::NEVER);
        self.acks.at = Time::NEVER;
    }

    /// The connection failed: drops the bytes to send. Received bytes can still be read.
    pub(crate) fn stop_sending(&mut self, now: Time, shared: &mut SharedPools) {
        self.note_window_limit(now);
        shared.pool.clear(&mut self.send.out);
        self.send.cursor = Cursor::default();
        let mut sent = std::mem::take(&mut self.send.sent);
        sent.clear();
        shared.give_back(sent);
        self.send.una = self.send.nxt;
        (self.send.sacked, self.send.lost, self.send.fin, self.acks.now) = (0, 0, false, false);
    }

    /// How many received bytes trigger a report: what the application asked for, or less if the
    /// window would close before.
    pub(crate) fn low_water(&self, asked: u32) -> usize {
        if self.error.is_some() || self.receive.ended {
            1
        } else {
            asked.min(self.receive.size / 2).max(1) as usize
        }
    }

    /// Gives the connection up because memory is lacking.
    pub(crate) fn starve(&mut self) {
        self.fail(NetErrorKind::NoMemory);
    }

    /// Ends the connection as a reset of the peer would.
    pub(crate) fn abort(&mut self) -> FlowActions {
        self.fail(NetErrorKind::Reset)
    }

    fn fail(&mut self, kind: NetErrorKind) -> FlowActions {
        self.error = Some(NetError::of(kind));
        self.state = TcpState::Closed;
        self.set_timer(Timer::None, Time::NEVER);
        self.acks.at = Time::NEVER;
        FlowActions::FAILED
    }

    /// The header of a reset that the peer will accept.
    pub(crate) fn reset_header(&self) -> TcpHeader {
        // Before its SYN the peer's numbers are unknown (RFC 9293 section 3.10.7.4, SYN-RECEIVED:
        // ours decide).
        let flags = if self.state == TcpState::SynSent { Flags::RST } else { Flags::RST | Flags::ACK };
        TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.send.nxt,
            ack: self.receive.nxt,
            flags,
            ..TcpHeader::default()
        }
    }

    /// The data for its entry in the table of TIME_WAIT: both next sequence numbers, the offset of
    /// our timestamps and the peer's last timestamp.
    pub(crate) fn remains(&self) -> (Seq, Seq, Option<(u32, u32)>) {
        (
            self.send.nxt,
            self.receive.nxt,
            self.agreed.timestamps.then_some((self.agreed.ts_offset, self.agreed.ts_recent)),
        )
    }

    /// The path now takes only smaller packets.
    pub(crate) fn limit_mss(&mut self, mss: u16) {
        let mss = mss.saturating_sub(if self.agreed.timestamps { 12 } else { 0 });
        if mss < self.send.mss && self.state != TcpState::SynSent {
            self.send.mss = mss;
        }
    }

    /// Whether it waits for a reply in vain.
    pub(crate) fn is_stalled(&self) -> bool {
        self.timers.backoff > 0 && self.send.lost > 0
    }

    /// Counters, and current values.
    pub(crate) fn info(&self, now: Time) -> TcpInfo {
        let counters = &self.counters;
        let micros = |ns: u64| u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX);
        let since = self.send.window_limited_since;
        let limited = if since == Time::NEVER { 0 } else { now.nanos_since(since) / 1000 };
        let own_window =
            if self.receive.edge.gt(self.receive.nxt) { self.receive.edge - self.receive.nxt } else { 0 };
        TcpInfo {
            retransmits: counters.retransmits,
            out_of_order: counters.out_of_order,
            dsack_dups: counters.dsack_dups,
            reordered: counters.reordered,
            rwnd_limited_us: counters.rwnd_limited_us + limited,
            // The application's bytes are all queued, so none waits for a buffer.
            sndbuf_limited_us: 0,
            peer_window: Some(self.send.wnd),
            own_window: Some(own_window),
            min_rtt_us: micros(self.rtt.least()),
            rtt_us: micros(self.rtt.smoothed()),
            data_segs_in: counters.data_segs_in,
            data_segs_out: counters.data_segs_out,
        }
    }

    /// The next deadline.
    pub(crate) fn deadline(&self) -> Option<Time> {
        Some(self.timers.at.min(self.acks.at).min(self.pace.due)).filter(|at| *at != Time::NEVER)
    }
}

#[cfg(test)]
mod count_tests;
#[cfg(test)]
mod ecn_tests;
#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod orphan_tests;
#[cfg(test)]
mod sack_tests;
#[cfg(test)]
mod tests;
