//! HTTP/1.1 and HTTP/2, both ends, and the frames and field sections of HTTP/3, sans-IO: bytes to
//! messages and back, without sockets or clocks. Repeated messages cause no allocation. Useful
//! alone.
#![forbid(unsafe_code)]

pub mod client;
mod fields;
pub mod h2;
pub mod h3;
pub mod server;
