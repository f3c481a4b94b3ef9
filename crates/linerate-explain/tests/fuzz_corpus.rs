//! What the fuzz targets have found or were given as a start is replayed by an ordinary test, through the same functions.

use std::fs;
use std::path::PathBuf;

use linerate_explain::passive::fuzz;

/// Runs each file of a target's corpus; how many there were.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let files = entries.map(|entry| entry.expect("a file").path());
    files.map(|path| run(&fs::read(path).expect("readable"))).count()
}

#[test]
fn capture() {
    assert!(replay("capture", fuzz::capture) >= 20);
}

#[test]
fn packets() {
    assert!(replay("packets", fuzz::packets) >= 12);
}
