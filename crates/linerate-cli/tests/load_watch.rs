//! `load --watch`: a server's page for Prometheus, read beside the run.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{measured, nobody, run, server};
use serde_json::Value;

/// The page of a server, and the server.
fn with_metrics() -> (serving::Server, String) {
    let address = nobody();
    let server = serving::serve(&["--metrics", &address.to_string()]);
    (server, format!("http://{address}"))
}

fn warnings(document: &Value) -> String {
    document["warnings"].to_string()
}

#[test]
fn a_servers_own_page_tells_its_cpu_and_memory() {
    let (server, page) = with_metrics();
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("page.html").display().to_string();
    let before = server.cpu();
    let (document, said) = measured(&["-d", "2500ms", "-c", "4", "--watch", &page, "--html", &html, &url]);
    let used = (server.cpu() - before).as_secs_f64();
    assert_eq!(said.code, Some(0), "{said:?}");
    let told = &document["server"];
    assert_eq!(told["name"], format!("{page}/metrics"), "{document:#}");
    assert!(told["pid"].is_null());
    let cpu = told["cpu_s"].as_f64().unwrap();
    // Clock ticks are 10 ms.
    assert!((cpu - used).abs() < 0.1 * used + 0.05, "{cpu} s on the page, {used} s by the kernel");
    let answered = document["requests"]["answered"].as_f64().unwrap();
    let each = told["cpu_us_per_request"].as_f64().unwrap();
    assert!((each - cpu * 1e6 / answered).abs() < 0.01 * each + 0.01, "{document:#}");
    let resident = server.resident_kb() as f64 / 1e3;
    assert!((told["rss_mb"].as_f64().unwrap() / resident - 1.0).abs() < 0.5, "{told:#} and {resident} MB");
    assert!(told["series"].as_array().unwrap().len() >= 2, "{told:#}");
    assert!(said.err.contains("CPU/request") && said.err.contains("/metrics"), "{said:?}");
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.contains("server CPU/request") && html.contains("Memory of the server"));
}

/// Reads a request, says this, and closes.
fn says(mut stream: TcpStream, text: &[u8]) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(text);
}

/// A page that never ends, one byte after another.
fn drips(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
    while stream.write_all(b"#").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A page that never ends, as fast as it goes.
fn floods(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
    while stream.write_all(&[b'a'; 65536]).is_ok() {}
}

#[test]
fn a_page_that_fails_is_named_and_the_run_goes_on() {
    let target = serving::serve(&[]);
    let url = format!("http://{}/", target.address);
    let other = common::answering("HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let cases = [
        (nobody(), "connection refused"),
        (server(drips), "took longer than 2 s"),
        (server(floods), "larger than 4 MiB"),
        (other, "status 404"),
        (server(|stream| says(stream, b"HTTP/1.1 404 No\r\n\r\n")), "status 404"),
        (server(|stream| says(stream, b"")), "the response broke off"),
    ];
    for (page, why) in cases {
        let page = format!("http://{page}/page");
        let begun = Instant::now();
        let (document, said) = measured(&["-d", "300ms", "-c", "2", "--watch", &page, &url]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let told = warnings(&document).to_lowercase();
        assert!(told.contains(&page) && told.contains(&why.to_lowercase()), "{why}: {told}");
        assert!(document["server"].is_null(), "{document:#}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{why}: {:?}", begun.elapsed());
    }
    for (flag, part) in [
        (&["--watch", "http://a:b@h/metrics"][..], "credentials"),
        (&["--watch", "http://"], "no host"),
        (&["--watch", "http://h/", "--pid", "auto"], "cannot be used with"),
    ] {
        let said = run(&[&["load", "-q", "-n", "1"], flag, &[&url]].concat());
        assert!(said.code == Some(2) && said.err.contains(part), "{flag:?}: {said:?}");
    }
}

#[test]
fn a_page_over_https_is_read_as_the_target_is() {
    let issued = issued::Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metrics"), "process_resident_memory_bytes 5000000\n").unwrap();
    let dir = folder.path().display().to_string();
    let server = serving::serve(&["--tls-cert", &cert, "--tls-key", &key, "--dir", &dir]);
    let page = format!("https://localhost:{}", server.address.rsplit_once(':').unwrap().1);
    let target = format!("{page}/metrics");
    let (document, said) =
        measured(&["-d", "300ms", "-c", "2", "--cacert", &cert, "--watch", &page, &target]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(document["server"]["rss_mb"], 5.0, "{document:#}");
    // A target in clear text says nothing of whom to trust.
    let plain = serving::serve(&[]);
    let url = format!("http://{}/", plain.address);
    let (document, said) = measured(&["-d", "300ms", "-c", "2", "--watch", &page, &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(warnings(&document).contains("certificate") && document["server"].is_null(), "{document:#}");
}
