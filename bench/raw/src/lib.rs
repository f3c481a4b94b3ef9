//! The ceilings that `linerate load` is compared with: a bare server that must never be the limit,
//! and raw clients that move the same bytes and parse nothing. They share no code with linerate's
//! own crates: otherwise the comparison would prove nothing.

pub mod client;
pub mod epoll;
mod h2;
pub mod h2_client;
pub mod h2_server;
pub mod h3_client;
pub mod h3_server;
mod quic;
pub mod requests;
pub mod ring_server;
pub mod server;
pub mod sys;
pub mod tls_server;
pub mod uring;
mod waiting;

pub use quic::RawDatagramCounts;
