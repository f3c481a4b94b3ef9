//! Ways of sending side by side: a row each, with the ratio to the first; and a sentence on what
//! one sees.

use crate::style::Style;
use crate::units;

/// One way and what it reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WayRow {
    /// Name of the way, for the first column.
    pub name: String,
    /// How it was done, short.
    pub how: String,
    /// Answered requests per second.
    pub rate_rps: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Processor time of the client per request, microseconds.
    pub cpu_us: Option<f64>,
    /// The same of the server, where it is known.
    pub server_cpu_us: Option<f64>,
    /// What was seen, in sentences.
    pub sentence: String,
    /// Failed, unknown and bad.
    pub errors: u64,
}

/// The table with a bar per row, and the sentences below it.
pub fn to_string(rows: &[WayRow], style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let first = rows.first().map_or(0.0, |row| row.rate_rps);
    let most = rows.iter().map(|row| row.rate_rps).fold(0.0, f64::max);
    let widest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(3);
    let bar_width = usize::from(style.width).saturating_sub(widest + 62).min(20);
    let mut out = String::new();
    let head = format!(
        "{:<widest$} {:>11} {:>7} {:>8} {:>8} {:>10} {:>10}",
        "way", "requests/s", "ratio", "p50", "p99", "client CPU", "server CPU"
    );
    line(&mut out, &style.bold(&head));
    for row in rows {
        let ratio =
            if first > 0.0 { format!("{} x", units::three_digits(row.rate_rps / first)) } else { "-".into() };
        let latency = |us: f64| match row.rate_rps > 0.0 {
            true => units::time_us(us, style.unicode),
            false => "-".to_owned(),
        };
        let cpu = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| units::time_us(us, style.unicode));
        let share = if most > 0.0 { row.rate_rps / most } else { 0.0 };
        let text = format!(
            "{:<widest$} {:>11} {ratio:>7} {:>8} {:>8} {:>10} {:>10}  {}",
            row.name,
            units::rate(row.rate_rps),
            latency(row.p50_us),
            latency(row.p99_us),
            cpu(row.cpu_us),
            cpu(row.server_cpu_us),
            style.bar(share, bar_width),
        );
        line(&mut out, &text);
    }
    out
}

/// One way and its explanation, in words.
pub fn words(row: &WayRow, style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let mut out = String::new();
    line(&mut out, &format!("{} {}", style.bold(&row.name), style.dim(&format!("({})", row.how))));
    line(&mut out, &style.wrapped("  ", &row.sentence));
    if row.errors > 0 {
        let text = format!("{} did not end well.", units::several(row.errors, "request", "requests"));
        line(&mut out, &format!("  {}", style.warn(&text)));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, rate_rps: f64, sentence: &str) -> WayRow {
        WayRow {
            name: name.to_owned(),
            how: "how it is done".to_owned(),
            rate_rps,
            p50_us: 1e6 / rate_rps,
            p99_us: 3e6 / rate_rps,
            cpu_us: Some(1.5),
            server_cpu_us: Some(2.5),
            sentence: sentence.to_owned(),
            errors: 0,
        }
    }

    #[test]
    fn the_table_of_the_demo() {
        let mut rows = vec![
            row("poll", 25_000.0, "One request at a time: each waits for the answer before it."),
            row("threads", 31_000.0, "A hundred blocking threads."),
            row(
                "pipelined",
                2_500_000.0,
                "Many requests in one write, many answers in one read: what costs is shared.",
            ),
        ];
        rows[1].errors = 2;
        rows[1].cpu_us = None;
        let words: String = rows.iter().map(|row| words(row, Style::default())).collect();
        insta::assert_snapshot!(words + "\n" + &to_string(&rows, Style::default()));
    }

    #[test]
    fn nothing_measured_divides_by_nothing() {
        let text = to_string(&[WayRow::default()], Style::default());
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("0.00"), "{text}");
        assert!(!to_string(&[], Style::default()).is_empty());
    }
}
