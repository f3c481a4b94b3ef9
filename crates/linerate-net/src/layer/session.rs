//! The interface of a protocol between the wire and the application.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Listener, NetError, Profile};

/// State of a session's receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may come.
    Open,
    /// The peer said that it sends nothing more; what follows on the wire is discarded.
    Ended,
    /// The peer broke the protocol, or refused us. [`NetErrorKind::Handshake`](crate::NetErrorKind) says that it was in the handshake.
    Failed(NetError),
}

/// Turns the application's bytes into the wire's and back, for one connection. Sans-IO: it reads no clock and opens no socket.
///
/// A session may shake hands first. Until [`Session::is_ready`], nothing is handed to [`Session::seal`].
pub trait Session {
    /// Whether [`Session::set_local`] has to be called before [`Session::begin`].
    fn wants_local(&self) -> bool {
        false
    }

    /// Our end of the connection; `None` where it has no address.
    fn set_local(&mut self, _local: Option<SocketAddr>) {}

    /// TCP is established: appends what leaves first, if this side speaks first.
    fn begin(&mut self, wire: &mut Vec<u8>);

    /// Takes bytes from the wire, in pieces of any size, and lends the application's to `take`. It may change `wire` in place.
    /// After a progress other than [`Progress::Open`] it is not called again.
    fn open(&mut self, wire: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> Progress;

    /// Appends what the protocol itself has to say: the rest of a handshake, an alert.
    fn reply(&mut self, wire: &mut Vec<u8>);

    /// The handshake is over: the application's bytes may pass.
    fn is_ready(&self) -> bool;

    /// Appends the wire's form of the application's bytes.
    fn seal(&mut self, bytes: &[u8], wire: &mut Vec<u8>);

    /// How many bytes this many take on the wire, at most.
    fn sealed_len(&self, len: usize) -> usize;

    /// Appends what says that this side sends nothing more (TLS: `close_notify`).
    fn finish(&mut self, wire: &mut Vec<u8>);

    /// The peer's FIN came although the session had not ended: `Ended` where the protocol has no end of its own.
    fn cut(&mut self) -> Progress;

    /// The connection failed before the session was ready.
    fn lost(&mut self, _error: NetError) {}

    /// Why the session failed, or what it still waits for, see [`Transport::reason`](crate::Transport::reason).
    fn reason(&self) -> Option<String> {
        None
    }

    /// The protocol negotiated in the handshake, see [`Transport::protocol`](crate::Transport::protocol).
    fn protocol(&self) -> Option<&[u8]> {
        None
    }

    /// Facts about the peer once the session is ready, see [`Transport::about`](crate::Transport::about).
    fn about(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// Makes the sessions of a layer.
pub trait Layer {
    /// The sessions that it makes.
    type Session: Session;

    /// The session of a connection we ask for; `None`: its bytes pass as they are.
    fn connect(&mut self, profile: Profile, to: SocketAddr) -> Result<Option<Self::Session>, NetError>;

    /// The session of a connection that was accepted; `None`: its bytes pass as they are.
    fn accept(&mut self, listener: Listener, profile: Profile, peer: SocketAddr) -> Option<Self::Session>;
}
