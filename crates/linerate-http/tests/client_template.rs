//! Requests as sent: templates, their slots, and the demands of RFC 9112 and RFC 9110 on a client's
//! requests.

use linerate_http::client::{
    Body, BodyPart, Expect, Rendered, RequestPart, RequestSpec, Template, TemplateError, Values,
};

fn spec(method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> RequestSpec {
    let host = [("Host", "h")];
    RequestSpec {
        method: method.to_owned(),
        target: target.to_owned(),
        fields: host.iter().chain(fields).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        body: body.into(),
    }
}

fn compile(spec: &RequestSpec) -> Result<Template, TemplateError> {
    Template::compile(spec, &["users.id".to_owned(), "users.name".to_owned()])
}

fn render(template: &Template, seq: u64) -> String {
    let row: [Box<[u8]>; 2] = [b"17".as_slice().into(), b"Ann".as_slice().into()];
    let mut out = Vec::new();
    template.render(&Values { seq, now_ms: 1_700_000_000_000, seed: 42, row: &row }, &mut out);
    String::from_utf8(out).expect("text")
}

fn rendered(method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> String {
    render(&compile(&spec(method, target, fields, body)).expect("compiles"), 7)
}

/// The error of a request; its text must contain `hint`.
fn refused(spec: &RequestSpec, hint: &str) -> TemplateError {
    let error = compile(spec).expect_err("refused");
    assert!(error.to_string().contains(hint), "{error} lacks {hint:?}");
    error
}

#[test]
fn a_request_without_slots_is_fixed() {
    let template = compile(&spec("GET", "/a?b=c", &[("Accept", "*/*")], "")).expect("compiles");
    let bytes = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
    assert!(template.is_fixed());
    assert_eq!(template.fixed(), Some(&bytes[..]));
    assert_eq!(render(&template, 1).as_bytes(), bytes);
    assert_eq!((template.len_hint(), template.method(), template.closes()), (bytes.len(), "GET", false));
}

#[test]
fn slots_are_filled() {
    let fields = [("X-Seq", "n{{seq}}"), ("X-At", "{{ now_ms }}")];
    let text = rendered("POST", "/u/{{users.id}}", &fields, r#"{"name":"{{users.name}}","n":{{seq}}}"#);
    let head =
        "POST /u/17 HTTP/1.1\r\nHost: h\r\nX-Seq: n7\r\nX-At: 1700000000000\r\nContent-Length: 20\r\n\r\n";
    assert_eq!(text, format!("{head}{}", r#"{"name":"Ann","n":7}"#));
}

#[test]
fn braces_that_are_no_slots() {
    for (written, sent) in [
        ("{", "{"),
        ("{a}", "{a}"),
        ("}}", "}}"),
        ("{{{{seq}}", "{{seq}}"),
        ("{{{{{{{{", "{{{{"),
        ("{{{seq}}}", "{7}"),
        ("{{{{{{seq}}", "{{7"),
        ("{{{{{seq}}", "{{{seq}}"),
        (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
    ] {
        let text = rendered("PUT", "/", &[], written);
        assert_eq!(text.split("\r\n\r\n").nth(1), Some(sent), "{written:?}");
    }
}

#[test]
fn content_length_is_right_whatever_the_width() {
    let template = compile(&spec("PUT", "/", &[], "[{{seq}},{{rand:1-1000}}]")).expect("compiles");
    for seq in [0, 9, 10, 99, 100, 1 << 40, u64::MAX] {
        let text = render(&template, seq);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{text}");
        assert!(body.starts_with(&format!("[{seq},")));
    }
}

#[test]
fn rfc9110_8_6_content_length_is_sent_where_a_body_has_a_meaning() {
    for method in ["POST", "PUT", "PATCH"] {
        assert!(rendered(method, "/", &[], "").ends_with("\r\nContent-Length: 0\r\n\r\n"));
    }
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "X"] {
        assert!(!rendered(method, "/", &[], "").contains("Content-Length"), "{method}");
    }
    assert!(rendered("GET", "/", &[], "abc").ends_with("\r\nContent-Length: 3\r\n\r\nabc"));
    assert!(
        refused(&spec("POST", "/", &[("content-length", "3")], "abc"), "computed")
            .place
            .to_string()
            .contains("content-length")
    );
}

#[test]
fn random_numbers_depend_on_seed_number_and_place_alone() {
    let template = compile(&spec("GET", "/{{rand:1-6}}/{{rand:1-1000000}}/{{rand:1-1000000}}", &[], ""))
        .expect("compiles");
    let mut seen = [0u32; 7];
    let mut last = String::new();
    for seq in 0..6000 {
        let text = render(&template, seq);
        assert_eq!(text, render(&template, seq));
        let numbers: Vec<usize> =
            text.split(['/', ' ']).skip(2).take(3).map(|n| n.parse().expect("a number")).collect();
        assert!((1..=6).contains(&numbers[0]) && numbers[1] != numbers[2] && text != last);
        seen[numbers[0]] += 1;
        last = text;
    }
    // 1000 each are expected; more than six standard deviations (29 each) is an error.
    assert!(seen[1..].iter().all(|n| (826..=1174).contains(n)), "{seen:?}");
    assert!(rendered("GET", "/{{rand:5-5}}", &[], "").starts_with("GET /5 "));
    rendered("GET", &format!("/{{{{rand:0-{}}}}}", u64::MAX), &[], "");
}

#[test]
fn slots_that_are_none_are_explained() {
    let body = |text: &str| spec("POST", "/", &[], text);
    let error = refused(&body("ab{{sek}}"), "known are seq, now_ms");
    assert_eq!((error.place.clone(), error.at), (RequestPart::Body, 2));
    assert!(error.to_string().starts_with("the body, byte 2: unknown slot {{sek}}"), "{error}");
    refused(&body("{{users.nam}}"), "columns are users.id, users.name");
    refused(&body("{{seq"), "not closed");
    refused(&body("{{rand:9-1}}"), "LOW not above HIGH");
    refused(&body("{{rand:a}}"), "rand:LOW-HIGH");
    refused(&body("{{rand:1-18446744073709551616}}"), "rand:LOW-HIGH");
    let error = refused(&spec("GET", "/{{x}}", &[], ""), "unknown slot");
    assert_eq!((error.place, error.at), (RequestPart::Target, 1));
    let error = refused(&spec("GET", "/", &[("X", "  {{x}}")], ""), "unknown slot");
    assert_eq!((error.place, error.at), (RequestPart::Field("X".to_owned()), 2));
}

#[test]
fn rows_are_checked_where_they_are_used() {
    let template = compile(&spec("POST", "/{{users.id}}", &[("X", "{{users.name}}")], "{{users.name}}"))
        .expect("compiles");
    let row = |a: &[u8], b: &[u8]| [Box::from(a), Box::from(b)];
    assert_eq!(template.check_row(&row(b"17", b"Ann Lee")), Ok(()));
    let error = template.check_row(&row(b"1 7", b"")).expect_err("a space in the target");
    assert_eq!((error.column, error.at, error.byte), (0, 1, Some(b' ')));
    let error = template.check_row(&row(b"", b"a\r\nX: y")).expect_err("a line end in a field");
    assert_eq!((error.column, error.at, error.byte), (1, 1, Some(b'\r')));
    assert_eq!(template.check_row(&row(b"", b"")[..1]).expect_err("no such column").byte, None);
    let body = compile(&spec("POST", "/", &[], "{{users.name}}")).expect("compiles");
    assert_eq!(body.check_row(&row(b"", b"any\r\n\0thing")), Ok(()));
}

#[test]
fn idempotence_and_expectation_follow_the_method() {
    let of = |method: &str| {
        compile(&spec(method, if method == "CONNECT" { "h:1" } else { "/" }, &[], "")).expect("compiles")
    };
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
        assert!(of(method).is_idempotent(), "{method}");
    }
    for method in ["POST", "PATCH", "CONNECT", "get", "LOCK"] {
        assert!(!of(method).is_idempotent(), "{method}");
    }
    assert_eq!(of("HEAD").expect(), Expect::Head);
    assert_eq!(of("CONNECT").expect(), Expect::Connect);
    assert_eq!(of("GET").expect(), Expect::Usual);
}

#[test]
fn rfc9112_3_methods_are_tokens() {
    refused(&spec("", "/", &[], ""), "empty");
    for method in ["GE T", "GET ", "G\r\n", "GÄT", "{{seq}}"] {
        assert_eq!(refused(&spec(method, "/", &[], ""), "one word").place, RequestPart::Method);
    }
}

#[test]
fn rfc9112_3_2_targets_hold_no_white_space_controls_or_fragment() {
    for (target, hint, at) in [
        ("/a b", "%20", 2),
        ("/a\r\nX: y", "control", 2),
        ("/a\0", "control", 2),
        ("/ä", "percent-encode", 1),
        ("/a#b", "fragment", 2),
        ("/{{seq}} {{seq}}", "%20", 8),
        ("/{{{{ x", "%20", 5),
    ] {
        let error = refused(&spec("GET", target, &[], ""), hint);
        assert_eq!((error.place, error.at), (RequestPart::Target, at), "{target:?}");
    }
}

#[test]
fn rfc9112_3_2_there_is_exactly_one_host() {
    let mut bare = spec("GET", "/", &[], "");
    bare.fields.clear();
    refused(&bare, "exactly one Host");
    refused(&spec("GET", "/", &[("host", "other")], ""), "exactly one Host");
}

#[test]
fn rfc9112_3_2_1_origin_form_begins_with_a_slash() {
    refused(&spec("GET", "", &[], ""), "write /");
    for target in ["?a", "a", "*", "h:80", "://x", "1http://h/"] {
        refused(&spec("GET", target, &[], ""), "begins with /");
    }
    compile(&spec("GET", "{{users.id}}", &[], "")).expect("the row brings the slash");
}

#[test]
fn rfc9112_3_2_2_absolute_form_names_the_host_it_is_for() {
    assert!(rendered("GET", "http://h/x", &[], "").starts_with("GET http://h/x HTTP/1.1\r\n"));
    rendered("GET", "http://h", &[], "");
    refused(&spec("GET", "http://other/", &[], ""), "Host must be");
}

#[test]
fn rfc9112_3_2_3_connect_names_host_and_port_alone() {
    for target in ["/", "h", "h:0", "h:99999", "http://h:80", "u@h:80", "h:80/"] {
        refused(&spec("CONNECT", target, &[], ""), "HOST:PORT");
    }
    assert!(rendered("CONNECT", "[::1]:443", &[], "").starts_with("CONNECT [::1]:443 HTTP/1.1\r\n"));
}

#[test]
fn rfc9112_3_2_4_asterisk_is_for_options() {
    assert!(rendered("OPTIONS", "*", &[], "").starts_with("OPTIONS * HTTP/1.1\r\n"));
}

#[test]
fn rfc9110_4_2_4_no_user_and_password_in_a_target() {
    refused(&spec("GET", "http://u:p@h/", &[], ""), "Authorization");
}

#[test]
fn rfc9112_5_field_lines_are_well_formed() {
    for name in ["", "X Y", "X:", "X\r\n", "Ä", "{{seq}}"] {
        refused(&spec("GET", "/", &[(name, "v")], ""), "one word");
    }
    for value in ["a\r\nInjected: b", "a\nb", "a\rb", "a\0b", "a\x7f", "\r\n", "a\r\n b"] {
        refused(&spec("GET", "/", &[("X", value)], ""), "no control characters");
    }
    assert!(rendered("GET", "/", &[("X", " \t a b \t")], "").contains("\r\nX: a b\r\n"), "trimmed");
    assert!(rendered("GET", "/", &[("X", "ä")], "").contains("\r\nX: ä\r\n"));
}

#[test]
fn rfc9112_6_2_no_transfer_encoding_beside_content_length() {
    refused(&spec("POST", "/", &[("Transfer-Encoding", "chunked")], "x"), "6.2");
}

#[test]
fn rfc9112_7_4_te_is_declared_and_does_not_list_chunked() {
    refused(&spec("GET", "/", &[("TE", "trailers")], ""), "Connection: TE");
    refused(&spec("GET", "/", &[("TE", "gzip, chunked;q=1"), ("Connection", "te")], ""), "chunked");
    rendered("GET", "/", &[("TE", "trailers"), ("Connection", "x, TE")], "");
}

#[test]
fn rfc9110_7_8_upgrade_is_declared() {
    refused(&spec("GET", "/", &[("Upgrade", "websocket")], ""), "Connection: Upgrade");
    rendered("GET", "/", &[("Upgrade", "websocket"), ("Connection", "upgrade")], "");
}

#[test]
fn rfc9110_9_3_8_trace_shows_nothing_it_should_not() {
    refused(&spec("TRACE", "/", &[], "x"), "no body");
    refused(&spec("TRACE", "/", &[("cookie", "a=b")], ""), "TRACE");
}

#[test]
fn rfc9110_10_1_1_expect_continue_needs_a_body() {
    refused(&spec("POST", "/", &[("Expect", "100-Continue")], ""), "no body to wait with");
    rendered("POST", "/", &[("Expect", "100-continue")], "x");
}

#[test]
fn rfc9112_9_6_a_request_that_says_close_is_known() {
    let closes =
        |value: &str| compile(&spec("GET", "/", &[("connection", value)], "")).expect("compiles").closes();
    assert!(closes("close") && closes("x , CLOSE"));
    assert!(!closes("keep-alive, closed"));
}

/// Large constant stretches are the body's own memory; both ways of rendering give the same bytes.
#[test]
fn large_stretches_of_a_body_are_not_copied() {
    let large = "x".repeat(70_000);
    let text: std::sync::Arc<[u8]> = format!("{{{{seq}}}}{large}{{{{{{{{{large}").into_bytes().into();
    let raw: std::sync::Arc<[u8]> = b"{{raw".repeat(20_000).into();
    let mut body = Body::text(text.clone());
    body.push(BodyPart { bytes: raw.clone(), slots: false });
    body.push(BodyPart { bytes: b"{{small".as_slice().into(), slots: false });
    let fields = vec![("Host".to_owned(), "h".to_owned())];
    let spec = RequestSpec { method: "POST".to_owned(), target: "/".to_owned(), fields, body };
    let template = compile(&spec).expect("compiles");
    assert!(template.shares() && template.fixed().is_none());
    let owners: Vec<_> = template.shared().map(|bytes| bytes.as_ptr()).collect();
    assert_eq!(owners, [text.as_ptr(), text.as_ptr(), raw.as_ptr()]);
    let (mut whole, mut parts, mut copied, mut scratch) = (Vec::new(), Vec::new(), 0, Vec::new());
    let values = Values { seq: 12, now_ms: 0, seed: 1, row: &[] };
    template.render(&values, &mut whole);
    template.render_parts(&values, &mut scratch, |part| match part {
        Rendered::Copied(bytes) => {
            copied += bytes.len();
            parts.extend_from_slice(bytes);
        }
        Rendered::Shared(bytes, range) => parts.extend_from_slice(&bytes[range]),
    });
    let sent = format!("12{large}{{{{{large}{}{{{{small", "{{raw".repeat(20_000));
    assert!(
        whole == parts && whole.ends_with(format!("Content-Length: {}\r\n\r\n{sent}", sent.len()).as_bytes())
    );
    assert!(copied < 200, "{copied}");
    let error = compile(&RequestSpec { body: Body::text(format!("{large}{{{{x}}}}").into_bytes()), ..spec });
    assert_eq!(error.expect_err("no such slot").at, large.len());
}
