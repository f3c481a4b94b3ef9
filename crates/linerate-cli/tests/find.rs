//! `linerate load --find` against real servers.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::run;

/// Searches; the document and the rest. A search takes longer where other work disturbs it.
fn searched(args: &[&str]) -> (serde_json::Value, common::Said) {
    let all = [&["load", "-q", "--json", "-"], args].concat();
    let output = common::linerate(&all).timeout(Duration::from_secs(200)).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said =
        common::Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
    let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    (document, said)
}

/// Whether other work on this machine left nothing to judge: then the search must say exactly that.
fn was_the_client(document: &serde_json::Value, said: &common::Said) -> bool {
    let find = &document["find"];
    if find["end"] != "client limit" {
        return false;
    }
    assert!(find["rate_rps"].is_null() && find["limit"] == "client" && said.code == Some(1), "{find:#}");
    let points = find["points"].as_array().unwrap();
    assert!(points.iter().any(|p| p["disturbed"] == true && p["holds"].is_null()), "{find:#}");
    assert!(said.err.contains("not measured: this client was the limit"), "{}", said.err);
    true
}

#[test]
fn what_cannot_be_found_is_named_before_anything_is_sent() {
    let url = "http://127.0.0.1:1/";
    for (args, part) in [
        (vec!["--find", "p99>5ms", url], "no highest rate"),
        (vec!["--find", "rate<5", url], "percentiles and shares"),
        (vec!["--find", "max<5ms", url], "percentiles and shares"),
        (vec!["--find", "errors<5", url], "percentiles and shares"),
        (vec!["--find", "login.p99<5ms", url], "all requests together"),
        (vec!["--find", "p99<5ms", "-r", "0..5@1s", url], "where it begins"),
        (vec!["--find", "p99<5ms", "-d", "5s", url], "cannot be used with"),
        (vec!["--find", "p99", url], "no comparison"),
        (vec!["--find", "p99<5ms", "--find-by", "connections", "-r", "5", url], "have no rate"),
        (vec!["--find-by", "connections", url], "--find <EXPR>"),
    ] {
        let said = run(&[&["load"], args.as_slice()].concat());
        assert!(said.code == Some(2) && said.err.contains(part), "{args:?}: {said:?}");
    }
    let nobody = format!("http://{}/", common::nobody());
    let said = run(&["load", "-q", "--find", "p99<5ms", &nobody]);
    assert!(said.code == Some(3) && said.err.contains("could not be reached"), "{said:?}");
}

#[test]
fn a_check_that_fails_at_the_lowest_rate_is_exit_code_1() {
    let bad = common::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let (document, said) = searched(&["--find", "p99<1s", "-r", "1", &format!("http://{bad}/")]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(document["find"]["end"], "always fails", "{document:#}");
    assert_eq!(document["find"]["limit"], "errors");
    assert!(said.err.contains("holds at no rate"), "{}", said.err);
}

/// A server of HTTP/2 that speaks, but admits no streams.
fn shut() -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // SETTINGS with MAX_CONCURRENT_STREAMS 0, and the acknowledgement of the client's.
            let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];
            stream.write_all(&settings).unwrap();
            std::thread::spawn(move || while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
        }
    });
    address
}

/// A server that responds to nothing has no queue that is known to move, and its latencies are bounds.
#[test]
fn a_server_that_never_responds_is_no_queue() {
    let silent = common::responding(|_| {
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    });
    for (version, server) in [("--http=1.1", silent), ("--http2", shut())] {
        let url = format!("http://{server}/");
        let (document, said) = searched(&[version, "--find", "p99<50ms", "-c4", "--timeout", "300ms", &url]);
        if was_the_client(&document, &said) {
            continue;
        }
        let (find, why) = (&document["find"], document["find"]["why"].as_str().unwrap());
        assert_eq!((said.code, &find["limit"]), (Some(1), &"errors".into()), "{find:#}");
        assert!(why.contains("The server does not respond") && !why.contains("queue"), "{why}");
        assert_eq!(why.contains("admitted no stream"), version == "--http2", "{why}");
        for point in find["points"].as_array().unwrap() {
            let is_bound = |key: &str| point["at_least"].as_array().unwrap().contains(&key.into());
            for key in ["value", "p50_us"] {
                assert_eq!(point[key].is_number(), is_bound(key), "{point:#}");
            }
        }
        assert!(said.err.contains(">= "), "{}", said.err);
    }
}

/// The limit is below what one call takes: no queue is to blame.
#[test]
fn a_limit_that_no_call_meets_is_no_queue() {
    let server = common::responding(move |stream| {
        std::thread::sleep(Duration::from_millis(60));
        std::io::Write::write_all(stream, common::HELLO.as_bytes())
    });
    let (document, said) = searched(&["--find", "p99<20ms", "-r", "1", &format!("http://{server}/")]);
    if was_the_client(&document, &said) {
        return;
    }
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(
        (&document["find"]["end"], &document["find"]["limit"]),
        (&"always fails".into(), &"server".into())
    );
    let why = document["find"]["why"].as_str().unwrap();
    assert!(why.contains("each request was alone"), "{why}");
}

/// Serves one request at a time over all connections, each for 4 ms: 250 requests/s.
#[test]
fn the_rate_of_a_server_of_known_capacity_is_found() {
    let lane = std::sync::Arc::new(std::sync::Mutex::new(()));
    let server = common::responding(move |stream| {
        let one = lane.lock().unwrap();
        std::thread::sleep(Duration::from_millis(4));
        drop(one);
        std::io::Write::write_all(stream, common::HELLO.as_bytes())
    });
    let (document, said) = searched(&["--find", "p90<200ms", "-c", "64", &format!("http://{server}/")]);
    if was_the_client(&document, &said) {
        return;
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    let find = &document["find"];
    let rate = find["rate_rps"].as_f64().unwrap();
    // A sleep of 4 ms lasts longer on a machine that does other things meanwhile.
    assert!((40.0..=270.0).contains(&rate), "{find:#}");
    let points = find["points"].as_array().unwrap();
    assert!(points.len() >= 4, "{find:#}");
    // A p90 below the limit and more than 10 % over it contradict each other.
    let held = points.iter().filter(|point| point["holds"] == true);
    assert!(held.into_iter().all(|point| point["over"].as_f64().unwrap() <= 0.1 + 1e-9), "{find:#}");
    assert!(["queue", "connections", "server"].contains(&find["limit"].as_str().unwrap()), "{find:#}");
    assert!(said.err.contains("holds up to"), "{}", said.err);
    let [low, high] = [0, 1].map(|i| find["interval_rps"][i].as_f64().unwrap());
    assert!(low <= rate && rate <= high && find["holds_at"] == low, "{find:#}");
}

/// Serves four requests at a time, each for 5 ms: with 40 connections each waits for 50 ms.
#[test]
fn the_most_connections_are_found() {
    let lanes = std::sync::Arc::new([const { std::sync::Mutex::new(()) }; 4]);
    let next = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let server = common::responding(move |stream| {
        let lane = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 4;
        let one = lanes[lane].lock().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(one);
        std::io::Write::write_all(stream, common::HELLO.as_bytes())
    });
    let url = format!("http://{server}/");
    let (document, said) = searched(&["--find", "p50<50ms", "--find-by", "connections", &url]);
    if was_the_client(&document, &said) {
        return;
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    let find = &document["find"];
    let connections = find["connections"].as_u64().unwrap();
    // A sleep of 5 ms lasts longer on a machine that does other things meanwhile.
    assert!((8..=44).contains(&connections), "{find:#}");
    assert!(find["rate_rps"].is_null() && document["plan"]["loop_kind"] == "closed", "{document:#}");
    assert!(said.err.contains("holds up to") && said.err.contains(" connections"), "{}", said.err);
}
