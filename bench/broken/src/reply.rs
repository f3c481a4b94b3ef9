//! Input and output of a script.

use std::time::Duration;

/// A whole response.
pub const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
/// A response whose body is truncated.
pub const CUT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhel";

/// A request as the script sees it.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRequest<'a> {
    /// Its number on this server, from 0.
    pub nth: u64,
    /// Its number on its connection, from 0.
    pub on_connection: u64,
    /// The connection's number on this server, from 0.
    pub connection: u64,
    /// The number of its stream; 0 by HTTP/1.1.
    pub stream: u32,
    /// Request line and fields.
    pub head: &'a str,
    /// Time since the first connection was accepted.
    pub age: Duration,
}

impl ScriptRequest<'_> {
    /// The client's own number of the request: its path is `/` and this number.
    pub fn number(&self) -> Option<u64> {
        self.head.split(' ').nth(1)?.strip_prefix('/')?.parse().ok()
    }

    /// The line of a field, without its CRLF.
    pub fn field(&self, name: &str) -> Option<&str> {
        let named = |l: &&str| l.split(':').next().is_some_and(|n| n.eq_ignore_ascii_case(name));
        self.head.lines().find(named)
    }
}

/// What happens to the connection after the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It stays open.
    Keep,
    /// The server closes it.
    Close,
    /// The server resets it.
    Reset,
    /// The server closes it without TLS's close_notify.
    Cut,
    /// The server ends it by a fatal alert of TLS.
    Alert,
    /// The server sends bytes that no key decrypts, and closes it.
    Garble,
}

/// Bytes that follow the first ones repeatedly.
#[derive(Clone, Debug)]
pub struct RepeatedBytes {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The pause before each repetition.
    pub pause: Duration,
    /// How often they are sent.
    pub times: u64,
}

/// What the server sends.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The pause before the first byte.
    pub after: Duration,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes that follow.
    pub again: Option<RepeatedBytes>,
    /// What happens to the connection.
    pub then: Then,
    /// In the server's own count, this reply was faulty.
    pub broken: bool,
    /// In the server's own count, the request was served: a complete, correct response left.
    pub served: bool,
}

impl Reply {
    /// A good response.
    pub fn good() -> Reply {
        Reply::with(GOOD)
    }

    /// These bytes, which are a good response.
    pub fn with(bytes: impl Into<Vec<u8>>) -> Reply {
        let bytes = bytes.into();
        Reply { after: Duration::ZERO, bytes, again: None, then: Then::Keep, broken: false, served: true }
    }

    /// These bytes, which are faulty.
    pub fn broken(bytes: impl Into<Vec<u8>>, then: Then) -> Reply {
        Reply { then, broken: true, served: false, ..Reply::with(bytes) }
    }

    /// These bytes, which contain a good response and something else.
    pub fn odd(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { broken: true, ..Reply::with(bytes) }
    }

    /// Sets what follows these bytes.
    pub fn then(self, then: Then) -> Reply {
        Reply { then, ..self }
    }

    /// Delays the reply.
    pub fn after(self, after: Duration) -> Reply {
        Reply { after, ..self }
    }

    /// Adds bytes that follow.
    pub fn again(self, bytes: impl Into<Vec<u8>>, pause: Duration, times: u64) -> Reply {
        Reply { again: Some(RepeatedBytes { bytes: bytes.into(), pause, times }), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read() {
        let head = "GET /42 HTTP/1.1\r\nHost: a\r\nX-Tag: 7\r\n\r\n";
        let asked =
            ScriptRequest { nth: 0, on_connection: 0, connection: 0, stream: 0, head, age: Duration::ZERO };
        assert_eq!(
            (asked.number(), asked.field("x-tag"), asked.field("tag")),
            (Some(42), Some("X-Tag: 7"), None)
        );
        assert_eq!(ScriptRequest { head: "GET / HTTP/1.1\r\n\r\n", ..asked }.number(), None);
    }
}
