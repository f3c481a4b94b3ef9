//! What keeps the server from more, for the terminal and for the page.

use std::fmt::Write as _;

use linerate_explain::occupancy::{LoadFigures, OccupancyTable, OccupancyVerdict};

use crate::json::round6;
use crate::markup::escape;
use crate::schema::concurrency::{ConcurrencyCure, ServerConcurrency};
use crate::style::{Style, clean};
use crate::units;

/// The document's part of a verdict.
pub fn document(table: &OccupancyTable, run: &LoadFigures, verdict: OccupancyVerdict) -> ServerConcurrency {
    let cure = |cure: linerate_explain::occupancy::Cure| ConcurrencyCure {
        change: cure.change,
        rate_rps: round6(cure.rate_rps),
    };
    ServerConcurrency {
        verdict: verdict.limit.id().to_owned(),
        text: verdict.text,
        signs: verdict.signs,
        looks: table.looks(),
        cores: run.cores,
        in_flight: verdict.in_flight.map(round6),
        threads_running: round6(table.running()),
        threads_blocked: round6(table.blocked()),
        threads_free: round6(table.free()),
        threads_waiting: round6(table.waiting()),
        queued: table.queued().map(round6),
        cpu_us_per_request: round6(verdict.cpu_per_request_s * 1e6),
        blocked_us_per_request: round6(verdict.blocked_per_request_s * 1e6),
        core_rps: round6(verdict.core_rps),
        machine_busy: run.machine_busy.map(round6),
        run_queue_share: round6(verdict.unserved),
        cures: verdict.cures.into_iter().map(cure).collect(),
    }
}

/// The verdict's lines below the server's figures.
pub(super) fn text(found: &ServerConcurrency, style: Style) -> String {
    let mut out = style.wrapped("  ", &clean(&found.text));
    out.push('\n');
    for cure in &found.cures {
        let _ = writeln!(out, "    at most {:>9}/s  {}", units::rate(cure.rate_rps), clean(&cure.change));
    }
    out
}

/// The same with its signs.
pub(super) fn html(found: &ServerConcurrency) -> String {
    let mut out = format!("<p><b>{}.</b> {}</p>", escape(&capital(&found.text)), escape(&said(&found.signs)));
    if found.cures.is_empty() {
        return out;
    }
    out.push_str("<p>What would allow more:</p><ul>");
    for cure in &found.cures {
        let rate = units::rate(cure.rate_rps);
        let _ = write!(out, "<li>{}: {rate}/s at most</li>", escape(&cure.change));
    }
    out.push_str("</ul>");
    out
}

fn said(signs: &[String]) -> String {
    if signs.is_empty() { String::new() } else { format!("Seen: {}.", signs.join("; ")) }
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_shown_with_its_rate() {
        let cure = ConcurrencyCure { change: "2 <processes>".to_owned(), rate_rps: 543.2 };
        let found = ServerConcurrency {
            text: "CPU-bound: one thread fills its core".to_owned(),
            signs: vec!["one".to_owned(), "two".to_owned()],
            cures: vec![cure],
            ..ServerConcurrency::default()
        };
        let shown = text(&found, Style::default());
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            ["  CPU-bound: one thread fills its core", "    at most       543/s  2 <processes>"]
        );
        let page = html(&found);
        assert!(page.contains("Seen: one; two.") && page.contains("2 &lt;processes&gt;"), "{page}");
        assert!(!html(&ServerConcurrency::default()).contains("<ul>"));
    }
}
