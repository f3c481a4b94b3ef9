//! The events that connections wait for: timeouts depend on them, and metrics count them.

/// An event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The next request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// One of our handlers.
    Handler,
    /// The client, to read a response.
    Write,
}

impl Waits {
    /// All of them, in numeric order.
    pub(crate) const ALL: [Waits; 5] = [Waits::Idle, Waits::Head, Waits::Body, Waits::Handler, Waits::Write];

    /// The name that metrics use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Waits::Idle => "idle",
            Waits::Head => "head",
            Waits::Body => "body",
            Waits::Handler => "handler",
            Waits::Write => "write",
        }
    }
}
