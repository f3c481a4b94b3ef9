//! Fields to field sections, without a dynamic table and without Huffman codes.

use super::table;
use crate::fields::put_integer;

/// Appends the prefix of a field section that uses no dynamic table (RFC 9204, section 4.5.1). Its
/// fields have to follow.
pub fn section_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field line: as an entry of the static table if it is one, otherwise as a literal
/// (RFC 9204, sections 4.5.2, 4.5.4 and 4.5.6). The name is in lower case.
pub fn field_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match table::find(name, value) {
        Some((index, true)) => return put_integer(index as u64, 6, 0xc0, out),
        named => put_name(named.map(|(index, _)| index), name, out),
    }
    put_integer(value.len() as u64, 7, 0, out);
    out.extend_from_slice(value);
}

/// Appends the beginning of a literal field line: its name, in lower case. Its value has to follow,
/// as [`length`](crate::h2::length) begins it.
pub(crate) fn field_line_name(name: &[u8], out: &mut Vec<u8>) {
    put_name(table::find(name, b"").map(|(index, _)| index), name, out);
}

fn put_name(index: Option<usize>, name: &[u8], out: &mut Vec<u8>) {
    match index {
        Some(index) => put_integer(index as u64, 4, 0x50, out),
        None => {
            put_integer(name.len() as u64, 3, 0x20, out);
            out.extend_from_slice(name);
        }
    }
}
