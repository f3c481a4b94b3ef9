//! What RFC 9112 (and RFC 9110 where it concerns messages) demands of a client that reads
//! responses: a test for each MUST, named by its section. Demands on requests are in
//! `client_template.rs`.

use linerate_http::client::fuzz::{ReadEvent, Transcript, read};
use linerate_http::client::{
    CompleteResponse, Expect, FaultySide, HeadCache, Pipeline, ResponseErrorKind as Kind, ResponseLimits,
    ResponsePart, ResponseReader, Run, TagMatch,
};

/// Reads a stream that then ends: whole, byte by byte, and with cached heads. The results must be
/// equal.
fn read_as(stream: &[u8], expects: &[Expect]) -> Transcript {
    let limits = ResponseLimits::default();
    let mut cache = HeadCache::new();
    let whole = read(&mut cache, [stream], limits, expects, false);
    assert_eq!(whole, read(&mut cache, [stream], limits, expects, true), "heads known");
    assert_eq!(whole, read(&mut HeadCache::new(), stream.chunks(1), limits, expects, false), "byte by byte");
    whole
}

fn usual(stream: impl AsRef<[u8]>) -> Transcript {
    read_as(stream.as_ref(), &[Expect::Usual])
}

/// Status and content of the responses in a stream that must have no fault.
fn answers(stream: impl AsRef<[u8]>) -> Vec<(u16, String)> {
    let transcript = usual(stream);
    assert_eq!(transcript.error, None);
    owned(&transcript)
}

fn owned(transcript: &Transcript) -> Vec<(u16, String)> {
    transcript.answers().map(|(status, body)| (status, String::from_utf8_lossy(body).into_owned())).collect()
}

fn one(status: u16, body: &str) -> Vec<(u16, String)> {
    vec![(status, body.to_owned())]
}

/// The fault that a stream ends with, before any response is complete.
fn fault(stream: impl AsRef<[u8]>) -> Kind {
    let transcript = usual(stream);
    assert_eq!(owned(&transcript), [], "an answer came out of it");
    transcript.error.expect("a fault").kind
}

fn ends(transcript: &Transcript) -> Vec<CompleteResponse> {
    let end = |event: &ReadEvent| match event {
        ReadEvent::End(end, _) => Some(*end),
        _ => None,
    };
    transcript.events.iter().filter_map(end).collect()
}

/// Whether the connection persists after the first response of the stream, read without the
/// stream's end.
fn persists(stream: &[u8]) -> bool {
    let (mut cache, mut input) = (HeadCache::new(), stream);
    let mut reader = ResponseReader::new(ResponseLimits::default());
    while let Some(part) = reader.next(&mut cache, &mut input, Expect::Usual).expect("no fault") {
        if let ResponsePart::End(end) = part {
            assert_eq!(end.reusable, reader.persists());
            return end.reusable;
        }
    }
    panic!("no end");
}

#[test]
fn rfc9112_2_2_messages_are_octets() {
    let transcript = usual(b"HTTP/1.1 200 \xe4\xff\r\nX: \xf0\x9f\x80\r\nContent-Length: 2\r\n\r\n\0\xff");
    let ReadEvent::Head(200, _, fields) = &transcript.events[0] else { panic!("no head") };
    assert_eq!(fields[0], (b"X".to_vec(), b"\xf0\x9f\x80".to_vec()));
    assert_eq!(transcript.answers().next(), Some((200, &b"\0\xff"[..])));
}

#[test]
fn rfc9112_2_2_a_single_lf_may_end_a_line() {
    assert_eq!(answers("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), one(200, "ok"));
    assert_eq!(answers("HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok"), one(200, "ok"));
}

#[test]
fn rfc9112_2_2_a_bare_cr_is_invalid() {
    assert_eq!(fault("HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n"), Kind::BadField);
    assert_eq!(fault("HTTP/1.1 200 OK\r\nX: a\r\r\n\r\n"), Kind::BadField);
    assert_eq!(fault("HTTP/1.1 200 O\rK\r\n\r\n"), Kind::BadStatusLine);
    assert_eq!(fault("HTTP/1.1 200 OK\rContent-Length: 0\r\n\r\n"), Kind::BadStatusLine);
    assert_eq!(fault("HTTP/1.1 200 OK\r\n\rX: a\r\n\r\n"), Kind::BadField);
}

#[test]
fn rfc9112_2_2_space_before_the_first_field_is_rejected() {
    assert_eq!(fault("HTTP/1.1 200 OK\r\n X: a\r\n\r\n"), Kind::SpaceBeforeFields);
    assert_eq!(
        fault("HTTP/1.1 200 OK\r\n\tContent-Length: 0\r\nX: a\r\n b\r\n\r\n"),
        Kind::SpaceBeforeFields
    );
}

#[test]
fn rfc9112_2_3_a_later_minor_version_is_read_as_1_1() {
    assert_eq!(answers("HTTP/1.7 200 OK\r\nContent-Length: 1\r\n\r\nx"), one(200, "x"));
    assert!(persists(b"HTTP/1.7 200 OK\r\nContent-Length: 1\r\n\r\nx"));
}

#[test]
fn rfc9112_2_3_another_major_version_is_not_read() {
    for version in
        ["HTTP/2.0", "HTTP/0.9", "HTTP/1", "HTTP/11.1", "HTTP/1.10", "HTTP/01.1", "HTTP/1,1", "HTTP/ 1.1"]
    {
        assert_eq!(fault(format!("{version} 200 OK\r\n\r\n")), Kind::BadVersion, "{version}");
    }
}

#[test]
fn rfc9112_2_3_the_version_is_case_sensitive() {
    assert!(matches!(fault("http/1.1 200 OK\r\n\r\n"), Kind::NotHttp(_)));
}

#[test]
fn rfc9112_4_the_reason_phrase_may_be_absent_and_means_nothing() {
    for line in ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 200  two  spaces", "HTTP/1.1 200 404 Not Found"] {
        assert_eq!(answers(format!("{line}\r\nContent-Length: 0\r\n\r\n")), one(200, ""), "{line}");
    }
}

#[test]
fn rfc9112_4_a_status_has_three_digits() {
    for status in ["2", "20", "2000", "-12", "2x0", "", "٣٠٠"] {
        let stream = format!("HTTP/1.1 {status} OK\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(fault(&stream), Kind::BadStatusLine, "{stream:?}");
    }
    assert_eq!(fault("HTTP/1.1\t200 OK\r\n\r\n"), Kind::BadStatusLine);
    assert_eq!(fault("HTTP/1.1200 OK\r\n\r\n"), Kind::BadVersion);
}

#[test]
fn rfc9112_4_parsing_on_word_boundaries_takes_several_spaces() {
    assert_eq!(answers("HTTP/1.1  401 No\r\nContent-Length: 0\r\n\r\n"), one(401, ""));
}

#[test]
fn rfc9112_5_field_names_are_tokens_followed_by_a_colon() {
    for line in ["Content-Length : 0", "X Y: 0", ": 0", "X", "X\u{e4}: 0", "(X): 0", "\x01: 0"] {
        assert_eq!(fault(format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n")), Kind::BadField, "{line:?}");
    }
}

#[test]
fn rfc9112_5_1_field_names_are_case_insensitive() {
    assert_eq!(answers("HTTP/1.1 200 OK\r\ncONTENT-lENGTH: 1\r\n\r\nx"), one(200, "x"));
    assert_eq!(
        answers("HTTP/1.1 200 OK\r\ntRANSFER-eNCODING: cHUNKED\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
        one(200, "x")
    );
}

#[test]
fn rfc9112_5_1_white_space_around_a_value_is_no_part_of_it() {
    let transcript =
        usual("HTTP/1.1 200 OK\r\nX:\t a b \t\r\nEmpty: \t \r\nNone:\r\nContent-Length:1\r\n\r\nx");
    let ReadEvent::Head(_, _, fields) = &transcript.events[0] else { panic!("no head") };
    let values: Vec<&[u8]> = fields.iter().map(|(_, value)| &value[..]).collect();
    assert_eq!(values, [&b"a b"[..], b"", b"", b"1"]);
}

#[test]
fn rfc9112_5_2_a_fold_is_replaced_by_spaces() {
    let transcript = usual("HTTP/1.1 200 OK\r\nX: a\r\n\t b\r\n c\r\nContent-Length:\r\n 2\r\n\r\nok");
    let ReadEvent::Head(200, raw, fields) = &transcript.events[0] else { panic!("no head") };
    assert_eq!(fields[0].1, b"a  \t b   c");
    assert_eq!(fields[1].1, b"2");
    assert!(!raw.windows(3).any(|w| matches!(w, [b'\r', b'\n', b' ' | b'\t'])));
    assert_eq!(owned(&transcript), one(200, "ok"));
}

#[test]
fn rfc9112_5_2_a_fold_within_framing_fields_counts() {
    let stream =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip,\r\n chunked\r\nConnection: x,\n close\r\n\r\n0\r\n\r\n";
    let transcript = usual(stream);
    assert_eq!(owned(&transcript), one(200, ""));
    assert!(!ends(&transcript)[0].reusable);
}

#[test]
fn rfc9112_6_1_chunked_is_read() {
    let stream =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n000\r\n\r\n";
    assert_eq!(answers(stream), one(200, "abc0123456789"));
    assert!(persists(stream.as_bytes()));
}

#[test]
fn rfc9112_6_1_transfer_encoding_in_http_1_0_ends_the_connection() {
    let stream =
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    assert_eq!(answers(stream), one(200, "x"));
    assert!(!persists(stream));
    let both =
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: x\r\nContent-Length: 1\r\n\r\nxyz";
    assert_eq!(answers(both), one(200, "xyz"));
}

#[test]
fn rfc9112_6_1_chunked_applied_twice_is_an_error() {
    for value in ["chunked, chunked", "chunked\r\nTransfer-Encoding: chunked", "chunked;a=b"] {
        let stream = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {value}\r\n\r\n0\r\n\r\n");
        assert_eq!(fault(stream), Kind::BadTransferEncoding, "{value}");
    }
}

#[test]
fn rfc9112_6_3_rule_1_head_has_no_body() {
    for fields in ["Content-Length: 10", "Transfer-Encoding: chunked", "X: y", "Content-Length: x"] {
        let stream =
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 7\r\n\r\n");
        let transcript = read_as(stream.as_bytes(), &[Expect::Head]);
        assert_eq!(transcript.error, None);
        assert_eq!(owned(&transcript), [(200, String::new()), (404, String::new())], "{fields}");
        assert!(ends(&transcript)[0].reusable);
    }
}

#[test]
fn rfc9112_6_3_rule_1_204_and_304_have_no_body() {
    for status in [204, 304] {
        for fields in ["Content-Length: 10", "Transfer-Encoding: chunked", "X: y"] {
            let stream = format!(
                "HTTP/1.1 {status} X\r\n{fields}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
            );
            assert_eq!(
                answers(stream),
                [(status, String::new()), (200, "x".to_owned())],
                "{status} {fields}"
            );
        }
    }
}

#[test]
fn rfc9112_6_3_rule_1_interim_answers_have_no_body() {
    let stream =
        "HTTP/1.1 103 Early\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(answers(stream), one(200, "x"));
}

#[test]
fn rfc9112_6_3_rule_2_connect_ignores_framing_fields_of_success() {
    for fields in ["Content-Length: 10", "Transfer-Encoding: chunked", "Content-Length: x"] {
        let stream = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\ntunnelled");
        let (mut cache, mut input) = (HeadCache::new(), stream.as_bytes());
        let mut reader = ResponseReader::new(ResponseLimits::default());
        let head = reader.next(&mut cache, &mut input, Expect::Connect).expect("no fault");
        assert!(matches!(head, Some(ResponsePart::Head(_))));
        let Ok(Some(ResponsePart::End(end))) = reader.next(&mut cache, &mut input, Expect::Connect) else {
            panic!("no end")
        };
        assert!(!end.reusable);
        assert_eq!(input, b"tunnelled", "what follows is the tunnel's");
    }
    let refused = read_as(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", &[Expect::Connect]);
    assert_eq!(owned(&refused), one(403, "no"));
}

#[test]
fn rfc9112_6_3_rule_3_transfer_encoding_overrides_content_length() {
    for length in ["5", "99999", "x", "1, 2"] {
        let chunks = "1\r\nx\r\n0\r\n\r\n";
        let stream = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        );
        assert_eq!(answers(stream), one(200, "x"), "{length}");
    }
}

#[test]
fn rfc9112_6_3_rule_4_a_coding_that_does_not_end_in_chunked_lasts_until_close() {
    for coding in
        ["gzip", "chunked, gzip", "chunked\r\nTransfer-Encoding: identity", "chunkedchunked", "xchunked"]
    {
        let stream =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\nContent-Length: 1\r\n\r\n1\r\nx");
        let transcript = usual(stream);
        assert_eq!(owned(&transcript), one(200, "1\r\nx"), "{coding}");
        assert!(!ends(&transcript)[0].reusable);
    }
}

#[test]
fn rfc9112_6_3_rule_5_an_invalid_content_length_discards_the_answer() {
    for length in ["", "-1", "+1", "0x1", "1.0", "1 1", "x", "1x", "1,", ",1", "18446744073709551616", "1, x"]
    {
        let stream = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nx");
        assert_eq!(fault(stream), Kind::BadContentLength, "{length:?}");
    }
    for other in ["1, 2", "1\r\nContent-Length: 2", "1\r\ncontent-length: 1, 01, 11"] {
        let stream = format!("HTTP/1.1 200 OK\r\nContent-Length: {other}\r\n\r\nx");
        assert_eq!(fault(stream), Kind::ConflictingLength, "{other:?}");
    }
}

#[test]
fn rfc9112_6_3_rule_5_equal_lengths_count_as_one() {
    for length in ["1, 1", "1\r\nContent-Length: 1", "1,01 ,\t1\r\nContent-Length: 001"] {
        let stream = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nx");
        assert_eq!(answers(stream), one(200, "x"), "{length:?}");
    }
}

#[test]
fn rfc9112_6_3_rule_6_a_short_body_is_incomplete() {
    let transcript = usual("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour");
    let error = transcript.error.expect("a fault");
    assert_eq!(error.kind, Kind::TruncatedBody { missing: Some(6) });
    assert_eq!((error.at, error.fault()), (4, FaultySide::Cut));
    assert_eq!(transcript.rest, b"four");
}

#[test]
fn rfc9112_6_3_rule_8_without_length_a_body_lasts_until_close() {
    let transcript = usual("HTTP/1.1 200 OK\r\nX: y\r\n\r\nall of this\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(owned(&transcript), one(200, "all of this\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"));
    assert!(!ends(&transcript)[0].reusable);
    assert_eq!(answers("HTTP/1.1 200 OK\r\n\r\n"), one(200, ""));
}

#[test]
fn rfc9112_6_3_extra_bytes_are_no_separate_answer() {
    // The reader cannot know how many requests are open; its caller limits it to those in flight.
    let stream = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".repeat(3);
    let (mut cache, mut input) = (HeadCache::new(), &stream[..]);
    let mut reader = ResponseReader::new(ResponseLimits::default());
    while !matches!(reader.next(&mut cache, &mut input, Expect::Usual), Ok(Some(ResponsePart::End(_)))) {}
    assert_eq!(reader.take_same(&mut cache, &mut input, 1), 1);
    assert_eq!(input.len() * 3, stream.len(), "the third is left alone");
    // After a final response the reader itself knows that none may follow.
    let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx".repeat(2);
    assert_eq!(answers(closing), one(200, "x"));
}

#[test]
fn rfc9112_7_1_malformed_chunks_are_errors() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in
        ["x\r\n", "\r\n", " 1\r\nx\r\n", "-1\r\n", "0x1\r\n", "1 1\r\nx\r\n", "1\nx\r\n", "1\rx", "1;a\nx"]
    {
        assert_eq!(fault(format!("{head}{chunks}0\r\n\r\n")), Kind::BadChunkSize, "{chunks:?}");
    }
    for chunks in ["1\r\nxy\r\n", "1\r\nx\n", "1\r\nx\rx", "2\r\nabILLEGAL\r\n"] {
        assert_eq!(fault(format!("{head}{chunks}0\r\n\r\n")), Kind::BadChunkEnd, "{chunks:?}");
    }
}

#[test]
fn rfc9112_7_1_large_chunk_sizes_do_not_overflow() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(fault(format!("{head}10000000000000000\r\nx")), Kind::BadChunkSize);
    let missing = Kind::TruncatedBody { missing: Some(u64::MAX - 1) };
    assert_eq!(fault(format!("{head}ffffffffffffffff\r\nx")), missing);
    assert_eq!(answers(format!("{head}000000000000000000001\r\nx\r\n0\r\n\r\n")), one(200, "x"));
}

#[test]
fn rfc9112_7_1_1_unrecognised_chunk_extensions_are_ignored() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for extension in [";a", ";a=b", " ; a = \"b;\\\" c\"", ";a;b=c;d=\"\"", ";\u{e4}", "  "] {
        let stream = format!("{head}1{extension}\r\nx\r\n0{extension}\r\n\r\n");
        assert_eq!(answers(stream), one(200, "x"), "{extension:?}");
    }
    assert_eq!(fault(format!("{head}1;a\0b\r\nx\r\n0\r\n\r\n")), Kind::BadChunkSize);
}

#[test]
fn rfc9112_7_1_2_trailers_are_kept_apart_from_the_head() {
    let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nContent-Length: 5\r\nSum: a\r\n b\r\n\r\n\
                  HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let transcript = usual(stream);
    assert_eq!(owned(&transcript), [(200, "x".to_owned()), (200, String::new())]);
    let ReadEvent::Head(_, _, head) = &transcript.events[0] else { panic!("no head") };
    assert_eq!(head.len(), 1);
    let ReadEvent::Trailers(trailers) = &transcript.events[1] else { panic!("no trailers") };
    assert_eq!(trailers[1], (b"Sum".to_vec(), b"a   b".to_vec()));
}

#[test]
fn rfc9112_7_1_2_malformed_trailers_are_errors() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    for trailers in ["X\r\n\r\n", "X: a\0\r\n\r\n", "X : a\r\n\r\n"] {
        assert_eq!(fault(format!("{head}{trailers}")), Kind::BadField, "{trailers:?}");
    }
    assert_eq!(fault(format!("{head} X: a\r\n\r\n")), Kind::SpaceBeforeFields);
}

#[test]
fn rfc9112_8_an_answer_that_breaks_off_is_recorded_as_incomplete() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (stream, missing) in [
        (chunked.to_owned(), None),
        (format!("{chunked}5"), None),
        (format!("{chunked}5\r\nab"), Some(3)),
        (format!("{chunked}2\r\nab"), None),
        (format!("{chunked}2\r\nab\r\n"), None),
        (format!("{chunked}2\r\nab\r\n0\r\n"), None),
        (format!("{chunked}2\r\nab\r\n0\r\nX: y\r\n"), None),
    ] {
        assert_eq!(fault(&stream), Kind::TruncatedBody { missing }, "{stream:?}");
    }
    for head in ["H", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nX: y\r\n\r"] {
        assert_eq!(fault(head), Kind::TruncatedHead, "{head:?}");
    }
    assert_eq!(fault("HTTP/1.1 100 Continue\r\n\r\n"), Kind::TruncatedHead);
}

fn run(first: u64, count: u32, idempotent: bool) -> Run<u32> {
    Run { stamp: 0, first, count, kind: 0, expect: Expect::Usual, idempotent }
}

#[test]
fn rfc9112_9_2_answers_belong_to_the_first_open_request() {
    let mut pipeline = Pipeline::new();
    pipeline.push(run(1, 3, true));
    pipeline.push(run(4, 1, false));
    let mut seen = Vec::new();
    assert_eq!(pipeline.answered(2, &mut |r| seen.push((r.first, r.count))), 2);
    assert_eq!(pipeline.answered(2, &mut |r| seen.push((r.first, r.count))), 2);
    assert_eq!(seen, [(1, 2), (3, 1), (4, 1)]);
    assert_eq!(pipeline.answered(1, &mut |_| panic!("nothing is open")), 0);
    assert_eq!(pipeline.answered_tag(4), TagMatch::Unknown);
}

#[test]
fn rfc9112_9_2_an_interim_answer_does_not_close_a_request() {
    let stream = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let transcript = usual(stream);
    assert_eq!(transcript.answers().count(), 1);
    assert!(matches!(
        transcript.events[..],
        [ReadEvent::Interim(_), ReadEvent::Interim(_), ReadEvent::Head(..), ReadEvent::End(..)]
    ));
}

#[test]
fn rfc9112_9_3_persistence_follows_close_then_version_then_keep_alive() {
    let answer = |version: &str, connection: &str| {
        format!("HTTP/{version} 200 OK\r\nContent-Length: 1\r\n{connection}\r\nx").into_bytes()
    };
    assert!(persists(&answer("1.1", "")));
    assert!(!persists(&answer("1.0", "")));
    assert!(persists(&answer("1.0", "Connection: x, Keep-ALIVE\r\n")));
    for close in [
        "close",
        "CLOSE",
        "keep-alive, close",
        "close, keep-alive",
        "keep-alive\r\nConnection: close",
        ",,close",
    ] {
        for version in ["1.0", "1.1"] {
            assert!(!persists(&answer(version, &format!("Connection: {close}\r\n"))), "{version} {close}");
        }
    }
    assert!(persists(&answer("1.1", "Connection: something-close, closed\r\nProxy-Connection: close\r\n")));
}

#[test]
fn rfc9112_9_3_1_only_idempotent_requests_may_be_sent_again() {
    let mut pipeline = Pipeline::new();
    pipeline.push(run(1, 2, true));
    pipeline.push(run(3, 1, false));
    pipeline.push(run(4, 1, true));
    let again: Vec<(u64, u32)> =
        pipeline.drain().filter(|r| r.idempotent).map(|r| (r.first, r.count)).collect();
    assert_eq!(again, [(1, 2), (4, 1)]);
}

#[test]
fn rfc9112_9_6_after_close_no_answer_is_read_and_no_request_sent() {
    let stream = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    let (mut cache, mut input) = (HeadCache::new(), &stream[..]);
    let mut reader = ResponseReader::new(ResponseLimits::default());
    assert!(reader.persists());
    let head = reader.next(&mut cache, &mut input, Expect::Usual).expect("no fault");
    assert!(matches!(head, Some(ResponsePart::Head(_))));
    assert!(!reader.persists(), "known from the head on");
    while reader.next(&mut cache, &mut input, Expect::Usual).expect("no fault").is_some() {}
    assert!(reader.is_closed() && reader.at_boundary());
    let mut more = &stream[..];
    assert_eq!(reader.take_same(&mut cache, &mut more, 1), 0);
    assert_eq!(reader.next(&mut cache, &mut more, Expect::Usual), Ok(None));
    assert_eq!((more.len(), reader.finish()), (0, Ok(None)));
}

#[test]
fn rfc9110_5_5_cr_lf_nul_and_controls_in_values_are_rejected() {
    for byte in (0u8..0x20).chain([0x7f]).filter(|b| !b"\t\n".contains(b)) {
        let mut stream = b"HTTP/1.1 200 OK\r\nX: a?b\r\n\r\n".to_vec();
        stream[21] = byte;
        assert_eq!(fault(&stream), Kind::BadField, "{byte:#x}");
    }
}

#[test]
fn rfc9110_5_6_1_empty_list_elements_are_ignored() {
    let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: , ,chunked,\r\nConnection: ,, ,\r\n\r\n0\r\n\r\n";
    assert_eq!(answers(stream), one(200, ""));
}

#[test]
fn rfc9110_15_an_unknown_status_is_read_by_its_class() {
    for status in [299u16, 499, 599, 999, 600] {
        let stream = format!("HTTP/1.1 {status} ?\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(answers(stream), one(status, "x"));
    }
    let stream = "HTTP/1.1 199 ?\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(answers(stream), one(200, ""));
}

#[test]
fn rfc9110_15_2_several_unexpected_interim_answers_are_read() {
    let most = usize::from(ResponseLimits::default().interim);
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let interim = "HTTP/1.1 102 Processing\r\n\r\n";
    assert_eq!(answers(format!("{}{answer}", interim.repeat(most))), one(200, ""));
    let twice = format!("{0}{answer}{0}{answer}", interim.repeat(most));
    assert_eq!(answers(twice).len(), 2, "each answer has its own count");
    let fault = fault(format!("{}{answer}", interim.repeat(most + 1)));
    assert_eq!(fault, Kind::TooManyInterim(ResponseLimits::default().interim));
}

#[test]
fn rfc9110_15_2_2_switching_protocols_is_the_last_answer() {
    let stream = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\nother";
    let transcript = usual(stream);
    assert_eq!(owned(&transcript), one(101, ""));
    assert!(!ends(&transcript)[0].reusable);
}

/// Section 6.2: the length decides where the body ends, whether or not its bytes are read.
#[test]
fn bytes_that_are_passed_over_are_counted_and_end_the_body() {
    const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let mut read = |reader: &mut ResponseReader, mut bytes: &[u8]| {
        let mut end = None;
        while let Some(part) = reader.next(&mut cache, &mut bytes, Expect::Usual).expect("no fault") {
            if let ResponsePart::End(e) = part {
                end = Some(e);
            }
        }
        end
    };
    for _ in 0..2 {
        assert_eq!(reader.body_ahead(), 0);
        assert_eq!(read(&mut reader, BEGUN), None);
        assert_eq!(reader.body_ahead(), 7);
        reader.pass_over(5);
        assert_eq!((reader.body_ahead(), reader.in_answer(), read(&mut reader, b"")), (2, true, None));
        assert_eq!(read(&mut reader, b"i"), None);
        reader.pass_over(1);
        let end = read(&mut reader, b"").expect("the end");
        assert_eq!((end.status, end.body_bytes, reader.at_boundary()), (200, 10, true));
    }
    assert_eq!(read(&mut reader, BEGUN), None);
    reader.pass_over(6);
    let cut = reader.finish().expect_err("a byte is missing");
    assert_eq!(cut.kind, Kind::TruncatedBody { missing: Some(1) });
}
