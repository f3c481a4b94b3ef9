//! Replays the corpus of each fuzz target, through the same functions, as an ordinary test, and
//! adds random bytes.

use std::fs;
use std::path::PathBuf;

use linerate_net::stack::fuzz;
use proptest::prelude::*;

/// Runs each file of a target's corpus; returns how many there were.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let files = entries.map(|entry| entry.expect("a file").path());
    files.map(|path| run(&fs::read(path).expect("readable"))).count()
}

#[test]
fn frames() {
    assert!(replay("frames", fuzz::frames) >= 4);
}

#[test]
fn segments() {
    assert!(replay("segments", fuzz::segments) >= 4);
}

proptest! {
    #[test]
    fn any_frames(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::frames(&data);
    }

    #[test]
    fn any_segments(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::segments(&data);
    }
}
