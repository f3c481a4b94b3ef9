//! The calls that have not ended.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use linerate_net::{Conn, NetError, Time};

use super::request::Nature;
use super::streamed::Streaming;
use crate::client::error::{Error, ErrorDetail, Phase};
use crate::conversation::{Settle, Settled};
use crate::{Failure, Run};

/// A call that has ended.
#[derive(Debug)]
pub struct Done {
    /// The number that [`Calls::submit`](super::Calls::submit) got.
    pub id: u64,
    /// How it ended.
    pub result: Result<Response<Bytes>, Error>,
}

/// When a call was handed over, and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) accepted: Time,
    pub(super) timeout: Duration,
    /// The time-out is the request's own, not the client's.
    pub(super) is_own: bool,
    /// How many calls were before it.
    pub(super) order: u64,
}

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct OpenCall {
    id: u64,
    pub(super) request: Request<Bytes>,
    pub(super) nature: Nature,
    /// When it was handed over.
    pub(super) accepted: Time,
    /// When it has to have ended.
    pub(super) deadline: Time,
    /// The deadline is the request's own, not the client's.
    pub(super) is_own: bool,
    /// How many were before it.
    pub(super) order: u64,
    /// When it was sent last.
    pub(super) sent: Option<Time>,
    /// Where it was sent last.
    pub(super) conn: Option<Conn>,
    /// The address that this connection leads to.
    pub(super) to: Option<SocketAddr>,
    /// How often it was sent, and the requests before it on its connection the last time.
    pub(super) attempts: u32,
    pub(super) requests_before: u32,
    /// The head of its response came.
    pub(super) begun: bool,
    /// Its bodies are streams.
    pub(super) streaming: Option<Box<Streaming>>,
}

impl OpenCall {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The body of the request comes later: its length, if that is known.
    pub(super) fn upload(&self) -> Option<Option<u64>> {
        self.streaming.as_ref()?.upload.as_ref().map(|upload| upload.length)
    }

    /// The request has a body, here or later.
    pub(super) fn has_body(&self) -> bool {
        !self.request.body().is_empty() || self.upload().is_some()
    }

    /// It ends without a response.
    pub(super) fn fail(self, error: Error) -> Done {
        let error = error.at(self.to);
        let has_gone = self.upload().is_some();
        let error = if has_gone { error } else { error.with_request(self.request) };
        Done { id: self.id, result: Err(error) }
    }

    /// It ends, and what became of it is unknown.
    pub(super) fn unknown(self, why: impl Into<ErrorDetail>) -> Done {
        Done { id: self.id, result: Err(Error::unknown(self.request, why).at(self.to)) }
    }

    /// The time it has from being handed over.
    pub(super) fn timeout(&self) -> Duration {
        self.deadline - self.accepted
    }

    /// Its time is over, and it is not one whose pieces are timed instead.
    fn is_late(&self, now: Time) -> bool {
        self.deadline <= now && (self.streaming.is_none() || self.sent.is_none())
    }

    pub(super) fn new(id: u64, request: Request<Bytes>, nature: Nature, terms: Terms) -> OpenCall {
        let Terms { accepted, timeout, is_own, order } = terms;
        OpenCall {
            id,
            request,
            nature,
            accepted,
            deadline: accepted + timeout,
            is_own,
            order,
            sent: None,
            conn: None,
            to: None,
            attempts: 0,
            requests_before: 0,
            begun: false,
            streaming: None,
        }
    }
}

/// Calls by their numbers. The low half of a number is a place, and the high half tells apart the calls that had it.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    places: Vec<Option<OpenCall>>,
    len: usize,
}

fn place(id: u64) -> usize {
    id as u32 as usize
}

impl CallTable {
    pub(super) fn insert(&mut self, call: OpenCall) {
        let place = place(call.id);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.len += usize::from(self.places[place].is_none());
        self.places[place] = Some(call);
    }

    pub(super) fn get(&self, id: u64) -> Option<&OpenCall> {
        self.places.get(place(id))?.as_ref().filter(|call| call.id == id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OpenCall> {
        self.places.get_mut(place(id))?.as_mut().filter(|call| call.id == id)
    }

    /// Takes a call out: it has ended, or its caller has abandoned it.
    pub(super) fn take(&mut self, id: u64) -> Option<OpenCall> {
        let entry = self.places.get_mut(place(id))?;
        if entry.as_ref().is_none_or(|call| call.id != id) {
            return None;
        }
        self.len -= 1;
        entry.take()
    }

    /// Of those in flight whose response has not begun and which left before `before`: their numbers and connections.
    pub(super) fn waiting_since(&self, before: Time) -> Vec<(u64, Conn)> {
        let late = |call: &&OpenCall| {
            let is_timed = !call.is_own && call.streaming.is_none();
            !call.begun && is_timed && call.sent.is_some_and(|sent| sent <= before)
        };
        let late = self.places.iter().flatten().filter(late);
        late.filter_map(|call| Some((call.id, call.conn?))).collect()
    }

    /// Those whose time is over, and the next time at which the time of one that has its own is over.
    pub(super) fn late(&self, now: Time) -> (Vec<u64>, Time) {
        let (mut late, mut next) = (Vec::new(), Time::NEVER);
        for call in self.places.iter().flatten() {
            if call.is_late(now) {
                late.push(call.id);
            } else if call.is_own {
                next = next.min(call.deadline);
            }
        }
        (late, next)
    }

    /// Takes out those that left and that the server may have acted on.
    pub(super) fn take_unknown(&mut self) -> Vec<OpenCall> {
        let may_have_acted = |call: &mut OpenCall| call.sent.is_some() && !call.nature.idempotent;
        let taken: Vec<OpenCall> =
            self.places.iter_mut().filter_map(|place| place.take_if(may_have_acted)).collect();
        self.len -= taken.len();
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Ends the calls that the rules for lost connections end.
pub(super) struct Unanswered<'a> {
    pub(super) calls: &'a mut CallTable,
    pub(super) done: &'a mut Vec<Done>,
    /// The error of the transport behind it.
    pub(super) net: Option<NetError>,
}

impl Settle for Unanswered<'_> {
    fn settled(&mut self, run: &Run, how: Settled, detail: &str) {
        for id in run.first..run.end() {
            let Some(call) = self.calls.take(id) else { continue };
            let detail = ErrorDetail::by_net(detail, self.net);
            self.done.push(match how {
                Settled::Failed(failure) => call.fail(Error::failed(failure, detail)),
                Settled::Reset(_) if run.idempotent => call.fail(Error::failed(Failure::Reset, detail)),
                Settled::TimedOut if run.idempotent => call.fail(Error::timeout(Phase::Response)),
                Settled::Reset(_) | Settled::TimedOut | Settled::Unknown => call.unknown(detail),
            });
        }
    }
}
