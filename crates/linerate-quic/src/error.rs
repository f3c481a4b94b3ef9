//! Why connections cannot be made, and how they end.

use quinn_proto::ConnectionError;

/// Options or a call that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuicError {
    /// The TLS configuration has no cipher suite for QUIC's first packets (RFC 9001, section 5.2).
    #[error("the TLS configuration does not have TLS_AES_128_GCM_SHA256, which QUIC begins with")]
    NoFirstCipher,
    /// An option is out of its range: which.
    #[error("{0} is out of range")]
    Option(&'static str),
    /// A connection cannot be begun: in words.
    #[error("no QUIC connection to {to}: {why}")]
    Connect {
        /// The peer's address.
        to: std::net::SocketAddr,
        /// The reason.
        why: String,
    },
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuicLost {
    /// The peer's application closed it.
    #[error("the peer closed the connection with code {code:#x}{}", quoted(.reason))]
    ClosedByPeer {
        /// The application's code, such as those of RFC 9114, section 8.1.
        code: u64,
        /// The peer's words; bytes that are not UTF-8 are replaced.
        reason: String,
    },
    /// The peer's QUIC ended it: its code (RFC 9000, section 20.1) and words.
    #[error("the peer ended the connection with the QUIC error {code:#x}{}", quoted(.reason))]
    EndedByPeer {
        /// The code.
        code: u64,
        /// The peer's words; bytes that are not UTF-8 are replaced.
        reason: String,
    },
    /// The peer broke QUIC's rules, or its handshake failed: in words.
    #[error("{0}")]
    Broken(String),
    /// The peer knows nothing of the connection (RFC 9000, section 10.3).
    #[error("the peer reset the connection")]
    Reset,
    /// Nothing came from the peer for the idle timeout.
    #[error("the peer was silent for the idle timeout")]
    TimedOut,
    /// The peer speaks no version of QUIC that we speak.
    #[error("the peer speaks no version of QUIC that we speak")]
    Version,
    /// We closed it.
    #[error("we closed the connection")]
    ClosedByUs,
}

fn quoted(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason:?})") }
}

impl From<ConnectionError> for QuicLost {
    fn from(error: ConnectionError) -> QuicLost {
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match error {
            ConnectionError::ApplicationClosed(close) => {
                QuicLost::ClosedByPeer { code: close.error_code.into_inner(), reason: words(&close.reason) }
            }
            ConnectionError::ConnectionClosed(close) => {
                QuicLost::EndedByPeer { code: close.error_code.into(), reason: words(&close.reason) }
            }
            ConnectionError::TransportError(error) => QuicLost::Broken(error.to_string()),
            ConnectionError::Reset => QuicLost::Reset,
            ConnectionError::TimedOut => QuicLost::TimedOut,
            ConnectionError::VersionMismatch => QuicLost::Version,
            ConnectionError::LocallyClosed => QuicLost::ClosedByUs,
            ConnectionError::CidsExhausted => QuicLost::Broken("no connection ID is free".to_owned()),
        }
    }
}
