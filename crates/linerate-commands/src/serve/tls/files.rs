//! Certificates, keys and OCSP responses in files, and a certificate that is made.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_load::plan::tls::PemFile;
use linerate_net::InputFile;
use linerate_serve::{Address, ServerTls, TlsIdentity, TlsOptions};

use crate::args::tls::pem;
use crate::fault::{CommandFault, said};

/// Largest OCSP response. Reason: they have some kilobytes.
const OCSP_BYTES: u64 = 64 << 10;

/// A certificate, its key and what its issuer says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    pub(super) ocsp: Option<PathBuf>,
}

impl Files {
    pub(super) fn read(&self) -> Result<CertificateFile, CommandFault> {
        let (chain, key) = (pem("--tls-cert", &self.cert)?, pem("--tls-key", &self.key)?);
        let identity = identity(&chain, &key)?;
        let identity = match &self.ocsp {
            Some(path) => identity.with_ocsp(ocsp(path)?),
            None => identity,
        };
        Ok(CertificateFile { place: chain.path, identity })
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key].into_iter().chain(&self.ocsp).map(PathBuf::as_path)
    }
}

fn identity(chain: &PemFile, key: &PemFile) -> Result<TlsIdentity, CommandFault> {
    let chain = (chain.path.as_str(), chain.text.as_bytes());
    TlsIdentity::from_pem(chain, (&key.path, key.text.as_bytes())).map_err(CommandFault::input)
}

/// An OCSP response: DER, which begins with a sequence (RFC 6960 section 4.2.1).
fn ocsp(path: &Path) -> Result<Vec<u8>, CommandFault> {
    let bad = |why: &str| CommandFault::input(format!("--tls-ocsp {}: {why}", path.display()));
    let mut response = Vec::new();
    let file = InputFile::open(path).map_err(|e| bad(&said(&e)))?;
    file.take(OCSP_BYTES + 1).read_to_end(&mut response).map_err(|e| bad(&said(&e)))?;
    let hint = "openssl ocsp -respout FILE writes one";
    match sequence_bytes(&response) {
        Some(whole) if whole == response.len() && whole as u64 <= OCSP_BYTES => Ok(response),
        Some(whole) if whole > response.len() && whole as u64 <= OCSP_BYTES => {
            Err(bad(&format!("it ends after {} of {whole} bytes", response.len())).hint(hint))
        }
        _ => Err(bad("it is no OCSP response in DER").hint(hint)),
    }
}

/// Bytes of the sequence that `der` begins with, its header included (X.690 section 8.1.3).
fn sequence_bytes(der: &[u8]) -> Option<usize> {
    let [0x30, first, rest @ ..] = der else { return None };
    let (length, header) = match *first {
        short @ ..0x80 => (usize::from(short), 2),
        // The indefinite form is BER's.
        0x80 => return None,
        long @ 0x81..=0x84 => {
            let count = usize::from(long - 0x80);
            let digits = rest.get(..count)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), 2 + count)
        }
        _ => return None,
    };
    Some(header + length)
}

/// A certificate and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct CertificateFile {
    place: String,
    pub(super) identity: TlsIdentity,
}

/// Certificates and keys read for the addresses of one place.
#[derive(Clone, Debug)]
pub(super) struct Material {
    pub(super) usual: CertificateFile,
    pub(super) named: Vec<(String, CertificateFile)>,
    pub(super) client_roots: Option<PemFile>,
    pub(super) no_http2: bool,
}

impl Material {
    pub(super) fn identities(&self) -> Vec<(String, TlsIdentity)> {
        self.named.iter().map(|(name, named)| (name.clone(), named.identity.clone())).collect()
    }

    pub(super) fn build(&self) -> Result<ServerTls, CommandFault> {
        let mut options = TlsOptions::new(self.usual.identity.clone());
        options.named = self.identities();
        // `curl -0` offers the last one alone.
        let known: &[&[u8]] = &[b"h2", b"http/1.1", b"http/1.0"];
        options.alpn = known[usize::from(self.no_http2)..].iter().map(|name| name.to_vec()).collect();
        options.client_roots = self.client_roots.clone().map(|file| (file.path, file.text.into_bytes()));
        options.build().map_err(CommandFault::input)
    }

    /// Certificates that have expired, are not valid yet or end soon.
    pub(super) fn warnings(&self) -> Vec<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let all = std::iter::once(&self.usual).chain(self.named.iter().map(|(_, named)| named));
        let trouble = |named: &CertificateFile| {
            let trouble = named.identity.validity()?.trouble(now)?;
            Some(format!("warning: the certificate in {} {trouble}", named.place))
        };
        all.filter_map(trouble).collect()
    }
}

/// For localhost and the addresses that are listened on.
pub(super) fn self_signed(addresses: &[Address]) -> Result<CertificateFile, CommandFault> {
    let mut names = vec!["localhost".to_owned()];
    names.extend(addresses.iter().filter_map(Address::tcp).map(|at| at.ip().to_string()));
    let failed = |e: rcgen::Error| CommandFault::ours(format!("no certificate can be made: {e}"));
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let mut params = rcgen::CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
    let certificate = params.self_signed(&key).map_err(failed)?;
    let file = |text| PemFile { path: "--tls-self-signed".to_owned(), text };
    let identity = identity(&file(certificate.pem()), &file(key.serialize_pem()))?;
    Ok(CertificateFile { place: "--tls-self-signed".to_owned(), identity })
}
