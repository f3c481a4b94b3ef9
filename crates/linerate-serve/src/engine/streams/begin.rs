//! A stream begins: its request has its handler.

use bytes::Bytes;
use linerate_http::h2::server::Incoming;
use linerate_http::server::{Method, RequestFault, RequestHead};

use crate::answer::Asked;
use crate::connection::ServedConnection;
use crate::engine::Engine;
use crate::engine::respond::said;
use crate::http2::{Doing, Early, Session, Stream, Upload};
use crate::limits::BODY_WHOLE;
use crate::message::body::{RequestBody, SharedUpload};
use crate::message::upgrade::{self, Offer};
use crate::tasks::Polled;
use crate::{Handler, Request, Response, RouteLimits};

impl<H: Handler> Engine<H> {
    /// Begins with a request. `rest`: the bytes received behind its head.
    pub(super) fn stream(
        &mut self,
        c: &mut ServedConnection,
        session: &mut Session,
        request: Incoming,
        mut early: Early,
        rest: &mut &[u8],
    ) {
        c.requests = c.requests.saturating_add(1);
        c.progressed = true;
        self.counts.request();
        self.counts.stream_request(session.server.is_http3());
        if self.close_after.is_some_and(|n| c.requests >= n) {
            session.say_goodbye(self.now);
        }
        let (id, doing) = (request.stream, Doing::Handling);
        let head = match request.head {
            Ok(head) => head,
            Err(fault) => {
                let asked = Asked::by_none(c.peer, self.http2.heads.first_line(), self.now);
                let stream = Stream { id, asked, task: None, upload: None, doing, write_time: None };
                return self.respond(c, session, stream, Response::explained(fault.status(), &said(fault)));
            }
        };
        let asked = self.asked(c, &head);
        let place = self.place(c);
        let limits = self.handler.limits(&head, place.as_deref());
        let mut stream = Stream { id, asked, task: None, upload: None, doing, write_time: limits.write_time };
        if head.method() == Method::Connect {
            early.drop_into(&mut session.server);
            return self.respond(c, session, stream, Response::no_tunnel());
        }
        let offer = (request.websocket && upgrade::is_offered(&head)).then(|| Offer::new(&self.drain.signal));
        let body = match &offer {
            Some(offer) => {
                early.push(&[], request.ends);
                stream.upload = Some(Upload::new(&offer.incoming, early, u64::MAX, self.now));
                RequestBody::default()
            }
            None if request.ends => RequestBody::default(),
            None => match self.stream_body(&mut stream, (&head, limits), session, early, rest) {
                Ok(body) => body,
                Err(fault) => {
                    let refusal = Response::explained(fault.status(), &said(fault));
                    return self.respond(c, session, stream, refusal);
                }
            },
        };
        if let Some(refusal) = self.refusal(c, stream.asked.peer) {
            drop(body); // Nobody reads it.
            return self.respond(c, session, stream, refusal);
        }
        let request =
            Request::new(head, body, stream.asked.peer).by(place).over_tls(c.tls.clone()).offering(offer);
        match self.call(request, &stream.asked) {
            (_, Polled::Ready(response)) => self.respond(c, session, stream, response),
            (_, Polled::Panicked) => {
                let response = self.panicked_stream();
                self.respond(c, session, stream, response);
            }
            (task, Polled::Pending) => {
                self.tasks.park(task, c.conn);
                if let Some(upload) = &stream.upload {
                    upload.progress.shared.set_source(self.tasks.waker(task));
                }
                stream.task = Some(task);
                session.streams.push(stream);
            }
        }
    }

    /// The body of a request: complete if all of it has arrived, otherwise a stream.
    fn stream_body(
        &mut self,
        stream: &mut Stream,
        (head, limits): (&RequestHead, RouteLimits),
        session: &mut Session,
        early: Early,
        rest: &mut &[u8],
    ) -> Result<RequestBody, RequestFault> {
        let announced = head.field_text("content-length").and_then(|n| n.parse().ok());
        let most = limits.body.unwrap_or(self.limits.request.body);
        let too_large = announced.is_some_and(|n: u64| n > most);
        let nothing = early.waiting.is_empty() && early.end.is_none();
        if !too_large
            && nothing
            && let Some(body) = session.server.whole_body(stream.id, most.min(BODY_WHOLE.into()), rest)
        {
            return Ok(RequestBody::whole(Bytes::copy_from_slice(body)));
        }
        let shared = SharedUpload::counted(&self.unread);
        let mut upload = Upload::new(&shared, early, most, self.now);
        upload.progress.time = limits.body_time;
        let expects = head.field("expect");
        upload.progress.expects_continue = expects.is_some_and(|e| e.eq_ignore_ascii_case(b"100-continue"));
        if too_large {
            stream.upload = upload.refused(&mut session.server);
            return Err(RequestFault::BodyTooLarge);
        }
        stream.upload = Some(upload);
        Ok(RequestBody::stream(&shared, announced))
    }
}
