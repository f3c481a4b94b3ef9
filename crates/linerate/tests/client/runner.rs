//! A client over a transport of the program's own, in the program's thread.

use std::future::Future;
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use http::Request;
use linerate::client::{Client, Error, Protocol, Runner, Template};
use linerate::net::Transport;
use linerate::net::epoll::Epoll;
use linerate::net::mem::{Mem, MemOptions, PeerActions, PeerConn};
use linerate::net::uring::Uring;

use crate::get;
use crate::secure::secure;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Each way that needs no tokio.
fn each_way<T: Transport>(client: Client, runner: &mut Runner<T>) {
    let body = |response: Result<http::Response<Bytes>, Error>| response.unwrap().into_body();
    runner
        .run(async {
            assert_eq!(body(client.get("/a").await), "GET /a 0");
            assert_eq!(body(client.post("/p", vec![b'x'; 1 << 20]).await), "POST /p 1048576");
            let all = join_all((0..500).map(|n| client.get(&format!("/{n}")))).await;
            for (n, response) in all.into_iter().enumerate() {
                assert_eq!(body(response), format!("GET /{n} 0"));
            }
            let requests = futures_util::stream::iter((0..500).map(|n| get(format!("/{n}"))));
            let mut ordered = client.send_all(requests);
            let mut next = 0;
            while let Some(response) = ordered.next().await {
                assert_eq!(body(response), format!("GET /{next} 0"));
                next += 1;
            }
            assert_eq!(next, 500);
            let empty = http_body_util::Empty::<Bytes>::new();
            let mut streamed = client.send_streaming(Request::get("/s").body(empty).unwrap()).await.unwrap();
            assert_eq!(streamed.body_mut().next().await.unwrap().unwrap(), "GET /s 0");
            let whole = http_body_util::Full::new(Bytes::from_static(b"x"));
            let error = client.send_streaming(Request::put("/s").body(whole).unwrap()).await.unwrap_err();
            assert!(error.to_string().contains("no tokio runtime"), "{error}");
            let error = client.send_counted(Template::get("/").unwrap(), 10).await.unwrap_err();
            assert!(error.to_string().contains("no tokio runtime"), "{error}");
        })
        .unwrap();
    assert!(client.statistics().responses > 1000);
}

/// A runner of this client over each transport of the kernel's.
fn over_each(build: impl Fn() -> linerate::client::Builder) {
    let before = threads();
    let epoll = Epoll::with_limits(build().limits()).unwrap();
    let (client, mut runner) = build().build_over(epoll).unwrap();
    each_way(client, &mut runner);
    let uring = Uring::with_limits(build().limits()).unwrap();
    let (client, mut runner) = build().build_over(uring).unwrap();
    each_way(client, &mut runner);
    assert!(threads() <= before, "it needs no other thread");
}

/// In a process of its own: the threads of other tests come and go.
#[test]
fn without_tokio_over_http1_http2_and_tls() {
    const ALONE: &str = "LINERATE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "runner::without_tokio_over_http1_http2_and_tls";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let out = again.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        return;
    }
    let both = secure(&["h2", "http/1.1"], false);
    let plain = linerate::serve::spawn_with(Default::default(), || crate::secure::echo).unwrap();
    let url = format!("http://{}", plain.addr());
    over_each(|| Client::builder(&url));
    over_each(|| Client::builder(&url).protocol(Protocol::Http2));
    let url = format!("https://127.0.0.1:{}", both.server.addr().port());
    let of = |protocol| {
        let builder = Client::builder(&url).add_root(&both.certificate).only_added_roots();
        builder.server_name("localhost").protocol(protocol)
    };
    over_each(|| of(Protocol::Either));
    over_each(|| of(Protocol::Http1));
}

/// In memory and in virtual time, against a scripted peer.
#[test]
fn in_memory() {
    let mut mem = Mem::new(MemOptions::default()).unwrap();
    let server = |_, conn: PeerConn, bytes: &[u8], out: &mut PeerActions| {
        let requests = bytes.windows(4).filter(|w| w == b"\r\n\r\n").count();
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".repeat(requests);
        out.send_after(Duration::from_secs(3), conn, response);
    };
    mem.serve("10.0.0.2:80".parse().unwrap(), server).unwrap();
    let (client, mut runner) = Client::builder("http://10.0.0.2").build_over(mem).unwrap();
    let begun = std::time::Instant::now();
    let responses = runner.run(join_all((0..20).map(|_| client.get("/")))).unwrap();
    assert!(responses.into_iter().all(|response| response.unwrap().body() == "ok"));
    assert!(begun.elapsed() < Duration::from_secs(3), "time is virtual");
    // A call makes no progress unless the runner is polled, and it fails when the runner is dropped.
    let mut call = Box::pin(client.get("/"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    drop(runner);
    let Poll::Ready(Err(Error::Closed)) = call.as_mut().poll(&mut cx) else { panic!("it is closed") };
}

/// Another thread wakes the runner: it hands a call over, and ends the future.
#[test]
fn a_client_in_two_threads() {
    let server = crate::echo();
    let builder = Client::builder(&server.url());
    let epoll = Epoll::with_limits(builder.limits()).unwrap();
    let (client, mut runner) = builder.build_over(epoll).unwrap();
    let (tell, told) = tokio::sync::oneshot::channel();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let mut call = std::pin::pin!(client.get("/other"));
        let result = loop {
            match call.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
                Poll::Ready(result) => break result,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        tell.send(result.unwrap()).unwrap();
    });
    assert_eq!(runner.run(told).unwrap().unwrap().body(), "/other");
    other.join().unwrap();
}

/// The name is looked up without tokio.
#[test]
fn a_name() {
    let server = crate::echo();
    let builder = Client::builder(&format!("http://localhost:{}", server.address.port()));
    let epoll = Epoll::with_limits(builder.limits()).unwrap();
    let (client, mut runner) = builder.build_over(epoll).unwrap();
    assert_eq!(runner.run(client.get("/n")).unwrap().unwrap().body(), "/n");
}
