use super::*;

/// Events of a stream offered in pieces; `answers`: the method of the request.
fn read(pieces: &[&[u8]], method: Option<&str>) -> Vec<String> {
    let (budget, mut reader, mut out) = (Budget::new(10_000), MessageReader::new(1000), Vec::new());
    for piece in pieces {
        let mut data = *piece;
        while let Some(event) = reader.next(&mut data, true, &budget) {
            out.push(match &event {
                MessageEvent::Head(head) => {
                    let body = match &head.line {
                        StartLine::Request { .. } => head.request_body(),
                        StartLine::Status(status) => head.answer_body(*status, method),
                    };
                    reader.body(body);
                    match &head.line {
                        StartLine::Request { method, target } => format!("{method} {target} {body:?}"),
                        StartLine::Status(status) => format!("{status} {body:?}"),
                    }
                }
                other => format!("{other:?}"),
            });
        }
    }
    out.extend(reader.close(&budget).map(|e| format!("close {e:?}")));
    out.retain(|e| e != "Begin");
    out
}

const END: &str = "End { cut: false, holed: false }";

#[test]
fn pipelined_requests_are_told_apart() {
    let two = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n";
    let expected = ["POST /a Length(3)", END, "GET /b Length(0)", END];
    assert_eq!(read(&[two], None), expected);
    let bytes: Vec<&[u8]> = two.chunks(1).collect();
    assert_eq!(read(&bytes, None), expected, "whatever the cuts");
}

#[test]
fn framing_of_answers() {
    // RFC 9112, section 6.3.
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
    assert_eq!(read(&[chunked], Some("GET")), ["200 Chunked", END, "204 Length(0)", END]);
    assert_eq!(read(&[b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n"], Some("GET")), ["304 Length(0)", END]);
    assert_eq!(read(&[b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\n"], Some("HEAD")), ["200 Length(0)", END]);
    assert_eq!(
        read(&[b"HTTP/1.0 200 x\r\n\r\nabc"], Some("GET")),
        ["200 UntilClose", &format!("close {END}")]
    );
    assert_eq!(read(&[b"HTTP/1.1 200 x\r\n\r\n\x16\x03"], Some("CONNECT")), ["200 Tunnel"]);
    assert_eq!(read(&[b"HTTP/1.1 101 x\r\n\r\n\x81\x01"], Some("GET")), ["101 Tunnel"]);
    let cut = read(&[b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nab"], Some("GET"));
    assert_eq!(cut[1], "close End { cut: true, holed: false }");
}

#[test]
fn what_is_not_http_is_named() {
    assert_eq!(read(&[&[0x16, 0x03, 0x01, 2, 0, 1]], None), ["Foreign(Tls)"]);
    assert_eq!(read(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], None), ["Foreign(Http2)"]);
    assert_eq!(read(&[b"220 mail.example ESMTP\r\n"], None), ["Foreign(Unknown)"]);
    assert_eq!(read(&[b"EHLO example.org\r\n"], None), ["Foreign(Unknown)"]);
}

#[test]
fn a_message_is_found_again_at_the_start_of_a_segment() {
    let out = read(&[b"the middle of a body", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], Some("GET"));
    assert_eq!(out, ["Foreign(Unknown)", "200 Length(0)", END]);
}

#[test]
fn holes_within_a_body_are_stepped_over() {
    let (budget, mut reader) = (Budget::new(1000), MessageReader::new(1000));
    let mut data: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab";
    assert_eq!(reader.next(&mut data, true, &budget), Some(MessageEvent::Begin));
    assert!(matches!(reader.next(&mut data, true, &budget), Some(MessageEvent::Head(_))));
    reader.body(Body::Length(10));
    assert_eq!(reader.next(&mut data, true, &budget), None);
    assert_eq!(reader.hole(4, &budget), None);
    assert_eq!(reader.hole(4, &budget), Some(MessageEvent::End { cut: false, holed: true }));
    assert_eq!(
        reader.hole(1, &budget),
        Some(MessageEvent::Lost),
        "between messages nobody knows what was in it"
    );
}

#[test]
fn an_endless_head_is_no_head() {
    let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 2000]].concat();
    assert_eq!(read(&[&long], None), ["Foreign(Unknown)"]);
}

#[test]
fn malformed_request_lines_are_requests_all_the_same() {
    assert_eq!(read(&[b"GET /HTTP/1.1\r\n\r\n"], None)[0], "GET /HTTP/1.1 Length(0)");
    assert_eq!(read(&[b"GET / \r\n\r\n"], None)[0], "GET / Length(0)".replace("/ ", "/  "));
}
