//! Certificates that tests make for themselves.
#![allow(dead_code)] // each test program uses a part

pub(crate) mod kept;

use std::path::Path;

/// A certificate in a file of its own, and its key.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
    dir: tempfile::TempDir,
}

impl Issued {
    /// Signed by itself, for one name.
    pub(crate) fn to(name: &str) -> Issued {
        Issued::with(name, |_| ())
    }

    pub(crate) fn with(name: &str, change: impl Fn(&mut rcgen::CertificateParams)) -> Issued {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        change(&mut params);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("cert.pem"), &certificate).expect("written");
        std::fs::write(dir.path().join("key.pem"), key.serialize_pem()).expect("written");
        Issued { certificate, key: key.serialize_pem(), dir }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        Path::new(self.dir.path()).join(name).display().to_string()
    }
}
