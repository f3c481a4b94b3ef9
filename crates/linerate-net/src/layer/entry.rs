//! One connection with a session.

use crate::{After, Close, NetError, Time};

use super::session::Progress;
use crate::closing::Closing;

/// Which side began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeSide {
    Asked,
    Accepted,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerStage {
    /// TCP is not established.
    Connecting,
    /// The session shakes hands.
    Shaking,
    /// The application's bytes pass.
    Ready,
    /// The application closed it. The handshake has to end first, so that the session can; or the peer's FIN is waited for.
    Closing { how: Close },
    /// The session or the connection failed, and the application has the event.
    Failed,
}

pub(super) struct LayeredConnection<S> {
    pub(super) session: S,
    pub(super) side: HandshakeSide,
    pub(super) stage: LayerStage,
    pub(super) tcp_at: Time,
    /// TCP was established.
    pub(super) has_begun: bool,
    /// Bytes of a handshake have come.
    pub(super) has_heard: bool,
    /// Handed over by the application before the session was ready.
    pub(super) waiting: Vec<u8>,
    /// For the application, received with the end of the handshake.
    pub(super) early: Vec<u8>,
    /// State of the receiving side, reported behind the early bytes.
    pub(super) after: After,
    pub(super) paused: bool,
    /// Bytes of the application since the wire had taken everything.
    pub(super) handed: usize,
    /// The session has failed, and may have told the peer why.
    pub(super) has_refused: bool,
    /// The application knows that the connection has failed.
    pub(super) failure_told: bool,
}

impl<S> LayeredConnection<S> {
    pub(super) fn new(session: S, side: HandshakeSide, now: Time) -> LayeredConnection<S> {
        let stage = match side {
            HandshakeSide::Asked => LayerStage::Connecting,
            HandshakeSide::Accepted => LayerStage::Shaking,
        };
        LayeredConnection {
            session,
            side,
            stage,
            tcp_at: now,
            has_begun: false,
            has_heard: false,
            waiting: Vec::new(),
            early: Vec::new(),
            after: After::Open,
            paused: false,
            handed: 0,
            has_refused: false,
            failure_told: false,
        }
    }

    /// The state of the receiving side, for the application: a failure only once, whether a receive
    /// reports it or an event did, such as the reset behind the end of a stream that was cut.
    pub(super) fn told_once(&mut self) -> After {
        match self.after {
            After::Failed(_) if std::mem::replace(&mut self.failure_told, true) => After::Open,
            after => after,
        }
    }

    /// How the connection is closed if the application closes it in this way. A reset would destroy
    /// the session's last words, and unread bytes of the peer would cause one.
    pub(super) fn closes(&self, how: Close) -> Close {
        if self.has_refused { Close::Lingering } else { how }
    }

    /// The application closed it; it is gone for the application.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.stage, LayerStage::Closing { .. })
    }

    /// What it waits for once the application has closed it.
    pub(super) fn waits_for(&self) -> Option<Closing> {
        self.is_closing().then_some(Closing::AfterPeer)
    }
}

/// The receiving side's state after a piece, for the application. A session's failure explains the connection's. A reset is
/// reported even behind the session's end, as a transport reports it behind a FIN.
pub(super) fn after(session: Progress, wire: After) -> After {
    match (session, wire) {
        (_, After::Gone) => After::Gone,
        (Progress::Failed(error), _) => After::Failed(error),
        (Progress::Open, wire) | (Progress::Ended, wire @ After::Failed(_)) => wire,
        (Progress::Ended, After::Open | After::Ended) => After::Ended,
    }
}

/// The failure that ends a handshake whose connection ended.
pub(super) fn broken(after: After) -> Option<NetError> {
    match after {
        After::Failed(error) => Some(error),
        After::Ended => Some(NetError::of(crate::NetErrorKind::Reset)),
        After::Open | After::Gone => None,
    }
}
