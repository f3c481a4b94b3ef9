//! HTTP/1.1 and HTTP/2, both ends, sans-IO: bytes to messages and back, without sockets or clocks. Repeated
//! messages cause no allocation. Useful alone.
#![forbid(unsafe_code)]

pub mod client;
mod fields;
pub mod h2;
pub mod server;
