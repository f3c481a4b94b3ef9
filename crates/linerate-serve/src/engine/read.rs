//! Turns received bytes into requests and bodies.

use bytes::Bytes;
use linerate_http::server::{BodyReader, Framing, RequestFault, RequestHead, RequestLimits};
use linerate_net::Close;

use super::Engine;
use super::respond::said;
use crate::answer::Asked;
use crate::clients::{Preface, preface};
use crate::connection::{Incoming, NextBytes, ServedConnection};
use crate::http2::FIRST_LINE;
use crate::message::body::{BodyError, RequestBody, SharedUpload};
use crate::upload::UploadProgress;
use crate::{Handler, RouteLimits};

/// Whether the bytes begin a TLS handshake record of version 3.x (RFC 8446 section 5.1).
fn is_client_hello(bytes: &[u8]) -> bool {
    bytes.starts_with(&[22, 3])
}

/// Whether RFC 9110 section 9 has this method.
fn is_method(name: &[u8]) -> bool {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    known.iter().any(|method| method.as_bytes().eq_ignore_ascii_case(name))
}

impl<H: Handler> Engine<H> {
    /// Takes received bytes, and keeps those that cannot be used yet.
    pub(crate) fn input(&mut self, c: &mut ServedConnection, bytes: &[u8]) {
        self.counts.received(bytes.len());
        if !c.reads() {
            return;
        }
        if c.has_input() || c.next == NextBytes::Preface {
            if c.is_http2() {
                return self.receive_frames(c, bytes);
            }
            self.work(c).input.extend_from_slice(bytes);
            self.advance(c);
            return;
        }
        let (used, seen) = self.consume(c, bytes, 0);
        if used < bytes.len() && c.reads() {
            let work = self.work(c);
            work.input.extend_from_slice(&bytes[used..]);
            work.seen = seen;
        }
    }

    /// Continues with bytes that were kept.
    pub(crate) fn advance(&mut self, c: &mut ServedConnection) {
        if c.next == NextBytes::Preface && !self.take_preface(c) {
            return;
        }
        let Some(work) = &mut c.work else { return };
        let (mut input, seen) = (std::mem::take(&mut work.input), work.seen);
        let (used, seen) = self.consume(c, &input, seen);
        if c.reads() {
            input.drain(..used);
        } else {
            input.clear();
        }
        if let Some(work) = &mut c.work {
            work.input = input;
            work.seen = seen;
        }
    }

    /// Reads the PROXY preface; returns whether it is complete.
    fn take_preface(&mut self, c: &mut ServedConnection) -> bool {
        let Some(work) = &mut c.work else { return false };
        match preface(&work.input) {
            Preface::Partial => work.seen = work.input.len(),
            Preface::Wrong => {
                let asked = Asked::by_none(c.peer, &work.input, self.now);
                c.next = NextBytes::Request;
                work.input.clear();
                self.refuse_with(c, asked, 400, "the PROXY protocol's preface is missing or malformed");
            }
            Preface::Whole(len, client) => {
                work.input.drain(..len);
                work.seen = 0;
                c.next = NextBytes::Request;
                c.peer = client.unwrap_or(c.peer);
                if client.is_none() || self.admit(c) {
                    return true;
                }
                self.counts.refused();
                c.closing = Some(Close::Abort);
                self.work(c).input.clear();
            }
        }
        false
    }

    /// Reads requests and bodies until the bytes run out or the connection must wait. Returns how
    /// many bytes were consumed, and how many of the rest were examined.
    fn consume(&mut self, c: &mut ServedConnection, bytes: &[u8], mut seen: usize) -> (usize, usize) {
        let mut at = 0;
        while at < bytes.len() && c.reads() && !c.is_blocked(self.out.len(), &self.allowance) {
            if c.is_reading_body() {
                at += self.body_bytes(c, &bytes[at..]);
                continue;
            }
            match self.reader.read(&bytes[at..], seen) {
                Ok(Some((head, taken))) => {
                    seen = 0;
                    at += taken;
                    at += self.request(c, head, &bytes[at..]);
                }
                Ok(None) => return (at, bytes.len() - at),
                Err(_) if is_client_hello(&bytes[at..]) => self.refuse_tls(c),
                Err(_) if self.is_http2(c, &bytes[at..]) => {
                    self.begin_http2(c);
                    self.receive_frames(c, &bytes[at..]);
                    return (bytes.len(), 0);
                }
                Err(RequestFault::Version) if self.is_no_http(c, &bytes[at..]) => {
                    self.log_line(&Asked::by_none(c.peer, &bytes[at..], self.now), 400, 0);
                    c.closing = Some(Close::Lingering);
                }
                Err(fault) => self.refuse(c, Asked::by_none(c.peer, &bytes[at..], self.now), fault),
            }
        }
        (at, 0)
    }

    /// Whether the connection begins as one of HTTP/2 does, by prior knowledge (RFC 9113 section 3.3).
    fn is_http2(&self, c: &ServedConnection, bytes: &[u8]) -> bool {
        self.speaks_http2 && c.requests == 0 && bytes.starts_with(FIRST_LINE)
    }

    /// Whether a connection begins with three words that resemble no protocol: neither the method nor
    /// the target nor the version is one of HTTP/1.1. It may be a wrong preface of HTTP/2, whose
    /// client could not read a response of HTTP/1.1 (RFC 9113 section 3.4).
    fn is_no_http(&self, c: &ServedConnection, bytes: &[u8]) -> bool {
        let line = bytes.split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default();
        let mut words = line.split(|b| *b == b' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        self.speaks_http2
            && c.requests == 0
            && words.next().is_none()
            && !method.is_some_and(is_method)
            && !target.is_some_and(|target| target.contains(&b'/'))
            && version.is_some_and(|version| !version.starts_with(b"HTTP"))
    }

    /// The client speaks TLS, but this address does not.
    fn refuse_tls(&mut self, c: &mut ServedConnection) {
        if let Some(misdirected) = &self.misdirected {
            misdirected.came(self.place(c).as_deref().cloned());
        }
        let asked = Asked::by_none(c.peer, b"TLS to a plain HTTP port", self.now);
        self.refuse_with(
            c,
            asked,
            400,
            "this port speaks plain HTTP, not TLS; use http:// instead of https://",
        );
    }

    /// A body that is incomplete, or chunked.
    pub(super) fn incoming(
        &mut self,
        c: &mut ServedConnection,
        (framing, head): (Framing, &RequestHead),
        rest: &[u8],
        limits: RouteLimits,
    ) -> Result<(RequestBody, usize), RequestFault> {
        let most = limits.body.unwrap_or(self.limits.request.body);
        let reader = BodyReader::new(framing, &RequestLimits { body: most, ..self.limits.request })?;
        let shared = SharedUpload::counted(&self.unread);
        let announced = if let Framing::Length(n) = framing { Some(n) } else { None };
        let mut progress = UploadProgress::new(&shared, self.now);
        progress.expects_continue = head.expects_continue() && rest.is_empty();
        progress.time = limits.body_time;
        self.work(c).body = Some(Incoming { reader: Some(reader), announced, progress });
        let mut used = 0;
        while used < rest.len() && c.is_reading_body() && !shared.is_full() {
            used += self.feed(c, &rest[used..])?;
        }
        Ok((RequestBody::stream(&shared, announced), used))
    }

    /// Handles bytes of a body that is arriving.
    fn body_bytes(&mut self, c: &mut ServedConnection, bytes: &[u8]) -> usize {
        match self.feed(c, bytes) {
            Ok(used) => used,
            Err(fault) => {
                self.refuse_body(c, fault.status(), &said(fault));
                bytes.len()
            }
        }
    }

    fn feed(&mut self, c: &mut ServedConnection, bytes: &[u8]) -> Result<usize, RequestFault> {
        let Some(work) = &mut c.work else { return Ok(0) };
        let Some(Incoming { reader, progress: body, .. }) = &mut work.body else { return Ok(0) };
        let Some(reader) = reader else {
            body.received += bytes.len() as u64;
            body.shared.push(Bytes::copy_from_slice(bytes));
            return Ok(bytes.len());
        };
        let step = match reader.step(bytes) {
            Ok(step) => step,
            Err(fault) => {
                body.shared.end(Err(BodyError::Fault(fault)), Vec::new());
                return Err(fault);
            }
        };
        body.expects_continue = false;
        body.received += step.consumed as u64;
        if body.shared.is_abandoned() {
            if body.discard(step.data.len()) {
                work.body = None;
                c.closing.get_or_insert(Close::Lingering);
                return Ok(step.consumed);
            }
        } else {
            body.shared.push(Bytes::copy_from_slice(&bytes[step.data]));
        }
        if step.ended {
            let trailers = reader.trailers().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
            body.shared.end(Ok(()), trailers);
            work.body = None;
            c.progressed = true;
        }
        Ok(step.consumed)
    }
}
