//! One TCP connection of a capture: both directions, their bytes in order, the messages in them,
//! and the calls they make.

use crate::passive::h2::{Sniff, Spot};
use crate::passive::http::{Body, Foreign, Head, MessageEvent, MessageReader, StartLine};
use crate::passive::limits::CaptureLimits;
use crate::passive::observation::{Carried, Handshake, Traced};
use crate::passive::packet::{Endpoint, Segment, flag};
use crate::passive::tls::{Out, Session};

use super::calls::Calls;
use super::http2::{At, StreamFlow};
use super::order::Order;
use super::pending::{Kept, PendingTimes};
use super::reassembly::{Budget, Caught, Reassembly, StreamPiece};
use super::record::SharedRecord;
use super::sealed::{Act, Sealed};
use super::sequence::{MarkCounts, Marks, Side, analyse, before};
use super::stall::StallWatch;
use super::trace::{KeptSegment, Trace};
use super::window::Window;

mod content;
mod ending;
mod events;

/// One direction.
#[derive(Debug)]
struct Direction {
    side: Side,
    bytes: Reassembly,
    messages: MessageReader,
    /// Its first bytes, while they may begin HTTP/2, and where they were captured.
    sniff: (Sniff, Option<At>),
    /// Where the record before began that has content.
    record: Option<u32>,
    watch: StallWatch,
    marks: MarkCounts,
    segments: u64,
    data_bytes: u64,
    /// When the message being read began.
    begun: i64,
    /// Messages were read.
    has_messages: bool,
    /// Its window is closed since then.
    closed_since: Option<i64>,
    /// The window that it advertises.
    window: Window,
    /// What became of its segments that came late.
    order: Order,
    /// Up to where it knew that it may send, when it last sent new data.
    admitted: Option<u32>,
    /// How long the other end's window kept it from sending, until now.
    kept: Kept,
    /// When it last sent new data, or could do so again.
    sent: Option<i64>,
    /// When the last part of its messages came.
    heard: i64,
}

impl Direction {
    fn new(limits: &CaptureLimits) -> Direction {
        Direction {
            side: Side::default(),
            bytes: Reassembly::default(),
            messages: MessageReader::new(limits.head_bytes),
            sniff: (Sniff::default(), None),
            record: None,
            watch: StallWatch::default(),
            marks: MarkCounts::default(),
            segments: 0,
            data_bytes: 0,
            begun: 0,
            has_messages: false,
            closed_since: None,
            window: Window::default(),
            order: Order::default(),
            admitted: None,
            kept: Kept::default(),
            sent: None,
            heard: 0,
        }
    }
}

/// The end of a connection within a call.
#[derive(Clone, Copy, Debug)]
struct Cut {
    by_client: bool,
    /// By a reset.
    reset: bool,
    /// A response had begun.
    begun: bool,
}

/// Retransmitted segments with data, and the time before each.
#[derive(Clone, Copy, Debug, Default)]
struct LostSegments {
    segments: u64,
    cost_ns: i64,
}

#[derive(Debug)]
pub(super) struct FlowConnection {
    pub(super) id: u64,
    pub(super) ends: [Endpoint; 2],
    directions: [Direction; 2],
    client: usize,
    /// The handshake or a request has told who the client is.
    client_known: bool,
    handshake: Option<Handshake>,
    trace: Trace,
    calls: Calls,
    http2: Option<Box<StreamFlow>>,
    /// A request of it is counted as being answered.
    busy: bool,
    carried: Carried,
    tls: Option<Box<(Session, Sealed)>>,
    /// When the first byte of the record came whose content is being read.
    record_began: Option<i64>,
    reset: bool,
    /// Messages that end now end because their connection does.
    closing: bool,
    /// A call was cut short.
    cut: Option<Cut>,
    /// The SYN was answered by a reset.
    refused: bool,
    /// Its losses, within calls and outside of them.
    lost: LostSegments,
    /// Data of the client and the time it was sent, until the server acknowledges it. That time is
    /// an upper bound of the round trip to the server.
    timed: Option<(u32, i64)>,
    /// The segment that each direction retransmitted, and how often, since the other direction sent
    /// anything.
    unheard: [(u32, u32); 2],
    fins: [bool; 2],
    first_ns: i64,
    last_ns: i64,
    /// Looked at since the table last searched for a quiet one.
    pub(super) recent: bool,
}

impl FlowConnection {
    pub(super) fn new(id: u64, s: &Segment<'_>, now: i64, limits: &CaptureLimits) -> FlowConnection {
        let answers = s.has(flag::SYN) && s.has(flag::ACK);
        // Without a handshake the lower port is mostly the server's, until a request says better.
        let client =
            if s.has(flag::SYN) { usize::from(answers) } else { usize::from(s.src.port() < s.dst.port()) };
        FlowConnection {
            id,
            ends: [s.src, s.dst],
            directions: [Direction::new(limits), Direction::new(limits)],
            client,
            client_known: s.has(flag::SYN),
            handshake: None,
            trace: Trace::default(),
            calls: Calls::default(),
            http2: None,
            busy: false,
            carried: Carried::Nothing,
            tls: None,
            record_began: None,
            reset: false,
            closing: false,
            cut: None,
            refused: false,
            lost: LostSegments::default(),
            timed: None,
            unheard: [(0, 0); 2],
            fins: [false; 2],
            first_ns: now,
            last_ns: now,
            recent: true,
        }
    }

    /// A SYN with another number than that of this connection: its ports are used again.
    pub(super) fn is_reused_by(&self, s: &Segment<'_>) -> bool {
        let dir = usize::from(s.src != self.ends[0]);
        s.has(flag::SYN)
            && !s.has(flag::ACK)
            && self.directions[dir].side.base.is_some_and(|base| base != s.seq)
    }

    pub(super) fn segment(&mut self, s: &Segment<'_>, now: i64, reused: bool, shared: &mut SharedRecord<'_>) {
        let dir = usize::from(s.src != self.ends[0]);
        self.recent = true;
        let since_last = now.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now);
        let rtt = self.handshake.and_then(|h| h.whole_ns);
        if self.collides(dir, s) {
            // It belongs to the connection before: what it numbers is not of this one.
            self.directions[dir].segments += 1;
            self.keep(dir, s, self.last_ns, Marks::default(), shared.limits.trace);
            return;
        }
        let [a, b] = &mut self.directions;
        let (me, peer) = if dir == 0 { (a, b) } else { (b, a) };
        let mut marks = analyse(&mut me.side, &mut peer.side, s, now, rtt);
        // For all that is measured time does not go back, whatever the capture says.
        let now = self.last_ns;
        if reused {
            marks.add(Marks::REUSED_PORTS);
        }
        me.segments += 1;
        me.data_bytes += u64::from(s.len);
        if !marks.is_empty() {
            me.marks.count(marks);
            shared.record.marks.count(marks);
        }
        if s.has(flag::SYN) {
            self.opening(dir, s, now, marks);
        } else {
            self.opened(dir, s, now, shared);
        }
        self.keep(dir, s, now, marks, shared.limits.trace);
        self.follow(dir, s, now, marks, shared);
        self.time_losses(dir, s, now, since_last, marks, shared);
        self.bytes(dir, s, now, shared);
        self.http2.iter_mut().for_each(|http2| http2.repaired(dir));
        self.ending(dir, s, now, shared);
    }

    /// A SYN is answered by an ACK of what the client did not send (the server still remembers a
    /// connection between these ports), or the client resets that one (RFC 9293, section 3.10.7.3).
    fn collides(&mut self, dir: usize, s: &Segment<'_>) -> bool {
        let Some(h) = self.handshake.as_mut().filter(|h| h.to_server_ns.is_none()) else { return false };
        if dir == self.client || s.has(flag::SYN) {
            return dir == self.client && s.has(flag::RST) && h.collisions > 0;
        }
        let ours = self.directions[self.client].side.base.map(|isn| isn.wrapping_add(1));
        let other =
            s.has(flag::ACK) && !s.has(flag::RST) && s.len == 0 && ours.is_some_and(|ours| s.ack != ours);
        h.collisions += u32::from(other);
        other
    }

    fn keep(&mut self, dir: usize, s: &Segment<'_>, now: i64, marks: Marks, limit: usize) {
        let base = |d: &Direction| d.side.base.unwrap_or_default();
        let traced = Traced {
            time_ns: now,
            from_client: false,
            flags: s.flags,
            seq: s.seq.wrapping_sub(base(&self.directions[dir])),
            ack: if s.has(flag::ACK) { s.ack.wrapping_sub(base(&self.directions[1 - dir])) } else { 0 },
            len: s.len,
            window: s.window,
            marks,
        };
        self.trace.push(KeptSegment { dir, traced }, limit);
    }

    fn opening(&mut self, dir: usize, s: &Segment<'_>, now: i64, marks: Marks) {
        self.directions[dir].bytes.start(s.seq.wrapping_add(1));
        // Each direction is limited by the other end's MSS, and by its own size as well.
        for direction in &mut self.directions {
            let known = direction.watch.mss;
            direction.watch.mss = known.zip(s.mss).map(|(a, b)| a.min(b)).or(known).or(s.mss);
        }
        if !s.has(flag::ACK) {
            self.client = dir;
            self.client_known = true;
            let h = self.handshake.get_or_insert(Handshake { syn_ns: now, ..Handshake::default() });
            h.syns += 1;
        } else {
            if !self.client_known {
                self.client = 1 - dir;
                self.client_known = true;
            }
            let again = marks.has(Marks::RESENT);
            let last_syn = self.trace.last_time(|t| t.flags & (flag::SYN | flag::ACK) == flag::SYN);
            if let Some(h) = self.handshake.as_mut().filter(|_| !again) {
                h.to_server_ns.get_or_insert((now - last_syn.unwrap_or(h.syn_ns)).max(0));
            }
        }
    }

    /// The client's first segment after the SYN-ACK ends the handshake.
    fn opened(&mut self, dir: usize, s: &Segment<'_>, now: i64, shared: &mut SharedRecord<'_>) {
        let client = self.client;
        let Some(h) = self.handshake.as_mut() else { return };
        if dir != client || h.whole_ns.is_some() || !s.has(flag::ACK) {
            return;
        }
        if let Some(to_server) = h.to_server_ns {
            let whole = now - h.syn_ns;
            h.whole_ns = Some(whole);
            let synack = self.trace.last_time(|t| t.flags & flag::SYN != 0 && t.flags & flag::ACK != 0);
            let to_client = synack.map_or(0, |at| now - at).max(0);
            if let Some(h) = self.handshake.as_mut() {
                h.to_client_ns = Some(to_client);
            }
            let server = self.ends[1 - client].addr();
            shared.record.opened(server, to_server.saturating_add(to_client));
        }
    }

    /// Bounds the round trip if no handshake shows it, and notes whether the other end still sends.
    fn follow(&mut self, dir: usize, s: &Segment<'_>, now: i64, marks: Marks, shared: &mut SharedRecord<'_>) {
        let opening = self.handshake.is_some_and(|h| h.to_server_ns.is_none());
        if s.has(flag::RST) && opening && dir != self.client && self.directions[dir].segments == 1 {
            self.refused = true;
        }
        let resent = marks.has(Marks::RESENT) && s.len > 0;
        if resent {
            // Several consecutive retransmissions repair a burst; the same segment again and again
            // gets no reply.
            let (seq, times) = self.unheard[dir];
            self.unheard[dir] = (s.seq, if seq == s.seq { times + 1 } else { 1 });
        }
        // Anything from the other end shows that it is there.
        self.unheard[1 - dir] = (0, 0);
        if dir != self.client {
            if let Some((end, sent)) = self.timed.filter(|(end, _)| s.has(flag::ACK) && !before(s.ack, *end))
            {
                let _ = end;
                self.timed = None;
                shared.record.round_trip(self.ends[1 - self.client].addr(), (now - sent).max(0));
            }
        } else if resent {
            // It is unknown which of the two is acknowledged (Karn's rule).
            self.timed = None;
        } else if s.len > 0 && self.timed.is_none() {
            self.timed = Some((s.seq.wrapping_add(s.len), now));
        }
    }

    fn bytes(&mut self, dir: usize, s: &Segment<'_>, now: i64, shared: &mut SharedRecord<'_>) {
        if s.has(flag::ACK) {
            self.directions[1 - dir].bytes.acked(s.ack);
            if !self.directions[1 - dir].bytes.is_in_order() {
                self.read(1 - dir, now, shared, |bytes, budget, each| bytes.skip_acked(budget, each));
            }
        }
        if s.len == 0 {
            if !s.has(flag::RST) {
                self.directions[dir].bytes.start(s.seq);
            }
            return;
        }
        // Data in a SYN (RFC 7413) begins after it.
        let seq = s.seq.wrapping_add(u32::from(s.has(flag::SYN)));
        let direction = &self.directions[dir];
        let foreign = direction.messages.is_foreign() || self.http2.as_ref().is_some_and(|h| h.is_over());
        if self.tls.is_none() && foreign && direction.bytes.is_in_order() {
            return;
        }
        let limit = shared.limits.held_bytes_one;
        self.read(dir, now, shared, |bytes, budget, each| {
            bytes.segment((seq, s.len, now), s.data, budget, limit, each)
        });
    }

    /// Hands what `turn` puts in order to the reader of direction `dir`.
    fn read(
        &mut self,
        dir: usize,
        now: i64,
        shared: &mut SharedRecord<'_>,
        turn: impl FnOnce(&mut Reassembly, &Budget, &mut dyn FnMut(StreamPiece<'_>, Caught)),
    ) {
        let mut bytes = std::mem::take(&mut self.directions[dir].bytes);
        let budget = shared.budget;
        turn(&mut bytes, budget, &mut |piece, caught| self.piece(dir, piece, caught, now, shared));
        self.directions[dir].bytes = bytes;
    }

    fn piece(
        &mut self,
        dir: usize,
        piece: StreamPiece<'_>,
        caught: Caught,
        now: i64,
        shared: &mut SharedRecord<'_>,
    ) {
        shared.record.sums.holes += u64::from(matches!(piece, StreamPiece::Hole(_)));
        let untouched = matches!(self.carried, Carried::Nothing | Carried::Other)
            && self.calls.is_idle()
            && self.http2.is_none();
        let len = if let StreamPiece::Data(data) = piece { data.len() as u32 } else { 0 };
        let end = caught.seq.wrapping_add(len);
        if let StreamPiece::Data(data) = piece
            && self.tls.is_none()
            && untouched
            && Session::may_begin(data)
        {
            self.carried = Carried::Tls;
            self.tls = Some(Box::new((Session::new(), Sealed::default())));
        }
        let Some(mut tls) = self.tls.take() else {
            let spot = Spot { begun: now, came: caught.came, seq: caught.seq };
            return self.content(dir, piece, At { spot, end }, now, shared);
        };
        let (session, sealed) = &mut *tls;
        let (keys, budget) = (shared.keys, shared.budget);
        if sealed.name.is_none() {
            sealed.name = session.name().map(str::to_owned);
        }
        sealed.has_tickets = session.has_late_tickets();
        session.take(dir, piece, now, (keys, budget), &mut |out| match out {
            Out::Data { bytes, begun } => {
                // Its record begins where the one before ended, or later.
                let seq = self.directions[dir].record.replace(caught.seq).unwrap_or(caught.seq);
                let at = At { spot: Spot { begun, came: caught.came, seq }, end };
                self.record_began = Some(begun);
                self.content(dir, StreamPiece::Data(bytes), at, now, shared);
                self.record_began = None;
            }
            Out::Hole(n) => {
                let spot = Spot { begun: now, came: caught.came, seq: caught.seq };
                self.content(dir, StreamPiece::Hole(n), At { spot, end }, now, shared);
            }
            Out::Sealed { len, begun } => {
                let acts = match dir == self.client {
                    true => sealed.client(len, begun, now),
                    false => sealed.server(len, begun, now),
                };
                self.act(acts, sealed.name.as_deref(), shared);
            }
        });
        if let Some(client) = session.client().filter(|_| !self.client_known) {
            (self.client, self.client_known) = (client, true);
        }
        self.tls = Some(tls);
    }

    /// Calls whose content cannot be read.
    fn act(&mut self, acts: Vec<Act>, name: Option<&str>, shared: &mut SharedRecord<'_>) {
        for act in acts {
            match act {
                Act::Request { begun } => {
                    if self.calls.is_idle() && self.trace.spent {
                        self.trace.restart();
                    }
                    let server = self.ends[1 - self.client].addr().to_string();
                    let target = name.unwrap_or(&server);
                    let kept = self.directions[1 - self.client].kept;
                    self.calls.request(("TLS", target), false, (begun, begun), (false, kept), shared);
                    shared.record.sums.timed += 1;
                }
                Act::Answer { asked, begun } => {
                    self.calls.request_end(asked, false);
                    self.calls.answer(0, begun, begun, shared);
                }
                Act::End { at } => {
                    let server = self.ends[1 - self.client].addr();
                    let times = PendingTimes { rtt_bound: shared.record.rtt_bound(server), ..self.times() };
                    self.calls.answer_end(at, false, &times, &mut self.trace, shared);
                }
            }
        }
    }

    /// Bytes as HTTP/1 is written in them.
    fn plain(&mut self, dir: usize, piece: StreamPiece<'_>, now: i64, shared: &mut SharedRecord<'_>) {
        match piece {
            StreamPiece::Hole(n) => {
                let event = self.directions[dir].messages.hole(n, shared.budget);
                event.into_iter().for_each(|e| self.event(dir, e, now, shared));
                // A message without a body ends with its head, of which the rest is cut off.
                while let Some(event) = self.directions[dir].messages.next(&mut &[][..], false, shared.budget)
                {
                    self.event(dir, event, now, shared);
                }
            }
            StreamPiece::Data(mut data) => {
                if dir == self.client && self.directions[dir].messages.in_message() {
                    self.calls.request_data(now);
                }
                let mut starts = true;
                while let Some(event) = self.directions[dir].messages.next(&mut data, starts, shared.budget) {
                    starts = false;
                    self.event(dir, event, now, shared);
                }
            }
        }
        self.directions[dir].heard = now;
    }

    fn event(&mut self, dir: usize, event: MessageEvent, now: i64, shared: &mut SharedRecord<'_>) {
        self.happens(dir, event, now, shared);
        self.count_busy(now, shared);
    }

    /// Tells whether a request is being answered, when that has changed.
    fn count_busy(&mut self, now: i64, shared: &mut SharedRecord<'_>) {
        let busy = !self.calls.is_idle();
        if busy == std::mem::replace(&mut self.busy, busy) {
            return;
        }
        let times = self.times();
        if busy {
            let to_client = self.handshake.and_then(|h| h.to_client_ns).unwrap_or(0);
            shared.record.demand.begun(times.ends, now, self.calls.last_end(), to_client);
        } else {
            shared.record.demand.ended(times.ends, now);
        }
    }

    fn happens(&mut self, dir: usize, event: MessageEvent, now: i64, shared: &mut SharedRecord<'_>) {
        match event {
            MessageEvent::Begin => {
                // The other end has said all that it had to say before.
                if let Some(left) = self.directions[1 - dir].messages.leave() {
                    self.event(1 - dir, left, now, shared);
                }
                self.directions[dir].begun = self.record_began.unwrap_or(now);
                if self.calls.is_idle() && self.trace.spent {
                    self.trace.restart();
                }
            }
            MessageEvent::Head(head) => self.head(dir, &head, now, shared),
            MessageEvent::End { cut, holed } => self.message_ended(dir, (cut, holed), now, shared),
            MessageEvent::Left => self.message_ended(dir, (false, true), self.directions[dir].heard, shared),
            MessageEvent::Foreign(kind) => {
                if !matches!(self.carried, Carried::Http | Carried::Http2) {
                    self.carried = match kind {
                        Foreign::Tls => Carried::Tls,
                        // It is looked for where a connection begins.
                        Foreign::Http2 => {
                            shared.record.unread("it begins behind something else");
                            Carried::Http2
                        }
                        Foreign::Unknown => Carried::Other,
                    };
                }
            }
            MessageEvent::Lost if dir == self.client => {
                let open = self.calls.requests_lost();
                shared.record.sums.requests_incomplete += u64::from(open);
            }
            MessageEvent::Lost => {
                let open = self.calls.answers_lost(shared);
                shared.record.sums.answers_incomplete += u64::from(open);
            }
        }
    }

    fn message_ended(
        &mut self,
        dir: usize,
        (cut, holed): (bool, bool),
        now: i64,
        shared: &mut SharedRecord<'_>,
    ) {
        if dir == self.client {
            shared.record.sums.requests_incomplete += u64::from(cut || holed);
            self.calls.request_end(now, cut);
            return;
        }
        shared.record.sums.answers_incomplete += u64::from((cut || holed) && !self.calls.in_interim());
        if cut && self.closing && self.fins[dir] && !self.reset {
            self.cut.get_or_insert(Cut { by_client: false, reset: false, begun: true });
        }
        let server = self.ends[1 - self.client].addr();
        let times = PendingTimes { rtt_bound: shared.record.rtt_bound(server), ..self.times() };
        if let Some(last) = self.directions[dir].sent.filter(|_| self.closing && self.fins[dir] && !cut) {
            self.calls.closed_late(last, now - last);
        }
        self.calls.answer_end(now, cut, &times, &mut self.trace, shared);
    }

    fn head(&mut self, dir: usize, head: &Head, now: i64, shared: &mut SharedRecord<'_>) {
        shared.record.sums.heads_cut += u64::from(head.cut);
        self.carried = Carried::Http;
        self.directions[dir].has_messages = true;
        let begun = self.directions[dir].begun;
        let body = match &head.line {
            StartLine::Request { method, target } => {
                if !self.client_known || !self.directions[1 - dir].has_messages {
                    self.client = dir;
                    self.client_known = true;
                }
                // The client has acknowledged bytes that the capture lacks: the previous response
                // may be among them.
                let unseen = self.directions[1 - dir].bytes.lacks_acked();
                let kept = self.directions[1 - dir].kept;
                self.calls.request((method, target), head.expects, (begun, now), (unseen, kept), shared);
                head.request_body()
            }
            StartLine::Status(status) => {
                if !self.client_known {
                    self.client = 1 - dir;
                    self.client_known = true;
                }
                self.calls.answer(*status, begun, now, shared);
                head.answer_body(*status, self.calls.method())
            }
        };
        self.directions[dir].messages.body(body);
        if body == Body::Tunnel {
            shared.record.sums.upgrades += 1;
            self.directions[1 - dir].messages.body(Body::Tunnel);
            let times = self.times();
            self.calls.answer_end(now, false, &times, &mut self.trace, shared);
        }
    }

    fn times(&self) -> PendingTimes {
        PendingTimes {
            connection: self.id,
            client: self.client,
            ends: self.addresses(),
            handshake: self.handshake,
            rtt_bound: None,
            kept: self.directions[1 - self.client].kept,
        }
    }

    fn ending(&mut self, dir: usize, s: &Segment<'_>, now: i64, shared: &mut SharedRecord<'_>) {
        if s.has(flag::RST) {
            self.reset = true;
            if self.carried == Carried::Http && !self.calls.is_idle() {
                let begun = self.calls.is_answering();
                self.cut.get_or_insert(Cut { by_client: dir == self.client, reset: true, begun });
            }
            self.close(0, now, shared);
            self.close(1, now, shared);
        } else if s.has(flag::FIN) {
            self.fins[dir] = true;
        }
        for d in [0, 1] {
            // All before the FIN is there, or acknowledged and so not coming any more.
            let next = self.directions[d].bytes.next();
            let end = self.directions[d].side.next;
            if self.fins[d] && next.zip(end).is_some_and(|(next, end)| !before(next.wrapping_add(1), end)) {
                self.close(d, now, shared);
            }
        }
    }

    /// Nothing more is read in that direction.
    fn close(&mut self, dir: usize, now: i64, shared: &mut SharedRecord<'_>) {
        if !self.directions[dir].bytes.is_in_order() {
            self.read(dir, now, shared, |bytes, budget, each| bytes.end(budget, each));
        }
        if let Some(mut tls) = self.tls.take() {
            let acts = tls.1.finish();
            self.act(acts, tls.1.name.as_deref(), shared);
            self.tls = Some(tls);
        }
        self.end_sniff(dir, now, shared);
        let event = self.directions[dir].messages.close(shared.budget);
        self.closing = true;
        event.into_iter().for_each(|e| self.event(dir, e, now, shared));
        self.closing = false;
    }
}
