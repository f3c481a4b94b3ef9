//! Field sections to fields.

use super::QpackError;
use super::table::STATIC;
use crate::fields::{CodingError, DynamicTable, ENTRY_COST, integer, integer_up_to, put_integer, string};

/// The largest Required Insert Count. Reason: a peer cannot insert more entries than this in the life
/// of a connection, and sums of it do not overflow.
const MOST_INSERTS: u64 = 1 << 48;

/// The receiving end of a connection's field sections.
#[derive(Debug)]
pub struct QpackDecoder {
    table: DynamicTable,
    /// The largest capacity that we announced, bytes.
    most_capacity: usize,
    /// An instruction of the peer's encoder whose rest has not come.
    carry: Vec<u8>,
    /// A literal: its name, then its value.
    literal: Vec<u8>,
    /// Inserts that the peer's encoder knows that we have (RFC 9204, section 2.1.4).
    known_inserts: u64,
    /// Instructions for the decoder stream.
    out: Vec<u8>,
}

/// What became of a field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpackSection {
    /// Its fields were handed over.
    Whole,
    /// It needs entries that have not come: decode it again once [`QpackDecoder::inserts`] has reached
    /// this number.
    Blocked(u64),
}

impl QpackDecoder {
    /// `most_capacity`: the `SETTINGS_QPACK_MAX_TABLE_CAPACITY` that we announce, bytes.
    pub fn new(most_capacity: usize) -> QpackDecoder {
        QpackDecoder {
            table: DynamicTable::default(),
            most_capacity,
            carry: Vec::new(),
            literal: Vec::new(),
            known_inserts: 0,
            out: Vec::new(),
        }
    }

    /// Entries that the peer has ever inserted.
    pub fn inserts(&self) -> u64 {
        self.table.inserts()
    }

    /// Bytes of the table's entries, as QPACK counts them: 32 more than its own for each. Never more
    /// than the capacity that we announced.
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Instructions for the decoder stream. The owner sends and empties them. The peer decides how
    /// fast they grow, so that an owner whose decoder stream is held up must stop to read.
    pub fn instructions(&mut self) -> &mut Vec<u8> {
        let inserts = self.table.inserts();
        if inserts > self.known_inserts {
            // Insert Count Increment (RFC 9204, section 4.4.3).
            put_integer(inserts - self.known_inserts, 6, 0, &mut self.out);
            self.known_inserts = inserts;
        }
        &mut self.out
    }

    /// A stream was given up before its field sections were decoded (RFC 9204, section 4.4.2).
    pub fn cancel(&mut self, stream: u64) {
        if self.most_capacity > 0 {
            put_integer(stream, 6, 0x40, &mut self.out);
        }
    }

    /// Takes bytes of the peer's encoder stream, however they are cut.
    ///
    /// # Errors
    /// They break the rules: the connection ends with `QPACK_ENCODER_STREAM_ERROR`.
    pub fn read_instructions(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        let mut carry = std::mem::take(&mut self.carry);
        if carry.is_empty() {
            let rest = self.each_instruction(bytes)?;
            carry.extend_from_slice(rest);
        } else {
            carry.extend_from_slice(bytes);
            let rest = self.each_instruction(&carry)?.len();
            carry.drain(..carry.len() - rest);
        }
        // Two strings and their lengths.
        if carry.len() > 2 * self.most_coded() + 16 {
            return Err(QpackError::EncoderStream("has an entry that is larger than the table"));
        }
        self.carry = carry;
        Ok(())
    }

    /// Bytes of a string as it is coded. Reason: a Huffman code has up to 30 bits.
    fn most_coded(&self) -> usize {
        4 * self.most_capacity
    }

    /// Carries out whole instructions; returns the rest.
    fn each_instruction<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], QpackError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut input = rest;
            match self.instruction(&mut input) {
                Ok(()) => rest = input,
                Err(QpackError::Short) => break,
                Err(QpackError::Integer | QpackError::TooLarge(_)) => {
                    return Err(QpackError::EncoderStream("has a number or string that is too large"));
                }
                Err(QpackError::Huffman) => {
                    return Err(QpackError::EncoderStream("has a Huffman code that is not valid"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rest)
    }

    /// Carries out one instruction (RFC 9204, section 4.3).
    fn instruction(&mut self, input: &mut &[u8]) -> Result<(), QpackError> {
        const NO_ENTRY: QpackError = QpackError::EncoderStream("refers to an entry that no table has");
        let first = input.first().copied().ok_or(QpackError::Short)?;
        self.literal.clear();
        let name_len = match first {
            0x80.. => {
                let index = integer(input, 6)?;
                let name = match first & 0x40 {
                    // Index 0 is the newest (RFC 9204, section 3.2.5).
                    0 => self.table.get(index as usize).ok_or(NO_ENTRY)?.0,
                    _ => STATIC.get(index as usize).ok_or(NO_ENTRY)?.0.as_bytes(),
                };
                self.literal.extend_from_slice(name);
                self.literal.len()
            }
            0x40.. => {
                string(input, 5, self.most_coded(), &mut self.literal)?;
                self.literal.len()
            }
            0x20.. => {
                let capacity = integer(input, 5)? as usize;
                if capacity > self.most_capacity {
                    return Err(QpackError::EncoderStream("sets a capacity above the one announced"));
                }
                self.table.set_most(capacity);
                return Ok(());
            }
            _ => {
                let index = integer(input, 5)? as usize;
                let (name, value) = self.table.get(index).ok_or(NO_ENTRY)?;
                let name_len = name.len();
                self.literal = [name, value].concat();
                return self.insert(name_len);
            }
        };
        string(input, 7, self.most_coded(), &mut self.literal)?;
        self.insert(name_len)
    }

    fn insert(&mut self, name_len: usize) -> Result<(), QpackError> {
        if self.table.add(name_len, &self.literal) {
            return Ok(());
        }
        Err(QpackError::EncoderStream("inserts an entry that is larger than the table"))
    }

    /// Inserts that a field section needs, if they have not come; `None`: it can be decoded now.
    ///
    /// # Errors
    /// What it says of them breaks the rules.
    pub fn waits_for(&self, section: &[u8]) -> Result<Option<u64>, QpackError> {
        let required = self.required_inserts(&mut &section[..])?;
        Ok((required > self.table.inserts()).then_some(required))
    }

    /// Decodes a whole field section of a stream, field by field: name and value. They may count
    /// `most` bytes, each field 32 more than its own.
    ///
    /// # Errors
    /// The section breaks the rules, or is larger. Only [`QpackError::TooLarge`] leaves the connection
    /// usable: field sections do not change the table.
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        most: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<QpackSection, QpackError> {
        let mut input = section;
        let required = self.required_inserts(&mut input)?;
        let base = base(&mut input, required)?;
        if required > self.table.inserts() {
            return Ok(QpackSection::Blocked(required));
        }
        let mut size = 0usize;
        let mut literal = std::mem::take(&mut self.literal);
        let entries = SectionEntries { table: &self.table, required, base };
        while !input.is_empty() {
            let (name, value) = entries.line(&mut input, most, &mut literal)?;
            size += name.len() + value.len() + ENTRY_COST;
            if size > most {
                return Err(QpackError::TooLarge(most));
            }
            each(name, value);
        }
        self.literal = literal;
        if required > 0 {
            // Section Acknowledgment (RFC 9204, section 4.4.1).
            put_integer(stream, 7, 0x80, &mut self.out);
            self.known_inserts = self.known_inserts.max(required);
        }
        Ok(QpackSection::Whole)
    }

    /// Reads the Required Insert Count (RFC 9204, section 4.5.1.1).
    fn required_inserts(&self, input: &mut &[u8]) -> Result<u64, QpackError> {
        let encoded = integer_up_to(input, 8, MOST_INSERTS)?;
        if encoded == 0 {
            return Ok(0);
        }
        let entries = (self.most_capacity / ENTRY_COST) as u64;
        let range = 2 * entries;
        if encoded > range {
            return Err(QpackError::Prefix);
        }
        let largest = self.table.inserts() + entries;
        let required = largest / range * range + encoded - 1;
        match required {
            _ if required > largest => required.checked_sub(range).filter(|n| *n > 0),
            0 => None,
            _ => Some(required),
        }
        .ok_or(QpackError::Prefix)
    }
}

/// Reads the Base (RFC 9204, section 4.5.1.2).
fn base(input: &mut &[u8], required: u64) -> Result<u64, QpackError> {
    let is_below = input.first().ok_or(QpackError::Short)? & 0x80 != 0;
    let delta = integer_up_to(input, 7, MOST_INSERTS)?;
    match is_below {
        true => required.checked_sub(delta + 1).ok_or(QpackError::Prefix),
        false => Ok(required + delta),
    }
}

/// The entries that one field section can use.
struct SectionEntries<'d> {
    table: &'d DynamicTable,
    required: u64,
    base: u64,
}

impl<'d> SectionEntries<'d> {
    /// Reads a field line (RFC 9204, sections 4.5.2 to 4.5.6): name and value.
    fn line<'l>(
        &self,
        input: &mut &[u8],
        most: usize,
        literal: &'l mut Vec<u8>,
    ) -> Result<(&'l [u8], &'l [u8]), QpackError>
    where
        'd: 'l,
    {
        let first = input.first().copied().ok_or(CodingError::Short)?;
        literal.clear();
        match first {
            0x80.. if first & 0x40 != 0 => return fixed(integer(input, 6)?),
            0x80.. => return self.before_base(integer(input, 6)?),
            0x40.. if first & 0x10 != 0 => literal.extend_from_slice(fixed(integer(input, 4)?)?.0),
            0x40.. => literal.extend_from_slice(self.before_base(integer(input, 4)?)?.0),
            0x20.. => string(input, 3, most, literal)?,
            0x10.. => return self.after_base(integer(input, 4)?),
            _ => literal.extend_from_slice(self.after_base(integer(input, 3)?)?.0),
        }
        let name_len = literal.len();
        string(input, 7, most, literal)?;
        Ok(literal.split_at(name_len))
    }

    fn before_base(&self, index: u64) -> Result<(&'d [u8], &'d [u8]), QpackError> {
        self.absolute(self.base.checked_sub(index + 1).ok_or(QpackError::Index)?)
    }

    fn after_base(&self, index: u64) -> Result<(&'d [u8], &'d [u8]), QpackError> {
        self.absolute(self.base + index)
    }

    fn absolute(&self, index: u64) -> Result<(&'d [u8], &'d [u8]), QpackError> {
        let newer = self.table.inserts().checked_sub(1 + index).filter(|_| index < self.required);
        newer.and_then(|newer| self.table.get(usize::try_from(newer).ok()?)).ok_or(QpackError::Index)
    }
}

/// The field of the static table with this index.
fn fixed(index: u64) -> Result<(&'static [u8], &'static [u8]), QpackError> {
    let (name, value) = STATIC.get(index as usize).ok_or(QpackError::Index)?;
    Ok((name.as_bytes(), value.as_bytes()))
}
