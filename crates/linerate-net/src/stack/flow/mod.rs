//! One connection: RFC 9293's state machine. Its inputs are segments and the time; its outputs are
//! segments, events and its next deadline. It knows neither link nor application.

mod ack;
mod arrive;
mod cubic;
mod hystart;
mod loss;
mod pace;
mod path;
mod receive;
mod rtt;
mod send;
mod timer;
mod urgent;
mod view;

use std::collections::VecDeque;

pub(crate) use self::cubic::Congestion;
pub(crate) use self::loss::Recovery;
use self::loss::{Rack, TailProbe};
use self::pace::Pace;
use self::path::Suspicion;
pub(crate) use self::path::believable;
pub(crate) use self::receive::Reassembly;
pub(crate) use self::rtt::Rtt;
pub(crate) use self::timer::Timer;
use self::urgent::Urgent;
use super::pool::{Chain, Cursor};
use super::shared::{Shared, timestamp};
use super::tuple::Tuple;
use super::wire::{Flags, Options, Seq, TcpHeader};
use crate::{NetError, NetErrorKind, TcpInfo, Time};

/// RFC 9293 section 3.3.2, without the states that have tables of their own: LISTEN, the listener's
/// SYN-RECEIVED, TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
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

/// A segment that was sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
    /// When it was last sent.
    pub(crate) at: Time,
    pub(crate) sacked: bool,
    /// Considered lost, and not retransmitted since.
    pub(crate) lost: bool,
    /// Sent more than once.
    pub(crate) again: bool,
}

impl Sent {
    fn len(&self) -> u32 {
        self.end - self.start
    }
}

/// Segments sent and not acknowledged, in order.
pub(crate) type Scoreboard = VecDeque<Sent>;

/// The result of a call, for the stack to act upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told(u8);

impl Told {
    pub(crate) const NOTHING: Told = Told(0);
    /// The handshake is complete.
    pub(crate) const ESTABLISHED: Told = Told(1);
    /// Bytes or the end can be read.
    pub(crate) const READABLE: Told = Told(2);
    /// The connection failed; `error` says why.
    pub(crate) const FAILED: Told = Told(4);
    /// There may be something to send.
    pub(crate) const SEND: Told = Told(8);
    /// The state is TIME_WAIT or closed.
    pub(crate) const OVER: Told = Told(16);
    /// A reset must answer the segment.
    pub(crate) const RESET: Told = Told(32);
    /// Everything sent, including our FIN, is acknowledged.
    pub(crate) const FIN_ACKED: Told = Told(64);
    /// The connection should be tried from another port.
    pub(crate) const MOVE: Told = Told(128);

    pub(crate) fn has(self, other: Told) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn add(&mut self, other: Told) {
        self.0 |= other.0;
    }
}

/// What both ends agreed on in the handshake.
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
    pub(crate) state: State,
    /// Why the connection failed.
    pub(crate) error: Option<NetError>,

    // Sending.
    iss: Seq,
    una: Seq,
    nxt: Seq,
    wnd: u32,
    max_wnd: u32,
    wl1: Seq,
    wl2: Seq,
    /// Payload of a full segment, after timestamps are subtracted.
    mss: u16,
    out: Chain,
    cursor: Cursor,
    sent: Scoreboard,
    /// Bytes in `sent` that are selectively acknowledged, and that are considered lost.
    sacked: u32,
    lost: u32,
    /// Our FIN follows the queued bytes; whether it was sent.
    fin: bool,
    fin_sent: bool,
    /// A SYN must be sent now (SYN-SENT, SYN-RECEIVED).
    syn_due: bool,
    /// How often the peer answered our SYN by an ACK of another connection.
    challenged_syns: u8,
    /// One segment may be sent whatever the congestion window: a retransmission after a timeout, or
    /// a probe.
    forced: bool,
    /// The window is closed and must be probed now.
    probe: bool,
    /// Whether the congestion window, or the peer's, stopped the last attempt to send, and since
    /// when.
    cwnd_limited: bool,
    pace: Pace,
    window_limited_since: Option<Time>,
    dup_acks: u8,

    pub(crate) congestion: Congestion,
    recovery: Recovery,
    rack: Rack,
    tail: TailProbe,
    rtt: Rtt,
    timer: Timer,
    timer_at: Time,
    /// Consecutive timeouts.
    backoff: u8,
    /// Since when data has been unacknowledged without any answer.
    waiting_since: Time,
    /// When it last sent.
    sent_at: Time,
    suspicion: Suspicion,

    // Receiving.
    rcv_nxt: Seq,
    /// The right edge of the announced window.
    rcv_edge: Seq,
    rcv_size: u32,
    /// Bytes read by the application since the window was last adjusted, and when that was.
    rcv_taken: u32,
    rcv_since: Time,
    inbox: Chain,
    early: Option<Box<Reassembly>>,
    /// Number of the peer's FIN, once known.
    fin_at: Option<Seq>,
    urgent: Urgent,
    /// The FIN was received in order.
    pub(crate) ended: bool,
    last_ack: Seq,
    ack_now: bool,
    ack_at: Time,
    /// Bytes received since the last ACK, and the largest segment.
    ack_bytes: u32,
    rcv_mss: u16,
    /// A duplicate to report (RFC 2883).
    dsack: Option<(Seq, Seq)>,
    /// When an unacceptable segment was last answered.
    challenged: Time,
    /// The application has stopped reading: a reset answers new bytes.
    pub(crate) deaf: bool,

    // Negotiated options.
    scale_out: u8,
    scale_in: u8,
    scaled: bool,
    sack_on: bool,
    timestamps: bool,
    ts_offset: u32,
    ts_recent: u32,
    ts_recent_at: Time,

    counters: Counters,
}

/// The shift needed to announce a window of `largest` bytes.
pub(crate) fn shift_for(largest: u32) -> u8 {
    (0..14).find(|shift| largest >> shift <= 0xffff).unwrap_or(14)
}

impl Flow {
    fn blank(tuple: Tuple, now: Time, shared: &mut Shared) -> Flow {
        let offset = shared.timestamp_offset(&tuple);
        let limits = &shared.limits;
        Flow {
            tuple,
            state: State::Closed,
            error: None,
            iss: Seq(0),
            una: Seq(0),
            nxt: Seq(0),
            wnd: 0,
            max_wnd: 0,
            wl1: Seq(0),
            wl2: Seq(0),
            mss: 536,
            out: Chain::default(),
            cursor: Cursor::default(),
            sent: Scoreboard::new(),
            sacked: 0,
            lost: 0,
            fin: false,
            fin_sent: false,
            syn_due: false,
            challenged_syns: 0,
            forced: false,
            probe: false,
            cwnd_limited: false,
            pace: Pace::default(),
            window_limited_since: None,
            dup_acks: 0,
            congestion: Congestion::new(536),
            recovery: Recovery::default(),
            rack: Rack::default(),
            tail: TailProbe::default(),
            rtt: Rtt::new(limits.first_rto),
            timer: Timer::None,
            timer_at: Time::NEVER,
            backoff: 0,
            waiting_since: now,
            sent_at: now,
            suspicion: Suspicion::default(),
            rcv_nxt: Seq(0),
            rcv_edge: Seq(0),
            rcv_size: limits.first_window,
            rcv_taken: 0,
            rcv_since: now,
            inbox: Chain::default(),
            early: None,
            fin_at: None,
            urgent: Urgent::default(),
            ended: false,
            last_ack: Seq(0),
            ack_now: false,
            ack_at: Time::NEVER,
            ack_bytes: 0,
            rcv_mss: 536,
            dsack: None,
            challenged: Time::ZERO,
            deaf: false,
            scale_out: 0,
            scale_in: 0,
            scaled: false,
            sack_on: false,
            timestamps: false,
            ts_offset: offset,
            ts_recent: 0,
            ts_recent_at: now,
            counters: Counters::default(),
        }
    }

    /// Opens a connection. `mss`: payload of a full segment without options, bytes.
    pub(crate) fn connect(tuple: Tuple, mss: u16, now: Time, shared: &mut Shared) -> Flow {
        let mut flow = Flow::blank(tuple, now, shared);
        flow.state = State::SynSent;
        (flow.mss, flow.rcv_mss) = (mss, mss);
        flow.scale_in = shift_for(shared.limits.largest_window);
        flow.ask_from(tuple, now, shared);
        flow
    }

    /// Sends a SYN from this local end: the first one, or one in place of a port that the peer does
    /// not accept.
    pub(crate) fn ask_from(&mut self, tuple: Tuple, now: Time, shared: &Shared) {
        self.tuple = tuple;
        self.iss = Seq(shared.first_seq(now, &tuple));
        (self.una, self.nxt) = (self.iss, self.iss + 1);
        self.syn_due = true;
        // The timer is set when the SYN leaves.
        self.set_timer(Timer::None, Time::NEVER);
    }

    /// Creates a connection from a handshake.
    pub(crate) fn accept(tuple: Tuple, agreed: &Agreed, now: Time, shared: &mut Shared) -> Flow {
        let mut flow = Flow::blank(tuple, now, shared);
        flow.iss = agreed.iss;
        (flow.una, flow.nxt) = (agreed.iss + 1, agreed.iss + 1);
        flow.establish(agreed, now, shared);
        flow
    }

    /// The round trip of a SYN-ACK that was sent again, by the timestamp that came back (RFC 7323
    /// section 4.1). Without it the first loss costs a second.
    pub(crate) fn sample_by_echo(&mut self, now: Time, tcp: &TcpHeader, shared: &Shared) {
        let Some((_, echo)) = tcp.options.timestamps.filter(|_| self.timestamps) else { return };
        let ms = timestamp(now, self.ts_offset).wrapping_sub(echo);
        // An echo that is not ours may be anything.
        if u128::from(ms) <= shared.limits.largest_rto.as_millis() {
            // The clock's unit may hide nearly one of them.
            self.rtt.sample((u64::from(ms) + 1) * 1_000_000, &shared.limits);
        }
    }

    /// Completes the handshake.
    fn establish(&mut self, agreed: &Agreed, now: Time, shared: &Shared) {
        self.state = State::Established;
        self.sack_on = agreed.sack;
        if let Some(value) = agreed.timestamp {
            self.timestamps = true;
            (self.ts_recent, self.ts_recent_at) = (value, now);
        }
        if let Some((out, into)) = agreed.scale {
            (self.scaled, self.scale_out, self.scale_in) = (true, out, into);
        } else {
            self.scale_in = 0;
            self.rcv_size = self.rcv_size.min(0xffff);
        }
        self.mss = agreed.mss.saturating_sub(if self.timestamps { 12 } else { 0 });
        self.rcv_mss = self.mss;
        self.congestion = Congestion::new(self.mss);
        self.rcv_nxt = agreed.irs + 1;
        self.rcv_edge = self.rcv_nxt + self.rcv_size.min(0xffff);
        self.last_ack = self.rcv_nxt;
        self.wnd = u32::from(agreed.window);
        self.max_wnd = self.wnd;
        (self.wl1, self.wl2) = (agreed.irs, self.una);
        self.recovery.until = self.una;
        self.rack.furthest = self.una;
        self.backoff = 0;
        self.set_timer(Timer::None, Time::NEVER);
        self.waiting_since = now;
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
        self.out.len() - self.sent_bytes()
    }

    /// Bytes of `out` that were sent. The SYN and the FIN have numbers but are not in it.
    fn sent_bytes(&self) -> usize {
        if self.state == State::SynSent || self.state == State::SynReceived {
            return 0;
        }
        (self.nxt - self.una - u32::from(self.fin_sent && !self.fin_acked())) as usize
    }

    fn fin_acked(&self) -> bool {
        self.fin_sent && self.una == self.nxt
    }

    /// Bytes handed over beyond `buffered`, which stands for a kernel's send buffer. An application
    /// that sends more waits until there are none.
    pub(crate) fn held_back(&self, buffered: usize) -> usize {
        self.out.len().saturating_sub(buffered).min(self.unsent())
    }

    /// Whether bytes can be read.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(crate) fn inbox_len(&self) -> usize {
        self.inbox.len()
    }

    /// Whether everything handed over has been acknowledged.
    pub(crate) fn all_acked(&self) -> bool {
        self.out.is_empty()
    }

    /// Queues bytes to send.
    pub(crate) fn push(&mut self, bytes: &[u8], shared: &mut Shared) -> Result<(), NetError> {
        shared.pool.append(&mut self.out, bytes).map_err(|_| NetError::of(NetErrorKind::NoMemory))
    }

    /// Queues a range of lent bytes to send.
    pub(crate) fn push_lent(
        &mut self,
        lent: u32,
        range: std::ops::Range<usize>,
        shared: &mut Shared,
    ) -> Result<(), NetError> {
        shared.pool.append_lent(&mut self.out, lent, range).map_err(|_| NetError::of(NetErrorKind::NoMemory))
    }

    /// Queues our FIN behind the bytes to send.
    pub(crate) fn finish(&mut self) {
        self.fin = true;
    }

    /// Frees everything; the connection is over.
    pub(crate) fn dispose(&mut self, shared: &mut Shared) {
        shared.pool.clear(&mut self.out);
        shared.pool.clear(&mut self.inbox);
        self.cursor = Cursor::default();
        if let Some(mut early) = self.early.take() {
            early.clear(&mut shared.pool);
        }
        let mut sent = std::mem::take(&mut self.sent);
        sent.clear();
        shared.give_back(sent);
        (self.sacked, self.lost) = (0, 0);
        self.state = State::Closed;
        self.set_timer(Timer::None, Time::NEVER);
        self.ack_at = Time::NEVER;
    }

    /// The connection failed: drops the bytes to send. Received bytes can still be read.
    pub(crate) fn stop_sending(&mut self, now: Time, shared: &mut Shared) {
        self.note_window_limit(now);
        shared.pool.clear(&mut self.out);
        self.cursor = Cursor::default();
        let mut sent = std::mem::take(&mut self.sent);
        sent.clear();
        shared.give_back(sent);
        self.una = self.nxt;
        (self.sacked, self.lost, self.fin, self.ack_now) = (0, 0, false, false);
    }

    /// How many received bytes trigger a report: what the application asked for, or less if the
    /// window would close before.
    pub(crate) fn low_water(&self, asked: u32) -> usize {
        if self.error.is_some() || self.ended { 1 } else { asked.min(self.rcv_size / 2).max(1) as usize }
    }

    fn fail(&mut self, kind: NetErrorKind) -> Told {
        self.error = Some(NetError::of(kind));
        self.state = State::Closed;
        self.set_timer(Timer::None, Time::NEVER);
        self.ack_at = Time::NEVER;
        Told::FAILED
    }

    /// The header of a reset that the peer will accept.
    pub(crate) fn reset_header(&self) -> TcpHeader {
        // Before its SYN the peer's numbers are unknown (RFC 9293 section 3.10.7.4, SYN-RECEIVED:
        // ours decide).
        let flags = if self.state == State::SynSent { Flags::RST } else { Flags::RST | Flags::ACK };
        TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.nxt,
            ack: self.rcv_nxt,
            flags,
            ..TcpHeader::default()
        }
    }

    /// What its entry in the table of TIME_WAIT needs: both next sequence numbers, the offset of
    /// our timestamps and the peer's last timestamp.
    pub(crate) fn remains(&self) -> (Seq, Seq, Option<(u32, u32)>) {
        (self.nxt, self.rcv_nxt, self.timestamps.then_some((self.ts_offset, self.ts_recent)))
    }

    /// The path now takes only smaller packets.
    pub(crate) fn limit_mss(&mut self, mss: u16) {
        let mss = mss.saturating_sub(if self.timestamps { 12 } else { 0 });
        if mss < self.mss && self.state != State::SynSent {
            self.mss = mss;
        }
    }

    /// Whether it waits for an answer in vain.
    pub(crate) fn is_stalled(&self) -> bool {
        self.backoff > 0 && self.lost > 0
    }

    /// Counters, and current values.
    pub(crate) fn info(&self, now: Time) -> TcpInfo {
        let counters = &self.counters;
        let micros = |ns: u64| u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX);
        let limited = self.window_limited_since.map_or(0, |since| now.nanos_since(since) / 1000);
        let own_window = if self.rcv_edge.gt(self.rcv_nxt) { self.rcv_edge - self.rcv_nxt } else { 0 };
        TcpInfo {
            retransmits: counters.retransmits,
            out_of_order: counters.out_of_order,
            dsack_dups: counters.dsack_dups,
            reordered: counters.reordered,
            rwnd_limited_us: counters.rwnd_limited_us + limited,
            // The application's bytes are all queued, so none waits for a buffer.
            sndbuf_limited_us: 0,
            peer_window: Some(self.wnd),
            own_window: Some(own_window),
            min_rtt_us: micros(self.rtt.least()),
            rtt_us: micros(self.rtt.smoothed()),
            data_segs_in: counters.data_segs_in,
            data_segs_out: counters.data_segs_out,
        }
    }

    /// The next deadline.
    pub(crate) fn deadline(&self) -> Option<Time> {
        Some(self.timer_at.min(self.ack_at).min(self.pace.due)).filter(|at| *at != Time::NEVER)
    }
}

#[cfg(test)]
mod count_tests;
#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod sack_tests;
#[cfg(test)]
mod tests;
