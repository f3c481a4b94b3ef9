//! Figures in sentences.

/// A time for a sentence: `52 µs`, `0.35 ms`, `43.9 ms`, `1.20 s`.
pub(crate) fn say(ms: f64) -> String {
    match ms {
        0.0 => "0 ms".to_owned(),
        _ if ms.abs() < 0.0995 => format!("{:.0} µs", ms * 1e3),
        _ if ms < 10.0 => format!("{ms:.2} ms"),
        _ if ms < 1000.0 => format!("{ms:.1} ms"),
        _ => format!("{:.2} s", ms / 1e3),
    }
}
