//! What a head should not have, although it can be read.

/// Something that a sender must not write and a recipient may accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFlaw {
    /// Both fields that frame a body (RFC 9112 section 6.3): Transfer-Encoding counts.
    LengthAndCoding,
    /// A transfer coding beside chunked (section 6.1).
    OtherCoding,
    /// Content-Length more than once, with the same number (section 6.3).
    RepeatedLength,
    /// A field on several lines (section 5.2).
    FoldedField,
    /// A line that ends with LF alone (section 2.2).
    BareLineFeed,
}

impl HeadFlaw {
    /// All of them.
    pub const ALL: [HeadFlaw; 5] = [
        HeadFlaw::LengthAndCoding,
        HeadFlaw::OtherCoding,
        HeadFlaw::RepeatedLength,
        HeadFlaw::FoldedField,
        HeadFlaw::BareLineFeed,
    ];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            HeadFlaw::LengthAndCoding => "length_and_coding",
            HeadFlaw::OtherCoding => "other_coding",
            HeadFlaw::RepeatedLength => "repeated_length",
            HeadFlaw::FoldedField => "folded_field",
            HeadFlaw::BareLineFeed => "bare_line_feed",
        }
    }

    /// What a response with it has, and what that means for others who read it.
    pub fn words(self) -> &'static str {
        match self {
            HeadFlaw::LengthAndCoding => {
                "had both Transfer-Encoding and Content-Length (RFC 9112 section 6.3): the coding was taken, and a proxy \
                 between may read another length"
            }
            HeadFlaw::OtherCoding => {
                "had a Transfer-Encoding that is not chunked alone (RFC 9112 section 6.1): a proxy between may read \
                 another end of the body"
            }
            HeadFlaw::RepeatedLength => {
                "had Content-Length more than once, with the same number (RFC 9112 section 6.3): a proxy between may \
                 refuse them"
            }
            HeadFlaw::FoldedField => {
                "had a field on several lines (RFC 9112 section 5.2): a proxy between may refuse them"
            }
            HeadFlaw::BareLineFeed => {
                "had lines that end with LF alone (RFC 9112 section 2.2): a proxy between may refuse them"
            }
        }
    }
}

/// The flaws of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFlaws(u8);

impl HeadFlaws {
    /// These, and one more if `found`.
    pub(super) fn with(self, flaw: HeadFlaw, found: bool) -> HeadFlaws {
        HeadFlaws(self.0 | (u8::from(found) << flaw as u8))
    }

    /// Whether this one is among them.
    pub fn has(self, flaw: HeadFlaw) -> bool {
        self.0 & (1 << flaw as u8) != 0
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
