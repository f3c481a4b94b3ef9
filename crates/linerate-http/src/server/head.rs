//! The head of a request: request line and header section, checked line by line (RFC 9112 sections
//! 2 to 6).

use std::ops::Range;

use super::bytes::{decimal, is_token, is_value, trim};
use super::fault::RequestFault;
use super::limits::{self, RequestLimits};
use super::target::{self, Form};

/// A request method (RFC 9110 section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Any other token; [`RequestHead::method_name`] has it.
    Other,
}

impl Method {
    fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// The version of a request. A higher minor version counts as 1.1 (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2: the head was translated from the fields of a stream ([`HeadReader::for_http2`]).
    ///
    /// [`HeadReader::for_http2`]: super::HeadReader::for_http2
    Http2,
    /// HTTP/3: translated in the same way.
    Http3,
}

impl Version {
    /// The name on the wire and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}

/// How a request's body ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// A body of this many bytes.
    Length(u64),
    /// Chunked.
    Chunked,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: u32,
    name_end: u32,
    value: u32,
    value_end: u32,
}

/// A complete, validated head. Owns its bytes; everything it returns is a slice of them.
#[derive(Clone, Debug)]
pub struct RequestHead {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    method: Method,
    method_end: usize,
    target: Range<usize>,
    /// Range of the path; empty if the target has none.
    path: Range<usize>,
    form: Form,
    version: Version,
    framing: Framing,
    keep_alive: bool,
    expects_continue: bool,
    upgrade: bool,
}

impl Default for RequestHead {
    fn default() -> Self {
        RequestHead {
            bytes: Vec::new(),
            fields: Vec::new(),
            method: Method::Other,
            method_end: 0,
            target: 0..0,
            path: 0..0,
            form: Form::Origin,
            version: Version::Http11,
            framing: Framing::None,
            keep_alive: false,
            expects_continue: false,
            upgrade: false,
        }
    }
}

impl RequestHead {
    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method's name as it was sent.
    pub fn method_name(&self) -> &str {
        text(&self.bytes[..self.method_end])
    }

    /// The request target as it was sent.
    pub fn target(&self) -> &str {
        text(&self.bytes[self.target.clone()])
    }

    /// The form of the target.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The path, still percent-encoded, without the query. `*` and an authority are returned
    /// unchanged.
    pub fn path(&self) -> &str {
        // `http://host` and `http://host?q` mean the path `/` (RFC 9112 section 3.2.1).
        if self.path.is_empty() { "/" } else { text(&self.bytes[self.path.clone()]) }
    }

    /// The part after the `?`, if there is one.
    pub fn query(&self) -> Option<&str> {
        let behind = &self.bytes[self.path.end..self.target.end];
        behind.split_first().map(|(_, query)| text(query))
    }

    /// The requested host and port: from an absolute target, otherwise from Host (RFC 9112 section
    /// 3.3). `None` only in HTTP/1.0.
    pub fn host(&self) -> Option<&str> {
        match self.form {
            Form::Absolute { authority, path } => {
                Some(&self.target()[usize::from(authority)..usize::from(path)])
            }
            Form::Authority => Some(self.target()),
            Form::Origin | Form::Asterisk => self.field("host").map(text),
        }
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How the body is framed.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client wants to keep the connection (RFC 9112 section 9.3).
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether it has `Connection: upgrade`, and is not HTTP/1.0.
    pub fn upgrade(&self) -> bool {
        self.upgrade
    }

    /// The fields in order; values are trimmed.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> + Clone {
        self.fields.iter().map(|f| {
            let name = &self.bytes[f.name as usize..f.name_end as usize];
            (text(name), &self.bytes[f.value as usize..f.value_end as usize])
        })
    }

    /// The first field of that name, ignoring case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first field of that name, if it is text.
    pub fn field_text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// The head's bytes, from the method to the empty line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        let RequestHead { bytes, fields, .. } = std::mem::take(self);
        (self.bytes, self.fields) = (bytes, fields);
        self.bytes.clear();
        self.fields.clear();
    }

    /// Parses a head that begins at `bytes[0]` (empty lines before it are already skipped). `None`:
    /// incomplete. The verdict depends on the bytes alone, never on how they were cut.
    /// `translated`: from HTTP/2 or HTTP/3, and only such heads may say so.
    pub(super) fn parse(
        &mut self,
        bytes: &[u8],
        limits: &RequestLimits,
        translated: bool,
    ) -> Result<Option<usize>, RequestFault> {
        self.clear();
        let Some(mut at) = line_end(bytes, 0, limits.request_line, || {
            let begin = &bytes[..limits.request_line.min(limits::METHOD + 1)];
            if memchr::memchr(b' ', begin).is_none() {
                RequestFault::Method
            } else {
                RequestFault::TargetTooLong
            }
        })?
        else {
            return Ok(None);
        };
        self.request_line(line(&bytes[..at])?, translated)?;
        let mut seen = FramingValues::default();
        loop {
            let Some(end) = line_end(bytes, at, limits.head, || RequestFault::HeadTooLarge)? else {
                return Ok(None);
            };
            let content = line(&bytes[at..end])?;
            if content.is_empty() {
                self.bytes.extend_from_slice(&bytes[..end]);
                self.conclude(&seen)?;
                return Ok(Some(end));
            }
            if self.fields.len() == limits.fields {
                return Err(RequestFault::HeadTooLarge);
            }
            let (name, value) = field_line(content)?;
            let name_end = at + name.len();
            let value_at = if value.is_empty() { name_end + 1 } else { offset(bytes, value) };
            self.fields.push(Field {
                name: at as u32,
                name_end: name_end as u32,
                value: value_at as u32,
                value_end: (value_at + value.len()) as u32,
            });
            seen.field(name, value)?;
            at = end;
        }
    }

    fn request_line(&mut self, line: &[u8], translated: bool) -> Result<(), RequestFault> {
        let method_end = memchr::memchr(b' ', line).ok_or(RequestFault::RequestLine)?;
        let name = &line[..method_end];
        if !is_token(name) || name.len() > limits::METHOD {
            return Err(RequestFault::Method);
        }
        let rest = &line[method_end + 1..];
        let target_len = memchr::memchr(b' ', rest).ok_or(RequestFault::RequestLine)?;
        if target_len == 0 {
            return Err(RequestFault::RequestLine);
        }
        self.version = match &rest[target_len + 1..] {
            b"HTTP/2.0" if translated => Version::Http2,
            b"HTTP/3.0" if translated => Version::Http3,
            name => version(name)?,
        };
        self.method = Method::of(name);
        self.method_end = method_end;
        self.target = method_end + 1..method_end + 1 + target_len;
        self.form = target::check(self.method, &rest[..target_len])?;
        let path = if let Form::Absolute { path, .. } = self.form { usize::from(path) } else { 0 };
        let path_len = memchr::memchr(b'?', &rest[path..target_len]).unwrap_or(target_len - path);
        self.path = self.target.start + path..self.target.start + path + path_len;
        Ok(())
    }

    /// Checks that need all fields.
    fn conclude(&mut self, seen: &FramingValues) -> Result<(), RequestFault> {
        let modern = self.version != Version::Http10;
        if !seen.host && modern {
            return Err(RequestFault::HostMissing);
        }
        self.framing = match (seen.length, seen.codings) {
            (Some(_), Some(_)) => return Err(RequestFault::BothLengths),
            (None, Some(_)) if !modern => return Err(RequestFault::TransferEncodingIn10),
            (None, Some(Codings { chunked: false, .. })) => return Err(RequestFault::TransferEncoding),
            (None, Some(Codings { unknown: true, .. })) => return Err(RequestFault::TransferCodingUnknown),
            (None, Some(_)) => Framing::Chunked,
            (Some(0) | None, None) => Framing::None,
            (Some(n), None) => Framing::Length(n),
        };
        if seen.other_expectation && modern {
            return Err(RequestFault::Expectation);
        }
        self.keep_alive = !seen.close && (modern || seen.keep_alive);
        self.expects_continue = modern && seen.expects_continue && self.framing != Framing::None;
        self.upgrade = modern && seen.upgrade;
        Ok(())
    }
}

/// The values of fields that affect framing.
#[derive(Default)]
struct FramingValues {
    host: bool,
    length: Option<u64>,
    codings: Option<Codings>,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    expects_continue: bool,
    other_expectation: bool,
}

#[derive(Clone, Copy, Default)]
struct Codings {
    chunked: bool,
    unknown: bool,
}

impl FramingValues {
    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), RequestFault> {
        // The length decides first: most fields match none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if value.eq_ignore_ascii_case(b"100-continue") {
                    self.expects_continue = true;
                } else {
                    self.other_expectation = true;
                }
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err(RequestFault::ContentLengthRepeated);
                }
                self.length = Some(decimal(value).ok_or(RequestFault::ContentLength)?);
                Ok(())
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), RequestFault> {
        if self.host {
            return Err(RequestFault::HostRepeated);
        }
        self.host = true;
        if target::is_authority(value) { Ok(()) } else { Err(RequestFault::Host) }
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(trim) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), RequestFault> {
        let mut codings = self.codings.unwrap_or_default();
        for coding in value.split(|&b| b == b',').map(trim) {
            // Nothing may follow chunked, not even an empty list element, which other servers may
            // read differently.
            if codings.chunked || coding.is_empty() {
                return Err(RequestFault::TransferEncoding);
            }
            let name = trim(coding.split(|&b| b == b';').next().unwrap_or(coding));
            if name.eq_ignore_ascii_case(b"chunked") {
                if name.len() != coding.len() {
                    return Err(RequestFault::TransferEncoding);
                }
                codings.chunked = true;
            } else if is_token(name) {
                codings.unknown = true;
            } else {
                return Err(RequestFault::TransferEncoding);
            }
        }
        self.codings = Some(codings);
        Ok(())
    }
}

/// The end (after the LF) of the line that begins at `at`, if it is within `limit` bytes of the
/// head's start.
fn line_end(
    bytes: &[u8],
    at: usize,
    limit: usize,
    too_long: impl FnOnce() -> RequestFault,
) -> Result<Option<usize>, RequestFault> {
    let visible = bytes.len().min(limit);
    match memchr::memchr(b'\n', &bytes[at.min(visible)..visible]) {
        Some(i) => Ok(Some(at + i + 1)),
        None if bytes.len() >= limit => Err(too_long()),
        None => Ok(None),
    }
}

/// A line without its CRLF.
pub(super) fn line(bytes: &[u8]) -> Result<&[u8], RequestFault> {
    match bytes {
        [content @ .., b'\r', b'\n'] => Ok(content),
        _ => Err(RequestFault::BareLf),
    }
}

/// A field line's name and value (RFC 9112 section 5).
pub(super) fn field_line(line: &[u8]) -> Result<(&[u8], &[u8]), RequestFault> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Err(RequestFault::Folding);
    }
    let colon = memchr::memchr(b':', line).ok_or(RequestFault::FieldName)?;
    let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
    if !is_token(name) {
        return Err(RequestFault::FieldName);
    }
    if !is_value(value) {
        return Err(RequestFault::FieldValue);
    }
    Ok((name, value))
}

fn version(bytes: &[u8]) -> Result<Version, RequestFault> {
    let [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] = *bytes else {
        return Err(RequestFault::Version);
    };
    match (major, minor) {
        (b'1', b'0') => Ok(Version::Http10),
        (b'1', b'1'..=b'9') => Ok(Version::Http11),
        (b'0'..=b'9', b'0'..=b'9') => Err(RequestFault::VersionNotSupported),
        _ => Err(RequestFault::Version),
    }
}

/// The offset of `part`, a non-empty slice of `whole`.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

/// The parser has checked that it is ASCII.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
