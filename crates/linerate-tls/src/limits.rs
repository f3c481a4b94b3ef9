//! Every limit of this crate, with its reason.

/// Bytes of a record's plaintext, at most (RFC 8446 section 5.1).
pub(crate) const RECORD: usize = 1 << 14;

/// What a record adds to its plaintext, at most: head, explicit nonce of TLS 1.2, type and tag.
pub(crate) const RECORD_OVERHEAD: usize = 64;

/// Bytes that are held because a record or a handshake message is not whole. Reason: rustls takes handshake messages of up to
/// 64 KiB, which come in several records.
pub(crate) const HELD: usize = 256 << 10;

/// Different reasons for failed handshakes that are kept by name. Reason: a peer chooses some of the words.
pub(crate) const REASONS: usize = 32;

/// Names of a certificate that are listed when the wanted one is not among them. Reason: some have hundreds.
pub(crate) const NAMES_LISTED: usize = 6;

/// Configurations of TLS that one server's listeners may have had. Reason: a number of 16 bits names them, and none is taken back.
pub(crate) const PROFILES: usize = 4096;
