//! Ordinary tests replay the fuzz targets' findings and seeds, through the same functions.

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

/// Each file with a few bytes changed, cut or doubled, by a fixed sequence of random numbers: what
/// takes no fuzzer to find.
fn mutate(target: &str, run: fn(&[u8]), times: usize) {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below.max(1)
    };
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    for path in files {
        let whole = fs::read(path).expect("readable");
        for _ in 0..times {
            let mut data = whole.clone();
            for _ in 0..1 + random(4) {
                let at = random(data.len());
                match random(5) {
                    0 => data.truncate(at),
                    1 => data.extend_from_slice(&whole[at.min(whole.len())..]),
                    2 => data.iter_mut().skip(at).take(4).for_each(|b| *b = 0xff),
                    _ => data.iter_mut().skip(at).take(1).for_each(|b| *b = random(256) as u8),
                }
            }
            run(&data);
        }
    }
}

#[test]
fn mutated_captures() {
    mutate("capture", fuzz::capture, 300);
}

#[test]
fn mutated_packets() {
    mutate("packets", fuzz::packets, 2000);
}

#[test]
fn mutated_tls() {
    mutate("tls", fuzz::tls, 30);
}

#[test]
fn tls() {
    assert!(replay("tls", fuzz::tls) >= 6);
}

#[test]
fn capture() {
    assert!(replay("capture", fuzz::capture) >= 20);
}

#[test]
fn packets() {
    assert!(replay("packets", fuzz::packets) >= 12);
}
