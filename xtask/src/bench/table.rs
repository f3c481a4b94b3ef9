//! What was measured as Markdown and as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::alone::Finding;
use super::figures::{Ratio, better_raw, of_program, ratio, reached};
use super::round::{Run, doubts};
use super::scenario::{Figure, RAW, Scenario, Shape, Sort, Want};
use super::{Tools, machine, with_ending};

const PROGRAMS: [&str; 8] = ["linerate", "raw epoll", "raw uring", "wrk", "h2load", "ab", "hey", "oha"];

/// The page under way.
#[derive(Debug)]
pub(crate) struct Page {
    head: String,
    figures: Vec<String>,
    wants: Vec<String>,
    alone: Vec<String>,
    doubts: Vec<String>,
    json: Vec<Value>,
    missed: u32,
}

impl Page {
    /// An empty page with the command and the machine.
    pub(crate) fn new(t: &Tools) -> Page {
        let o = &t.options;
        let only = if o.only.is_empty() { String::new() } else { format!(" --only {}", o.only.join(",")) };
        let spin = if o.spin { " --spin" } else { "" };
        let flags = if o.flags.is_empty() { String::new() } else { format!(" --flags={:?}", o.flags) };
        let head = format!(
            "`cargo xtask bench load --rounds {} --seconds {} --peers {}{only}{spin}{flags}`\n\n{}; server on core {}, client on \
             core {}; medians of {} rounds in turns.\n",
            o.rounds,
            o.seconds,
            o.peers.join(","),
            machine(),
            t.cores[0],
            t.cores[1],
            o.rounds
        );
        let [figures, wants, alone, doubts] = [const { Vec::new() }; 4];
        Page { head, figures, wants, alone, doubts, json: Vec::new(), missed: 0 }
    }

    /// Adds a scenario that was measured in turns.
    pub(crate) fn add_turns(&mut self, s: &Scenario, runs: Vec<Run>) {
        let Sort::InTurns { shape, wants } = s.sort else { return };
        self.figures.push(figures_row(s, &shape, &runs));
        let mut ratios = Vec::new();
        for w in wants {
            let r = ratio(&runs, "linerate", w.against, w.figure);
            self.add_want(s, w, r.as_ref(), &runs);
            ratios.push(json!({
                "figure": name(w.figure), "against": w.against, "limit": w.limit, "median": r.map(|r| r.median),
                "least": r.map(|r| r.least), "most": r.map(|r| r.most), "reached": r.map(|r| reached(w, &r)),
            }));
        }
        self.doubts.extend(doubts(&runs).iter().map(|d| format!("{}: {d}", s.name)));
        self.json.push(json!({ "scenario": s.name, "ratios": ratios, "runs": runs }));
    }

    fn add_want(&mut self, s: &Scenario, w: &Want, r: Option<&Ratio>, runs: &[Run]) {
        let whom = if w.against == RAW { better_raw(runs).unwrap_or(RAW) } else { w.against };
        let sign = if w.figure == Figure::Rate { ">=" } else { "<=" };
        let binding =
            w.against == RAW || matches!(s.sort, Sort::InTurns { shape: Shape { nginx: true, .. }, .. });
        let Some(r) = r else {
            self.wants.push(format!(
                "| {} | {} {sign} {} x {whom} | - | not measured |",
                s.what,
                name(w.figure),
                w.limit
            ));
            return;
        };
        let ok = reached(w, r);
        self.missed += u32::from(binding && !ok);
        let verdict = match (ok, binding) {
            (true, _) => "ok",
            (false, true) => "**short**",
            (false, false) => "short (an aim)",
        };
        self.wants.push(format!(
            "| {} | {} {sign} {} x {whom} | {:.2} ({:.2} to {:.2}, {} rounds) | {verdict} |",
            s.what,
            name(w.figure),
            w.limit,
            r.median,
            r.least,
            r.most,
            r.rounds
        ));
    }

    /// Adds a scenario that needs no rival.
    pub(crate) fn add_alone(&mut self, s: &Scenario, findings: Vec<Finding>) {
        for f in &findings {
            let verdict = if f.ok { "ok" } else { "**short**" };
            self.alone.push(format!("| {} | {} | {} | {} | {verdict} |", s.what, f.what, f.wanted, f.got));
            self.missed += u32::from(!f.ok);
        }
        self.json.push(json!({ "scenario": s.name, "findings": findings }));
    }

    /// Whether no binding figure was missed.
    pub(crate) fn all_reached(&self) -> bool {
        self.missed == 0
    }

    /// The whole page.
    pub(crate) fn markdown(&self) -> String {
        let mut page = self.head.clone();
        let mut table = |head: &str, rows: &[String]| {
            if !rows.is_empty() {
                let columns = head.matches('|').count() - 1;
                page += &format!("\n{head}\n|{}\n{}\n", " --- |".repeat(columns), rows.join("\n"));
            }
        };
        let head = format!("| requests/s (client's CPU us per request) | {} |", PROGRAMS.join(" | "));
        table(&head, &self.figures);
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

fn name(f: Figure) -> &'static str {
    match f {
        Figure::Rate => "rate",
        Figure::Cpu => "CPU",
    }
}

fn figures_row(s: &Scenario, shape: &Shape, runs: &[Run]) -> String {
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
fn thousands(x: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let all = [0.4, 999.0, 1000.0, 1_234_567.8].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "1,234,568"]);
    }
}
