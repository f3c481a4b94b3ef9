//! HTTP/3 (RFC 9114), sans-IO: QPACK (RFC 9204).

mod qpack;

pub use qpack::{QpackDecoder, QpackError, QpackSection, field_line, section_prefix};
