//! `python`: the wheel of python/, built by maturin, and its tests, in a virtual environment of their own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use xtask::shell;

/// The platform of a wheel that pip takes on systems since Debian 10 and RHEL 8 (PEP 600).
const PORTABLE: &str = "manylinux_2_28";

/// How to build.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PythonOptions {
    /// Optimize, as `bench client` needs it.
    #[arg(long)]
    release: bool,
    /// A wheel for other machines, as it is published: optimized and stripped, for glibc 2.28 and later, linked by zig.
    #[arg(long)]
    portable: bool,
    /// Build and install only.
    #[arg(long)]
    no_tests: bool,
}

/// The virtual environment's own interpreter.
fn interpreter() -> PathBuf {
    xtask::python()
}

fn venv() -> PathBuf {
    shell::target_dir().join("python-venv")
}

/// Builds, installs and tests; what is missing is named.
pub(crate) fn run(options: &PythonOptions) -> Result<bool> {
    if let Err(why) = provide() {
        println!("python: not run: {why:#}");
        return Ok(true);
    }
    let wheels = shell::target_dir().join("wheels");
    // One wheel, so that the name below means this build's.
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    }
    let mut build = python(&["-m", "maturin", "build", "--quiet", "--out"]);
    // By default for this machine: its C library may be newer than those of the wheels for others.
    build.arg(&wheels).args(["--manifest-path", "python/Cargo.toml", "--compatibility"]);
    if options.portable {
        install("ziglang", "ziglang>=0.13,<1")?;
        // maturin looks for zig by the Python of PATH.
        build.args([PORTABLE, "--zig", "--release"]).env("PATH", xtask::path_with_python()?);
    } else {
        build.args(["linux"].into_iter().chain(options.release.then_some("--release")));
    }
    shell::run(build.env("CARGO_TARGET_DIR", shell::target_dir()))?;
    let wheel = std::fs::read_dir(&wheels)?.next().context("maturin built no wheel")??.path();
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", "--no-index"];
    shell::run(python(&install).arg(&wheel))?;
    println!("{}, {} kB", wheel.display(), std::fs::metadata(&wheel)?.len() / 1000);
    if options.portable {
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ensure!(name.contains("-abi3-") && name.contains(PORTABLE), "{name} is no wheel for other machines");
    }
    if !options.no_tests {
        shell::run(&mut python(&["-m", "unittest", "discover", "-s", "python/tests", "-t", "python/tests"]))?;
        check_types()?;
    }
    Ok(true)
}

/// The stubs are what the package has, and a program that uses all of it passes a checker of types.
fn check_types() -> Result<()> {
    if !works(python(&["-m", "mypy", "--version"]))
        && !works(python(&["-m", "pip", "install", "--quiet", "mypy>=1.18,<2"]))
    {
        println!("python: types not checked: {} -m pip install mypy", interpreter().display());
        return Ok(());
    }
    let mut stubs = python(&["-m", "mypy.stubtest", "linerate", "--allowlist", "python/tests/stubtest.txt"]);
    shell::run(&mut stubs)?;
    shell::run(&mut python(&["-m", "mypy", "--strict", "python/tests/typed.py"]))
}

fn works(mut command: Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The environment, with maturin.
fn provide() -> Result<()> {
    if !works(python(&["-m", "pip", "--version"])) {
        let Some(python3) = shell::find("python3") else { bail!("python3 is not installed") };
        let mut make = Command::new(python3);
        make.args(["-m", "venv"]).arg(venv());
        if !works(make) {
            bail!("python3 makes no virtual environment (Debian: python3-venv)");
        }
    }
    install("maturin", "maturin>=1.7,<2")
}

/// Has a module in the environment.
pub(crate) fn install(module: &str, wanted: &str) -> Result<()> {
    if !works(python(&["-c", &format!("import {module}")]))
        && !works(python(&["-m", "pip", "install", "--quiet", wanted]))
    {
        bail!("{module} cannot be installed: {} -m pip install '{wanted}'", interpreter().display());
    }
    Ok(())
}

fn python(words: &[&str]) -> Command {
    let mut c = Command::new(interpreter());
    c.args(words).current_dir(shell::root());
    c
}
