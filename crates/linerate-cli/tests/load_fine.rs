//! The course of a run in seconds, to its last part, and in small steps.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod serving;

use common::{HELLO, answering, measured, responding, run};
use serde_json::Value;

/// Responses in all entries of a series.
fn responses(series: &Value) -> u64 {
    let mut begin = 0.0;
    let mut sum = 0.0;
    for entry in series.as_array().unwrap() {
        let end = entry["t_s"].as_f64().unwrap();
        sum += entry["rate_rps"].as_f64().unwrap() * (end - begin);
        begin = end;
    }
    sum.round() as u64
}

#[test]
fn a_series_has_the_last_part_of_a_second() {
    let url = format!("http://{}/", answering(HELLO));
    let (document, said) = measured(&["-c", "2", "-t", "2", "--rate", "200", "-d", "1500ms", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let answered = common::number(&document, "/requests/answered");
    assert_eq!(answered, 300);
    assert_eq!(responses(&document["series"]), answered, "{}", document["series"]);
    let last = document["series"].as_array().unwrap().last().unwrap();
    assert_eq!(last["t_s"], 1.5);
    assert!(last["p50_us"].as_f64().is_some() && last["bytes"]["received"].as_u64().unwrap() > 0, "{last}");
}

#[test]
fn a_short_run_is_seen_in_steps_of_10_ms() {
    let url = format!("http://{}/", answering(HELLO));
    let file = tempfile::NamedTempFile::new().unwrap();
    let page = tempfile::NamedTempFile::new().unwrap();
    let [csv, html] = [&file, &page].map(|f| f.path().to_str().unwrap());
    let outputs = ["--csv-fine", csv, "--html", html];
    let (document, said) =
        measured(&[&outputs[..], &["-c", "2", "--rate", "500", "-d", "1s", &url]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let fine = &document["series_fine"];
    let steps = fine.as_array().unwrap();
    // A busy machine may take fewer looks.
    assert!((10..=110).contains(&steps.len()), "{}", steps.len());
    // Times are rounded to milliseconds, bytes are exact.
    assert!((490..=510).contains(&responses(fine)), "{fine}");
    let received: u64 = steps.iter().map(|step| step["bytes_received"].as_u64().unwrap()).sum();
    // On a busy machine a response may come after the end.
    assert_eq!(received, common::number(&document, "/requests/answered") * HELLO.len() as u64);
    assert_eq!(steps.last().unwrap()["in_flight"], Value::Null);
    assert!(steps.iter().any(|step| step["client_busy"].is_number()));
    let text = std::fs::read_to_string(csv).unwrap();
    assert_eq!(text.lines().count(), steps.len() + 1);
    assert!(text.starts_with("t_s,rate_rps,failed,"), "{text}");
    assert!(std::fs::read_to_string(html).unwrap().contains("in small steps"));
}

/// A POST that is lost has an unknown end, and a 503 is bad: neither is `failed`.
#[test]
fn steps_have_all_that_got_no_good_response() {
    let lost = responding(|_| Err(std::io::ErrorKind::ConnectionReset.into()));
    let busy = answering("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    for (server, status) in [(lost, "unknown"), (busy, "bad")] {
        let url = format!("http://{server}/");
        let load = ["-X", "POST", "-c", "2", "-n", "20", &url];
        let (document, said) = measured(&load);
        assert_eq!(said.code, Some(1), "{said:?}");
        let of = |name: &str| -> u64 {
            document["series_fine"].as_array().unwrap().iter().map(|step| step[name].as_u64().unwrap()).sum()
        };
        let all = of("failed") + of("unknown") + of("bad");
        assert_eq!((of(status) > 0, all), (true, 20), "{}", document["series_fine"]);
    }
}

#[test]
fn a_longer_run_has_steps_of_100_ms() {
    let url = format!("http://{}/", answering(HELLO));
    let (document, said) = measured(&["-c", "1", "--rate", "100", "-d", "2500ms", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let steps = document["series_fine"].as_array().unwrap();
    assert!((5..=45).contains(&steps.len()), "{}", steps.len());
    assert_eq!(responses(&document["series"]), 250, "{}", document["series"]);
    // Nothing is kept of a run in which nothing was sent.
    assert_eq!(run(&["load", "--csv-fine", "/no/such/file", &url]).code, Some(2));
}

#[test]
fn the_servers_cpu_time_is_in_the_steps() {
    let server = serving::serve(&["--threads", "1"]);
    let (url, pid) = (format!("http://{}/", server.address), server.pid().to_string());
    let file = tempfile::NamedTempFile::new().unwrap();
    let csv = file.path().to_str().unwrap();
    let (document, said) = measured(&["-c", "8", "-d", "1500ms", "--pid", &pid, "--csv-fine", csv, &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let steps = document["series_fine"].as_array().unwrap();
    let mut begin = 0.0;
    let (mut used, mut lasted) = (0.0, 0.0);
    for step in steps {
        let end = step["t_s"].as_f64().unwrap();
        if let Some(busy) = step["server_busy"].as_f64() {
            used += busy * (end - begin);
            lasted += end - begin;
        }
        begin = end;
    }
    // A busy machine may take fewer looks.
    assert!(lasted > 0.0, "{steps:?}");
    let rate = document["server"]["cpu_s"].as_f64().unwrap() / begin;
    assert!((used / lasted / rate - 1.0).abs() < 0.3 || lasted < 0.7 * begin, "{used} in {lasted}, {rate}");
    let text = std::fs::read_to_string(csv).unwrap();
    let header = text.lines().next().unwrap();
    let counted = "duplicate_acks,zero_windows,windows_full,retransmissions,unknown,bad";
    assert!(header.ends_with(&format!("client_busy,server_busy,{counted}")), "{header}");
    // Without a capture nothing was counted.
    assert!(text.lines().nth(1).unwrap().ends_with(",,,,,0,0"), "{text}");
    assert!(steps.iter().all(|step| step["duplicate_acks"].is_null()));
}
