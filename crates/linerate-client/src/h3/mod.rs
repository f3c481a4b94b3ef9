//! HTTP/3 on one connection: each request has a stream of its own, which QUIC keeps apart from the others.

use std::collections::VecDeque;

use bytes::Bytes;
use linerate_http::h2::BlockCache;
use linerate_http::h3::{H3Client, H3Code, H3Error, frame_kind, put_data_head, put_frame};
use linerate_net::{Close, NetError, NetErrorKind, Time};

use crate::conversation::{BodyPart, Conversation, Facts, Fate, Out, ProtocolRefused, Requests, Responses};
use crate::h2::{HeardRequests, Hearing, Readings, Upload, UploadStretch, keep_copied};
use crate::limits::{BODY_PIECE, COPIED_BODY, SEND_BYTES};
use crate::quic::records::{RecordKind, StreamRecordHead, each_record, put_record};
use crate::{Loss, Run};

/// The ID of our control stream: the first that a client opens of its kind (RFC 9000, section 2.1).
const CONTROL: u64 = 2;

/// Bytes of a body in one record. Reason: its length has 32 bits.
const RECORD_BODY: usize = 1 << 30;

/// State that the HTTP/3 connections of a core share.
#[derive(Debug, Default)]
pub struct H3Shared {
    blocks: BlockCache,
    facts: Facts,
}

/// HTTP/3 on one connection; `R`: state of a response that is read part by part.
#[derive(Debug)]
pub struct H3<R> {
    client: H3Client<HeardRequests>,
    answers: u32,
    readings: Readings<R>,
    uploads: Vec<PacedUpload>,
    given_back: Vec<(Run, Fate)>,
    /// Requests that QUIC admits in all.
    admitted: u64,
    /// When bytes came last.
    heard: Time,
    /// Our control stream has begun.
    has_begun: bool,
    /// The server's GOAWAY is among the facts.
    is_noted: bool,
    /// Records that leave next, and the request being encoded. Their memory is kept.
    out: Vec<u8>,
    section: Vec<u8>,
    frames: Vec<u8>,
}

/// The body of a request that leaves piece by piece.
#[derive(Debug)]
struct PacedUpload {
    body: Upload<u64>,
    /// QUIC has not taken the last piece yet.
    waits: bool,
}

impl<R: Default> Conversation for H3<R> {
    type Reading = R;
    type Shared = H3Shared;

    fn new(_: &H3Shared) -> H3<R> {
        H3 {
            client: H3Client::default(),
            answers: 0,
            readings: Readings::default(),
            uploads: Vec::new(),
            given_back: Vec::new(),
            admitted: 0,
            heard: Time::ZERO,
            has_begun: false,
            is_noted: false,
            out: Vec::new(),
            section: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn agreed(&mut self, _: Option<&[u8]>, shared: &mut H3Shared) -> Result<(), ProtocolRefused> {
        shared.facts.h3 += 1;
        Ok(())
    }

    #[inline]
    fn room(&self) -> u32 {
        if self.client.go_away().is_some() {
            return 0;
        }
        u32::try_from(self.admitted.saturating_sub(self.client.opened())).unwrap_or(u32::MAX)
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.client.open_streams()
    }

    #[inline]
    fn answers(&self) -> u32 {
        self.answers
    }

    #[inline]
    fn in_response(&self) -> bool {
        self.client.in_response()
    }

    fn oldest(&self) -> Option<Run> {
        self.oldest_stream().map(|(_, request)| request.run)
    }

    fn begin(
        &mut self,
        run: Run,
        _last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        self.put_control();
        let mut bytes = 0;
        let mut fixed = std::mem::take(&mut self.frames);
        fixed.clear();
        let is_fixed = requests.fixed_block(run.kind).map(|section| {
            put_frame(frame_kind::HEADERS, section, &mut fixed);
        });
        for n in 0..run.count {
            let one = Run { first: run.first + u64::from(n), count: 1, ..run };
            let request = HeardRequests::new(one, self.answers);
            let id = self.client.open(request, run.expect);
            bytes += match is_fixed {
                Some(()) => {
                    put_record(RecordKind::Last, id, &fixed, &mut self.out);
                    fixed.len() as u64
                }
                None => self.put_request(id, &one, requests, out)?,
            };
            if self.out.len() >= SEND_BYTES {
                self.flush(out)?;
            }
        }
        self.frames = fixed;
        self.flush(out)?;
        Ok(bytes + self.send_bodies(out)?)
    }

    fn handle_bytes<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        shared: &mut H3Shared,
        events: &mut E,
    ) -> Result<(), Loss> {
        self.heard = now;
        let H3 { client, readings, uploads, answers, given_back, .. } = self;
        let H3Shared { blocks, facts } = shared;
        let mut hearing = Hearing::new(now, events, readings, answers, given_back, facts);
        let (mut broken, mut ended, mut admitted) = (None, None, self.admitted);
        for (head, bytes) in each_record(bytes) {
            let read = match head.kind {
                RecordKind::Bytes => client.read(head.number, bytes, false, blocks, &mut hearing),
                RecordKind::Last => client.read(head.number, bytes, true, blocks, &mut hearing),
                RecordKind::Reset => {
                    let code = bytes.try_into().map_or(H3Code::GENERAL_PROTOCOL_ERROR.0, u64::from_le_bytes);
                    client.reset(head.number, H3Code(code), &mut hearing)
                }
                RecordKind::Room => {
                    admitted = head.number;
                    Ok(())
                }
                RecordKind::Taken => {
                    let of_it = |upload: &&mut PacedUpload| upload.body.id == head.number;
                    uploads.iter_mut().find(of_it).into_iter().for_each(|upload| upload.waits = false);
                    Ok(())
                }
                kind => {
                    ended = Some(loss_of(kind, head.number, bytes, client.go_away().is_some()));
                    break;
                }
            };
            if let Err(error) = read {
                broken = Some(error);
                break;
            }
        }
        hearing.tell();
        self.admitted = admitted;
        if let Some(error) = broken {
            return Err(self.broken(&error));
        }
        match ended {
            Some(loss) => Err(loss),
            None if self.client.go_away().is_some() => self.go_away(facts),
            None => Ok(()),
        }
    }

    fn payload_bytes(bytes: &[u8]) -> usize {
        let carries = |kind| matches!(kind, RecordKind::Bytes | RecordKind::Last);
        each_record(bytes).filter(|(head, _)| carries(head.kind)).map(|(_, bytes)| bytes.len()).sum()
    }

    fn handle_end<E: Responses<Reading = R>>(&mut self, _: Time, _: &mut E) -> Loss {
        if self.client.in_response() {
            return Loss::Cut("the connection ended in the middle of a response".to_owned());
        }
        Loss::Closed
    }

    fn send_pending(&mut self, _: &mut impl Requests, out: &mut impl Out) -> Result<u64, NetError> {
        self.put_control();
        self.drop_uploads();
        for (id, code) in self.client.given_up().drain(..) {
            // The code stands in the record's length: those of HTTP/3 fit.
            let len = u32::try_from(code.0).unwrap_or(u32::MAX);
            let head = StreamRecordHead { number: id, len, kind: RecordKind::Reset };
            self.out.extend_from_slice(&head.bytes());
        }
        self.flush(out)?;
        self.send_bodies(out)
    }

    fn given_back(&mut self, mut each: impl FnMut(Run, Fate)) {
        self.given_back.drain(..).for_each(|(run, fate)| each(run, fate));
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn is_leaving(&self) -> bool {
        self.client.go_away().is_some()
    }

    fn held_back(&self) -> usize {
        self.uploads.iter().map(|upload| upload.body.len()).sum()
    }

    fn hold(&mut self, first: u64, held: bool) {
        if let Some(id) = self.stream_of(first) {
            let kind = if held { RecordKind::Hold } else { RecordKind::Resume };
            put_record(kind, id, &[], &mut self.out);
        }
    }

    fn upload_backlog(&self, first: u64) -> Option<usize> {
        let id = self.stream_of(first)?;
        self.uploads.iter().find(|upload| upload.body.id == id).map(|upload| upload.body.len())
    }

    fn give(&mut self, first: u64, piece: Bytes) {
        if let Some(body) = self.upload_of(first) {
            body.give(piece);
        }
    }

    fn give_end(&mut self, first: u64) {
        if let Some(body) = self.upload_of(first) {
            body.follows = false;
        }
    }

    fn cancel(&mut self, first: u64) -> Option<Run> {
        self.cancel_stream(self.stream_of(first)?)
    }

    fn cancel_oldest(&mut self) -> Option<Run> {
        let (id, request) = self.oldest_stream()?;
        // Nothing came since it left: the connection is dead, and not this stream alone.
        if self.heard <= request.run.stamp.sent {
            return None;
        }
        self.cancel_stream(id)
    }

    fn abandon(&mut self, mut each: impl FnMut(Run, Fate)) {
        let (first_refused, faulty) = (self.client.go_away(), self.client.faulty());
        let ids: Vec<u64> = self.client.streams().map(|(id, _)| id).collect();
        for id in ids {
            let Some((request, begun)) = self.client.take(id) else { continue };
            let refused = first_refused.is_some_and(|first| id >= first);
            match (begun, refused) {
                _ if faulty == Some(id) => each(request.run, Fate::AtFault { begun }),
                (true, _) => each(request.run, Fate::Begun),
                (false, true) => each(request.refused(self.answers), Fate::Refused),
                (false, false) => each(request.run, Fate::Unknown),
            }
        }
    }

    fn why(&self, loss: Loss) -> Loss {
        match &loss {
            // A server may close behind its GOAWAY as it likes (RFC 9114, section 5.3).
            Loss::Net(error)
                if error.kind == NetErrorKind::Reset && self.is_leaving() && self.in_flight() == 0 =>
            {
                Loss::SaidClose
            }
            _ => loss,
        }
    }

    fn leave(&mut self, _: &mut impl Out) -> Close {
        Close::Now
    }

    fn facts(shared: &H3Shared) -> Facts {
        shared.facts.clone()
    }
}

impl<R: Default> H3<R> {
    fn stream_of(&self, first: u64) -> Option<u64> {
        self.client.streams().find(|(_, request)| request.run.first == first).map(|(id, _)| id)
    }

    fn upload_of(&mut self, first: u64) -> Option<&mut Upload<u64>> {
        let id = self.stream_of(first)?;
        self.uploads.iter_mut().map(|upload| &mut upload.body).find(|body| body.id == id)
    }

    fn oldest_stream(&self) -> Option<(u64, HeardRequests)> {
        let sent = |(id, request): &(u64, HeardRequests)| (request.run.stamp.sent, *id);
        self.client.streams().map(|(id, request)| (id, *request)).min_by_key(sent)
    }

    fn cancel_stream(&mut self, id: u64) -> Option<Run> {
        let request = self.client.cancel(id)?;
        self.readings.give_back(request.reading);
        Some(request.run)
    }

    /// Our control stream begins with the first thing that leaves.
    fn put_control(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let mut control = Vec::new();
            H3Client::<HeardRequests>::put_control(&mut control);
            put_record(RecordKind::Bytes, CONTROL, &control, &mut self.out);
        }
    }

    /// A request that differs from others or has a body. Large stretches of it leave from where they are; those
    /// that belong to it alone, and what follows, leave piece by piece.
    fn put_request(
        &mut self,
        id: u64,
        run: &Run,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        let H3 { section, out: records, uploads, .. } = self;
        section.clear();
        let (mut head, mut parts, mut copied) = (Vec::new(), VecDeque::new(), Vec::new());
        let (mut follows, mut is_paced) = (false, false);
        requests.write_h2(run, section, |part| match part {
            BodyPart::Copied(bytes) => copied.extend_from_slice(bytes),
            BodyPart::Follows => follows = true,
            BodyPart::Counted(bytes) if bytes.len() < COPIED_BODY => copied.extend_from_slice(bytes),
            BodyPart::Counted(bytes) => {
                is_paced = true;
                keep_copied(&mut copied, &mut parts);
                parts.push_back(UploadStretch::Counted(bytes.clone()));
            }
            BodyPart::Shared(bytes, lent, range) => {
                keep_copied(&mut copied, &mut parts);
                parts.push_back(UploadStretch::Shared(bytes.clone(), lent, range));
            }
        });
        put_frame(frame_kind::HEADERS, section, &mut head);
        if follows || is_paced {
            keep_copied(&mut copied, &mut parts);
            put_record(RecordKind::Bytes, id, &head, records);
            let body = Upload::new(id, parts, follows, run.stamp.due);
            uploads.push(PacedUpload { body, waits: false });
            return Ok(head.len() as u64);
        }
        let body = parts.iter().map(UploadStretch::len).sum::<usize>() + copied.len();
        if body > 0 {
            put_data_head(body as u64, &mut head);
        }
        let bytes = head.len() + body;
        if parts.is_empty() {
            head.extend_from_slice(&copied);
            put_record(RecordKind::Last, id, &head, records);
            return Ok(bytes as u64);
        }
        put_record(RecordKind::Bytes, id, &head, records);
        for stretch in parts {
            self.put_stretch(id, &stretch, out)?;
        }
        put_record(RecordKind::Last, id, &copied, &mut self.out);
        Ok(bytes as u64)
    }

    fn put_stretch(&mut self, id: u64, stretch: &UploadStretch, out: &mut impl Out) -> Result<(), NetError> {
        let mut at = 0;
        while at < stretch.len() {
            let len = (stretch.len() - at).min(RECORD_BODY);
            let head = StreamRecordHead { number: id, len: len as u32, kind: RecordKind::Bytes };
            self.out.extend_from_slice(&head.bytes());
            match stretch {
                UploadStretch::Copied(bytes) => self.out.extend_from_slice(&bytes[at..at + len]),
                UploadStretch::Shared(bytes, lent, range) => {
                    self.flush(out)?;
                    let from = range.start + at;
                    out.send_shared(bytes, *lent, from..from + len)?;
                }
                UploadStretch::Counted(bytes) => {
                    self.flush(out)?;
                    out.send_counted(bytes.slice(at..at + len))?;
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Bodies whose request has ended leave no further: the server responded before it had them, say.
    fn drop_uploads(&mut self) {
        let H3 { uploads, client, .. } = self;
        uploads.retain(|PacedUpload { body, .. }| {
            let is_open = client.is_open(body.id);
            if !is_open {
                client.given_up().push((body.id, H3Code::REQUEST_CANCELLED));
            }
            is_open
        });
    }

    /// Sends the next piece of each body whose last one QUIC has taken.
    fn send_bodies(&mut self, out: &mut impl Out) -> Result<u64, NetError> {
        let (mut at, mut bytes) = (0, 0);
        while at < self.uploads.len() && !out.is_full() {
            let PacedUpload { body, waits } = &mut self.uploads[at];
            let id = body.id;
            if *waits || (body.is_empty() && body.follows) {
                at += 1;
                continue;
            }
            let piece = body.take(BODY_PIECE);
            let ends = body.ends();
            *waits = true;
            if let Some(piece) = piece {
                self.frames.clear();
                put_data_head(piece.len() as u64, &mut self.frames);
                put_record(RecordKind::Bytes, id, &self.frames, &mut self.out);
                bytes += (self.frames.len() + piece.len()) as u64;
                self.put_stretch(id, &piece, out)?;
            }
            if ends {
                put_record(RecordKind::Last, id, &[], &mut self.out);
                self.uploads.swap_remove(at);
            } else {
                put_record(RecordKind::Taken, id, &[], &mut self.out);
                at += 1;
            }
            self.flush(out)?;
        }
        self.flush(out)?;
        Ok(bytes)
    }

    fn flush(&mut self, out: &mut impl Out) -> Result<(), NetError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = out.send(&self.out);
        self.out.clear();
        sent
    }

    fn broken(&self, error: &H3Error) -> Loss {
        let words = format!("HTTP/3: {error}");
        match self.client.settings() {
            Some(_) => Loss::Broken { words, by_peer: false },
            None => Loss::Malformed(words),
        }
    }

    /// The server takes no more requests: those from its ID on go back.
    #[cold]
    fn go_away(&mut self, facts: &mut Facts) -> Result<(), Loss> {
        facts.go_aways += u64::from(!std::mem::replace(&mut self.is_noted, true));
        for id in self.client.refused() {
            let Some((request, begun)) = self.client.take(id) else { continue };
            self.readings.give_back(request.reading);
            self.client.given_up().push((id, H3Code::REQUEST_CANCELLED));
            let back = match begun {
                true => (request.run, Fate::Begun),
                false => (request.refused(self.answers), Fate::Refused),
            };
            facts.refused += u64::from(!begun);
            self.given_back.push(back);
        }
        if self.client.open_streams() == 0 { Err(Loss::SaidClose) } else { Ok(()) }
    }
}

/// How a connection was lost that its peer ended, or whose peer broke the rules.
fn loss_of(kind: RecordKind, code: u64, words: &[u8], is_leaving: bool) -> Loss {
    let words = String::from_utf8_lossy(words);
    match kind {
        RecordKind::Closed if code == H3Code::NO_ERROR.0 && is_leaving => Loss::SaidClose,
        RecordKind::Closed if code == H3Code::NO_ERROR.0 => Loss::Closed,
        RecordKind::Closed => Loss::Broken { words: format!("{words}, {}", H3Code(code)), by_peer: true },
        RecordKind::EndedByPeer => Loss::Broken { words: words.into_owned(), by_peer: true },
        _ => Loss::Broken { words: format!("QUIC: {words}"), by_peer: false },
    }
}
