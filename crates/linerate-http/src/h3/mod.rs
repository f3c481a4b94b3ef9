//! HTTP/3 (RFC 9114), sans-IO: the frames of its streams, settings, and QPACK (RFC 9204).
//!
//! QUIC's streams are somebody else's: [`H3FrameReader`] takes the bytes of one stream in pieces of
//! any size, and the functions `put_*` append to what a stream carries.
//!
//! ```
//! use linerate_http::h3::{self, H3FrameReader, H3Piece, QpackDecoder, frame_kind};
//!
//! let mut section = Vec::new();
//! h3::section_prefix(&mut section);
//! h3::field_line(b":status", b"200", &mut section);
//! let mut stream = Vec::new();
//! h3::put_frame(frame_kind::HEADERS, &section, &mut stream);
//! h3::put_data_head(5, &mut stream);
//! stream.extend_from_slice(b"hello");
//!
//! let mut reader = H3FrameReader::of_requests(1 << 16);
//! let mut input = &stream[..];
//! let Ok(Some(H3Piece::Frame(frame_kind::HEADERS, section))) = reader.next(&mut input) else { panic!() };
//! let mut fields = Vec::new();
//! let mut decoder = QpackDecoder::new(0);
//! decoder.decode(0, section, 1 << 16, |name, value| fields.push((name.to_vec(), value.to_vec())))?;
//! assert_eq!(fields, [(b":status".to_vec(), b"200".to_vec())]);
//! let Ok(Some(H3Piece::Data(content))) = reader.next(&mut input) else { panic!() };
//! assert_eq!(content, b"hello");
//! # Ok::<(), h3::QpackError>(())
//! ```

mod client;
#[cfg(test)]
mod client_tests;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod peer_streams;
mod qpack;
mod reader;
pub mod server;
mod settings;
#[cfg(test)]
mod tests;
mod varint;

use crate::client::StreamFieldCoding;
pub use client::H3Client;
pub use error::{H3Code, H3Error};
pub use frame::{frame_kind, put_data_head, put_frame, put_go_away, stream_kind};
pub use peer_streams::{H3ControlEvent, H3PeerStreams};
pub use qpack::{QpackDecoder, QpackError, QpackSection, field_line, section_prefix};
pub use reader::{H3FrameReader, H3Piece};
pub use settings::H3Settings;
pub use varint::{put_varint, varint};

/// How HTTP/3 encodes fields, without a dynamic table (RFC 9204).
pub const QPACK: StreamFieldCoding =
    StreamFieldCoding { prefix: section_prefix, line: field_line, name: qpack::field_line_name };
