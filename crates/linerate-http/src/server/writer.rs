//! Writes responses: head, chunks, trailers (RFC 9110 section 6, RFC 9112 sections 6, 7 and 9).

use super::bytes::{is_token, is_value, push_decimal, push_hex, trim};
use super::date::HttpDate;

/// How the body of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFraming {
    /// Content-Length.
    Length(u64),
    /// Chunks; never for an HTTP/1.0 client.
    Chunked,
    /// Closing the connection ends it (HTTP/1.0 and unknown length).
    UntilClose,
    /// No body, and no field that says so: 1xx and 204 (RFC 9110 section 8.6).
    Absent,
}

/// The content of the `Connection` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Absent: HTTP/1.1 keeps the connection.
    Implied,
    /// `keep-alive`, which an HTTP/1.0 client needs if it asked to stay open.
    KeepAlive,
    /// `close`.
    Close,
    /// `upgrade`, which belongs to an `Upgrade` field (RFC 9110 section 7.8).
    Upgrade,
}

/// Checked fields of a response: no value that a handler adds can end its line and begin another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedFields {
    lines: Vec<u8>,
}

/// Why a field was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadField {
    /// The name is not a token (RFC 9110 section 5.6.2).
    #[error("the field name is not a token")]
    Name,
    /// The value has a control character (RFC 9110 section 5.5).
    #[error("the field value has a control character")]
    Value,
    /// Only the server itself may announce framing and persistence.
    #[error("this field is written by the server itself")]
    Reserved,
}

/// Bytes reserved at a time. Reason: the size of one or two fields, and what an allocation costs
/// anyway.
const LINES_RESERVED: usize = 96;

impl CheckedFields {
    /// An empty list.
    pub const fn new() -> CheckedFields {
        CheckedFields { lines: Vec::new() }
    }

    /// An empty list in a reused buffer.
    pub fn in_buffer(mut buffer: Vec<u8>) -> CheckedFields {
        buffer.clear();
        CheckedFields { lines: buffer }
    }

    /// The buffer, for [`CheckedFields::in_buffer`].
    pub fn into_buffer(self) -> Vec<u8> {
        self.lines
    }

    /// Adds a field. Existing fields of the same name stay.
    ///
    /// # Errors
    /// [`BadField`] if it would break the message, or contradict its framing.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), BadField> {
        if !is_token(name.as_bytes()) {
            return Err(BadField::Name);
        }
        self.add_token(name, trim(value.as_ref()))
    }

    /// As [`CheckedFields::add`], for a name that is a token, such as a `HeaderName` of the crate `http`,
    /// and a trimmed value. Of the name, it only checks that it cannot end its line.
    ///
    /// # Errors
    /// As [`CheckedFields::add`].
    pub fn add_token(&mut self, name: &str, value: &[u8]) -> Result<(), BadField> {
        const RESERVED: [&str; 5] =
            ["content-length", "transfer-encoding", "connection", "date", "keep-alive"];
        if !is_value(name.as_bytes()) {
            return Err(BadField::Name);
        }
        if !is_value(value) {
            return Err(BadField::Value);
        }
        if RESERVED.iter().any(|r| name.eq_ignore_ascii_case(r)) {
            return Err(BadField::Reserved);
        }
        // Reserves room for this field and another: most responses have one or two.
        let line = name.len() + value.len() + 4;
        if self.lines.capacity() - self.lines.len() < line {
            self.lines.reserve(line.max(LINES_RESERVED));
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
        Ok(())
    }

    /// Removes all fields of that name.
    pub fn remove(&mut self, name: &str) {
        if self.has(name) {
            let lines = std::mem::take(&mut self.lines);
            for line in lines.split_inclusive(|&b| b == b'\n') {
                let named = memchr::memchr(b':', line).map(|colon| &line[..colon]);
                if !named.is_some_and(|n| n.eq_ignore_ascii_case(name.as_bytes())) {
                    self.lines.extend_from_slice(line);
                }
            }
        }
    }

    /// Whether there is a field of that name.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split_inclusive(|&b| b == b'\n').filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], &line[colon + 2..line.len() - 2]))
        })
    }

    /// The lines as sent, with CRLF.
    pub fn as_lines(&self) -> &[u8] {
        &self.lines
    }
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub struct AnswerHead<'a> {
    /// 101, or 200 to 599 ([`write_interim`] sends the others below 200).
    pub status: u16,
    /// The `Connection` field.
    pub persistence: Persistence,
    /// How the body ends.
    pub framing: AnswerFraming,
    /// `Content-Type`, if it is not among the fields.
    pub content_type: Option<&'a str>,
    /// More fields.
    pub fields: &'a CheckedFields,
}

impl AnswerHead<'_> {
    /// Appends status line, fields and the empty line.
    pub fn write(&self, out: &mut Vec<u8>, date: &HttpDate) {
        push_status_line(out, self.status);
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date.as_bytes());
        if let Some(kind) = self.content_type {
            out.extend_from_slice(b"\r\ncontent-type: ");
            out.extend_from_slice(kind.as_bytes());
        }
        match self.framing {
            AnswerFraming::Length(n) => {
                out.extend_from_slice(b"\r\ncontent-length: ");
                push_decimal(out, n);
            }
            AnswerFraming::Chunked => out.extend_from_slice(b"\r\ntransfer-encoding: chunked"),
            AnswerFraming::UntilClose | AnswerFraming::Absent => {}
        }
        match self.persistence {
            Persistence::Implied => {}
            Persistence::KeepAlive => out.extend_from_slice(b"\r\nconnection: keep-alive"),
            Persistence::Close => out.extend_from_slice(b"\r\nconnection: close"),
            Persistence::Upgrade => out.extend_from_slice(b"\r\nconnection: upgrade"),
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.fields.lines);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends an interim response (RFC 9110 section 15.2), such as `100 Continue`; never for an
/// HTTP/1.0 client.
pub fn write_interim(out: &mut Vec<u8>, status: u16) {
    push_status_line(out, status);
    out.extend_from_slice(b"\r\n");
}

/// Appends a chunk; nothing if `data` is empty, because an empty chunk would end the body.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    push_hex(out, data.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailers.
pub fn write_last_chunk(out: &mut Vec<u8>, trailers: &CheckedFields) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(&trailers.lines);
    out.extend_from_slice(b"\r\n");
}

fn push_status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(status.clamp(100, 999)));
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The usual reason phrase of a status; empty for those without one.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head() {
        let mut fields = CheckedFields::new();
        fields.add("X-A", " b ").unwrap();
        let mut out = Vec::new();
        let head = AnswerHead {
            status: 404,
            persistence: Persistence::Close,
            framing: AnswerFraming::Length(3),
            content_type: Some("text/plain"),
            fields: &fields,
        };
        head.write(&mut out, &HttpDate::from_unix(784_111_777));
        let expected = "HTTP/1.1 404 Not Found\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
            content-type: text/plain\r\ncontent-length: 3\r\nconnection: close\r\nX-A: b\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn no_field_can_split_an_answer() {
        let mut fields = CheckedFields::new();
        assert_eq!(fields.add("a", "b\r\nc: d"), Err(BadField::Value));
        assert_eq!(fields.add("a", "b\0"), Err(BadField::Value));
        assert_eq!(fields.add("a: b\r\nc", "d"), Err(BadField::Name));
        assert_eq!(fields.add("", "d"), Err(BadField::Name));
        assert_eq!(fields.add("Content-Length", "5"), Err(BadField::Reserved));
        assert_eq!(fields.add("Transfer-Encoding", "chunked"), Err(BadField::Reserved));
        assert_eq!(fields.as_lines(), b"");
        fields.add("empty", "").unwrap();
        fields.add("Set-Cookie", "a=b:c").unwrap();
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(all, [(&b"empty"[..], &b""[..]), (b"Set-Cookie", b"a=b:c")]);
        assert!(fields.has("set-cookie") && !fields.has("cookie"));
        fields.add("SET-COOKIE", "c").unwrap();
        fields.remove("cookie");
        fields.remove("set-cookie");
        assert_eq!(fields.as_lines(), b"empty: \r\n");
    }

    #[test]
    fn chunks() {
        let mut out = Vec::new();
        write_chunk(&mut out, b"");
        write_chunk(&mut out, &[b'x'; 17]);
        let mut trailers = CheckedFields::new();
        trailers.add("sum", "1").unwrap();
        write_last_chunk(&mut out, &trailers);
        assert_eq!(out, b"11\r\nxxxxxxxxxxxxxxxxx\r\n0\r\nsum: 1\r\n\r\n");
        out.clear();
        write_interim(&mut out, 100);
        assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
    }
}
