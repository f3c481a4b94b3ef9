//! Parts of requests as people write them, the same for flags, plan files and other sources.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine as _;

use super::InvalidPlan;
use super::units::quoted;

pub use crate::extract::is_token;

/// The value of Accept-Encoding for `--compressed` (RFC 9110 section 12.5.3).
pub const COMPRESSED: (&str, &str) = ("Accept-Encoding", "gzip, deflate, br, zstd");

/// Fields that belong to one connection or to one message's framing (RFC 9110 section 7.6.1). Those
/// of a recorded request are not replayed, because ours has its own connection and framing.
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// `text` with what would begin a slot meant literally: `{{` becomes `{{{{`.
pub fn literal(text: &str) -> Cow<'_, str> {
    if text.contains("{{") { Cow::Owned(text.replace("{{", "{{{{")) } else { Cow::Borrowed(text) }
}

/// `text`, a string of a JSON value, with the filter `|json` on each slot that draws from data: a
/// cell cannot end the string.
pub fn escaped_in_json(text: &str) -> String {
    const SAFE: [&str; 6] = ["seq", "now_ms", "uuid", "rand:", "rand_text:", "date:"];
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find("}}").filter(|_| rest.starts_with("{{") && !rest.starts_with("{{{"));
        let Some(end) = end else {
            // Four braces stand for two; of three, the first means itself.
            let length = if rest.starts_with("{{{{") { 4 } else { 1 };
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        };
        let name = rest[2..end].trim();
        let is_safe =
            SAFE.iter().any(|safe| name == *safe || (safe.ends_with(':') && name.starts_with(safe)));
        let done = name.rsplit_once('|').is_some_and(|(_, f)| matches!(f.trim(), "json" | "number"));
        out.push_str(&rest[..end]);
        out.push_str(if is_safe || done { "}}" } else { "|json}}" });
        rest = &rest[end + 2..];
    }
    out + rest
}

/// Whether a recorded field is left out when the request is made again.
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|h| h.eq_ignore_ascii_case(name))
}

/// Reads `Name: value`. The error says what is wrong with it.
pub fn parse_header(text: &str) -> Result<(String, String), InvalidPlan> {
    let Some((name, value)) = text.split_once(':') else {
        return Err(format!("header {} has no colon; write \"Name: value\"", quoted(text)).into());
    };
    if !is_token(name) {
        return Err(format!("{} is no header name; write \"Name: value\"", quoted(name)).into());
    }
    if value.bytes().any(|b| b == b'\r' || b == b'\n' || b == 0) {
        return Err(format!("the value of header {} holds a line break", quoted(name)).into());
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// The field that `--user NAME:PASS` makes (RFC 7617).
pub fn basic_auth(user: &str) -> (String, String) {
    ("Authorization".to_owned(), format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user)))
}

/// Sets a field, in place of one of the same name where there is one.
pub fn set_field(fields: &mut Vec<(String, String)>, name: &str, value: &str) {
    match fields.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
        Some(field) => field.1 = value.to_owned(),
        None => fields.push((name.to_owned(), value.to_owned())),
    }
}

/// Whether there is a field of that name.
pub fn has_field(fields: &[(String, String)], name: &str) -> bool {
    fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
}

/// Reads statuses: `200,204`, and whole classes as `2xx`.
pub fn parse_statuses(text: &str) -> Result<Vec<u16>, InvalidPlan> {
    let mut statuses = Vec::new();
    for part in text.split(',').map(str::trim) {
        let class =
            part.strip_suffix("xx").and_then(|c| c.parse::<u16>().ok()).filter(|c| (1..=5).contains(c));
        match (class, part.parse::<u16>()) {
            (Some(class), _) => statuses.extend(class * 100..class * 100 + 100),
            (None, Ok(status)) if part.len() == 3 && (100..=599).contains(&status) => statuses.push(status),
            _ => {
                return Err(
                    format!("{} is no status; write for example 200, 200,204 or 2xx", quoted(part)).into()
                );
            }
        }
    }
    Ok(statuses)
}

/// Reads source addresses: `127.0.0.1,127.0.0.2`.
pub fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, InvalidPlan> {
    let parse = |part: &str| {
        part.trim().parse().map_err(|_| {
            InvalidPlan::from(format!(
                "{} is no IP address; write for example 127.0.0.2 or 127.0.0.2,127.0.0.3",
                quoted(part.trim())
            ))
        })
    };
    text.split(',').map(parse).collect()
}

/// Percent-encodes what may not stand in a request target (RFC 9112 section 3.2), leaving what is
/// already encoded.
pub fn encode_target(text: &str) -> Cow<'_, str> {
    let allowed = |b: u8| b.is_ascii_graphic() && b != b'#';
    if text.bytes().all(allowed) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        match allowed(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    Cow::Owned(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_text_is_what_the_template_makes_of_it() {
        use linerate_http::client::{RequestSpec, Template};
        for text in ["", "{", "{{", "{{{", "{{{{", "a{{b}}c", "{\"a\":{}}", "{{seq}}", "x{{{y}}}", "{{{{{"] {
            let spec = RequestSpec {
                method: "POST".to_owned(),
                target: "/".to_owned(),
                fields: vec![("Host".to_owned(), "h".to_owned())],
                body: literal(text).into_owned().into(),
            };
            let template = Template::compile(&spec, &[]).unwrap();
            let fixed = String::from_utf8(template.fixed().unwrap().to_vec()).unwrap();
            assert_eq!(fixed.split_once("\r\n\r\n").unwrap().1, text);
        }
    }

    #[test]
    fn slots_in_json_are_escaped_once() {
        for (text, escaped) in [
            ("{{csv.a}} {{ csv.b }}", "{{csv.a|json}} {{ csv.b |json}}"),
            ("{{csv.a|json}} {{csv.a | base64}}", "{{csv.a|json}} {{csv.a | base64|json}}"),
            ("{{seq}}{{rand:1-2}}{{uuid}}{{date:%F}}", "{{seq}}{{rand:1-2}}{{uuid}}{{date:%F}}"),
            ("{{{{csv.a}} {{{csv.a}} {csv.a}} {", "{{{{csv.a}} {{{csv.a|json}} {csv.a}} {"),
            ("{{csv.a", "{{csv.a"),
        ] {
            assert_eq!(escaped_in_json(text), escaped);
        }
    }

    #[test]
    fn headers() {
        let ok = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_header("Accept: */*"), ok("Accept", "*/*"));
        assert_eq!(parse_header("X-A:b:c"), ok("X-A", "b:c"));
        assert_eq!(parse_header("X-Empty:"), ok("X-Empty", ""));
        for text in ["", "no colon", "a b: c", ": v", "X: a\r\nY: b", "X\u{e9}: a"] {
            assert!(parse_header(text).is_err(), "{text}");
        }
    }

    #[test]
    fn statuses() {
        assert_eq!(parse_statuses("200"), Ok(vec![200]));
        assert_eq!(parse_statuses("200, 204"), Ok(vec![200, 204]));
        assert_eq!(parse_statuses("2xx").map(|s| (s.len(), s[0], s[99])), Ok((100, 200, 299)));
        for text in ["", "20", "600", "abc", "200,", "6xx", "0200", "+200"] {
            assert!(parse_statuses(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_addresses("127.0.0.1, ::1").map(|a| a.len()), Ok(2));
        assert!(parse_addresses("localhost").is_err());
        assert!(parse_addresses("").is_err());
    }

    #[test]
    fn basic_authentication_as_in_the_rfc() {
        // RFC 7617 section 2.
        let field = ("Authorization".to_owned(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned());
        assert_eq!(basic_auth("Aladdin:open sesame"), field);
    }

    #[test]
    fn targets_are_encoded_once() {
        assert_eq!(encode_target("/a?b=c%20d"), "/a?b=c%20d");
        assert_eq!(encode_target("/a b#\u{e9}\u{1}"), "/a%20b%23%C3%A9%01");
    }

    #[test]
    fn fields_are_replaced_by_name() {
        let mut fields = vec![("accept".to_owned(), "a".to_owned())];
        set_field(&mut fields, "Accept", "b");
        set_field(&mut fields, "X", "c");
        assert_eq!(fields, [("accept".to_owned(), "b".to_owned()), ("X".to_owned(), "c".to_owned())]);
        assert!(has_field(&fields, "x") && !has_field(&fields, "y"));
    }
}
