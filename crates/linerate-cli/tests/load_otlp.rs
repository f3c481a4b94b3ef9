//! `load --otlp`: a run's figures for an OpenTelemetry collector.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{linerate, measured, nobody, run, server};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
use prost::Message;

/// Reads a request: its head and body.
fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if bytes.len() >= end + length.unwrap_or(0) {
                return (head, bytes.split_off(end));
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return (String::new(), Vec::new()),
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

#[test]
fn a_collector_gets_each_second_and_the_end_of_a_run() {
    let target = serving::serve(&[]);
    let got = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&got);
    let collector = server(move |mut stream| {
        let request = request(&mut stream);
        keeps.lock().unwrap().push(request);
        respond(&mut stream, "200 OK", &ExportMetricsServiceResponse::default().encode_to_vec());
    });
    let url = format!("http://{}/", target.address);
    let otlp = format!("http://{collector}");
    let (document, said) = measured(&["-d", "2500ms", "-c", "2", "--rate", "200", "--otlp", &otlp, &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!document["warnings"].to_string().contains("--otlp"), "{document:#}");
    let got = got.lock().unwrap();
    assert!(got.len() >= 3, "{}", got.len());
    let mut before = 0;
    for (head, body) in got.iter() {
        assert!(head.starts_with("post /v1/metrics http/1.0\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let request = ExportMetricsServiceRequest::decode(&**body).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let sent = metrics.iter().find(|m| m.name == "linerate.load.requests.sent").unwrap();
        let Some(Data::Sum(sum)) = &sent.data else { panic!("{sent:?}") };
        let Some(Value::AsInt(n)) = sum.data_points[0].value else { panic!("{sum:?}") };
        assert!(n >= before, "{n} after {before}");
        before = n;
    }
    assert_eq!(document["requests"]["sent"], before, "{document:#}");
}

#[test]
fn a_collector_that_fails_is_a_warning() {
    let target = serving::serve(&[]);
    let url = format!("http://{}/", target.address);
    let partial = ExportMetricsPartialSuccess { rejected_data_points: 2, error_message: String::new() };
    let rejects = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let cases = [
        (nobody(), "connection refused"),
        (
            server(|mut s| {
                request(&mut s);
                respond(&mut s, "503 Busy", b"");
            }),
            "status 503",
        ),
        (
            server(|mut s| {
                request(&mut s);
                std::thread::sleep(Duration::from_secs(20));
            }),
            "took longer",
        ),
        (
            server(move |mut s| {
                request(&mut s);
                respond(&mut s, "200 OK", &rejects);
            }),
            "2 of ",
        ),
    ];
    for (collector, why) in cases {
        let otlp = format!("http://{collector}");
        let begun = Instant::now();
        let (document, said) = measured(&["-d", "300ms", "-c", "2", "--otlp", &otlp, &url]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let told = document["warnings"].to_string().to_lowercase();
        assert!(told.contains(&format!("--otlp {otlp}/v1/metrics")) && told.contains(why), "{why}: {told}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{why}: {:?}", begun.elapsed());
    }
    for (flag, part) in [("http://a:b@h", "credentials"), ("http://", "no host")] {
        let said = run(&["load", "-q", "-n", "1", "--otlp", flag, &url]);
        assert!(said.code == Some(2) && said.err.contains(part), "{flag:?}: {said:?}");
    }
}

#[test]
fn a_collector_over_https_must_be_trusted() {
    let issued = issued::Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let server = serving::serve(&["--tls-cert", &cert, "--tls-key", &key]);
    let target = serving::serve(&[]);
    let otlp = format!("https://localhost:{}", server.address.rsplit_once(':').unwrap().1);
    let url = format!("http://{}/", target.address);
    let warnings = |authorities: &str| {
        let arguments = ["load", "-q", "--json", "-", "-d", "300ms", "-c", "2", "--otlp", &otlp, &url];
        let mut command = linerate(&arguments);
        let output = command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", authorities).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let document = serde_json::from_slice::<serde_json::Value>(&output.stdout);
        (output.status.code(), document.map(|d| d["warnings"].to_string()).unwrap_or(said))
    };
    // This server has no such path: its response came over TLS.
    let (code, told) = warnings(&cert);
    assert!(code == Some(0) && told.contains("status 404"), "{code:?} {told}");
    let (code, told) = warnings("");
    assert!(
        code == Some(0) && told.contains("/v1/metrics") && told.contains("certificate"),
        "{code:?} {told}"
    );
    let (code, told) = warnings("/nowhere.pem");
    assert!(code == Some(2) && told.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{code:?} {told}");
}
