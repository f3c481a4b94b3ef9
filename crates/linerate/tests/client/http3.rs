//! HTTP/3 against our own server.

use http::Version;
use linerate::client::{Builder, Client, Error, Hosts, Protocol};
use linerate::net::uring::Uring;

use crate::secure::{each_way, echo, issued, secure_with};

#[tokio::test]
async fn each_way_of_sending_over_quic() {
    let server = secure_with(&["h3", "h2"], false, || echo);
    each_way(&server.client().protocol(Protocol::Http3).build().unwrap(), Version::HTTP_3).await;
}

#[tokio::test]
async fn certificates_are_checked_as_over_tcp() {
    let server = secure_with(&["h3"], true, || echo);
    let by_address = || {
        let url = format!("https://127.0.0.1:{}", server.server.addr().port());
        Client::builder(&url).protocol(Protocol::Http3).connect_attempts(1)
    };
    let shows = |builder: Builder| builder.client_certificate(&server.certificate, &server.key);
    let trusted = by_address().add_root(&server.certificate).only_added_roots();
    let answered = [
        shows(trusted.clone().server_name("localhost")),
        shows(by_address().danger_accept_any_certificate()),
    ];
    for builder in answered {
        assert_eq!(builder.build().unwrap().get("/a").await.unwrap().body(), "GET /a 0");
    }
    let (stranger, _) = issued();
    let by_stranger = by_address().add_root(stranger).only_added_roots().server_name("localhost");
    for builder in [shows(trusted), shows(by_stranger)] {
        let error = builder.build().unwrap().get("/a").await.unwrap_err();
        assert!(matches!(&error, Error::Connect(why) if why.contains("certificate")), "{error}");
    }
    // The server asks for one.
    let nameless = by_address().danger_accept_any_certificate().build().unwrap();
    let error = nameless.get("/a").await.unwrap_err();
    assert!(error.to_string().contains("ertificate"), "{error}");
}

#[tokio::test]
async fn several_servers_over_quic() {
    let servers = [(); 2].map(|()| secure_with(&["h3"], false, || echo));
    let pems = servers.each_ref().map(|server| server.certificate.clone()).join("\n");
    let each = move |client: Builder| client.protocol(Protocol::Http3).add_root(&pems);
    let hosts = Hosts::builder().each(each).build().unwrap();
    for server in &servers {
        let response = hosts.get(&format!("{}/a", server.url())).await.unwrap();
        assert_eq!((response.version(), &response.body()[..]), (Version::HTTP_3, &b"GET /a 0"[..]));
    }
    let error = hosts.get("http://localhost:1/").await.unwrap_err();
    assert!(error.to_string().contains("https://"), "{error}");
}

#[test]
fn what_quic_does_not_go_with_is_named() {
    let quic = |url| Client::builder(url).protocol(Protocol::Http3);
    let https = "https://localhost:8443";
    for (builder, named) in [
        (quic("http://localhost:8443"), "https://"),
        (quic(https).unix_socket("/tmp/none"), "unix_socket()"),
        (quic(https).proxy("http://u:secret@localhost:3128"), "http://localhost:3128"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::Builder(_)), "{error}");
        let words = error.to_string();
        assert!(words.contains("HTTP/3") && words.contains(named) && !words.contains("secret"), "{words}");
    }
    assert!(quic(https).build_beside().is_err_and(|error| error.to_string().contains("build_beside()")));
    let limits = quic(https).limits();
    if let Ok(uring) = Uring::with_limits(limits) {
        assert!(quic(https).build_over(uring).is_err_and(|error| error.to_string().contains("build_over()")));
    }
}
