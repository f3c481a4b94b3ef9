//! Replays the corpus of each fuzz target, through the same functions, as an ordinary test.

use std::fs;
use std::path::PathBuf;

use linerate_http::{client, h2, h3, server};

/// Runs each file of a target's corpus; returns how many there were.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let files = entries.map(|entry| entry.expect("a file").path());
    files.map(|path| run(&fs::read(path).expect("readable"))).count()
}

#[test]
fn response() {
    assert!(replay("response", client::fuzz::response) >= 20);
}

#[test]
fn template() {
    assert!(replay("template", client::fuzz::template) >= 10);
}

#[test]
fn pipeline() {
    assert!(replay("pipeline", client::fuzz::pipeline) >= 5);
}

#[test]
fn request() {
    assert!(replay("request", server::fuzz::request) >= 10);
}

#[test]
fn frames() {
    assert!(replay("h2", h2::fuzz::frames) >= 8);
}

#[test]
fn requests() {
    assert!(replay("h2_server", h2::fuzz::requests) >= 10);
}

#[test]
fn frames_of_http3() {
    assert!(replay("h3", h3::fuzz::frames) >= 8);
}

#[test]
fn fields_of_qpack() {
    assert!(replay("qpack", h3::fuzz::fields) >= 6);
}
