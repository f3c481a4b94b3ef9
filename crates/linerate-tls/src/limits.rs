//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Bytes of a record's plaintext, at most (RFC 8446 section 5.1).
pub(crate) const RECORD: usize = 1 << 14;

/// Bytes that a record adds to its plaintext, at most: header, explicit nonce of TLS 1.2, type and
/// tag.
pub(crate) const RECORD_OVERHEAD: usize = 64;

/// Bytes held of an incomplete record or handshake message. Reason: rustls accepts handshake
/// messages of up to 64 KiB, which span several records.
pub(crate) const HELD: usize = 256 << 10;

/// Capacity that the buffer of such bytes keeps. Reason: requests and responses as they usually are fit,
/// and a connection that is idle after large records must cost little.
pub(crate) const HELD_KEPT: usize = 2 << 10;

/// Different reasons for failed handshakes that are counted by name. Reason: peers choose part of
/// the text.
pub(crate) const REASONS: usize = 32;

/// Names of a certificate that are listed if the wanted one is missing. Reason: some certificates
/// have hundreds.
pub(crate) const NAMES_LISTED: usize = 6;

/// Sessions that an experimenting client keeps. Reason: it calls one server, and each connection
/// takes one.
pub(crate) const SERVERS: usize = 64;

/// TLS configurations of a server's listeners over its life. Reason: a 16-bit number names them,
/// and none is reused.
pub(crate) const PROFILES: usize = 4096;

/// Characters of a certificate's name in an error. Reason: a line stays readable.
pub(crate) const NAME_CHARS: usize = 80;

/// First bytes of another protocol that an error shows. Reason: a line stays readable.
pub(crate) const FIRST_BYTES: usize = 24;

/// The longest use of one key of session tickets. Reason: all sessions of that time can be decrypted
/// with it.
pub(crate) const TICKET_KEY_LIFE: Duration = Duration::from_secs(6 * 3600);
