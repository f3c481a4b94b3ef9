//! The flags of TLS, as curl has them.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use linerate_load::plan::file::TlsKeys;
use linerate_load::plan::tls::{ClientCertificate, PemFile, TargetTls, TlsVersion, Trust};
use linerate_net::InputFile;

use crate::fault::CommandFault;
use crate::load::target::Url;

const TLS: &str = "HTTPS";

/// Largest PEM file. Reason: a bundle of all public roots has 250 kB.
const LARGEST: u64 = 4 << 20;

/// How an https URL is reached.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TlsFlags {
    /// Trust the certificates in this PEM file instead of this machine's
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub(crate) cacert: Option<PathBuf>,

    /// Client certificate for servers that ask for one: a PEM file, the chain with the client's own certificate first
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub(crate) cert: Option<PathBuf>,

    /// Private key of --cert [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = TLS)]
    pub(crate) key: Option<PathBuf>,

    /// Do not check the server's certificate: anybody can read and change what is sent
    #[arg(short = 'k', long, conflicts_with = "cacert", help_heading = TLS)]
    pub(crate) insecure: bool,

    /// Lowest TLS version [default: 1.2]
    #[arg(long, value_name = "VERSION", value_enum, help_heading = TLS)]
    pub(crate) tls_min: Option<Version>,

    /// Highest TLS version [default: 1.3]
    #[arg(long, value_name = "VERSION", value_enum, help_heading = TLS)]
    pub(crate) tls_max: Option<Version>,

    /// Cipher suites in the order of preference, separated by commas or colons: TLS_AES_128_GCM_SHA256
    #[arg(long, value_name = "LIST", help_heading = TLS)]
    pub(crate) ciphers: Option<String>,

    /// Resume TLS sessions on new connections, as browsers do [default: on]
    #[arg(long, value_name = "on|off", value_enum, help_heading = TLS)]
    pub(crate) tls_resume: Option<Switch>,
}

/// `--tls-min`, `--tls-max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Version {
    /// TLS 1.2 (RFC 5246)
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446)
    #[value(name = "1.3")]
    Tls13,
}

/// `--tls-resume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Do
    On,
    /// Do not
    Off,
}

impl From<Version> for TlsVersion {
    fn from(version: Version) -> TlsVersion {
        match version {
            Version::Tls12 => TlsVersion::Tls12,
            Version::Tls13 => TlsVersion::Tls13,
        }
    }
}

impl TlsFlags {
    /// These flags laid over what a plan file says.
    pub(crate) fn over(&self, file: TlsKeys) -> TlsFlags {
        let version = |version| match version {
            TlsVersion::Tls12 => Version::Tls12,
            TlsVersion::Tls13 => Version::Tls13,
        };
        let switch = |on| if on { Switch::On } else { Switch::Off };
        let (cert, key) = match &self.cert {
            Some(cert) => (Some(cert.clone()), self.key.clone()),
            None => (file.cert, file.key),
        };
        TlsFlags {
            // A trust setting of the command line replaces the file's contrary one.
            cacert: self.cacert.clone().or(file.cacert.filter(|_| !self.insecure)),
            insecure: self.insecure || (file.insecure == Some(true) && self.cacert.is_none()),
            cert,
            key,
            tls_min: self.tls_min.or(file.least.map(version)),
            tls_max: self.tls_max.or(file.most.map(version)),
            ciphers: self.ciphers.clone().or(file.ciphers),
            tls_resume: self.tls_resume.or(file.resume.map(switch)),
        }
    }

    /// The meaning of the flags for a URL; `None`: it is plain HTTP.
    pub(crate) fn towards(&self, url: &Url) -> Result<Option<TargetTls>, CommandFault> {
        if !url.is_https() {
            return match self.given() {
                Some(flag) => {
                    let hint = match flag {
                        "--insecure" => {
                            "write https:// or leave out -k: connections are always kept alive (ab's -k)"
                        }
                        _ => "write https:// or leave out the flag",
                    };
                    Err(CommandFault::input(format!(
                        "{flag} is about HTTPS, and the URL begins with http://"
                    ))
                    .hint(hint))
                }
                None => Ok(None),
            };
        }
        let mut tls = TargetTls::towards(url.host());
        if self.insecure {
            tls.trust = Trust::Anybody;
        } else if let Some(path) = &self.cacert {
            tls.trust = Trust::Pem(pem("--cacert", path)?);
        }
        if let Some(path) = &self.cert {
            let chain = pem("--cert", path)?;
            let key = self.key.as_ref().map_or(Ok(chain.clone()), |path| pem("--key", path))?;
            tls.identity = Some(ClientCertificate { chain, key });
        }
        tls.least = self.tls_min.map_or(tls.least, TlsVersion::from);
        tls.most = self.tls_max.map_or(tls.most, TlsVersion::from);
        if tls.least > tls.most {
            return Err(CommandFault::input("--tls-min is higher than --tls-max")
                .hint("leave one of them out, or make them equal"));
        }
        if let Some(list) = &self.ciphers {
            let names = list.split([',', ':']).map(str::trim).filter(|name| !name.is_empty());
            tls.ciphers = names.map(str::to_owned).collect();
        }
        tls.resume = self.tls_resume != Some(Switch::Off);
        Ok(Some(tls))
    }

    /// A flag that was typed.
    fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--cacert", self.cacert.is_some()),
            ("--cert", self.cert.is_some()),
            ("--insecure", self.insecure),
            ("--tls-min", self.tls_min.is_some()),
            ("--tls-max", self.tls_max.is_some()),
            ("--ciphers", self.ciphers.is_some()),
            ("--tls-resume", self.tls_resume.is_some()),
        ];
        flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }
}

/// Reads a PEM file that a flag names.
pub(crate) fn pem(flag: &str, path: &Path) -> Result<PemFile, CommandFault> {
    let place = path.display().to_string();
    let bad = |why: String| CommandFault::input(format!("{flag} {place}: {why}"));
    let mut bytes = Vec::new();
    let file = InputFile::open(path).map_err(|e| bad(e.to_string()))?;
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| bad(e.to_string()))?;
    if read as u64 > LARGEST {
        return Err(bad("it is larger than 4 MiB".to_owned()).hint("a PEM file is expected"));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        bad("a binary file, and PEM is expected".to_owned())
            .hint(format!("convert a certificate in DER: openssl x509 -inform der -in {place} -out cert.pem"))
            .hint(format!("convert PKCS #12 (.p12, .pfx): openssl pkcs12 -in {place} -nodes -out both.pem"))
    })?;
    // Editors of Windows put a byte order mark first.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok(PemFile { path: place, text })
}
