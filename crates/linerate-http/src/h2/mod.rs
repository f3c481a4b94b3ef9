//! HTTP/2 (RFC 9113), sans-IO: frames, field blocks and both ends of a connection.
//!
//! [`Client`] reads what a server sends, in pieces of any size, and reports responses to a
//! [`ResponseSink`]. Requests are written by [`Client::open`] and [`Client::write_data`]; what the protocol
//! itself has to say (acknowledgements, windows) collects until [`Client::take_control`].
//!
//! A response's field block that equals an earlier one is not decoded again
//! ([`BlockCache`]): the client gives the server's table of fields no room, so that equal bytes mean
//! equal fields.
//!
//! The other end is [`server::Server`]. Both in memory, with one request between them:
//!
//! ```
//! use linerate_http::client::Expect;
//! use linerate_http::h2::server::{ClientEvent, Heads, ResponseBlocks, ResponseHead, Server, ServerOptions};
//! use linerate_http::h2::{Client, ClientOptions, field};
//! use linerate_http::server::{CheckedFields, HttpDate, RequestLimits};
//!
//! let mut client = Client::<u32>::new(ClientOptions::default());
//! let mut bytes = std::mem::take(client.take_control());
//! let mut block = Vec::new();
//! for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.example")] {
//!     field(name.as_bytes(), value.as_bytes(), &mut block);
//! }
//! client.open(7, &block, Expect::Usual, true, &mut bytes);
//!
//! let mut heads = Heads::new(RequestLimits::default());
//! let mut server = Server::new(ServerOptions {
//!     streams: 100,
//!     stream_window: 65_535,
//!     connection_window: 1 << 20,
//!     head_list: heads.list_bytes(),
//!     resets_caused: 100,
//!     resets_at_once: 100,
//! });
//! let mut input = &bytes[..];
//! let Some(ClientEvent::Request(request)) = server.next(&mut input, &mut heads) else { panic!("no request") };
//! assert_eq!(request.head.expect("it is good").target(), "/");
//!
//! let mut blocks = ResponseBlocks::default();
//! let head = ResponseHead { status: 200, content_type: None, length: Some(5), fields: &CheckedFields::default() };
//! server.respond(request.stream, blocks.of(&head, &HttpDate::from_unix(0)), false);
//! assert_eq!(server.write_data(request.stream, b"hello", true), 5);
//! assert!(server.out().ends_with(b"hello"));
//! ```

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
pub use client::{Client, ClientOptions, Lost, ResponseSink};
pub use error::{Code, H2Error};
pub use frame::{FRAME_HEAD, FrameHead, PREFACE, flag, kind};
pub use hpack::field;
pub use hpack::{Decoder, HpackError};
pub(crate) use hpack::{field_name, length};
pub use limits::WINDOW;
pub use settings::Settings;
pub use streams::StreamData;
