//! Flags of `load` that say where results go: each together with each other one.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::io::Write;
use std::path::Path;

use common::{linerate, responding, run};
use serde_json::Value;

const REQUESTS: &str = "40";

/// A flag with its value, and whether what it asked for is there after the run.
struct Output {
    flag: &'static str,
    value: Option<String>,
    came: Box<dyn Fn(&str) -> bool>,
}

impl Output {
    fn file(flag: &'static str, folder: &Path, name: &str, begins: &'static str) -> Output {
        let path = folder.join(name);
        let value = Some(path.display().to_string());
        // Each run has to write it again.
        let came = move |_: &str| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let _ = std::fs::remove_file(&path);
            text.starts_with(begins)
        };
        Output { flag, value, came: Box::new(came) }
    }

    fn said(flag: &'static str, value: Option<&str>, text: &'static str) -> Output {
        let came = move |said: &str| said.contains(text);
        Output { flag, value: value.map(str::to_owned), came: Box::new(came) }
    }
}

/// All of them, with the servers that they talk to.
fn outputs(folder: &Path, page: &str) -> Vec<Output> {
    let collector = responding(|stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let saved = folder.join("saved");
    let kept = saved.clone();
    let came = move |_: &str| {
        let files = std::fs::read_dir(&kept).map_or(0, Iterator::count);
        let _ = std::fs::remove_dir_all(&kept);
        files > 0
    };
    vec![
        Output::file("--json", folder, "out.json", "{"),
        Output::file("--html", folder, "out.html", "<!"),
        Output::file("--csv", folder, "out.csv", "t_s,"),
        Output::file("--junit", folder, "out.xml", "<?xml"),
        Output::file("--log-requests", folder, "log.csv", "seq,"),
        Output { flag: "--save-responses", value: Some(saved.display().to_string()), came: Box::new(came) },
        Output::said("--metrics", Some("127.0.0.1:0"), "metrics on http://"),
        Output::said("--open", None, "live page on http://"),
        Output::said("--otlp", Some(&format!("http://{collector}")), "requests/s"),
        Output::said("--watch", Some(page), "requests/s"),
        Output::said("--capture", Some("auto"), "requests/s"),
        Output::said("--annotations", Some("github"), "requests/s"),
        Output::said("--summary", Some("short"), "p50"),
    ]
}

fn words<'a>(outputs: impl IntoIterator<Item = &'a Output>) -> Vec<&'a str> {
    outputs.into_iter().flat_map(|o| std::iter::once(o.flag).chain(o.value.as_deref())).collect()
}

fn ends_with_all(wanted: &[&Output], url: &str) {
    let flags = words(wanted.iter().copied());
    let mut args = vec!["load", "-c", "2", "-t", "1", "-n", REQUESTS];
    args.extend_from_slice(&flags);
    args.push(url);
    // A run that does not end is killed after a minute.
    let output = linerate(&args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(0), "{flags:?}: {said}");
    for output in wanted {
        assert!((output.came)(&said), "{} of {flags:?}: {said}", output.flag);
    }
}

#[test]
fn every_pair_of_outputs_ends_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = common::nobody().to_string();
    let target = serving::serve(&["--metrics", &metrics]);
    let url = format!("http://{}/", target.address);
    let outputs = outputs(folder.path(), &format!("http://{metrics}"));
    for (i, one) in outputs.iter().enumerate() {
        for other in &outputs[i + 1..] {
            ends_with_all(&[one, other], &url);
        }
    }
    ends_with_all(&outputs.iter().collect::<Vec<_>>(), &url);
}

/// Flags that write a file, with the beginning of what they write.
const FILES: [(&str, &str); 4] = [("--json", "{"), ("--html", "<!"), ("--csv", "t_s,"), ("--junit", "<?xml")];

#[test]
fn each_document_goes_to_standard_output_and_the_summary_beside_it() {
    let server = serving::serve(&[]);
    let url = format!("http://{}/", server.address);
    for (flag, begins) in FILES {
        let said = run(&["load", "-q", "-c", "2", "-n", REQUESTS, flag, "-", &url]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.starts_with(begins) && !said.out.contains(" answered in "), "{said:?}");
        assert!(said.err.contains(" answered in "), "{said:?}");
    }
}

/// The later one would replace the first.
#[test]
fn one_place_for_two_outputs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, again) = (folder.path().join("out"), folder.path().join("./out"));
    let [file, again] = [&file, &again].map(|path| path.to_str().unwrap());
    let url = format!("http://{}/", common::nobody());
    let others = ["--log-requests", "--save-responses"];
    let flags: Vec<&str> = FILES.iter().map(|(flag, _)| *flag).chain(others).collect();
    for (i, one) in flags.iter().enumerate() {
        for other in &flags[i + 1..] {
            let mut places = vec![(file, file), (file, again)];
            places.extend((!others.contains(one) && !others.contains(other)).then_some(("-", "-")));
            for (to, and_to) in places {
                let said = run(&["load", one, to, other, and_to, &url]);
                let place = if to == "-" { "standard output" } else { file };
                let expected = format!("error: {one} and {other} cannot both go to {place}");
                assert!(said.code == Some(2) && said.err.contains(&expected), "{said:?}");
            }
        }
    }
    for command in ["compare", "lab"] {
        let what: &[&str] = if command == "lab" { &["pipelining"] } else { &[&url, &url] };
        let said = run(&[&[command, "--json", file, "--html", file], what].concat());
        assert!(said.code == Some(2) && said.err.contains("--json and --html cannot both"), "{said:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A scrape that is under way at the end holds the run's figures, and nothing of the run.
#[test]
fn a_log_of_requests_ends_while_metrics_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.jsonl");
    let target = serving::serve(&[]);
    let (url, metrics) = (format!("http://{}/delay/5", target.address), common::nobody().to_string());
    let said = std::thread::scope(|scope| {
        let log = file.to_str().unwrap();
        let args = ["load", "-q", "-c", "2", "-d", "2s", "--metrics", &metrics, "--log-requests", log, &url];
        let running = scope.spawn(move || run(&args));
        let mut scrapes = 0;
        while !running.is_finished() {
            if let Ok(mut stream) = std::net::TcpStream::connect(&metrics) {
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
                scrapes += u32::from(std::io::Read::read(&mut stream, &mut [0; 512]).is_ok_and(|n| n > 0));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(scrapes > 0, "no scrape in two seconds");
        running.join().unwrap()
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    assert!(text.lines().count() > 100, "{}", text.lines().count());
}
