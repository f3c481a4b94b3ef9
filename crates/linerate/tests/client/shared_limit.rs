//! The limit for the connections of all origins together, over each way to a server.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use linerate::client::{Builder, Error, Hosts, HostsBuilder, Phase, Protocol, RequestOptions};
use linerate::client::{ResponseExt as _, Why};
use linerate::serve::{self, Handle, Limits, Response, ServerOptions, spawn_with};

use crate::secure::{Secure, secure_with};
use crate::server::{Does, Server, ok};
use crate::tunnels::{Tunnel, proxy};

const LIMIT: usize = 4;

/// Requests that all servers are at work on at once. Each connection carries one at a time, so that they are no more than the
/// connections.
#[derive(Clone, Default)]
struct AtWork(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl AtWork {
    fn begin(&self) {
        self.1.fetch_max(self.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Responds with the path, after 5 ms. `/to/URL` redirects there.
    async fn respond(self, request: serve::Request) -> Response {
        self.begin();
        serve::sleep(Duration::from_millis(5)).await;
        self.end();
        match request.path().strip_prefix("/to/") {
            Some(to) => Response::text("").with_status(307).with_field("location", to).unwrap(),
            None => Response::text(request.path().to_owned()),
        }
    }

    /// Closes what is idle for longer than 30 ms, as all connections are between two rounds.
    fn on(&self, listen: &str) -> Handle {
        let at_work = self.clone();
        let limits = Limits { idle_time: Duration::from_millis(30), ..Limits::default() };
        let options =
            ServerOptions { listen: vec![listen.parse().unwrap()], limits, ..ServerOptions::default() };
        spawn_with(options, move || {
            let at_work = at_work.clone();
            move |request| at_work.clone().respond(request)
        })
        .unwrap()
    }

    fn plain(&self) -> Handle {
        self.on("127.0.0.1:0")
    }

    fn secure(&self, alpn: &[&str]) -> Secure {
        let at_work = self.clone();
        secure_with(alpn, false, move || {
            let at_work = at_work.clone();
            move |request| at_work.clone().respond(request)
        })
    }

    /// On threads, so that it sees requests as they come; closes after each response.
    fn closing(&self) -> Server {
        let at_work = self.clone();
        Server::start(move |request| {
            at_work.begin();
            std::thread::sleep(Duration::from_millis(5));
            at_work.end();
            let Does::Says(bytes) = ok(request.path()) else { unreachable!() };
            let says = String::from_utf8(bytes).unwrap().replacen("\r\n", "\r\nConnection: close\r\n", 1);
            Does::Closes(says.into_bytes())
        })
    }

    fn take(&self) -> usize {
        self.1.swap(0, Ordering::SeqCst)
    }
}

fn hosts(set: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> HostsBuilder {
    let few = |client: Builder| client.pipes(LIMIT as u32).h2_connections(LIMIT as u32).depth(1);
    Hosts::builder().connections(LIMIT as u32).each(move |client| set(few(client)))
}

/// Three rounds of calls to all origins in turns: each call has its response, and no more than the limit were under way at
/// once, but as many as that. Returns the versions of HTTP.
async fn call_all(name: &str, hosts: HostsBuilder, urls: &[String], at_work: &AtWork) -> Vec<Version> {
    let hosts = hosts.build().unwrap();
    let mut versions = Vec::new();
    for _ in 0..3 {
        let calls = (0..90).map(|n| hosts.get(&format!("{}/{n}", urls[n % urls.len()])));
        let calls = futures_util::future::join_all(calls);
        let all = tokio::time::timeout(Duration::from_secs(20), calls).await.expect(name);
        for (n, response) in all.into_iter().enumerate() {
            let response = response.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(response.body(), format!("/{n}").as_bytes(), "{name}");
            versions.push(response.version());
        }
        // Connections that are idle now close within the limit's sight.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let most = at_work.take();
    assert!((LIMIT - 1..=LIMIT).contains(&most), "{name}: {most} at once");
    versions
}

fn urls<T>(servers: &[T], url: impl Fn(&T) -> String) -> Vec<String> {
    servers.iter().map(url).collect()
}

fn of_handle(server: &Handle) -> String {
    format!("http://{}", server.addr())
}

fn trusted(servers: &[Secure]) -> String {
    servers.iter().map(|server| server.certificate.as_str()).collect()
}

#[tokio::test]
async fn over_clear_text() {
    let at_work = AtWork::default();
    let plain = [at_work.plain(), at_work.plain(), at_work.plain()];
    call_all("HTTP/1.1", hosts(|client| client), &urls(&plain, of_handle), &at_work).await;
    let by_h2 = hosts(|client| client.protocol(Protocol::Http2));
    let versions = call_all("HTTP/2", by_h2, &urls(&plain, of_handle), &at_work).await;
    assert!(versions.iter().all(|version| *version == Version::HTTP_2));
    let closing = [at_work.closing(), at_work.closing(), at_work.closing()];
    call_all("closing", hosts(|client| client), &urls(&closing, Server::url), &at_work).await;
}

#[tokio::test]
async fn over_tls_and_quic() {
    for (alpn, protocol, version) in [
        (&["http/1.1"][..], Protocol::Either, Version::HTTP_11),
        (&["h2"], Protocol::Either, Version::HTTP_2),
        (&["h3", "h2"], Protocol::Http3, Version::HTTP_3),
    ] {
        let at_work = AtWork::default();
        let servers = [at_work.secure(alpn), at_work.secure(alpn)];
        let pems = trusted(&servers);
        let set = hosts(move |client| client.protocol(protocol).add_root(&pems));
        let versions = call_all(alpn[0], set, &urls(&servers, Secure::url), &at_work).await;
        assert!(versions.iter().all(|seen| *seen == version), "{alpn:?}: {versions:?}");
    }
}

/// Connections over TCP and over QUIC count alike.
#[tokio::test]
async fn over_both_ways_of_alt_svc() {
    let at_work = AtWork::default();
    let servers = [at_work.secure(&["h3", "h2"]), at_work.secure(&["h3", "h2"])];
    let pems = trusted(&servers);
    let set = hosts(move |client| client.protocol(Protocol::AltSvc).add_root(&pems));
    let versions = call_all("AltSvc", set, &urls(&servers, Secure::url), &at_work).await;
    assert_eq!(versions.first(), Some(&Version::HTTP_2));
    assert!(versions.contains(&Version::HTTP_3), "{versions:?}");
}

#[tokio::test]
async fn through_a_proxy() {
    let at_work = AtWork::default();
    for alpn in [&["http/1.1"][..], &["h2"]] {
        let servers = [at_work.secure(alpn), at_work.secure(alpn)];
        let (pems, through) = (trusted(&servers), proxy(|_| Tunnel::Passes(usize::MAX)));
        let set = hosts(move |client| client.proxy(&through).add_root(&pems));
        call_all("CONNECT", set, &urls(&servers, Secure::url), &at_work).await;
    }
}

/// A server of each kind by one client, and redirects between them.
#[tokio::test]
async fn over_all_ways_together() {
    let at_work = AtWork::default();
    let plain = [at_work.plain(), at_work.plain()];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let socket = at_work.on(&format!("unix:{}", path.display()));
    let secure = [at_work.secure(&["http/1.1"]), at_work.secure(&["h2"]), at_work.secure(&["h3", "h2"])];
    let pems = trusted(&secure);
    let set = || {
        let pems = pems.clone();
        hosts(move |client| client.protocol(Protocol::AltSvc).add_root(&pems)).unix_socket("unix.test", &path)
    };
    let mut urls: Vec<String> = plain.iter().map(of_handle).chain(secure.iter().map(Secure::url)).collect();
    urls.push("http://unix.test".to_owned());
    call_all("all", set(), &urls, &at_work).await;
    // Each redirects to the next.
    let redirecting: Vec<String> =
        (0..urls.len()).map(|n| format!("{}/to/{}", urls[n], urls[(n + 1) % urls.len()])).collect();
    call_all("redirects", set(), &redirecting, &at_work).await;
    drop(socket);
}

/// Descriptors of this process for connections to this port, but for those of the server: after `close` a socket has no inode.
/// The table is read in parts, between which others move: it may have a socket twice.
fn sockets_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let to = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[2].ends_with(&to) && fields[9] != "0").then(|| fields[9].to_owned())
    };
    table.lines().skip(1).filter_map(inode).collect::<HashSet<_>>().len()
}

/// It had 197 sockets open once.
#[tokio::test]
async fn two_hundred_origins_within_sixteen_sockets() {
    let server = Server::on(TcpListener::bind("0.0.0.0:0").unwrap(), |request| {
        std::thread::sleep(Duration::from_millis(1));
        ok(request.path())
    });
    let (port, most) = (server.address.port(), Arc::new(AtomicUsize::new(0)));
    // On the thread that opens and closes them, so that none does meanwhile.
    let counts = tokio::spawn({
        let most = most.clone();
        async move {
            loop {
                most.fetch_max(sockets_to(port), Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    });
    let hosts = Hosts::builder().connections(16).each(|client| client.depth(2)).build().unwrap();
    for _ in 0..2 {
        let urls = (0..600).map(|n| format!("http://127.0.1.{}:{port}/{n}", n % 200 + 1));
        let calls = urls.map(|url| hosts.get(&url));
        for (n, response) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
            assert_eq!(response.unwrap().body(), format!("/{n}").as_bytes());
        }
    }
    counts.abort();
    let most = most.load(Ordering::SeqCst);
    assert!((2..=16).contains(&most), "{most} sockets at once");
}

fn get_within(url: &str, time: Duration) -> Request<Bytes> {
    let own = RequestOptions::default().timeout(time);
    Request::get(url).extension(own).body(Bytes::new()).unwrap()
}

/// Four calls to a server that says nothing, which have all connections until their time is over.
async fn silence(hosts: &Hosts, time: Duration) -> (Server, Vec<tokio::task::JoinHandle<Result<(), Error>>>) {
    let silent = Server::start(|_| Does::Nothing);
    let call = |n| {
        let call = hosts.send(get_within(&format!("{}/{n}", silent.url()), time));
        tokio::spawn(async move { call.await.map(drop) })
    };
    let calls = (0..LIMIT).map(call).collect();
    while silent.connections() < LIMIT {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (silent, calls)
}

/// Connections that wait for a response stay with their origin: a call to another waits until one is free, or its own time
/// is over, and its error says why.
#[tokio::test]
async fn connections_in_use_are_not_taken_back() {
    let (hosts, other) = (hosts(|client| client.timings()).build().unwrap(), crate::echo());
    let (silent, calls) = silence(&hosts, Duration::from_secs(60)).await;
    let url = format!("{}/b", other.url());
    let error = hosts.send(get_within(&url, Duration::from_millis(200))).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Limit, .. }) && error.is_unsent(), "{error:?}");
    assert!(error.to_string().contains("all connections that Hosts may have were in use"), "{error}");
    assert!(calls.iter().all(|call| !call.is_finished()));
    let next = tokio::spawn(hosts.get(&url));
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(silent);
    let response = next.await.unwrap().unwrap();
    let timings = response.timings().unwrap();
    assert_eq!(response.why(), Some(Why::Limit), "{timings:?}");
    assert!(timings.limited >= Duration::from_millis(50) && timings.limited <= timings.queue, "{timings:?}");
    assert!(timings.to_string().contains("all connections that Hosts may have were in use"), "{timings}");
}

/// An origin that stays silent keeps its connections for as long as its own calls wait.
#[tokio::test]
async fn a_silent_origin_gives_way_when_its_calls_end() {
    let (hosts, other) = (hosts(|client| client).build().unwrap(), crate::echo());
    let (_silent, calls) = silence(&hosts, Duration::from_millis(300)).await;
    assert_eq!(hosts.get(&format!("{}/b", other.url())).await.unwrap().body(), "/b");
    for call in calls {
        call.await.unwrap().unwrap_err();
    }
}

/// Where each origin waits for a place, the time-out is that of its client.
#[tokio::test]
async fn a_call_without_a_place_for_its_origin_ends_in_time() {
    let at_work = AtWork::default();
    let (slow, other) = (Server::start(|_| Does::Nothing), at_work.plain());
    let hosts =
        Hosts::builder().origins(1).each(|client| client.timings().timeout(Duration::from_millis(200)));
    let hosts = hosts.build().unwrap();
    let url = format!("{}/a", slow.url());
    let waits = tokio::spawn(hosts.send(get_within(&url, Duration::from_secs(60))));
    while slow.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let url = format!("{}/b", of_handle(&other));
    let call = tokio::time::timeout(Duration::from_secs(10), hosts.get(&url));
    let error = call.await.expect("it waits for longer than its time").unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Limit, .. }), "{error:?}");
    let next = tokio::spawn(hosts.send(get_within(&url, Duration::from_secs(20))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    waits.abort();
    let response = next.await.unwrap().unwrap();
    assert_eq!(response.why(), Some(Why::Limit), "{:?}", response.timings());
}
