//! HTTP/1.1: bytes to messages and back, both ends, sans-IO: no socket, no clock, no allocation per message on the
//! paths that repeat. Useful alone.
#![forbid(unsafe_code)]

pub mod client;
pub mod server;
