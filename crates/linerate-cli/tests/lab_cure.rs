//! `linerate lab cure`: head-of-line blocking in HTTP and in TCP.
#![allow(clippy::unwrap_used)]

mod common;

use common::run;
use linerate_netbox::NetBox;
use serde_json::Value;

#[test]
fn quick_requests_wait_for_slow_ones_in_a_pipeline_alone() {
    let page = tempfile::NamedTempFile::new().unwrap();
    let words = ["lab", "cure", "--rounds", "1", "-d", "500ms", "--only", "one slow", "--json", "-"];
    let said = run(&[&words[..], &["--html", page.path().to_str().unwrap()]].concat());
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert!(said.err.contains("20 rows, 1 round of each: about 16.0 s"), "{}", said.err);
    let groups = document["groups"].as_array().unwrap();
    let names: Vec<&str> = groups.iter().map(|g| g["name"].as_str().unwrap()).collect();
    let all = ["loopback", "no round trip, 1 % loss", "20 ms", "20 ms, 1 % loss"];
    assert_eq!(names, all.map(|name| format!("{name}: one slow in 20")));
    // Where there are no namespaces, only the loopback remains.
    let shaped = NetBox::unavailable().is_none();
    assert_eq!(document["left_out"].as_array().unwrap().len(), if shaped { 0 } else { 15 });
    for group in groups.iter().take(if shaped { 4 } else { 1 }) {
        let rows = group["rows"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["poll", "threads", "pipeline", "HTTP/2", "HTTP/3"]);
    }
    let of = |group: usize, row: usize| &groups[group]["rows"][row];
    // Each slow request holds up at least the quick ones that are in flight behind it. On a busy
    // machine a handshake may take all of a run: such a row has no figures.
    for group in if shaped { vec![0, 2] } else { vec![0] } {
        let share = |row: usize| {
            let quick = &of(group, row)["quick"];
            Some(quick["held_up"].as_f64()? / quick["requests"].as_f64()?)
        };
        let pipeline = share(2).unwrap();
        for streams in [share(3), share(4)].into_iter().flatten() {
            assert!(pipeline > 0.1 && pipeline > 2.0 * streams, "{}", groups[group]);
        }
    }
    let about = of(0, 2)["about"].as_str().unwrap();
    assert!(about.contains("they wait for slow ones (5"), "{about}");
    let html = std::fs::read_to_string(page.path()).unwrap();
    if shaped {
        assert!(html.contains("Quick requests that were held up"));
        assert_eq!(groups[3]["line"]["text"], "20 ms round trip, 1 % lost each way");
    }
}
