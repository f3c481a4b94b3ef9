//! A response as it comes, over HTTP/1.1 in bytes and over HTTP/2 part by part.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_http::client::{Expect, HeadCache, HeadView, ResponseLimits, ResponsePart, ResponseReader};
use linerate_http::h2::{self, Code};

use crate::call::{CallStage, Failure, KEPT_FIELDS, ProbeResponse, Why};
use crate::coding::{Coded, packed_share};
use crate::limits::PACKED_BYTES;
use crate::software::{LOOKS_LIKE, by_head};

/// A response as it comes.
pub(super) struct Answering {
    reader: ResponseReader,
    cache: HeadCache,
    expect: Expect,
    answer: ProbeResponse,
    /// An interim response has come.
    pub(super) interim: bool,
    pub(super) bytes: u64,
    /// Bytes of content so far.
    content: u64,
    /// The content, where its coding can be checked.
    coded: Option<Coded>,
    /// The beginning of the content, where it is to be compressed.
    sample: Option<Vec<u8>>,
    /// Bytes behind the end of the response.
    behind: usize,
    /// It began before the request was sent.
    pub(super) came_before: bool,
    /// Over HTTP/2: a part of it came in the last read.
    pub(super) touched: bool,
    end: Option<Result<ProbeResponse, Failure>>,
}

impl Answering {
    pub(super) fn new(expect: Expect) -> Answering {
        Answering {
            reader: ResponseReader::new(ResponseLimits::default()),
            cache: HeadCache::new(),
            expect,
            answer: ProbeResponse::default(),
            interim: false,
            bytes: 0,
            content: 0,
            coded: None,
            sample: None,
            behind: 0,
            came_before: false,
            touched: false,
            end: None,
        }
    }

    /// Whether `100 Continue` or a final response has come.
    pub(super) fn decided(&self) -> bool {
        self.interim || self.answer.status != 0 || self.end.is_some()
    }

    pub(super) fn take(&mut self, mut input: &[u8]) {
        if self.bytes == 0 && is_tls(input) {
            let words = "it speaks TLS there: write https:// instead of http://".to_owned();
            self.end = Some(Err(Failure { stage: CallStage::Receive, why: Why::Malformed, words }));
        }
        self.bytes += input.len() as u64;
        while self.end.is_none() {
            match self.reader.next(&mut self.cache, &mut input, self.expect) {
                Ok(None) => return,
                Ok(Some(ResponsePart::Interim(_))) => self.interim = true,
                Ok(Some(ResponsePart::Head(head))) => {
                    let answer = facts_of(&head);
                    self.begin(answer);
                }
                Ok(Some(ResponsePart::Body(piece))) => {
                    self.content += piece.len() as u64;
                    look_at(&mut self.answer, &mut self.coded, piece);
                    keep(&mut self.sample, piece);
                }
                Ok(Some(ResponsePart::Trailers(_))) => {}
                Ok(Some(ResponsePart::End(end))) => {
                    self.whole(end.reusable, end.body_bytes);
                }
                Err(error) => {
                    let words = error.to_string();
                    self.end = Some(Err(Failure { stage: CallStage::Receive, why: Why::Malformed, words }));
                }
            }
        }
        // Clients skip empty lines between responses.
        if input.iter().any(|b| !b"\r\n".contains(b)) {
            self.behind += input.len();
        }
    }

    /// The head of the final response.
    pub(super) fn head(&mut self, head: &HeadView<'_>) {
        self.begin(facts_of(head));
    }

    fn begin(&mut self, answer: ProbeResponse) {
        self.answer = answer;
        let coding = self.answer.field("content-encoding");
        self.coded = coding.and_then(|coding| Coded::of(self.answer.status, coding));
    }

    /// The next piece of its content.
    pub(super) fn body(&mut self, piece: &[u8]) {
        self.content += piece.len() as u64;
        look_at(&mut self.answer, &mut self.coded, piece);
        keep(&mut self.sample, piece);
    }

    /// Keep the beginning of the content, to see what compression would make of it.
    pub(super) fn samples(&mut self, wanted: bool) {
        self.sample = wanted.then(Vec::new);
    }

    /// The share that compression leaves of content that has no coding yet.
    pub(super) fn packs_to(&self) -> Option<f64> {
        let plain = self.answer.field("content-encoding").is_none();
        self.sample.as_deref().filter(|sample| plain && !sample.is_empty()).and_then(packed_share)
    }

    fn whole(&mut self, reusable: bool, body_bytes: u64) {
        self.answer.reusable = reusable;
        self.answer.body_bytes = body_bytes;
        self.end = Some(Ok(self.answer.clone()));
    }

    /// Its stream ended with it.
    pub(super) fn stream_ended(&mut self) {
        self.whole(true, self.content);
    }

    /// Its stream ended without it. `begun`: part of it came.
    pub(super) fn stream_lost(&mut self, how: h2::Lost, begun: bool) {
        let stage = if begun { CallStage::Receive } else { CallStage::Wait };
        let part = if begun { "in the middle of its answer" } else { "without an answer" };
        let (why, words) = match how {
            h2::Lost::Reset(code) if code == Code::HTTP_1_1_REQUIRED.into() => {
                (Why::Reset, "the server wants HTTP/1.1 for this request: add --http 1.1".to_owned())
            }
            h2::Lost::Reset(code) => {
                (Why::Reset, format!("the server reset the stream {part} (RST_STREAM, {code})"))
            }
            h2::Lost::Malformed(why) => (Why::Malformed, why.to_owned()),
            h2::Lost::HeadTooLong(limit) => {
                (Why::Malformed, format!("the head of the response exceeds {limit} bytes"))
            }
        };
        self.end.get_or_insert(Err(Failure { stage, why, words }));
    }

    /// The connection carries nothing more: in words.
    pub(super) fn broken(&mut self, words: &str) {
        let words = words.to_owned();
        self.end.get_or_insert(Err(Failure { stage: CallStage::Receive, why: Why::Malformed, words }));
    }

    /// The peer has closed before its stream ended.
    pub(super) fn stream_closed(&self, to: SocketAddr) -> Failure {
        let (stage, part) = match self.answer.status {
            0 => (CallStage::Wait, "without an answer"),
            _ => (CallStage::Receive, "in the middle of its answer"),
        };
        Failure { stage, why: Why::ClosedEarly, words: format!("{to} closed the connection {part}") }
    }

    pub(super) fn end(&self) -> Option<Result<ProbeResponse, Failure>> {
        self.end.clone()
    }

    /// The fault of a response that ended, in words that follow the server's name.
    pub(super) fn fault(&self) -> Option<String> {
        if self.came_before {
            return Some(
                "sends bytes behind the end of its answer: they came before we sent the next request, and clients take them for the answer \
                 to that"
                    .to_owned(),
            );
        }
        if self.behind > 0 {
            let length = self.answer.field("content-length");
            let said = match length {
                _ if self.content == 0 => "which has no body".to_owned(),
                Some(length) => format!("whose Content-Length is {length}"),
                None => "whose chunks ended".to_owned(),
            };
            let bytes = if self.behind == 1 { "byte" } else { "bytes" };
            return Some(format!(
                "sends {} {bytes} behind the end of its answer, {said}: clients that keep the connection take them for the next answer",
                self.behind
            ));
        }
        if self.answer.endless { None } else { self.coded.as_ref()?.fault() }
    }

    /// A stream of events that has begun: it ends when its reader leaves.
    pub(super) fn stream(&self) -> Option<ProbeResponse> {
        let kind = self.answer.field("content-type")?.to_ascii_lowercase();
        let streams = kind.starts_with("text/event-stream") || kind.starts_with("multipart/x-mixed-replace");
        let answer =
            ProbeResponse { endless: true, reusable: false, body_bytes: self.content, ..self.answer.clone() };
        streams.then_some(answer)
    }

    /// The missing part of a response that did not end, in words. `came`: from its first byte to its
    /// last, and from there to the end of our patience.
    pub(super) fn unfinished(
        &self,
        failure: Failure,
        to: SocketAddr,
        patience: Duration,
        came: (Duration, Duration),
    ) -> Failure {
        if failure.why != Why::TimedOut {
            return failure;
        }
        let words = match failure.stage {
            CallStage::Wait => format!(
                "{} within {:.0} s: it hangs, or it waits for an event (a long poll)",
                failure.words,
                patience.as_secs_f64()
            ),
            CallStage::Receive if self.answer.status != 0 => {
                let (receiving, silent) = came;
                if silent * 2 < receiving {
                    self.still_comes(to, receiving, patience)
                } else {
                    self.lacks(to)
                }
            }
            _ => failure.words,
        };
        Failure { words, ..failure }
    }

    /// A response that was still arriving when our patience ended.
    fn still_comes(&self, to: SocketAddr, receiving: Duration, patience: Duration) -> String {
        let (came, limit) = (self.content, patience.as_secs_f64());
        let each_second = came as f64 / receiving.as_secs_f64().max(1e-3);
        let length = self.answer.field("content-length").and_then(|l| l.trim().parse::<u64>().ok());
        let whole = length.map_or(String::new(), |length| {
            format!(" of {length}: the whole takes about {:.0} s", length as f64 / each_second.max(1.0))
        });
        format!(
            "{to} still sends its answer when we stop reading after {limit:.0} s, {:.0} kB/s: {came} bytes have come{whole}",
            each_second / 1e3
        )
    }

    /// The part that is missing of a response whose head came.
    fn lacks(&self, to: SocketAddr) -> String {
        let came = self.content;
        let chunked = self
            .answer
            .field("transfer-encoding")
            .is_some_and(|t| t.to_ascii_lowercase().contains("chunked"));
        let length = self.answer.field("content-length").and_then(|l| l.trim().parse::<u64>().ok());
        match length {
            _ if chunked => format!(
                "{to} begins its answer and does not end it: it sends chunks ({came} bytes of content), and the last one, which ends the \
                 body, never comes"
            ),
            Some(length) => format!(
                "{to} begins its answer and does not end it: it says Content-Length: {length} and sends {came} bytes; the other {} never \
                 come",
                length.saturating_sub(came)
            ),
            None => format!(
                "{to} begins its answer and does not end it: it says no length, so that its end is that of the connection, and it does \
                 not close that ({came} bytes came)"
            ),
        }
    }

    /// The peer has closed; `cut`: without the end that TLS has.
    pub(super) fn closed(&mut self, to: SocketAddr, cut: bool) -> Result<ProbeResponse, Failure> {
        match self.reader.finish() {
            Ok(Some(_)) if cut => {
                let words = format!(
                    "{to} closed the connection without TLS's close_notify in an answer that ends with its connection: whether that is whole \
                     cannot be told (RFC 9112 section 9.8)"
                );
                Err(Failure { stage: CallStage::Receive, why: Why::ClosedEarly, words })
            }
            Ok(Some(end)) => {
                self.answer.body_bytes = end.body_bytes;
                self.answer.reusable = false;
                Ok(self.answer.clone())
            }
            _ => {
                let stage = if self.bytes > 0 { CallStage::Receive } else { CallStage::Wait };
                let length = self.answer.field("content-length").filter(|_| self.answer.status != 0);
                let words = if let Some(length) = length {
                    format!(
                        "{to} closed the connection in the middle of its answer: {} of the {length} bytes that Content-Length promises",
                        self.content
                    )
                } else if self.bytes > 0 {
                    format!("{to} closed the connection in the middle of its answer")
                } else {
                    format!("{to} closed the connection without an answer")
                };
                Err(Failure { stage, why: Why::ClosedEarly, words })
            }
        }
    }
}

/// An alert or a handshake record (RFC 8446, section 5.1): what a TLS server answers to a request
/// in clear.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, 0..=4, ..])
}

/// Keeps the beginning of the content.
fn keep(sample: &mut Option<Vec<u8>>, piece: &[u8]) {
    if let Some(sample) = sample {
        let room = PACKED_BYTES.saturating_sub(sample.len()).min(piece.len());
        sample.extend_from_slice(&piece[..room]);
    }
}

/// Checks a piece of content, and keeps what it tells.
fn look_at(answer: &mut ProbeResponse, coded: &mut Option<Coded>, piece: &[u8]) {
    coded.iter_mut().for_each(|coded| coded.take(piece));
    look_at_page(answer, piece);
}

/// The beginning of an error page: many servers are known by theirs.
fn look_at_page(answer: &mut ProbeResponse, piece: &[u8]) {
    const ENOUGH: usize = 512;
    let known = answer.field("server").is_some() || answer.field(LOOKS_LIKE).is_some();
    if answer.status >= 400 && !known {
        let page = String::from_utf8_lossy(&piece[..piece.len().min(ENOUGH)]).into_owned();
        answer.fields.push((LOOKS_LIKE.to_owned(), page));
    }
}

fn facts_of(head: &HeadView<'_>) -> ProbeResponse {
    let kept = |name: &&str| {
        let value = head.get(name.as_bytes())?;
        Some(((*name).to_owned(), String::from_utf8_lossy(&value[..value.len().min(512)]).into_owned()))
    };
    let mut fields: Vec<(String, String)> = KEPT_FIELDS.iter().filter_map(kept).collect();
    // HTTP/2 field names are always in lower case, so their case does not identify the software.
    if !head.raw().starts_with(b"HTTP/2")
        && let Some(software) = by_head(head.fields())
    {
        fields.push((LOOKS_LIKE.to_owned(), software.to_owned()));
    }
    ProbeResponse { status: head.status(), fields, ..ProbeResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_is_told_from_one_that_stops() {
        let mut answer = Answering::new(Expect::Usual);
        answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n");
        answer.take(&[b'x'; 40_000]);
        let to = SocketAddr::from(([127, 0, 0, 1], 80));
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        let words = |came| {
            let failure = Failure { stage: CallStage::Receive, why: Why::TimedOut, words: String::new() };
            answer.unfinished(failure, to, s(4), came).words
        };
        assert_eq!(
            words((ms(3200), ms(800))),
            "127.0.0.1:80 still sends its answer when we stop reading after 4 s, 12 kB/s: 40000 bytes have come of 200000: the whole \
             takes about 16 s"
        );
        assert!(words((ms(100), ms(3900))).contains("the other 160000 never come"));
    }
}
