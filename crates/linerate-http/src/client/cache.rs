//! The last head seen, as a template: most answers of a run differ from it in the Date value or not at all, and
//! comparing costs a tenth of parsing.

use std::ops::Range;

use super::framing::{Expect, Framing};
use super::head::{Fields, HeadFacts, HeadView, in_value};
use super::limits::LEARNT_MASKS;

/// The last final head, with the places where the next may differ. One per core, shared by its connections.
///
/// A head equal to it but for masked values has the same status, framing and persistence, so it need not be parsed:
/// only values of fields that decide nothing are masked, and a masked value is checked to hold no control character.
#[derive(Clone, Debug, Default)]
pub struct HeadCache {
    bytes: Vec<u8>,
    facts: Option<HeadFacts>,
    /// Masked ranges in order, without the Date value.
    masks: Vec<Range<u32>>,
    tag_name: Option<Box<[u8]>>,
    /// `body_len` when whole answers can be taken by length alone.
    whole: Option<u64>,
}

impl HeadCache {
    /// An empty cache.
    pub fn new() -> HeadCache {
        HeadCache::default()
    }

    /// An empty cache for answers that echo a tag in the field `name`: its value may always differ.
    pub fn with_tag(name: &str) -> HeadCache {
        HeadCache { tag_name: Some(name.as_bytes().into()), ..HeadCache::default() }
    }

    /// The status of the head held; 0 before the first.
    pub fn status(&self) -> u16 {
        self.facts.as_ref().map_or(0, |f| f.status)
    }

    /// The connection persists after the head held.
    pub fn reusable(&self) -> bool {
        self.facts.as_ref().is_some_and(|f| f.persistent && f.framing != Framing::UntilClose)
    }

    /// Bytes of the body that follows the head held, where its head tells.
    pub fn body_len(&self) -> Option<u64> {
        match self.facts.as_ref()?.framing {
            Framing::Length(n) => Some(n),
            _ => None,
        }
    }

    /// The head held; of the last answer that matched, but for masked values.
    pub fn head(&self) -> Option<HeadView<'_>> {
        self.facts.as_ref().map(|f| HeadView::new(&self.bytes, f.status, f.minor))
    }

    /// The tag field's value in a head that [`take_same_with`](super::ResponseReader::take_same_with) handed out.
    pub fn tag<'h>(&self, head: &'h [u8]) -> Option<&'h [u8]> {
        let place = self.facts.as_ref()?.tag.as_ref()?;
        head.get(place.start as usize..place.end as usize)
    }

    pub(super) fn tag_name(&self) -> Option<&[u8]> {
        self.tag_name.as_deref()
    }

    pub(super) fn facts(&self) -> Option<&HeadFacts> {
        self.facts.as_ref()
    }

    /// The head held, without its reading.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Body length of whole answers that can be taken by length alone.
    pub(super) fn whole(&self) -> Option<u64> {
        self.whole
    }

    /// Is `head`, of the same length, the head held but for masked values?
    #[inline]
    pub(super) fn matches(&mut self, head: &[u8]) -> bool {
        debug_assert_eq!(head.len(), self.bytes.len());
        if self.masks.is_empty() {
            head == self.bytes || self.matches_with_date(head)
        } else {
            equal_but(head, &self.bytes, &self.masks) || self.matches_with_date(head)
        }
    }

    /// As `matches`, with the Date value masked too. Comes about once a second: the value is taken over.
    #[cold]
    fn matches_with_date(&mut self, head: &[u8]) -> bool {
        let Some(date) = self.facts.as_ref().and_then(|f| f.date.clone()) else { return false };
        let (start, end) = (date.start as usize, date.end as usize);
        if !clean(&head[start..end]) {
            return false;
        }
        let before = self.masks.partition_point(|m| m.start < date.start);
        let same = equal_but_in(head, &self.bytes, &self.masks[..before], 0..start)
            && equal_but_in(head, &self.bytes, &self.masks[before..], end..head.len());
        if same {
            self.bytes[start..end].copy_from_slice(&head[start..end]);
        }
        same
    }

    /// Takes over a parsed final head, learning from how it differs from the last.
    pub(super) fn learn(&mut self, head: &[u8], facts: HeadFacts) {
        let learnt = self.differences(head, &facts);
        self.masks.clear();
        if let Some(learnt) = learnt {
            self.masks.extend(learnt.into_iter().flatten());
        }
        if let Some(tag) = facts.tag.clone()
            && !self.masks.iter().any(|m| m.start == tag.start)
        {
            self.masks.push(tag);
            self.masks.sort_by_key(|m| m.start);
        }
        self.whole = match facts.framing.of_answer(facts.status, Expect::Usual) {
            Framing::Length(n) if facts.persistent => Some(n),
            _ => None,
        };
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.facts = Some(facts);
    }

    /// The values (not Date, not the tag) in which a head of the same shape differs, with those known before; `None`
    /// when the shape is another or they are too many.
    fn differences(&self, head: &[u8], facts: &HeadFacts) -> Option<[Option<Range<u32>>; LEARNT_MASKS]> {
        let old = self.facts.as_ref()?;
        if head.len() != self.bytes.len() || old.status != facts.status {
            return None;
        }
        let mut learnt: [Option<Range<u32>>; LEARNT_MASKS] = Default::default();
        let mut count = 0;
        let mut pairs = field_places(&self.bytes).zip(field_places(head));
        pairs.try_for_each(|((name_a, a), (name_b, b))| {
            if a != b || self.bytes[name_a.clone()] != head[name_b] {
                return None;
            }
            let place = a.start as u32..a.end as u32;
            let special = Some(&place) == facts.date.as_ref() || Some(&place) == facts.tag.as_ref();
            let differs = self.bytes[a.clone()] != head[a] || self.masks.contains(&place);
            if special || !differs {
                return Some(());
            }
            if decides(&self.bytes[name_a]) || count == LEARNT_MASKS {
                return None;
            }
            learnt[count] = Some(place);
            count += 1;
            Some(())
        })?;
        Some(learnt)
    }
}

/// Places of name and value of each field of an accepted head.
fn field_places(head: &[u8]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
    let place = |part: &[u8]| {
        let start = part.as_ptr() as usize - head.as_ptr() as usize;
        start..start + part.len()
    };
    let body = memchr::memchr(b'\n', head).map_or(head.len(), |lf| lf + 1);
    Fields::of_section(&head[body..]).map(move |(name, value)| (place(name), place(value)))
}

/// Fields that decide framing or persistence are compared always.
fn decides(name: &[u8]) -> bool {
    const DECIDING: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"connection", b"upgrade"];
    DECIDING.iter().any(|d| name.eq_ignore_ascii_case(d))
}

#[inline]
fn equal_but(a: &[u8], b: &[u8], masks: &[Range<u32>]) -> bool {
    equal_but_in(a, b, masks, 0..a.len())
}

/// Equal within `span` but for `masks` (in order, inside it), whose bytes in `a` must be clean.
#[inline]
fn equal_but_in(a: &[u8], b: &[u8], masks: &[Range<u32>], span: Range<usize>) -> bool {
    let mut from = span.start;
    for mask in masks {
        let (start, end) = (mask.start as usize, mask.end as usize);
        if a[from..start] != b[from..start] || !clean(&a[start..end]) {
            return false;
        }
        from = end;
    }
    a[from..span.end] == b[from..span.end]
}

/// No byte that could end the value or is no part of any.
#[inline]
fn clean(value: &[u8]) -> bool {
    value.iter().fold(true, |clean, b| clean & in_value(*b))
}
