//! A stream begins: its request has its handler.

use std::sync::Arc;
use std::task::{Context, Poll};

use ::h2::RecvStream;
use ::h2::ext::Protocol;
use ::h2::server::SendResponse;
use bytes::Bytes;
use linerate_http::server::{Fault, Method};

use crate::answer::Asked;
use crate::connection::Connection;
use crate::engine::Engine;
use crate::engine::handle::too_many;
use crate::engine::respond::said;
use crate::http2::{Doing, Fed, Session, Stream, Upload};
use crate::message::body::{RequestBody, Shared};
use crate::message::upgrade::{self, Offer};
use crate::tasks::Polled;
use crate::{Handler, Request, Response};

impl<H: Handler> Engine<H> {
    /// Begins with a request.
    pub(super) fn stream(
        &mut self,
        c: &mut Connection,
        session: &mut Session,
        request: http::Request<RecvStream>,
        respond: SendResponse<Bytes>,
    ) {
        c.requests = c.requests.saturating_add(1);
        c.progressed = true;
        self.counts.request();
        self.counts.http2_request();
        if self.close_after.is_some_and(|n| c.requests >= n) {
            session.say_goodbye(self.now);
        }
        let (parts, recv) = request.into_parts();
        let doing = Doing::Handling(respond);
        let websocket = parts.extensions.get::<Protocol>().is_some_and(|p| p.as_str() == "websocket");
        let heads = &mut self.http2.heads;
        let head = match heads.translate(&parts, websocket) {
            Ok(head) => head,
            Err(fault) => {
                let asked = Asked::by_none(c.peer, heads.first_line(), self.now);
                let stream = Stream { asked, task: None, upload: None, doing };
                return self.respond(c, session, stream, Response::explained(fault.status(), &said(fault)));
            }
        };
        let asked = self.asked(c, &head);
        let mut stream = Stream { asked, task: None, upload: None, doing };
        if head.method() == Method::Connect {
            return self.respond(c, session, stream, Response::no_tunnel());
        }
        let offer = (websocket && upgrade::is_offered(&head)).then(|| Offer::new(&self.goodbye));
        let body = match &offer {
            Some(offer) => {
                stream.upload = Some(upload(recv, &offer.incoming, u64::MAX, self.now));
                RequestBody::default()
            }
            None => match self.stream_body(&mut stream, &parts, recv, session) {
                Ok(body) => body,
                Err(fault) => {
                    let refusal = Response::explained(fault.status(), &said(fault));
                    return self.respond(c, session, stream, refusal);
                }
            },
        };
        if let Err(wait) = self.may_ask(stream.asked.peer) {
            drop(body); // Nobody reads it.
            return self.respond(c, session, stream, too_many(wait));
        }
        let request = Request::new(head, body, stream.asked.peer)
            .by(self.place(c))
            .over_tls(c.tls.clone())
            .offering(offer);
        match self.call(request, &stream.asked) {
            (_, Polled::Ready(response)) => self.respond(c, session, stream, response),
            (_, Polled::Panicked) => {
                let response = self.panicked_stream();
                self.respond(c, session, stream, response);
            }
            (task, Polled::Pending) => {
                self.tasks.park(task, c.conn);
                if let Some(upload) = &stream.upload {
                    upload.shared.set_source(self.tasks.waker(task));
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
        parts: &http::request::Parts,
        mut recv: RecvStream,
        session: &Session,
    ) -> Result<RequestBody, Fault> {
        if recv.is_end_stream() {
            return Ok(RequestBody::default());
        }
        let announced = parts.headers.get(http::header::CONTENT_LENGTH);
        let announced: Option<u64> = announced.and_then(|n| n.to_str().ok()?.parse().ok());
        let most = self.limits.request.body;
        let too_large = announced.is_some_and(|n| n > most);
        let mut first = None;
        if !too_large
            && let Poll::Ready(Some(Ok(piece))) = recv.poll_data(&mut Context::from_waker(&session.waker))
        {
            if recv.is_end_stream() && piece.len() as u64 <= most {
                // It fails only for a stream that is gone.
                let _ = recv.flow_control().release_capacity(piece.len());
                return Ok(RequestBody::whole(piece));
            }
            first = Some(piece);
        }
        let shared = Arc::new(Shared::default());
        let mut upload = upload(recv, &shared, most, self.now);
        upload.announced = announced;
        let expects = parts.headers.get(http::header::EXPECT);
        upload.expects_continue = expects.is_some_and(|e| e.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        if too_large || first.is_some_and(|piece| upload.take(piece) == Fed::TooLarge) {
            stream.upload = upload.refused();
            return Err(Fault::BodyTooLarge);
        }
        stream.upload = Some(upload);
        Ok(RequestBody::stream(&shared, announced))
    }
}

fn upload(recv: RecvStream, shared: &Arc<Shared>, most: u64, now: linerate_net::Time) -> Upload {
    Upload {
        recv,
        shared: Arc::clone(shared),
        announced: None,
        expects_continue: false,
        most,
        received: 0,
        discarded: 0,
        unwanted: false,
        began: now,
        data_ended: false,
    }
}
