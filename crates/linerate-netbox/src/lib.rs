//! A test network for kernels without netem: two namespaces, each with one interface, and between
//! them a box that delays, loses, duplicates, reorders and throttles their frames.
//!
//! ```no_run
//! use std::time::Duration;
//! use linerate_netbox::{NetBox, LinkDirection};
//!
//! let net = NetBox::builder()
//!     .delay(Duration::from_millis(20))
//!     .loss(0.01)
//!     .drop_frames(LinkDirection::Up, "syn=1".parse()?)
//!     .start()?;
//! let listener = net.server().run(|| std::net::TcpListener::bind("10.99.2.1:80"))??;
//! let stream = net.client().run(|| std::net::TcpStream::connect("10.99.2.1:80"))??;
//! # drop((listener, stream));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The namespaces have no names. Only processes and open files hold them, so that a killed test
//! leaves nothing behind. The logic ([`Conditions`], the queue, [`DropRule`]) does no I/O and runs in
//! virtual time; one thread relays. Interfaces are TAPs without offloads: each frame that the box
//! sees is one segment with a complete checksum.
#![forbid(unsafe_code)]

mod conditions;
mod error;
pub mod limits;
mod line;
mod namespace;
mod netbox;
mod packet;
mod queue;
mod relay;
mod reply;
mod rule;
pub mod values;

pub use conditions::{Conditions, ConditionsError};
pub use error::NetBoxError;
pub use line::{LineShape, NAMED, ParseShapeError};
pub use namespace::{CLIENT_IP, INTERFACE, Namespace, NamespaceProcess, SERVER_IP};
pub use netbox::{LinkDirection, NetBox, NetboxBuilder, NetboxReport};
pub use queue::FrameCounts;
pub use rule::{DropRule, ParseRuleError};
