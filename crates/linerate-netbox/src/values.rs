//! Values as they are typed: times, shares, rates and sizes.

use std::time::Duration;

/// A value that cannot be parsed; it says what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseValueError(pub(crate) &'static str);

/// A number and one of these units, as a multiple of the smallest one.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = units.iter().find(|u| u.0 == unit)?.1;
    number.parse::<f64>().ok().map(|n| n * factor).filter(|n| n.is_finite())
}

/// A time: 20ms, 1.5s, 300us.
///
/// # Errors
/// It is none.
pub fn time(text: &str) -> Result<Duration, ParseValueError> {
    with_unit(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or(ParseValueError("a time is a number and us, ms or s, as in 20ms"))
}

/// A share: 1%, 0.01.
///
/// # Errors
/// It is none.
pub fn probability(text: &str) -> Result<f64, ParseValueError> {
    with_unit(text, &[("%", 0.01), ("", 1.0)])
        .filter(|p| *p <= 1.0)
        .ok_or(ParseValueError("a share is from 0% to 100%, as in 1% or 0.01"))
}

/// A rate in bits per second: 10mbit.
///
/// # Errors
/// It is none.
pub fn rate(text: &str) -> Result<u64, ParseValueError> {
    with_unit(text, &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)])
        .map(|r| r as u64)
        .ok_or(ParseValueError("a rate is a number and kbit, mbit or gbit (per second), as in 10mbit"))
}

/// A size: 1400, 256kB, 64KiB.
///
/// # Errors
/// It is none.
pub fn bytes(text: &str) -> Result<usize, ParseValueError> {
    let units = [("", 1.0), ("B", 1.0), ("kB", 1e3), ("KiB", 1024.0), ("MB", 1e6), ("MiB", 1_048_576.0)];
    with_unit(text, &units)
        .map(|b| b as usize)
        .ok_or(ParseValueError("a size is a number of bytes, or with kB, KiB, MB or MiB, as in 256kB"))
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
        ] {
            let error = error.expect("it is bad").to_string();
            assert!(error.contains(right), "{error}");
        }
    }
}
