//! Field blocks to fields.

use super::HpackError;
use super::table::STATIC;
use crate::fields::{DynamicTable, ENTRY_COST, integer, string};

/// The receiving end of a connection's field blocks.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The largest size that the peer may give the table.
    limit: usize,
    /// A literal: its name, then its value.
    literal: Vec<u8>,
    /// Blocks came before that were not seen: the table has entries that are not known.
    is_blind: bool,
    /// How often the table was changed.
    changes: u64,
}

/// The table's size before any update (RFC 9113, section 6.5.2).
const FIRST_SIZE: usize = 4096;

impl Default for Decoder {
    fn default() -> Self {
        Decoder::of_table(FIRST_SIZE, FIRST_SIZE, false)
    }
}

impl Decoder {
    fn of_table(size: usize, limit: usize, is_blind: bool) -> Decoder {
        Decoder { table: DynamicTable::new(size), limit, literal: Vec::new(), is_blind, changes: 0 }
    }

    /// For an observer: the table may have up to `most` bytes, whatever was announced. `is_blind`:
    /// the first blocks were not seen. A field that refers to one of them then has an empty name,
    /// or an empty value too, which no field that was sent has.
    pub fn of_observer(most: usize, is_blind: bool) -> Decoder {
        let size = if is_blind { most } else { FIRST_SIZE };
        Decoder::of_table(size, most, is_blind)
    }

    /// Bytes of the table's entries, as HPACK counts them: 32 more than its own for each.
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The peer has acknowledged this size of the table.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.table.most() > limit {
            self.changes += 1;
            self.table.set_most(limit);
        }
    }

    /// As if we had announced a table of this size.
    #[cfg(test)]
    pub(super) fn limit_for_test(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Whether a block means the same whatever blocks came before, because the dynamic table has no
    /// room.
    #[inline]
    pub fn is_stateless(&self) -> bool {
        self.table.most() == 0
    }

    /// Decodes a whole block, field by field: name and value. They may count `most` bytes, each
    /// field `ENTRY_COST` (32, RFC 7541 section 4.1) more than its own.
    ///
    /// # Errors
    /// The block breaks the rules, or is larger. The tables are lost then.
    pub fn decode(
        &mut self,
        block: &[u8],
        most: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut size = 0;
        self.each_field(block, most, |name, value| {
            size += name.len() + value.len() + ENTRY_COST;
            if size > most {
                return Err(HpackError::TooLarge(most));
            }
            each(name, value);
            Ok(())
        })
    }

    /// The same for a block that may be larger: the fields beyond `most` bytes are dropped, and the
    /// tables stay in step. Returns whether all fields fit.
    ///
    /// # Errors
    /// The block breaks the rules. The tables are lost then.
    pub(in crate::h2) fn decode_some(
        &mut self,
        block: &[u8],
        most: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool, HpackError> {
        let mut size = 0usize;
        self.each_field(block, usize::MAX, |name, value| {
            size = size.saturating_add(name.len() + value.len() + ENTRY_COST);
            if size <= most {
                each(name, value);
            }
            Ok(())
        })?;
        Ok(size <= most)
    }

    /// How often the table was changed: a block means the same as long as this stays.
    #[inline]
    pub(in crate::h2) fn changes(&self) -> u64 {
        self.changes
    }

    /// `longest`: bytes of a string.
    fn each_field(
        &mut self,
        block: &[u8],
        longest: usize,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), HpackError>,
    ) -> Result<(), HpackError> {
        let mut input = block;
        let mut in_fields = false;
        while let Some(first) = input.first().copied() {
            if first & 0xe0 == 0x20 {
                if in_fields {
                    return Err(HpackError::Size);
                }
                self.read_size(&mut input)?;
                continue;
            }
            in_fields = true;
            if first & 0x80 != 0 {
                let (name, value) = entry(&self.table, integer(&mut input, 7)?, self.is_blind)?;
                each(name, value)?;
                continue;
            }
            let indexing = first & 0x40 != 0;
            let name_len = self.read_literal(&mut input, if indexing { 6 } else { 4 }, longest)?;
            let (name, value) = self.literal.split_at(name_len);
            each(name, value)?;
            if indexing {
                self.changes += 1;
                self.table.add(name_len, &self.literal);
            }
        }
        Ok(())
    }

    /// Reads the updates of the table's size at the beginning of a block, whose fields are dropped. If the
    /// table has room then, the fields may have added entries to it that later blocks need.
    ///
    /// # Errors
    /// The updates break the rules.
    pub(in crate::h2) fn read_sizes(&mut self, block: &[u8]) -> Result<(), HpackError> {
        let mut input = block;
        while input.first().is_some_and(|first| first & 0xe0 == 0x20) {
            self.read_size(&mut input)?;
        }
        Ok(())
    }

    /// Reads an update of the table's size.
    fn read_size(&mut self, input: &mut &[u8]) -> Result<(), HpackError> {
        let wanted = integer(input, 5)? as usize;
        if wanted > self.limit {
            return Err(HpackError::Size);
        }
        self.changes += 1;
        self.table.set_most(wanted);
        // An empty table has nothing that is not known.
        self.is_blind &= wanted > 0;
        Ok(())
    }

    /// Reads a literal into `literal`; the length of its name.
    fn read_literal(&mut self, input: &mut &[u8], prefix: u32, most: usize) -> Result<usize, HpackError> {
        self.literal.clear();
        match integer(input, prefix)? {
            0 => string(input, 7, most, &mut self.literal)?,
            index => self.literal.extend_from_slice(entry(&self.table, index, self.is_blind)?.0),
        }
        let name_len = self.literal.len();
        string(input, 7, most, &mut self.literal)?;
        Ok(name_len)
    }
}

/// The field with this number in both tables.
fn entry(table: &DynamicTable, index: u64, is_blind: bool) -> Result<(&[u8], &[u8]), HpackError> {
    let none = HpackError::Index(index as u32);
    let number = (index as usize).checked_sub(1).ok_or(none)?;
    match STATIC.get(number) {
        Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
        None => match table.get(number - STATIC.len()) {
            None if is_blind => Ok((b"", b"")),
            known => known.ok_or(none),
        },
    }
}
