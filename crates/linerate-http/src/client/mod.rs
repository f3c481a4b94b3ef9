//! The client's side: renders requests from templates, parses responses, and matches each with its request.
//!
//! ```
//! use linerate_http::client::{Expect, HeadCache, ResponseLimits, ResponsePart, ResponseReader};
//!
//! let mut cache = HeadCache::new();
//! let mut reader = ResponseReader::new(ResponseLimits::default());
//! let mut input: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
//! let mut body = Vec::new();
//! while let Some(part) = reader.next(&mut cache, &mut input, Expect::Usual)? {
//!     match part {
//!         ResponsePart::Body(bytes) => body.extend_from_slice(bytes),
//!         ResponsePart::End(end) => assert_eq!((end.status, end.reusable), (200, true)),
//!         _ => {}
//!     }
//! }
//! assert_eq!(body, b"ok");
//! // The same head again: taken whole, without parsing.
//! let mut input: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
//! assert_eq!(reader.take_same(&mut cache, &mut input, u32::MAX), 2);
//! # Ok::<(), linerate_http::client::ResponseError>(())
//! ```

mod alt_svc;
mod body;
mod cache;
mod chunked;
mod error;
mod fill;
mod flaws;
mod framing;
#[doc(hidden)]
pub mod fuzz;
mod head;
mod limits;
mod parse;
mod pipeline;
mod reference;
mod request;
mod response;
mod scan;
mod slot_parser;
mod slots;
mod spec;
mod streamed;
mod template;

pub use alt_svc::{ALT_SERVICES, ALT_SVC_BYTES, AltService, AltServices, alt_services};
pub use body::{Body, BodyPart};
pub use cache::HeadCache;
pub use error::{FaultySide, ResponseError, ResponseErrorKind, Speaks};
pub use flaws::{HeadFlaw, HeadFlaws};
pub use framing::{Expect, FramingDoubt};
pub use head::{Fields, HeadView};
pub use limits::ResponseLimits;
pub use pipeline::{Pipeline, Run, TagMatch};
pub use reference::{resolve_path, split_scheme};
pub use request::{Rendered, RequestPart, RequestSpec, TemplateError, Values};
pub use response::{CompleteResponse, ResponsePart, ResponseReader};
pub use streamed::{StreamFieldCoding, StreamTemplate};
pub use template::{CellError, Template};
