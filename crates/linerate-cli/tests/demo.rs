//! The demo, as short as it can be.

mod common;
#[path = "../../linerate-commands/src/ways/denied.rs"]
mod denied;
mod real;

use common::run;
use denied::{RowFigures, denied};

/// A time of the table, `12.3 ms`, in microseconds; its words are those two.
fn micros(words: &[&str]) -> f64 {
    let unit = [("µs", 1.0), ("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let unit = unit.iter().find(|u| u.0 == words[1]).unwrap_or_else(|| panic!("{words:?}")).1;
    words[0].replace(',', "").parse::<f64>().unwrap_or_else(|e| panic!("{e}: {words:?}")) * unit
}

/// The rows of the first table as it was printed, each with its sentences.
fn rows(out: &str) -> Vec<(RowFigures, String)> {
    let table = out.split("\nway ").nth(1).expect("a table");
    let row = |line: &str| {
        let at = line.find("  ")?;
        let (name, figures) = line.split_at(at);
        let words: Vec<&str> = figures.split_whitespace().collect();
        // A row without a response has no latencies.
        let rate_rps = words.first()?.replace(',', "").parse().ok().filter(|rate| *rate > 0.0)?;
        // rate, ratio and its x, p50, p99, CPU of the client and, where it is known, of the server
        let side = |at: usize| match words.get(at) {
            Some(&"-") | None => None,
            Some(_) => Some(micros(&words[at..])),
        };
        let client = side(7);
        let cpu_us = client.map(|us| us + side(9).unwrap_or(0.0));
        let connections = match name {
            "poll" => 1.0,
            "pipelined" | "http/2" => 8.0,
            _ => 100.0,
        };
        let depth = if ["pipelined", "http/2"].contains(&name) { 100.0 } else { 1.0 };
        let said = out.split(&format!("\n{name} (")).nth(1)?;
        let said: Vec<&str> = said.lines().skip(1).take_while(|l| l.starts_with("  ")).collect();
        let said = said.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        let p50_us = micros(&words[3..]);
        Some((RowFigures { name: name.to_owned(), rate_rps, p50_us, cpu_us, connections, depth }, said))
    };
    table.lines().skip(1).take_while(|line| !line.is_empty()).filter_map(row).collect()
}

/// No sentence of the demo denies the figures of its table.
fn holds(out: &str) {
    let rows = rows(&format!("\n{out}"));
    assert!(rows.len() >= 4, "{out}");
    let figures: Vec<RowFigures> = rows.iter().map(|row| row.0.clone()).collect();
    for (at, (row, said)) in rows.iter().enumerate() {
        let wrong = denied(said, row, &figures[..at]);
        assert!(wrong.is_empty() && !said.is_empty(), "{}: {wrong:?} in {said}\n{out}", row.name);
    }
}

#[test]
fn no_sentence_on_nginx_or_a_busy_client_denies_the_table() {
    let Some(nginx) = real::nginx(1_000_000) else { return };
    let said = run(&["demo", &nginx.url("/"), "--time", "150ms"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    holds(&said.out);
    // Others have the client's cores.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spin = || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(spin)));
        let said = run(&["demo", &nginx.url("/"), "--time", "150ms"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(said.code, Some(0), "{said:?}");
        holds(&said.out);
    });
}

#[test]
fn all_ways_are_shown_with_their_ratios_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let output =
        common::linerate(&["demo", "--time", "100ms"]).current_dir(folder.path()).output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains("requests/s") && out.contains("ratio"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    for way in
        ["poll", "threads", "async", "keep-alive", "short", "mixed 3", "mixed 10", "pipelined", "http/2"]
    {
        let row = out.lines().find(|l| l.starts_with(way) && !l.contains('('));
        assert!(row.is_some_and(|row| row.split_whitespace().count() > 6), "{way}: {out}");
        assert!(out.contains(&format!("\n{way} (")), "{way}: {out}");
    }
    assert!(out.contains("Fastest here: ") && out.contains("10,000 requests:"), "{out}");
    assert!(!out.contains("Do not pipeline here"), "our server does pipeline: {out}");
    holds(&out);
    for way in ["blocking", "threads", "coroutines"] {
        assert!(out.contains(&format!("\n{way} (")), "{way}: {out}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}

#[test]
fn the_ways_run_against_a_server_of_ones_own() {
    let server = common::answering(common::HELLO);
    let url = format!("http://{server}/");
    let said = run(&["demo", &url, "--time", "100ms"]);
    assert!(
        said.code == Some(0) && said.out.contains("pipelined") && !said.out.contains("coroutines"),
        "{said:?}"
    );
    let gone = format!("http://{}/", common::nobody());
    assert_eq!(run(&["demo", &gone, "--time", "100ms"]).code, Some(3));
    assert_eq!(run(&["demo", "gopher://a/"]).code, Some(2));
}

/// As proxies do: one request of a connection after the other, 20 ms each.
#[test]
fn a_server_that_serves_a_pipeline_one_after_another_is_no_praise_of_pipelines() {
    let server = common::responding(|stream| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::io::Write::write_all(stream, common::HELLO.as_bytes())
    });
    let said = run(&["demo", &format!("http://{server}/"), "--time", "400ms"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the responses came one after another"), "{words}");
    assert!(!words.contains("Many requests in a write"), "{words}");
    assert!(words.contains("Do not pipeline here") && words.contains("left out: http/2"), "{words}");
}

/// HAProxy before a backend of 20 ms.
#[test]
fn haproxy_is_no_praise_of_pipelines_either() {
    let Some(haproxy) = linerate_skips::program("haproxy") else { return };
    let backend = common::responding(|stream| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::io::Write::write_all(stream, common::HELLO.as_bytes())
    });
    let (front, folder) = (common::nobody(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n http-reuse always\n\
         frontend f\n bind {front}\n default_backend b\nbackend b\n server s {backend}\n"
    );
    std::fs::write(&file, text).expect("written");
    let mut proxy = std::process::Command::new(haproxy).arg("-f").arg(&file).spawn().expect("it starts");
    common::until("HAProxy", || std::net::TcpStream::connect(front).is_ok());
    let said = run(&["demo", &format!("http://{front}/"), "--time", "400ms"]);
    proxy.kill().expect("it runs");
    proxy.wait().expect("it ends");
    holds(&said.out);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Do not pipeline here") && !words.contains("Many requests in a write"), "{words}");
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    assert_eq!(run(&["demo", "--time", "0"]).code, Some(2));
}
