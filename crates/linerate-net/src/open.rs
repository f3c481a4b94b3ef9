//! Opens the transport that options name: the one place that knows which kinds there are.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::epoll::Epoll;
use crate::link::Middlewares;
use crate::link::fault::FaultOptions;
use crate::link::pcap::{self, PcapFile};
use crate::link::xdp::{self, Steer, Xdp, XdpError, XdpOptions};
use crate::stack::{Stack, StackOptions, UseOfEcn};
use crate::uring::Uring;
use crate::{HostSecret, Transport, TransportLimits, machine};

/// Which transport moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Io {
    /// The better one of what this kernel has for the purpose. [`IoOptions::prepare`] takes epoll,
    /// which every kernel has and which uses less memory per idle connection.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// `io_uring`.
    Uring,
    /// User-space TCP over AF_XDP, on the options' `interface`.
    Xdp,
}

impl Io {
    /// All of them.
    pub const ALL: [Io; 4] = [Io::Auto, Io::Epoll, Io::Uring, Io::Xdp];

    /// The name that flags and documents use.
    pub const fn name(self) -> &'static str {
        match self {
            Io::Auto => "auto",
            Io::Epoll => "epoll",
            Io::Uring => "uring",
            Io::Xdp => "xdp",
        }
    }

    /// Whether TCP runs in this process, so that the kernel has no sockets for its connections.
    pub const fn is_user_space(self) -> bool {
        matches!(self, Io::Xdp)
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Io {
    type Err = String;

    fn from_str(text: &str) -> Result<Io, String> {
        let known = Io::ALL.into_iter().find(|io| io.name() == text);
        known.ok_or_else(|| {
            let names = Io::ALL.map(Io::name).join(", ");
            format!("there is no way {text:?} of moving bytes; known are {names}")
        })
    }
}

/// Which transport to open, and what only user-space TCP can do.
#[derive(Clone, Debug, Default)]
pub struct IoOptions {
    /// The transport.
    pub io: Io,
    /// The interface of [`Io::Xdp`].
    pub interface: Option<String>,
    /// For [`Io::Xdp`]: the working threads poll the interface's queues, for this long at a time.
    pub busy_poll: Option<Duration>,
    /// For [`Io::Xdp`]: records every packet in this pcap file.
    pub pcap_out: Option<PathBuf>,
    /// For [`Io::Xdp`]: faults to inject.
    pub fault: Option<FaultOptions>,
}

/// Why no transport can be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The machine or the interface lacks something.
    #[error(transparent)]
    Interface(#[from] XdpError),
    /// [`Io::Xdp`] without an interface.
    #[error("TCP in user space needs the name of an interface")]
    NoInterface,
    /// Options of user-space TCP with the kernel's.
    #[error("captures and faults are for TCP in user space; elsewhere tcpdump and tc do it")]
    KernelsTcp,
    /// The capture's file.
    #[error("the capture {path} cannot be written: {error}", path = path.display())]
    Capture {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl From<PrepareError> for io::Error {
    fn from(error: PrepareError) -> io::Error {
        let text = error.to_string();
        match error {
            // Kept whole: it knows what can be done about it.
            PrepareError::Interface(error) => io::Error::new(io::ErrorKind::Unsupported, error),
            PrepareError::NoInterface | PrepareError::KernelsTcp => {
                io::Error::new(io::ErrorKind::InvalidInput, text)
            }
            PrepareError::Capture { error, .. } => io::Error::new(error.kind(), text),
        }
    }
}

/// Transports for several threads, as far as they can be prepared before these start: what is
/// missing is known before anything is sent.
#[derive(Debug)]
pub struct Prepared {
    /// One for each thread. An interface may have fewer queues than threads were wanted.
    pub transports: Vec<Unopened>,
    /// For a server's [`Io::Xdp`]: its addresses, with the chosen ports in place of 0.
    pub listen: Option<Vec<SocketAddr>>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The file that packets are recorded in.
    pub capture: Option<Arc<PcapFile>>,
}

impl IoOptions {
    /// Prepares transports for `threads` threads. `steer` says which packets user-space TCP takes.
    ///
    /// # Errors
    /// An option does not suit the transport, or something is missing or in the way.
    pub fn prepare(&self, threads: usize, steer: impl FnOnce() -> Steer) -> Result<Prepared, PrepareError> {
        if !self.io.is_user_space() {
            if self.pcap_out.is_some() || self.fault.is_some() {
                return Err(PrepareError::KernelsTcp);
            }
            let kind = || if self.io == Io::Uring { TransportKind::Uring } else { TransportKind::Epoll };
            let transports = (0..threads).map(|_| Unopened(kind())).collect();
            return Ok(Prepared { transports, listen: None, notes: Vec::new(), capture: None });
        }
        let interface = self.interface.clone().ok_or(PrepareError::NoInterface)?;
        let options =
            XdpOptions { threads, busy_poll: self.busy_poll, ..XdpOptions::new(interface, steer()) };
        let opened = xdp::open(&options)?;
        let capture = self.pcap_out.as_deref().map(create).transpose()?;
        let over = Middlewares { fault: self.fault, pcap: capture.clone() };
        let kind = |(index, link)| TransportKind::Xdp { link: Box::new(link), over: over.clone(), index };
        let transports = opened.links.into_iter().enumerate().map(kind).map(Unopened).collect();
        Ok(Prepared { transports, listen: Some(opened.listen), notes: opened.notes, capture })
    }
}

fn create(path: &Path) -> Result<Arc<PcapFile>, PrepareError> {
    let created = PcapFile::create(path, pcap::FILE_BYTES, machine::wall_offset_ns());
    created.map_err(|error| PrepareError::Capture { path: path.to_owned(), error })
}

/// The transport of one thread, which opens it itself.
#[derive(Debug)]
pub struct Unopened(TransportKind);

#[derive(Debug)]
enum TransportKind {
    Epoll,
    Uring,
    /// The link is open. `index`: which of the interface's links it is.
    Xdp {
        link: Box<Xdp>,
        over: Middlewares,
        index: usize,
    },
}

/// A thread's use of its transport, of whichever kind. A trait, because a closure cannot be
/// generic over the transport.
pub trait UseTransport {
    /// Its result.
    type Output;

    /// Uses the transport.
    fn with<T: Transport>(self, transport: T) -> Self::Output;
}

/// Options of a thread's transport.
#[derive(Clone, Debug, Default)]
pub struct ThreadOptions {
    /// The limits that every transport has.
    pub limits: TransportLimits,
    /// For user-space TCP: our own addresses, as [`StackOptions::addresses`].
    pub addresses: Vec<IpAddr>,
}

impl Unopened {
    /// For user-space TCP: looks for the way to these peers, without which the first packets would
    /// be lost.
    ///
    /// # Errors
    /// No way was found in time.
    pub fn look_for(&mut self, peers: &[IpAddr]) -> Result<(), XdpError> {
        match &mut self.0 {
            TransportKind::Xdp { link, .. } => link.look_for(peers),
            TransportKind::Epoll | TransportKind::Uring => Ok(()),
        }
    }

    /// The kernel's own name for it, for messages.
    pub fn kernel_name(&self) -> &'static str {
        match self.0 {
            TransportKind::Epoll => "epoll",
            TransportKind::Uring => "io_uring",
            TransportKind::Xdp { .. } => "AF_XDP",
        }
    }

    /// Opens the transport, and passes it to `user`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open<U: UseTransport>(self, options: ThreadOptions, user: U) -> io::Result<U::Output> {
        match self.0 {
            TransportKind::Epoll => Ok(user.with(Epoll::with_limits(options.limits)?)),
            TransportKind::Uring => Ok(user.with(Uring::with_limits(options.limits)?)),
            TransportKind::Xdp { link, over, .. } if over.is_nothing() => {
                Ok(user.with(Stack::new(*link, of_this_machine(options))))
            }
            TransportKind::Xdp { link, over, index } => {
                Ok(user.with(Stack::new(over.over(*link, index), of_this_machine(options))))
            }
        }
    }
}

/// Sequence numbers of a later process continue where this one ends.
fn of_this_machine(options: ThreadOptions) -> StackOptions {
    StackOptions {
        addresses: options.addresses,
        limits: options.limits,
        host: HostSecret::of_this_machine(),
        ecn: UseOfEcn::of_this_machine(),
        ..StackOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name;

    impl UseTransport for Name {
        type Output = &'static str;

        fn with<T: Transport>(self, _: T) -> &'static str {
            std::any::type_name::<T>()
        }
    }

    fn nowhere() -> Steer {
        Steer::From(Vec::new())
    }

    #[test]
    fn names_are_read_back() {
        for io in Io::ALL {
            assert_eq!(io.name().parse(), Ok(io));
        }
        let error = "carrier-pigeon".parse::<Io>().expect_err("unknown");
        assert!(error.ends_with("known are auto, epoll, uring, xdp"), "{error}");
    }

    #[test]
    fn each_thread_has_a_transport() {
        let prepared = IoOptions::default().prepare(3, nowhere).expect("the kernel has epoll");
        assert_eq!(prepared.transports.len(), 3);
        for unopened in prepared.transports {
            let opened = unopened.open(ThreadOptions::default(), Name).expect("the kernel has epoll");
            assert!(opened.ends_with("Epoll"), "{opened}");
        }
    }

    #[test]
    fn options_of_the_other_tcp_are_errors() {
        let fault = IoOptions { fault: Some(FaultOptions::default()), ..IoOptions::default() };
        let error = fault.prepare(1, nowhere).expect_err("the kernel's TCP");
        assert!(matches!(error, PrepareError::KernelsTcp), "{error}");
        let nameless = IoOptions { io: Io::Xdp, ..IoOptions::default() };
        let error = nameless.prepare(1, nowhere).expect_err("no interface");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
}
