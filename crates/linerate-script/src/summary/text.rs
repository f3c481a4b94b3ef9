//! The summary as text, in k6's style.

use serde_json::Value;

/// Lines of one section: name and value.
type SummaryRows<'a> = Vec<(String, &'a Value)>;

struct SummaryStyle {
    indent: String,
    colors: bool,
    time_unit: String,
}

impl SummaryStyle {
    fn mark(&self, ok: bool) -> String {
        match (self.colors, ok) {
            (true, true) => "\x1b[32m✓\x1b[0m".to_owned(),
            (true, false) => "\x1b[31m✗\x1b[0m".to_owned(),
            (false, true) => "✓".to_owned(),
            (false, false) => "✗".to_owned(),
        }
    }

    fn bold(&self, text: &str) -> String {
        if self.colors { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Milliseconds, in a unit that suits them.
    fn time(&self, ms: f64) -> String {
        match self.time_unit.as_str() {
            "s" => format!("{}s", short(ms / 1e3, 2)),
            "ms" => format!("{}ms", short(ms, 2)),
            "us" => format!("{}µs", short(ms * 1e3, 2)),
            _ if ms == 0.0 => "0s".to_owned(),
            _ if ms.abs() < 1.0 => format!("{}µs", short(ms * 1e3, 2)),
            _ if ms.abs() < 1e3 => format!("{}ms", short(ms, 2)),
            _ if ms.abs() < 6e4 => format!("{}s", short(ms / 1e3, 2)),
            _ => {
                let seconds = (ms / 1e3).round() as u64;
                match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
                    (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
                    (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
                }
            }
        }
    }

    fn value(&self, unit: &Value, value: f64) -> String {
        match unit.as_str() {
            Some("time") => self.time(value),
            Some("data") => data(value),
            _ => short(value, 6),
        }
    }
}

/// A number with so many decimals at most, cut like k6's.
fn short(value: f64, decimals: i32) -> String {
    let scale = 10f64.powi(decimals);
    let cut = (value * scale + value.signum() * 1e-6).trunc() / scale;
    let text = format!("{cut:.*}", decimals.unsigned_abs() as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn data(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let text = if value < 10.0 { short((value * 10.0).round() / 10.0, 1) } else { format!("{value:.0}") };
    format!("{text} {}", units[unit])
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(0.0)
}

/// A share, cut to two decimals.
fn percent(share: f64) -> String {
    format!("{:.2}%", (share * 10_000.0 + 1e-6).trunc() / 100.0)
}

/// The text that k6 would end with.
pub fn text_summary(data: &Value, indent: &str, colors: bool) -> String {
    let unit = data["options"]["summaryTimeUnit"].as_str().unwrap_or_default().to_owned();
    let style = SummaryStyle { indent: indent.to_owned(), colors, time_unit: unit };
    let mut text = String::new();
    thresholds(&mut text, &style, &data["metrics"]);
    text += &format!("{}{}\n\n", style.indent, style.bold(" █ TOTAL RESULTS"));
    checks(&mut text, &style, data);
    let (mut custom, mut http, mut execution, mut network) =
        (SummaryRows::new(), SummaryRows::new(), SummaryRows::new(), SummaryRows::new());
    for (name, metric) in data["metrics"].as_object().into_iter().flatten() {
        let place = match name.split('{').next().unwrap_or(name) {
            "checks" | "group_duration" => continue,
            "http_req_duration" | "http_req_failed" | "http_reqs" => &mut http,
            part if part.starts_with("http_req_")
                && !name.contains('{')
                && metric["thresholds"].is_null() =>
            {
                continue;
            }
            part if part.starts_with("http_req_") => &mut http,
            "iterations" | "iteration_duration" | "vus" | "vus_max" | "dropped_iterations" => &mut execution,
            "data_sent" | "data_received" => &mut network,
            _ => &mut custom,
        };
        place.push((name.clone(), metric));
    }
    let stats = &data["options"]["summaryTrendStats"];
    for (title, rows) in [("CUSTOM", custom), ("HTTP", http), ("EXECUTION", execution), ("NETWORK", network)]
    {
        section(&mut text, &style, title, &rows, stats);
    }
    text
}

fn thresholds(text: &mut String, style: &SummaryStyle, metrics: &Value) {
    let judged = |metric: &Value| !metric["thresholds"].is_null();
    let all: Vec<_> =
        metrics.as_object().into_iter().flatten().filter(|(_, metric)| judged(metric)).collect();
    if all.is_empty() {
        return;
    }
    *text += &format!("{}{}\n\n", style.indent, style.bold(" █ THRESHOLDS"));
    for (name, metric) in all {
        *text += &format!("{}   {name}\n", style.indent);
        for (source, judged) in metric["thresholds"].as_object().into_iter().flatten() {
            let aggregation = source.split(['<', '>', '=', '!']).next().unwrap_or_default().replace(' ', "");
            let value = metric["values"].get(&aggregation).and_then(Value::as_f64);
            let shown = match value {
                Some(value) if metric["type"] == "rate" => format!(" {aggregation}={}", percent(value)),
                Some(value) if metric["type"] == "counter" => format!(" {aggregation}={}", short(value, 6)),
                Some(value) => format!(" {aggregation}={}", style.value(&metric["contains"], value)),
                None => String::new(),
            };
            *text += &format!("{}   {} '{source}'{shown}\n", style.indent, style.mark(judged["ok"] == true));
        }
        text.push('\n');
    }
    text.push('\n');
}

fn checks(text: &mut String, style: &SummaryStyle, data: &Value) {
    let values = &data["metrics"]["checks"]["values"];
    if values.is_null() {
        return;
    }
    let (passes, fails) = (number(values, "passes"), number(values, "fails"));
    let total = passes + fails;
    let seconds = number(&data["state"], "testRunDurationMs") / 1e3;
    let rate = if seconds > 0.0 { total / seconds } else { 0.0 };
    let cells = [short(total, 0), percent(passes / total), percent(fails / total)];
    let width = cells.iter().map(String::len).max().unwrap_or(0);
    let indent = &style.indent;
    *text += &format!("{indent}   checks_total.......: {:width$} {}/s\n", cells[0], short(rate, 6));
    *text += &format!(
        "{indent}   checks_succeeded...: {:width$} {} out of {}\n",
        cells[1],
        short(passes, 0),
        short(total, 0)
    );
    *text += &format!(
        "{indent}   checks_failed......: {:width$} {} out of {}\n\n",
        cells[2],
        short(fails, 0),
        short(total, 0)
    );
    group(text, style, &data["root_group"], 3);
    text.push('\n');
}

fn group(text: &mut String, style: &SummaryStyle, node: &Value, depth: usize) {
    let pad = format!("{}{}", style.indent, " ".repeat(depth));
    for check in node["checks"].as_array().into_iter().flatten() {
        let (passes, fails) = (number(check, "passes"), number(check, "fails"));
        let name = check["name"].as_str().unwrap_or_default();
        *text += &format!("{pad}{} {name}\n", style.mark(fails == 0.0));
        if fails > 0.0 {
            let share = (passes / (passes + fails) * 100.0).trunc();
            *text += &format!("{pad} ↳  {share}% — ✓ {passes} / ✗ {fails}\n");
        }
    }
    for one in node["groups"].as_array().into_iter().flatten() {
        *text += &format!("\n{pad}█ {}\n\n", one["name"].as_str().unwrap_or_default());
        group(text, style, one, depth + 2);
    }
}

/// The row's name: parts of a metric stand below it.
fn label(name: &str) -> String {
    match name.split_once('{') {
        Some((_, tags)) => format!("  {{ {} }}", tags.trim_end_matches('}')),
        None => name.to_owned(),
    }
}

/// Width of names, as k6 has it. Longer ones move the values.
const NAMES: usize = 31;

fn section(text: &mut String, style: &SummaryStyle, title: &str, rows: &SummaryRows<'_>, stats: &Value) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|(name, _)| label(name).chars().count() + 3).max().unwrap_or(0).max(NAMES);
    let cells: Vec<_> = rows.iter().map(|(_, metric)| cells(style, metric, stats)).collect();
    let widths = columns(&cells);
    *text += &format!("{}   {}\n", style.indent, style.bold(title));
    for ((name, _), cells) in rows.iter().zip(&cells) {
        let name = label(name);
        let dots = ".".repeat(width - name.chars().count());
        let mut line = format!("{}   {name}{dots}:", style.indent);
        for (cell, width) in cells.iter().zip(&widths[usize::from(cells.len() > 3)]) {
            line += &format!(" {cell}{}", " ".repeat(width.saturating_sub(cell.chars().count())));
        }
        *text += line.trim_end();
        text.push('\n');
    }
    text.push('\n');
}

/// Widths of the columns of short rows, and of those of trends.
fn columns(all: &[Vec<String>]) -> [Vec<usize>; 2] {
    let mut widths = [Vec::new(), Vec::new()];
    for cells in all {
        let of: &mut Vec<usize> = &mut widths[usize::from(cells.len() > 3)];
        for (at, cell) in cells.iter().enumerate() {
            let width = cell.chars().count();
            match of.get_mut(at) {
                Some(known) => *known = (*known).max(width),
                None => of.push(width),
            }
        }
    }
    // As k6's: numbers of a few digits stand in one column.
    if let Some(first) = widths[0].first_mut() {
        *first = (*first).max(6);
    }
    widths
}

fn cells(style: &SummaryStyle, metric: &Value, stats: &Value) -> Vec<String> {
    let (values, unit) = (&metric["values"], &metric["contains"]);
    match metric["type"].as_str() {
        Some("counter") => {
            let show = |value| if unit == "data" { data(value) } else { short(value, 6) };
            vec![show(number(values, "count")), format!("{}/s", show(number(values, "rate")))]
        }
        Some("gauge") => {
            let show = |key: &str| style.value(unit, number(values, key));
            vec![show("value"), format!("min={}", show("min")), format!("max={}", show("max"))]
        }
        Some("rate") => {
            let (passes, fails) = (number(values, "passes"), number(values, "fails"));
            let share = percent(number(values, "rate"));
            vec![share, format!("{} out of {}", short(passes, 0), short(passes + fails, 0))]
        }
        _ => {
            let names = stats.as_array().into_iter().flatten().filter_map(Value::as_str);
            names
                .map(|name| match name {
                    "count" => format!("count={}", short(number(values, name), 0)),
                    _ => format!("{name}={}", style.value(unit, number(values, name))),
                })
                .collect()
        }
    }
}
