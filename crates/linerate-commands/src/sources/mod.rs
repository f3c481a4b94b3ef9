//! Plans from what people already have: a curl command, a HAR, an OpenAPI description, an access log.
//!
//! Each source reads its input and gives a [`PlanSource`]; nothing is sent and nothing is left half-done. Text that was recorded
//! is sent as it was (its double braces are no slots); text that the user typed may hold slots.

pub(crate) mod curl;
pub(crate) mod har;
mod limits;
pub(crate) mod openapi;
pub(crate) mod replay;
mod shell;

use std::fmt;
use std::io::Read;
use std::path::Path;

use linerate_load::plan::file::{RouteKeys, TlsKeys};
use linerate_load::plan::http::Http;
pub(crate) use linerate_load::plan::route::decode_percent;
use linerate_load::plan::units::quoted;
use linerate_load::plan::{Order, Pace, Request};
use linerate_net::InputFile;

/// What a source gives to a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanSource {
    /// Where to, when the source says so: at least scheme and host.
    pub(crate) url: Option<String>,
    /// What to send: at least one.
    pub(crate) requests: Vec<Request>,
    /// Which of them comes next.
    pub(crate) order: Order,
    /// When, for a log.
    pub(crate) pace: Option<Pace>,
    /// How to get to the server, when the source says so.
    pub(crate) route: RouteKeys,
    /// How connections are spoken on, when the source says so.
    pub(crate) wire: SourceProtocol,
    /// Parts of the source that were left out or changed, for the user to read.
    pub(crate) notes: Vec<String>,
}

/// How a source wants connections to be spoken on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SourceProtocol {
    /// The version of HTTP.
    pub(crate) http: Option<Http>,
    /// TLS; of no importance in clear text.
    pub(crate) tls: TlsKeys,
    /// Addresses of this family alone; `true`: IPv6.
    pub(crate) ipv6: Option<bool>,
}

/// Why a source gives no plan: the place, what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceError(String);

impl SourceError {
    fn new(message: impl Into<String>) -> SourceError {
        SourceError(message.into())
    }

    /// About a line (and column) of a file.
    fn at(path: &Path, line: usize, column: Option<usize>, message: impl fmt::Display) -> SourceError {
        let column = column.map_or_else(String::new, |c| format!("{c}:"));
        SourceError(format!("{}:{line}:{column} {message}", path.display()))
    }

    /// About a file as a whole.
    fn file(path: &Path, message: impl fmt::Display) -> SourceError {
        SourceError(format!("{}: {message}", path.display()))
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SourceError {}

/// Opens a file for reading.
fn open(path: &Path) -> Result<InputFile, SourceError> {
    let cannot = |e: &std::io::Error| SourceError::file(path, format!("cannot be read: {}", said(e)));
    let file = InputFile::open(path).map_err(|e| cannot(&e))?;
    match file.metadata().is_dir() {
        true => Err(SourceError::file(path, "is a directory")),
        false => Ok(file),
    }
}

/// Reads a whole file of at most `most` bytes.
fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|e| SourceError::file(path, format!("cannot be read: {}", said(&e))))?;
    match bytes.len() as u64 > most {
        true => Err(SourceError::file(path, format!("is larger than {} MiB", most >> 20))),
        false => Ok(bytes),
    }
}

/// As [`read_bytes`], of UTF-8 text; a byte order mark is skipped.
fn read_text(path: &Path, most: u64) -> Result<String, SourceError> {
    let text = String::from_utf8(read_bytes(path, most)?).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        SourceError::at(path, line, None, "is not UTF-8 text")
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// An I/O error without its number.
fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Percent-encodes all but unreserved characters (RFC 3986 section 2.3).
pub(crate) fn encode_component(text: &[u8]) -> String {
    encode(text, |b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
}

/// Percent-encodes all but what `kept` allows.
fn encode(text: &[u8], kept: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text {
        match kept(*byte) {
            true => encoded.push(char::from(*byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A list for a note, shortened: `a, b, c and 17 more`.
fn listed(items: &[String]) -> String {
    let shown = items.iter().take(limits::LISTED).cloned().collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(limits::LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `1 entry`, `2 entries`.
fn count_of(n: usize, one: &str, several: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {several}") }
}

/// The origin of a URL (`http://host:port`) and the target it asks for, with slots left as they are. The error says what
/// is wrong with the URL.
fn split_url(text: &str) -> Result<(url::Url, String), String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("{} is no URL; write for example http://127.0.0.1:8080/path", quoted(text)));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(format!("{}: unknown scheme {}; known are http and https", quoted(text), quoted(scheme)));
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let origin = url::Url::parse(&format!("{scheme}://{}/", &rest[..end]))
        .map_err(|e| format!("{}: {e}", quoted(text)))?;
    let target = rest[end..].split('#').next().unwrap_or("");
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Ok((origin, linerate_load::plan::parts::encode_target(&target).into_owned()))
}

/// `http://host:port` of a URL, without a trailing slash.
fn origin_of(url: &url::Url) -> String {
    url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests;
