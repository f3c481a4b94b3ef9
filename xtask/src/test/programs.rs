//! The test programs: built once by cargo, then run several at a time. Most of them mostly wait.
//! Each program's output stays whole, and programs that need the machine to themselves get it.
//! Tests that failed run once more at the end, alone; that counts, and the last lines name them.
//! So are tests that this machine cannot run: they report that in a file (crate `linerate-skips`).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::packages;
use super::results::Tally;
use super::{heading, locked, seconds};
use crate::shell;

/// Test programs that run while no other does, each with its reason.
const ALONE: [(&str, &str); 24] = [
    ("linerate-explain", "judges latencies of calls that it makes"),
    ("explain", "judges latencies of calls that it makes"),
    ("explain_bad_servers", "judges latencies of calls that it makes"),
    ("explain_missed", "judges latencies of calls that it makes"),
    ("explain_tls", "judges latencies of calls that it makes"),
    ("client", "counts what a server saw of calls that are cut"),
    ("serve_robust", "drains a server under load"),
    ("serve_signals", "drains a server under load"),
    ("top", "fills the queues of a server"),
    ("expert", "judges latencies of calls that it makes"),
    ("demo", "compares ways of sending"),
    ("compare", "gives servers and client cores of their own"),
    ("find", "looks for the highest rate of a server"),
    ("load_truth", "compares latencies with what a server counted"),
    ("load_capture", "captures packets of the loopback interface"),
    ("passive", "captures packets of the loopback interface"),
    ("serve_scale", "opens as many connections as a process may"),
    ("xdp", "steers packets of its interfaces"),
    ("xdp_conformance", "steers packets of its interfaces"),
    ("xdp_gaps", "steers packets of its interfaces"),
    ("xdp_link", "steers packets of its interfaces"),
    ("xdp_top", "steers packets of its interfaces"),
    ("xdp_trouble", "steers packets of its interfaces"),
    ("real", "measures the network that it makes"),
];

/// Those of [`ALONE`] that hardly use a processor: two of them run at a time, and nothing else.
const QUIET: [&str; 10] = [
    "explain_tls",
    "explain_missed",
    "find",
    "xdp_trouble",
    "client",
    "xdp",
    "explain_bad_servers",
    "xdp_gaps",
    "xdp_link",
    "xdp_top",
];

/// Programs that begin first where the seconds of an earlier run are not known: these take longest.
const LONG: [&str; 8] =
    ["load_bad", "machines", "https_servers", "client_real", "conformance", "serve_slow", "jetty", "layer"];

/// Programs whose tests mostly wait (for delays of a network, for timers, for what must not come),
/// and how many of their tests run at a time.
const PATIENT: [(&str, u32); 5] = [
    ("machines", 8),
    ("explain_missed", 4),
    ("client", 4),
    ("explain_bad_servers", 4),
    ("xdp_conformance", 6),
];

/// Longest run of one program; the longest today takes 90 s.
const LIMIT: Duration = Duration::from_secs(900);

/// While nothing ends, a line says what runs.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_millis(50);

/// The seconds that each program took the last time, so that the longest begin first.
const TIMES: &str = "xtask-test-seconds.json";

/// A test program that cargo built.
#[derive(Clone, Debug, PartialEq)]
struct Program {
    package: String,
    /// The target's name; that of a crate's own tests is the crate's.
    name: String,
    executable: PathBuf,
    /// Folder of the package: the working directory.
    folder: PathBuf,
}

impl Program {
    fn label(&self) -> String {
        format!("{} {}", self.package, self.name)
    }

    fn alone(&self) -> bool {
        ALONE.iter().any(|(name, _)| *name == self.name || *name == self.name.replace('_', "-"))
    }

    fn quiet(&self) -> bool {
        QUIET.contains(&self.name.as_str())
    }

    /// Seconds that it takes where no run is known: only the order matters.
    fn guess(&self) -> f64 {
        let order = QUIET.iter().chain(&LONG).rev();
        order.zip(1..).find(|(name, _)| **name == self.name).map_or(0.0, |(_, seconds)| f64::from(seconds))
    }
}

/// Builds and runs all test programs, then the examples in the documentation.
pub(super) fn run(tally: &mut Tally) -> Result<()> {
    let mut programs = build()?;
    let times = read_times();
    let lasted = |p: &Program| times.get(&p.label()).copied().unwrap_or_else(|| p.guess());
    programs.sort_by(|a, b| lasted(b).total_cmp(&lasted(a)));
    let (apart, together): (Vec<Program>, Vec<Program>) = programs.into_iter().partition(Program::alone);
    let (quiet, alone): (Vec<Program>, Vec<Program>) = apart.into_iter().partition(Program::quiet);
    let lanes = std::thread::available_parallelism().map_or(2, usize::from);
    let (first, then, last) = (together.len(), quiet.len(), alone.len());
    heading(&format!("{first} programs, {lanes} at a time; then {then} in pairs, and {last} one by one"));
    let mut runs = Runs { times, ..Runs::default() };
    for (programs, at_a_time) in [(together, lanes), (quiet, 2), (alone, 1)] {
        runs.all(programs.into_iter().map(Job::first).collect(), at_a_time, tally)?;
    }
    write_times(&runs.times);
    let again = std::mem::take(&mut runs.again);
    let passed_later = runs.once_more(again, tally)?;
    heading("examples in the documentation");
    let mut doc = shell::cargo();
    doc.args(["test", "--workspace", "--doc", "--no-fail-fast"]).args(locked());
    let doc = shell::lines(&mut doc, |line| {
        runs.failed.extend(tally.read(line).map(|test| format!("documentation: {test}")));
        heading(line);
    });
    tally.retried.extend(passed_later);
    if !runs.failed.is_empty() {
        bail!("these failed:\n  {}", runs.failed.join("\n  "));
    }
    doc
}

/// The test programs, built.
fn build() -> Result<Vec<Program>> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(locked());
    let mut programs = Vec::new();
    shell::lines(&mut cargo, |line| programs.extend(program(line)))?;
    Ok(programs)
}

/// The program that a line of cargo's messages names, if it is a test.
fn program(line: &str) -> Option<Program> {
    let v: Value = serde_json::from_str(line).ok()?;
    if v["reason"] != "compiler-artifact" || v["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(v["executable"].as_str()?);
    let folder = Path::new(v["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    Some(Program { package, name: v["target"]["name"].as_str()?.to_owned(), executable, folder })
}

/// A program to run.
#[derive(Debug)]
struct Job {
    program: Program,
    /// The tests that failed before; `None` on the first try. None named: all run.
    failed_before: Option<Vec<String>>,
}

impl Job {
    fn first(program: Program) -> Job {
        Job { program, failed_before: None }
    }

    /// What failed, with the program's name.
    fn names(&self) -> Vec<String> {
        let label = self.program.label();
        match self.failed_before.as_deref().unwrap_or_default() {
            [] => vec![label],
            tests => tests.iter().map(|test| format!("{label}: {test}")).collect(),
        }
    }
}

/// A program that runs.
struct Running {
    job: Job,
    child: Child,
    since: Instant,
    output: PathBuf,
}

/// The results so far.
#[derive(Default)]
struct Runs {
    failed: Vec<String>,
    times: BTreeMap<String, f64>,
    /// What failed on its first try.
    again: Vec<Job>,
}

impl Runs {
    /// Runs tests once more, one program at a time. Returns the names of those that passed this time.
    fn once_more(&mut self, again: Vec<Job>, tally: &mut Tally) -> Result<Vec<String>> {
        let mut passed = Vec::new();
        for job in again {
            let (names, before) = (job.names(), self.failed.len());
            heading(&format!("     once more, alone: {}", names.join(", ")));
            self.all(vec![job], 1, tally)?;
            let failed = &self.failed[before..];
            if failed.is_empty() {
                passed.extend(names);
            } else {
                passed.extend(names.into_iter().filter(|name| name.contains(": ") && !failed.contains(name)));
            }
        }
        Ok(passed)
    }

    fn all(&mut self, jobs: Vec<Job>, lanes: usize, tally: &mut Tally) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut waiting = jobs.into_iter().enumerate();
        let mut running: Vec<Running> = Vec::new();
        let mut last_word = Instant::now();
        loop {
            while running.len() < lanes
                && let Some((n, job)) = waiting.next()
            {
                running.push(start(job, folder.path().join(n.to_string()))?);
            }
            if running.is_empty() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
            for i in (0..running.len()).rev() {
                let over = running[i].since.elapsed() > LIMIT;
                if over {
                    running[i].child.kill()?;
                }
                if over || running[i].child.try_wait()?.is_some() {
                    self.ended(running.swap_remove(i), over, tally)?;
                    last_word = Instant::now();
                }
            }
            if last_word.elapsed() > SIGN_OF_LIFE {
                let names = running
                    .iter()
                    .map(|r| format!("{} ({})", r.job.program.label(), seconds(r.since.elapsed())));
                heading(&format!("     running: {}", names.collect::<Vec<_>>().join(", ")));
                last_word = Instant::now();
            }
        }
    }

    /// Shows a program's whole output and takes in its results.
    fn ended(&mut self, mut run: Running, over: bool, tally: &mut Tally) -> Result<()> {
        let status = run.child.wait()?;
        let took = run.since.elapsed();
        let label = run.job.program.label();
        heading(&format!("     Ran {label} in {}", seconds(took)));
        let output = String::from_utf8_lossy(&std::fs::read(&run.output)?).into_owned();
        // Without a skip there is no file.
        let skips = match std::fs::read(skips_of(&run.output)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).context("cannot read which tests were skipped"),
        };
        let (mut results, mut failed) = (Tally::default(), Vec::new());
        for line in output.lines() {
            failed.extend(results.read(line).map(str::to_owned));
        }
        results.skip(&label, &skips, &output);
        let first = run.job.failed_before.is_none();
        if first && !status.success() && !over {
            // No line of it looks like a result: the next try's count.
            output.lines().for_each(|line| heading(&format!("  1st| {line}")));
            if !failed.is_empty() {
                tally.add_passed(&results);
            }
            self.again.push(Job { failed_before: Some(failed), ..run.job });
            return Ok(());
        }
        tally.add(&results);
        heading(output.trim_end());
        if over {
            self.failed.push(format!("{label}: did not end within {}", seconds(LIMIT)));
        } else if !status.success() && failed.is_empty() {
            self.failed.push(format!("{label}: {status}"));
        }
        self.failed.extend(failed.iter().map(|test| format!("{label}: {test}")));
        if first {
            self.times.insert(label, took.as_secs_f64());
        }
        Ok(())
    }
}

/// Starts a program as `cargo test` does: in its package's folder, with cargo's variables.
fn start(job: Job, output: PathBuf) -> Result<Running> {
    let program = &job.program;
    let file = File::create(&output)?;
    let mut c = Command::new(&program.executable);
    c.current_dir(&program.folder).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    c.env(linerate_skips::FILE, skips_of(&output));
    c.env("CARGO_MANIFEST_DIR", &program.folder).env("CARGO_PKG_NAME", &program.package);
    let deps = program.executable.parent().unwrap_or(Path::new(""));
    let libraries = [Some(deps), deps.parent()].into_iter().flatten().map(Path::to_owned);
    let known = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let path = std::env::join_paths(libraries.chain(std::env::split_paths(&known)))?;
    c.env("LD_LIBRARY_PATH", path);
    let programs = std::env::var_os("PATH").unwrap_or_default();
    c.env("PATH", std::env::join_paths(std::env::split_paths(&programs).chain(packages::go_folder()))?);
    match job.failed_before.as_deref() {
        None | Some([]) => {}
        Some(tests) => drop(c.arg("--exact").args(tests)),
    }
    if let Some((_, threads)) = PATIENT.iter().find(|(name, _)| *name == program.name) {
        c.env("RUST_TEST_THREADS", threads.to_string());
    }
    let child = c.spawn().with_context(|| format!("cannot start {}", program.executable.display()))?;
    Ok(Running { job, child, since: Instant::now(), output })
}

/// Where tests of a program report what they skip, beside its output.
fn skips_of(output: &Path) -> PathBuf {
    output.with_extension("skips")
}

fn read_times() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(shell::target_dir().join(TIMES)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Best effort: without the file the next run only has another order.
fn write_times(times: &BTreeMap<String, f64>) {
    if let Ok(text) = serde_json::to_string_pretty(times) {
        let _ = std::fs::write(shell::target_dir().join(TIMES), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/linerate-cli/Cargo.toml",
        "target":{"name":"xdp","kind":["test"]},"profile":{"test":true},"executable":"/p/target/debug/deps/xdp-1"}"#;

    #[test]
    fn only_tests_are_run() {
        let found = program(TEST).expect("a test");
        assert_eq!((found.label().as_str(), found.alone()), ("linerate-cli xdp", true));
        assert!(found.quiet() && found.guess() > 0.0);
        assert_eq!(found.folder, Path::new("/p/crates/linerate-cli"));
        assert_eq!(program(&TEST.replace("\"test\":true", "\"test\":false")), None);
        assert_eq!(program(&TEST.replace("\"/p/target/debug/deps/xdp-1\"", "null")), None);
        assert_eq!(program("   Compiling linerate"), None);
    }

    fn script(folder: &Path, name: &str, text: &str) -> Program {
        use std::os::unix::fs::PermissionsExt;
        let executable = folder.join(name);
        std::fs::write(&executable, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).expect("executable");
        Program { package: "p".into(), name: name.into(), executable, folder: folder.to_owned() }
    }

    fn jobs(all: Vec<Program>) -> Vec<Job> {
        all.into_iter().map(Job::first).collect()
    }

    const BAD: &str =
        "echo 'test a::b ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101";

    #[test]
    fn failures_are_named_and_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |name, text| script(folder.path(), name, text);
        let good = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        // The second try runs one test only.
        let bad = BAD.replace("1 passed", "$((1 - $# / 2)) passed").replace('\'', "\"");
        let all = jobs(vec![of("good", good), of("bad", &bad), of("killed", "kill -9 $$")]);
        let (mut runs, mut tally) = (Runs::default(), Tally::default());
        runs.all(all, 2, &mut tally).expect("they run");
        assert_eq!((runs.failed.len(), runs.again.len()), (0, 2));
        let again = std::mem::take(&mut runs.again);
        assert_eq!(runs.once_more(again, &mut tally).expect("they run"), Vec::<String>::new());
        runs.failed.sort();
        assert_eq!(runs.failed[0], "p bad: a::b");
        assert!(runs.failed[1].starts_with("p killed: signal: 9"), "{:?}", runs.failed);
        assert_eq!(runs.failed.len(), 2);
        assert_eq!(tally.line(), "3 passed, 1 failed, 0 skipped");
        assert!(!tally.good());
    }

    #[test]
    fn what_a_program_skips_is_counted_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "printf 'a::b\\t\\tcurl\\tno curl\\n' >> \"$LINERATE_SKIPS\"; \
                    echo 'test a::b ... ok'; echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let (mut runs, mut tally) = (Runs::default(), Tally::default());
        runs.all(jobs(vec![script(folder.path(), "lacking", text)]), 1, &mut tally).expect("it runs");
        assert_eq!((tally.line().as_str(), tally.good()), ("1 passed, 0 failed, 1 skipped", true));
        assert_eq!(tally.skipped.first().map(|skip| skip.test.as_str()), Some("p lacking: a::b"));
    }

    #[test]
    fn what_passes_alone_counts_and_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "if [ \"$1\" = --exact ]; then echo \"test result: ok. $(($# - 1)) passed; 0 failed\"; exit; fi; {BAD}"
        );
        let (mut runs, mut tally) = (Runs::default(), Tally::default());
        runs.all(jobs(vec![script(folder.path(), "shy", &text)]), 1, &mut tally).expect("it runs");
        assert_eq!(tally.line(), "1 passed, 0 failed, 0 skipped");
        let again = std::mem::take(&mut runs.again);
        assert_eq!(runs.once_more(again, &mut tally).expect("it runs"), ["p shy: a::b"]);
        assert_eq!((tally.line().as_str(), tally.good()), ("2 passed, 0 failed, 0 skipped", true));
    }
}
