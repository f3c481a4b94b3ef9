//! HTTP/2 on one captured connection: what its frames mean for its streams and their windows.

use std::collections::VecDeque;

use crate::passive::h2::{FieldReader, Frame, FrameReader, Spot};
use crate::passive::limits::{CaptureLimits, PLACES, STREAMS_TOLD};
use crate::passive::observation::Note;

use super::reassembly::{Budget, StreamPiece};
use super::room::Room;
use super::sequence::before;
use super::streams::{Around, Streams};

/// Where a piece of a direction was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) spot: Spot,
    /// After its last byte.
    pub(super) end: u32,
}

/// Bytes of a stream in a segment, or in a record up to a segment.
#[derive(Clone, Copy, Debug)]
struct StreamBytes {
    stream: u32,
    from: u32,
    to: u32,
    came: i64,
}

/// A lost segment, which fills a hole.
#[derive(Debug)]
struct Repair {
    /// After its last byte.
    end: u32,
    waited: i64,
    fast: bool,
    /// Streams that have bytes in it.
    own: Vec<u32>,
}

/// An event for the next stream of a direction.
#[derive(Debug)]
enum StreamEvent {
    Note(Note),
    Small { since: i64, cost: i64, size: u32 },
}

/// Events that wait for the next stream. Reason: one segment causes one or two.
const NEXT: usize = 4;

/// The error code of a stream that was not processed (RFC 9113, section 7).
const REFUSED_STREAM: u32 = 7;
/// The window of a connection, and of its streams before settings say otherwise (RFC 9113, section
/// 6.9.2).
const FIRST_WINDOW: u32 = 65_535;

/// A direction.
#[derive(Debug)]
struct StreamDirection {
    frames: FrameReader,
    fields: FieldReader,
    /// The connection's window for what it sends, and that which its streams begin with. `None`: not
    /// known, since the capture lacks frames.
    window: Option<(Room, u32)>,
    places: VecDeque<StreamBytes>,
    repair: Option<Repair>,
    next: Vec<StreamEvent>,
}

#[derive(Debug)]
pub(super) struct StreamFlow {
    sides: [StreamDirection; 2],
    pub(super) streams: Streams,
    /// Nothing more is read.
    is_over: bool,
}

impl StreamFlow {
    /// `client`: its direction. `from`: the direction that is read from now on, when the beginning
    /// of the connection was not captured.
    pub(super) fn new(client: usize, from: Option<usize>, now: i64, limits: &CaptureLimits) -> StreamFlow {
        let side = |dir: usize| {
            let frames = FrameReader::new(dir == client && from.is_none(), false, limits.head_bytes);
            let lost = || FrameReader::new(false, true, limits.head_bytes);
            StreamDirection {
                frames: if from.is_none_or(|from| from == dir) { frames } else { lost() },
                fields: FieldReader::new(from.is_some(), 2 * limits.head_bytes),
                window: from.is_none().then(|| (Room::new(FIRST_WINDOW, now), FIRST_WINDOW)),
                places: VecDeque::new(),
                repair: None,
                next: Vec::new(),
            }
        };
        StreamFlow { sides: [side(0), side(1)], streams: Streams::default(), is_over: false }
    }

    /// Nothing more is read.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next part of a direction.
    pub(super) fn take(&mut self, dir: usize, piece: StreamPiece<'_>, at: At, around: &mut Around<'_, '_>) {
        let budget = around.shared.budget;
        let told = match piece {
            _ if self.is_over => return,
            StreamPiece::Hole(n) => match self.sides[dir].frames.hole(n, budget) {
                Some((frame, spot)) => self.frame(dir, frame, spot, at, around),
                None => Ok(()),
            },
            StreamPiece::Data(data) => self.data(dir, data, at, around),
        };
        if let Err(why) = told {
            around.shared.record.unread(&why);
            self.end(around);
        }
    }

    fn data(
        &mut self,
        dir: usize,
        mut data: &[u8],
        at: At,
        around: &mut Around<'_, '_>,
    ) -> Result<(), String> {
        let mut starts = true;
        let budget = around.shared.budget;
        while let Some((frame, spot)) = self.sides[dir].frames.next(&mut data, starts, at.spot, budget)? {
            starts = false;
            self.frame(dir, frame, spot, at, around)?;
        }
        Ok(())
    }

    /// `begun`: where the frame began.
    fn frame(
        &mut self,
        dir: usize,
        frame: Frame,
        begun: Spot,
        at: At,
        around: &mut Around<'_, '_>,
    ) -> Result<(), String> {
        let by_client = dir == around.times.client;
        match frame {
            Frame::Data { stream, bytes, ends, is_missing } => {
                self.touch(dir, stream, begun, at, around);
                self.body(dir, stream, bytes, around);
                if by_client {
                    self.streams.request_data(stream, around.now);
                } else if is_missing {
                    self.streams.answer_holed(stream);
                }
                if ends {
                    self.ended(by_client, stream, around);
                }
            }
            Frame::Block { stream, is_promise, ends, block } => {
                let fields = match block {
                    Some(block) => Some(self.sides[dir].fields.read(&block, around.shared.budget)?),
                    None => {
                        self.sides[dir].fields.forget(around.shared.budget);
                        None
                    }
                };
                if is_promise {
                    return Ok(());
                }
                if by_client {
                    let rooms = self.rooms(around.now);
                    self.streams.request(stream, fields, begun.begun, rooms, around);
                    self.touch(dir, stream, begun, at, around);
                } else {
                    self.touch(dir, stream, begun, at, around);
                    self.streams.answer(stream, fields, begun.begun, ends, around);
                }
                if ends {
                    self.ended(by_client, stream, around);
                }
            }
            Frame::Settings(Some(settings)) => self.settings(dir, &settings, around),
            Frame::Settings(None) | Frame::Room { bytes: None, .. } => self.lose_windows(),
            Frame::Room { stream, bytes: Some(bytes) } => self.room(1 - dir, stream, bytes, around),
            Frame::Reset { stream, code } => {
                self.streams.reset(stream, !by_client && code == Some(REFUSED_STREAM), around);
            }
            Frame::GoAway { last } if !by_client => {
                last.into_iter().for_each(|last| self.streams.go_away(last, around));
            }
            Frame::GoAway { .. } => {}
            Frame::Lost => self.lost_frames(dir, by_client, around),
        }
        Ok(())
    }

    fn ended(&mut self, by_client: bool, stream: u32, around: &mut Around<'_, '_>) {
        match by_client {
            true => self.streams.request_end(stream, around.now),
            false => self.streams.answer_end(stream, around),
        }
    }

    /// The windows of a stream that begins.
    fn rooms(&self, now: i64) -> Option<[Room; 2]> {
        let [a, b] = [0, 1].map(|dir| self.sides[dir].window.as_ref().map(|(_, initial)| *initial));
        Some([Room::new(a?, now), Room::new(b?, now)])
    }

    /// Bytes of a body: were they held up by a window?
    fn body(&mut self, dir: usize, stream: u32, bytes: u32, around: &Around<'_, '_>) {
        let by_client = dir == around.times.client;
        let now = around.now;
        let window = self.sides[dir].window.as_mut();
        let whole = window.and_then(|(room, _)| room.sent(bytes, now)).map(|full| (full, true));
        let Some(stream) = self.streams.get(stream) else { return };
        let own = stream.rooms.as_mut().and_then(|rooms| rooms[dir].sent(bytes, now));
        if let Some((full, is_connection)) = own.map(|full| (full, false)).or(whole) {
            stream.waited_for_room(full, by_client, is_connection, &around.bounded(), now);
        }
    }

    /// Direction `dir` may send `bytes` more.
    fn room(&mut self, dir: usize, stream: u32, bytes: u32, around: &Around<'_, '_>) {
        if stream == 0 {
            if let Some((room, _)) = &mut self.sides[dir].window {
                room.admit(i64::from(bytes), around.now);
            }
        } else if let Some(rooms) = self.streams.get(stream).and_then(|s| s.rooms.as_mut()) {
            rooms[dir].admit(i64::from(bytes), around.now);
        }
    }

    /// Settings that `dir` announces.
    fn settings(&mut self, dir: usize, settings: &[u8], around: &Around<'_, '_>) {
        for setting in settings.chunks_exact(6) {
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                3 if dir != around.times.client => self.streams.admission.limit(value, around.now),
                4 => {
                    let other = 1 - dir;
                    let Some((_, initial)) = &mut self.sides[other].window else { continue };
                    let change = i64::from(value) - i64::from(std::mem::replace(initial, value));
                    for rooms in self.streams.all().filter_map(|s| s.rooms.as_mut()) {
                        rooms[other].admit(change, around.now);
                    }
                }
                _ => {}
            }
        }
    }

    /// Frames are missing that may have given room.
    fn lose_windows(&mut self) {
        self.sides.iter_mut().for_each(|side| side.window = None);
        self.streams.all().for_each(|stream| stream.rooms = None);
    }

    fn lost_frames(&mut self, dir: usize, by_client: bool, around: &mut Around<'_, '_>) {
        self.lose_windows();
        self.sides[dir].fields.forget(around.shared.budget);
        match by_client {
            true => self.streams.requests_lost(around),
            false => self.streams.answers_lost(),
        }
    }

    /// A frame of a stream, or part of one, was read: what happened to the segments before it
    /// happened to it.
    fn touch(&mut self, dir: usize, id: u32, begun: Spot, at: At, around: &Around<'_, '_>) {
        let by_client = dir == around.times.client;
        let now = around.now;
        let side = &mut self.sides[dir];
        let (from, came) = (at.spot.seq, at.spot.came);
        if side.places.back().is_none_or(|last| (last.stream, last.from, last.to) != (id, from, at.end)) {
            if side.places.len() >= PLACES {
                side.places.pop_front();
            }
            side.places.push_back(StreamBytes { stream: id, from, to: at.end, came });
        }
        let Some(stream) = self.streams.get(id) else { return };
        for next in side.next.drain(..) {
            match next {
                StreamEvent::Note(note) => stream.call.note(note),
                StreamEvent::Small { since, cost, size } => {
                    stream.call.small_window(since, cost, size, !by_client)
                }
            }
        }
        let Some(repair) = &mut side.repair else { return };
        if before(begun.seq, repair.end) {
            if !repair.own.contains(&id) && repair.own.len() < STREAMS_TOLD {
                repair.own.push(id);
                stream.call.lost_segment(now, repair.waited, by_client, repair.fast);
            }
        } else if came < now && !repair.own.contains(&id) {
            stream.held_up(came, now);
        }
    }

    /// A segment from `seq` to `end` was sent again, `waited` after what came before; `fast`: after
    /// duplicate ACKs. `was_there`: it had been captured, and got lost behind that place.
    pub(super) fn lost_segment(
        &mut self,
        dir: usize,
        (seq, end): (u32, u32),
        was_there: bool,
        (waited, fast): (i64, bool),
        around: &Around<'_, '_>,
    ) {
        let side = &mut self.sides[dir];
        if !was_there {
            side.repair = Some(Repair { end, waited, fast, own: Vec::new() });
            return;
        }
        let own = |place: &&StreamBytes| before(place.from, end) && before(seq, place.to);
        let mut told: Vec<u32> = Vec::new();
        for place in side.places.iter().filter(own) {
            if !told.contains(&place.stream)
                && told.len() < STREAMS_TOLD
                && let Some(stream) = self.streams.get(place.stream)
            {
                stream.call.lost_segment(around.now, waited, dir == around.times.client, fast);
                told.push(place.stream);
            }
        }
        for place in side.places.iter().filter(|place| !before(place.from, end)) {
            if !told.contains(&place.stream)
                && told.len() < STREAMS_TOLD
                && let Some(stream) = self.streams.get(place.stream)
            {
                stream.held_up(place.came, around.now);
                told.push(place.stream);
            }
        }
    }

    /// All that the segment brought was read.
    pub(super) fn repaired(&mut self, dir: usize) {
        self.sides[dir].repair = None;
    }

    /// Keeps an event for the next stream of a direction.
    fn tell_next(&mut self, dir: usize, next: StreamEvent) {
        let waiting = &mut self.sides[dir].next;
        if waiting.len() < NEXT {
            waiting.push(next);
        }
    }

    pub(super) fn stalled(&mut self, dir: usize, note: Note) {
        self.tell_next(dir, StreamEvent::Note(note));
    }

    /// A segment of direction `dir` had waited for room in TCP's window.
    pub(super) fn small_window(&mut self, dir: usize, since: i64, cost: i64, size: u32) {
        self.tell_next(dir, StreamEvent::Small { since, cost, size });
    }

    /// TCP's window was closed for all streams.
    pub(super) fn closed_window(&mut self, note: &Note) {
        self.streams.some().for_each(|stream| stream.call.note(note.clone()));
    }

    /// Nothing more is read: streams still open have no response.
    pub(super) fn end(&mut self, around: &mut Around<'_, '_>) {
        self.streams.finish(around);
        self.drop_held(around.shared.budget);
        self.is_over = true;
    }

    fn drop_held(&mut self, budget: &Budget) {
        for side in &mut self.sides {
            side.frames.drop_held(budget);
            side.fields.drop_held(budget);
            side.places.clear();
        }
    }
}
