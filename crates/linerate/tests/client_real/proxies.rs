//! Through real proxies: what they open, forward and refuse.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use linerate::client::{Builder, Client, Error, ErrorKind, Hosts, Protocol, ResponseExt as _, Template};

use crate::issued;
use crate::real::{self, Server, nginx_tls, nginx_with, squid, tinyproxy};

const OPEN: &str = "http_access allow localhost";

fn proxies() -> Vec<Server> {
    [tinyproxy(None), squid(OPEN)].into_iter().flatten().collect()
}

/// Each way of sending gets `hello`.
async fn each_way(client: &Client, version: Version) {
    let response = client.get("/").await.unwrap();
    assert_eq!((response.version(), &response.body()[..]), (version, &b"hello"[..]));
    assert_eq!(client.post("/p", vec![b'x'; 1 << 18]).await.unwrap().status(), 200);
    let request = |n: usize| Request::get(format!("/{n}")).body(Bytes::new()).unwrap();
    let all = client.send_all(futures_util::stream::iter((0..300).map(request)));
    assert_eq!(
        all.filter(|r| std::future::ready(r.as_ref().is_ok_and(|r| r.status() == 200))).count().await,
        300
    );
    let upload = Request::put("/u").body(Full::new(Bytes::from(vec![b'x'; 1 << 18]))).unwrap();
    let streamed = client.send_streaming(upload).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(&streamed.to_bytes()[..], b"hello");
    let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), 300).await.unwrap();
    assert_eq!((counted.responses, counted.by_class[2]), (300, 300), "{counted:?}");
}

#[tokio::test]
async fn https_and_http2_go_through_tunnels() {
    let (certificate, key) = issued();
    let asks = "ssl_verify_client on; ssl_client_certificate cert.pem; client_max_body_size 1m;";
    let Some(server) = real::nginx_tls_http2(&certificate, &key, asks) else { return };
    let Some(clear) = real::nginx_with("http2", "client_max_body_size 1m;") else { return };
    let url = format!("https://localhost:{}", server.address.port());
    for proxy in proxies() {
        let through = format!("http://{}", proxy.address);
        let set = |client: Builder| {
            client.pipes(8).proxy(&through).add_root(&certificate).client_certificate(&certificate, &key)
        };
        each_way(&set(Client::builder(&url)).build().unwrap(), Version::HTTP_2).await;
        let old = set(Client::builder(&url)).protocol(Protocol::Http1).build().unwrap();
        each_way(&old, Version::HTTP_11).await;
        let prior =
            Client::builder(&clear.url("")).protocol(Protocol::Http2).proxy(&through).build().unwrap();
        each_way(&prior, Version::HTTP_2).await;
    }
}

#[tokio::test]
async fn requests_to_http_are_forwarded() {
    let lines = "client_max_body_size 1m; location = /via { return 200 '$http_via $http_host $http_proxy_authorization'; }";
    let Some(server) = nginx_with("", lines) else { return };
    for proxy in proxies() {
        let client =
            Client::builder(&server.url("")).pipes(8).proxy(&proxy.address.to_string()).build().unwrap();
        each_way(&client, Version::HTTP_11).await;
        let hosts = Hosts::builder().each({
            let proxy = proxy.address.to_string();
            move |client| client.proxy(&proxy).no_proxy_for("localhost").connection_info()
        });
        let hosts = hosts.build().unwrap();
        let via = hosts.get(&server.url("/via")).await.unwrap();
        let connection = via.connection().unwrap();
        assert!(connection.is_proxied && connection.peer == Some(proxy.address), "{connection:?}");
        let said = String::from_utf8_lossy(via.body()).into_owned();
        assert!(said.starts_with("1.1 ") && said.contains(&server.address.to_string()), "{said}");
        let direct = hosts.get(&format!("http://localhost:{}/via", server.address.port())).await.unwrap();
        assert!(direct.body().starts_with(b" localhost"), "{direct:?}");
    }
}

/// nginx refuses a body that is too long before it has read it, and the upload has no end.
#[tokio::test]
async fn an_early_refusal_ends_an_upload() {
    let (certificate, key) = issued();
    let asks = "ssl_verify_client on; ssl_client_certificate cert.pem; client_max_body_size 1k;
                location /up { proxy_pass http://127.0.0.1:1; }";
    let Some(server) = real::nginx_tls_http2(&certificate, &key, asks) else { return };
    let Some(proxy) = squid(OPEN) else { return };
    let url = format!("https://localhost:{}", server.address.port());
    let at = proxy.address.to_string();
    for protocol in [Protocol::Http2, Protocol::Http1] {
        for through in ["", &at] {
            let client = Client::builder(&url).add_root(&certificate).client_certificate(&certificate, &key);
            let client = client.protocol(protocol).proxy(through).build().unwrap();
            for _ in 0..20 {
                let endless = futures_util::stream::repeat_with(|| {
                    Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from_static(
                        &[b'x'; 5000],
                    )))
                });
                let upload = Request::put("/up").body(http_body_util::StreamBody::new(endless)).unwrap();
                let response = client.send_streaming(upload).await.unwrap();
                assert_eq!(response.status(), 413, "{protocol:?} {through}");
                response.into_body().collect().await.unwrap();
                assert_eq!(client.get("/").await.unwrap().body(), "hello");
            }
        }
    }
}

/// The user of a proxy, in tunnels and in what it forwards.
#[tokio::test]
async fn a_proxy_that_wants_a_user() {
    let (certificate, key) = issued();
    let Some(server) = nginx_tls(&certificate, &key, "") else { return };
    let Some(plain) = nginx_with("", "location = /a { return 200 '[$http_proxy_authorization]'; }") else {
        return;
    };
    let Some(proxy) = tinyproxy(Some(("ada", "se-cret"))) else { return };
    let https = format!("https://localhost:{}", server.address.port());
    let at = |user: &str| format!("http://{user}{}", proxy.address);
    for (user, said) in [("", "it wants a user and a password"), ("ada:x@", "does not accept this user")] {
        let client = Client::builder(&https).add_root(&certificate).proxy(&at(user)).build().unwrap();
        let error = client.get("/").await.unwrap_err();
        let Error::Proxy { status: Some(status), .. } = &error else { panic!("{error:?}") };
        assert!([401, 407].contains(&status.as_u16()) && error.is_unsent(), "{error}");
        assert_eq!((error.kind(), error.address()), (ErrorKind::Proxy, Some(proxy.address)));
        assert!(error.to_string().contains(said) && !format!("{error:?}").contains("secret"), "{error}");
        assert_eq!(client.statistics().connect_failures, 1, "another attempt would end alike");
        let forwarded = Client::builder(&plain.url("")).proxy(&at(user)).build().unwrap();
        assert!([401, 407].contains(&forwarded.get("/a").await.unwrap().status().as_u16()));
    }
    let known = at("ada:se%2Dcret@");
    let client = Client::builder(&https).add_root(&certificate).proxy(&known).build().unwrap();
    assert_eq!(client.get("/").await.unwrap().body(), "hello");
    assert!(!format!("{:?}", Client::builder(&https).proxy(&known)).contains("cret"));
    let forwarded = Client::builder(&plain.url("")).proxy(&known).build().unwrap();
    assert_eq!(forwarded.get("/a").await.unwrap().body(), "[]", "it is for the proxy alone");
    let counted = forwarded.send_counted(Template::get("/a").unwrap(), 50).await.unwrap();
    assert_eq!(counted.by_class[2], 50, "{counted:?}");
}

#[tokio::test]
async fn refusals_name_the_proxy_or_the_server() {
    let (certificate, key) = issued();
    let Some(server) = nginx_tls(&certificate, &key, "") else { return };
    let https = format!("https://localhost:{}", server.address.port());
    let through =
        |proxy: &str| Client::builder(&https).proxy(proxy).connect_timeout(Duration::from_millis(300));
    let call = async |builder: Builder| builder.build().unwrap().get("/").await.unwrap_err();
    let Some(closed) = squid("") else { return };
    let error = call(through(&closed.address.to_string())).await;
    assert!(matches!(&error, Error::Proxy { status: Some(status), .. } if *status == 403), "{error:?}");
    let Some(open) = squid(OPEN) else { return };
    let error = call(through(&open.address.to_string())).await;
    assert_eq!(error.kind(), ErrorKind::Connect, "the server's certificate is unknown: {error}");
    let nobody = real::free_port();
    let gone =
        Client::builder(&format!("https://{nobody}")).proxy(&open.address.to_string()).build().unwrap();
    let error = gone.get("/").await.unwrap_err();
    assert!(matches!(&error, Error::Proxy { status: Some(status), .. } if *status == 503), "{error:?}");
    let error = call(through(&nobody.to_string())).await;
    let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<std::io::Error>());
    assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused), "{error:?}");
    assert!(error.kind() == ErrorKind::Proxy && error.to_string().contains("the proxy http://"), "{error}");
    let plain = Client::builder("http://localhost").proxy(&nobody.to_string()).build().unwrap();
    assert_eq!(plain.get("/").await.unwrap_err().kind(), ErrorKind::Proxy);
    let error = call(through("http://no-such-name.invalid:1")).await;
    assert!(
        error.kind() == ErrorKind::Proxy && error.to_string().contains("no-such-name.invalid"),
        "{error}"
    );
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = call(through(&silent.local_addr().unwrap().to_string())).await;
    assert!(error.kind() == ErrorKind::Proxy && error.to_string().contains("did not answer"), "{error}");
    let cuts = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = cuts.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in cuts.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 Conn");
        }
    });
    let error = call(through(&at)).await;
    assert!(
        error.kind() == ErrorKind::Proxy && error.to_string().contains("closed the connection"),
        "{error}"
    );
}

#[test]
fn settings_that_lead_nowhere_are_refused() {
    for (builder, said) in [
        (Client::builder("http://a").proxy("https://p"), "TLS with the proxy itself"),
        (Client::builder("http://a").proxy("socks5://p"), "an HTTP proxy is"),
        (Client::builder("http://a").proxy("http://u:pass@"), "no host and port"),
        (Client::builder("http://a").proxy("p").no_proxy_for("10.0.0.0/33"), "no network"),
        (Client::builder("http://a").proxy("p").resolve([real::free_port()]), "leave out one"),
        (Client::builder("http://a").proxy("p").unix_socket("/s"), "leave out one"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains("pass"), "{error}");
    }
}

/// The variables of the environment count by default. They are those of a process, so that another one calls.
#[tokio::test]
async fn the_environment_says_which_proxy() {
    if let Ok(url) = std::env::var("LINERATE_TEST_URL") {
        let said = Client::builder(&url).build().unwrap().get("/via").await.unwrap();
        let direct = Client::builder(&url).proxy("").build().unwrap().get("/via").await.unwrap();
        assert_eq!(direct.body(), "via ", "the program wants none");
        return println!("said {}", String::from_utf8_lossy(said.body()));
    }
    let Some(server) = nginx_with("", "location = /via { return 200 'via $http_via'; }") else { return };
    let Some(proxy) = squid(OPEN) else { return };
    let at = proxy.address.to_string();
    for (variables, is_used) in [
        (vec![("http_proxy", at.as_str())], true),
        (vec![("ALL_PROXY", at.as_str()), ("no_proxy", "example.org,10.0.0.0/8")], true),
        (vec![("http_proxy", at.as_str()), ("no_proxy", "127.0.0.0/8")], false),
        (vec![("HTTP_PROXY", at.as_str())], false),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "proxies::the_environment_says_which_proxy", "--nocapture"]);
        child.env("LINERATE_TEST_URL", server.url("")).envs(variables.iter().copied());
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(said.contains("said via 1.1 proxy.test"), is_used, "{variables:?}: {said}");
    }
}
