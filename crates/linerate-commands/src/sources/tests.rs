//! Holds for every source: the requests that it reads can be sent unchanged.

use linerate_http::client::{RequestSpec, Template, Values};
use proptest::prelude::*;

use super::*;

/// The bytes of a request as a run would send them.
fn compiled(request: &Request) -> Result<Vec<u8>, String> {
    let mut fields = request.fields.clone();
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        fields.push(("Host".to_owned(), "host".to_owned()));
    }
    let spec = RequestSpec {
        method: request.method.clone(),
        target: request.path.clone(),
        fields,
        body: request.body.clone().unwrap_or_default(),
    };
    let template = Template::compile(&spec, &[]).map_err(|e| format!("{request:?}: {e}"))?;
    let mut bytes = Vec::new();
    template.render(&Values { seq: 0, now_ms: 0, seed: 0, row: &[] }, &mut bytes);
    Ok(bytes)
}

fn path() -> &'static Path {
    Path::new("input")
}

/// A file of our own, for what only reads files.
fn with_file<T>(name: &str, content: &[u8], use_it: impl FnOnce(&Path) -> T) -> T {
    let path = std::env::temp_dir().join(format!("linerate-sources-{name}-{}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let result = use_it(&path);
    std::fs::remove_file(&path).unwrap();
    result
}

#[test]
fn text_files_are_utf8_and_of_a_size() {
    let said =
        |content: &[u8], most| with_file("text", content, |p| read_text(p, most).map_err(|e| e.to_string()));
    assert_eq!(said(b"\xef\xbb\xbfa", 4), Ok("a".to_owned()));
    assert!(said(b"a\nb\n\xff", 100).unwrap_err().ends_with(":3: is not UTF-8 text"));
    assert!(said(b"12345", 5).is_ok() && said(b"123456", 5).is_err());
    assert!(read_text(&std::env::temp_dir(), 5).unwrap_err().to_string().ends_with("is a directory"));
}

#[test]
fn sources_read_files() {
    let log = b"h - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 1\n";
    assert_eq!(with_file("log", log, |p| replay::load(p, 2.0)).unwrap().requests[0].path, "/a");
    let har = br#"{"log":{"entries":[{"request":{"method":"GET","url":"http://h/b"}}]}}"#;
    assert_eq!(with_file("har", har, |p| har::load(p, None)).unwrap().url.as_deref(), Some("http://h"));
    let api = b"openapi: 3.0.0\npaths: { /c: { get: {} } }";
    let source = with_file("api", api, |p| openapi::load(p, openapi::Options::default())).unwrap();
    assert_eq!(source.requests[0].path, "/c");
}

#[test]
fn percent_encoding() {
    assert_eq!(encode_component("a b/\u{e9}~".as_bytes()), "a%20b%2F%C3%A9~");
    assert_eq!(decode_percent("a%20b%2f%zz%4"), b"a b/%zz%4");
}

#[test]
fn lists_are_cut() {
    let items: Vec<String> = (0..15).map(|i| i.to_string()).collect();
    assert_eq!(listed(&items[..2]), "0, 1");
    assert!(listed(&items).ends_with("11 and 3 more"));
}

/// Text with what parsers stumble over.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "B",
        "0",
        " ",
        "/",
        "?",
        "&",
        "=",
        "%",
        "%2",
        "%41",
        "#",
        "{",
        "{{",
        "}}",
        "{{seq}}",
        "\\",
        "'",
        "\"",
        "$'",
        "\\u",
        "\\x4",
        "\n",
        "\r\n",
        "\t",
        "\u{0}",
        "\u{7f}",
        "\u{e9}",
        "\u{1F600}",
        ":",
        ";",
        "@",
        "[",
        "]",
        "-",
        "--",
        "|",
        "http://",
        "h",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|p| p.concat())
}

proptest! {
    #[test]
    fn no_curl_command_makes_it_panic(words in prop::collection::vec(nasty(), 0..6), flags in prop::collection::vec("-[a-zA-Z#:0-9]{1,3}|--[a-z0-9-]{2,12}", 0..4)) {
        let command = format!("curl {} {} http://h/", flags.join(" "), words.join(" "));
        let _ = curl::parse(&command);
    }

    #[test]
    fn copied_commands_can_be_sent(path in nasty(), value in nasty(), body in nasty()) {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let field = format!("X-A: {value}");
        let command = format!("curl -g {} -H {} --data-raw {}", quoted(&format!("http://h/{path}")), quoted(&field), quoted(&body));
        if let Ok(source) = curl::parse(&command) {
            for request in &source.requests {
                // Users type slots on purpose; only text that looks like a slot and is not one is
                // an error.
                if let Err(why) = compiled(request) {
                    prop_assert!(why.contains("slot"), "{}", why);
                }
            }
        }
    }

    #[test]
    fn recorded_requests_are_sent_as_they_were(path in nasty(), name in nasty(), value in nasty(), body in nasty()) {
        let har = serde_json::json!({ "log": { "entries": [{ "request": {
            "method": "POST", "url": format!("http://h/{path}"),
            "headers": [{ "name": name, "value": value }, { "name": "X-B", "value": value }],
            "postData": { "mimeType": "text/plain", "text": body },
        } }] } });
        let loaded = with_file("har-any", har.to_string().as_bytes(), |p| har::load(p, None));
        if let Ok(source) = loaded {
            for request in &source.requests {
                let bytes = compiled(request);
                prop_assert!(bytes.as_ref().is_ok_and(|b| b.ends_with(body.as_bytes())), "{:?}", bytes);
            }
        }
    }

    #[test]
    fn logged_requests_can_be_sent(target in nasty(), line in nasty()) {
        let log = format!("{line}\nh - - [10/Oct/2000:13:55:36 -0700] \"GET /{target} HTTP/1.1\" 200 1\n{line}");
        if let Ok(source) = with_file("log-any", log.as_bytes(), |p| replay::load(p, 1.0)) {
            for request in &source.requests {
                prop_assert!(compiled(request).is_ok(), "{:?}", compiled(request));
            }
        }
    }

    #[test]
    fn described_requests_can_be_sent(template in nasty(), name in nasty(), example in nasty(), place in prop::sample::select(vec!["path", "query", "header", "cookie"])) {
        let api = serde_json::json!({ "openapi": "3.0.0", "paths": { format!("/{template}"): { "get": {
            "parameters": [{ "name": name, "in": place, "required": true, "example": example }],
        } } } });
        if let Ok(source) = with_file("api-any", api.to_string().as_bytes(), |p| openapi::load(p, openapi::Options::default())) {
            for request in &source.requests {
                prop_assert!(compiled(request).is_ok(), "{:?}", compiled(request));
            }
        }
    }

    #[test]
    fn no_description_makes_it_panic(text in "[a-z:{}\\[\\]&*'\"|>,.\n $/#-]{0,120}") {
        let _ = with_file("yaml-any", format!("openapi: 3.0.0\npaths:\n  /:\n{text}").as_bytes(), |p| openapi::load(p, openapi::Options { unsafe_methods: true }));
    }
}

#[test]
fn the_place_of_an_error_is_shown() {
    assert_eq!(SourceError::at(path(), 3, Some(4), "x").to_string(), "input:3:4: x");
    assert_eq!(SourceError::at(path(), 3, None, "x").to_string(), "input:3: x");
}
