//! HTTP/3 against our own server.

use http::Version;
use linerate::client::{Client, Error, Protocol};
use linerate::net::uring::Uring;

use crate::secure::{each_way, echo, secure_with};

#[tokio::test]
async fn each_way_of_sending_over_quic() {
    let server = secure_with(&["h3", "h2"], false, || echo);
    each_way(&server.client().protocol(Protocol::Http3).build().unwrap(), Version::HTTP_3).await;
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
