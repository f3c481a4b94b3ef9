//! A request's body, stored once however often it is sent.

use std::sync::Arc;

/// The bytes of a body, in parts that are sent one after the other. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    parts: Vec<BodyPart>,
}

/// Bytes of a body that are all of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPart {
    /// The bytes as they were given.
    pub bytes: Arc<[u8]>,
    /// The bytes are text with slots to fill; otherwise they are sent unchanged.
    pub slots: bool,
}

impl Body {
    /// A body of text with slots to fill.
    pub fn text(bytes: impl Into<Arc<[u8]>>) -> Body {
        Body { parts: vec![BodyPart { bytes: bytes.into(), slots: true }] }
    }

    /// A body that is sent unchanged: braces have no meaning.
    pub fn raw(bytes: impl Into<Arc<[u8]>>) -> Body {
        Body { parts: vec![BodyPart { bytes: bytes.into(), slots: false }] }
    }

    /// Appends a part.
    pub fn push(&mut self, part: BodyPart) {
        self.parts.push(part);
    }

    /// The parts in their order.
    pub fn parts(&self) -> &[BodyPart] {
        &self.parts
    }

    /// A copy of all parts as given, with unfilled slots.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|part| part.bytes.iter().copied()).collect()
    }

    /// Bytes of all parts as given.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::text(bytes)
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Body {
        Body::text(bytes)
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Body {
        Body::text(text.as_bytes())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::text(text.into_bytes())
    }
}
