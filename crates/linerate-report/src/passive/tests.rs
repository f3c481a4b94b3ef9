use linerate_explain::passive::{CaptureLimits, findings, read};

use super::*;

/// The capture of a stalled call, from the corpus of the fuzz target.
fn stalled() -> Observation {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/capture/call");
    read(std::fs::File::open(file).expect("part of the repository"), CaptureLimits::default())
        .expect("a capture")
}

#[test]
fn a_stall_is_seen_and_drawn() {
    let seen = stalled();
    let findings = findings::of(&seen);
    let watched = Watched { source: "call.pcap", seen: &seen, findings: &findings };
    insta::assert_snapshot!("text", to_text(&watched, Style::default()));
    insta::assert_snapshot!("json", json::to_string(&watched));
    let page = page::to_string(&watched);
    assert!(page.contains("<svg") && page.contains("the server&#39;s next part waits"), "{page}");
}

#[test]
fn nothing_seen_says_why() {
    let seen = Observation::default();
    let watched = Watched { source: "empty.pcap", seen: &seen, findings: &[] };
    assert!(
        to_text(&watched, Style::default()).starts_with("Nothing can be said: there is no packet in it.")
    );
    assert_eq!(json::document(&watched).verdict, "inconclusive");
}
