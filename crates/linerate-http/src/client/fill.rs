//! Slots generated for each request, and filters over a slot's text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linerate_base::{CalendarDay, DAY_S, mix};

use super::limits::RANDOM_TEXT;
use super::request::Values;
use super::slots::TemplateSlot;

/// A slot that is not just a number or cell: a source, and its filters in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) source: SlotSource,
    pub(super) filters: Box<[Filter]>,
}

/// The source of a slot's text, before filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotSource {
    Plain(TemplateSlot),
    /// A random UUID. `index` as in [`TemplateSlot::Random`].
    Uuid {
        index: u64,
    },
    /// Random letters and digits.
    Text {
        count: usize,
        index: u64,
    },
    /// The time in UTC.
    Date(Box<[DatePart]>),
}

/// A part of a date's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DatePart {
    Byte(u8),
    Field(u8),
}

/// A transformation of a slot's text before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Json,
    Url,
    Base64,
    /// The text itself, which must be a number, true, false or null of JSON.
    Number,
}

impl Made {
    pub(super) fn render(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        if self.filters.is_empty() {
            return self.source.render(v, out);
        }
        let mut text = Vec::new();
        self.source.render(v, &mut text);
        for filter in &self.filters {
            text = filter.apply(&text);
        }
        out.extend_from_slice(&text);
    }

    /// Whether its text must be a number of JSON.
    pub(super) fn is_number(&self) -> bool {
        self.filters.last() == Some(&Filter::Number)
    }

    /// The column it draws from.
    pub(super) fn column(&self) -> Option<usize> {
        match self.source {
            SlotSource::Plain(TemplateSlot::Column(column)) => Some(column),
            _ => None,
        }
    }
}

impl SlotSource {
    fn render(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        match self {
            SlotSource::Plain(slot) => slot.render(v, out),
            SlotSource::Uuid { index } => uuid(v, *index, out),
            SlotSource::Text { count, index } => {
                const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
                out.extend((0..*count as u64).map(|i| {
                    // The high half of the product is below 62.
                    LETTERS[((u128::from(noise(v, *index, i)) * 62) >> 64) as usize]
                }));
            }
            SlotSource::Date(parts) => date(v.now_ms, parts, out),
        }
    }
}

fn noise(v: &Values<'_>, index: u64, nth: u64) -> u64 {
    mix(mix(v.seed ^ mix(v.seq ^ mix(index))).wrapping_add(nth))
}

/// RFC 9562, section 5.4: version 4.
fn uuid(v: &Values<'_>, index: u64, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let random = (u128::from(noise(v, index, 0)) << 64) | u128::from(noise(v, index, 1));
    let fixed = (0xf << 76) | (0x3 << 62);
    let bits = (random & !fixed) | (0x4 << 76) | (0x2 << 62);
    for (i, byte) in bits.to_be_bytes().into_iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Parses a date's format: `%Y-%m-%dT%H:%M:%SZ`. The error says what would be right.
pub(super) fn date_parts(format: &str) -> Result<Box<[DatePart]>, &'static str> {
    let mut parts = Vec::new();
    let mut bytes = format.bytes();
    while let Some(byte) = bytes.next() {
        let part = match (byte, if byte == b'%' { bytes.next() } else { None }) {
            (b'%', Some(b'%')) => DatePart::Byte(b'%'),
            (b'%', Some(field)) if b"YmdHMSLjsFT".contains(&field) => DatePart::Field(field),
            (b'%', _) => return Err("after % stands one of Y m d H M S L j s F T %"),
            _ => DatePart::Byte(byte),
        };
        parts.push(part);
    }
    if parts.is_empty() { Err("the format is empty") } else { Ok(parts.into()) }
}

fn date(now_ms: u64, parts: &[DatePart], out: &mut Vec<u8>) {
    let seconds = now_ms / 1000;
    let date = CalendarDay::at((seconds / DAY_S) as i64);
    let CalendarDay { year, month, day } = date;
    let clock = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    for part in parts {
        let text = match part {
            DatePart::Byte(byte) => {
                out.push(*byte);
                continue;
            }
            DatePart::Field(b'Y') => format!("{year:04}"),
            DatePart::Field(b'm') => format!("{month:02}"),
            DatePart::Field(b'd') => format!("{day:02}"),
            DatePart::Field(b'H') => format!("{:02}", clock[0]),
            DatePart::Field(b'M') => format!("{:02}", clock[1]),
            DatePart::Field(b'S') => format!("{:02}", clock[2]),
            DatePart::Field(b'L') => format!("{:03}", now_ms % 1000),
            DatePart::Field(b'j') => format!("{:03}", date.of_year()),
            DatePart::Field(b's') => seconds.to_string(),
            DatePart::Field(b'F') => date.to_string(),
            DatePart::Field(_) => format!("{:02}:{:02}:{:02}", clock[0], clock[1], clock[2]),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Parses the number of characters of `rand_text:`.
pub(super) fn text_count(count: &str) -> Option<usize> {
    count.trim().parse().ok().filter(|n| (1..=RANDOM_TEXT).contains(n))
}

/// Whether text is a number, true, false or null of JSON (RFC 8259, sections 3 and 6).
pub(super) fn is_json_number(text: &[u8]) -> bool {
    if matches!(text, b"true" | b"false" | b"null") {
        return true;
    }
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text[0] == b'0') {
        return false;
    }
    let mut rest = &text[whole..];
    if let Some(after) = rest.strip_prefix(b".") {
        let fraction = digits(after);
        if fraction == 0 {
            return false;
        }
        rest = &after[fraction..];
    }
    if let [b'e' | b'E', after @ ..] = rest {
        let after = after.strip_prefix(b"+").or(after.strip_prefix(b"-")).unwrap_or(after);
        return !after.is_empty() && digits(after) == after.len();
    }
    rest.is_empty()
}

impl Filter {
    pub(super) fn named(name: &str) -> Option<Filter> {
        match name {
            "json" => Some(Filter::Json),
            "url" => Some(Filter::Url),
            "base64" => Some(Filter::Base64),
            "number" => Some(Filter::Number),
            _ => None,
        }
    }

    fn apply(self, text: &[u8]) -> Vec<u8> {
        match self {
            Filter::Json => text.iter().fold(Vec::with_capacity(text.len()), |mut out, byte| {
                match byte {
                    b'"' | b'\\' => out.extend([b'\\', *byte]),
                    0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                    _ => out.push(*byte),
                }
                out
            }),
            Filter::Url => text.iter().fold(Vec::with_capacity(text.len()), |mut out, byte| {
                // The unreserved characters of RFC 3986, section 2.3.
                match byte {
                    b'-' | b'.' | b'_' | b'~' => out.push(*byte),
                    _ if byte.is_ascii_alphanumeric() => out.push(*byte),
                    _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                }
                out
            }),
            Filter::Base64 => STANDARD.encode(text).into_bytes(),
            Filter::Number => text.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::client::{RequestSpec, Template, TemplateError, Values};

    fn body(text: &str, seq: u64, cell: &str) -> Result<String, TemplateError> {
        let spec = RequestSpec {
            method: "POST".to_owned(),
            target: "/{{csv.a|url}}".to_owned(),
            fields: vec![("Host".to_owned(), "h".to_owned())],
            body: text.into(),
        };
        let template = Template::compile(&spec, &["csv.a".to_owned()])?;
        let row = [cell.as_bytes().into()];
        template.check_row(&row).expect("the filter makes it fit for a target");
        let mut out = Vec::new();
        template.render(&Values { seq, now_ms: 1_709_210_096_007, seed: 1, row: &row }, &mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        Ok(body.to_owned())
    }

    #[test]
    fn numbers_are_those_of_json() {
        for text in ["0", "-1", "10.50", "1e9", "2E-3", "true", "false", "null"] {
            assert!(super::is_json_number(text.as_bytes()), "{text}");
        }
        for text in ["", "-", "01", "1.", ".5", "1e", "+1", "0x1", "1 ", "nul", "NaN", "1,2"] {
            assert!(!super::is_json_number(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn filters_are_applied_in_their_order() {
        let cell = "a\"b\\c\n/ü";
        assert_eq!(body("{{csv.a|json}}", 0, cell).expect("good"), "a\\\"b\\\\c\\u000a/ü");
        assert_eq!(body("{{ csv.a | url }}", 0, cell).expect("good"), "a%22b%5Cc%0A%2F%C3%BC");
        assert_eq!(body("{{csv.a|base64}}", 0, "hi?>").expect("good"), "aGk/Pg==");
        assert_eq!(body("{{csv.a|base64|url}}", 0, "hi?>").expect("good"), "aGk%2FPg%3D%3D");
        assert!(
            body("{{csv.a|xml}}", 0, "")
                .expect_err("no such filter")
                .problem
                .contains("json, url, base64, number")
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |format: &str| body(&format!("{{{{date:{format}}}}}"), 0, "").expect("good");
        assert_eq!(date("%Y-%m-%dT%H:%M:%S.%LZ"), "2024-02-29T12:34:56.007Z");
        assert_eq!(date("%F %T %j %s %%"), "2024-02-29 12:34:56 060 1709210096 %");
        assert!(body("{{date:%Q}}", 0, "").is_err() && body("{{date:}}", 0, "").is_err());
    }

    #[test]
    fn random_text_and_uuids_differ_and_repeat() {
        let made = |seq| body("{{uuid}} {{uuid}} {{rand_text:8}}", seq, "").expect("good");
        let first = made(0);
        assert_eq!(first, made(0));
        assert_ne!(first, made(1));
        let parts: Vec<_> = first.split(' ').collect();
        assert_ne!(parts[0], parts[1]);
        for uuid in &parts[..2] {
            let dashes: Vec<_> = uuid.match_indices('-').map(|(at, _)| at).collect();
            assert_eq!((uuid.len(), dashes), (36, vec![8, 13, 18, 23]), "{uuid}");
            assert!(uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
        assert!(parts[2].len() == 8 && parts[2].bytes().all(|b| b.is_ascii_alphanumeric()), "{first}");
        for bad in ["{{rand_text:0}}", "{{rand_text:x}}", "{{rand_text:65537}}"] {
            assert!(body(bad, 0, "").is_err(), "{bad}");
        }
    }
}
