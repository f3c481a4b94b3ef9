//! QPACK (RFC 9204): field sections to fields and back.
//!
//! The encoder uses no dynamic table: a field section means the same on every connection, and is
//! encoded once. The decoder knows all of QPACK. Its owner carries the two streams of instructions:
//! [`QpackDecoder::read_instructions`] takes what comes on the peer's encoder stream, and
//! [`QpackDecoder::instructions`] holds what the decoder stream has to carry back.

mod decoder;
mod encoder;
mod table;
#[cfg(test)]
mod tests;

use crate::fields::CodingError;

pub use decoder::{QpackDecoder, QpackSection};
pub(crate) use encoder::field_line_name;
pub use encoder::{field_line, section_prefix};

/// Why field sections cannot be decoded. It ends the connection (RFC 9204, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QpackError {
    /// A field section ends in the middle of a field.
    #[error("a field section breaks off")]
    Short,
    /// An integer is larger than any that makes sense here.
    #[error("a number in a field section is too large")]
    Integer,
    /// A Huffman code is not valid.
    #[error("a Huffman code in a field section is not valid")]
    Huffman,
    /// An entry that no table has, was evicted, or is newer than the section says that it needs.
    #[error("a field section uses an entry that it cannot use")]
    Index,
    /// The Required Insert Count or the Base makes no sense (RFC 9204, section 4.5.1).
    #[error("the prefix of a field section makes no sense")]
    Prefix,
    /// The fields are too many or too long.
    #[error("a field section decodes to more than {0} bytes")]
    TooLarge(usize),
    /// An instruction of the peer's encoder breaks the rules: in words.
    #[error("the encoder stream {0}")]
    EncoderStream(&'static str),
}

impl From<CodingError> for QpackError {
    fn from(error: CodingError) -> QpackError {
        match error {
            CodingError::Short => QpackError::Short,
            CodingError::Integer => QpackError::Integer,
            CodingError::Huffman => QpackError::Huffman,
            CodingError::TooLong(most) => QpackError::TooLarge(most),
        }
    }
}
