//! The demo, as short as it can be.

mod common;

use common::run;

#[test]
fn all_ways_are_shown_with_their_ratios_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let output =
        common::linerate(&["demo", "--time", "100ms"]).current_dir(folder.path()).output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains("requests/s") && out.contains("ratio"), "{out}");
    for way in
        ["poll", "threads", "async", "keep-alive", "short", "mixed 3", "mixed 10", "pipelined", "http/2"]
    {
        let row = out.lines().find(|l| l.starts_with(way) && !l.contains('('));
        assert!(row.is_some_and(|row| row.split_whitespace().count() > 6), "{way}: {out}");
        assert!(out.contains(&format!("\n{way} (")), "{way}: {out}");
    }
    assert!(out.contains("Fastest here: ") && out.contains("10,000 requests:"), "{out}");
    assert!(!out.contains("Do not pipeline here"), "our server does pipeline: {out}");
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
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Do not pipeline here") && !words.contains("Many requests in a write"), "{words}");
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    assert_eq!(run(&["demo", "--time", "0"]).code, Some(2));
}
