//! How connections get to the target: what goes over them before HTTP begins, and which addresses they go to.
//!
//! * `preamble`: CONNECT to a proxy, and the line of the PROXY protocol. Sans-IO.
//! * `layer`: both, and TLS above them, over any transport.
//! * `names`: addresses, and looking a name up again when none of them can be reached.

pub mod fuzz;
mod layer;
mod names;
mod preamble;

pub(crate) use layer::{RouteLayer, RouteSession, RouteTo};
pub(crate) use names::{Addresses, Names};
