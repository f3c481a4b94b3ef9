//! HTTP/2 (RFC 9113), sans-IO: frames, field blocks and the client's end of a connection.
//!
//! [`Client`] reads what a server sends, in pieces of any size, and reports responses to a
//! [`Sink`]. Requests are written by [`Client::open`] and [`Client::write_data`]; what the protocol
//! itself has to say (acknowledgements, windows) collects until [`Client::take_control`].
//!
//! A response's field block that equals an earlier one is not decoded again
//! ([`BlockCache`]): the client gives the server's table of fields no room, so that equal bytes mean
//! equal fields.

mod block;
mod client;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod hpack;
mod limits;
mod reader;
pub mod server;
mod settings;
mod streams;
#[cfg(test)]
mod tests;

pub use block::{Block, BlockCache};
pub use client::{Client, ClientOptions, Lost, Sink};
pub use error::{Code, H2Error};
pub use frame::{FRAME_HEAD, FrameHead, PREFACE, flag, kind};
pub use hpack::field;
pub use hpack::{Decoder, HpackError};
pub(crate) use hpack::{field_name, length};
pub use limits::WINDOW;
pub use settings::Settings;
pub use streams::Kept;
