//! What a descriptor stands for.

use std::collections::VecDeque;
use std::net::SocketAddr;

use linerate_net::{Conn, Data, Listener, NetError};

/// A descriptor that is not the kernel's.
pub(crate) enum Descriptor {
    /// The interface: what is written to it comes to the stack.
    Interface,
    /// A packet socket: what the stack sends is read from it.
    Packets,
    /// One that is only asked about the interface.
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

/// What became of a socket.
pub(crate) enum Role {
    Fresh,
    Listens(Listening),
    Connection(Connection),
}

pub(crate) struct Listening {
    pub(crate) listener: Listener,
    /// Accepted by the stack, and not by the application; with what came for them.
    pub(crate) queue: VecDeque<(Conn, SocketAddr, Option<Data>)>,
}

/// A connection as the application has it.
pub(crate) struct Connection {
    pub(crate) conn: Conn,
    pub(crate) peer: SocketAddr,
    pub(crate) connected: bool,
    /// A claim on bytes, the end or a failure.
    pub(crate) claim: Option<Data>,
    /// Taken from the stack, and not yet by the application.
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) ended: bool,
    pub(crate) error: Option<NetError>,
    /// Our side is closed, and the stack has forgotten the connection for the application: how many resets had come by then.
    pub(crate) shut: Option<u64>,
}

impl Connection {
    pub(crate) fn new(conn: Conn, peer: SocketAddr, connected: bool) -> Connection {
        let inbox = VecDeque::new();
        Connection { conn, peer, connected, claim: None, inbox, ended: false, error: None, shut: None }
    }

    /// Whether a call that reads has something to say.
    pub(crate) fn is_readable(&self) -> bool {
        let news = self.ended || self.error.is_some() || self.shut.is_some();
        news || self.claim.is_some() || !self.inbox.is_empty()
    }
}

impl Socket {
    pub(crate) fn new(role: Role) -> Socket {
        Socket { blocking: true, bound: None, role }
    }

    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.role {
            Role::Connection(connection) => Some(connection),
            Role::Fresh | Role::Listens(_) => None,
        }
    }
}
