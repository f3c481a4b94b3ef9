//! tlsfuzzer's scripts against `linerate serve`, for TLS 1.2 and 1.3. `tlsfuzzer/scripts.tsv` has the scripts, the failures
//! that are right and why, and the scripts that do not fit. The scripts lie beside the repository; without them, or without
//! Python, the test says so and ends.
#![allow(clippy::unwrap_used)]

mod real;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_skips::{need, skip};

use real::find;
use serving::serve;

/// tlsfuzzer needs this version of its library, or a later one.
const LIBRARY: &str = "tlslite-ng==0.9.0b2";

/// Where a missing library is installed, once for all runs.
/// What is missing, and why that stops the test.
type Lack = (&'static str, String);

fn python() -> Result<PathBuf, Lack> {
    let python = find("python3").ok_or(("python3", "there is no python3".to_owned()))?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tlsfuzzer-python");
    let own = folder.join("bin/python");
    let has = |python: &Path| {
        let import = "from tlslite.constants import SignatureScheme; SignatureScheme.mldsa87";
        Command::new(python).args(["-c", import]).output().is_ok_and(|out| out.status.success())
    };
    if has(&python) {
        return Ok(python);
    }
    if !has(&own) {
        let run = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
        let made = run(Command::new(&python).args(["-m", "venv"]).arg(&folder))
            && run(Command::new(&own).args(["-m", "pip", "install", "--quiet", LIBRARY]));
        if !made || !has(&own) {
            return Err((
                need::PYTHON_MODULES,
                format!("python3 has no {LIBRARY}, and it cannot be installed"),
            ));
        }
    }
    Ok(own)
}

/// The scripts, unpacked.
fn scripts(into: &Path) -> Result<PathBuf, Lack> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/suites/tlsfuzzer.tar.xz");
    if !archive.exists() {
        return Err((need::SUITES, "there is no ../shared/suites/tlsfuzzer.tar.xz".to_owned()));
    }
    let unpacked = Command::new("tar").arg("-C").arg(into).arg("-xf").arg(archive).status();
    match unpacked.is_ok_and(|status| status.success()) {
        true => Ok(into.join("tlsfuzzer")),
        false => Err(("tar", "tar cannot unpack tlsfuzzer".to_owned())),
    }
}

/// Its key is RSA's, which most scripts expect.
fn certificate(folder: &Path) -> Result<[String; 2], Lack> {
    let files = ["cert.pem", "key.pem"].map(|name| folder.join(name).display().to_string());
    let openssl = find("openssl").ok_or(("openssl", "there is no openssl".to_owned()))?;
    let made = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "60", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"])
        .args(["-out", &files[0], "-keyout", &files[1]])
        .output();
    match made.is_ok_and(|out| out.status.success()) {
        true => Ok(files),
        false => Err(("openssl", "openssl makes no certificate".to_owned())),
    }
}

/// `scripts.tsv`.
#[derive(Default)]
struct Table<'a> {
    /// Scripts and their arguments.
    run: Vec<&'a str>,
    /// By script: a part of a failure that is right.
    excepted: BTreeMap<&'a str, Vec<&'a str>>,
    known: BTreeSet<&'a str>,
}

impl<'a> Table<'a> {
    fn parse(text: &'a str) -> Table<'a> {
        let mut table = Table::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            match columns[..] {
                ["run", line] => {
                    table.run.push(line);
                    table.known.insert(line.split(' ').next().unwrap());
                }
                ["except", script, failure, reason] => {
                    assert!(!reason.is_empty(), "{line}: why?");
                    table.excepted.entry(script).or_default().push(failure);
                }
                ["leave", script, reason] => {
                    assert!(!reason.is_empty() && table.known.insert(script), "{line}: why?");
                }
                _ => panic!("scripts.tsv: {line}"),
            }
        }
        table
    }

    /// Failures of a script that no exception covers, and the exceptions that it used.
    fn judge(&self, report: &serde_json::Value) -> (Vec<String>, BTreeSet<&'a str>) {
        let script = report["script"].as_str().unwrap();
        let mut wrong = Vec::new();
        let mut used = BTreeSet::new();
        if let Some(why) = report["broken"].as_str() {
            wrong.push(format!("{script} does not run: {why}"));
        }
        if report["passed"] == 0 {
            wrong.push(format!("{script}: nothing passes"));
        }
        let empty = Vec::new();
        for (name, why) in report["failed"].as_object().unwrap() {
            let why = why.as_str().unwrap();
            let mut excepted = self.excepted.get(script).unwrap_or(&empty).iter();
            match excepted.find(|part| why.contains(**part)) {
                Some(part) if name != "sanity" => drop(used.insert(*part)),
                _ => wrong.push(format!("{script}, {name}: {why}")),
            }
        }
        (wrong, used)
    }
}

fn reports(python: &Path, scripts: &Path, port: &str, run: &[&str]) -> Vec<serde_json::Value> {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tlsfuzzer/run.py");
    let mut child = Command::new(python)
        .arg(runner)
        .arg(scripts)
        .arg(port)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(run.join("\n").as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn scripts_pass_or_fail_for_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let all = || Ok::<_, Lack>((scripts(folder.path())?, certificate(folder.path())?, python()?));
    let (scripts, [cert, key], python) = match all() {
        Ok(all) => all,
        Err((need, why)) => return skip(need, why),
    };
    let table = Table::parse(include_str!("tlsfuzzer/scripts.tsv"));
    for entry in std::fs::read_dir(scripts.join("tlsfuzzer/_apps")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".py").filter(|name| name.starts_with("test_")) {
            let name = name.replace('_', "-");
            assert!(table.known.contains(&*name), "scripts.tsv does not have {name}");
        }
    }
    let server =
        serve(&["--tls-cert", &cert, "--tls-key", &key, "--threads", "2", "--demo-routes", "--http2", "off"]);
    let port = server.address.rsplit_once(':').unwrap().1;
    let mut wrong = Vec::new();
    // The scripts wait for a few seconds at most, and a busy machine may take longer.
    let mut run = table.run.clone();
    for _ in 0..3 {
        let reports = reports(&python, &scripts, port, &run);
        assert_eq!(reports.len(), run.len());
        let judged = reports.iter().map(|report| (report["script"].as_str().unwrap(), table.judge(report).0));
        let failed: BTreeMap<&str, Vec<String>> = judged.filter(|(_, wrong)| !wrong.is_empty()).collect();
        run.retain(|line| failed.contains_key(line.split(' ').next().unwrap()));
        wrong = failed.values().flatten().cloned().collect();
        if wrong.is_empty() {
            return;
        }
    }
    panic!("three times:\n{}", wrong.join("\n"));
}
