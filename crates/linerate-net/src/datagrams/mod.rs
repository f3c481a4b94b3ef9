//! Datagrams to wire and back: UDP for protocols above it, such as QUIC.
//!
//! [`Datagrams`] is to datagrams what [`Transport`](crate::Transport) is to streams of bytes:
//!
//! * [`UdpEpoll`]: the kernel's UDP by epoll. What one peer sends in a row comes in one call
//!   (UDP_GRO), and leaves in one (UDP_SEGMENT).
//! * [`SimDatagrams`]: a network in memory and virtual time, with loss, duplicates, reordering and a
//!   largest datagram, and scripted peers.
//!
//! ```no_run
//! use linerate_net::datagrams::{DatagramOptions, Datagrams, DatagramsAfter, DatagramsToSend, UdpEpoll};
//!
//! // Sends each datagram back.
//! fn echo(mut net: impl Datagrams) -> Result<(), Box<dyn std::error::Error>> {
//!     let (socket, at) = net.open(&DatagramOptions::at(([127, 0, 0, 1], 0).into()))?;
//!     println!("listening on {at}");
//!     let (mut ready, mut back) = (Vec::new(), Vec::new());
//!     loop {
//!         net.turn(None, &mut ready)?;
//!         for socket in ready.drain(..) {
//!             // A socket with more is among the ready ones of the next turn.
//!             net.receive(socket, |came| {
//!                 back.push((came.peer, came.local, came.segment, came.bytes.to_vec()));
//!             });
//!         }
//!         for (to, from, segment, bytes) in back.drain(..) {
//!             net.send(socket, &DatagramsToSend { to, from, ecn: 0, segment, bytes: &bytes })?;
//!         }
//!     }
//! }
//!
//! echo(UdpEpoll::new(16)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod sim;
#[cfg(test)]
mod tests;
mod udp;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use self::sim::{DatagramPeer, PathFaults, SimDatagrams};
pub use self::udp::UdpEpoll;
use crate::{Conn, NetError, Time, Waker};

/// The room of a socket's buffers, bytes, which the kernel cuts to `net.core.rmem_max` and `wmem_max`.
/// Reason: a burst of all connections must fit, since UDP drops what does not.
pub const BUFFER_BYTES: usize = 4 << 20;

/// A socket of a [`Datagrams`], never handed out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramSocket(pub(crate) Conn);

impl DatagramSocket {
    /// The slot: small, dense, reused after `close`. For tables of the application; compare the whole
    /// socket to know that the slot still is this one.
    pub fn slot(self) -> usize {
        self.0.slot()
    }
}

/// How to open a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramOptions {
    /// Its own address; port 0: the kernel's choice.
    pub at: SocketAddr,
    /// The only peer that it talks to. Its refusals (ICMP) are then reported.
    pub peer: Option<SocketAddr>,
    /// SO_REUSEPORT: one socket per core on the same address.
    pub reuse_port: bool,
    /// Room for datagrams that wait, each way, bytes.
    pub buffer_bytes: usize,
}

impl DatagramOptions {
    /// A socket at this address, for all peers.
    pub fn at(at: SocketAddr) -> DatagramOptions {
        DatagramOptions { at, peer: None, reuse_port: false, buffer_bytes: BUFFER_BYTES }
    }

    /// A socket towards one peer; `from`: its own address, if that matters.
    pub fn towards(peer: SocketAddr, from: Option<IpAddr>) -> DatagramOptions {
        let any = match peer {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let at = SocketAddr::new(from.unwrap_or(any), 0);
        DatagramOptions { peer: Some(peer), ..DatagramOptions::at(at) }
    }
}

/// Which of the sockets on one address, each opened with `reuse_port`, gets a datagram: for protocols whose
/// peers may change their address. Two bytes of it decide, unless its first bit is set. Then, as without
/// steering, the kernel decides by the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSteering {
    /// Where the two bytes begin.
    pub at: u32,
    /// What hides the number of the socket from others.
    pub key: u32,
    /// How many sockets there are, in the order in which they were opened.
    pub sockets: u32,
}

impl DatagramSteering {
    /// The socket that these two bytes decide for.
    pub fn socket_of(&self, bytes: [u8; 2]) -> u32 {
        (u32::from(u16::from_be_bytes(bytes)).wrapping_mul(self.key) >> 16) % self.sockets.max(1)
    }
}

/// Datagrams of one peer that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagrams<'a> {
    /// Who sent them.
    pub peer: SocketAddr,
    /// The address that they were sent to, if that is known.
    pub local: Option<IpAddr>,
    /// The codepoint of ECN (RFC 3168): 0 to 3.
    pub ecn: u8,
    /// Bytes of each but the last, which may be shorter. Never 0.
    pub segment: usize,
    /// Their bytes, one behind the other.
    pub bytes: &'a [u8],
}

impl<'a> ReceivedDatagrams<'a> {
    /// Each datagram.
    pub fn each(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment.max(1))
    }
}

/// Datagrams to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramsToSend<'a> {
    /// The peer. A socket that has one of its own sends to that.
    pub to: SocketAddr,
    /// The address to send from, if it matters: the one that the peer sent to.
    pub from: Option<IpAddr>,
    /// The codepoint of ECN (RFC 3168): 0 to 3.
    pub ecn: u8,
    /// Bytes of each but the last, which may be shorter.
    pub segment: usize,
    /// Their bytes, one behind the other: at most 64 datagrams and 65,000 bytes.
    pub bytes: &'a [u8],
}

/// State of a socket after [`Datagrams::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramsAfter {
    /// It was emptied.
    Empty,
    /// There may be more: the next turn reports it again.
    More,
    /// Receiving failed. [`NetErrorKind::Refused`](crate::NetErrorKind::Refused): the peer's machine says
    /// that nothing listens there. The socket stays open.
    Failed(NetError),
}

/// What crossed the sockets of one [`Datagrams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Datagrams sent.
    pub sent: u64,
    /// Calls that sent them.
    pub send_calls: u64,
    /// Datagrams received.
    pub received: u64,
    /// Calls that received them.
    pub receive_calls: u64,
    /// Datagrams that came and found no room in a socket (SO_RXQ_OVFL).
    pub dropped: u64,
    /// Datagrams that did not leave, since the socket had no room.
    pub not_sent: u64,
    /// Datagrams that did not leave, since they were longer than the path takes.
    pub too_long: u64,
    /// Datagrams received with the mark of congestion (ECN CE, RFC 3168).
    pub marked: u64,
}

/// Moves datagrams. The module's documentation has the loop.
pub trait Datagrams {
    /// The current time. Kernel sockets read the clock: once per turn is enough.
    fn now(&mut self) -> Time;

    /// Opens a socket. Returns it with its address, whose port may be the kernel's choice.
    ///
    /// # Errors
    /// The address cannot be used, or descriptors or memory are used up.
    fn open(&mut self, options: &DatagramOptions) -> Result<(DatagramSocket, SocketAddr), NetError>;

    /// Steers the datagrams of all sockets on the address of this one.
    ///
    /// # Errors
    /// There is no such thing here, or the kernel refuses.
    fn steer(&mut self, _socket: DatagramSocket, _by: &DatagramSteering) -> Result<(), NetError> {
        Err(NetError::from_errno(libc::EOPNOTSUPP))
    }

    /// Closes a socket. Calls on it do nothing afterwards.
    fn close(&mut self, socket: DatagramSocket);

    /// Waits for datagrams until `until` (`None`: forever; a past time: only polls), and appends the
    /// sockets that have some to `ready`. It may end early without any: woken, by a signal, or for reasons
    /// of its own.
    ///
    /// # Errors
    /// Waiting itself fails.
    fn turn(&mut self, until: Option<Time>, ready: &mut Vec<DatagramSocket>) -> io::Result<()>;

    /// Whether the next turn reports sockets that no descriptor tells of: they have more than one turn's
    /// share.
    fn has_more(&self) -> bool {
        false
    }

    /// Hands over datagrams that came, those of one peer that came together at a time. Other sockets have
    /// their turn after a bounded number.
    fn receive(&mut self, socket: DatagramSocket, take: impl FnMut(ReceivedDatagrams<'_>)) -> DatagramsAfter;

    /// Sends datagrams. Those for which there is no room, or that are too long for the path, are dropped
    /// and counted, as the network would do it.
    ///
    /// # Errors
    /// The kernel refuses: what for. `Refused`: the peer's machine says that nothing listens there, about
    /// datagrams sent before.
    fn send(&mut self, socket: DatagramSocket, out: &DatagramsToSend<'_>) -> Result<(), NetError>;

    /// What crossed the sockets so far.
    fn counts(&self) -> DatagramCounts;

    /// A handle to end `turn` from another thread.
    fn waker(&self) -> Waker;

    /// The name users know: "epoll", "sim".
    fn name(&self) -> &'static str;
}
