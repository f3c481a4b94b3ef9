//! Tests that cannot run on this machine. Libtest has no word for them: it says `ok`. Each test asks
//! here, so that `cargo xtask test` counts what did not run and names the reason.
//!
//! The runner sets [`FILE`]. Without it (`cargo test`) a line on standard error says the same; it
//! bypasses the capture of a test's output.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Names the file to which skips are appended, one a line: test, part, need and reason, with tabs
/// between them. The part is empty if the whole test did not run.
pub const FILE: &str = "LINERATE_SKIPS";

/// Needs other than programs, whose need is their name.
pub mod need {
    /// Root and network namespaces.
    pub const NAMESPACES: &str = "namespaces";
    /// AF_XDP and the right to use it.
    pub const XDP: &str = "xdp";
    /// Packets of other programs: CAP_NET_RAW.
    pub const CAPTURE: &str = "capture";
    /// A kernel with io_uring.
    pub const IO_URING: &str = "io_uring";
    /// Root, for what takes no namespaces.
    pub const ROOT: &str = "root";
    /// The public suites beside the project.
    pub const SUITES: &str = "../shared/suites";
    /// The public captures beside the project.
    pub const CAPTURES: &str = "../shared/pcaps";
    /// Sockets as the kernel lists them (`sock_diag`).
    pub const SOCK_DIAG: &str = "sock_diag";
    /// Modules that other people's clients and checks in Python need.
    pub const PYTHON_MODULES: &str = "modules of Python";
    /// Enough open files (`ulimit -n`).
    pub const OPEN_FILES: &str = "ulimit -n";
}

/// Where a program is: PATH, the system administrator's folders, where nginx lives, and that of
/// `go install`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let go = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin"));
    let folders = std::env::split_paths(&path).chain(more).chain(go);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Where a program is that this test needs. `None`: it is missing, and the test is reported.
#[track_caller]
pub fn program(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(name, format_args!("{name} is not installed"));
    }
    found
}

/// Where a program is that a part of this test needs.
#[track_caller]
pub fn program_for(part: &str, name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip_part(part, name, format_args!("{name} is not installed"));
    }
    found
}

/// A Python that has these modules: that of PATH, or the system's, whose packages are its own.
pub fn find_python(modules: &[&str]) -> Option<PathBuf> {
    let import = format!("import {}", modules.join(", "));
    let has = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", &import]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    find("python3").into_iter().chain([PathBuf::from("/usr/bin/python3")]).find(has)
}

/// The same for a part of this test, or for all of it if the part has no name. `None`: there is no
/// such Python, which is reported.
#[track_caller]
pub fn python_for(part: &str, modules: &[&str]) -> Option<PathBuf> {
    let found = find_python(modules);
    if found.is_none() {
        let why = format_args!("Python has no {}", modules.join(" and "));
        skip_part(part, need::PYTHON_MODULES, why);
    }
    found
}

/// A file of the public suites, which lie beside the project. `None`: it is missing, and the test is
/// reported.
#[track_caller]
pub fn suite(path: &str) -> Option<PathBuf> {
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/suites");
    let file = suites.join(path);
    if file.exists() {
        return Some(file);
    }
    skip(need::SUITES, format_args!("there is no ../shared/suites/{path}"));
    None
}

/// Reports that the current test does not run, because this machine lacks `need`.
#[track_caller]
pub fn skip(need: &str, why: impl Display) {
    report("", need, &why);
}

/// Reports that a part of the current test does not run; an empty name is the whole test.
#[track_caller]
pub fn skip_part(part: &str, need: &str, why: impl Display) {
    report(part, need, &why);
}

#[track_caller]
fn report(part: &str, need: &str, why: &dyn Display) {
    // Libtest gives each test a thread of its name.
    let name = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    let place = Location::caller();
    let test = name.unwrap_or_else(|| place.to_string());
    let of = if part.is_empty() { String::new() } else { format!(" ({part})") };
    let line = [&test, part, need, &why.to_string()].map(|field| field.replace(['\t', '\r', '\n'], " "));
    let Some(file) = std::env::var_os(FILE) else {
        let _ = writeln!(std::io::stderr(), "skipped: {test}{of}: {why}");
        return;
    };
    // One write a line: tests run beside each other.
    let text = line.join("\t") + "\n";
    let written = OpenOptions::new().append(true).create(true).open(&file);
    if let Err(error) = written.and_then(|mut file| file.write_all(text.as_bytes())) {
        panic!("the skip of {test} cannot be reported in {}: {error}", Path::new(&file).display());
    }
    println!("skipped{of}: {why}");
}
