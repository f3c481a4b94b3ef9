//! The 4-tuple that identifies a connection.

use std::net::SocketAddr;

use super::wire::{Addr, Packet};
use crate::keyed::Key;

/// Both ends of a connection, seen from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tuple {
    pub(crate) local: Addr,
    pub(crate) remote: Addr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Tuple {
    /// The connection that a received packet belongs to.
    pub(crate) fn of(packet: &Packet) -> Tuple {
        Tuple {
            local: packet.dst,
            remote: packet.src,
            local_port: packet.tcp.dst_port,
            remote_port: packet.tcp.src_port,
        }
    }

    pub(crate) fn own(&self) -> SocketAddr {
        SocketAddr::new(self.local.ip(), self.local_port)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.remote.ip(), self.remote_port)
    }

    pub(crate) fn hash(&self, key: Key) -> u64 {
        let [a, b] = self.local.words();
        let [c, d] = self.remote.words();
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        // The first half of a mapped address is constant.
        if self.local.is_v4() { key.hash([b, d, ports]) } else { key.hash([a, b, c, d, ports]) }
    }

    /// Hash of the addresses alone.
    pub(crate) fn hash_hosts(&self, key: Key) -> u64 {
        let [a, b] = self.local.words();
        let [c, d] = self.remote.words();
        key.hash([a, b, c, d])
    }
}
