//! `release --check`: every way of installing, on a clean root file system, from nothing to a first
//! result, timed. A step whose tool is missing is named and is no failure. `release --formulas` fills
//! in what other package managers take.

#[cfg(test)]
mod action;
mod formulas;
mod rootfs;
#[cfg(test)]
mod scripts;
mod versions;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::dist;
use xtask::shell;

/// The flags of `release`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReleaseOptions {
    /// Check what a release needs; nothing is published
    #[arg(long, required_unless_present = "formulas")]
    check: bool,
    /// Fill in the Homebrew formula and the PKGBUILD, for a folder that has both static archives
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["check", "only", "no_build"])]
    formulas: Option<PathBuf>,
    /// Only these steps
    #[arg(long, value_name = "STEP", value_parser = STEPS.map(|(name, _)| name))]
    only: Vec<String>,
    /// Pack the static release binary that is there, without building it
    #[arg(long)]
    no_build: bool,
}

impl ReleaseOptions {
    fn dist(&self) -> dist::DistOptions {
        dist::DistOptions {
            target: Some(static_target()),
            no_build: self.no_build,
            ..dist::DistOptions::default()
        }
    }
}

/// The static binary's target, for this machine's processor: what the workflow publishes.
fn static_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// What became of a step.
enum StepOutcome {
    Good(String),
    /// The missing tool, and its package.
    Lacking(String),
}

impl StepOutcome {
    fn lacking(tool: &str) -> StepOutcome {
        StepOutcome::Lacking(format!("{tool} is missing"))
    }
}

type Step = (&'static str, fn(&ReleaseOptions, &Path) -> Result<StepOutcome>);

const STEPS: [Step; 8] = [
    ("versions", |_, _| versions::check(shell::root()).map(StepOutcome::Good)),
    ("crates", |_, _| crates()),
    ("source", |_, folder| source(folder)),
    ("archive", archive),
    ("deb", deb),
    ("rpm", rpm),
    ("container", |options, _| container(options)),
    ("book", |_, _| book()),
];

/// Runs all steps; `false` when one failed.
pub(crate) fn run(options: &ReleaseOptions) -> Result<bool> {
    if let Some(folder) = &options.formulas {
        formulas::fill(folder)?;
        return Ok(true);
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|o| o == name);
    let mut rows = Vec::new();
    let mut good = true;
    for (name, step) in STEPS.into_iter().filter(|(name, _)| wanted(name)) {
        println!("== {name}");
        let folder = tempfile::tempdir()?;
        let begin = Instant::now();
        let result = step(options, folder.path());
        let took = begin.elapsed().as_secs_f64();
        rows.push(match result {
            Ok(StepOutcome::Good(what)) => format!("{name:<10} good     {took:6.1} s  {what}"),
            Ok(StepOutcome::Lacking(tool)) => format!("{name:<10} not run            {tool}"),
            Err(e) => {
                good = false;
                format!("{name:<10} FAILED   {took:6.1} s  {e:#}")
            }
        });
        rows.iter().next_back().into_iter().for_each(|row| println!("{row}"));
    }
    println!("\n{}", rows.join("\n"));
    Ok(good)
}

/// Crates that are published, as cargo would upload them: each is built from its archive.
fn crates() -> Result<StepOutcome> {
    let text = shell::output(shell::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let text: Value = serde_json::from_str(&text)?;
    let all = text["packages"].as_array().context("no packages")?.iter();
    let names: Vec<&str> =
        all.filter(|p| p["publish"].is_null()).filter_map(|p| p["name"].as_str()).collect();
    let mut c = shell::cargo();
    c.args(["publish", "--dry-run", "--allow-dirty"]);
    for name in &names {
        c.args(["-p", name]);
    }
    shell::run(&mut c)?;
    Ok(StepOutcome::Good(format!("cargo publish --dry-run of {}", names.join(", "))))
}

/// A first result of the installed command.
fn first_result(linerate: &Path) -> Result<()> {
    let out = shell::output(shell::program(linerate).args(["demo", "--time", "100ms"]))?;
    ensure!(out.contains("pipelined"), "the demo said {out}");
    Ok(())
}

/// A checkout, `cargo install`, the demo.
fn source(folder: &Path) -> Result<StepOutcome> {
    let checkout = folder.join("linerate");
    std::fs::create_dir_all(&checkout)?;
    let tar = folder.join("source.tar");
    shell::run(shell::program("git").args(["archive", "--output"]).arg(&tar).arg("HEAD"))?;
    shell::run(shell::program("tar").arg("-C").arg(&checkout).arg("-xf").arg(&tar))?;
    let mut c = shell::cargo();
    c.current_dir(&checkout).env_remove("CARGO_TARGET_DIR");
    c.args(["install", "--locked", "--path", "crates/linerate-cli", "--root"]).arg(folder);
    shell::run(&mut c)?;
    first_result(&folder.join("bin/linerate"))?;
    Ok(StepOutcome::Good("git archive, cargo install --locked, linerate demo".to_owned()))
}

/// What building the static binary lacks.
fn static_lacks(options: &ReleaseOptions) -> Result<Option<StepOutcome>> {
    if options.no_build {
        return Ok(None);
    }
    let target = static_target();
    let installed =
        shell::output(shell::program("rustc").args(["--print", "target-libdir", "--target", &target]))?;
    if !Path::new(installed.trim()).exists() {
        return Ok(Some(StepOutcome::lacking(&format!("the target {target} (rustup target add)"))));
    }
    Ok(shell::find("musl-gcc").is_none().then(|| StepOutcome::lacking("musl-gcc (package musl-tools)")))
}

fn archive(options: &ReleaseOptions, folder: &Path) -> Result<StepOutcome> {
    if let Some(lacking) = static_lacks(options)? {
        return Ok(lacking);
    }
    dist::run(&options.dist())?;
    let file = newest("tar.gz")?;
    shell::run(shell::program("tar").arg("-C").arg(folder).arg("-xzf").arg(&file))?;
    let inside = std::fs::read_dir(folder)?.next().context("an empty archive")??.path();
    first_result(&inside.join("linerate"))?;
    let beside = dist::BESIDE.map(dist::in_archive);
    for part in [dist::LIBRARY, "man/linerate-load.1", "completions/linerate.bash"].into_iter().chain(beside)
    {
        ensure!(inside.join(part).exists(), "the archive lacks {part}");
    }
    Ok(StepOutcome::Good("unpacked, linerate demo".to_owned()))
}

/// The newest file of target/dist/out with this ending.
fn newest(ending: &str) -> Result<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dist::folder().join("out"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(ending) {
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    files.sort();
    files.pop().map(|(_, path)| path).with_context(|| format!("target/dist/out has no .{ending}"))
}

fn deb(options: &ReleaseOptions, folder: &Path) -> Result<StepOutcome> {
    if shell::output(shell::cargo().args(["deb", "--version"])).is_err() {
        return Ok(StepOutcome::lacking("cargo-deb (cargo install --locked cargo-deb)"));
    }
    if shell::find("debootstrap").is_none() || !shell::is_root() {
        return Ok(StepOutcome::lacking("debootstrap (package debootstrap), or root"));
    }
    if let Some(lacking) = static_lacks(options)? {
        return Ok(lacking);
    }
    dist::run(&dist::DistOptions { deb: true, ..options.dist() })?;
    rootfs::deb(folder, &newest("deb")?).map(StepOutcome::Good)
}

fn rpm(options: &ReleaseOptions, folder: &Path) -> Result<StepOutcome> {
    if let Err(e) = dist::rpm_tool() {
        return Ok(StepOutcome::Lacking(format!("{e:#}")));
    }
    if shell::find("rpm").is_none() || !shell::is_root() {
        return Ok(StepOutcome::lacking("rpm (package rpm), or root"));
    }
    if let Some(lacking) = static_lacks(options)? {
        return Ok(lacking);
    }
    dist::run(&dist::DistOptions { rpm: true, ..options.dist() })?;
    rootfs::rpm(folder, &newest("rpm")?).map(StepOutcome::Good)
}

/// The image of the static binary, and a request to it: what the test `container` does with this
/// build's own command.
fn container(options: &ReleaseOptions) -> Result<StepOutcome> {
    if shell::find("buildah").is_none() {
        return Ok(StepOutcome::lacking("buildah (package buildah)"));
    }
    if let Some(lacking) = static_lacks(options)? {
        return Ok(lacking);
    }
    dist::run(&options.dist())?;
    let binary = dist::folder().join("bin/linerate");
    let mut c = shell::cargo();
    c.args(["test", "--workspace", "--test", "container"]).env("LINERATE_CONTAINER", &binary);
    shell::run(&mut c)?;
    Ok(StepOutcome::Good(format!("an image of {} kB serves", std::fs::metadata(&binary)?.len() >> 10)))
}

/// Every command line of the book, its recipes and chapters, the slow ones too.
fn book() -> Result<StepOutcome> {
    let mut c = shell::cargo();
    c.args(["test", "--workspace", "--test", "book", "--test", "book_recipes"]).env("LINERATE_BOOK", "all");
    shell::run(&mut c)?;
    if !crate::book::run(&crate::book::BookOptions { check: false })? {
        bail!("the book has findings");
    }
    Ok(StepOutcome::Good("every command line, links, spelling, mdbook".to_owned()))
}
