//! A certificate for "localhost", made anew for each test program, and both sides' configurations.

use std::sync::LazyLock;

use linerate_net::Profile;
use linerate_tls::{ClientOptions, Identity, Roots, ServerOptions, TlsLayer};
use rustls::pki_types::ServerName;

pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

pub(crate) static LOCALHOST: LazyLock<Pem> = LazyLock::new(|| pem("localhost"));

/// Signed by itself.
pub(crate) fn pem(name: &str) -> Pem {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).expect("a certificate");
    Pem { certificate: certificate.pem(), key: key.serialize_pem() }
}

pub(crate) fn identity(pem: &Pem) -> Identity {
    Identity::from_pem(("cert.pem", pem.certificate.as_bytes()), ("key.pem", pem.key.as_bytes()))
        .expect("fit together")
}

pub(crate) fn client_options(pem: &Pem) -> ClientOptions {
    let mut options = ClientOptions::default();
    options.roots = Roots::Pem("cert.pem".to_owned(), pem.certificate.clone().into_bytes());
    options.key_log = false;
    options
}

/// Profile 1 asks for localhost, profile 2 is localhost.
pub(crate) fn layer(client: &ClientOptions, server: &ServerOptions) -> TlsLayer {
    let mut layer = TlsLayer::new();
    let name = ServerName::try_from("localhost").expect("a name");
    assert_eq!(layer.add_client(client.build().expect("can be made"), name), CLIENT);
    assert_eq!(layer.add_server(&server.build().expect("can be made")), SERVER);
    layer
}

pub(crate) const CLIENT: Profile = Profile(1);
pub(crate) const SERVER: Profile = Profile(2);
