//! Responses that are not good, under each way of sending: what is looked at, shown and kept of
//! them.

#[macro_use]
mod common;
mod uploads;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Said, measured, number};
use serde_json::Value;

/// Ways of sending that must report the same.
const WAYS: [&[&str]; 4] =
    [&["--io", "epoll"], &["--io", "uring"], &["--way", "threads"], &["--way", "async"]];

/// `a needle in a haystack, a needle in a haystack` and a line end, by Python's gzip and zlib,
/// Node's brotli and zstd's command.
const CODED: [(&str, &str); 4] = [
    (
        "gzip",
        "1f8b08000000000002034b54c84b4d4dc94955c8cc534854c848ac2c2e494cced601b2b189730100c288595b2f000000",
    ),
    ("deflate", "789c4b54c84b4d4dc94955c8cc534854c848ac2c2e494cced601b2b189730100825a1013"),
    ("br", "1b2e00f805ca6d7d251d7db53cf3415156b4588a4c1527fca2ed71cc6ac4d4bf4fb51309"),
    ("zstd", "28b52ffd0458fd0000c861206e6565646c6520696e206120686179737461636b2c200a0100ac32c7f16decaf"),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Answers each request with these bytes, some at a time.
fn answering(answer: Vec<u8>) -> SocketAddr {
    common::responding(move |stream| answer.chunks(50).try_for_each(|piece| stream.write_all(piece)))
}

fn coded(status: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn load(way: &[&str], flags: &[&str], to: SocketAddr) -> (Value, Said) {
    let url = format!("http://{to}/");
    let mut args = vec!["-c", "2"];
    if !flags.contains(&"-n") {
        args.extend(["-n", "20"]);
    }
    args.extend_from_slice(way);
    args.extend_from_slice(flags);
    args.push(&url);
    measured(&args)
}

/// Why each sample is there.
fn samples(document: &Value) -> impl Iterator<Item = &str> {
    document["samples"].as_array().into_iter().flatten().filter_map(|sample| sample["why"].as_str())
}

#[test]
fn a_check_reads_the_text_behind_the_coding() {
    for (coding, hex) in CODED {
        let good = answering(coded("200 OK", coding, &bytes(hex)));
        for way in WAYS {
            let (_, said) = load(way, &["--expect-body", "haystack, a needle"], good);
            assert_eq!(said.code, Some(0), "{coding} {way:?} {}", said.err);
            let (document, said) = load(way, &["--expect-body", "camel"], good);
            assert_eq!((said.code, number(&document, "/bad/body")), (Some(1), 20), "{coding} {way:?}");
            assert!(said.err.contains("body: a needle in a haystack"), "{coding} {way:?} {}", said.err);
        }
    }
}

#[test]
fn a_coding_that_is_broken_is_named() {
    for (coding, hex) in CODED {
        let whole = bytes(hex);
        let cut = answering(coded("200 OK", coding, &whole[..whole.len() - 8]));
        for way in WAYS {
            let (document, said) = load(way, &["--expect-body", "needle"], cut);
            let counts = (number(&document, "/bad/encoding"), number(&document, "/requests/answered"));
            assert_eq!((said.code, counts), (Some(1), (20, 20)), "{coding} {way:?} {}", said.err);
            let why = format!("bad encoding: {coding}: ");
            assert!(samples(&document).any(|said| said.starts_with(&why)), "{coding} {way:?} {document:#}");
            assert!(said.err.contains("20 not to be decoded"), "{coding} {way:?} {}", said.err);
        }
        // If no check reads the body, it is only counted.
        let (document, said) = load(WAYS[0], &[], cut);
        assert_eq!((said.code, number(&document, "/bad/encoding")), (Some(0), 0), "{coding} {}", said.err);
    }
    let unknown = answering(coded("200 OK", "lzma", b"x"));
    let (document, said) = load(WAYS[0], &["--expect-body", "x"], unknown);
    assert_eq!((said.code, number(&document, "/bad/encoding")), (Some(1), 20), "{}", said.err);
    assert!(samples(&document).any(|why| why == "bad encoding: \"lzma\" is no coding that can be taken off"));
}

/// Also where a head is the same as the one before, and is not parsed again.
#[test]
fn each_bad_sample_has_the_beginning_of_its_body() {
    let long = format!("<{}>", "wrong ".repeat(100));
    let head = format!("HTTP/1.1 500 Oh\r\nContent-Length: {}\r\n\r\n", long.len());
    let plain = answering(format!("{head}{long}").into_bytes());
    let coded = answering(coded("500 Oh", "gzip", &bytes(CODED[0].1)));
    for way in WAYS {
        for (server, begins, len) in [(plain, "<wrong wrong", 200), (coded, "a needle in a haystack", 47)] {
            let (document, said) = load(way, &[], server);
            assert_eq!(said.code, Some(1), "{way:?} {}", said.err);
            let samples =
                document["samples"].as_array().expect("samples").iter().filter(|s| s["why"] == "bad status");
            let bodies: Vec<&str> = samples.map(|s| s["body"].as_str().unwrap_or_default()).collect();
            assert_eq!(bodies.len(), 8, "{way:?}");
            assert!(
                bodies.iter().all(|body| body.starts_with(begins) && body.len() == len),
                "{way:?} {bodies:?}"
            );
        }
    }
}

/// Keeps the bytes of each connection, and responds to each piece that ends with a mark.
fn recording(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let all = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&all);
    let address = common::server(move |mut stream| {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            let ended = buffer[..n].ends_with(b"END");
            kept.lock().expect("sound").extend_from_slice(&buffer[..n]);
            if ended && stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, all)
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

#[test]
fn raw_bytes_are_sent_as_they_are() {
    let small = b"GET  / HTTP/9.9\nHost\0: {{seq}} {{\r\n\xff END".to_vec();
    let large = [&b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"[..], &[b'{'; 200_000], b"END"].concat();
    for bytes in [small, large] {
        let (address, all) = recording("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n");
        let raw = file(&bytes);
        let name = raw.path().display().to_string();
        for way in WAYS {
            let url = format!("http://{address}/");
            let mut args =
                vec!["-c", "1", "-n", "5", "--raw", &name, "--expect-status", "400", "--per-connection", "3"];
            args.extend_from_slice(way);
            args.push(&url);
            let (document, said) = measured(&args);
            let answered = number(&document, "/requests/answered");
            assert_eq!((said.code, answered), (Some(0), 5), "{way:?} {}", said.err);
            assert!(said.err.contains("one response is expected"), "{}", said.err);
            let sent = std::mem::take(&mut *all.lock().expect("sound"));
            assert!(sent == bytes.repeat(5), "{way:?} {} bytes", sent.len());
            assert_eq!(number(&document, "/bytes/sent"), sent.len() as u64, "{way:?}");
        }
    }
    // A file that holds two requests gets a response that was not expected, and a HEAD none with a
    // body.
    let two = file(b"two requests END");
    let (address, _) =
        recording("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (document, _) = load(WAYS[0], &["--raw", &two.path().display().to_string()], address);
    assert!(number(&document, "/requests/unsolicited_responses") > 0, "{document:#}");
    let head = file(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\nEND");
    let (address, _) = recording("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    for way in WAYS {
        let (document, said) = load(way, &["--raw", &head.path().display().to_string()], address);
        assert_eq!(
            (said.code, number(&document, "/requests/answered")),
            (Some(0), 20),
            "{way:?} {}",
            said.err
        );
    }
}

#[test]
fn raw_goes_with_nothing_that_makes_a_request() {
    let some = file(b"x");
    let empty = file(b"");
    let [some, empty] = [&some, &empty].map(|f| f.path().display().to_string());
    for (args, words) in [
        (&["--raw", "/no/such/file"][..], "--raw: /no/such/file cannot be read: there is no such file"),
        (&["--raw", &empty], "is empty"),
        (&["--raw", &some, "-H", "A: b"], "so -H would change nothing"),
        (&["--raw", &some, "-X", "PUT"], "so -X would change nothing"),
        (&["--raw", &some, "--tag", "X-Id"], "so --tag would change nothing"),
        (&["--raw", &some, "--explain"], "so --explain would change nothing"),
        (&["--raw", &some, "--body", "x"], "cannot be used with"),
    ] {
        let mut all = vec!["load"];
        all.extend_from_slice(args);
        all.push("http://127.0.0.1:1/");
        let said = common::run(&all);
        assert!(said.code == Some(2) && said.err.contains(words), "{args:?}: {said:?}");
    }
}

#[test]
fn responses_are_kept_as_files() {
    let answer = "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n../\r\n2\r\n/x\r\n0\r\n\r\n";
    let address = common::answering(answer);
    for way in WAYS {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("kept");
        let name = folder.display().to_string();
        let (document, said) = load(way, &["-n", "5", "--save-responses", &name], address);
        assert_eq!(
            (said.code, number(&document, "/requests/answered")),
            (Some(1), 5),
            "{way:?} {}",
            said.err
        );
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["001", "002", "003", "004", "005"].map(|n| format!("{n}-404-GET.http")),
            "{way:?}"
        );
        let kept = std::fs::read_to_string(folder.join(&names[4])).expect("a file");
        assert_eq!(kept, "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n..//x", "{way:?}");
        // A folder that is not empty is refused for another run, and no request is sent.
        let said = common::run(&["load", "--save-responses", &name, &format!("http://{address}/")]);
        assert!(said.code == Some(2) && said.err.contains("is not empty"), "{said:?}");
        let said =
            common::run(&["load", "--save-responses", "/no/such/folder", &format!("http://{address}/")]);
        assert!(said.code == Some(2) && said.err.contains("hint: "), "{said:?}");
    }
}

#[test]
fn a_condition_ends_the_run() {
    let bad = common::answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    for way in WAYS {
        let (document, said) = load(way, &["-n", "1G", "-d", "50s", "--abort-on", "errors>5%@1s"], bad);
        assert_eq!(said.code, Some(1), "{way:?} {}", said.err);
        assert_eq!(document["aborted"], "errors>5%@1s: 100 % over the last 1s", "{way:?}");
        assert_eq!(document["interrupted"], false);
        assert!(document["duration_s"].as_f64().expect("a number") < 40.0, "{way:?}");
        assert!(said.err.contains("--abort-on ended the run: errors>5%@1s"), "{way:?} {}", said.err);
    }
    let good = common::answering(common::HELLO);
    let (document, said) = load(WAYS[0], &["-n", "1G", "-d", "1500ms", "--abort-on", "errors>5%@1s"], good);
    assert_eq!((said.code, &document["aborted"]), (Some(0), &Value::Null), "{}", said.err);
    let said = common::run(&["load", "--abort-on", "errors>5%", "http://127.0.0.1:1/"]);
    assert!(said.code == Some(2) && said.err.contains("over how long"), "{said:?}");
}

#[test]
fn a_check_may_mean_one_request() {
    let address = common::server(|mut stream| {
        let mut reader = std::io::BufReader::new(stream.try_clone().expect("the same"));
        let mut line = String::new();
        let mut bad = false;
        while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|n| n > 0) {
            bad |= line.starts_with("GET /b");
            if line == "\r\n" {
                let status = if std::mem::take(&mut bad) { "500 No" } else { "200 OK" };
                let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            }
            line.clear();
        }
    });
    let plan = format!(
        "url = \"http://{address}/\"\nconnections = 2\nrequests = 40\norder = \"listed\"\n\
         [[request]]\nname = \"home\"\npath = \"/\"\n[[request]]\nname = \"api.v1\"\npath = \"/b\"\n"
    );
    let plan = file(plan.as_bytes());
    let name = plan.path().display().to_string();
    for way in WAYS {
        for (check, value, code) in [
            ("home.errors<1%", 0.0, 0),
            ("api.v1.errors<1%", 1.0, 1),
            ("api.v1.answered>=20", 20.0, 0),
            ("home.p99.9<60s", -1.0, 0),
        ] {
            let mut args = vec!["--plan", &name, "--check", check];
            args.extend_from_slice(way);
            let (document, said) = measured(&args);
            assert_eq!(said.code, Some(code), "{way:?} {check} {}", said.err);
            let measured = document["checks"][0]["value"].as_f64().expect("a number");
            assert!(value < 0.0 || (measured - value).abs() < 1e-9, "{way:?} {check} {measured}");
        }
    }
    let said = common::run(&["load", "--plan", &name, "--check", "hom.p99<1s"]);
    let words = "check hom.p99<1s: no request has that name; known are home, api.v1";
    assert!(said.code == Some(2) && said.err.contains(words), "{said:?}");
}

/// A server that closes an idle connection may send 408 behind a response (RFC 9110 section
/// 15.5.9).
#[test]
fn a_farewell_behind_a_response_is_forgiven() {
    const BOTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\
                        HTTP/1.1 408 Idle\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let address = common::server(|mut stream| {
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
            let _ = stream.write_all(BOTH.as_bytes());
            uploads::drain(stream);
        }
    });
    for way in WAYS {
        let (document, said) = load(way, &[], address);
        let counts =
            (number(&document, "/requests/answered"), number(&document, "/requests/unsolicited_responses"));
        assert_eq!((said.code, counts), (Some(0), (20, 0)), "{way:?} {}", said.err);
    }
}

/// A server that accepts one connection, responds once, is silent for a while, and then continues.
fn taking_one(silent: Duration) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(listener);
        stream.set_read_timeout(Some(common::PATIENCE)).expect("a limit");
        let mut buffer = [0; 4096];
        let mut answered = 0;
        while stream.read(&mut buffer).is_ok_and(|n| n > 0)
            && stream.write_all(common::HELLO.as_bytes()).is_ok()
        {
            answered += 1;
            if answered == 1 {
                std::thread::sleep(silent);
            }
        }
    });
    address
}

/// An open, silent connection must not hide that the server accepts no others and sends no
/// response.
#[test]
fn a_second_without_a_response_and_with_failed_attempts_is_a_failure() {
    for way in WAYS {
        for (silent, code) in [(Duration::from_millis(2200), 1), (Duration::ZERO, 0)] {
            let (_, said) = load(way, &["-n", "1G", "-d", "3s"], taking_one(silent));
            assert_eq!(said.code, Some(code), "{way:?} {silent:?} {}", said.err);
            let words = "every attempt to connect failed and no response arrived";
            let text = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(text.contains(words), code == 1, "{way:?} {silent:?} {}", said.err);
        }
    }
}

/// A status outside 100 to 599 is none (RFC 9110 section 15), so it is not good either.
#[test]
fn a_status_below_100_is_bad() {
    for way in WAYS {
        for status in ["000", "099"] {
            let answer = format!("HTTP/1.1 {status} Odd\r\nContent-Length: 0\r\n\r\n");
            let (document, said) = load(way, &[], answering(answer.into_bytes()));
            assert_eq!(
                (said.code, number(&document, "/bad/status")),
                (Some(1), 20),
                "{way:?} {status} {}",
                said.err
            );
        }
    }
}

/// A server that refuses an upload and closes resets the connection, because bytes are unread. Its
/// response has arrived by then.
#[test]
fn a_response_before_a_reset_is_read() {
    const REFUSAL: &[u8] = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig";
    let upload = file(&vec![0; 3_000_000]);
    let body = format!("@{}", upload.path().display());
    for way in WAYS {
        let address = common::server(|mut stream| {
            let mut buffer = [0; 1024];
            if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                let _ = stream.write_all(REFUSAL);
            }
        });
        let (document, said) = load(way, &["-n", "60", "--body", &body], address);
        let counts = (number(&document, "/requests/answered"), number(&document, "/status/413"));
        assert_eq!(counts, (60, 60), "{way:?} {}", said.err);
    }
}

/// A run with these arguments that is stopped for a second on the way.
fn stopped_for_a_second(args: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out.json");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args([&["load", "-q", "-d", "4s", "--json", file.to_str().expect("UTF-8")], args].concat())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let signal = |name: &str| {
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().expect("kill").success());
    };
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    signal("-STOP");
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal("-CONT");
    child.wait().expect("its end");
    serde_json::from_slice(&std::fs::read(&file).expect("a document")).expect("JSON")
}

#[test]
fn a_client_that_was_stopped_says_so_and_does_not_blame_the_server() {
    let server = common::answering(common::HELLO);
    let url = format!("http://{server}/");
    for args in [&["--rate", "100", "-c", "8", &url][..], &["-c", "2", &url]] {
        let document = stopped_for_a_second(args);
        let client = &document["client"];
        assert!(client["stood_still_ms"].as_f64().unwrap() >= 800.0, "{args:?}: {client:#}");
        let warnings = document["warnings"].to_string();
        assert!(warnings.contains("this client stood still for up to"), "{args:?}: {warnings}");
        if args.contains(&"--rate") {
            // A quarter of the requests were due meanwhile.
            assert!(client["lateness_us_p99"].as_f64().unwrap() >= 500_000.0, "{client:#}");
        }
    }
}

#[test]
fn heads_that_others_may_read_differently_are_counted_and_named() {
    let flaws = [
        ("length_and_coding", "Content-Length: 3\r\nTransfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n"),
        ("repeated_length", "Content-Length: 2\r\nContent-Length: 2", "hi"),
        ("folded_field", "X-Long: one\r\n two\r\nContent-Length: 2", "hi"),
        ("bare_line_feed", "X-Short: one\nContent-Length: 2", "hi"),
        ("other_coding", "Transfer-Encoding: gzip, chunked", "2\r\nhi\r\n0\r\n\r\n"),
    ];
    for (flaw, fields, body) in flaws {
        let server = answering(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}").into_bytes());
        for way in WAYS {
            let (document, said) = load(way, &["--expect-status", "200"], server);
            let tolerated = document["tolerated"].as_object().expect("counts by flaw");
            assert_eq!(said.code, Some(0), "{flaw} {way:?} {}", said.err);
            assert_eq!((tolerated.len(), tolerated[flaw].as_u64()), (1, Some(20)), "{flaw} {way:?}");
            let noted = document["warnings"].as_array().expect("warnings").iter().filter_map(Value::as_str);
            let noted =
                noted.filter(|text| text.starts_with("20 responses had ") && text.contains("a proxy"));
            assert_eq!(noted.count(), 1, "{flaw} {way:?} {}", said.err);
        }
    }
    let sound = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec());
    let (document, _) = load(WAYS[0], &[], sound);
    assert_eq!(document["tolerated"], serde_json::json!({}));
}
