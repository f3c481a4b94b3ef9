//! Why requests fail.

/// Why requests failed. Each failed request is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// No connection: refused, unreachable, reset in the handshake, timed out by the kernel.
    Connect,
    /// No whole response within the timeout.
    Timeout,
    /// The peer reset the connection, or the request's stream alone, before a byte of the response came.
    Reset,
    /// The peer closed before a byte of the response came.
    ClosedEarly,
    /// The response was not HTTP, or broke its rules.
    Malformed,
    /// A response began and broke off.
    Truncated,
    /// The peer refused the request's stream without processing it, and it did not go out again, or too often.
    RefusedStream,
    /// No local port was left.
    PortsExhausted,
    /// No file descriptor was left.
    DescriptorsExhausted,
    /// The kernel had no buffer space.
    NoMemory,
}

impl Failure {
    /// All of them, in the order of reports.
    pub const ALL: [Failure; 10] = [
        Failure::Connect,
        Failure::Timeout,
        Failure::Reset,
        Failure::ClosedEarly,
        Failure::Malformed,
        Failure::Truncated,
        Failure::RefusedStream,
        Failure::PortsExhausted,
        Failure::DescriptorsExhausted,
        Failure::NoMemory,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Connect => "connect",
            Failure::Timeout => "timeout",
            Failure::Reset => "reset",
            Failure::ClosedEarly => "closed_early",
            Failure::Malformed => "malformed",
            Failure::Truncated => "truncated",
            Failure::RefusedStream => "refused_stream",
            Failure::PortsExhausted => "ports_exhausted",
            Failure::DescriptorsExhausted => "descriptors_exhausted",
            Failure::NoMemory => "no_memory",
        }
    }
}
