//! AF_XDP: packets that bypass the kernel's stack, between a receive queue of a network card and
//! this process.
//!
//! A queue's socket shares memory with the kernel ([`Umem`]), cut into frames. At any time a frame
//! is in one place: free for sending, in one of the four rings, or lent to a closure. A [`Frame`]
//! is the right to touch one. It cannot be copied, so a frame given to the kernel cannot be touched
//! meanwhile.

mod bpf;
mod ethtool;
mod netlink;
mod ring;
mod socket;
mod umem;

pub(crate) use bpf::{Attachment, BpfMap, MapKind, Mode, Program, memory_limit_raised};
pub(crate) use ethtool::{is_software, is_veth, receive_queues};
pub(crate) use netlink::join_group;
pub(crate) use socket::{
    BoundSocket, Config, HEADROOM, QueueSocket, SOCKETS_PER_WAIT, SocketAbilities, wait_any,
};
use umem::{Frame, Umem};
