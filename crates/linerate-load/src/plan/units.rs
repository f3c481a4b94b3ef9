//! Numbers with units, as people write them, and how they are shown again.

use std::time::Duration;

use super::InvalidPlan;
use super::limits::{MAX_DURATION, MAX_QUOTED_CHARS};

/// `text` in quotes, shortened and without control characters, for an error message.
pub fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        shown.push_str("...");
    }
    format!("\"{shown}\"")
}

/// A plain decimal number without a sign: `12`, `0.5`, `.5`.
pub fn parse_decimal(text: &str) -> Option<f64> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let dots = text.bytes().filter(|b| *b == b'.').count();
    if digits == 0 || dots > 1 || digits + dots != text.len() {
        return None;
    }
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

/// A number that may end in `k` (thousand), `M` (million) or `G`: `1.5k` is 1500.
pub fn parse_scaled(text: &str) -> Option<f64> {
    let (digits, zeros) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 3),
        b'M' => (&text[..text.len() - 1], 6),
        b'G' => (&text[..text.len() - 1], 9),
        _ => (text, 0),
    };
    parse_decimal(digits)?;
    // Scaled in decimal, so that 0.3k is 300 and not 299.99999999999994.
    format!("{digits}e{zeros}").parse().ok()
}

/// A whole number that may end in `k`, `M` or `G`: how many.
pub fn parse_count(text: &str) -> Result<u64, InvalidPlan> {
    match parse_scaled(text.trim()) {
        Some(n) if n > 1e18 => Err(format!("{} is more than can be counted", quoted(text)).into()),
        Some(n) if n.fract() == 0.0 => Ok(n as u64),
        _ => {
            Err(format!("{} is not a whole number; write for example 10000, 10k or 2M", quoted(text)).into())
        }
    }
}

/// A duration: `10s`, `500ms`, `1.5s`, `2m`, `1h`, `1m30s`, `250us`; a plain number means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidPlan> {
    let bad = |why: &str| {
        Err(format!(
            "{} {why}; write for example 10s, 500ms, 2m or 1m30s (a plain number means seconds)",
            quoted(text)
        )
        .into())
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return bad("is no duration");
    }
    let mut nanos = 0.0_f64;
    let mut largest_left = f64::INFINITY;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let Some(number) = parse_decimal(&rest[..digits]) else { return bad("is no duration") };
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let per_unit = match &rest[digits..digits + letters] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            "" if digits == text.trim().len() => 1e9,
            "" => return bad("has a number without a unit"),
            _ => return bad("has an unknown unit"),
        };
        if per_unit >= largest_left {
            return bad("has its units in the wrong order");
        }
        largest_left = per_unit;
        nanos += (number * per_unit).round();
        rest = &rest[digits + letters..];
    }
    if nanos > MAX_DURATION.as_nanos() as f64 {
        return Err(format!("{} is longer than a year", quoted(text)).into());
    }
    Ok(Duration::from_nanos(nanos as u64))
}

/// A number with three significant digits, without needless zeros: `61.2`, `0.25`, `12345`.
pub(crate) fn shown_number(n: f64) -> String {
    let decimals = match n.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        a if a >= 0.1 => 3,
        _ => 6,
    };
    let shown = format!("{n:.decimals$}");
    match shown.contains('.') {
        true => shown.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => shown,
    }
}

/// Microseconds in the unit that reads best: `850 µs`, `61.2 ms`, `1.25 s`.
pub(crate) fn shown_us(us: f64) -> String {
    match us.abs() {
        a if a >= 1e6 => format!("{} s", shown_number(us / 1e6)),
        a if a >= 1e3 => format!("{} ms", shown_number(us / 1e3)),
        _ => format!("{} µs", shown_number(us)),
    }
}

/// A duration as it would be written in a plan: `1m30s`, `500ms`.
pub fn shown_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [(3_600_000_000_000, "h"), (60_000_000_000, "m"), (1_000_000_000, "s"), (1_000_000, "ms")];
    let mut left = nanos;
    let mut shown = String::new();
    for (per_unit, name) in units.into_iter().chain([(1000, "us"), (1, "ns")]) {
        if left >= per_unit {
            shown.push_str(&format!("{}{name}", left / per_unit));
            left %= per_unit;
        }
    }
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, nanos) in [
            ("10", 10_000_000_000),
            ("0.5", 500_000_000),
            ("10s", 10_000_000_000),
            ("1.5s", 1_500_000_000),
            ("500ms", 500_000_000),
            ("250us", 250_000),
            ("7ns", 7),
            ("2m", 120_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "s",
            "fast",
            "10 s",
            "-1s",
            "1s1m",
            "5x",
            "1m30",
            "1.2.3s",
            "1e3s",
            "999999999h",
            "inf",
            "5µ",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_read() {
        for text in ["1m30s", "500ms", "1h", "10s", "1s500ms", "250us", "0s"] {
            assert_eq!(shown_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn counts() {
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert_eq!(parse_count("7"), Ok(7));
        for text in ["", "k", "1.5", "-1", "many", "1e3", "1kk", "5m"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_scaled("0.3k"), Some(300.0));
        assert_eq!(parse_scaled("1.1M"), Some(1_100_000.0));
    }

    #[test]
    fn shown() {
        assert_eq!(shown_us(850.0), "850 µs");
        assert_eq!(shown_us(61_234.0), "61.2 ms");
        assert_eq!(shown_us(1_250_000.0), "1.25 s");
        assert_eq!(shown_number(0.0), "0");
        assert_eq!(shown_number(0.25), "0.25");
        assert_eq!(shown_number(12_345.0), "12345");
        assert_eq!(quoted("a\"\n"), r#""a\"\n""#);
        assert_eq!(quoted(&"x".repeat(100)), format!("\"{}...\"", "x".repeat(60)));
    }
}
