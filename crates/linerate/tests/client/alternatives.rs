//! Alt-Svc (RFC 7838): from TCP to HTTP/3, and back.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Version;
use linerate::client::{Client, Error, Hosts, Protocol, ResponseExt as _};
use linerate::serve::{self, Address, Handle, Response, ServerOptions, TlsIdentity, TlsOptions, spawn_with};

use crate::secure::{each_way, echo, issued, secure_with};

/// Calls until one goes over HTTP/3; how many before did not.
async fn move_over(client: &Client) -> u32 {
    for before in 0..500 {
        let response = client.get("/move").await.unwrap();
        if response.version() == Version::HTTP_3 {
            return before;
        }
        assert_eq!(response.version(), Version::HTTP_2);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still over TCP: {:?}", client.statistics());
}

#[tokio::test]
async fn our_own_server_announces_http3_and_later_calls_use_it() {
    let server = secure_with(&["h3", "h2"], false, || echo);
    let builder = server.client().protocol(Protocol::AltSvc).h2_connections(1);
    let client = builder.timings().connection_info().build().unwrap();
    assert!(move_over(&client).await >= 1);
    each_way(&client, Version::HTTP_3).await;
    let response = client.get("/").await.unwrap();
    let (timings, connection) = (response.timings().unwrap(), response.connection().unwrap());
    assert!(timings.is_quic() && timings.is_reused, "{timings:?}");
    assert_eq!((connection.protocol, connection.number), (Version::HTTP_3, 1));
    assert_eq!(client.statistics().connected, 2);
}

#[tokio::test]
async fn streams_that_are_under_way_stay_where_they_are() {
    let server = secure_with(&["h3", "h2"], false, || echo);
    let client = server.client().protocol(Protocol::AltSvc).build().unwrap();
    client.get("/").await.unwrap();
    let slow = tokio::spawn(client.get("/slow"));
    tokio::task::yield_now().await;
    move_over(&client).await;
    let slow = slow.await.unwrap().unwrap();
    assert_eq!((slow.version(), &slow.body()[..]), (Version::HTTP_2, &b"GET /slow 0"[..]));
}

/// Nothing but a program that asks for it leads to HTTP/3.
#[tokio::test]
async fn alt_svc_alone_leads_nowhere() {
    let server = secure_with(&["h3", "h2"], false, || echo);
    let client = server.client().build().unwrap();
    for _ in 0..3 {
        let response = client.get("/").await.unwrap();
        assert!(response.headers()["alt-svc"].to_str().unwrap().starts_with("h3="));
        assert_eq!(response.version(), Version::HTTP_2);
    }
}

/// A server over TCP that announces what it is told to.
struct Announcing {
    certificate: String,
    key: String,
    value: Arc<Mutex<String>>,
    server: Handle,
}

fn announcing(http3: bool, value: &str) -> Announcing {
    let (certificate, key) = issued();
    let value = Arc::new(Mutex::new(value.to_owned()));
    let server = started("127.0.0.1:0", (&certificate, &key), http3, &value);
    Announcing { certificate, key, value, server }
}

fn started(at: &str, (chain, key): (&str, &str), http3: bool, value: &Arc<Mutex<String>>) -> Handle {
    let identity = TlsIdentity::from_pem(("cert", chain.as_bytes()), ("key", key.as_bytes())).unwrap();
    let mut tls = TlsOptions::new(identity);
    tls.alpn = vec![b"h2".to_vec()];
    let listen: Address = at.parse().unwrap();
    let tls = Some(tls.build().unwrap());
    let options = ServerOptions { listen: vec![listen], tls, http3, ..ServerOptions::default() };
    let value = Arc::clone(value);
    let handler = move || {
        let value = Arc::clone(&value);
        move |request: serve::Request| {
            let value = value.lock().unwrap().clone();
            async move {
                let response = echo(request).await;
                if value.is_empty() { response } else { with_field(response, &value) }
            }
        }
    };
    spawn_with(options, handler).unwrap()
}

fn with_field(response: Response, value: &str) -> Response {
    response.with_field("alt-svc", value).unwrap()
}

impl Announcing {
    fn client(&self) -> Client {
        let builder = Client::builder(&format!("https://localhost:{}", self.server.addr().port()));
        let builder = builder.add_root(&self.certificate).protocol(Protocol::AltSvc);
        builder.connect_timeout(Duration::from_millis(700)).build().unwrap()
    }
}

/// RFC 9114 section 3.1.
#[tokio::test]
async fn where_udp_is_blocked_no_call_waits_or_fails() {
    // A socket that says nothing, as if each datagram were dropped, and a port where none is.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for port in [silent.local_addr().unwrap().port(), free] {
        let server = announcing(false, &format!("h3=\":{port}\""));
        let client = server.client();
        for n in 0..40 {
            let call = client.get("/a");
            let response = tokio::time::timeout(Duration::from_millis(500), call).await;
            assert_eq!(response.expect("it waits for QUIC").unwrap().version(), Version::HTTP_2, "{n}");
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        let statistics = client.statistics();
        assert_eq!((statistics.connect_failures, statistics.connected), (1, 1), "{statistics:?}");
    }
    let mut datagram = [0; 1500];
    assert!(silent.recv(&mut datagram).unwrap() >= 1200, "QUIC was tried");
}

#[tokio::test]
async fn a_certificate_that_does_not_prove_the_servers_name_is_no_alternative() {
    let stranger = secure_with(&["h3", "h2"], false, || echo);
    let server = announcing(false, &format!("h3=\":{}\"", stranger.server.addr().port()));
    let client = server.client();
    for _ in 0..30 {
        assert_eq!(client.get("/a").await.unwrap().version(), Version::HTTP_2);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(client.statistics().connect_failures, 1);
}

#[tokio::test]
async fn clear_leads_back() {
    let server = announcing(true, "");
    let client = server.client();
    move_over(&client).await;
    "clear".clone_into(&mut server.value.lock().unwrap());
    assert_eq!(client.get("/").await.unwrap().version(), Version::HTTP_3);
    for _ in 0..20 {
        assert_eq!(client.get("/").await.unwrap().version(), Version::HTTP_2);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Calls that may go again do so, over TCP.
#[tokio::test]
async fn a_server_that_comes_back_without_http3_costs_no_get() {
    let Announcing { certificate, key, value, server } = announcing(true, "");
    let at = server.addr();
    let builder = Client::builder(&format!("https://localhost:{}", at.port())).add_root(&certificate);
    let client = builder.protocol(Protocol::AltSvc).connect_attempts(20).build().unwrap();
    move_over(&client).await;
    let is_back = Arc::new(AtomicBool::new(false));
    let calls = tokio::spawn({
        let (client, is_back) = (client.clone(), Arc::clone(&is_back));
        async move {
            let mut answered = (0, 0);
            while !is_back.load(Ordering::Relaxed) || answered.1 < 50 {
                match client.get("/a").await {
                    Ok(response) if response.version() == Version::HTTP_3 => answered.0 += 1,
                    Ok(_) => answered.1 += 1,
                    Err(error) => panic!("{answered:?}: {error}"),
                }
            }
            answered
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    let again = started(&at.to_string(), (&certificate, &key), false, &value);
    is_back.store(true, Ordering::Relaxed);
    let (by_quic, by_tcp) = calls.await.unwrap();
    assert!(by_quic > 0 && by_tcp >= 50, "{by_quic}, {by_tcp}");
    drop(again);
}

#[tokio::test]
async fn each_origin_of_hosts_has_alternatives_of_its_own() {
    let plain = crate::echo();
    let to = secure_with(&["h3", "h2"], false, || echo);
    let location = format!("{}/b", to.url());
    let redirecting = secure_with(&["h3", "h2"], false, move || {
        let location = location.clone();
        move |_: serve::Request| {
            let response = Response::text("there").with_status(302).with_field("location", &location);
            async move { response.unwrap() }
        }
    });
    let pems = format!("{}\n{}", to.certificate, redirecting.certificate);
    let each = move |client: linerate::client::Builder| client.protocol(Protocol::AltSvc).add_root(&pems);
    let hosts = Hosts::builder().each(each).build().unwrap();
    assert_eq!(hosts.get(&format!("{}/x", plain.url())).await.unwrap().version(), Version::HTTP_11);
    let mut versions = Vec::new();
    for _ in 0..500 {
        let response = hosts.get(&format!("{}/a", redirecting.url())).await.unwrap();
        assert_eq!((&response.body()[..], response.uri().unwrap().path()), (&b"GET /b 0"[..], "/b"));
        versions.push(response.version());
        if response.version() == Version::HTTP_3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((versions.first(), versions.last()), (Some(&Version::HTTP_2), Some(&Version::HTTP_3)));
    assert_eq!(hosts.open_origins(), 3);
}

#[tokio::test]
async fn with_a_proxy_or_a_unix_socket_it_is_tcp_alone() {
    let https = || Client::builder("https://localhost:1").protocol(Protocol::AltSvc);
    assert!(https().proxy("http://localhost:3128").build().is_ok());
    assert!(https().unix_socket("/tmp/none").build().is_ok());
    assert!(Client::builder("http://localhost:1").protocol(Protocol::AltSvc).build().is_ok());
    let error = https().build_beside().err().unwrap();
    assert!(matches!(&error, Error::Builder(why) if why.contains("build_beside()")), "{error}");
}
