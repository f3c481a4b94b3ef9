//! Bytes to wire and back. One event loop per core, sharing nothing; one small trait, [`Transport`], used with
//! static dispatch; several ways of moving bytes behind it. This crate knows no HTTP.
//!
//! * [`mem`]: scripted peers in memory and in virtual time; everything is tested on it first.
//! * [`epoll`]: the kernel's TCP, edge-triggered.
//! * [`uring`]: the kernel's TCP by io_uring: multishot receive, provided buffers, direct descriptors. [`Probe`] tells
//!   whether this kernel has what it takes.
//! * [`stack`]: TCP in user space over a [`link`] that moves packets; [`link::sim`] is a network in virtual time.
//!
//! * [`datagrams`]: UDP for protocols above it, behind a trait of its own; the kernel's and a network in memory.
//!
//! [`sockets`] gives `stack` the calls of the kernel's sockets, with their errors and readiness.
//!
//! [`layer`] puts a protocol that changes bytes (encryption, say) between any of them and the application.
//!
//! [`share`] splits one of them between a server and a client in the same thread.
//!
//! [`mod@file`] tells whether a file is in memory; [`capture`] reads the packets that pass by; [`sock_diag`] lists this machine's TCP sockets with their queues.
//!
//! [`instrument`] is a connection as a measuring instrument, with the kernel's levers on it.
//!
//! [`InputFile`] reads a file that a user names without being held by a pipe.
//!
//! [`machine`] has what their threads ask of the machine: cores, clocks, limits.
//!
//! `unsafe` is confined to `sys/`.
//!
//! ```no_run
//! use linerate_net::epoll::Epoll;
//! use linerate_net::{After, Close, Event, ListenOptions, Transport};
//!
//! // Sends back what it receives.
//! fn echo(mut net: impl Transport) -> Result<(), Box<dyn std::error::Error>> {
//!     net.listen(([127, 0, 0, 1], 7000).into(), &ListenOptions::default())?;
//!     let mut events = Vec::new();
//!     loop {
//!         net.turn(None, &mut events)?;
//!         for event in events.drain(..) {
//!             let Event::Readable { conn, data } = event else { continue };
//!             let mut got = Vec::new();
//!             let after = net.receive(data, |bytes| got.extend_from_slice(bytes));
//!             if after == After::Open {
//!                 net.send(conn, &got)?;
//!             } else {
//!                 net.close(conn, Close::Now);
//!             }
//!         }
//!     }
//! }
//!
//! echo(Epoll::new()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capture;
mod clock;
mod closing;
#[doc(hidden)]
#[allow(missing_docs)] // the names of the cases say what they hold
pub mod conformance;
pub mod datagrams;
mod dialing;
mod ecn;
pub mod epoll;
mod error;
pub mod file;
mod flow_info;
mod host_secret;
mod input;
pub mod instrument;
mod ipv6;
mod keyed;
pub mod layer;
mod limits;
mod line;
pub mod link;
pub mod machine;
pub mod mem;
mod netlink;
pub mod open;
mod outbox;
mod probe;
pub mod qdisc;
pub mod share;
pub mod sock_diag;
pub mod sockets;
pub mod stack;
mod sys;
mod table;
mod tcp_info;
mod transport;
pub mod uring;

pub use dialing::dial_unix;
pub use error::{NetError, NetErrorKind};
pub use flow_info::{AgreedOptions, FlowInfo, FlowState};
pub use host_secret::HostSecret;
pub use input::InputFile;
pub use limits::TransportLimits;
pub use line::PhysicalLine;
pub use linerate_base::Time;
pub use open::{Io, IoOptions};
pub use probe::{Facility, Probe, Unavailable};
pub use tcp_info::{TcpInfo, TcpTotals};
pub use transport::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, Profile,
    ReceivedPiece, Transport, Waker,
};
