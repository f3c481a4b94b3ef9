//! Values as they are typed: times, shares, rates and sizes, for both directions or one.

use std::time::Duration;

use linerate_netbox::{DropRule, LinkDirection};

/// A value for both directions (`None`) or one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sided<T> {
    pub(crate) way: Option<LinkDirection>,
    pub(crate) value: T,
}

/// `up:VALUE`, `down:VALUE` or `VALUE`.
pub(crate) fn sided<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Sided<T>, String> {
    let (way, rest) = match (text.strip_prefix("up:"), text.strip_prefix("down:")) {
        (Some(rest), _) => (Some(LinkDirection::Up), rest),
        (_, Some(rest)) => (Some(LinkDirection::Down), rest),
        _ => (None, text),
    };
    Ok(Sided { way, value: parse(rest)? })
}

/// A number and one of these units, as a multiple of the smallest one.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = units.iter().find(|u| u.0 == unit)?.1;
    number.parse::<f64>().ok().map(|n| n * factor).filter(|n| n.is_finite())
}

/// A time: 20ms, 1.5s, 300us.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    with_unit(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "a time is a number and us, ms or s, as in 20ms".to_owned())
}

/// A share: 1%, 0.01.
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    with_unit(text, &[("%", 0.01), ("", 1.0)])
        .filter(|p| *p <= 1.0)
        .ok_or_else(|| "a share is from 0% to 100%, as in 1% or 0.01".to_owned())
}

/// A share, and by how much: 1%:5ms.
pub(crate) fn reorder(text: &str) -> Result<(f64, Duration), String> {
    let (share, by) = text.split_once(':').unwrap_or((text, "1ms"));
    Ok((probability(share)?, time(by)?))
}

/// A rate: 10mbit.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    with_unit(text, &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)])
        .map(|r| r as u64)
        .ok_or_else(|| "a rate is a number and kbit, mbit or gbit (per second), as in 10mbit".to_owned())
}

/// A size: 1400, 256kB, 64KiB.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    with_unit(text, &[("", 1.0), ("B", 1.0), ("kB", 1e3), ("KiB", 1024.0), ("MB", 1e6), ("MiB", 1_048_576.0)])
        .map(|b| b as usize)
        .ok_or_else(|| "a size is a number of bytes, or with kB, KiB, MB or MiB, as in 256kB".to_owned())
}

/// A drop rule.
pub(crate) fn rule(text: &str) -> Result<DropRule, String> {
    text.parse::<DropRule>().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones() {
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(probability("1%"), Ok(0.01));
        assert_eq!(probability("0.5"), Ok(0.5));
        assert_eq!(rate("10mbit"), Ok(10_000_000));
        assert_eq!(bytes("256kB"), Ok(256_000));
        assert_eq!(bytes("1400"), Ok(1400));
        assert_eq!(reorder("1%:5ms"), Ok((0.01, Duration::from_millis(5))));
        assert_eq!(
            sided("up:1s", time),
            Ok(Sided { way: Some(LinkDirection::Up), value: Duration::from_secs(1) })
        );
        assert_eq!(sided("down:1s", time).map(|s| s.way), Ok(Some(LinkDirection::Down)));
    }

    #[test]
    fn bad_ones_say_what_would_be_right() {
        for (error, right) in [
            (time("20").err(), "20ms"),
            (time("ms").err(), "20ms"),
            (time("99999999999999999999s").err(), "20ms"),
            (probability("101%").err(), "0.01"),
            (probability("-1%").err(), "0.01"),
            (rate("10").err(), "10mbit"),
            (bytes("1.2.3").err(), "256kB"),
            (rule("sin=1").err(), "syn=1"),
        ] {
            let error = error.expect("it is bad");
            assert!(error.contains(right), "{error}");
        }
    }
}
