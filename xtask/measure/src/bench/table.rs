//! Writes measurements as Markdown and as JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
pub(crate) use xtask::table::as_table;

use super::alone::AloneFinding;
use super::figures::{Ratio, better_raw, of_program, ratio, reached};
use super::round::{ProgramRun, doubts};
use super::scenario::{Figure, LoadMeasure, LoadScenario, LoadShape, RAW, Want};

const PROGRAMS: [&str; 9] =
    ["linerate", "raw epoll", "raw uring", "wrk", "h2load", "ab", "hey", "oha", "shb"];

/// The page under way.
#[derive(Debug)]
pub(crate) struct TablePage {
    head: String,
    figures: Vec<String>,
    blocks: Vec<String>,
    wants: Vec<String>,
    alone: Vec<String>,
    doubts: Vec<String>,
    json: Vec<Value>,
    missed: u32,
}

impl TablePage {
    /// An empty page: command, machine and how it was measured.
    pub(crate) fn new(head: String) -> TablePage {
        let [figures, blocks, wants, alone, doubts] = [const { Vec::new() }; 5];
        TablePage { head, figures, blocks, wants, alone, doubts, json: Vec::new(), missed: 0 }
    }

    /// Adds a scenario of paired runs of clients.
    pub(crate) fn add_turns(&mut self, s: &LoadScenario, runs: &[ProgramRun]) {
        let LoadMeasure::InTurns { shape, wants } = s.sort else { return };
        self.figures.push(figures_row(s, &shape, runs));
        self.add_compared(s.name, s.what, wants, runs);
    }

    /// Adds the targets of paired runs, the results, the doubts, and every run.
    pub(crate) fn add_compared(&mut self, name: &str, what: &str, wants: &[Want], runs: &[ProgramRun]) {
        let mut ratios = Vec::new();
        for w in wants {
            let r = ratio(runs, w.ours, w.against, w.figure);
            self.add_want(what, w, r.as_ref(), runs);
            ratios.push(json!({
                "figure": figure_name(w.figure), "of": w.ours, "against": w.against, "limit": w.limit,
                "median": r.map(|r| r.median), "least": r.map(|r| r.least), "most": r.map(|r| r.most),
                "ci95": r.and_then(|r| r.ci95), "reached": r.map(|r| reached(w, &r)),
            }));
        }
        self.doubts.extend(doubts(runs).iter().map(|d| format!("{name}: {d}")));
        self.json.push(json!({ "scenario": name, "what": what, "ratios": ratios, "runs": runs }));
    }

    /// Adds what else was counted in a scenario's runs.
    pub(crate) fn add_counts(&mut self, name: &str, counts: Value) {
        self.json.push(json!({ "scenario": name, "counts": counts }));
    }

    /// Adds free text.
    pub(crate) fn add_block(&mut self, markdown: String) {
        self.blocks.push(markdown);
    }

    /// Adds a doubt.
    pub(crate) fn add_doubt(&mut self, doubt: String) {
        self.doubts.push(doubt);
    }

    fn add_want(&mut self, what: &str, w: &Want, r: Option<&Ratio>, runs: &[ProgramRun]) {
        let whom = if w.against == RAW { better_raw(runs).unwrap_or(RAW) } else { w.against };
        let sign = if w.figure.more_is_better() { ">=" } else { "<=" };
        let whose = if w.ours == "linerate" { String::new() } else { format!(" of {}", w.ours) };
        let wanted = format!("{}{whose} {sign} {} x {whom}", figure_name(w.figure), w.limit);
        let Some(r) = r else {
            self.wants.push(format!("| {what} | {wanted} | - | not measured |"));
            return;
        };
        let ok = reached(w, r);
        self.missed += u32::from(w.binds && !ok);
        let verdict = match (ok, w.binds) {
            (true, _) => "ok",
            (false, true) => "**short**",
            (false, false) => "short (an aim)",
        };
        let (median, least, most, rounds) = (r.median, r.least, r.most, r.rounds);
        let sure = |(low, high): (f64, f64)| format!("; 95 %: {low:.2} to {high:.2}");
        let sure = r.ci95.map(sure).unwrap_or_default();
        // Enough decimal places that a miss shows.
        let places = if w.limit < 0.2 { 3 } else { 2 };
        self.wants.push(format!(
            "| {what} | {wanted} | {median:.places$} ({least:.places$} to {most:.places$}, {rounds} rounds{sure}) | {verdict} |"
        ));
    }

    /// Adds a scenario that needs no rival.
    pub(crate) fn add_alone(&mut self, name: &str, what: &str, findings: Vec<AloneFinding>) {
        for f in &findings {
            let verdict = if f.ok { "ok" } else { "**short**" };
            self.alone.push(format!("| {what} | {} | {} | {} | {verdict} |", f.what, f.wanted, f.got));
            self.missed += u32::from(!f.ok);
        }
        self.json.push(json!({ "scenario": name, "findings": findings }));
    }

    /// Whether no binding figure was missed.
    pub(crate) fn all_reached(&self) -> bool {
        self.missed == 0
    }

    /// The whole page.
    pub(crate) fn markdown(&self) -> String {
        let mut page = self.head.clone();
        let head = format!("| requests/s (client's CPU us per request) | {} |", PROGRAMS.join(" | "));
        page += &as_table(&head, &self.figures);
        for block in &self.blocks {
            page += &format!("\n{block}");
        }
        let mut table = |head: &str, rows: &[String]| page += &as_table(head, rows);
        table("| scenario | wanted | got: median of paired rounds (least to most) | |", &self.wants);
        table("| scenario | what | wanted | got | |", &self.alone);
        if !self.doubts.is_empty() {
            page += &format!("\nDoubts:\n\n- {}\n", self.doubts.join("\n- "));
        }
        page
    }

    /// Writes `PATH.md` and `PATH.json`.
    pub(crate) fn write(&self, path: Option<&Path>) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        let all = json!({ "head": self.head, "scenarios": self.json });
        for (ending, text) in [(".md", self.markdown()), (".json", serde_json::to_string_pretty(&all)?)] {
            let file = with_ending(path, ending);
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}

fn figure_name(f: Figure) -> &'static str {
    match f {
        Figure::Rate => "rate",
        Figure::Cpu => "CPU",
        Figure::P99 => "p99",
        Figure::PerCore => "requests per core",
        Figure::Memory => "memory per user",
    }
}

fn figures_row(s: &LoadScenario, shape: &LoadShape, runs: &[ProgramRun]) -> String {
    let cell = |program: &&str| match of_program(runs, program, Figure::Rate) {
        None => "-".to_owned(),
        Some(rate) => {
            let cpu = of_program(runs, program, Figure::Cpu).unwrap_or(0.0);
            let bytes = rate * shape.body as f64;
            let moved = if shape.body < 100 { String::new() } else { format!(", {:.2} GB/s", bytes / 1e9) };
            format!("{}{moved} ({cpu:.3})", thousands(rate))
        }
    };
    format!("| {} | {} |", s.what, PROGRAMS.iter().map(cell).collect::<Vec<_>>().join(" | "))
}

/// 1234567.8 as "1,234,568".
pub(crate) fn thousands(x: f64) -> String {
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `PATH` with another ending.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let all = [0.4, 999.0, 1000.0, 1_234_567.8].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "1,234,568"]);
    }
}
