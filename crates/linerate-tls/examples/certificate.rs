//! Says whether a certificate and a key fit together, and until when the certificate is valid:
//! `cargo run -p linerate-tls --example certificate -- cert.pem key.pem`.

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_tls::{Identity, ServerOptions};

/// What speaks against serving with this certificate now, if anything.
fn trouble(certificate: &[u8], key: &[u8]) -> Result<Option<String>, Box<dyn Error>> {
    let identity = Identity::from_pem(("certificate", certificate), ("key", key))?;
    let validity = identity.validity();
    ServerOptions::new(identity).build()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(validity.and_then(|v| v.trouble(i64::try_from(now).ok()?)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [certificate, key] = args.as_slice() else { return Err("usage: certificate CERT KEY".into()) };
    match trouble(&std::fs::read(certificate)?, &std::fs::read(key)?)? {
        Some(why) => println!("{why}"),
        None => println!("good"),
    }
    Ok(())
}

#[test]
fn it_runs() {
    let made = |name: &str| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    };
    let ((certificate, key), (_, other)) = (made("localhost"), made("localhost"));
    let said = trouble(certificate.as_bytes(), key.as_bytes());
    assert_eq!(said.expect("they fit"), None);
    assert!(trouble(certificate.as_bytes(), other.as_bytes()).is_err());
}
