//! The ceilings that `linerate load` is held against: a bare server that must never be the limit, and raw clients that
//! move the same bytes and parse nothing. Kept apart from linerate's own crates on purpose: a ceiling that shares code
//! with what is measured against it proves nothing.

pub mod client;
pub mod epoll;
pub mod requests;
pub mod ring_server;
pub mod server;
pub mod sys;
pub mod uring;
mod waiting;
