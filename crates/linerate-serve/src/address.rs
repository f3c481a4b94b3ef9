//! Addresses that a server listens on.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// An address that a server listens on: TCP, or a path of the file system.
///
/// It is written and parsed as `127.0.0.1:80` or `unix:/run/app.sock`.
///
/// ```
/// use linerate_serve::Address;
///
/// assert!("127.0.0.1:0".parse::<Address>()?.is_open());
/// assert_eq!("unix:/run/app.sock".parse::<Address>()?.tcp(), None);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP, over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix socket. Clients of such a socket have no address of their own.
    Unix(Arc<Path>),
}

impl Address {
    /// The TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(at) => Some(*at),
            Address::Unix(_) => None,
        }
    }

    /// Whether the kernel still has to choose the port.
    pub fn is_open(&self) -> bool {
        self.tcp().is_some_and(|at| at.port() == 0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(at) => at.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Address, AddrParseError> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Address::Unix(Path::new(path).into())),
            None => text.parse().map(Address::Tcp),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Address {
        Address::Tcp(at)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Address {
        Address::Unix(path.into())
    }
}

impl PartialEq<SocketAddr> for Address {
    fn eq(&self, other: &SocketAddr) -> bool {
        self.tcp() == Some(*other)
    }
}
