//! HTTP/2 on one connection: each request has a stream of its own, and responses come in any order.

mod hearing;
mod upload;

use std::collections::VecDeque;

use bytes::Bytes;
use linerate_http::h2::{BlockCache, Client, ClientOptions, Code, FRAME_HEAD};
use linerate_net::{Close, NetError, NetErrorKind, Time};

use crate::conversation::{
    BodyPart, Conversation, Facts, Fate, Out, ProtocolRefused, Requests, Responses, Unsent,
};
use crate::limits::{COPIED_BODY, SEND_BYTES};
use crate::{Loss, Run};
pub(crate) use hearing::{HeardRequests, Hearing, Readings};
pub(crate) use upload::{Upload, UploadStretch, keep_copied};

/// State that the HTTP/2 connections of a core share.
#[derive(Debug, Default)]
pub struct H2Shared {
    options: ClientOptions,
    blocks: BlockCache,
    facts: Facts,
}

impl H2Shared {
    /// For connections that announce a window of `window` bytes.
    pub fn new(window: u32) -> H2Shared {
        H2Shared { options: ClientOptions { window }, ..H2Shared::default() }
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// HTTP/2 on one connection; `R`: state of a response that is read part by part.
#[derive(Debug)]
pub struct H2<R> {
    client: Client<HeardRequests>,
    answers: u32,
    readings: Readings<R>,
    uploads: VecDeque<Upload<u32>>,
    given_back: Vec<(Run, Fate)>,
    /// When bytes came last.
    heard: Time,
    /// When requests left or bytes came last.
    now: Time,
    /// Since when the server's limit of streams is 0.
    shut_since: Option<Time>,
    /// The server's limit and its GOAWAY are among the facts.
    noted: (Option<u32>, bool),
    /// Bytes that leave next, and the request being encoded. Their memory is kept.
    out: Vec<u8>,
    block: Vec<u8>,
    body: Vec<u8>,
}

impl<R: Default> Conversation for H2<R> {
    type Reading = R;
    type Shared = H2Shared;

    fn new(shared: &H2Shared) -> H2<R> {
        H2 {
            client: Client::new(shared.options),
            answers: 0,
            readings: Readings::default(),
            uploads: VecDeque::new(),
            given_back: Vec::new(),
            heard: Time::ZERO,
            now: Time::ZERO,
            shut_since: None,
            noted: (None, false),
            out: Vec::new(),
            block: Vec::new(),
            body: Vec::new(),
        }
    }

    fn agreed(&mut self, _: Option<&[u8]>, shared: &mut H2Shared) -> Result<(), ProtocolRefused> {
        shared.facts.h2 += 1;
        Ok(())
    }

    #[inline]
    fn room(&self) -> u32 {
        self.room_for(true)
    }

    #[inline]
    fn room_for(&self, body: bool) -> u32 {
        // While bodies wait for the connection's window, another one would only wait behind them. Requests
        // without a body do not: flow control concerns DATA alone (RFC 9113, section 5.2).
        let is_held_up = body && !self.uploads.is_empty() && self.client.is_held_up();
        if is_held_up { 0 } else { self.client.room() }
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

    #[inline]
    fn begin(
        &mut self,
        run: Run,
        _last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        self.out.append(self.client.take_control());
        if run.stamp.due != Time::NEVER {
            self.now = self.now.max(run.stamp.due);
        }
        let mut bytes = 0;
        let mut left = run;
        while left.count > 0 {
            let before = self.out.len();
            let run = match requests.fixed_block(run.kind) {
                Some(block) => {
                    let fit = SEND_BYTES.saturating_sub(before) / (FRAME_HEAD + block.len());
                    let run = Run { count: left.count.min(fit.max(1) as u32), ..left };
                    let request = HeardRequests::new(run, self.answers);
                    self.client.open_together(&request, run.count, block, run.expect, &mut self.out);
                    run
                }
                None => {
                    let run = Run { count: 1, ..left };
                    self.begin_with_body(run, requests);
                    run
                }
            };
            left.first += u64::from(run.count);
            left.count -= run.count;
            bytes += (self.out.len() - before) as u64;
            if self.out.len() >= SEND_BYTES {
                self.flush(out)?;
            }
        }
        self.flush(out)?;
        Ok(bytes + self.send_bodies(out)?)
    }

    #[inline]
    fn handle_bytes<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        shared: &mut H2Shared,
        events: &mut E,
    ) -> Result<(), Loss> {
        self.heard = now;
        self.now = now;
        let H2 { client, readings, answers, given_back, .. } = self;
        let H2Shared { blocks, facts, .. } = shared;
        let mut hearing = Hearing::new(now, events, readings, answers, given_back, facts);
        let read = client.read(bytes, blocks, &mut hearing);
        hearing.tell();
        read.map_err(|error| match client.has_greeted() {
            true => Loss::Broken { words: format!("HTTP/2: {error}"), by_peer: false },
            false => Loss::Malformed(format!("HTTP/2: {error}")),
        })?;
        if self.noted.0 != self.client.settings().max_concurrent_streams {
            self.note_limit(now, facts);
        }
        if self.client.go_away().is_some() { self.go_away(facts) } else { Ok(()) }
    }

    fn handle_end<E: Responses<Reading = R>>(&mut self, _: Time, _: &mut E) -> Loss {
        if self.client.in_response() || self.client.in_frame() {
            return Loss::Cut("the connection ended in the middle of a response".to_owned());
        }
        match self.client.go_away() {
            Some(_) if self.in_flight() == 0 => Loss::SaidClose,
            _ => Loss::Closed,
        }
    }

    #[inline]
    fn send_pending(&mut self, _: &mut impl Requests, out: &mut impl Out) -> Result<u64, NetError> {
        self.out.append(self.client.take_control());
        self.flush(out)?;
        self.send_bodies(out)
    }

    #[inline]
    fn given_back(&mut self, mut each: impl FnMut(Run, Fate)) {
        self.given_back.drain(..).for_each(|(run, fate)| each(run, fate));
    }

    #[inline]
    fn has_streams(&self) -> bool {
        true
    }

    #[inline]
    fn is_leaving(&self) -> bool {
        self.client.go_away().is_some()
    }

    fn held_back(&self) -> usize {
        self.uploads.iter().map(Upload::len).sum()
    }

    fn unsent(&self) -> Vec<Unsent> {
        if self.uploads.iter().all(|upload| upload.is_empty()) {
            return Vec::new();
        }
        let waits = |(id, request): (u32, HeardRequests)| {
            let upload = self.uploads.iter().find(|upload| upload.id == id && !upload.is_empty())?;
            Some(Unsent { first: request.run.first, bytes: upload.len() as u64, since: upload.since })
        };
        self.client.first_streams().filter_map(waits).collect()
    }

    fn shut_since(&self) -> Option<Time> {
        self.shut_since
    }

    fn hold(&mut self, first: u64, held: bool) {
        if let Some(id) = self.stream_of(first) {
            self.client.hold(id, held);
        }
    }

    fn upload_backlog(&self, first: u64) -> Option<usize> {
        let id = self.stream_of(first)?;
        self.uploads.iter().find(|upload| upload.id == id).map(Upload::len)
    }

    fn give(&mut self, first: u64, piece: Bytes) {
        if let Some(upload) = self.upload_of(first) {
            upload.give(piece);
        }
    }

    fn give_end(&mut self, first: u64) {
        if let Some(upload) = self.upload_of(first) {
            upload.follows = false;
        }
    }

    fn cancel(&mut self, first: u64) -> Option<Run> {
        let id = self.stream_of(first)?;
        let request = self.client.cancel(id)?;
        self.readings.give_back(request.reading);
        self.uploads.retain(|upload| upload.id != id);
        Some(request.run)
    }

    fn cancel_oldest(&mut self) -> Option<Run> {
        let (id, request) = self.oldest_stream()?;
        // Nothing came since it left: the connection is dead, and not this stream alone.
        if self.heard <= request.run.stamp.sent {
            return None;
        }
        let request = self.client.cancel(id)?;
        self.readings.give_back(request.reading);
        self.uploads.retain(|upload| upload.id != id);
        Some(request.run)
    }

    fn why(&self, loss: Loss) -> Loss {
        let ended = match &loss {
            Loss::Closed | Loss::SaidClose | Loss::Cut(_) => true,
            Loss::Net(error) => matches!(error.kind, NetErrorKind::Reset | NetErrorKind::Cut),
            _ => false,
        };
        match self.client.go_away() {
            Some(code) if ended && code != Code::NO_ERROR => Loss::Broken {
                words: format!("the server ended the connection: GOAWAY, {code}"),
                by_peer: true,
            },
            _ => loss,
        }
    }

    fn abandon(&mut self, mut each: impl FnMut(Run, Fate)) {
        let (last, faulty) = (self.client.last_stream(), self.client.faulty());
        for id in self.client.ids() {
            let Some((request, begun)) = self.client.take(id) else { continue };
            let refused = last.is_some_and(|last| id > last);
            if faulty == Some(id) {
                each(request.run, Fate::AtFault { begun });
                continue;
            }
            match (begun, refused) {
                (true, _) => each(request.run, Fate::Begun),
                (false, true) => each(request.refused(self.answers), Fate::Refused),
                (false, false) => each(request.run, Fate::Unknown),
            }
        }
    }

    fn leave(&mut self, out: &mut impl Out) -> Close {
        self.out.append(self.client.take_control());
        self.client.write_go_away(&mut self.out);
        // The server would wait for more; that it cannot take this changes nothing.
        let _ = self.flush(out);
        Close::Now
    }

    fn usual_response(shared: &H2Shared) -> Option<usize> {
        shared.blocks.usual_response()
    }

    fn facts(shared: &H2Shared) -> Facts {
        shared.facts.clone()
    }
}

impl<R> H2<R> {
    fn stream_of(&self, first: u64) -> Option<u32> {
        self.client.streams().find(|(_, request)| request.run.first == first).map(|(id, _)| id)
    }

    fn upload_of(&mut self, first: u64) -> Option<&mut Upload<u32>> {
        let id = self.stream_of(first)?;
        self.uploads.iter_mut().find(|upload| upload.id == id)
    }

    fn oldest_stream(&self) -> Option<(u32, HeardRequests)> {
        self.client.first_streams().min_by_key(|(id, request)| (request.run.stamp.sent, *id))
    }

    /// Begins a request that differs from others or has a body. A small body leaves with it; what
    /// the windows do not admit yet waits.
    fn begin_with_body(&mut self, run: Run, requests: &mut impl Requests) {
        let H2 { client, uploads, out, block, body, .. } = self;
        block.clear();
        body.clear();
        let (mut parts, mut follows) = (VecDeque::new(), false);
        requests.write_h2(&run, block, |part| match part {
            BodyPart::Copied(bytes) => body.extend_from_slice(bytes),
            BodyPart::Follows => follows = true,
            BodyPart::Counted(bytes) if bytes.len() < COPIED_BODY => body.extend_from_slice(bytes),
            BodyPart::Counted(bytes) => {
                keep_copied(body, &mut parts);
                parts.push_back(UploadStretch::Counted(bytes.clone()));
            }
            BodyPart::Shared(bytes, lent, range) => {
                keep_copied(body, &mut parts);
                parts.push_back(UploadStretch::Shared(bytes.clone(), lent, range));
            }
        });
        let ends = parts.is_empty() && body.is_empty() && !follows;
        let request = HeardRequests::new(run, self.answers);
        let id = client.open(request, block, run.expect, ends, out);
        if ends {
            return;
        }
        let room = client.data_room(id).unwrap_or(0) as usize;
        if parts.is_empty() && uploads.is_empty() && body.len() <= room && !follows {
            client.write_data(id, body.len() as u32, true, out);
            out.extend_from_slice(body);
            return;
        }
        keep_copied(body, &mut parts);
        uploads.push_back(Upload::new(id, parts, follows, self.now));
    }

    /// Sends of the bodies that wait what the windows admit, a frame of each in turn.
    fn send_bodies(&mut self, out: &mut impl Out) -> Result<u64, NetError> {
        let (mut bytes, mut blocked) = (0, 0);
        while blocked < self.uploads.len()
            && !self.client.is_held_up()
            && !out.is_full()
            && let Some(mut upload) = self.uploads.pop_front()
        {
            // The stream may be closed.
            let Some(room) = self.client.data_room(upload.id) else { continue };
            if upload.is_empty() && !upload.follows {
                self.client.write_data(upload.id, 0, true, &mut self.out);
                continue;
            }
            if room == 0 || upload.is_empty() {
                blocked += 1;
                self.uploads.push_back(upload);
                continue;
            }
            blocked = 0;
            let Some(mut piece) = upload.take(room) else { continue };
            upload.since = self.now;
            let before = self.out.len();
            self.client.write_data(upload.id, piece.len() as u32, upload.ends(), &mut self.out);
            bytes += (self.out.len() - before + piece.len()) as u64;
            if let UploadStretch::Copied(copied) = &mut piece {
                self.out.append(copied);
            }
            match piece {
                UploadStretch::Copied(_) => {}
                UploadStretch::Shared(shared, lent, range) => {
                    self.flush(out)?;
                    out.send_shared(&shared, lent, range)?;
                }
                UploadStretch::Counted(counted) => {
                    self.flush(out)?;
                    out.send_counted(counted)?;
                }
            }
            if self.out.len() >= SEND_BYTES {
                self.flush(out)?;
            }
            if !upload.ends() {
                self.uploads.push_back(upload);
            }
        }
        self.flush(out)?;
        Ok(bytes)
    }

    #[inline]
    fn flush(&mut self, out: &mut impl Out) -> Result<(), NetError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = out.send(&self.out);
        self.out.clear();
        sent
    }

    #[cold]
    fn note_limit(&mut self, now: Time, facts: &mut Facts) {
        let limit = self.client.settings().max_concurrent_streams;
        self.noted.0 = limit;
        let limits = |known: Option<u32>| [known, limit].into_iter().flatten();
        facts.max_concurrent_streams = limits(facts.max_concurrent_streams).min();
        facts.most_concurrent_streams = limits(facts.most_concurrent_streams).max();
        if let Some(since) = self.shut_since.take() {
            facts.shut_ns = facts.shut_ns.max(now.nanos_since(since));
        }
        self.shut_since = (limit == Some(0)).then_some(now);
    }

    /// The server takes no more requests: those above its last stream go back.
    #[cold]
    fn go_away(&mut self, facts: &mut Facts) -> Result<(), Loss> {
        facts.go_aways += u64::from(!std::mem::replace(&mut self.noted.1, true));
        for id in self.client.refused() {
            let Some((request, begun)) = self.client.take(id) else { continue };
            self.readings.give_back(request.reading);
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

#[cfg(test)]
mod tests;
