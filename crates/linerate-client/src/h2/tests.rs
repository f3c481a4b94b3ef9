//! HTTP/2's conversation with a server that is a list of frames.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use linerate_http::client::{Expect, HeadView};
use linerate_http::h2::{Code, FRAME_HEAD, FrameHead, kind};
use linerate_net::Lent;

use super::*;
use crate::Stamp;
use crate::conversation::{Alike, Whole, Whose};

const NOW: Time = Time::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Requests whose body has this many bytes.
struct Bodies(usize);

impl Requests for Bodies {
    fn write_h1(&mut self, _: &Run, _: bool, _: &mut impl Out) -> Result<u64, NetError> {
        Ok(0)
    }

    fn fixed_block(&self, _: u16) -> Option<&[u8]> {
        (self.0 == 0).then_some(b"\x82\x84\x86")
    }

    fn write_h2(&mut self, _: &Run, block: &mut Vec<u8>, mut body: impl FnMut(BodyPart<'_>)) {
        block.extend_from_slice(b"\x83\x84\x86");
        body(BodyPart::Copied(&vec![b'x'; self.0 / 2]));
        let shared: Arc<[u8]> = vec![b'y'; self.0 - self.0 / 2].into();
        body(BodyPart::Shared(&shared, None, 0..shared.len()));
    }
}

/// The bytes that left, send by send.
#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl Out for Sent {
    fn send(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.0.push(bytes.to_vec());
        Ok(())
    }

    fn send_shared(
        &mut self,
        bytes: &Arc<[u8]>,
        _: Option<Lent>,
        range: Range<usize>,
    ) -> Result<(), NetError> {
        self.send(&bytes[range])
    }
}

impl Sent {
    /// The frames that left, without the preface.
    fn frames(&self) -> Vec<(FrameHead, Vec<u8>)> {
        let bytes = self.0.concat();
        let mut rest = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(&bytes);
        let mut frames = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD>() {
            let head = FrameHead::read(head);
            let (payload, behind) = behind.split_at(head.len as usize);
            frames.push((head, payload.to_vec()));
            rest = behind;
        }
        frames
    }

    fn of_kind(&self, kind: u8) -> Vec<(FrameHead, Vec<u8>)> {
        self.frames().into_iter().filter(|(head, _)| head.kind == kind).collect()
    }
}

#[derive(Debug, Default)]
struct Heard {
    alike: Vec<Range<u64>>,
    answered: Vec<u64>,
    body: Vec<u8>,
    parts: bool,
    unsolicited: Vec<(String, u64)>,
}

impl Responses for Heard {
    type Reading = Vec<u8>;

    fn wants_parts(&self) -> bool {
        self.parts
    }

    fn received(&mut self, _: usize) {}

    fn head(&mut self, reading: &mut Vec<u8>, _: u16, _: &HeadView<'_>) -> Whose {
        reading.clear();
        Whose::Matched
    }

    fn body(&mut self, reading: &mut Vec<u8>, _: u16, piece: &[u8]) {
        reading.extend_from_slice(piece);
    }

    fn answered(&mut self, run: &Run, _: u16, reading: &mut Vec<u8>, _: &Whole) {
        self.answered.push(run.first);
        self.body.append(reading);
    }

    fn alike(&mut self, run: &Run, _: &Alike<'_>) {
        self.alike.push(run.first..run.end());
    }

    fn unsolicited(&mut self, _: Time, bytes: &[u8], responses: u64) {
        self.unsolicited.push((String::from_utf8_lossy(bytes).into_owned(), responses));
    }
}

fn run(first: u64, count: u32) -> Run {
    let stamp = Stamp { sent: NOW, due: NOW, in_vain: 0, refused: 0, measured: true };
    Run { stamp, first, count, kind: 0, expect: Expect::Usual, idempotent: false }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.bytes(), payload].concat()
}

/// A response with a body.
fn response(stream: u32, body: &[u8]) -> Vec<u8> {
    [frame(kind::HEADERS, 4, stream, b"\x88"), frame(kind::DATA, 1, stream, body)].concat()
}

struct Bench {
    h2: H2<Vec<u8>>,
    shared: H2Shared,
    heard: Heard,
    requests: Bodies,
}

impl Bench {
    fn new(body: usize) -> Bench {
        let mut shared = H2Shared::default();
        let mut h2: H2<Vec<u8>> = H2::new(&shared);
        h2.agreed(None, &mut shared).unwrap();
        Bench { h2, shared, heard: Heard::default(), requests: Bodies(body) }
    }

    fn begin(&mut self, run: Run) -> Sent {
        let mut sent = Sent::default();
        self.h2.begin(run, false, &mut self.requests, &mut sent).unwrap();
        sent
    }

    fn read(&mut self, frames: &[Vec<u8>]) -> Result<(), Loss> {
        let now = NOW + SECOND;
        self.h2.handle_bytes(now, &frames.concat(), &mut self.shared, &mut self.heard)
    }

    fn pending(&mut self) -> Sent {
        let mut sent = Sent::default();
        self.h2.send_pending(&mut self.requests, &mut sent).unwrap();
        sent
    }

    fn given_back(&mut self) -> Vec<(u64, Fate, u8)> {
        let mut back = Vec::new();
        self.h2.given_back(|run, fate| back.push((run.first, fate, run.stamp.refused)));
        back
    }
}

fn settings() -> [Vec<u8>; 2] {
    [frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 50]), frame(kind::SETTINGS, 1, 0, b"")]
}

#[test]
fn requests_leave_at_once_and_equal_responses_are_told_at_once() {
    let mut bench = Bench::new(0);
    let sent = bench.begin(run(0, 10));
    assert_eq!(sent.0.len(), 1, "the preface and all requests in one send");
    assert_eq!(sent.of_kind(kind::HEADERS).len(), 10);
    let responses = (0..10).map(|n| response(1 + 2 * n, b"hello")).collect::<Vec<_>>();
    bench.read(&[&settings()[..], &responses].concat()).unwrap();
    assert_eq!((bench.h2.in_flight(), bench.h2.answers()), (0, 10));
    assert_eq!(bench.heard.alike, vec![0..10]);
    assert_eq!(bench.h2.room(), 50);
    assert_eq!(H2::<Vec<u8>>::facts(&bench.shared).max_concurrent_streams, Some(50));
}

#[test]
fn the_length_of_a_response_like_the_last_one_is_known_if_the_server_said_it() {
    let usual = |bench: &Bench| H2::<Vec<u8>>::usual_response(&bench.shared);
    let mut bench = Bench::new(0);
    bench.begin(run(0, 2));
    bench.read(&[&settings()[..], &[response(1, b"hello")]].concat()).unwrap();
    assert_eq!(usual(&bench), None);
    let with_length = [
        // Content-Length: 5, not indexed.
        frame(kind::HEADERS, 4, 3, b"\x88\x0f\x0d\x015"),
        frame(kind::DATA, 1, 3, b"hello"),
    ];
    bench.read(&with_length).unwrap();
    assert_eq!(usual(&bench), Some(with_length.concat().len()));
}

#[test]
fn responses_in_pieces_are_read_side_by_side() {
    let mut bench = Bench::new(0);
    bench.heard.parts = true;
    bench.begin(run(0, 3));
    bench.read(&settings()).unwrap();
    bench.read(&[frame(kind::HEADERS, 4, 1, b"\x88"), frame(kind::HEADERS, 4, 3, b"\x88")]).unwrap();
    bench.read(&[frame(kind::DATA, 0, 3, b"de"), frame(kind::DATA, 0, 1, b"ab")]).unwrap();
    assert!(bench.h2.in_response());
    bench.read(&[frame(kind::DATA, 1, 3, b"f"), frame(kind::DATA, 1, 1, b"c")]).unwrap();
    assert_eq!((&bench.heard.answered[..], &bench.heard.body[..]), (&[1, 0][..], &b"defabc"[..]));
    assert!(!bench.h2.in_response());
    assert_eq!(bench.h2.in_flight(), 1);
}

#[test]
fn bodies_leave_as_the_windows_admit() {
    let mut bench = Bench::new(100_000);
    let sent = bench.begin(run(0, 2));
    let bytes = |sent: &Sent| sent.of_kind(kind::DATA).iter().map(|(head, _)| head.len).sum::<u32>();
    assert_eq!(bytes(&sent), 65_535, "the connection's window");
    assert_eq!(bench.h2.room(), 0, "no further body could leave");
    assert_eq!(bench.h2.room_for(false), 98, "requests without a body could");
    let window = |stream, n: u32| frame(kind::WINDOW_UPDATE, 0, stream, &n.to_be_bytes());
    bench.read(&[&settings()[..], &[window(0, 1 << 20)]].concat()).unwrap();
    assert_eq!(bytes(&bench.pending()), 65_535, "each stream's own window");
    assert_eq!(bench.h2.room(), 48);
    bench.read(&[window(1, 50_000), window(3, 50_000)]).unwrap();
    let last = bench.pending();
    assert_eq!(bytes(&last), 2 * 100_000 - 2 * 65_535);
    assert_eq!(last.of_kind(kind::DATA).iter().filter(|(head, _)| head.flags == 1).count(), 2);
    bench.read(&[response(3, b""), response(1, b"")]).unwrap();
    assert_eq!(bench.h2.in_flight(), 0);
}

#[test]
fn a_small_body_leaves_with_its_head() {
    let mut bench = Bench::new(1);
    let sent = bench.begin(run(0, 1));
    assert_eq!(
        sent.of_kind(kind::DATA),
        [(FrameHead { len: 1, kind: 0, flags: 1, stream: 1 }, b"y".to_vec())]
    );
}

/// RFC 9113, section 8.1: the rest of a body is not needed once the response is whole.
#[test]
fn a_response_that_comes_early_ends_the_body() {
    let mut bench = Bench::new(100_000);
    bench.begin(run(0, 1));
    bench
        .read(&[&settings()[..], &[response(1, b"no"), frame(kind::RST_STREAM, 0, 1, &[0; 4])]].concat())
        .unwrap();
    assert_eq!((bench.h2.answers(), bench.given_back().len()), (1, 0));
    let sent = bench.pending();
    assert_eq!((sent.of_kind(kind::RST_STREAM).len(), sent.of_kind(kind::DATA).len()), (1, 0));
}

#[test]
fn what_the_server_refuses_goes_back() {
    let mut bench = Bench::new(0);
    bench.begin(run(0, 6));
    let reset = |stream, code: Code| frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
    let frames = [
        reset(1, Code::REFUSED_STREAM),
        reset(3, Code::INTERNAL_ERROR),
        response(5, b""),
        frame(kind::HEADERS, 4, 7, b"\x88"),
        reset(7, Code::CANCEL),
    ];
    bench.read(&[&settings()[..], &frames].concat()).unwrap();
    let expected = [
        (0, Fate::Refused, 1),
        (1, Fate::Reset { code: Code::INTERNAL_ERROR.into(), begun: false }, 0),
        (3, Fate::Reset { code: Code::CANCEL.into(), begun: true }, 0),
    ];
    assert_eq!(bench.given_back(), expected);
    // Stream 9 is processed, stream 11 is not; one response came since it left.
    let away = frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0]);
    bench.read(&[away]).unwrap();
    assert_eq!(bench.given_back(), [(5, Fate::Refused, 1)]);
    assert_eq!((bench.h2.room(), bench.h2.in_flight()), (0, 1));
    assert!(matches!(bench.read(&[response(9, b"")]), Err(Loss::SaidClose)));
    let facts = H2::<Vec<u8>>::facts(&bench.shared);
    assert_eq!((facts.refused, facts.go_aways, facts.resets.len()), (2, 1, 2));
}

#[test]
fn refusals_are_counted_while_nothing_is_answered() {
    let mut bench = Bench::new(0);
    let mut refused = run(0, 1);
    for times in 1..=4 {
        bench.begin(refused);
        let stream = 2 * u32::from(times) - 1;
        let reset = frame(kind::RST_STREAM, 0, stream, &Code::REFUSED_STREAM.0.to_be_bytes());
        bench.read(&[&settings()[..], &[reset]].concat()).unwrap();
        bench.h2.given_back(|run, _| refused = run);
        assert_eq!(refused.stamp.refused, times);
    }
}

#[test]
fn a_late_stream_is_cancelled_unless_the_connection_is_dead() {
    let mut bench = Bench::new(0);
    bench.begin(run(0, 3));
    assert_eq!(bench.h2.oldest().map(|run| run.first), Some(0));
    assert!(bench.h2.cancel_oldest().is_none(), "nothing came since it left");
    bench.read(&settings()).unwrap();
    assert_eq!(bench.h2.cancel_oldest().map(|run| run.first), Some(0));
    assert_eq!(bench.pending().of_kind(kind::RST_STREAM).len(), 1);
    let late = bench.read(&[response(1, b"late"), response(3, b"")]);
    assert!(late.is_ok());
    assert_eq!((bench.h2.answers(), bench.h2.in_flight()), (1, 1));
}

#[test]
fn a_lost_connection_gives_each_request_back() {
    let mut bench = Bench::new(0);
    bench.begin(run(0, 4));
    let away = frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 2]);
    bench.read(&[&settings()[..], &[frame(kind::HEADERS, 4, 3, b"\x88"), away]].concat()).unwrap();
    assert!(matches!(bench.h2.handle_end(NOW, &mut bench.heard), Loss::Cut(_)));
    assert_eq!(bench.given_back(), [(3, Fate::Refused, 1)]);
    let mut fates = Vec::new();
    bench.h2.abandon(|run, fate| fates.push((run.first, fate)));
    assert_eq!(fates, [(0, Fate::Unknown), (1, Fate::Begun), (2, Fate::Unknown)]);
}

/// RFC 9113, section 5.1: nothing but RST_STREAM, WINDOW_UPDATE and PRIORITY follows the end of a response.
#[test]
fn responses_that_no_request_asked_for_are_told() {
    let mut bench = Bench::new(0);
    bench.begin(run(0, 2));
    let more =
        [response(1, b"hello"), response(1, b"again"), response(3, b"x"), frame(kind::DATA, 1, 3, b"y")];
    bench.read(&[&settings()[..], &more].concat()).unwrap();
    assert_eq!(bench.h2.answers(), 2);
    let expected = [("HTTP/2 200\r\n\r\n".to_owned(), 1), ("y".to_owned(), 1)];
    assert_eq!(bench.heard.unsolicited, expected);
}

/// RFC 9113, section 5.4.1: a connection error concerns all requests; the stream of the broken frame is the suspect.
#[test]
fn the_fault_that_breaks_a_connection_is_traced_to_its_stream() {
    for (faulty, at_fault) in [
        (frame(kind::HEADERS, 4, 3, b"\xbe"), Some(1)),
        (frame(kind::DATA, 8, 5, b"\x09x"), None),
        (frame(kind::SETTINGS, 0, 0, b"short"), None),
    ] {
        let mut bench = Bench::new(0);
        bench.begin(run(0, 4));
        bench.read(&settings()).unwrap();
        let Err(loss) = bench.read(&[frame(kind::HEADERS, 4, 1, b"\x88"), faulty]) else {
            panic!("the connection is broken")
        };
        assert!(matches!(bench.h2.why(loss), Loss::Broken { by_peer: false, .. }));
        let mut fates = Vec::new();
        bench.h2.abandon(|run, fate| fates.push((run.first, fate)));
        let fate = |n| match n {
            0 => Fate::Begun,
            n if at_fault == Some(n) => Fate::AtFault { begun: false },
            _ => Fate::Unknown,
        };
        assert_eq!(fates, (0..4).map(|n| (n, fate(n))).collect::<Vec<_>>());
    }
}

/// RFC 9113, section 6.8: the code of a GOAWAY says whether the connection ends by an error.
#[test]
fn an_error_that_the_server_names_is_the_reason_of_the_close() {
    for (code, is_error) in [(0, false), (2, true), (11, true)] {
        let mut bench = Bench::new(0);
        bench.begin(run(0, 2));
        let away = frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, code]);
        bench.read(&[&settings()[..], &[away]].concat()).unwrap();
        let loss = bench.h2.handle_end(NOW, &mut bench.heard);
        let loss = bench.h2.why(loss);
        assert_eq!(matches!(loss, Loss::Broken { by_peer: true, .. }), is_error, "{loss:?}");
        assert!(!is_error || loss.words().contains("GOAWAY"), "{}", loss.words());
    }
}

/// RFC 9113, section 5.2: what waits for a window can be named, and a body whose request is given up waits no longer.
#[test]
fn bodies_that_wait_for_a_window_are_named() {
    let mut bench = Bench::new(100_000);
    bench.begin(run(0, 2));
    bench.read(&settings()).unwrap();
    let waits = bench.h2.unsent();
    assert_eq!(waits.iter().map(|unsent| unsent.bytes).sum::<u64>(), 200_000 - 65_535);
    assert!(waits.iter().all(|unsent| unsent.since == NOW));
    assert!(bench.h2.cancel_oldest().is_some() && bench.h2.cancel_oldest().is_some());
    assert_eq!((bench.h2.unsent(), bench.h2.held_back()), (vec![], 0));
    assert_eq!(bench.h2.room(), 50, "nothing waits before the next body");
}

/// RFC 9113, section 6.5.2: a server may admit no streams for a while.
#[test]
fn how_long_a_server_admits_no_streams_is_known() {
    let mut bench = Bench::new(0);
    let limit = |n| frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, n]);
    bench.read(&[limit(50), limit(0)]).unwrap();
    assert_eq!((bench.h2.room(), bench.h2.shut_since()), (0, Some(NOW + SECOND)));
    let later = NOW + 3 * SECOND;
    bench.h2.handle_bytes(later, &limit(70), &mut bench.shared, &mut bench.heard).unwrap();
    let facts = H2::<Vec<u8>>::facts(&bench.shared);
    assert_eq!((facts.max_concurrent_streams, facts.most_concurrent_streams), (Some(0), Some(70)));
    assert_eq!((facts.shut_ns, bench.h2.shut_since()), (2_000_000_000, None));
}

#[test]
fn what_is_not_http_2_is_named() {
    let mut bench = Bench::new(0);
    bench.begin(run(0, 1));
    let Err(Loss::Malformed(words)) = bench.read(&[b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()]) else {
        panic!("it is malformed")
    };
    assert!(words.contains("HTTP/1.1"), "{words}");
}
