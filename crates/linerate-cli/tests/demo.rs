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
    for way in ["poll", "threads", "async", "keep-alive", "short", "mixed 3", "mixed 10", "pipelined"] {
        let row = out.lines().find(|l| l.starts_with(way) && !l.contains('('));
        assert!(row.is_some_and(|row| row.split_whitespace().count() > 6), "{way}: {out}");
        assert!(out.contains(&format!("\n{way} (")), "{way}: {out}");
    }
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

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    assert_eq!(run(&["demo", "--time", "0"]).code, Some(2));
}
