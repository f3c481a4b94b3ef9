//! How connections get to a server: by which proxy, and what goes over them before HTTP begins.
//!
//! * `proxy`: which proxy a URL's connections take, by its text or the variables of the environment.
//! * `no_proxy`: which hosts go without one.
//! * `preamble`: CONNECT to a proxy, and the line of the PROXY protocol. Sans-IO.
//! * `layer`: that and TLS above it, over any transport.

mod layer;
pub mod no_proxy;
mod preamble;
mod proxy;

pub use layer::{BY_QUIC, ROUTED, RouteLayer, RouteSession};
pub use preamble::{HaproxyVersion, Preamble, ProxySilence};
pub use proxy::{NamedProxy, Proxy, ProxyProblem, authority, decode_percent};
