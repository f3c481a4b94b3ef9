//! HPACK (RFC 7541): field blocks to fields and back.
//!
//! The encoder uses no dynamic table: a field block means the same on every connection, and is
//! encoded once. The decoder knows all of HPACK, because a server may use it before it has read
//! our settings.

mod decoder;
mod encoder;
mod table;
#[cfg(test)]
mod tests;

use crate::fields::CodingError;

pub use decoder::Decoder;
pub use encoder::field;
pub(crate) use encoder::{field_name, length, shrink};

/// A field block that cannot be decoded. It ends the connection, because the state of the tables is
/// lost (RFC 9113, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// It ends in the middle of a field.
    #[error("a field block breaks off")]
    Short,
    /// An integer is larger than any that makes sense here.
    #[error("a number in a field block is too large")]
    Integer,
    /// A Huffman code is not valid.
    #[error("a Huffman code in a field block is not valid")]
    Huffman,
    /// No table has an entry of this number.
    #[error("a field block uses entry {0}, which no table has")]
    Index(u32),
    /// The dynamic table may not become so large, or not in the middle of a block.
    #[error("a field block changes the dynamic table's size as it must not")]
    Size,
    /// The fields are too many or too long.
    #[error("a field block decodes to more than {0} bytes")]
    TooLarge(usize),
}

impl From<CodingError> for HpackError {
    fn from(error: CodingError) -> HpackError {
        match error {
            CodingError::Short => HpackError::Short,
            CodingError::Integer => HpackError::Integer,
            CodingError::Huffman => HpackError::Huffman,
            CodingError::TooLong(most) => HpackError::TooLarge(most),
        }
    }
}
