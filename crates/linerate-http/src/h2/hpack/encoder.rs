//! Fields to field blocks, without a dynamic table and without Huffman codes.

use super::table::{self, StaticMatch};
use crate::fields::put_integer;

/// Appends a whole field: as an entry of the static table if it is one, otherwise as a literal
/// without indexing (RFC 7541, section 6.2.2).
pub fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if let StaticMatch::Both(index) = table::find(name, value) {
        return put_integer(u64::from(index), 7, 0x80, out);
    }
    field_name(name, out);
    length(value.len(), out);
    out.extend_from_slice(value);
}

/// Appends the beginning of a literal without indexing: its name. Its value has to follow.
pub(crate) fn field_name(name: &[u8], out: &mut Vec<u8>) {
    match table::find(name, b"") {
        StaticMatch::Both(index) | StaticMatch::Name(index) => put_integer(u64::from(index), 4, 0, out),
        StaticMatch::Nothing => {
            out.push(0);
            length(name.len(), out);
            out.extend_from_slice(name);
        }
    }
}

/// Appends the length of a string that follows as it is.
#[inline]
pub(crate) fn length(len: usize, out: &mut Vec<u8>) {
    put_integer(len as u64, 7, 0, out);
}

/// Appends the update that gives the dynamic table no room (RFC 7541, section 6.3).
pub(crate) fn shrink(out: &mut Vec<u8>) {
    out.push(0x20);
}
