//! The test programs: built once by cargo, then run several at a time, as [`schedule`] says.
//! Each program's output stays whole, and programs that need the machine to themselves get it.
//! Tests that failed run once more at the end, alone; that counts, and the last lines name them.
//! So are tests that this machine cannot run: they report that in a file (crate `linerate-skips`).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::beside::BackgroundBuilds;
use super::packages;
use super::results::TestTally;
use super::schedule::{self, ProgramNeed, Tests};
use super::{locked, seconds};
use xtask::shell::{self, heading};

/// Longest run of one program; the longest today takes 90 s.
const LIMIT: Duration = Duration::from_secs(900);

/// While nothing ends, a line says what runs.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_millis(50);

/// What each program took the last time, so that the longest begin first and fill the processors.
const TIMES: &str = "xtask-test-times.json";

/// The unit of /proc's times (USER_HZ), the same on all machines that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a program took.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct ProgramTimes {
    seconds: f64,
    cpu_seconds: f64,
}

/// A test program that cargo built.
#[derive(Clone, Debug, PartialEq)]
struct TestProgram {
    package: String,
    /// The target's name; that of a crate's own tests is the crate's.
    name: String,
    executable: PathBuf,
    /// Folder of the package: the working directory.
    folder: PathBuf,
    tests: Tests,
}

impl TestProgram {
    fn label(&self) -> String {
        format!("{} {}", self.package, self.name)
    }

    /// With the part of its tests that runs.
    fn whole_label(&self) -> String {
        match self.tests {
            Tests::All => self.label(),
            Tests::With(part) => format!("{} ({part})", self.label()),
            Tests::Without(part) => format!("{} (without {part})", self.label()),
        }
    }
}

/// Builds and runs all test programs, then the examples in the documentation. Beside programs that
/// need no quiet machine run the builds `beside`.
pub(super) fn run(tally: &mut TestTally, beside: Vec<Command>) -> Result<()> {
    let programs = build()?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    heading(&format!("{} programs", programs.len()));
    let mut runs = Runs { times: read_times(), ..Runs::default() };
    let parts = |program: TestProgram| {
        let parts = schedule::parts(&program.name).into_iter();
        parts.map(move |tests| TestProgram { tests, ..program.clone() })
    };
    let mut jobs: Vec<TestJob> = programs.into_iter().flat_map(parts).map(|part| runs.first(part)).collect();
    jobs.sort_by(|a, b| b.need.seconds.total_cmp(&a.need.seconds));
    runs.beside = BackgroundBuilds::start(beside)?;
    runs.all(jobs, cores, tally)?;
    runs.beside = None;
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
fn build() -> Result<Vec<TestProgram>> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(locked());
    let mut programs = Vec::new();
    shell::lines(&mut cargo, |line| programs.extend(program(line)))?;
    Ok(programs)
}

/// The program that a line of cargo's messages names, if it is a test.
fn program(line: &str) -> Option<TestProgram> {
    let v: Value = serde_json::from_str(line).ok()?;
    if v["reason"] != "compiler-artifact" || v["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(v["executable"].as_str()?);
    let folder = Path::new(v["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = v["target"]["name"].as_str()?.to_owned();
    Some(TestProgram { package, name, executable, folder, tests: Tests::All })
}

/// A program to run.
#[derive(Debug)]
struct TestJob {
    program: TestProgram,
    need: ProgramNeed,
    /// The tests that failed before; `None` on the first try. None named: all run.
    failed_before: Option<Vec<String>>,
}

impl TestJob {
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
struct RunningProgram {
    job: TestJob,
    child: Child,
    since: Instant,
    output: PathBuf,
    /// Processor seconds so far, of its children too once they have ended.
    cpu: f64,
}

/// The results so far.
#[derive(Default)]
struct Runs {
    failed: Vec<String>,
    times: BTreeMap<String, ProgramTimes>,
    /// What failed on its first try.
    again: Vec<TestJob>,
    /// What is built meanwhile.
    beside: Option<BackgroundBuilds>,
}

impl Runs {
    fn first(&self, program: TestProgram) -> TestJob {
        let last = self.times.get(&program.whole_label()).map(|times| (times.seconds, times.cpu_seconds));
        TestJob { need: ProgramNeed::of(&program.name, program.tests, last), program, failed_before: None }
    }

    /// Runs tests once more, one program at a time. Returns the names of those that passed this time.
    fn once_more(&mut self, again: Vec<TestJob>, tally: &mut TestTally) -> Result<Vec<String>> {
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

    fn all(&mut self, mut waiting: Vec<TestJob>, cores: usize, tally: &mut TestTally) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut running: Vec<RunningProgram> = Vec::new();
        let mut last_word = Instant::now();
        let mut begun = 0;
        loop {
            while let Some(at) = self.next(&waiting, &running, cores)? {
                begun += 1;
                running.push(start(waiting.remove(at), folder.path().join(begun.to_string()))?);
            }
            if running.is_empty() && waiting.is_empty() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
            for i in (0..running.len()).rev() {
                let over = running[i].since.elapsed() > LIMIT;
                running[i].cpu = cpu_seconds(running[i].child.id()).unwrap_or(running[i].cpu);
                if over {
                    running[i].child.kill()?;
                }
                if over || running[i].child.try_wait()?.is_some() {
                    self.ended(running.swap_remove(i), over, tally)?;
                    last_word = Instant::now();
                }
            }
            if last_word.elapsed() > SIGN_OF_LIFE {
                let name = |r: &RunningProgram| {
                    format!("{} ({})", r.job.program.whole_label(), seconds(r.since.elapsed()))
                };
                let beside = self.beside.as_ref().filter(|_| running.is_empty()).map(BackgroundBuilds::words);
                let names = running.iter().map(name).chain(beside);
                heading(&format!("     running: {}", names.collect::<Vec<_>>().join(", ")));
                last_word = Instant::now();
            }
        }
    }

    /// The place of the job that starts now.
    fn next(
        &mut self,
        waiting: &[TestJob],
        running: &[RunningProgram],
        cores: usize,
    ) -> Result<Option<usize>> {
        let mut needs: Vec<ProgramNeed> = running.iter().map(|r| r.job.need).collect();
        if let Some(beside) = &mut self.beside
            && beside.run()?
        {
            needs.push(ProgramNeed::BUILD);
        }
        let waiting: Vec<ProgramNeed> = waiting.iter().map(|job| job.need).collect();
        Ok(schedule::next(&waiting, &needs, cores))
    }

    /// Shows a program's whole output and takes in its results.
    fn ended(&mut self, mut run: RunningProgram, over: bool, tally: &mut TestTally) -> Result<()> {
        let status = run.child.wait()?;
        let took = run.since.elapsed();
        let label = run.job.program.label();
        let cpu = Duration::from_secs_f64(run.cpu);
        let label_and_part = run.job.program.whole_label();
        heading(&format!("     Ran {label_and_part} in {} ({} of CPU)", seconds(took), seconds(cpu)));
        let output = String::from_utf8_lossy(&std::fs::read(&run.output)?).into_owned();
        // Without a skip there is no file.
        let skips = match std::fs::read(skips_of(&run.output)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).context("cannot read which tests were skipped"),
        };
        let (mut results, mut failed) = (TestTally::default(), Vec::new());
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
            self.again.push(TestJob { failed_before: Some(failed), ..run.job });
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
            let times = ProgramTimes { seconds: took.as_secs_f64(), cpu_seconds: run.cpu };
            self.times.insert(label_and_part, times);
        }
        Ok(())
    }
}

/// Starts a program as `cargo test` does: in its package's folder, with cargo's variables.
fn start(job: TestJob, output: PathBuf) -> Result<RunningProgram> {
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
    match (job.failed_before.as_deref(), program.tests) {
        (None | Some([]), Tests::All) => {}
        (None | Some([]), Tests::With(part)) => drop(c.arg(part)),
        (None | Some([]), Tests::Without(part)) => drop(c.args(["--skip", part])),
        (Some(tests), _) => drop(c.arg("--exact").args(tests)),
    }
    if let Some(tests) = schedule::tests_at_a_time(&program.name) {
        c.env("RUST_TEST_THREADS", tests.to_string());
    }
    let child = c.spawn().with_context(|| format!("cannot start {}", program.executable.display()))?;
    Ok(RunningProgram { job, child, since: Instant::now(), output, cpu: 0.0 })
}

/// Where tests of a program report what they skip, beside its output.
fn skips_of(output: &Path) -> PathBuf {
    output.with_extension("skips")
}

/// Processor seconds of a process, and of those of its children that have ended.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have spaces in it. utime, stime, cutime and cstime follow as the
    // 12th to 15th field behind it.
    let fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks as f64 / TICKS_PER_SECOND)
}

fn read_times() -> BTreeMap<String, ProgramTimes> {
    let text = std::fs::read_to_string(shell::target_dir().join(TIMES)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Best effort: without the file the next run only has another order.
fn write_times(times: &BTreeMap<String, ProgramTimes>) {
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
        assert_eq!(found.label(), "linerate-cli xdp");
        assert_eq!(found.folder, Path::new("/p/crates/linerate-cli"));
        assert_eq!(program(&TEST.replace("\"test\":true", "\"test\":false")), None);
        assert_eq!(program(&TEST.replace("\"/p/target/debug/deps/xdp-1\"", "null")), None);
        assert_eq!(program("   Compiling linerate"), None);
    }

    fn script(folder: &Path, name: &str, text: &str) -> TestProgram {
        use std::os::unix::fs::PermissionsExt;
        let executable = folder.join(name);
        std::fs::write(&executable, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).expect("executable");
        TestProgram {
            package: "p".into(),
            name: name.into(),
            executable,
            folder: folder.to_owned(),
            tests: Tests::All,
        }
    }

    fn jobs(all: Vec<TestProgram>) -> Vec<TestJob> {
        all.into_iter().map(|program| Runs::default().first(program)).collect()
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
        let (mut runs, mut tally) = (Runs::default(), TestTally::default());
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
        let (mut runs, mut tally) = (Runs::default(), TestTally::default());
        runs.all(jobs(vec![script(folder.path(), "lacking", text)]), 1, &mut tally).expect("it runs");
        assert_eq!((tally.line().as_str(), tally.good()), ("1 passed, 0 failed, 1 skipped", true));
        assert_eq!(tally.skipped.first().map(|skip| skip.test.as_str()), Some("p lacking: a::b"));
    }

    #[test]
    fn the_processor_time_of_a_process_is_read() {
        let begin = Instant::now();
        let mut seen = cpu_seconds(std::process::id()).expect("a time");
        while seen == 0.0 && begin.elapsed() < SIGN_OF_LIFE {
            seen = cpu_seconds(std::process::id()).expect("a time");
        }
        assert!(seen > 0.0 && seen < 1_000.0, "{seen} s");
        assert_eq!(cpu_seconds(u32::MAX), None);
    }

    #[test]
    fn what_passes_alone_counts_and_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "if [ \"$1\" = --exact ]; then echo \"test result: ok. $(($# - 1)) passed; 0 failed\"; exit; fi; {BAD}"
        );
        let (mut runs, mut tally) = (Runs::default(), TestTally::default());
        runs.all(jobs(vec![script(folder.path(), "shy", &text)]), 1, &mut tally).expect("it runs");
        assert_eq!(tally.line(), "1 passed, 0 failed, 0 skipped");
        let again = std::mem::take(&mut runs.again);
        assert_eq!(runs.once_more(again, &mut tally).expect("it runs"), ["p shy: a::b"]);
        assert_eq!((tally.line().as_str(), tally.good()), ("2 passed, 0 failed, 0 skipped", true));
    }
}
