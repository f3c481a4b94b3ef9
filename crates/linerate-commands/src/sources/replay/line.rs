//! A line of an access log.

use linerate_base::{CalendarDay, DAY_S};

/// The contents of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    /// Seconds since 1970, UTC.
    pub(super) second: i64,
    pub(super) method: String,
    /// In origin form; escapes of the log undone.
    pub(super) target: String,
    pub(super) status: Option<u16>,
}

/// Why a line gives no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It is not in the format.
    Format,
    /// It is a log line, but logs something other than a request for a path: a TLS handshake, a
    /// proxy's CONNECT, `OPTIONS *`.
    Request(String),
}

/// Reads a line: anything, then `[time]`, then `"request"`, then the status.
pub(super) fn parse(line: &str) -> Result<LogLine, Unusable> {
    if line.trim_start().starts_with('{') {
        return parse_json(line);
    }
    let (second, rest) = line
        .match_indices('[')
        .find_map(|(at, _)| {
            let (time, rest) = line[at + 1..].split_once(']')?;
            Some((parse_time(time)?, rest))
        })
        .ok_or(Unusable::Format)?;
    let rest = rest.trim_start().strip_prefix('"').ok_or(Unusable::Format)?;
    let end = end_of_quote(rest).ok_or(Unusable::Format)?;
    let (request, after) = (&rest[..end], &rest[end + 1..]);
    let status = after.split_ascii_whitespace().next().and_then(|s| s.parse().ok());
    let unusable = || Unusable::Request(request.to_owned());
    let mut words = request.splitn(2, ' ');
    let (method, rest) = words.next().zip(words.next()).ok_or_else(unusable)?;
    // A space may stand in the target of a broken client; the protocol is the last word, or missing
    // (HTTP/0.9).
    let target = match rest.rsplit_once(' ') {
        Some((target, protocol)) if protocol.starts_with("HTTP/") => target,
        _ => rest,
    };
    let target = origin_form(&unescape(target)).filter(|_| is_method(method)).ok_or_else(unusable)?;
    Ok(LogLine { second, method: method.to_owned(), target, status })
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-' || b == b'_')
}

/// A line of a JSON log.
///
/// - `linerate serve`: `{"time":784111777,...,"status":200,...,"method":"GET","target":"/",...}`. A refused
///   request has `request` instead of `method` and `target`.
/// - Caddy: `{"ts":784111777.25,...,"request":{...,"method":"GET","uri":"/",...},"duration":0.01,"status":200,...}`,
///   written when the response has left. Other lines have no `request`.
fn parse_json(line: &str) -> Result<LogLine, Unusable> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum LoggedTarget {
        Refused(String),
        Caddy { method: String, uri: String },
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Moment {
        Number(f64),
        Text(String),
    }
    #[derive(serde::Deserialize)]
    struct Logged {
        time: Option<i64>,
        ts: Option<Moment>,
        duration: Option<f64>,
        msg: Option<String>,
        status: Option<u16>,
        method: Option<String>,
        target: Option<String>,
        request: Option<LoggedTarget>,
    }
    let logged: Logged = serde_json::from_str(line).map_err(|_| Unusable::Format)?;
    let ended = match &logged.ts {
        Some(Moment::Number(number)) => Some(in_seconds(*number)),
        Some(Moment::Text(text)) => Some(parse_iso(text).ok_or(Unusable::Format)?),
        None => None,
    };
    let began = ended.map(|at| (at - logged.duration.unwrap_or(0.0)).floor() as i64);
    let second = logged.time.or(began).ok_or(Unusable::Format)?;
    let (method, target) = match (logged.method, logged.target, logged.request) {
        (Some(method), Some(target), _) | (.., Some(LoggedTarget::Caddy { method, uri: target })) => {
            (method, target)
        }
        (.., Some(LoggedTarget::Refused(request))) => return Err(Unusable::Request(request)),
        _ => return Err(logged.msg.filter(|_| began.is_some()).map_or(Unusable::Format, Unusable::Request)),
    };
    match origin_form(&target).filter(|_| is_method(&method)) {
        Some(target) => Ok(LogLine { second, method, target, status: logged.status }),
        None => Err(Unusable::Request(format!("{method} {target}"))),
    }
}

/// A time of Caddy's log in seconds: it may count seconds, milliseconds or nanoseconds since 1970.
fn in_seconds(number: f64) -> f64 {
    match number {
        ..1e11 => number,
        ..1e14 => number / 1e3,
        _ => number / 1e9,
    }
}

/// `2026-11-21T04:00:05.25Z`, `2026/11/21 04:00:05.250`: in seconds since 1970.
fn parse_iso(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let has_form = matches!(bytes[4], b'-' | b'/') && matches!(bytes[10], b'T' | b't' | b' ');
    let is_possible = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    if !(has_form && is_possible && second <= 60) {
        return None;
    }
    let rest = &text[19..];
    let digits = rest.strip_prefix('.').map_or(0, |f| 1 + f.bytes().take_while(u8::is_ascii_digit).count());
    let fraction: f64 = if digits > 1 { format!("0{}", &rest[..digits]).parse().ok()? } else { 0.0 };
    let zone = &rest[digits..];
    let offset = match zone.as_bytes().first() {
        None | Some(b'Z' | b'z') => 0,
        Some(sign @ (b'+' | b'-')) => {
            let zone: String = zone[1..].chars().filter(|c| *c != ':').collect();
            let (hours, minutes) =
                (zone.get(..2)?.parse::<i64>().ok()?, zone.get(2..4)?.parse::<i64>().ok()?);
            (hours * 3600 + minutes * 60) * if *sign == b'+' { 1 } else { -1 }
        }
        Some(_) => return None,
    };
    let days = CalendarDay { year, month: month as u8, day: day as u8 }.since_1970();
    let seconds = days * DAY_S as i64 + hour * 3600 + minute * 60 + second - offset;
    Some(seconds as f64 + fraction)
}

/// The end of the quote, past quotes that the log escaped.
fn end_of_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    })
}

/// The path and query of a target in origin or absolute form.
fn origin_form(target: &str) -> Option<String> {
    if target.starts_with('/') {
        return Some(target.split('#').next().unwrap_or("").to_owned());
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let path = rest.find(['/', '?']).map_or("/", |at| &rest[at..]);
    Some(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
}

/// Undoes `\xHH`, `\"` and `\\`, which logs write for what would break the line.
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 2..at + 4).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[at], bytes.get(at + 1), hex) {
            (b'\\', Some(b'x'), Some(byte)) => {
                plain.push(byte);
                at += 4;
            }
            (b'\\', Some(b'"' | b'\\'), _) => {
                plain.push(bytes[at + 1]);
                at += 2;
            }
            (byte, ..) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// `10/Oct/2000:13:55:36 -0700` in seconds since 1970.
fn parse_time(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (moment, zone) = text.split_once(' ')?;
    let mut parts = moment.splitn(4, ['/', ':']);
    let number = |text: &str, digits: usize, most: i64| {
        let all_digits = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i64>().ok().filter(|n| all_digits && *n <= most)
    };
    let day = number(parts.next()?, 2, 31).filter(|d| *d > 0)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|m| m.eq_ignore_ascii_case(name))? as u8 + 1;
    let year = number(parts.next()?, 4, 9999)?;
    let mut clock = parts.next()?.split(':');
    let hour = number(clock.next()?, 2, 23)?;
    let minute = number(clock.next()?, 2, 59)?;
    let second = number(clock.next()?, 2, 60)?;
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (zone_hours, zone_minutes) = (number(zone.get(1..3)?, 2, 23)?, number(zone.get(3..)?, 2, 59)?);
    let offset = sign * (zone_hours * 3600 + zone_minutes * 60);
    let ended = clock.next().is_none();
    let day = CalendarDay { year, month, day: day as u8 };
    ended.then(|| day.since_1970() * DAY_S as i64 + hour * 3600 + minute * 60 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("10/Oct/2000:13:55:36 -0700", 971_211_336),
            ("29/Feb/2024:23:59:59 +0000", 1_709_251_199),
            ("01/Mar/2024:00:00:00 +0000", 1_709_251_200),
            ("01/Mar/2100:00:00:00 +0530", 4_107_522_600),
            ("31/Dec/1969:23:59:59 +0000", -1),
        ] {
            assert_eq!(parse_time(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "10/Oct/2000",
            "10/Foo/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "32/Oct/2000:13:55:36 +0000",
            "10/Oct/2000:24:55:36 +0000",
            "10/Oct/2000:13:55:36 0700",
            "1/Oct/2000:13:55:36 +0000",
            "10/Oct/2000:13:55:36:1 +0000",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn times_of_caddy() {
        for (text, seconds) in [
            ("2024-02-29T23:59:59Z", 1_709_251_199.0),
            ("2024-02-29T23:59:59.250+01:00", 1_709_247_599.25),
            ("2024/02/29 23:59:59.5", 1_709_251_199.5),
            ("2024-03-01T05:30:00.000+0530", 1_709_251_200.0),
        ] {
            assert_eq!(parse_iso(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "soon",
            "2024-02-29",
            "2024-13-01T00:00:00Z",
            "2024-02-29T23:59:59 GMT",
            "\u{e9}24-02-29T23:59:59",
        ] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
        assert_eq!((in_seconds(1.7e9), in_seconds(1.7e12), in_seconds(1.7e18)), (1.7e9, 1.7e9, 1.7e9));
    }

    fn parsed(request: &str) -> Result<(String, String), Unusable> {
        let line = format!("h - - [10/Oct/2000:13:55:36 -0700] \"{request}\" 200 5");
        parse(&line).map(|l| (l.method.to_owned(), l.target.clone()))
    }

    #[test]
    fn requests() {
        let ok = |method: &str, target: &str| Ok((method.to_owned(), target.to_owned()));
        assert_eq!(parsed("GET /a?b=c HTTP/1.1"), ok("GET", "/a?b=c"));
        assert_eq!(parsed("GET /a b HTTP/1.0"), ok("GET", "/a b"));
        assert_eq!(parsed("GET /old"), ok("GET", "/old"));
        assert_eq!(parsed("HEAD http://h:80/x HTTP/1.1"), ok("HEAD", "/x"));
        assert_eq!(parsed("GET http://h?q HTTP/1.1"), ok("GET", "/?q"));
        assert_eq!(parsed(r#"GET /\x22a\xc3\xa9\"\\ HTTP/1.1"#), ok("GET", "/\"a\u{e9}\"\\"));
        for request in
            ["-", "", r"\x16\x03\x01\x02", "OPTIONS * HTTP/1.1", "CONNECT h:443 HTTP/1.1", "get / HTTP/1.1"]
        {
            assert_eq!(parsed(request), Err(Unusable::Request(request.to_owned())), "{request}");
        }
    }

    #[test]
    fn lines() {
        let combined = r#"192.0.2.1 - ada [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 404 2326 "http://r/ \"x\"" "Mozilla/4.08 [en]""#;
        assert_eq!(parse(combined).map(|l| (l.second, l.status)), Ok((971_211_336, Some(404))));
        let with_host =
            r#"h.example:443 [::1] - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5 "-" "-""#;
        assert_eq!(parse(with_host).map(|l| l.target), Ok("/".to_owned()));
        for line in [
            "",
            "hello",
            "{\"a\": [1]}",
            "h - - [10/Oct/2000:13:55:36 -0700] GET / 200",
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET /",
        ] {
            assert_eq!(parse(line), Err(Unusable::Format), "{line}");
        }
    }
}
