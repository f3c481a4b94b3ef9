//! Writes heads of responses, and recognizes a repetition of the last one.

use super::date::HttpDate;
use super::writer::{AnswerFraming, AnswerHead, Persistence};

/// Longest fields, in bytes, of a head that is remembered. Reason: comparing and storing more costs
/// more than it saves.
const FIELDS_REMEMBERED: usize = 512;

/// Writes the heads of responses. One per thread serves any number of connections.
///
/// A head is a pure function of its contents and the date. So a head with the contents of the last
/// one is copied as a whole instead of being written again. [`HeadReader`](super::HeadReader) does
/// the same with requests: servers repeat themselves as clients do.
#[derive(Debug)]
pub struct HeadWriter {
    status: u16,
    persistence: Persistence,
    framing: AnswerFraming,
    /// Content type and fields, concatenated, and where the first ends; `None`: there was no
    /// content type.
    words: Vec<u8>,
    kind_end: Option<usize>,
    date: HttpDate,
    /// The head last written; empty before the first.
    bytes: Vec<u8>,
}

impl Default for HeadWriter {
    fn default() -> Self {
        HeadWriter {
            status: 0,
            persistence: Persistence::Implied,
            framing: AnswerFraming::Absent,
            words: Vec::new(),
            kind_end: None,
            date: HttpDate::from_unix(0),
            bytes: Vec::new(),
        }
    }
}

impl HeadWriter {
    /// Appends status line, fields and the empty line, as [`AnswerHead::write`] does.
    pub fn write(&mut self, head: &AnswerHead<'_>, out: &mut Vec<u8>, date: &HttpDate) {
        if !self.is_the_last(head, date) {
            if head.fields.as_lines().len() > FIELDS_REMEMBERED {
                return head.write(out, date);
            }
            self.remember(head, date);
        }
        out.extend_from_slice(&self.bytes);
    }

    fn is_the_last(&self, head: &AnswerHead<'_>, date: &HttpDate) -> bool {
        // The most variable property comes first.
        self.framing == head.framing
            && self.status == head.status
            && self.persistence == head.persistence
            && self.date.unix() == date.unix()
            && self.kind_end == head.content_type.map(str::len)
            && !self.bytes.is_empty()
            && self.words.split_at_checked(self.kind_end.unwrap_or(0)).is_some_and(|(kind, fields)| {
                kind == head.content_type.unwrap_or_default().as_bytes() && fields == head.fields.as_lines()
            })
    }

    fn remember(&mut self, head: &AnswerHead<'_>, date: &HttpDate) {
        let kind = head.content_type;
        (self.status, self.persistence, self.framing) = (head.status, head.persistence, head.framing);
        (self.kind_end, self.date) = (kind.map(str::len), *date);
        self.words.clear();
        self.words.extend_from_slice(kind.unwrap_or_default().as_bytes());
        self.words.extend_from_slice(head.fields.as_lines());
        self.bytes.clear();
        head.write(&mut self.bytes, date);
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckedFields;
    use super::*;

    /// Whatever was written before, each head is written as if it were the first.
    #[test]
    fn every_head_is_as_if_it_were_the_first() {
        let mut fields = CheckedFields::new();
        fields.add("a", "b").expect("a field");
        let (none, mut long) = (CheckedFields::new(), CheckedFields::new());
        long.add("long", "x".repeat(FIELDS_REMEMBERED)).expect("a field");
        // Content types and fields whose concatenations are equal.
        let mut heads = Vec::new();
        for status in [200, 404] {
            for framing in [AnswerFraming::Length(0), AnswerFraming::Length(14), AnswerFraming::Chunked] {
                for persistence in [Persistence::Implied, Persistence::Close] {
                    for content_type in [None, Some(""), Some("a: b"), Some("text/plain")] {
                        for fields in [&none, &fields, &long] {
                            heads.push(AnswerHead { status, persistence, framing, content_type, fields });
                        }
                    }
                }
            }
        }
        let dates = [HttpDate::from_unix(0), HttpDate::from_unix(784_111_777)];
        let mut writer = HeadWriter::default();
        for (i, head) in heads.iter().enumerate() {
            for other in [head, &heads[(i * 7 + 1) % heads.len()], head, head] {
                for date in &dates {
                    let (mut alone, mut remembered) = (b"before ".to_vec(), b"before ".to_vec());
                    other.write(&mut alone, date);
                    writer.write(other, &mut remembered, date);
                    assert_eq!(remembered, alone, "{other:?}");
                }
            }
        }
    }
}
