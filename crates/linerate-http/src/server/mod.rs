//! The server's side: parses requests strictly and writes exact responses.
//!
//! [`HeadReader`] finds a request's head in received bytes, and [`BodyReader`] its body.
//! [`AnswerHead`] (by [`HeadWriter`]), [`write_chunk`] and [`write_last_chunk`] write the response.
//! All of it is sans-IO: bytes in, bytes out, independent of how they are cut.
//!
//! It is strict wherever laxness would let an attacker smuggle a request past another server (RFC
//! 9112 section 11.2). [`RequestFault`] lists what is refused, with which status and by which section.
//!
//! ```
//! use linerate_http::server::{BodyReader, HeadReader, RequestLimits, Method};
//!
//! let received = b"POST /items HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";
//! let limits = RequestLimits::default();
//! let (head, length) = HeadReader::new(limits).read(received, 0)?.expect("a whole head");
//! assert_eq!((head.method(), head.path()), (Method::Post, "/items"));
//! let rest = &received[length..];
//! let step = BodyReader::new(head.framing(), &limits)?.step(rest)?;
//! assert_eq!((&rest[step.data], step.ended), (&b"ok"[..], true));
//! # Ok::<(), linerate_http::server::RequestFault>(())
//! ```

mod body;
mod bytes;
mod date;
mod fault;
#[doc(hidden)]
pub mod fuzz;
mod head;
mod head_writer;
mod limits;
mod reader;
mod target;
mod writer;

#[cfg(test)]
mod tests;

pub use body::{BodyReader, BodyStep};
pub(crate) use bytes::is_token;
pub use bytes::{push_decimal, push_hex};
pub use date::HttpDate;
pub use fault::RequestFault;
pub use head::{Framing, Method, RequestHead, Version};
pub use head_writer::HeadWriter;
pub use limits::RequestLimits;
pub use reader::HeadReader;
pub use target::Form;
pub use writer::{
    AnswerFraming, AnswerHead, BadField, CheckedFields, Persistence, reason, write_chunk, write_interim,
    write_last_chunk,
};
