//! The keys of HTTPS.

use std::path::{Path, PathBuf};

use super::FileError;
use super::table::{Item, Table};
use crate::plan::tls::TlsVersion;

pub(super) const KEYS: &[&str] =
    &["cacert", "cert", "key", "insecure", "tls_min", "tls_max", "ciphers", "tls_resume"];

/// The TLS keys of a plan file. Relative paths start at the plan's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsKeys {
    /// `cacert`: whose certificates are believed.
    pub cacert: Option<PathBuf>,
    /// `cert`: the client's own.
    pub cert: Option<PathBuf>,
    /// `key`: its key.
    pub key: Option<PathBuf>,
    /// `insecure`: no certificate is verified.
    pub insecure: Option<bool>,
    /// `tls_min`: the oldest version.
    pub least: Option<TlsVersion>,
    /// `tls_max`: the newest version.
    pub most: Option<TlsVersion>,
    /// `ciphers`, as with the flag.
    pub ciphers: Option<String>,
    /// `tls_resume`: whether to resume sessions.
    pub resume: Option<bool>,
}

pub(super) fn read(top: &Table<'_>) -> Result<TlsKeys, FileError> {
    let file = |key: &str| {
        top.read(key, |i| {
            let name = i.text("the name of a PEM file, such as \"cert.pem\"")?;
            Ok(top.source.path.parent().unwrap_or(Path::new("")).join(name))
        })
    };
    let version =
        |key: &str| top.read(key, |i| i.choice(&[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)]));
    Ok(TlsKeys {
        cacert: file("cacert")?,
        cert: file("cert")?,
        key: file("key")?,
        insecure: top.read("insecure", Item::flag)?,
        least: version("tls_min")?,
        most: version("tls_max")?,
        ciphers: top.read("ciphers", |i| i.text("cipher suites separated by commas").map(str::to_owned))?,
        resume: top.read("tls_resume", Item::flag)?,
    })
}
