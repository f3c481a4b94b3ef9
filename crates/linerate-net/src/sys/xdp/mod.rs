//! AF_XDP: packets past the kernel's stack, straight between a receive queue of a network card and this process.
//!
//! A queue's socket shares memory with the kernel ([`Umem`]), cut into frames. Each frame is at any time in one place: free for
//! sending, in one of the four rings, or lent to a closure. A [`Frame`] is the right to touch one: it cannot be copied, so what was
//! given to the kernel cannot be touched meanwhile.

mod bpf;
mod ethtool;
mod netlink;
mod ring;
mod socket;
mod umem;

pub(crate) use bpf::{Attachment, Mode, Program, XskMap, memory_limit_raised};
pub(crate) use ethtool::{is_software, is_veth, receive_queues};
pub(crate) use netlink::join_group;
pub(crate) use socket::{Config, HEADROOM, QueueSocket, SOCKETS_PER_WAIT, wait_any};
use umem::{Frame, Umem};
