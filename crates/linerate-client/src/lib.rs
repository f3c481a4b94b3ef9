//! HTTP clients, sans-IO: a protocol behind one trait ([`Conversation`]), and the [`Pool`] that opens connections,
//! hands them requests, and decides what becomes of requests whose connection is lost.

#[cfg(feature = "client")]
pub mod client;
mod conversation;
mod failure;
mod h1;
mod limits;
mod pool;
mod stamp;

pub use conversation::{
    Alike, Conversation, Fate, Out, Requests, Responses, Settle, Settled, Turn, Whole, Whose, Wire,
};
pub use failure::Failure;
pub use h1::H1;
pub use pool::{
    Connection, Expired, Learnt, Loss, Lost, Next, Opening, Pool, PoolOptions, Received, Resend,
    connect_failure, connect_words, settle,
};
pub use stamp::Stamp;

/// Requests that were sent together.
pub type Run = linerate_http::client::Run<Stamp>;
