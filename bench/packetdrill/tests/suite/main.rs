//! FreeBSD's tcp-testsuite over user-space TCP, by packetdrill, in virtual time. Scripts that Linux
//! passes must pass here; `verdicts.tsv` has every script's verdicts, and the reason for each
//! failure here.
//!
//! `LINERATE_PACKETDRILL=ours` rewrites our column. `LINERATE_PACKETDRILL=linux` plays the scripts
//! against this machine's kernel, each in a network namespace, and rewrites the other column (needs
//! root and minutes, since that clock is real).

mod build;
mod play;
mod verdicts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use linerate_skips::skip;

use build::{Lack, Tools};
use play::{Outcome, Player};
use verdicts::{Verdict, Verdicts};

fn tools() -> Option<Tools> {
    match Tools::provide() {
        Ok(tools) => Some(tools),
        Err(Lack(need, why)) => {
            skip(need, why);
            None
        }
    }
}

#[test]
fn freebsds_scripts() {
    let Some(tools) = tools() else { return };
    match env::var("LINERATE_PACKETDRILL").as_deref() {
        Ok("linux") => write_linux(&tools),
        Ok("ours") => write_ours(&tools),
        _ => check(&tools),
    }
}

fn check(tools: &Tools) {
    let outcomes = play::all(tools, Player::Ours, &tools.scripts());
    let verdicts = Verdicts::read();
    let mut wrong = String::new();
    for (name, outcome) in &outcomes {
        let Some(verdict) = verdicts.of(name) else {
            let _ = writeln!(wrong, "{name}: verdicts.tsv does not know it");
            continue;
        };
        match outcome {
            Outcome::Passed if !verdict.ours => {
                let _ = writeln!(wrong, "{name}: it passes now; LINERATE_PACKETDRILL=ours writes that down");
            }
            Outcome::Failed(why) if verdict.ours || verdict.linux => {
                let linux = if verdict.linux { ", and Linux passes it" } else { "" };
                let _ = writeln!(wrong, "{name}: it passed{linux}: {why}");
            }
            Outcome::Passed | Outcome::Failed(_) => {}
        }
    }
    for name in verdicts.names().filter(|name| !outcomes.contains_key(*name)) {
        let _ = writeln!(wrong, "{name}: the suite does not have it");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn write_ours(tools: &Tools) {
    let outcomes = play::all(tools, Player::Ours, &tools.scripts());
    let mut verdicts = Verdicts::read();
    for (name, outcome) in &outcomes {
        verdicts.note_ours(name, outcome);
    }
    verdicts.write();
}

/// Time is real there, so a script that fails has two more attempts.
fn write_linux(tools: &Tools) {
    let mut outcomes = play::all(tools, Player::Linux, &tools.scripts());
    for _ in 0..2 {
        let failed = outcomes.iter().filter(|(_, outcome)| **outcome != Outcome::Passed);
        let failed: Vec<String> = failed.map(|(name, _)| name.clone()).collect();
        let again: BTreeMap<String, Outcome> = play::all(tools, Player::Linux, &failed);
        outcomes.extend(again.into_iter().filter(|(_, outcome)| *outcome == Outcome::Passed));
    }
    let mut verdicts = Verdicts::read();
    for (name, outcome) in &outcomes {
        verdicts.note_linux(name, outcome);
    }
    verdicts.write();
}

/// Every script that fails here has a reason, none that Linux passes fails, and docs/STACK.md has
/// the same counts.
#[test]
fn what_fails_is_explained() {
    let verdicts = Verdicts::read();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/STACK.md");
    let page = fs::read_to_string(page).expect("docs/STACK.md");
    let groups = verdicts.groups();
    for (group, count) in &groups {
        assert!(page.contains(&format!("\n| `{group}` | {count} | ")), "docs/STACK.md: {count} are {group}");
    }
    let count = |passes: fn(&Verdict) -> bool| verdicts.all().filter(|(_, verdict)| passes(verdict)).count();
    let all = verdicts.all().count();
    for (row, passed) in
        [("Linux 6.18", count(|verdict| verdict.linux)), ("user-space TCP", count(|verdict| verdict.ours))]
    {
        let row = format!("\n| {row} | {passed} | {} |", all - passed);
        assert!(page.contains(&row), "docs/STACK.md: {row}");
    }
    for (name, verdict) in verdicts.all() {
        assert!(verdict.ours || !verdict.why.is_empty(), "{name}: why does it fail?");
        assert!(verdict.ours || !verdict.linux, "{name}: Linux passes it");
        assert!(verdict.why.is_empty() || !verdict.ours, "{name}: it passes; the reason is too many");
    }
}
