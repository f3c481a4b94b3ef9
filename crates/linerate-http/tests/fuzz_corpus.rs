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

#[test]
fn requests_of_http3() {
    assert!(replay("h3_server", h3::fuzz::requests) >= 8);
}

#[test]
fn alternative_services() {
    assert!(replay("alt_svc", client::fuzz::alt_svc) >= 6);
}

/// Runs each seed of a target with some bytes changed, which is where cargo-fuzz would begin.
fn change(target: &str, run: fn(&[u8])) {
    let mut random = linerate_base::Random::new(44);
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    for entry in fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let seed = fs::read(entry.expect("a file").path()).expect("readable");
        for _ in 0..500 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = match random.below(3) {
                    0 => bytes[at] ^ 1 << random.below(8),
                    1 => bytes[random.below(bytes.len() as u64) as usize],
                    _ => random.next_u64() as u8,
                };
            }
            run(&bytes);
        }
    }
}

#[test]
fn seeds_of_http3_with_changed_bytes() {
    change("h3", h3::fuzz::frames);
    change("h3_server", h3::fuzz::requests);
    change("qpack", h3::fuzz::fields);
    change("alt_svc", client::fuzz::alt_svc);
}
