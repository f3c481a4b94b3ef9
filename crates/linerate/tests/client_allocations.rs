//! The promise: a call costs at most three allocations, those of its `http::Response` among them.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use allocation_counter::measure;
use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use linerate::client::{Client, Protocol, Template};
use linerate::serve::{ServerOptions, TlsIdentity, TlsOptions};

const CALLS: u64 = 2000;
const AT_ONCE: u64 = 100;
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: test\r\nX-Own: field\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

/// Counts requests by their empty lines and responds to each. Allocations of its thread do not count.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let (mut stream, mut buffer, mut newlines) = (stream.unwrap(), vec![0; 1 << 18], 0);
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    newlines += buffer[..n].iter().filter(|b| **b == b'\n').count();
                    // A request has three lines: its own, Host and the empty one.
                    let requests = newlines / 3;
                    newlines %= 3;
                    if stream.write_all(&RESPONSE.repeat(requests)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn request() -> Request<Bytes> {
    Request::get("/a").body(Bytes::new()).unwrap()
}

#[test]
fn a_call_costs_three_allocations_at_most() {
    measure_calls(&Client::builder(&format!("http://{}", serve())).pipes(2).build().unwrap(), 3.1);
}

#[test]
fn a_call_over_http2_costs_no_more() {
    let hello = |_: linerate::serve::Request| async { linerate::serve::Response::text("hello") };
    let server = linerate::serve::spawn_with(Default::default(), move || hello).unwrap();
    let builder = Client::builder(&format!("http://{}", server.addr())).protocol(Protocol::Http2);
    measure_calls(&builder.build().unwrap(), 3.1);
}

/// By either version of HTTP.
#[test]
fn a_call_over_tls_costs_little_more() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    for alpn in ["h2", "http/1.1"] {
        let identity = TlsIdentity::from_pem(("cert", cert.as_bytes()), ("key", key.as_bytes())).unwrap();
        let mut options = TlsOptions::new(identity);
        options.alpn = vec![alpn.into()];
        let options =
            ServerOptions { tls: Some(options.build().unwrap()), threads: 1, ..ServerOptions::default() };
        let hello = |_: linerate::serve::Request| async { linerate::serve::Response::text("hello") };
        let server = linerate::serve::spawn_with(options, move || hello).unwrap();
        let url = format!("https://localhost:{}", server.addr().port());
        // How many connections a busy machine is worth is another question.
        let builder = Client::builder(&url).pipes(4);
        println!("{alpn}");
        // One more for each record, which holds as many responses as the server had at a time.
        measure_calls(&builder.add_root(&cert).only_added_roots().build().unwrap(), 3.6);
    }
}

fn measure_calls(client: &Client, most: f64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The caller's own: what it takes to make the requests and to wait for many of them at once.
    let send = || {
        runtime.block_on(async {
            let requests = futures_util::stream::iter((0..CALLS).map(|_| client.send(request())));
            let ended = requests.buffer_unordered(AT_ONCE as usize);
            assert_eq!(ended.filter(|r| std::future::ready(r.is_ok())).count().await as u64, CALLS);
        });
    };
    let callers_own = |calls: u64| {
        measure(|| {
            runtime.block_on(async {
                let requests = futures_util::stream::iter((0..calls).map(|_| async { drop(request()) }));
                requests.buffer_unordered(AT_ONCE as usize).count().await;
            });
        })
    };
    let all = || {
        runtime.block_on(async {
            let requests = futures_util::stream::iter((0..CALLS).map(|_| request()));
            let ended = client.send_all(requests);
            assert_eq!(ended.filter(|r| std::future::ready(r.is_ok())).count().await as u64, CALLS);
        });
    };
    for (name, run) in [("send", &send as &dyn Fn()), ("send_all", &all)] {
        // Buffers grow, and the head of the response is learnt.
        run();
        run();
        let own = callers_own(CALLS).count_total as f64 / CALLS as f64;
        let each = measure(run).count_total as f64 / CALLS as f64 - own;
        println!("{name}: {each:.2} allocations for each call, beside {own:.2} of the caller's own");
        assert!(each <= most, "{name}: {each:.2} allocations for each call");
    }
}

#[test]
fn a_counted_run_costs_none() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::builder(&format!("http://{}", serve())).pipes(2).build().unwrap();
    let count = |count: u64| {
        runtime.block_on(async {
            let counted = client.send_counted(Template::get("/a").unwrap(), count).await.unwrap();
            assert_eq!(counted.responses, count);
        });
    };
    count(100);
    let (few, many) = (measure(|| count(1_000)), measure(|| count(101_000)));
    let each = many.count_total.saturating_sub(few.count_total) as f64 / 100_000.0;
    assert!(each < 0.01, "{each:.4} allocations for each request");
}
