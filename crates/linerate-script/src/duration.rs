//! Times, as k6 writes them.

use std::time::Duration;

use serde_json::Value;

/// Reads `1m30s`, or a number of milliseconds.
///
/// # Errors
/// In words, what would be right.
pub(crate) fn duration(value: &Value) -> Result<Duration, String> {
    let wrong = || {
        format!("{value} is no duration\nhint: write it as \"30s\", \"1m30s\" or a number of milliseconds")
    };
    let ms = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| wrong());
    if let Some(n) = value.as_f64() {
        return ms(n);
    }
    let text = value.as_str().ok_or_else(wrong)?.trim();
    if let Ok(n) = text.parse::<f64>() {
        return ms(n);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let n: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let units = [
            ("ns", 1e-6),
            ("us", 1e-3),
            ("µs", 1e-3),
            ("ms", 1.0),
            ("s", 1e3),
            ("m", 6e4),
            ("h", 3.6e6),
            ("d", 8.64e7),
        ];
        let (unit, each) = units.into_iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(wrong)?;
        rest = &rest[unit.len()..];
        total += n * each;
    }
    if text.is_empty() { Err(wrong()) } else { ms(total) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_read_as_k6_reads_them() {
        let of = |value: Value| duration(&value).map(|time| time.as_millis());
        assert_eq!(of(json!("1m30s")), Ok(90_000));
        assert_eq!(of(json!("1h2m3s4ms")), Ok(3_723_004));
        assert_eq!(of(json!(1500)), Ok(1500));
        assert_eq!(of(json!("250")), Ok(250));
        assert_eq!(of(json!("1.5s")), Ok(1500));
        for wrong in [json!(""), json!("s"), json!("1x"), json!(-1), json!([])] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
