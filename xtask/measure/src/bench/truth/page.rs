//! The tables of docs/LOAD-TRUTH.md, between their markers.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::judge::TruthRow;
use super::peers::{self, percent};
use super::rows;
use super::way::TruthWay;
use xtask::shell;

const PAGE: &str = "docs/LOAD-TRUTH.md";
const BEGIN: &str = "<!-- bench truth: begin -->";
const END: &str = "<!-- bench truth: end -->";

/// The results, then the table of each server's fault and the flags of the run.
pub(crate) fn markdown(rows: &[TruthRow]) -> String {
    let names = peers::ALL.map(|p| p.name()).join(" | ");
    let mut out = format!(
        "| way | `load` names it | `load` | server | `down_s` (server's) | {names} |\n| --- | --- | --- | --- | --- |{}\n",
        " --- |".repeat(peers::ALL.len())
    );
    for row in rows {
        let mark = if row.faults.is_empty() { "" } else { " (outside)" };
        let (ours, truth) = row.share.map_or(("-".into(), "-".into()), |(o, t)| (percent(o), percent(t)));
        let down = row.down_s.map_or("-".into(), |(o, t)| format!("{o:.2} ({t:.2})"));
        let named = if row.named.is_empty() { "-" } else { &row.named };
        let peers = row.peers.join(" | ");
        let _ = writeln!(out, "| {}{mark} | {named} | {ours} | {truth} | {down} | {peers} |", row.way);
    }
    let within = rows.iter().filter(|r| r.faults.is_empty()).count();
    let _ = writeln!(out, "\n{within} of {} rows are within the goal.", rows.len());
    for row in rows.iter().filter(|r| !r.faults.is_empty()) {
        let _ = writeln!(out, "\n- `{}`: {}.", row.way, row.faults.join("; "));
    }
    out += "\n| way | the server | `linerate load URL/{{seq}}` with |\n| --- | --- | --- |\n";
    let measured = |way: &&TruthWay| rows.iter().any(|row| row.way == way.name);
    for way in rows::all().filter(measured) {
        let _ = writeln!(out, "| {} | {} | `{}` |", way.name, way.what, way.flags().join(" "));
    }
    out
}

/// Puts the tables into the page.
pub(crate) fn write(tables: &str) -> Result<()> {
    let path = shell::root().join(PAGE);
    let page = std::fs::read_to_string(&path).context(PAGE)?;
    std::fs::write(path, super::super::between(&page, [BEGIN, END], tables).context(PAGE)?).context(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_outside_the_goal_is_marked() {
        let good = TruthRow {
            way: "truncated".into(),
            named: "`failures.truncated` 300".into(),
            share: Some((0.3, 0.3)),
            peers: vec!["28.6 %".into(); 4],
            ..TruthRow::default()
        };
        let bad = TruthRow {
            way: "kill".into(),
            down_s: Some((1.0, 2.0)),
            faults: vec!["late".into()],
            ..good.clone()
        };
        let text = markdown(&[good, bad]);
        assert!(
            text.contains("| truncated | `failures.truncated` 300 | 30.0 % | 30.0 % | - | 28.6 % |"),
            "{text}"
        );
        assert!(text.contains("| kill (outside) |") && text.contains("| 1.00 (2.00) |"), "{text}");
        assert!(
            text.contains("1 of 2 rows are within the goal.") && text.contains("- `kill`: late."),
            "{text}"
        );
        assert!(
            text.contains("| truncated | closes in the middle of 3 bodies in 10 | `-c 8 -n 1000"),
            "{text}"
        );
    }
}
