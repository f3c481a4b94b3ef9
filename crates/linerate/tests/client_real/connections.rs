//! Connections to nginx, as both ends see them, and several hosts by TLS.

use std::fs;

use http::Version;
use linerate::client::{Builder, Client, ConnectionInfo, ErrorKind, Hosts, Protocol, ResponseExt as _};

use crate::real::{self, Server};

/// What nginx says of a connection.
const SAYS: &str = "location = /info { return 200 '$remote_addr:$remote_port $server_addr:$server_port $server_protocol \
                    $connection_requests $ssl_protocol $ssl_cipher $ssl_session_reused'; }";

fn agree(connection: &ConnectionInfo, said: &[u8]) {
    let said = String::from_utf8_lossy(said).into_owned();
    let words: Vec<&str> = said.split(' ').collect();
    let is = |address: Option<std::net::SocketAddr>, said: &str| address.unwrap().to_string() == said;
    assert!(is(connection.local, words[0]) && is(connection.peer, words[1]), "{connection:?}: {said}");
    assert_eq!(format!("{:?}", connection.protocol), words[2], "{connection:?}");
    assert_eq!(connection.is_reused, words[3] != "1", "{connection:?}: {said}");
    match &connection.tls {
        None => assert_eq!(words.get(4), Some(&""), "{said}"),
        Some(tls) => {
            assert_eq!(tls.version, words[4], "{said}");
            // Of TLS 1.2, OpenSSL has names of its own.
            assert!(tls.version == "TLSv1.2" || tls.cipher == words[5], "{tls:?}: {said}");
            assert_eq!(tls.is_resumed, words[6] == "r", "{tls:?}: {said}");
        }
    }
}

/// Eight calls, one after the other, whole and streamed.
async fn connections(client: &Client) -> Vec<ConnectionInfo> {
    let mut all = Vec::new();
    for n in 0..8 {
        let connection = if n % 2 == 0 {
            let response = client.get("/info").await.unwrap();
            agree(response.connection().unwrap(), response.body());
            response.connection().cloned()
        } else {
            let response = client.get_streaming("/info").await.unwrap().error_for_status().unwrap();
            let connection = response.connection().cloned();
            let mut said = Vec::new();
            let mut body = response.into_body();
            while let Some(piece) = body.next().await.transpose().unwrap() {
                said.extend_from_slice(&piece);
            }
            agree(connection.as_ref().unwrap(), &said);
            connection
        };
        all.push(connection.unwrap());
    }
    all
}

#[tokio::test]
async fn a_response_tells_which_connection_it_came_on() {
    let (certificate, key) = crate::issued();
    let url = |server: &Server| format!("https://localhost:{}", server.address.port());
    let set = |url: &str| Client::builder(url).add_root(&certificate).only_added_roots().connection_info();
    let Some(server) = real::nginx_tls_http2(&certificate, &key, &format!("keepalive_requests 3; {SAYS}"))
    else {
        return;
    };
    let all = connections(&set(&url(&server)).build().unwrap()).await;
    assert!(all.iter().all(|c| c.protocol == Version::HTTP_2 && !c.is_proxied), "{all:?}");
    let numbers: Vec<u64> = all.iter().map(|c| c.number).collect();
    assert!(numbers[0] == 0 && numbers[7] >= 2 && numbers.is_sorted(), "{numbers:?}");
    let is_resumed = |c: &ConnectionInfo| c.tls.as_ref().unwrap().is_resumed;
    assert!(!is_resumed(&all[0]) && is_resumed(&all[7]), "{all:?}");
    let old = set(&url(&server)).protocol(Protocol::Http1).build().unwrap();
    assert!(connections(&old).await.iter().all(|c| c.protocol == Version::HTTP_11));
    let lines = format!("ssl_protocols TLSv1.2; {SAYS}");
    let server = real::nginx_tls(&certificate, &key, &lines).unwrap();
    assert_eq!(connections(&set(&url(&server)).build().unwrap()).await.len(), 8);
    let clear = real::nginx_with("", SAYS).unwrap();
    let builder = Client::builder(&clear.url(""));
    assert!(builder.clone().build().unwrap().get("/info").await.unwrap().connection().is_none());
    let all = connections(&builder.connection_info().build().unwrap()).await;
    assert!(all.iter().all(|c| c.tls.is_none() && c.number == 0), "{all:?}");
}

/// An authority of tests, and certificates by it.
struct Authority(rcgen::Issuer<'static, rcgen::KeyPair>, String);

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority(rcgen::Issuer::new(params, key), pem)
    }

    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// One nginx with two names, each with its certificate; the second one asks for the client's.
#[tokio::test]
async fn hosts_with_certificates_of_their_own() {
    let (authority, folder) = (Authority::new(), real::folder());
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (one, two, me) = (authority.issue("one.test"), authority.issue("two.test"), authority.issue("me"));
    let lines = format!(
        "server_name one.test; location = /there {{ return 307 https://two.test:$server_port/here; }}
         location = /who {{ return 200 'one $ssl_server_name'; }} location / {{ return 200 hello; }} }}
         server {{ listen {{at}} ssl http2; server_name two.test; ssl_certificate {}; ssl_certificate_key {};
         ssl_verify_client on; ssl_client_certificate {};
         location = /here {{ return 200 'two $ssl_client_s_dn $http_authorization'; }}",
        file("two.pem", &two.0),
        file("two.key", &two.1),
        file("ca.pem", &authority.1)
    );
    let Some(server) = real::nginx_tls_http2(&one.0, &one.1, &lines) else { return };
    let port = server.address.port();
    let hosts = |each: fn(Builder, &(String, String)) -> Builder| {
        let (root, me) = (authority.1.clone(), me.clone());
        let set =
            move |client: Builder| each(client.add_root(&root).only_added_roots().connection_info(), &me);
        let names = ["one.test", "two.test", "three.test"];
        let builder = names.iter().fold(Hosts::builder(), |b, name| b.resolve(name, [server.address]));
        builder.each(set).build().unwrap()
    };
    let known = hosts(|client, (chain, key)| client.client_certificate(chain, key));
    let response = known.get(&format!("https://one.test:{port}/who")).await.unwrap();
    assert_eq!((response.body().as_ref(), response.version()), (&b"one one.test"[..], Version::HTTP_2));
    let request =
        http::Request::get(format!("https://one.test:{port}/there")).header("authorization", "secret");
    let response = known.send(request.body(Default::default()).unwrap()).await.unwrap();
    assert_eq!(
        response.body(),
        "two CN=me ",
        "it proves who we are, and the secret of the other stays there"
    );
    assert_eq!(response.uri().unwrap().to_string(), format!("https://two.test:{port}/here"));
    assert!(!response.connection().unwrap().is_reused && known.open_origins() == 2);
    let error = known.get(&format!("https://three.test:{port}/")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Connect && error.to_string().contains("three.test"), "{error}");
    let unknown = hosts(|client, _| client);
    assert_eq!(unknown.get(&format!("https://two.test:{port}/here")).await.unwrap().status(), 400);
    let untrusting = Hosts::builder().resolve("one.test", [server.address]).build().unwrap();
    let error = untrusting.get(&format!("https://one.test:{port}/who")).await.unwrap_err();
    assert!(error.is_unsent() && error.to_string().contains("TLS"), "{error}");
}
