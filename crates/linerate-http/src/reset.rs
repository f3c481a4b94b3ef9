//! Why a peer gave a stream up, in HTTP/2 or HTTP/3.

/// The code of a stream that was reset: of RST_STREAM (RFC 9113, section 7) or RESET_STREAM (RFC 9114,
/// section 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetCode {
    /// The number on the wire.
    pub number: u64,
    /// The registered name, or "other": a peer may invent any number of codes.
    pub name: &'static str,
}

impl std::fmt::Display for ResetCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name {
            "other" => write!(f, "code {:#x}", self.number),
            name => f.write_str(name),
        }
    }
}
