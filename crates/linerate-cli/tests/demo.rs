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
    for way in ["poll", "threads", "async", "keep-alive", "short", "mixed 3", "mixed 10", "pipelined"] {
        let row = out
            .lines()
            .find(|l| l.starts_with(way) && l.contains(" x "))
            .unwrap_or_else(|| panic!("{way}: {out}"));
        assert!(row.contains("µs") || row.contains("ms"), "{row}");
        assert!(out.contains(&format!("\n{way} (")), "{way}: {out}");
    }
    assert!(out.contains("poll") && out.contains("1.00 x"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    assert_eq!(run(&["demo", "--time", "0"]).code, Some(2));
}
