//! HTTP/3 against Caddy, whose QUIC is quic-go's.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use linerate::client::{Builder, Client, Error, Protocol, ResponseExt, Template};

use crate::issued::Issued;
use crate::real_tls;

fn builder(url: &str, issued: &Issued) -> Builder {
    let client = Client::builder(url.trim_end_matches('/')).protocol(Protocol::Http3);
    client.add_root(&issued.certificate).only_added_roots()
}

#[tokio::test]
async fn caddy_answers_each_way_of_sending_by_quic() {
    let issued = Issued::to("localhost");
    let Some(site) = real_tls::caddy(&issued) else { return };
    // On a busy machine responses may be slow enough for more of them.
    let client = builder(&site.url(), &issued).h2_connections(1).timings().connection_info().build().unwrap();
    let request = |n| Request::get(format!("/{n}")).body(Bytes::new()).unwrap();
    let mut ended = client.send_all(stream::iter((0..1000).map(request)));
    while let Some(response) = ended.next().await {
        let response = response.unwrap();
        assert_eq!((&response.body()[..], response.version()), (&b"hello"[..], Version::HTTP_3));
        assert!(response.timings().unwrap().is_quic());
        assert_eq!(response.connection().unwrap().protocol, Version::HTTP_3);
    }
    client.post("/p", vec![b'x'; 3 << 20]).await.unwrap();
    // Caddy responds before it has the body, which it does not want.
    let piece = |_| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; 100_000])));
    let pieces = StreamBody::new(stream::iter(0..100).map(piece));
    let request = Request::put("/s").body(pieces).unwrap();
    let body = client.send_streaming(request).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), 500).await.unwrap();
    assert_eq!((counted.responses, counted.failed), (500, 0), "{counted:?}");
    assert_eq!(client.statistics().connected, 1);
    // Some lines may be written a moment after their responses.
    for _ in 0..1000 {
        if site.logged() >= Some(1502) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(site.logged(), Some(1502), "each request was processed once");
}

/// Caddy announces HTTP/3 by itself.
#[tokio::test]
async fn caddys_alt_svc_leads_to_http3() {
    let issued = Issued::to("localhost");
    let Some(site) = real_tls::caddy(&issued) else { return };
    let following = || builder(&site.url(), &issued).protocol(Protocol::AltSvc).connection_info();
    let client = following().build().unwrap();
    let mut versions = Vec::new();
    for _ in 0..500 {
        let response = client.get("/").await.unwrap();
        assert_eq!(response.version(), response.connection().unwrap().protocol);
        versions.push(response.version());
        if response.version() == Version::HTTP_3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((versions[0], versions.last()), (Version::HTTP_2, Some(&Version::HTTP_3)));
    let posts = (0..100).map(|n| client.post(&format!("/{n}"), "x"));
    for posted in futures_util::future::join_all(posts).await {
        assert_eq!(posted.unwrap().version(), Version::HTTP_3);
    }
    assert_eq!(client.statistics().resent, 0);
}

#[tokio::test]
async fn what_cannot_be_reached_by_quic_is_said_in_time() {
    let issued = Issued::to("localhost");
    let Some(site) = real_tls::caddy(&issued) else { return };
    let stranger = Issued::to("localhost");
    let error = builder(&site.url(), &stranger).build().unwrap().get("/").await.unwrap_err();
    assert!(matches!(&error, Error::Connect(why) if why.contains("certificate")), "{error}");
    // A socket that says nothing, and a port where none is.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", silent.local_addr().unwrap().port());
    for (url, named) in [(url.as_str(), "in time"), ("https://localhost:9", "refused")] {
        let client = builder(url, &issued).connect_timeout(Duration::from_millis(300)).connect_attempts(1);
        let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
        let client = client.resolve([SocketAddr::from(([127, 0, 0, 1], port))]);
        let since = Instant::now();
        let error = client.build().unwrap().post("/", "x").await.unwrap_err();
        assert!(matches!(&error, Error::Connect(why) if why.contains(named)), "{error}");
        assert!(error.is_unsent() && since.elapsed() < Duration::from_secs(5), "{error}");
    }
}
