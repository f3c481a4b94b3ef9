//! HTTP clients, sans-IO: a protocol behind one trait ([`Conversation`]), and the [`Pool`] that opens connections,
//! hands them requests, and decides what becomes of requests whose connection is lost.

mod any;
#[cfg(feature = "client")]
pub mod client;
mod conversation;
mod failure;
mod h1;
mod h2;
#[cfg(feature = "quic")]
mod h3;
mod limits;
mod pool;
#[cfg(feature = "quic")]
mod quic;
pub mod route;
mod stamp;

pub use any::{Any, AnyShared, Speaks};
pub use conversation::{
    Alike, BodyPart, Conversation, Facts, Fate, Out, ProtocolRefused, Requests, Responses, Settle, Settled,
    TransportWire, Turn, Whole, Whose,
};
pub use failure::Failure;
pub use h1::H1;
pub use h2::{H2, H2Shared};
#[cfg(feature = "quic")]
pub use h3::{H3, H3Shared};
pub use pool::{
    Expired, Learnt, Loss, LostConnection, Opening, Pool, PoolAction, PoolOptions, PoolReceived,
    PooledConnection, RequestsEnd, Resend, connect_failure, connect_words, settle,
};
#[cfg(feature = "quic")]
pub use quic::{QuicTotals, QuicTransport, QuicWay};
pub use stamp::Stamp;

/// Requests that were sent together.
pub type Run = linerate_http::client::Run<Stamp>;
