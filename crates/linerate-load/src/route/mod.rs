//! How connections get to the target: what goes over them before HTTP begins, and which addresses they go to.
//!
//! * `layer`: a proxy's tunnel, the line of the PROXY protocol, and TLS above both, as the plan has them.
//! * `names`: addresses, and looking a name up again when none of them can be reached.

pub mod fuzz;
mod layer;
mod names;

pub(crate) use layer::RouteTo;
pub(crate) use linerate_client::route::{RouteLayer, RouteSession};
pub(crate) use names::{Addresses, Names};
