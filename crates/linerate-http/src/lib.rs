//! HTTP/1.1, HTTP/2 and HTTP/3, sans-IO: bytes to messages and back, without sockets or clocks. Repeated messages cause no allocation. Useful
//! alone.
#![forbid(unsafe_code)]

pub mod client;
mod fields;
pub mod h2;
pub mod h3;
mod reset;
pub mod server;

pub use reset::ResetCode;
