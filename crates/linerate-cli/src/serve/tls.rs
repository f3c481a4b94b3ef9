//! The certificate that a server shows: from files, or made for this run.

use linerate_load::plan::tls::PemFile;
use linerate_serve::{Address, ServerTls, TlsIdentity, TlsOptions};

use super::ServeArgs;
use crate::args::tls::pem;
use crate::fault::Fault;

/// What the flags mean; `None`: plain HTTP.
pub(super) fn of(args: &ServeArgs) -> Result<Option<ServerTls>, Fault> {
    let Some(identity) = identity(args)? else { return Ok(None) };
    let mut options = TlsOptions::new(identity);
    options.alpn = vec![b"http/1.1".to_vec()];
    if let Some(path) = &args.tls_client_ca {
        let file = pem("--tls-client-ca", path)?;
        options.client_roots = Some((file.path, file.text.into_bytes()));
    }
    options.build().map(Some).map_err(|e| Fault::input(e.to_string()))
}

/// Who the server is.
pub(super) fn identity(args: &ServeArgs) -> Result<Option<TlsIdentity>, Fault> {
    let made = args.tls_self_signed == Some(true);
    let (chain, key) = match (&args.tls_cert, &args.tls_key) {
        (Some(_), _) if made => {
            return Err(Fault::input("--tls-self-signed makes a certificate, and --tls-cert names one")
                .hint("leave out one of the two"));
        }
        (Some(cert), Some(key)) => (pem("--tls-cert", cert)?, pem("--tls-key", key)?),
        (Some(_), None) => {
            return Err(Fault::input("--tls-cert needs its private key").hint("name it by --tls-key"));
        }
        (None, Some(_)) => {
            return Err(
                Fault::input("--tls-key needs the certificate it is for").hint("name it by --tls-cert")
            );
        }
        (None, None) if made => self_signed(args)?,
        (None, None) if args.tls_client_ca.is_some() => {
            return Err(Fault::input("--tls-client-ca needs a certificate of the server's own")
                .hint("name it by --tls-cert and --tls-key"));
        }
        (None, None) => return Ok(None),
    };
    let chain = (chain.path.as_str(), chain.text.as_bytes());
    let identity = TlsIdentity::from_pem(chain, (&key.path, key.text.as_bytes()));
    identity.map(Some).map_err(|e| Fault::input(e.to_string()))
}

/// For localhost and the addresses that are listened on.
fn self_signed(args: &ServeArgs) -> Result<(PemFile, PemFile), Fault> {
    let mut names = vec!["localhost".to_owned()];
    names.extend(args.addresses().iter().filter_map(Address::tcp).map(|at| at.ip().to_string()));
    let failed = |e: rcgen::Error| Fault::ours(format!("no certificate can be made: {e}"));
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let mut params = rcgen::CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
    let certificate = params.self_signed(&key).map_err(failed)?;
    let file = |text| PemFile { path: "--tls-self-signed".to_owned(), text };
    Ok((file(certificate.pem()), file(key.serialize_pem())))
}
