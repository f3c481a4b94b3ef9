//! The fields of requests and responses that field blocks contain.

use linerate_http::h2::Decoder;

use crate::passive::flow::Budget;
use crate::passive::limits::{FIELDS_TABLE, TARGET_CHARS};

/// The fields of a block that count here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockFields {
    pub(crate) method: Option<String>,
    /// The path; of CONNECT, the authority.
    pub(crate) target: Option<String>,
    pub(crate) status: Option<u16>,
    /// `Expect: 100-continue`.
    pub(crate) expects: bool,
}

/// Reads the field blocks of one direction.
#[derive(Debug)]
pub(crate) struct FieldReader {
    decoder: Decoder,
    /// Bytes of its table that the budget was asked for.
    held: usize,
    /// Bytes that a block may decode to.
    most: usize,
}

impl FieldReader {
    /// `is_blind`: the first blocks were not seen.
    pub(crate) fn new(is_blind: bool, most: usize) -> FieldReader {
        FieldReader { decoder: Decoder::of_observer(FIELDS_TABLE, is_blind), held: 0, most }
    }

    /// A block is missing: it is not known how many fields of the table are newer than those known.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        self.drop_held(budget);
        self.decoder = Decoder::of_observer(FIELDS_TABLE, true);
    }

    /// Reads the next block.
    ///
    /// # Errors
    /// In words: it cannot be decoded, or there is no memory for its table.
    pub(crate) fn read(&mut self, block: &[u8], budget: &Budget) -> Result<BlockFields, String> {
        let mut fields = BlockFields::default();
        let mut authority = None;
        let each = |name: &[u8], value: &[u8]| match name {
            b":method" => fields.method = Some(words(value)),
            b":path" => fields.target = Some(words(value)),
            b":authority" => authority = Some(words(value)),
            b":status" => fields.status = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()),
            b"expect" => fields.expects = value.eq_ignore_ascii_case(b"100-continue"),
            _ => {}
        };
        self.decoder.decode(block, self.most, each).map_err(|e| e.to_string())?;
        if fields.method.as_deref() == Some("CONNECT") {
            fields.target = fields.target.or(authority);
        }
        budget.give_back(std::mem::take(&mut self.held));
        let size = self.decoder.table_bytes();
        if !budget.take(size) {
            return Err("there is no memory left for its tables of fields".to_owned());
        }
        self.held = size;
        Ok(fields)
    }

    /// Returns what it holds to the budget.
    pub(crate) fn drop_held(&mut self, budget: &Budget) {
        budget.give_back(std::mem::take(&mut self.held));
    }
}

fn words(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().filter(|c| !c.is_control()).take(TARGET_CHARS).collect()
}
