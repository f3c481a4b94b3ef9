//! What a descriptor stands for.

use std::collections::VecDeque;
use std::net::SocketAddr;

use linerate_net::{Conn, Data, Listener, NetError};

/// A descriptor that does not belong to the kernel.
pub(crate) enum Descriptor {
    /// The interface: packets written to it reach the stack.
    Interface,
    /// A packet socket: the stack's packets are read from it.
    Packets,
    /// A socket only used to configure the interface.
    Control,
    /// A TCP socket.
    Tcp(Socket),
}

/// A TCP socket.
pub(crate) struct Socket {
    pub(crate) blocking: bool,
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) role: Role,
}

/// The state of a socket.
pub(crate) enum Role {
    Fresh,
    Listens(ScriptedListener),
    Connection(ScriptedConnection),
}

pub(crate) struct ScriptedListener {
    pub(crate) listener: Listener,
    /// Connections that the stack accepted and the application did not, with their first data.
    pub(crate) queue: VecDeque<(Conn, SocketAddr, Option<Data>)>,
}

/// A connection as the application sees it.
pub(crate) struct ScriptedConnection {
    pub(crate) conn: Conn,
    pub(crate) peer: SocketAddr,
    pub(crate) connected: bool,
    /// A claim on received bytes, the end or a failure.
    pub(crate) claim: Option<Data>,
    /// Bytes taken from the stack that the application has not read.
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) ended: bool,
    pub(crate) error: Option<NetError>,
    /// Our side is closed, and the stack has released the connection: the number of resets received
    /// by then.
    pub(crate) shut: Option<u64>,
}

impl ScriptedConnection {
    pub(crate) fn new(conn: Conn, peer: SocketAddr, connected: bool) -> ScriptedConnection {
        let inbox = VecDeque::new();
        ScriptedConnection {
            conn,
            peer,
            connected,
            claim: None,
            inbox,
            ended: false,
            error: None,
            shut: None,
        }
    }

    /// Whether a read would return at once.
    pub(crate) fn is_readable(&self) -> bool {
        let news = self.ended || self.error.is_some() || self.shut.is_some();
        news || self.claim.is_some() || !self.inbox.is_empty()
    }
}

impl Socket {
    pub(crate) fn new(role: Role) -> Socket {
        Socket { blocking: true, bound: None, role }
    }

    pub(crate) fn connection(&mut self) -> Option<&mut ScriptedConnection> {
        match &mut self.role {
            Role::Connection(connection) => Some(connection),
            Role::Fresh | Role::Listens(_) => None,
        }
    }
}
