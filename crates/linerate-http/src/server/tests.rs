use proptest::prelude::*;

use super::fuzz::{ServerReading, read_all};
use super::*;

fn read(stream: &str) -> ServerReading {
    let bytes = stream.as_bytes();
    let whole = read_all(std::iter::once(bytes), RequestLimits::default());
    assert_eq!(whole, read_all(bytes.chunks(1), RequestLimits::default()), "byte by byte: {stream:?}");
    for cut in 0..bytes.len() {
        let (a, b) = bytes.split_at(cut);
        assert_eq!(whole, read_all([a, b].into_iter(), RequestLimits::default()), "cut at {cut}: {stream:?}");
    }
    whole
}

fn fault(stream: &str) -> Option<RequestFault> {
    let reading = read(stream);
    assert_eq!(reading.requests.len(), usize::from(reading.fault.is_none()), "{stream:?}");
    reading.fault
}

fn head(stream: &str) -> std::rc::Rc<RequestHead> {
    let (head, taken) =
        HeadReader::new(RequestLimits::default()).read(stream.as_bytes(), 0).unwrap().unwrap();
    assert_eq!(taken, stream.len());
    head
}

#[test]
fn a_request_is_read() {
    let head =
        head("POST /a/b?c=d HTTP/1.1\r\nHost: h:1\r\nX-Y: \t v w \t\r\nempty:\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(head.method(), Method::Post);
    assert_eq!(head.method_name(), "POST");
    assert_eq!(head.target(), "/a/b?c=d");
    assert_eq!((head.path(), head.query()), ("/a/b", Some("c=d")));
    assert_eq!(head.host(), Some("h:1"));
    assert_eq!(head.field("x-y"), Some(&b"v w"[..]));
    assert_eq!(head.field("empty"), Some(&b""[..]));
    assert_eq!(head.field("none"), None);
    assert_eq!(head.fields().len(), 4);
    assert_eq!(head.framing(), Framing::Length(5));
    assert!(head.keep_alive() && !head.expects_continue() && !head.upgrade());
}

#[test]
fn absolute_form_overrides_host() {
    // RFC 9112 section 3.2.2
    let head = head("GET http://other:80/p?q HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((head.host(), head.path(), head.query()), (Some("other:80"), "/p", Some("q")));
}

/// Every refusal with the section that demands it (see `Fault::section`).
#[test]
fn refusals() {
    let h = "Host: h\r\n";
    let cases: &[(&str, RequestFault)] = &[
        ("GET / HTTP/1.1\nHost: h\r\n\r\n", RequestFault::BareLf),
        ("GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", RequestFault::BareLf),
        ("GET / HTTP/1.1\r\nHost: h\r\n\n", RequestFault::BareLf),
        ("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", RequestFault::BareLf),
        ("GET / HTTP/1.1\rHost: h\r\n\r\n", RequestFault::Version),
        ("GET  / HTTP/1.1\r\n{h}\r\n", RequestFault::RequestLine),
        ("GET HTTP/1.1\r\n{h}\r\n", RequestFault::RequestLine),
        ("GET /\r\n\r\n", RequestFault::RequestLine),
        ("GET\t/ HTTP/1.1\r\n{h}\r\n", RequestFault::Method),
        ("\rGET / HTTP/1.1\r\n{h}\r\n", RequestFault::RequestLine),
        ("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n{h}\r\n", RequestFault::RequestLine),
        ("G@T / HTTP/1.1\r\n{h}\r\n", RequestFault::Method),
        (" GET / HTTP/1.1\r\n{h}\r\n", RequestFault::Method),
        ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n{h}\r\n", RequestFault::Method),
        ("GET /a b HTTP/1.1\r\n{h}\r\n", RequestFault::Version),
        ("GET /a\u{e9} HTTP/1.1\r\n{h}\r\n", RequestFault::Target),
        ("GET /a#b HTTP/1.1\r\n{h}\r\n", RequestFault::Target),
        ("GET * HTTP/1.1\r\n{h}\r\n", RequestFault::Target),
        ("CONNECT / HTTP/1.1\r\n{h}\r\n", RequestFault::Target),
        ("GET / http/1.1\r\n{h}\r\n", RequestFault::Version),
        ("GET / HTTP/1\r\n{h}\r\n", RequestFault::Version),
        ("GET / HTTP/01.01\r\n{h}\r\n", RequestFault::Version),
        ("GET / HTTP/1.1 \r\n{h}\r\n", RequestFault::Version),
        ("GET / HTTP/2.0\r\n{h}\r\n", RequestFault::VersionNotSupported),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RequestFault::VersionNotSupported),
        ("GET / HTTP/1.1\r\n{h}no colon\r\n\r\n", RequestFault::FieldName),
        ("GET / HTTP/1.1\r\n{h}: v\r\n\r\n", RequestFault::FieldName),
        ("GET / HTTP/1.1\r\n{h}a : v\r\n\r\n", RequestFault::FieldName),
        ("GET / HTTP/1.1\r\n{h}a[: v\r\n\r\n", RequestFault::FieldName),
        ("GET / HTTP/1.1\r\n{h}\u{e9}: v\r\n\r\n", RequestFault::FieldName),
        ("GET / HTTP/1.1\r\n{h}a: b\rc\r\n\r\n", RequestFault::FieldValue),
        ("GET / HTTP/1.1\r\n{h}a: b\0\r\n\r\n", RequestFault::FieldValue),
        ("GET / HTTP/1.1\r\n{h}a: b\r\n c\r\n\r\n", RequestFault::Folding),
        ("GET / HTTP/1.1\r\n {h}\r\n", RequestFault::Folding),
        ("GET / HTTP/1.1\r\n\r\n", RequestFault::HostMissing),
        ("GET / HTTP/1.1\r\n{h}{h}\r\n", RequestFault::HostRepeated),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", RequestFault::Host),
        ("GET / HTTP/1.0\r\nHost: a b\r\n\r\n", RequestFault::Host),
        ("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", RequestFault::Host),
        (
            "POST / HTTP/1.1\r\n{h}Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
            RequestFault::ContentLengthRepeated,
        ),
        ("POST / HTTP/1.1\r\n{h}Content-Length: 1, 1\r\n\r\na", RequestFault::ContentLength),
        ("POST / HTTP/1.1\r\n{h}Content-Length: +1\r\n\r\na", RequestFault::ContentLength),
        ("POST / HTTP/1.1\r\n{h}Content-Length:\r\n\r\na", RequestFault::ContentLength),
        ("POST / HTTP/1.1\r\n{h}Content-Length: 99999999999999999999\r\n\r\n", RequestFault::ContentLength),
        (
            "POST / HTTP/1.1\r\n{h}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            RequestFault::BothLengths,
        ),
        (
            "POST / HTTP/1.1\r\n{h}TRANSFER-ENCODING: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\n",
            RequestFault::BothLengths,
        ),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked, gzip\r\n\r\n", RequestFault::TransferEncoding),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked, chunked\r\n\r\n", RequestFault::TransferEncoding),
        (
            "POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            RequestFault::TransferEncoding,
        ),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked,\r\n\r\n", RequestFault::TransferEncoding),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding: , chunked\r\n\r\n", RequestFault::TransferEncoding),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked;a=b\r\n\r\n", RequestFault::TransferEncoding),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding:\r\n\r\n", RequestFault::TransferEncoding),
        ("POST / HTTP/1.1\r\n{h}Transfer-Encoding: gzip\r\n\r\n", RequestFault::TransferEncoding),
        (
            "POST / HTTP/1.1\r\n{h}Transfer-Encoding: gzip, chunked\r\n\r\n",
            RequestFault::TransferCodingUnknown,
        ),
        (
            "POST / HTTP/1.0\r\n{h}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            RequestFault::TransferEncodingIn10,
        ),
        ("GET / HTTP/1.1\r\n{h}Expect: 200-ok\r\n\r\n", RequestFault::Expectation),
    ];
    for (stream, expected) in cases {
        let stream = stream.replace("{h}", h);
        assert_eq!(fault(&stream), Some(*expected), "{stream:?}");
        assert!((400..=599).contains(&expected.status()) && expected.section().starts_with("RFC "));
    }
}

#[test]
fn what_is_accepted() {
    for stream in [
        "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: h\r\n\r\n",
        "get / HTTP/1.1\r\nhoSt:\th\r\nempty:\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
        "M-SEARCH /x HTTP/1.1\r\nHost: 0.0.0.0=5000\r\nA: D\u{fc}sseldorf\r\n\r\n",
        "GET / HTTP/1.0\r\nExpect: 200-ok\r\n\r\n",
    ] {
        assert_eq!(fault(stream), None, "{stream:?}");
    }
}

#[test]
fn persistence() {
    let keep =
        |line: &str, fields: &str| head(&format!("GET / {line}\r\nHost: h\r\n{fields}\r\n")).keep_alive();
    assert!(keep("HTTP/1.1", ""));
    assert!(!keep("HTTP/1.1", "Connection: close\r\n"));
    assert!(!keep("HTTP/1.1", "Connection: x, CLOSE ,keep-alive\r\n"));
    assert!(!keep("HTTP/1.0", ""));
    assert!(keep("HTTP/1.0", "Connection: Keep-Alive\r\n"));
    let up =
        head("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert!(up.upgrade());
    let old = head("GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert!(!old.upgrade());
}

#[test]
fn expectations() {
    let wants = |v: &str, f: &str| {
        head(&format!("POST / {v}\r\nHost: h\r\nExpect: 100-Continue\r\n{f}\r\n")).expects_continue()
    };
    assert!(wants("HTTP/1.1", "Content-Length: 1\r\n"));
    // RFC 9110 section 10.1.1: without a body there is nothing to wait for; HTTP/1.0 ignores it.
    assert!(!wants("HTTP/1.1", ""));
    assert!(!wants("HTTP/1.0", "Content-Length: 1\r\n"));
}

fn chunked(body: &str) -> ServerReading {
    read(&format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}"))
}

#[test]
fn chunked_bodies() {
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (body, data) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5;ext=value\r\nhello\r\n6\r\n world\r\n000\r\n\r\n", "hello world"),
        ("A\r\nhelloworld\r\n0\r\n\r\n", "helloworld"),
        ("5 ; a ; b = \"x\\\"; y\" ;c\r\nhello\r\n0;z\r\n\r\n", "hello"),
        ("0\r\n\r\n", ""),
    ] {
        let reading = chunked(&format!("{body}{get}"));
        assert_eq!(reading.fault, None, "{body:?}");
        assert_eq!(reading.requests.len(), 2, "{body:?}");
        assert_eq!(reading.requests[0].1, data.as_bytes(), "{body:?}");
    }
}

#[test]
fn chunk_refusals() {
    for body in [
        "5;\r\nhello\r\n0\r\n\r\n",
        "5;bad[=x\r\nhello\r\n",
        "1_0\r\n",
        "0x5\r\nhello\r\n",
        "+5\r\nhello\r\n",
        "-1\r\n",
        " 5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5 x\r\nhello\r\n",
        "\r\n",
        "5\rhello\r\n",
        "5\nhello\r\n",
        "5;a\rX\r\nhello\r\n",
        "5;a=\r\nhello\r\n",
        "5;a=\"x\r\nhello\r\n",
        "FFFFFFFFFFFFFFFF0\r\nhello\r\n",
        "0000000000000001\r\nh\r\n",
    ] {
        assert_eq!(chunked(body).fault, Some(RequestFault::ChunkSize), "{body:?}");
    }
    for body in ["5\r\nhello!!\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello0\r\n\r\n"] {
        assert_eq!(chunked(body).fault, Some(RequestFault::ChunkEnd), "{body:?}");
    }
    assert_eq!(chunked("0\r\n\n").fault, Some(RequestFault::BareLf));
    assert_eq!(chunked("0\r\na b: c\r\n\r\n").fault, Some(RequestFault::FieldName));
    assert_eq!(chunked("0\r\na: b\r\n c\r\n\r\n").fault, Some(RequestFault::Folding));
    let long = format!("5;a={}\r\n", "x".repeat(1100));
    assert_eq!(chunked(&long).fault, Some(RequestFault::ChunkExtensionsTooLong));
}

#[test]
fn trailers_are_kept_but_not_those_that_matter_elsewhere() {
    let reading =
        chunked("0\r\nX-Sum: abc\r\nContent-Length: 50\r\nhost: evil\r\nAuthorization: x\r\ny:z\r\n\r\n");
    let trailers = &reading.requests[0].2;
    assert_eq!(trailers, &[("X-Sum".to_owned(), b"abc".to_vec()), ("y".to_owned(), b"z".to_vec())]);
}

/// Both sides of each limit.
#[test]
fn limits_from_both_sides() {
    let limits = RequestLimits {
        request_line: 40,
        head: 80,
        fields: 3,
        body: 10,
        trailers: 12,
        ..RequestLimits::default()
    };
    let at = |stream: &str| {
        let whole = read_all(std::iter::once(stream.as_bytes()), limits);
        assert_eq!(whole, read_all(stream.as_bytes().chunks(1), limits));
        whole.fault
    };
    let line = |n: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(n));
    assert_eq!(at(&line(24)), None);
    assert_eq!(at(&line(25)), Some(RequestFault::TargetTooLong));
    assert_eq!(at(&"A".repeat(40)), Some(RequestFault::Method));
    let field = |n: usize| format!("GET / HTTP/1.1\r\nHost: h\r\na: {}\r\n\r\n", "b".repeat(n));
    assert_eq!(at(&field(48)), None);
    assert_eq!(at(&field(49)), Some(RequestFault::HeadTooLarge));
    let fields = |n: usize| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a:b\r\n".repeat(n));
    assert_eq!(at(&fields(2)), None);
    assert_eq!(at(&fields(3)), Some(RequestFault::HeadTooLarge));
    let body = |n: usize| format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {n}\r\n\r\n");
    assert_eq!(at(&body(10)), None);
    assert_eq!(at(&body(11)), Some(RequestFault::BodyTooLarge));
    let chunks = |n: usize| {
        format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{n:x}\r\n")
    };
    assert_eq!(at(&chunks(5)), None);
    assert_eq!(at(&chunks(6)), Some(RequestFault::BodyTooLarge));
    let trailer = |n: usize| {
        format!(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na:{}\r\n\r\n",
            "b".repeat(n)
        )
    };
    assert_eq!(at(&trailer(6)), None);
    assert_eq!(at(&trailer(7)), Some(RequestFault::HeadTooLarge));
}

#[test]
fn heads_are_known_again_and_refused_ones_never() {
    let mut reader = HeadReader::new(RequestLimits::default());
    let good = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let (first, _) = reader.read(good, 0).unwrap().unwrap();
    let (again, _) = reader.read(good, 0).unwrap().unwrap();
    assert!(std::rc::Rc::ptr_eq(&first, &again));
    let bad = b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n";
    for _ in 0..10 {
        assert_eq!(reader.read(bad, 0).map(|_| ()), Err(RequestFault::ContentLength));
        assert_eq!(reader.read(&bad[..30], 0).map(|h| h.is_some()), Ok(false));
    }
    for i in 0..20 {
        let other = format!("GET /{i} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (head, _) = reader.read(other.as_bytes(), 0).unwrap().unwrap();
        assert_eq!(head.target(), format!("/{i}"));
    }
    assert_eq!(first.target(), "/");
}

/// Pieces from which both valid and invalid requests are likely.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        2 => Just("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        2 => Just("5\r\nhello\r\n".to_owned()),
        2 => Just("0\r\n\r\n".to_owned()),
        1 => Just("0\r\nA: b\r\n\r\n".to_owned()),
        2 => Just("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc".to_owned()),
        1 => Just("\r\n".to_owned()),
        1 => "[ -~\r\n\t]{0,12}",
    ]
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_requests(
        pieces in proptest::collection::vec(piece(), 1..8),
        cuts in proptest::collection::vec(1usize..40, 1..12),
    ) {
        let stream = pieces.concat();
        let bytes = stream.as_bytes();
        let whole = read_all(std::iter::once(bytes), RequestLimits::default());
        let mut parts = Vec::new();
        let mut rest = bytes;
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (part, left) = rest.split_at((*cut).min(rest.len()));
            parts.push(part);
            rest = left;
        }
        prop_assert_eq!(whole, read_all(parts.into_iter(), RequestLimits::default()));
    }

    #[test]
    fn nothing_makes_it_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        super::fuzz::request(&data);
    }
}
