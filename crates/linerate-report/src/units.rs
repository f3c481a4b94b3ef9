//! Numbers with their units, as people read them.

/// A count with thousands apart: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits, at least: `1.23`, `12.3`, `123`, `1,234`; `-` for what is no number.
pub fn three_digits(value: f64) -> String {
    if !value.is_finite() {
        "-".to_owned()
    } else if value >= 99.95 {
        count(value.round() as u64)
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// From this factor on the digits of an interval's end mean nothing.
const FAR: f64 = 10_000.0;

/// The interval of a ratio, whose ends are shown so: `0.981 to 1.052`, `0.07 to over 10,000`.
pub fn ratios([low, high]: [f64; 2], shown: impl Fn(f64) -> String) -> String {
    let near = |value: f64| (1.0 / FAR..=FAR).contains(&value);
    let from = if low < 1.0 / FAR && near(high) { "under 0.0001".to_owned() } else { shown(low) };
    let to = if high > FAR && near(low) { format!("over {}", count(FAR as u64)) } else { shown(high) };
    format!("{from} to {to}")
}

/// Requests per second, without the unit.
pub fn rate(per_second: f64) -> String {
    if per_second == 0.0 { "0".to_owned() } else { three_digits(per_second) }
}

/// A time in nanoseconds: `12.3 µs`, `4.56 ms`, `7.89 s`.
pub fn time_ns(nanos: f64, unicode: bool) -> String {
    let micro = if unicode { "µs" } else { "us" };
    if nanos < 999_500.0 {
        format!("{} {micro}", three_digits(nanos / 1e3))
    } else if nanos < 999_500_000.0 {
        format!("{} ms", three_digits(nanos / 1e6))
    } else {
        format!("{} s", three_digits(nanos / 1e9))
    }
}

/// Seconds with one decimal, without the unit and without a trailing zero: `3.5`, `5`.
pub fn short_seconds(seconds: f64) -> String {
    let text = format!("{seconds:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A time in microseconds, as [`time_ns`].
pub fn time_us(micros: f64, unicode: bool) -> String {
    time_ns(micros * 1e3, unicode)
}

/// Bytes in decimal units: `600 B`, `1.23 MB`.
pub fn bytes(n: f64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 999.5 {
        return format!("{n:.0} B");
    }
    let mut value = n / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// A share of 1 in percent: `0 %`, `0.01 %`, `12.3 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 {
        "0 %".to_owned()
    } else if percent < 0.01 {
        "<0.01 %".to_owned()
    } else if percent < 9.995 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// "1 connection", "64 connections".
pub fn several(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn an_interval_without_an_end_has_no_digits_there() {
        let said = |low, high| ratios([low, high], three_digits);
        assert_eq!(said(0.98, 1.05), "0.98 to 1.05");
        assert_eq!(said(0.07, 2.8e15), "0.07 to over 10,000");
        assert_eq!(said(3e-9, 1.2), "under 0.0001 to 1.20");
        assert_eq!(said(20_000.0, 21_000.0), "20,000 to 21,000");
    }

    #[test]
    fn times_keep_three_digits_and_pick_the_unit() {
        assert_eq!(time_ns(870.0, true), "0.87 µs");
        assert_eq!(time_ns(12_340.0, false), "12.3 us");
        assert_eq!(time_ns(999_400.0, false), "999 us");
        assert_eq!(time_ns(999_600.0, false), "1.00 ms");
        assert_eq!(time_ns(1_000_000_000.0, false), "1.00 s");
        assert_eq!(time_ns(99_960_000_000.0, false), "100 s");
        assert_eq!(time_ns(3_600e9, false), "3,600 s");
    }

    #[test]
    fn bytes_rates_and_shares() {
        assert_eq!(bytes(600.0), "600 B");
        assert_eq!(bytes(1_234_000.0), "1.23 MB");
        assert_eq!(bytes(999_600.0), "1.00 MB");
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(12.34), "12.3");
        assert_eq!(rate(123_456.7), "123,457");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.000_01), "<0.01 %");
        assert_eq!(percent(0.0123), "1.23 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(several(1, "connection", "connections"), "1 connection");
    }
}
