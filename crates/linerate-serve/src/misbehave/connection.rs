//! One connection of the misbehaving server, with blocking reads and writes.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use linerate_http::server::{
    AnswerFraming, AnswerHead, BodyReader, Framing, HeadReader, HttpDate, Method, Persistence, RequestHead,
    RequestLimits, Version, write_chunk, write_interim, write_last_chunk,
};
use linerate_net::machine;

use super::SharedMisbehaviour;
use super::channel::Channel;
use crate::content::routes::Routes;
use crate::message::body::RequestBody;
use crate::message::response::ResponseBody;
use crate::timers::{self, Timers};
use crate::{Request, Response};

/// How long a read waits before it checks whether the server stops.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a connection may stay silent.
const SILENCE: Duration = Duration::from_secs(75);

pub(super) fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &SharedMisbehaviour,
    routes: &Routes,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(!shared.how.nagle_split)?;
    stream.set_read_timeout(Some(shared.how.idle_close.unwrap_or(PATIENCE).min(PATIENCE)))?;
    let channel = Channel::new(stream, shared.session(peer));
    shared.workers.with(|| requests(channel, peer, shared, routes))
}

fn requests(
    channel: Channel,
    peer: SocketAddr,
    shared: &SharedMisbehaviour,
    routes: &Routes,
) -> io::Result<()> {
    let mut reader = HeadReader::new(RequestLimits::default());
    let mut connection = MisbehavingConnection { channel, shared, input: Vec::new() };
    let mut requests = 0;
    loop {
        let head = match connection.head(&mut reader)? {
            Some(Ok(head)) => head,
            Some(Err(fault)) => {
                let answer = Response::explained(fault.status(), &fault.to_string());
                return connection.refuse(answer);
            }
            None => return Ok(()),
        };
        requests += 1;
        shared.count(crate::stats::counts::ThreadCounts::request);
        let body = match connection.body(&head)? {
            Ok(body) => body,
            Err(fault) => return connection.refuse(Response::explained(fault.status(), &fault.to_string())),
        };
        let worn_out = shared.how.close_after.is_some_and(|n| requests >= n);
        let keep = head.keep_alive() && !worn_out && !shared.how.no_keep_alive && !shared.stopping();
        let request = Request::new(Rc::clone(&head), RequestBody::whole(body), peer);
        let response = shared.lanes.with(|| {
            if let Some(think) = shared.how.think {
                shared.pause(think.time(shared.chance()));
            }
            wait_for(routes.answer(request))
        });
        shared.count(|c| c.answered(response.code()));
        connection.answer(&head, response, keep)?;
        if !keep {
            return connection.channel.end();
        }
    }
}

struct MisbehavingConnection<'a> {
    channel: Channel,
    shared: &'a SharedMisbehaviour,
    input: Vec<u8>,
}

impl MisbehavingConnection<'_> {
    /// Reads more bytes; `false` at the end.
    fn more(&mut self) -> io::Result<bool> {
        let since = Instant::now();
        // Only between requests, not within one.
        let silence = self.shared.how.idle_close.filter(|_| self.input.is_empty()).unwrap_or(SILENCE);
        loop {
            let before = self.input.len();
            match self.channel.read(&mut self.input) {
                Ok(may_come) => {
                    let n = self.input.len() - before;
                    self.shared.count(|c| c.received(n));
                    if n > 0 || !may_come {
                        return Ok(n > 0);
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if self.shared.stopping() || since.elapsed() >= silence {
                        return Ok(false);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn head(
        &mut self,
        reader: &mut HeadReader,
    ) -> io::Result<Option<Result<Rc<RequestHead>, linerate_http::server::RequestFault>>> {
        let mut seen = 0;
        loop {
            match reader.read(&self.input, seen) {
                Ok(Some((head, taken))) => {
                    self.input.drain(..taken);
                    return Ok(Some(Ok(head)));
                }
                Ok(None) => seen = self.input.len(),
                Err(fault) => return Ok(Some(Err(fault))),
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads the whole body, slowly if that is configured.
    fn body(&mut self, head: &RequestHead) -> io::Result<Result<Bytes, linerate_http::server::RequestFault>> {
        if head.framing() == Framing::None {
            return Ok(Ok(Bytes::new()));
        }
        let mut reader = match BodyReader::new(head.framing(), &RequestLimits::default()) {
            Ok(reader) => reader,
            Err(fault) => return Ok(Err(fault)),
        };
        if head.expects_continue() && self.input.is_empty() && !self.shared.how.no_100_continue {
            let mut interim = Vec::new();
            write_interim(&mut interim, 100);
            self.channel.write_all(&interim)?;
        }
        let mut body = Vec::new();
        loop {
            let step = match reader.step(&self.input) {
                Ok(step) => step,
                Err(fault) => return Ok(Err(fault)),
            };
            body.extend_from_slice(&self.input[step.data]);
            self.input.drain(..step.consumed);
            if step.ended {
                return Ok(Ok(Bytes::from(body)));
            }
            if !self.input.is_empty() {
                continue;
            }
            let before = self.input.len();
            if !self.more()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(rate) = self.shared.how.slow_read {
                let read = (self.input.len() - before) as u64;
                self.shared.pause(Duration::from_micros(read * 1_000_000 / rate));
            }
        }
    }

    fn refuse(&mut self, response: Response) -> io::Result<()> {
        self.shared.count(|c| c.answered(response.code()));
        self.answer(&RequestHead::default(), response, false)?;
        self.channel.end()?;
        // Reads a little more, so that unread bytes do not cause a reset that destroys the
        // response.
        let _ = self.more();
        Ok(())
    }

    fn answer(&mut self, head: &RequestHead, response: Response, keep: bool) -> io::Result<()> {
        let bodiless = head.method() == Method::Head || matches!(response.status, 204 | 304);
        let body = gather(response.body);
        let chunk = self.shared.how.tiny_chunks.filter(|_| head.version() == Version::Http11 && !bodiless);
        let framing = match chunk {
            _ if matches!(response.status, 204 | 304) => AnswerFraming::Absent,
            Some(_) => AnswerFraming::Chunked,
            None => AnswerFraming::Length(body.len() as u64),
        };
        let persistence = match (keep, head.version()) {
            (false, _) => Persistence::Close,
            (true, Version::Http10) => Persistence::KeepAlive,
            (true, Version::Http11 | Version::Http2 | Version::Http3) => Persistence::Implied,
        };
        let mut out = Vec::new();
        AnswerHead {
            status: response.status,
            persistence,
            framing,
            content_type: response.content_type,
            fields: &response.fields,
        }
        .write(&mut out, &now());
        let body = if bodiless { Bytes::new() } else { body };
        match chunk {
            Some(size) => {
                self.write(&out)?;
                for piece in body.chunks(size) {
                    out.clear();
                    write_chunk(&mut out, piece);
                    self.write(&out)?;
                }
                out.clear();
                write_last_chunk(&mut out, &linerate_http::server::CheckedFields::new());
                self.write(&out)
            }
            None if self.shared.how.nagle_split || self.shared.how.late_body.is_some() => {
                self.write(&out)?;
                self.shared.pause(self.shared.how.late_body.unwrap_or_default());
                self.halves(&body)
            }
            None => {
                out.extend_from_slice(&body);
                self.halves(&out)
            }
        }
    }

    /// Writes, with a pause in the middle if that is configured.
    fn halves(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(time) = self.shared.how.stall else { return self.write(bytes) };
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.write(first)?;
        self.shared.pause(time);
        self.write(second)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.shared.count(|c| c.sent(bytes.len()));
        self.channel.write_all(bytes)
    }
}

fn now() -> HttpDate {
    HttpDate::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// Collects a body. It lives in memory, so a longer one is truncated at the limit.
fn gather(body: ResponseBody) -> Bytes {
    const LARGEST: usize = 64 << 20;
    match body {
        ResponseBody::Whole(bytes) => bytes,
        ResponseBody::File(file) => Bytes::from(file.read(LARGEST)),
        ResponseBody::Stream(mut stream) => {
            let mut all = Vec::new();
            while all.len() < LARGEST {
                let next = wait_for(std::future::poll_fn(|context| stream.poll_next(context)));
                let Some(Ok(bytes)) = next else { break };
                all.extend_from_slice(&bytes);
            }
            Bytes::from(all)
        }
    }
}

/// Runs a future to its end on this thread; its sleeps block the thread.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Nothing;
    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    let timers: Rc<RefCell<Timers>> = Rc::default();
    timers::enter(&timers);
    let waker = Waker::from(Arc::new(Nothing));
    let mut future = pin!(future);
    loop {
        timers.borrow_mut().advance(machine::monotonic_now());
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let next = timers.borrow().next();
        let wait = next.map_or(PATIENCE, |at| at - machine::monotonic_now());
        std::thread::sleep(wait);
    }
}
