//! How a connection is lost, and what that means for the requests on it.

use linerate_net::{Close, NetError, NetErrorKind};

use super::resend::RequestsEnd;
use crate::Failure;
use crate::conversation::Fate;

/// How a connection was lost.
#[derive(Clone, Debug)]
pub enum Loss {
    /// The peer closed between responses.
    Closed,
    /// The last response announced the close (RFC 9112 section 9.6).
    SaidClose,
    /// The peer closed in the middle of a response: the missing part.
    Cut(String),
    /// The transport failed.
    Net(NetError),
    /// The peer does not speak HTTP as it should.
    Malformed(String),
    /// A connection with streams that worked broke by an error that concerns all of it (RFC 9113 section 5.4.1): any of the
    /// requests on it may be the cause.
    Broken {
        /// Which error.
        words: String,
        /// The peer reported it, and ended the connection.
        by_peer: bool,
    },
    /// The oldest request in flight has waited too long.
    TimedOut,
    /// The peer sent bytes without a request; nothing was in flight.
    Unsolicited,
    /// We closed it: a request on it will never be whole, so that nothing may follow it (RFC 9112 section 9.3).
    Unfinished,
}

impl Loss {
    /// The failure of a request that fails by it.
    pub fn failure(&self) -> Failure {
        match self {
            Loss::Closed
            | Loss::SaidClose
            | Loss::Cut(_)
            | Loss::Broken { .. }
            | Loss::Unsolicited
            | Loss::Unfinished => Failure::ClosedEarly,
            Loss::Net(error) if error.kind == NetErrorKind::Reset => Failure::Reset,
            Loss::Net(error) if error.kind == NetErrorKind::Cut => Failure::ClosedEarly,
            Loss::Net(error) => match (error.kind, connect_failure(error.kind)) {
                // What came was no handshake, or the connection worked.
                (NetErrorKind::Garbled, _) => Failure::Malformed,
                (NetErrorKind::TimedOut | NetErrorKind::Unreachable | NetErrorKind::Other, _) => {
                    Failure::Reset
                }
                (_, why) => why,
            },
            Loss::Malformed(_) => Failure::Malformed,
            Loss::TimedOut => Failure::Timeout,
        }
    }

    /// How the connection ended for requests of which no byte of the response came.
    /// `alone`: only one was in flight.
    pub(super) fn end(&self, fate: Fate, alone: bool) -> RequestsEnd {
        let announced = fate == Fate::NeverProcessed;
        match self {
            _ if fate == Fate::Refused => RequestsEnd::Refused,
            Loss::SaidClose => RequestsEnd::Announced,
            Loss::Broken { by_peer, .. } => RequestsEnd::Broken {
                at_fault: !by_peer && (alone || matches!(fate, Fate::AtFault { .. })),
                alone,
            },
            Loss::Closed | Loss::Cut(_) | Loss::Net(_) if announced => RequestsEnd::Announced,
            Loss::TimedOut | Loss::Unfinished => RequestsEnd::Abandoned(self.failure()),
            _ => RequestsEnd::Lost(self.failure()),
        }
    }

    /// The same for people to read.
    pub fn words(&self) -> String {
        match self {
            Loss::Closed | Loss::SaidClose | Loss::Unsolicited => {
                "the peer closed the connection without an answer".to_owned()
            }
            Loss::Cut(detail) | Loss::Malformed(detail) | Loss::Broken { words: detail, .. } => {
                detail.clone()
            }
            // Also of a response that had begun.
            Loss::Net(error) if error.kind == NetErrorKind::Cut => {
                "the peer closed the connection without TLS's close_notify".to_owned()
            }
            Loss::Net(error) => error.to_string(),
            Loss::TimedOut => "no whole answer within the time-out".to_owned(),
            Loss::Unfinished => {
                "the client closed the connection behind a request that was not whole".to_owned()
            }
        }
    }

    /// How our end is closed.
    pub fn close(&self) -> Close {
        match self {
            Loss::Closed | Loss::SaidClose => Close::AfterPeer,
            Loss::Cut(_) | Loss::Net(_) | Loss::Broken { by_peer: true, .. } => Close::Now,
            Loss::Malformed(_) | Loss::Broken { by_peer: false, .. } | Loss::TimedOut | Loss::Unsolicited => {
                Close::Abort
            }
            Loss::Unfinished => Close::Lingering,
        }
    }

    /// Whether the peer ended the connection.
    pub fn by_peer(&self) -> bool {
        match self {
            Loss::Closed | Loss::SaidClose | Loss::Cut(_) => true,
            Loss::Net(error) => matches!(error.kind, NetErrorKind::Reset | NetErrorKind::Cut),
            Loss::Broken { by_peer, .. } => *by_peer,
            Loss::Malformed(_) | Loss::TimedOut | Loss::Unsolicited | Loss::Unfinished => false,
        }
    }
}

/// Which failure an error of the transport is.
pub fn connect_failure(kind: NetErrorKind) -> Failure {
    match kind {
        NetErrorKind::PortsExhausted => Failure::PortsExhausted,
        NetErrorKind::DescriptorsExhausted => Failure::DescriptorsExhausted,
        NetErrorKind::NoMemory => Failure::NoMemory,
        _ => Failure::Connect,
    }
}

/// The error of a connection that could not be opened, in words.
pub fn connect_words(error: &NetError) -> String {
    match error.kind {
        NetErrorKind::Reset => "the peer reset the connection while it was being opened".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over TLS a server that closes without close_notify ends an open connection: the request left.
    #[test]
    fn an_end_without_close_notify_is_the_servers() {
        let cut = Loss::Net(NetError::of(NetErrorKind::Cut));
        assert_eq!(cut.failure(), Failure::ClosedEarly);
        assert!(cut.by_peer());
        assert!(cut.words().contains("close_notify"));
        let refused = Loss::Net(NetError::of(NetErrorKind::Handshake));
        assert_eq!(refused.failure(), Failure::Connect);
        assert!(!refused.by_peer());
    }
}
