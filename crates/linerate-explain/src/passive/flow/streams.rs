//! Makes calls of the streams of an HTTP/2 connection.

use std::collections::{BTreeMap, BTreeSet};

use crate::causes::{client_slow_reader, h2_flow_control, h2_head_of_line, request_held};
use crate::passive::h2::BlockFields;
use crate::passive::limits::{STREAMS, STREAMS_TOLD};
use crate::passive::observation::Note;

use super::admission::Admission;
use super::pending::{Pending, PendingTimes, ms};
use super::record::SharedRecord;
use super::room::{Full, Room};
use super::trace::Trace;

/// The state of the connection that a stream needs.
pub(super) struct Around<'a, 's> {
    pub(super) now: i64,
    pub(super) times: PendingTimes,
    pub(super) trace: &'a mut Trace,
    pub(super) shared: &'a mut SharedRecord<'s>,
}

impl Around<'_, '_> {
    /// The times, with a bound of the round trip where no handshake tells it.
    pub(super) fn bounded(&self) -> PendingTimes {
        PendingTimes { rtt_bound: self.shared.record.rtt_bound(self.times.ends.1), ..self.times }
    }
}

/// Pauses of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    times: u32,
    first: i64,
    cost: i64,
    /// When the last of them ended.
    until: i64,
}

impl Pauses {
    fn add(&mut self, since: i64, now: i64) {
        let since = since.max(self.until);
        if self.times == 0 {
            self.first = since;
        }
        self.times += 1;
        self.cost = self.cost.saturating_add((now - since).max(0));
        self.until = now;
    }
}

/// A request that is still to be answered.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) call: Pending,
    /// It is the first of its connection.
    is_first: bool,
    /// Its method, path or status is not known.
    is_unknown: bool,
    /// Bytes of the response are missing.
    holed: bool,
    /// The windows for what client and server send, where they are known.
    pub(super) rooms: Option<[Room; 2]>,
    /// Pauses since a window was full: of the client's data, of the server's; given in time, and late.
    full: [[Pauses; 2]; 2],
    /// The window that was full last, and whether it is the connection's.
    window: (i64, bool),
    /// Pauses since a segment was lost that had none of its bytes.
    behind: Pauses,
}

impl Stream {
    /// Its data had waited for room.
    pub(super) fn waited_for_room(
        &mut self,
        full: Full,
        by_client: bool,
        is_connection: bool,
        times: &PendingTimes,
        now: i64,
    ) {
        let to_server = times.handshake.and_then(|h| h.to_server_ns).or(times.rtt_bound);
        let to_client = times.handshake.and_then(|h| h.to_client_ns).unwrap_or(0);
        let Some(to_server) = to_server else { return };
        let trips = if by_client { (to_client, to_server) } else { (to_server, to_client) };
        // The time before the request, or its response, cost it nothing.
        let since = full.since.max(self.call.begun);
        if let Some((_, unread)) = full.cost(now, trips) {
            self.full[usize::from(!by_client)][usize::from(unread)].add(since, now);
            self.window = (full.size, is_connection);
        }
    }

    /// It could not be read since then, because a segment without bytes of it was lost.
    pub(super) fn held_up(&mut self, since: i64, now: i64) {
        self.behind.add(since.max(self.call.begun), now);
    }

    fn notes(&mut self) {
        let (size, of_connection) = self.window;
        let window = if of_connection { "the connection's HTTP/2 window" } else { "its HTTP/2 window" };
        let ends = [("client", "server", "request"), ("server", "client", "answer")];
        for (pauses, (who, peer, what)) in self.full.into_iter().zip(ends) {
            for (pause, unread) in pauses.into_iter().zip([false, true]).filter(|(p, _)| p.times > 0) {
                let times =
                    if pause.times == 1 { "once".to_owned() } else { format!("{} times", pause.times) };
                let cause = match (unread, who) {
                    (false, _) => &h2_flow_control::CAUSE,
                    (true, "client") => &request_held::ZERO_WINDOW,
                    (true, _) => &client_slow_reader::CAUSE,
                };
                let why = match unread {
                    true => format!("the {peer} gave room later than it had the bytes: it did not read them"),
                    false => format!("the {peer}'s word that there is room takes a round trip"),
                };
                let text = format!(
                    "{times} the {who} had sent all of the {what} that {window} admits (it began with {size} bytes), and stood still for {} \
                     in all until WINDOW_UPDATE: {why}",
                    ms(pause.cost)
                );
                self.call.note(Note { cause, at_ns: pause.first, cost_ns: pause.cost, text });
            }
        }
        let behind = self.behind;
        if behind.times > 0 {
            let text = format!(
                "it stood still for {} behind {} that had none of its bytes: TCP hands on nothing that comes after a segment which is lost",
                ms(behind.cost),
                if behind.times == 1 {
                    "a lost segment".to_owned()
                } else {
                    format!("{} lost segments", behind.times)
                }
            );
            self.call.note(Note {
                cause: &h2_head_of_line::CAUSE,
                at_ns: behind.first,
                cost_ns: behind.cost,
                text,
            });
        }
    }
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: BTreeMap<u32, Stream>,
    /// Their response is whole, their request is not.
    half: BTreeSet<u32>,
    /// The highest stream that the client opened.
    highest: u32,
    pub(super) admission: Admission,
    pub(super) requests: u64,
    pub(super) answers: u64,
    answered: u64,
}

impl Streams {
    /// No request waits for its response.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Since when the oldest request waits, and how many do.
    pub(super) fn waiting(&self) -> Option<(i64, u64)> {
        let oldest = self.open.values().map(|stream| stream.call.begun).min();
        oldest.map(|begun| (begun, self.open.len() as u64))
    }

    /// A call came to its end.
    pub(super) fn any_whole(&self) -> bool {
        self.answered > 0
    }

    /// A complete request waits for its response.
    pub(super) fn is_waiting(&self) -> bool {
        self.open.values().any(|stream| stream.call.end.is_some())
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        self.open.get_mut(&id)
    }

    /// Streams that one event of the connection applies to.
    pub(super) fn some(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.values_mut().take(STREAMS_TOLD)
    }

    /// Every open stream.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.values_mut()
    }

    /// The client sent fields on a stream that begins. Returns whether it does.
    pub(super) fn request(
        &mut self,
        id: u32,
        fields: Option<BlockFields>,
        begun: i64,
        rooms: Option<[Room; 2]>,
        around: &mut Around<'_, '_>,
    ) -> bool {
        if id.is_multiple_of(2) || id <= self.highest {
            return false;
        }
        self.highest = id;
        let sums = &mut around.shared.record.sums;
        sums.requests += 1;
        self.requests += 1;
        if self.open.len() >= STREAMS.min(around.shared.limits.pending.max(1)) {
            self.open.pop_first();
            sums.unanswered += 1;
            self.admission.lose();
        }
        if self.open.is_empty() && around.trace.spent {
            around.trace.restart();
        }
        let fields = fields.unwrap_or_default();
        let is_unknown = fields.method.is_none() || fields.target.is_none();
        let word = |word: Option<String>| word.unwrap_or_else(|| "?".to_owned());
        let call = Pending {
            method: word(fields.method),
            target: word(fields.target),
            expects: fields.expects,
            begun,
            head: around.now,
            ..Pending::default()
        };
        let stream = Stream {
            call,
            is_first: self.requests == 1,
            is_unknown,
            holed: false,
            rooms,
            full: Default::default(),
            window: (0, false),
            behind: Pauses::default(),
        };
        self.open.insert(id, stream);
        let to_client = around.times.handshake.and_then(|h| h.to_client_ns).unwrap_or(0);
        self.admission.opened(around.now, to_client);
        true
    }

    /// More of the request came.
    pub(super) fn request_data(&mut self, id: u32, now: i64) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.call.body.get_or_insert(now);
        }
    }

    /// The request is whole.
    pub(super) fn request_end(&mut self, id: u32, now: i64) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.call.end.get_or_insert(now);
        } else if self.half.remove(&id) {
            self.admission.ended(now);
        }
    }

    /// The server sent fields: of an interim response, of the response, or behind it.
    pub(super) fn answer(
        &mut self,
        id: u32,
        fields: Option<BlockFields>,
        begun: i64,
        ends: bool,
        around: &mut Around<'_, '_>,
    ) {
        let status = fields.and_then(|fields| fields.status);
        let sums = &mut around.shared.record.sums;
        let Some(stream) = self.open.get_mut(&id) else {
            // Trailers of what began before the capture have no status.
            sums.orphans += u64::from(status.is_some() && id > self.highest);
            return;
        };
        if stream.call.answer.is_some() {
            return;
        }
        if !ends && status.is_some_and(|status| (100..200).contains(&status)) {
            sums.interim += 1;
            stream.call.interim.get_or_insert(around.now);
            return;
        }
        sums.answers += 1;
        self.answers += 1;
        stream.is_unknown |= status.is_none();
        stream.call.answer = Some((status.unwrap_or(0), begun));
        if stream.call.method == "CONNECT" && status.is_some_and(|status| (200..300).contains(&status)) {
            // A tunnel follows.
            sums.upgrades += 1;
            stream.call.end.get_or_insert(around.now);
            self.answer_end(id, around);
            self.admission.lose();
        }
    }

    /// Bytes of the response are missing in the capture.
    pub(super) fn answer_holed(&mut self, id: u32) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.holed = true;
        }
    }

    /// The response is whole.
    pub(super) fn answer_end(&mut self, id: u32, around: &mut Around<'_, '_>) {
        let Some(mut stream) = self.open.remove(&id) else { return };
        if stream.call.end.is_none() {
            self.half.insert(id);
            if self.half.len() > STREAMS {
                self.half.pop_first();
            }
        } else {
            self.admission.ended(around.now);
        }
        let sums = &mut around.shared.record.sums;
        if stream.call.answer.is_none() {
            sums.unanswered += 1;
            return;
        }
        sums.answers_incomplete += u64::from(stream.holed);
        sums.unknown_fields += u64::from(stream.is_unknown);
        self.answered += 1;
        let times = around.bounded();
        let mut call = stream.call.measure(around.now, None, &times, stream.is_first);
        stream.notes();
        stream.call.notes_into(&mut call, times.handshake.filter(|_| stream.is_first));
        around.trace.spent = true;
        let (limits, trace) = (around.shared.limits, &*around.trace);
        around.shared.record.call(call, stream.is_first, limits, |call| trace.give(call, times.client));
    }

    /// One end gives a stream up. `is_refused`: the server has not looked at it.
    pub(super) fn reset(&mut self, id: u32, is_refused: bool, around: &mut Around<'_, '_>) {
        let sums = &mut around.shared.record.sums;
        if self.open.remove(&id).is_some() {
            sums.streams_reset += 1;
            sums.unanswered += 1;
        } else if !self.half.remove(&id) {
            return;
        }
        if is_refused {
            self.admission.refused();
        }
        self.admission.ended(around.now);
    }

    /// The server does not process streams above `last`.
    pub(super) fn go_away(&mut self, last: u32, around: &mut Around<'_, '_>) {
        let above = last.checked_add(1).map_or_else(BTreeMap::new, |above| self.open.split_off(&above));
        around.shared.record.sums.unanswered += above.len() as u64;
        above.iter().for_each(|_| self.admission.ended(around.now));
    }

    /// Frames of the client were lost.
    pub(super) fn requests_lost(&mut self, around: &mut Around<'_, '_>) {
        self.admission.lose();
        for call in self.open.values_mut().map(|stream| &mut stream.call).filter(|call| call.end.is_none()) {
            call.end = Some(call.head);
            around.shared.record.sums.requests_incomplete += 1;
        }
    }

    /// Frames of the server were lost.
    pub(super) fn answers_lost(&mut self) {
        self.admission.lose();
        self.open.values_mut().for_each(|stream| stream.holed = true);
    }

    /// Nothing more is read.
    pub(super) fn finish(&mut self, around: &mut Around<'_, '_>) {
        around.shared.record.sums.unanswered += self.open.len() as u64;
        self.open.clear();
        if let Some(counts) = self.admission.counts() {
            around.shared.record.stream_limit(counts, around.times.ends, around.shared.limits.listed);
        }
        self.admission = Admission::default();
    }
}
