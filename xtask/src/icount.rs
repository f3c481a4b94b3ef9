//! `icount`: how many instructions a unit of work on a hot path takes, against the committed counts.
//! Instructions are repeatable where times are not. A second file, the baseline, is changed by hand
//! only: growth by small steps, each within the tolerance, shows against it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

use xtask::shell;

/// Units of work in the two runs whose difference is counted: what starts and ends the program falls out.
const UNITS: [u64; 2] = [2_000, 12_000];

/// What the program that is counted is built with. The command is named too: its features of our
/// crates are then those of what is counted, which is the code that people run.
const BUILD: [&str; 9] = [
    "build",
    "--release",
    "--locked",
    "-p",
    "linerate-cli",
    "-p",
    "linerate-bench-icount",
    "--bin",
    "icount",
];

/// How much more than the baseline a count may be, percent.
const GROWTH: f64 = 5.0;

/// What to compare.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IcountOptions {
    /// Write what was counted to xtask/icount.json instead of comparing.
    #[arg(long)]
    update: bool,
    /// How far a count may be from the committed one, percent.
    #[arg(long, default_value_t = 2.0, value_name = "PERCENT")]
    tolerance: f64,
}

impl IcountOptions {
    /// For `test`: compilers and C libraries differ a little between machines.
    pub(crate) fn for_tests() -> IcountOptions {
        IcountOptions { update: false, tolerance: 10.0 }
    }
}

fn committed() -> PathBuf {
    shell::root().join("xtask/icount.json")
}

fn baseline() -> PathBuf {
    shell::root().join("xtask/icount-baseline.json")
}

fn read(file: &Path) -> Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is malformed", file.display()))
}

/// Counts and compares; `false` when a count got worse than the tolerance allows.
pub(crate) fn run(options: &IcountOptions) -> Result<bool> {
    let valgrind = shell::find("valgrind").context("valgrind is not installed")?;
    shell::run(&mut build())?;
    // It knows `--list` and `SCENARIO N`.
    let program = shell::target_dir().join("release/icount");
    let list = shell::output(shell::program(&program).arg("--list"))?;
    let scenarios: Vec<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    println!("counting {} scenarios", scenarios.len());
    let counts = count(&valgrind, &program, &scenarios)?;
    if options.update {
        std::fs::write(committed(), serde_json::to_string_pretty(&counts)? + "\n")?;
        println!("{} counts written to xtask/icount.json", counts.len());
    }
    let good = options.update || compare(&read(&committed())?, &counts, options.tolerance);
    let grown = grown(&read(&baseline())?, &counts, GROWTH.max(options.tolerance));
    for line in &grown {
        println!("{line}");
    }
    Ok(good && grown.is_empty())
}

/// The counts that grew beyond the baseline. One without a baseline is new.
fn grown(baseline: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>, most: f64) -> Vec<String> {
    let pairs = now.iter().filter_map(|(name, count)| Some((name, count, baseline.get(name)?)));
    // Not of the change in percent: 105 is 5.000000000000004 % more than 100.
    let grown = pairs.filter(|(_, count, base)| **count > **base * (1.0 + most / 100.0));
    let grown = grown.map(|(name, count, base)| (name, count, base, (count / base - 1.0) * 100.0));
    let line = |(name, count, base, change): (&String, &f64, &f64, f64)| {
        format!(
            "{name}: {count:.1} instructions each, {change:+.1} % since the baseline ({base:.1}), {most} % allowed"
        )
    };
    grown.map(line).collect()
}

/// Prints each count beside the committed one; `false` when one is off. Fewer is good news, and asks for --update.
fn compare(before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>, tolerance: f64) -> bool {
    let mut good = true;
    for (name, count) in now {
        let verdict = match before.get(name) {
            None => "not committed: run with --update".to_owned(),
            Some(old) => {
                let change = (count / old - 1.0) * 100.0;
                let worse = change > tolerance;
                good &= !worse;
                let word = if worse {
                    "MORE than allowed"
                } else if change < -tolerance {
                    "fewer: --update"
                } else {
                    "ok"
                };
                format!("{old:>10.1} before, {change:+.1} % {word}")
            }
        };
        good &= before.contains_key(name);
        println!("{name:<34} {count:>10.1} instructions each, {verdict}");
    }
    for name in before.keys().filter(|n| !now.contains_key(*n)) {
        println!("{name:<34} is committed and no longer counted: run with --update");
        good = false;
    }
    good
}

/// Builds the program whose instructions are counted.
pub(crate) fn build() -> Command {
    let mut cargo = shell::cargo();
    cargo.args(BUILD);
    cargo
}

/// Counts all scenarios, as many at a time as there are cores: counts do not depend on what else runs.
fn count(valgrind: &Path, program: &Path, scenarios: &[&str]) -> Result<BTreeMap<String, f64>> {
    let lanes = std::thread::available_parallelism().map_or(2, usize::from);
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut counts = Vec::new();
        while let Some(s) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            counts.push(((*s).to_owned(), per_unit(valgrind, program, s)?));
        }
        anyhow::Ok(counts)
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut counts = BTreeMap::new();
    for lane in done {
        counts.extend(lane.map_err(|_| anyhow::anyhow!("a thread that counts panicked"))??);
    }
    Ok(counts)
}

fn per_unit(valgrind: &Path, program: &Path, scenario: &str) -> Result<f64> {
    let counts = UNITS.map(|n| instructions(valgrind, program, scenario, n));
    let [few, many] = counts;
    Ok(((many? - few?) as f64 / (UNITS[1] - UNITS[0]) as f64 * 10.0).round() / 10.0)
}

fn instructions(valgrind: &Path, program: &Path, scenario: &str, n: u64) -> Result<u64> {
    let mut c = Command::new(valgrind);
    c.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([scenario, &n.to_string()]);
    let out = c.output().context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&out.stderr);
    let collected = text.lines().find_map(|l| l.split_once("Collected : ")?.1.trim().parse().ok());
    match collected.filter(|_| out.status.success()) {
        Some(count) => Ok(count),
        None => bail!("valgrind could not count {scenario}:\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, f64)]) -> BTreeMap<String, f64> {
        of.iter().map(|&(n, c)| (n.to_owned(), c)).collect()
    }

    #[test]
    fn growth_since_the_baseline_is_named_whatever_was_committed_since() {
        let baseline = counts(&[("a", 100.0), ("gone", 1.0)]);
        assert_eq!(grown(&baseline, &counts(&[("a", 105.0), ("new", 9.0)]), 5.0), Vec::<String>::new());
        let named = grown(&baseline, &counts(&[("a", 106.0)]), 5.0);
        assert_eq!(named, ["a: 106.0 instructions each, +6.0 % since the baseline (100.0), 5 % allowed"]);
    }

    #[test]
    fn more_is_bad_fewer_is_not_and_both_sides_are_complete() {
        let before = counts(&[("a", 100.0)]);
        assert!(compare(&before, &counts(&[("a", 101.9)]), 2.0));
        assert!(!compare(&before, &counts(&[("a", 102.1)]), 2.0));
        assert!(compare(&before, &counts(&[("a", 50.0)]), 2.0));
        assert!(!compare(&before, &counts(&[("a", 100.0), ("b", 1.0)]), 2.0));
        assert!(!compare(&before, &counts(&[]), 2.0));
    }
}
