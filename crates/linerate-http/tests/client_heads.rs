//! Heads that are compared instead of parsed, foreign peers, and both sides of every limit.

use linerate_http::client::{
    CompleteResponse, Expect, FaultySide, HeadCache, ResponseErrorKind as Kind, ResponseLimits, ResponsePart,
    ResponseReader, Speaks,
};

/// Reads one response by parsing; panics on a fault.
fn learn(cache: &mut HeadCache, stream: &str) -> CompleteResponse {
    let mut reader = ResponseReader::new(ResponseLimits::default());
    let mut input = stream.as_bytes();
    loop {
        match reader.next(cache, &mut input, Expect::Usual).expect("no fault") {
            Some(ResponsePart::End(end)) => return end,
            Some(_) => {}
            None => panic!("cut: {stream:?}"),
        }
    }
}

/// How many responses of the stream are taken by comparison alone.
fn same(cache: &mut HeadCache, stream: impl AsRef<[u8]>) -> u32 {
    let mut input = stream.as_ref();
    ResponseReader::new(ResponseLimits::default()).take_same(cache, &mut input, u32::MAX)
}

fn answer(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok")
}

fn fault(stream: impl AsRef<[u8]>, limits: ResponseLimits) -> Kind {
    let (mut cache, mut input) = (HeadCache::new(), stream.as_ref());
    let mut reader = ResponseReader::new(limits);
    loop {
        match reader.next(&mut cache, &mut input, Expect::Usual) {
            Ok(Some(_)) => {}
            Ok(None) => return reader.finish().expect_err("a fault").kind,
            Err(error) => return error.kind,
        }
    }
}

#[test]
fn equal_heads_are_taken_without_reading_them() {
    let mut cache = HeadCache::new();
    assert_eq!((cache.status(), cache.reusable(), cache.body_len()), (0, false, None));
    let one = answer("X: y\r\n");
    assert_eq!(same(&mut cache, &one), 0, "nothing is known yet");
    learn(&mut cache, &one);
    assert_eq!((cache.status(), cache.reusable(), cache.body_len()), (200, true, Some(2)));
    assert_eq!(cache.head().and_then(|h| h.get(b"x").map(<[u8]>::to_vec)), Some(b"y".to_vec()));
    let mut stream = one.repeat(5);
    stream.push_str(&one[..20]);
    let (mut input, mut reader) = (stream.as_bytes(), ResponseReader::new(ResponseLimits::default()));
    assert_eq!(reader.take_same(&mut cache, &mut input, 0), 0);
    assert_eq!(reader.take_same(&mut cache, &mut input, 2), 2);
    let mut bodies = 0;
    let n = reader.take_same_with(&mut cache, &mut input, u32::MAX, |head, body| {
        assert_eq!((head, body), (&one.as_bytes()[..one.len() - 2], &b"ok"[..]));
        bodies += 1;
    });
    assert_eq!((n, bodies, input), (3, 3, &one.as_bytes()[..20]));
}

#[test]
fn counting_takes_as_many_as_handing_out() {
    // Equal to the last byte except for one response, which differs, at each position, in its body,
    // its Date, or all of it.
    let usual = answer("Date: aa\r\n");
    for odd in [usual.replace("ok", "no"), usual.replace("aa", "bb"), usual.replace("200", "404")] {
        for (place, most) in (0..7).flat_map(|place| (0..9).map(move |most| (place, most))) {
            let mut answers = [usual.as_str(); 7];
            answers[place] = &odd;
            let stream = answers.concat() + &usual[..30];
            let (mut one, mut two) = (HeadCache::new(), HeadCache::new());
            learn(&mut one, &usual);
            learn(&mut two, &usual);
            let (mut counted, mut handed) = (stream.as_bytes(), stream.as_bytes());
            let mut reader = ResponseReader::new(ResponseLimits::default());
            let n = reader.take_same(&mut one, &mut counted, most);
            assert_eq!(n, reader.take_same_with(&mut two, &mut handed, most, |_, _| {}), "{place} {most}");
            assert_eq!(counted, handed);
            let expected = if odd.contains("404") { most.min(place as u32) } else { most.min(7) };
            assert_eq!(n, expected);
            assert_eq!(one.head().map(|h| h.raw().to_vec()), two.head().map(|h| h.raw().to_vec()));
        }
    }
}

#[test]
fn nothing_is_taken_within_an_answer() {
    let mut cache = HeadCache::new();
    let one = answer("");
    learn(&mut cache, &one);
    for cut in 1..one.len() {
        let mut reader = ResponseReader::new(ResponseLimits::default());
        let (mut first, two) = (&one.as_bytes()[..cut], format!("{}{one}", &one[cut..]));
        let mut rest = two.as_bytes();
        while reader.next(&mut cache, &mut first, Expect::Usual).expect("no fault").is_some() {}
        assert!(reader.in_answer());
        assert_eq!(reader.take_same(&mut cache, &mut rest, 9), 0, "cut at {cut}");
        while !reader.at_boundary() {
            assert!(reader.next(&mut cache, &mut rest, Expect::Usual).expect("no fault").is_some());
        }
        assert_eq!(reader.take_same(&mut cache, &mut rest, 9), 1, "cut at {cut}");
    }
}

#[test]
fn another_date_is_the_same_head() {
    let dated = |second: u32| answer(&format!("Date: Tue, 09 Nov 2010 14:49:{second:02} GMT\r\nX: y\r\n"));
    let mut cache = HeadCache::new();
    learn(&mut cache, &dated(0));
    assert_eq!(same(&mut cache, dated(1) + &dated(1) + &dated(2)), 3);
    let head = cache.head().expect("a head");
    assert_eq!(head.get(b"date"), Some(&b"Tue, 09 Nov 2010 14:49:02 GMT"[..]), "taken over");
    for byte in [0, b'\r', b'\n', 0x7f] {
        let mut bad = dated(1).into_bytes();
        bad[40] = byte;
        assert_eq!(same(&mut cache, &bad), 0, "byte {byte:#x} in the Date value");
    }
    assert_eq!(same(&mut cache, dated(3).replace("X: y", "X: z")), 0, "the rest is compared");
}

#[test]
fn values_that_vary_at_the_same_length_are_learnt() {
    let traced =
        |a: u32, b: u32| answer(&format!("Trace: {a:08x}\r\nDate: {b:02}\r\nServer: s\r\nSpan: {b:04}\r\n"));
    let mut cache = HeadCache::new();
    learn(&mut cache, &traced(1, 1));
    assert_eq!(same(&mut cache, traced(2, 1)), 0, "not known to vary");
    learn(&mut cache, &traced(2, 1));
    assert_eq!(same(&mut cache, traced(3, 1) + &traced(4, 1)), 2);
    assert_eq!(same(&mut cache, traced(3, 2)), 0, "the span was the same so far");
    learn(&mut cache, &traced(3, 2));
    assert_eq!(same(&mut cache, traced(4, 3) + &traced(5, 4) + &traced(5, 4)), 3, "both are known");
    assert_eq!(same(&mut cache, traced(6, 5).replace("Server: s", "Server: t")), 0);
    assert_eq!(
        same(&mut cache, traced(6, 5).replace("Trace: 00", "Trace: \r\n")),
        0,
        "no line end hides in a value"
    );
    assert_eq!(same(&mut cache, traced(6, 5).replace("Trace: 00", "Trace: \0\0")), 0);
}

#[test]
fn what_decides_is_never_learnt() {
    for (a, b, name) in [
        ("Connection: close", "Connection: cloze", "connection"),
        ("Upgrade: a", "Upgrade: b", "upgrade"),
        ("Content-Length: 2", "Content-Length: 3", "content-length"),
        ("Transfer-Encoding: x", "Transfer-Encoding: y", "transfer-encoding"),
    ] {
        let stream = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\nVaries: a\r\n\r\nabc");
        let mut cache = HeadCache::new();
        for line in [a, b, a, b] {
            let mut reader = ResponseReader::new(ResponseLimits::default());
            let stream = stream(line);
            let mut input = stream.as_bytes();
            let head = reader.next(&mut cache, &mut input, Expect::Usual).expect("no fault");
            let Some(ResponsePart::Head(head)) = head else { panic!("no head") };
            let value = line.split(' ').nth(1).unwrap_or_default();
            assert_eq!(head.get(name.as_bytes()), Some(value.as_bytes()));
            // The cache's view of the head matches the head.
            let held = cache.head().expect("a head");
            assert_eq!(held.get(name.as_bytes()), Some(value.as_bytes()));
        }
    }
    let mut cache = HeadCache::new();
    learn(&mut cache, &answer("").replace("200", "404"));
    learn(&mut cache, &answer("").replace("200", "405"));
    assert_eq!(same(&mut cache, answer("").replace("200", "406")), 0, "the status is no field");
}

#[test]
fn a_head_that_varies_in_many_places_is_parsed() {
    let many = |n: u32| answer(&(0..5).map(|i| format!("X{i}: {n}\r\n")).collect::<String>());
    let four = |n: u32| answer(&(0..4).map(|i| format!("X{i}: {n}\r\n")).collect::<String>());
    let mut cache = HeadCache::new();
    (0..5).for_each(|n| _ = learn(&mut cache, &many(n)));
    assert_eq!(same(&mut cache, many(6)), 0);
    (0..2).for_each(|n| _ = learn(&mut cache, &four(n)));
    assert_eq!(same(&mut cache, four(6) + &four(7)), 2);
}

#[test]
fn a_few_kinds_of_heads_are_held() {
    let kinds: Vec<String> = (200..204).map(|s| answer("").replace("200", &s.to_string())).collect();
    let mut cache = HeadCache::new();
    kinds.iter().for_each(|kind| _ = learn(&mut cache, kind));
    let stream = kinds.concat();
    let mut input = stream.as_bytes();
    let mut reader = ResponseReader::new(ResponseLimits::default());
    for status in 200..204 {
        assert_eq!(reader.take_same(&mut cache, &mut input, 9), 1, "never across kinds");
        assert_eq!(cache.status(), status);
    }
    learn(&mut cache, &answer("X: y\r\n"));
    let known: u32 = kinds.iter().map(|kind| same(&mut cache, kind)).sum();
    assert_eq!((known, same(&mut cache, answer("X: y\r\n"))), (3, 1), "the oldest made room");
}

#[test]
fn the_tag_is_found_and_may_differ() {
    let tagged = |tag: &str| answer(&format!("X-Tag: {tag}\r\nDate: now\r\n"));
    let mut cache = HeadCache::with_tag("x-tag");
    learn(&mut cache, &tagged("100"));
    let stream = tagged("101") + &tagged("102") + &tagged("103");
    let (mut input, mut tags) = (stream.as_bytes(), Vec::new());
    let mut reader = ResponseReader::new(ResponseLimits::default());
    let n = reader.take_same_with(&mut cache, &mut input, 9, |head, _| tags.push(head));
    let tags: Vec<_> = tags.iter().map(|head| cache.tag(head)).collect();
    assert_eq!((n, tags), (3, vec![Some(&b"101"[..]), Some(b"102"), Some(b"103")]));
    assert_eq!(same(&mut cache, tagged("1000")), 0, "another length is another head");
    assert_eq!(same(&mut cache, tagged("\r\n1")), 0);
    let mut plain = HeadCache::new();
    learn(&mut plain, &answer(""));
    assert_eq!(plain.tag(answer("").as_bytes()), None);
}

#[test]
fn only_answers_of_known_length_on_a_lasting_connection_are_taken() {
    for stream in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let mut cache = HeadCache::new();
        learn(&mut cache, stream);
        assert_eq!(same(&mut cache, stream), 0, "{stream:?}");
    }
    for stream in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
    ] {
        let mut cache = HeadCache::new();
        learn(&mut cache, stream);
        assert_eq!(same(&mut cache, stream.repeat(3)), 3, "{stream:?}");
    }
}

#[test]
fn the_answer_to_head_has_no_body_whatever_is_known_of_its_head() {
    let mut cache = HeadCache::new();
    learn(&mut cache, &answer(""));
    let head = answer("").replace("\r\n\r\nok", "\r\n\r\n");
    let mut reader = ResponseReader::new(ResponseLimits::default());
    let stream = head.repeat(2);
    let mut input = stream.as_bytes();
    for left in [head.len(), 0] {
        assert!(matches!(reader.next(&mut cache, &mut input, Expect::Head), Ok(Some(ResponsePart::Head(_)))));
        assert!(matches!(reader.next(&mut cache, &mut input, Expect::Head), Ok(Some(ResponsePart::End(_)))));
        assert_eq!(input.len(), left);
    }
    learn(&mut cache, &answer(""));
}

#[test]
fn a_head_known_under_wider_limits_is_still_refused() {
    let mut cache = HeadCache::new();
    let one = answer("A: b\r\nC: d\r\n");
    learn(&mut cache, &one);
    for limits in [
        ResponseLimits { head_bytes: 20, ..ResponseLimits::default() },
        ResponseLimits { fields: 2, ..ResponseLimits::default() },
    ] {
        let mut reader = ResponseReader::new(limits);
        let mut input = one.as_bytes();
        assert_eq!(reader.take_same(&mut cache, &mut input, 9), 0);
        let error = reader.next(&mut cache, &mut input, Expect::Usual).expect_err("beyond the limit");
        assert_eq!(error.fault(), FaultySide::Limit);
        let mut reader = ResponseReader::new(limits);
        let (mut first, mut rest) = one.as_bytes().split_at(10);
        assert_eq!(reader.next(&mut cache, &mut first, Expect::Usual), Ok(None));
        assert!(reader.next(&mut cache, &mut rest, Expect::Usual).is_err());
    }
}

#[test]
fn peers_that_speak_something_else_are_named() {
    let limits = ResponseLimits::default();
    for (greeting, speaks) in [
        (&b"SSH-2.0-OpenSSH_9.6\r\n"[..], Speaks::Ssh),
        (b"\x15\x03\x01\x00\x02\x02\x46", Speaks::Tls),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64", Speaks::Http2),
        (b"220 mail.example ESMTP\r\n", Speaks::MailOrFtp),
        (b"<html>", Speaks::Unknown),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", Speaks::Unknown),
        (b"HTTP 200", Speaks::Unknown),
        (b"HTT", Speaks::Unknown),
    ] {
        if greeting == b"HTT" {
            assert_eq!(fault(greeting, limits), Kind::TruncatedHead, "it may still have been HTTP");
            continue;
        }
        assert_eq!(fault(greeting, limits), Kind::NotHttp(speaks), "{greeting:?}");
        let text = Kind::NotHttp(speaks).to_string();
        assert!(text.contains("does not speak HTTP/1"), "{text}");
    }
    // A greeting is identified at once, though no line has ended: the peer now waits for us.
    let mut reader = ResponseReader::new(limits);
    let mut input = &b"SSH-2.0-O"[..];
    assert!(reader.next(&mut HeadCache::new(), &mut input, Expect::Usual).is_err());
}

/// `stream` is read under `within`, and refused as `kind` under `beyond`.
fn limit(stream: &str, within: ResponseLimits, beyond: ResponseLimits, kind: Kind) {
    let mut reader = ResponseReader::new(within);
    let (mut cache, mut input, mut whole) = (HeadCache::new(), stream.as_bytes(), false);
    while let Some(part) = reader.next(&mut cache, &mut input, Expect::Usual).expect("within the limit") {
        whole = matches!(part, ResponsePart::End(_));
    }
    assert!(whole);
    assert_eq!(fault(stream, beyond), kind);
    assert_eq!(kind.fault(), FaultySide::Limit);
    assert!(kind.to_string().contains("our limit"), "{kind}");
}

#[test]
fn both_sides_of_each_limit() {
    let usual = ResponseLimits::default();
    let one = answer("A: b\r\n");
    let head = one.len() as u32 - 2;
    let with = |head_bytes| ResponseLimits { head_bytes, ..usual };
    limit(&one, with(head), with(head - 1), Kind::HeadTooLong(head - 1));
    let with = |fields| ResponseLimits { fields, ..usual };
    limit(&one, with(2), with(1), Kind::TooManyFields(1));
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;abc\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n";
    let with = |chunk_line_bytes| ResponseLimits { chunk_line_bytes, ..usual };
    limit(chunked, with(6), with(5), Kind::ChunkLineTooLong(5));
    let digits = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0001\r\nx\r\n0\r\n\r\n";
    limit(digits, with(4), with(3), Kind::ChunkLineTooLong(3));
    let with = |trailer_bytes| ResponseLimits { trailer_bytes, ..usual };
    limit(chunked, with(14), with(13), Kind::TrailersTooLong(13));
    let with = |fields| ResponseLimits { fields, ..usual };
    limit(chunked, with(2), with(1), Kind::TooManyFields(1));
    let interim = format!("{0}{0}{one}", "HTTP/1.1 100 Continue\r\n\r\n");
    let with = |interim| ResponseLimits { interim, ..usual };
    limit(&interim, with(2), with(1), Kind::TooManyInterim(1));
}

#[test]
fn an_endless_head_ends() {
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let mut sent = 0;
    let error = loop {
        let mut input = if sent == 0 { &b"HTTP/1.1 200 OK\r\n"[..] } else { b"X-More: and more\r\n" };
        sent += input.len();
        match reader.next(&mut cache, &mut input, Expect::Usual) {
            Ok(part) => assert_eq!(part, None),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, Kind::HeadTooLong(64 << 10));
    assert!(sent < (64 << 10) + 64);
}

#[test]
fn an_idle_reader_is_small() {
    let size = size_of::<ResponseReader>();
    assert!(size <= 112, "{size} bytes");
}
