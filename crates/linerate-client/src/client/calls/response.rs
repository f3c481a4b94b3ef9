//! Responses: from bytes to `http::Response`, and to the call that each belongs to.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AGE, ALT_SVC, CONNECTION, CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use linerate_http::client::{AltServices, Fields, FramingDoubt, HeadView, alt_services};
use linerate_net::Time;

use super::streamed::News;
use super::table::{CallTable, Done, OpenCall, Unanswered};
use crate::client::connection::ConnectionInfo;
use crate::client::connection_limit::LimitWait;
use crate::client::error::{Error, FailedPart};
use crate::client::limits::{HEADS_KEPT, NAMES_KEPT, RESERVED_BODY, TRAILERS};
use crate::client::meter::Meter;
use crate::client::options::{CallOptions, RequestOptions};
use crate::client::timings::Timings;
use crate::conversation::{Alike, Responses, Settle, Settled, Turn, Whole, Whose};
use crate::{Failure, Resend, Run};

/// A response while it is read.
#[derive(Debug, Default)]
pub struct CallReading {
    /// The request that it should answer.
    id: u64,
    /// Its body goes to the owner as it comes.
    streaming: bool,
    /// It says that the request belongs on another connection, where it goes next.
    misdirected: bool,
    fields: HeaderMap,
    version: Version,
    persistent: bool,
    body: Vec<u8>,
    trailers: Option<Box<HeaderMap>>,
    /// The caller gets this instead.
    trouble: Option<Trouble>,
}

/// The trailers of a response (RFC 9110 section 6.5), among its extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailers(pub HeaderMap);

/// What makes a response useless to the caller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    TooLarge(FailedPart, usize),
    /// A field that the parser lets pass and `http` refuses.
    BadField,
    /// Where the body ends depends on who reads it.
    BadFraming(FramingDoubt),
}

impl Trouble {
    /// As the error of its call.
    pub(super) fn error(self) -> Error {
        match self {
            Trouble::TooLarge(part, limit) => Error::TooLarge { part, limit, address: None },
            Trouble::BadField => {
                malformed("a field of the response has a name or value that HTTP does not allow")
            }
            Trouble::BadFraming(doubt) => malformed(&doubt.to_string()),
        }
    }
}

fn malformed(words: &str) -> Error {
    Error::failed(Failure::Malformed, words)
}

/// A head that came before, and what became of it.
#[derive(Debug)]
struct KnownHead {
    raw: Vec<u8>,
    fields: HeaderMap,
    facts: HeadFacts,
}

/// What else a head says.
#[derive(Clone, Copy, Debug)]
struct HeadFacts {
    /// Bytes of the body, 0 if it does not say.
    length: usize,
    /// The connection stays open (RFC 9112 section 9.3).
    persistent: bool,
    /// Why the end of the body is in doubt.
    doubt: Option<FramingDoubt>,
    /// Seconds for which the server keeps the connection when it is idle.
    keep_alive: Option<u32>,
    /// It announces alternatives, or that there are none.
    announces: bool,
}

/// Misdirected Request (RFC 9110 section 15.5.20).
const MISDIRECTED: u16 = 421;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// What a response announces (RFC 7838 section 3), and how old it is (RFC 9111 section 5.1).
fn announced(fields: &HeaderMap) -> Option<(AltServices, Duration)> {
    let values: Vec<&[u8]> = fields.get_all(ALT_SVC).iter().map(HeaderValue::as_bytes).collect();
    let age = fields.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
    Some((alt_services(&values.join(&b','))?, Duration::from_secs(age)))
}

/// `timeout=5, max=100` (RFC 2068 section 19.7.1.1).
fn kept_for(value: &HeaderValue) -> Option<u32> {
    let mut parameters = value.to_str().ok()?.split(',').filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().parse().ok()
}

impl HeadFacts {
    fn of(head: &HeadView<'_>, fields: &HeaderMap) -> HeadFacts {
        let length = fields.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok()).unwrap_or(0);
        let is_close = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(b"close");
        let closes = |value: &HeaderValue| value.as_bytes().split(|b| *b == b',').any(is_close);
        HeadFacts {
            length,
            persistent: !fields.get_all(CONNECTION).iter().any(closes),
            doubt: head.framing_doubt(),
            keep_alive: fields.get(KEEP_ALIVE).and_then(kept_for),
            announces: fields.contains_key(ALT_SVC),
        }
    }
}

/// Turns heads into fields. Servers send few different heads, so it keeps the last ones.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    known: Vec<KnownHead>,
    oldest: usize,
    /// Names that `http` has no constant for.
    names: Vec<HeaderName>,
}

impl HeadReader {
    /// The fields of a head, and what else it says.
    fn read(&mut self, head: &HeadView<'_>) -> Option<(HeaderMap, HeadFacts)> {
        let raw = head.raw();
        if let Some(known) = self.known.iter().find(|known| known.raw == raw) {
            return Some((known.fields.clone(), known.facts));
        }
        let fields = self.parse(head)?;
        let facts = HeadFacts::of(head, &fields);
        self.keep(raw, &fields, facts);
        Some((fields, facts))
    }

    /// The values share one copy of the head.
    fn parse(&mut self, head: &HeadView<'_>) -> Option<HeaderMap> {
        let raw = head.raw();
        let (shared, start) = (Bytes::copy_from_slice(raw), raw.as_ptr() as usize);
        let mut fields = HeaderMap::with_capacity(head.fields().count());
        for (name, value) in head.fields() {
            let name = self.name(name)?;
            let at = value.as_ptr() as usize - start;
            let value = HeaderValue::from_maybe_shared(shared.slice(at..at + value.len())).ok()?;
            fields.try_append(name, value).ok()?;
        }
        Some(fields)
    }

    fn name(&mut self, name: &[u8]) -> Option<HeaderName> {
        if let Some(known) = self.names.iter().find(|k| k.as_str().as_bytes().eq_ignore_ascii_case(name)) {
            return Some(known.clone());
        }
        let name = HeaderName::from_bytes(name).ok()?;
        if self.names.len() < NAMES_KEPT {
            self.names.push(name.clone());
        }
        Some(name)
    }

    fn keep(&mut self, raw: &[u8], fields: &HeaderMap, facts: HeadFacts) {
        if self.known.len() < HEADS_KEPT {
            self.known.push(KnownHead { raw: raw.to_vec(), fields: fields.clone(), facts });
            return;
        }
        let known = &mut self.known[self.oldest];
        self.oldest = (self.oldest + 1) % HEADS_KEPT;
        known.raw.clear();
        known.raw.extend_from_slice(raw);
        (known.fields, known.facts) = (fields.clone(), facts);
    }
}

/// Limits and names that responses are read by.
#[derive(Debug)]
pub(super) struct ReadingRules {
    pub(super) max_head: usize,
    pub(super) max_body: usize,
    pub(super) tag: Option<HeaderName>,
    /// Alternatives that responses announce are of interest.
    pub(super) follows: bool,
    /// Requests may be sent again.
    pub(super) resends: bool,
}

impl ReadingRules {
    pub(super) fn of(options: &CallOptions, follows: bool) -> ReadingRules {
        ReadingRules {
            max_head: options.max_head,
            max_body: options.max_body,
            tag: options.tag.clone(),
            follows,
            resends: options.resend != Resend::Never,
        }
    }
}

/// Reads responses for the calls they belong to, and hears how the other calls ended.
pub(super) struct Reader<'a> {
    pub(super) rules: &'a ReadingRules,
    /// The connection's version of HTTP; by HTTP/1.1 each head says its own.
    pub(super) version: Version,
    /// The connection leads to an alternative.
    pub(super) is_alternative: bool,
    pub(super) heads: &'a mut HeadReader,
    pub(super) calls: &'a mut CallTable,
    pub(super) done: &'a mut Vec<Done>,
    pub(super) news: &'a mut Vec<News>,
    pub(super) meter: &'a Meter,
    pub(super) now: Time,
    pub(super) seen: SeenByReader,
    /// What calls are told of the connection, and since when its next response is the next; `None`: they are told
    /// nothing.
    pub(super) times: Option<(PipeTimes, Time)>,
    /// What they are told of it besides; `None`: nothing.
    pub(super) connection: Option<ConnectionInfo>,
    /// The last lookup of the server's name: how long it took, and when it ended.
    pub(super) lookup: Option<(Duration, Time)>,
    pub(super) limit_wait: LimitWait,
}

/// What calls are told of their connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PipeTimes {
    /// In the order in which the client established them.
    pub(super) number: u64,
    pub(super) connect: Duration,
    pub(super) tls: Duration,
    /// Segments that were sent again, as of the last response.
    pub(super) retransmits: u32,
    /// A response came on it.
    pub(super) is_reused: bool,
}

/// A response of which more must follow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartialResponse {
    /// The number of its call.
    pub(super) id: u64,
    /// Bytes held of its body.
    pub(super) held: usize,
    /// The reason that makes it useless: its connection need not be read to the end.
    pub(super) trouble: Option<Trouble>,
}

/// What a read showed.
#[derive(Debug, Default)]
pub(super) struct SeenByReader {
    /// An HTTP/1.1 response came after which the connection stays open.
    pub(super) persistent: bool,
    /// Seconds for which the server keeps an idle connection, if it says so.
    pub(super) keep_alive: Option<u32>,
    /// The response being read, where all have one stream.
    pub(super) partial: PartialResponse,
    /// Of responses on streams: those that are useless.
    pub(super) useless: Vec<(u64, Trouble)>,
    /// Alternatives that were announced, and how old that is.
    pub(super) announced: Option<(AltServices, Duration)>,
    /// Calls that an alternative did not answer for (421).
    pub(super) misdirected: Vec<u64>,
    /// Calls whose owner should take some of the response first.
    pub(super) full: Vec<u64>,
    /// A tag named no request in flight: nothing of the connection can be trusted any more.
    pub(super) mismatch: bool,
    /// The end of a response is in doubt: nothing behind it can be trusted.
    pub(super) in_doubt: bool,
    /// Requests whose responses cannot be trusted.
    pub(super) robbed: Vec<u64>,
    pub(super) out_of_order: u64,
    /// Responses that nobody waited for.
    pub(super) discarded: u64,
    pub(super) answered: u64,
    pub(super) unsolicited: u64,
    /// The time from sending to the response, of the last one.
    pub(super) took_ns: Option<u64>,
}

impl Reader<'_> {
    /// Whether each response has a stream of its own.
    fn streams(&self) -> bool {
        self.version > Version::HTTP_11
    }

    /// Where the time of a call went whose response is whole.
    fn timings(&mut self, id: u64, first_byte: Option<Time>) -> Option<Timings> {
        let streams = self.streams();
        let (pipe, next_since) = self.times.as_mut()?;
        let next = std::mem::replace(next_since, self.now);
        let (call, is_reused) = (self.calls.get(id)?, std::mem::replace(&mut pipe.is_reused, true));
        let (sent, waited) = (call.sent?, RequestOptions::of(&call.request).waited);
        let first_byte = first_byte.unwrap_or(self.now);
        let next = if streams { sent } else { next.max(sent).min(first_byte) };
        let is_new = |time: Duration| (!is_reused && !time.is_zero()).then_some(time);
        Some(Timings {
            queue: sent - call.accepted,
            dns: self.lookup.filter(|(_, at)| !is_reused && *at >= call.accepted).map(|(took, _)| took),
            limited: waited + self.limit_wait.part_of(call.accepted + waited, sent),
            connect: is_new(pipe.connect),
            tls: is_new(pipe.tls),
            behind: next - sent,
            requests_before: call.requests_before,
            server: first_byte - next,
            receive: self.now - first_byte,
            total: self.now - call.accepted,
            attempts: call.attempts,
            retransmits: 0,
            connection: pipe.number,
            is_reused,
            address: call.to,
            version: self.version,
        })
    }

    fn tag_of(&self, head: &HeadView<'_>) -> Whose {
        let Some(tag) = &self.rules.tag else { return Whose::Matched };
        let value = head.get(tag.as_str().as_bytes());
        Whose::Named(value.and_then(|v| std::str::from_utf8(v).ok()?.trim().parse().ok()))
    }

    /// Assigns the response that begins to its call: the one whose turn it is, or another one of its connection by its
    /// tag. Says whether there is one.
    fn assign(&self, reading: &mut CallReading, whose: Whose) -> bool {
        let conn_of = |id| self.calls.get(id).and_then(|call| call.conn);
        match whose {
            Whose::Matched => true,
            Whose::Named(None) => false,
            Whose::Named(Some(id)) if id == reading.id => true,
            Whose::Named(Some(id)) => {
                let is_here = !self.streams() && conn_of(id).is_some() && conn_of(id) == conn_of(reading.id);
                if is_here {
                    reading.id = id;
                }
                is_here
            }
        }
    }

    /// Whether a request that the connection's end does not answer for goes another way: all of it must be here.
    fn may_go_elsewhere(&self, id: u64) -> bool {
        let is_whole = |call: &OpenCall| call.upload().is_none();
        self.is_alternative && self.rules.resends && self.calls.get(id).is_some_and(is_whole)
    }

    /// The owner gets the head at once.
    fn begin_streaming(&mut self, reading: &mut CallReading, status: u16) {
        let Ok(status) = StatusCode::from_u16(status) else {
            return reading.trouble = Some(Trouble::BadField);
        };
        let mut head = Response::new(());
        *head.status_mut() = status;
        *head.version_mut() = reading.version;
        *head.headers_mut() = std::mem::take(&mut reading.fields);
        if let Some(connection) = &self.connection {
            head.extensions_mut().insert(connection.clone());
        }
        self.news.push(News::Head(reading.id, head));
    }

    /// The owner gets a piece of a body at once, unless it is gone.
    fn is_handed_on(&mut self, id: u64, piece: &[u8]) -> bool {
        let streaming = self.calls.get_mut(id).and_then(|call| call.streaming.as_mut());
        let Some(streaming) = streaming else { return false };
        streaming.held += piece.len();
        streaming.touched = self.now;
        if streaming.is_full() && !self.seen.full.contains(&id) {
            self.seen.full.push(id);
        }
        self.news.push(News::Piece(id, Bytes::copy_from_slice(piece)));
        true
    }

    fn troubled(&mut self, id: u64, trouble: Trouble) {
        if self.streams() {
            self.seen.useless.push((id, trouble));
        } else {
            self.seen.partial = PartialResponse { id, held: 0, trouble: Some(trouble) };
        }
    }

    /// A tag named none in flight, so this one lost its place to a stranger.
    fn mismatched(&mut self, id: u64) {
        if std::mem::replace(&mut self.seen.mismatch, true) {
            return self.seen.robbed.push(id);
        }
        let tag = self.rules.tag.as_ref().map_or("", HeaderName::as_str);
        let words = format!("its {tag} names no request in flight on this connection, which was closed");
        self.end(id, Err(Error::Mismatch(words.into())));
    }

    fn end(&mut self, id: u64, result: Result<Response<Bytes>, Error>) {
        match self.calls.take(id) {
            Some(call) => {
                if result.is_ok() {
                    self.meter.answered(self.now - call.accepted);
                }
                self.done.push(match result {
                    Ok(_) => Done { id, result },
                    Err(error) => call.fail(error),
                });
            }
            None => self.seen.discarded += 1,
        }
    }
}

impl Responses for Reader<'_> {
    type Reading = CallReading;

    fn wants_parts(&self) -> bool {
        true
    }

    fn received(&mut self, _: usize) {}

    fn begins(&mut self, reading: &mut CallReading, run: &Run) {
        reading.id = run.first;
        if let Some(call) = self.calls.get_mut(run.first) {
            call.begun = true;
        }
    }

    fn head(&mut self, reading: &mut CallReading, _: u16, head: &HeadView<'_>) -> Whose {
        let (most, status) = (self.rules.max_head, head.status());
        *reading = CallReading { id: reading.id, ..CallReading::default() };
        reading.version = match head.version_minor() {
            _ if self.streams() => self.version,
            0 => Version::HTTP_10,
            _ => Version::HTTP_11,
        };
        let whose = self.tag_of(head);
        let is_known = self.assign(reading, whose);
        self.seen.partial = PartialResponse { id: reading.id, ..PartialResponse::default() };
        if head.raw().len() > most {
            reading.trouble = Some(Trouble::TooLarge(FailedPart::Head, most));
        } else if let Some((fields, facts)) = self.heads.read(head) {
            let HeadFacts { length, persistent, doubt, keep_alive, announces } = facts;
            reading.misdirected = status == MISDIRECTED && self.may_go_elsewhere(reading.id);
            // RFC 7838 section 6.
            if announces && self.rules.follows && status != MISDIRECTED {
                self.seen.announced = announced(&fields).or(self.seen.announced.take());
            }
            self.seen.keep_alive = keep_alive.or(self.seen.keep_alive);
            reading.fields = fields;
            reading.persistent = persistent && head.version_minor() > 0;
            reading.trouble = doubt.filter(|_| !self.streams()).map(Trouble::BadFraming);
            let is_streamed = |call: &OpenCall| is_known && call.streaming.is_some() && !reading.misdirected;
            reading.streaming = self.calls.get(reading.id).is_some_and(is_streamed);
            if reading.trouble.is_some() {
                reading.streaming = false;
            } else if reading.streaming {
                self.begin_streaming(reading, status);
            } else if length > 0 && length <= self.rules.max_body {
                reading.body.reserve_exact(length.min(RESERVED_BODY));
            }
        } else {
            reading.trouble = Some(Trouble::BadField);
        }
        if let Some(trouble) = reading.trouble {
            self.troubled(reading.id, trouble);
        }
        whose
    }

    fn body(&mut self, reading: &mut CallReading, _: u16, piece: &[u8]) {
        let is_useless = reading.trouble.is_some() || reading.misdirected;
        if is_useless || (reading.streaming && self.is_handed_on(reading.id, piece)) {
            return;
        }
        if reading.body.len() + piece.len() > self.rules.max_body {
            reading.body = Vec::new();
            reading.trouble = Some(Trouble::TooLarge(FailedPart::Body, self.rules.max_body));
            return self.troubled(reading.id, Trouble::TooLarge(FailedPart::Body, self.rules.max_body));
        }
        reading.body.extend_from_slice(piece);
        (self.seen.partial.id, self.seen.partial.held) = (reading.id, reading.body.len());
    }

    fn trailers(&mut self, reading: &mut CallReading, _: u16, fields: Fields<'_>) {
        let mut trailers = HeaderMap::new();
        for (name, value) in fields {
            match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                (Ok(name), Ok(value)) if trailers.len() < TRAILERS => trailers.append(name, value),
                _ => return reading.trouble = Some(Trouble::BadField),
            };
        }
        reading.trailers = (!trailers.is_empty()).then(|| Box::new(trailers));
    }

    fn looks_on(&self, reading: &CallReading, _: u16) -> bool {
        reading.trouble.is_none()
    }

    fn answered(&mut self, run: &Run, _: u16, reading: &mut CallReading, response: &Whole) {
        let CallReading { fields, version, persistent, body, trailers, trouble, misdirected, .. } =
            std::mem::take(reading);
        self.seen.partial = PartialResponse::default();
        self.seen.answered += 1;
        if self.seen.in_doubt {
            return self.seen.robbed.push(run.first);
        }
        self.seen.in_doubt = matches!(trouble, Some(Trouble::BadFraming(_)));
        match response.turn {
            Turn::Right => {}
            Turn::OutOfOrder => self.seen.out_of_order += 1,
            Turn::Unknown => return self.mismatched(run.first),
        }
        if misdirected {
            self.seen.discarded += 1;
            return self.seen.misdirected.push(run.first);
        }
        let whole_sent = |call: &OpenCall| call.sent.filter(|_| call.streaming.is_none());
        if let Some(sent) = self.calls.get(run.first).and_then(whole_sent) {
            self.seen.took_ns = Some(response.now.nanos_since(sent));
        }
        self.seen.persistent |= persistent;
        let status = StatusCode::from_u16(response.status).map_err(|_| Trouble::BadField);
        let result = match (trouble, status) {
            (Some(trouble), _) | (None, Err(trouble)) => Err(trouble.error()),
            (None, Ok(status)) => {
                let mut whole = Response::new(Bytes::from(body));
                *whole.status_mut() = status;
                *whole.version_mut() = version;
                *whole.headers_mut() = fields;
                if let Some(timings) = self.timings(run.first, response.first_byte) {
                    whole.extensions_mut().insert(timings);
                }
                if let Some(connection) = &mut self.connection {
                    whole.extensions_mut().insert(connection.clone());
                    connection.is_reused = true;
                }
                if let Some(trailers) = trailers {
                    whole.extensions_mut().insert(Trailers(*trailers));
                }
                Ok(whole)
            }
        };
        self.end(run.first, result);
    }

    fn head_too_long(&mut self, run: &Run, limit: usize) {
        self.end(run.first, Err(Error::TooLarge { part: FailedPart::Head, limit, address: None }));
    }

    /// Only where parts are not wanted.
    fn alike(&mut self, _: &Run, _: &Alike<'_>) {}

    fn unsolicited(&mut self, _: Time, _: &[u8], responses: u64) {
        self.seen.unsolicited += responses;
    }
}

impl Settle for Reader<'_> {
    fn settled(&mut self, run: &Run, how: Settled, detail: &str) {
        Unanswered { calls: self.calls, done: self.done, net: None }.settled(run, how, detail);
    }
}
