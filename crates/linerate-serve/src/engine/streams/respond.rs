//! A handler's response becomes frames of its stream.

use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use linerate_http::h2::server::ResponseHead;

use crate::access_log;
use crate::connection::ServedConnection;
use crate::engine::Engine;
use crate::engine::respond::has_no_body;
use crate::http2::{Doing, Pumped, ResponseSource, Sending, Session, Stream};
use crate::limits::{FILES_OPEN, H2_PIECE, H2_TUNNEL_HEAD};
use crate::message::response::{self, ResponseBody};
use crate::message::stream::Streamed;
use crate::{Handler, Response};

impl<H: Handler> Engine<H> {
    /// Sends a response, as far as the client's windows allow.
    pub(super) fn respond(
        &mut self,
        c: &mut ServedConnection,
        session: &mut Session,
        mut stream: Stream,
        mut response: Response,
    ) {
        if let Some(tunnel) = response.tunnel.take() {
            response = tunnelled(response, tunnel.needs_head);
            if let Some(upload) = stream.upload.as_mut().filter(|_| response.status == 200) {
                upload.progress.shared = tunnel.take();
            }
        } else if stream.upload.as_ref().is_some_and(|upload| upload.most == u64::MAX) {
            // No handler has taken the connection.
            if let Some(upload) = stream.upload.take() {
                upload.drop_into(&mut session.server);
            }
        }
        self.counts.answered(response.status);
        if let Some(meter) = &mut self.meter {
            let (measured, began) = (&self.counts.measured, stream.asked.began);
            meter.answered(measured, response.route, response.status, began, self.now);
        }
        if response.close {
            session.say_goodbye(self.now);
        }
        if let Some(upload) = stream.upload.as_mut().map(|upload| &mut upload.progress)
            && upload.expects_continue
            && !upload.shared.is_abandoned()
        {
            // Something else than the handler reads it.
            upload.expects_continue = false;
            session.server.write_interim(stream.id, 100);
        }
        if !session.server.is_http3() {
            self.alternatives.tell(c.listener, &mut response);
        }
        let status = response.status;
        let (length, body) = body_of(&mut response, stream.asked.head_only);
        let head =
            ResponseHead { status, content_type: response.content_type, length, fields: &response.fields };
        let block = self.http2.blocks(session.server.is_http3()).of(&head, &self.date);
        session.server.respond(stream.id, block, body.is_none());
        response::keep_buffer(response.fields);
        session.frames.sent();
        c.progressed = true;
        let (source, pending) = body.unwrap_or((ResponseSource::Nothing, Bytes::new()));
        let done = pending.is_empty() && matches!(source, ResponseSource::Nothing);
        let mut sending = Sending::new(status, source, pending, self.now);
        let pumped = if done { Pumped::Done } else { self.begin_body(session, stream.id, &mut sending) };
        let polls = !matches!(sending.source, ResponseSource::Nothing);
        stream.doing = Doing::Sending(sending);
        match pumped {
            Pumped::Done | Pumped::Broken => self.response_over(session, stream),
            Pumped::Gone => self.end_stream(session, stream, access_log::LEFT),
            Pumped::Waits | Pumped::More => {
                if polls {
                    stream.task = Some(self.tasks.reserve(c.conn));
                }
                self.watch_upload(&stream);
                session.streams.push(stream);
            }
        }
        self.watch_elsewhere(c, session);
    }

    /// Most bodies are small and leave at once, unless as much waits for the transport.
    fn begin_body(&self, session: &mut Session, id: u32, sending: &mut Sending) -> Pumped {
        match &mut sending.source {
            ResponseSource::Nothing if session.server.out().len() < self.allowance.each() => {
                return sending.pump(id, &mut session.server, Waker::noop(), H2_PIECE, false);
            }
            ResponseSource::File(body) if session.open_files() >= FILES_OPEN => body.close(),
            _ => {}
        }
        Pumped::More
    }

    /// The reader of a body wakes the task of its stream, or the loop if there is none.
    fn watch_upload(&self, stream: &Stream) {
        let Some(upload) = &stream.upload else { return };
        let waker = match stream.task {
            Some(task) => self.tasks.waker(task),
            None => Some(self.tasks.room_made()),
        };
        upload.progress.shared.set_source(waker);
    }

    /// Lists the connection if a body is read after its response.
    fn watch_elsewhere(&mut self, c: &mut ServedConnection, session: &Session) {
        if !c.read_elsewhere && session.is_read_elsewhere() {
            c.read_elsewhere = true;
            self.read_elsewhere.push(c.conn);
        }
    }

    /// The response is complete. The request may not be.
    pub(super) fn response_over(&mut self, session: &mut Session, mut stream: Stream) {
        if let Some(task) = stream.task.take() {
            self.tasks.cancel(task);
        }
        let Doing::Sending(sending) = stream.doing else { return };
        self.log_line(&stream.asked, sending.status, sending.sent);
        stream.doing = Doing::Receiving;
        // The rest is read, up to a limit: some clients take an early reset for an error.
        match stream.upload.take() {
            Some(upload) if upload.most < u64::MAX => {
                upload.progress.shared.set_source(Some(self.tasks.room_made()));
                stream.upload = Some(upload);
                session.streams.push(stream);
            }
            upload => {
                if let Some(upload) = upload {
                    upload.drop_into(&mut session.server);
                }
                session.server.close(stream.id);
            }
        }
    }

    /// Responds to a request whose body is refused, in place of its handler.
    pub(super) fn refuse_stream(
        &mut self,
        c: &mut ServedConnection,
        session: &mut Session,
        mut stream: Stream,
        status: u16,
        text: &str,
    ) {
        if let Some(task) = stream.task.take() {
            self.tasks.cancel(task);
        }
        self.respond(c, session, stream, Response::explained(status, text));
    }
}

/// The length of a body, and where it comes from; `None`: the head is all.
fn body_of(response: &mut Response, head_only: bool) -> (Option<u64>, Option<(ResponseSource, Bytes)>) {
    let (length, body) = match std::mem::take(&mut response.body) {
        _ if has_no_body(response.status) => return (None, None),
        ResponseBody::Whole(body) if head_only && body.is_empty() => (response.announced.get(), None),
        ResponseBody::Whole(body) if body.is_empty() => (Some(0), None),
        ResponseBody::Whole(body) => (Some(body.len() as u64), Some((ResponseSource::Nothing, body))),
        ResponseBody::Stream(stream) => {
            let length = stream.length();
            (length, Some((ResponseSource::Stream(stream, length), Bytes::new())))
        }
        ResponseBody::File(body) if body.len() == 0 => (Some(0), None),
        ResponseBody::File(body) => (Some(body.len()), Some((ResponseSource::File(*body), Bytes::new()))),
    };
    (length, body.filter(|_| !head_only))
}

/// The response that takes a stream (RFC 8441 section 5): 200 in place of 101.
fn tunnelled(mut response: Response, needs_head: bool) -> Response {
    let ResponseBody::Stream(mut stream) = std::mem::take(&mut response.body) else {
        return Response::explained(500, "the handler has taken the stream and does not use it");
    };
    if !needs_head {
        match inner_head(&mut stream) {
            Some((101, fields, rest)) => {
                response.fields = fields;
                stream = Streamed::new(Behind { first: Some(rest), stream });
            }
            Some((status, ..)) => {
                return Response::explained(status, "the service does not take this WebSocket");
            }
            None => return Response::explained(502, "the service's response is not HTTP"),
        }
    }
    for name in ["connection", "upgrade", "sec-websocket-accept"] {
        response.fields.remove(name);
    }
    response.status = 200;
    response.body = ResponseBody::Stream(stream);
    response
}

/// The head that a service has written into its tunnel, and the bytes behind it.
fn inner_head(stream: &mut Streamed) -> Option<(u16, linerate_http::server::CheckedFields, Bytes)> {
    let mut context = Context::from_waker(Waker::noop());
    let mut bytes = BytesMut::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.poll_next(&mut context) {
            Poll::Ready(Some(Ok(piece))) if bytes.len() < H2_TUNNEL_HEAD => bytes.extend_from_slice(&piece),
            // It is written at once.
            _ => return None,
        }
    };
    let head = bytes.split_to(end).freeze();
    let status = std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()?;
    let mut fields = linerate_http::server::CheckedFields::new();
    for line in head.split(|b| *b == b'\n').skip(1) {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        if let Some((name, value)) = line.trim_end().split_once(':') {
            // Those of the connection are refused.
            let _ = fields.add(name, value.trim());
        }
    }
    Some((status, fields, bytes.freeze()))
}

/// A stream with bytes in front.
struct Behind {
    first: Option<Bytes>,
    stream: Streamed,
}

impl crate::BodyStream for Behind {
    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        let this = self.get_mut();
        match this.first.take().filter(|first| !first.is_empty()) {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => this.stream.poll_next(context),
        }
    }
}
