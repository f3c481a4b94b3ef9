//! The bytes of a baseline's connection: those before HTTP begins, and layers that change them from then on. Sans-IO.

use std::net::SocketAddr;

use linerate_net::layer::{Progress, Session};
use linerate_net::{NetError, NetErrorKind};

use crate::route::RouteSession;

/// One connection's bytes, between the wire and HTTP.
#[derive(Default)]
pub(super) struct Channel {
    session: Option<RouteSession>,
    /// The session's own bytes to send.
    wire: Vec<u8>,
    /// A part of a request, for the wire.
    sealed: Vec<u8>,
    /// For HTTP.
    plain: Vec<u8>,
}

impl Channel {
    /// Without a session, bytes pass as they are.
    pub(super) fn new(session: Option<RouteSession>) -> Channel {
        Channel { session, ..Channel::default() }
    }

    /// The connection is established; `local`: our end of it. The first bytes to send are in [`Channel::wire`].
    pub(super) fn begin(&mut self, local: Option<SocketAddr>) {
        if let Some(session) = &mut self.session {
            session.set_local(local);
            session.begin(&mut self.wire);
        }
    }

    /// Requests may pass.
    pub(super) fn is_ready(&self) -> bool {
        self.session.as_ref().is_none_or(Session::is_ready)
    }

    /// The session's own bytes to send; taken once.
    pub(super) fn wire(&mut self) -> Vec<u8> {
        if let Some(session) = &mut self.session {
            session.reply(&mut self.wire);
        }
        std::mem::take(&mut self.wire)
    }

    /// A part of a request as it goes over the wire.
    pub(super) fn seal<'a>(&'a mut self, part: &'a [u8]) -> &'a [u8] {
        let Some(session) = &mut self.session else { return part };
        self.sealed.clear();
        session.seal(part, &mut self.sealed);
        &self.sealed
    }

    /// Bytes of the wire, none of them at the peer's FIN: what of HTTP was in them, and what follows.
    pub(super) fn open<'a>(&'a mut self, bytes: &'a mut [u8]) -> (&'a [u8], Opened) {
        let Some(session) = &mut self.session else {
            let opened = if bytes.is_empty() { Opened::Ended } else { Opened::More };
            return (bytes, opened);
        };
        self.plain.clear();
        let plain = &mut self.plain;
        let progress = if bytes.is_empty() {
            session.cut()
        } else {
            session.open(bytes, &mut |piece| plain.extend_from_slice(piece))
        };
        let opened = match progress {
            Progress::Open => Opened::More,
            Progress::Ended => Opened::Ended,
            Progress::Failed(error) => Opened::Failed(NotOpened { error, reason: session.reason() }),
        };
        (&self.plain, opened)
    }

    /// Bytes of a handshake: whether it failed.
    pub(super) fn shake(&mut self, bytes: &mut [u8]) -> Result<(), NotOpened> {
        match self.open(bytes).1 {
            Opened::More => Ok(()),
            Opened::Failed(failed) => Err(failed),
            Opened::Ended => Err(NetError::of(NetErrorKind::Reset).into()),
        }
    }

    /// The connection failed during the handshake.
    pub(super) fn lost(&mut self, error: NetError) -> NotOpened {
        let reason = self.session.as_mut().and_then(|session| {
            session.lost(error);
            session.reason()
        });
        NotOpened { error, reason }
    }
}

/// The result of a read.
pub(super) enum Opened {
    /// More may come.
    More,
    /// The peer sends nothing more.
    Ended,
    /// The session failed.
    Failed(NotOpened),
}

/// Why a connection could not be opened, or failed: the transport's error, and the session's words if it has some.
pub(super) struct NotOpened {
    pub(super) error: NetError,
    reason: Option<String>,
}

impl NotOpened {
    pub(super) fn words(&self) -> String {
        self.reason.clone().unwrap_or_else(|| self.error.to_string())
    }

    /// The same with the address that was tried.
    pub(super) fn at(self, to: SocketAddr) -> NotOpened {
        NotOpened { reason: Some(format!("{}, at {to}", self.words())), ..self }
    }
}

impl From<NetError> for NotOpened {
    fn from(error: NetError) -> NotOpened {
        NotOpened { error, reason: None }
    }
}

impl From<std::io::Error> for NotOpened {
    fn from(error: std::io::Error) -> NotOpened {
        NetError::from(error).into()
    }
}
