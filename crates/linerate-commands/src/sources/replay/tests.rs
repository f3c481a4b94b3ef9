//! Logs: which requests are replayed and when, and the report about the other lines.

use super::*;

fn line(second: u32, request: &str, status: u16) -> String {
    format!(
        "192.0.2.1 - - [21/Nov/2026:04:{:02}:{:02} +0000] \"{request}\" {status} 5 \"-\" \"agent\"\n",
        second / 60,
        second % 60
    )
}

fn of(log: &str, speed: f64) -> Result<PlanSource, String> {
    read(log.as_bytes(), Path::new("access.log"), speed).map_err(|e| e.to_string())
}

fn times(source: &PlanSource) -> &[u64] {
    match &source.pace {
        Some(Pace::Trace(times)) => times,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_of_a_second_are_spread_over_it() {
    let get = "GET /a HTTP/1.1";
    let log = [
        line(0, get, 200),
        line(0, "GET /b?c HTTP/1.1", 200),
        line(0, get, 200),
        line(0, get, 200),
        line(3, get, 200),
    ]
    .concat();
    let source = of(&log, 1.0).unwrap();
    assert_eq!(times(&source), [0, 250_000_000, 500_000_000, 750_000_000, 3_000_000_000]);
    assert_eq!(source.order, Order::Listed(vec![0, 1, 0, 0, 0]));
    let paths: Vec<&str> = source.requests.iter().map(|r| r.path.as_str()).collect();
    assert_eq!((paths, source.url, source.notes), (vec!["/a", "/b?c"], None, vec![]));
    let fast = of(&log, 10.0).unwrap();
    assert_eq!(times(&fast), [0, 25_000_000, 50_000_000, 75_000_000, 300_000_000]);
    let slow = of(&log, 0.5).unwrap();
    assert_eq!(times(&slow).last(), Some(&6_000_000_000));
}

#[test]
fn what_is_left_out_is_said() {
    let log = [
        line(5, "GET /a HTTP/1.1", 200),
        "garbage\n".to_owned(),
        line(5, "\\x16\\x03", 400),
        "\n".to_owned(),
        line(4, "GET /missing HTTP/1.1", 404),
        line(6, "POST /form HTTP/1.1", 200),
        line(6, "POST /form HTTP/1.1", 200),
        line(6, "DELETE /x HTTP/1.1", 200),
        format!("{}\n", "x".repeat(3 * MAX_LOG_LINE)),
        line(7, "GET /{{a}}/b c HTTP/1.1", 200),
    ]
    .concat();
    let source = of(&log, 1.0).unwrap();
    assert_eq!(times(&source), [0, 1_000_000_000, 3_000_000_000]);
    assert_eq!(source.order, Order::Listed(vec![1, 0, 2]));
    assert_eq!(source.requests[2].path, "/{{{{a}}/b%20c");
    insta::assert_snapshot!(source.notes.join("\n"));
}

#[test]
fn errors_name_the_place() {
    let cases = [
        String::new(),
        "hello\nworld\n".to_owned(),
        "{\"time\": \"2026\", \"request\": [1]}\n{}\n".to_owned(),
        [line(1, "POST / HTTP/1.1", 200), line(1, "PUT / HTTP/1.1", 200)].concat(),
        line(1, "-", 400),
    ];
    let mut said: String = cases.iter().map(|log| format!("{}\n", of(log, 1.0).unwrap_err())).collect();
    let years = [line(0, "GET / HTTP/1.1", 200), line(60, "GET / HTTP/1.1", 200)].concat();
    said += &format!("{}\n", of(&years, 1e-6).unwrap_err());
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        said += &format!("{}\n", load(Path::new("access.log"), speed).unwrap_err());
    }
    said += &load(Path::new("no/such.log"), 1.0).unwrap_err().to_string();
    insta::assert_snapshot!(said);
}

#[test]
fn names_stay_few() {
    let kinds =
        |targets: &[String]| targets.iter().map(|t| ("GET".to_owned(), t.clone())).collect::<Vec<_>>();
    let few = kinds(&["/a?x=1".to_owned(), "/a?x=2".to_owned(), "/b/c".to_owned()]);
    assert_eq!(names(&few), ["GET /a", "GET /a", "GET /b/c"]);
    let folders: Vec<String> = (0..100).map(|i| format!("/f{}/{i}", i % 3)).chain(["/".to_owned()]).collect();
    let named = names(&kinds(&folders));
    assert_eq!(
        (named[0].as_str(), named[1].as_str(), named[100].as_str()),
        ("GET /f0/...", "GET /f1/...", "GET /...")
    );
    let many: Vec<String> = (0..100).map(|i| format!("/f{i}/x")).collect();
    assert!(names(&kinds(&many)).iter().all(|n| n == "GET"));
}

#[test]
fn kinds_have_a_limit() {
    let log: String = (0..MAX_REQUESTS + 2).map(|i| line(1, &format!("GET /{i} HTTP/1.1"), 200)).collect();
    let source = of(&(log + &line(2, "GET /0 HTTP/1.1", 200)), 1.0).unwrap();
    assert_eq!((source.requests.len(), times(&source).len()), (MAX_REQUESTS, MAX_REQUESTS + 1));
    assert_eq!(source.notes, ["access.log: 2 requests are left out: it has more than 20000 different ones"]);
}

/// As `linerate serve --log-format json` writes them, one that it refused among them.
#[test]
fn the_json_of_our_own_server_is_read() {
    let log = "{\"time\":784111777,\"peer\":\"1.2.3.4:5\",\"status\":200,\"bytes\":14,\"duration_us\":7,\"method\":\"GET\",\
               \"target\":\"/a?b=\\\"{{\",\"host\":\"h\",\"user_agent\":\"x\"}\n\
               {\"time\":784111776,\"peer\":\"unix:\",\"status\":404,\"bytes\":0,\"duration_us\":1,\"method\":\"HEAD\",\"target\":\"http://h/x\"}\n\
               {\"time\":784111779,\"peer\":\"1.2.3.4:5\",\"status\":400,\"bytes\":0,\"duration_us\":1,\"request\":\"GET  /\"}\n\
               {\"time\":784111779,\"status\":200,\"method\":\"POST\",\"target\":\"/form\"}\n\
               {\"time\":\"soon\"}\n";
    let source = of(log, 1.0).unwrap();
    let sent: Vec<_> = source.requests.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
    assert_eq!(sent, ["GET /a?b=\"{{{{", "HEAD /x"]);
    assert_eq!(times(&source), [0, 1_000_000_000]);
    assert_eq!(source.order, Order::Listed(vec![1, 0]));
    let notes = source.notes.join("; ");
    for words in [
        "2 lines that are no requests",
        "line 3: \"GET  /\"",
        "1 POST",
        "1 request was answered with 400 or above",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}

/// As Caddy 2 writes them, whatever its `time_format`.
#[test]
fn the_json_of_caddy_is_read() {
    let handled = |ts: &str, method: &str, uri: &str, status: u16| {
        format!(
            "{{\"level\":\"info\",\"ts\":{ts},\"logger\":\"http.log.access.log0\",\"msg\":\"handled request\",\"request\":{{\"remote_ip\":\
             \"127.0.0.1\",\"remote_port\":\"41342\",\"client_ip\":\"127.0.0.1\",\"proto\":\"HTTP/2.0\",\"method\":\"{method}\",\"host\":\
             \"h\",\"uri\":\"{uri}\",\"headers\":{{\"User-Agent\":[\"curl/8\"]}}}},\"bytes_read\":0,\"user_id\":\"\",\"duration\":0.5,\
             \"size\":2,\"status\":{status},\"resp_headers\":{{\"Server\":[\"Caddy\"]}}}}\n"
        )
    };
    let log = [
        "{\"level\":\"info\",\"ts\":1646861400.1,\"msg\":\"serving initial configuration\"}\n".to_owned(),
        handled("1646861401.7", "GET", "/a?b=c", 200),
        // It began in the second before.
        handled("1646861403.2", "HEAD", "/x", 404),
        handled("\"2022-03-09T21:30:04.900Z\"", "GET", "/late", 200),
        handled("1646861404.9", "POST", "/form", 200),
    ]
    .concat();
    let source = of(&log, 1.0).unwrap();
    let sent: Vec<_> = source.requests.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
    assert_eq!(sent, ["GET /a?b=c", "HEAD /x", "GET /late"]);
    assert_eq!(times(&source), [0, 1_000_000_000, 3_000_000_000]);
    let notes = source.notes.join("; ");
    for words in [
        "1 line that is no request",
        "serving initial configuration",
        "1 POST",
        "1 request was answered with 400",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}

#[test]
fn a_packed_log_is_read_whatever_its_name() {
    use std::io::Write;
    let log = [line(5, "GET /a HTTP/1.1", 200), line(6, "GET /b HTTP/1.1", 200)].concat();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(log.as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    // Logs that were rotated are put together as they are.
    file.write_all(&packed.repeat(2)).unwrap();
    assert_eq!(times(&load(file.path(), 1.0).unwrap()).len(), 4);
    file.as_file().set_len(packed.len() as u64 + 30).unwrap();
    let error = load(file.path(), 1.0).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}
