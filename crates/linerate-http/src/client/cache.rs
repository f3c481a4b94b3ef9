//! The last heads seen, as templates. Most responses of a run differ from one of them in the Date
//! value or not at all, and comparing costs a tenth of parsing.

use std::ops::Range;

use super::framing::{Expect, Framing};
use super::head::{HeadView, places};
use super::limits::{HEADS_HELD, LEARNT_MASKS};
use super::parse::{HeadFacts, is_value};

/// The last final heads, each with the places where the next may differ. One per core, shared by
/// its connections.
///
/// A head that equals a cached one except for masked values has the same status, framing and
/// persistence, so it is not parsed. Only values of fields that do not affect those are masked:
/// Date, the tag, and up to four that were seen to vary at the same length. A masked value is
/// checked for control characters.
///
/// The cached head that matched last is the *current* one.
#[derive(Clone, Debug, Default)]
pub struct HeadCache {
    held: Vec<CachedHead>,
    current: usize,
    /// Index of the head that the next new one replaces.
    oldest: usize,
    tag_name: Option<Box<[u8]>>,
}

/// A cached head.
#[derive(Clone, Debug)]
pub(super) struct CachedHead {
    bytes: Vec<u8>,
    facts: HeadFacts,
    /// Masked places in order, without the Date value.
    masks: Vec<Range<u32>>,
    /// Length of the body, if responses with this head can be taken by length alone.
    whole: Option<u64>,
}

impl HeadCache {
    /// An empty cache.
    pub fn new() -> HeadCache {
        HeadCache::default()
    }

    /// An empty cache for responses that echo a tag in the field `name`, whose value may always
    /// differ.
    pub fn with_tag(name: &str) -> HeadCache {
        HeadCache { tag_name: Some(name.as_bytes().into()), ..HeadCache::default() }
    }

    /// The status of the current head; 0 before the first.
    pub fn status(&self) -> u16 {
        self.current().map_or(0, |h| h.facts.status)
    }

    /// Whether the connection persists after a response with the current head to a request that is
    /// [`Expect::Usual`].
    pub fn reusable(&self) -> bool {
        self.current().is_some_and(|h| h.facts.persistent && h.framing() != Framing::UntilClose)
    }

    /// Bytes of the body after the current head, for a request that is [`Expect::Usual`]; `None` if
    /// the head does not say.
    pub fn body_len(&self) -> Option<u64> {
        match self.current()?.framing() {
            Framing::Length(n) => Some(n),
            _ => None,
        }
    }

    /// The current head, whose masked values may be those of an earlier response.
    pub fn head(&self) -> Option<HeadView<'_>> {
        self.current().map(CachedHead::view)
    }

    /// The tag field's value in a head that
    /// [`take_same_with`](super::ResponseReader::take_same_with) handed out.
    #[inline]
    pub fn tag<'h>(&self, head: &'h [u8]) -> Option<&'h [u8]> {
        let place = self.current()?.facts.tag.as_ref()?;
        head.get(place.start as usize..place.end as usize)
    }

    pub(super) fn tag_name(&self) -> Option<&[u8]> {
        self.tag_name.as_deref()
    }

    #[inline]
    pub(super) fn current(&self) -> Option<&CachedHead> {
        self.held.get(self.current)
    }

    #[inline]
    pub(super) fn current_mut(&mut self) -> Option<&mut CachedHead> {
        self.held.get_mut(self.current)
    }

    /// Makes the cached head that `input` begins with current; false if there is none.
    #[inline]
    pub(super) fn select(&mut self, input: &[u8]) -> bool {
        self.current().is_some_and(|held| held.begins(input)) || self.select_other(input)
    }

    fn select_other(&mut self, input: &[u8]) -> bool {
        let exact = self.held.iter().position(|held| held.ends_alike(input) && held.begins(input));
        // The Date changes about once a second; the kind of head may change with each response.
        let found = exact.or_else(|| self.held.iter_mut().position(|held| held.begins_with_date(input)));
        self.current = found.unwrap_or(self.current);
        found.is_some()
    }

    /// Makes the cached head current that `carried` followed by `input` begins with, and returns
    /// how many bytes of `input` it takes. Masked values must be equal too.
    pub(super) fn select_carried(&mut self, carried: &[u8], input: &[u8]) -> Option<usize> {
        let missing = |held: &CachedHead| {
            let last = held.bytes.strip_prefix(carried)?;
            input.starts_with(last).then_some(last.len())
        };
        let (at, missing) = self.held.iter().enumerate().find_map(|(i, held)| Some((i, missing(held)?)))?;
        self.current = at;
        Some(missing)
    }

    /// Stores a parsed final head and makes it current. It replaces a cached head of the same
    /// shape, and their differences become masks.
    pub(super) fn learn(&mut self, head: &[u8], facts: HeadFacts) {
        let similar = self.held.iter().enumerate().find_map(|(i, h)| Some((i, h.differences(head, &facts)?)));
        let learnt = match similar {
            Some((i, learnt)) => {
                self.current = i;
                learnt
            }
            None if self.held.len() < HEADS_HELD => {
                self.current = self.held.len();
                self.held.push(CachedHead::empty(facts.clone()));
                Differences::default()
            }
            None => {
                self.current = self.oldest;
                self.oldest = (self.oldest + 1) % HEADS_HELD;
                Differences::default()
            }
        };
        if let Some(held) = self.current_mut() {
            held.replace(head, facts, learnt);
        }
    }
}

/// Places of values in which two heads of the same shape differ, in order.
type Differences = [Option<Range<u32>>; LEARNT_MASKS];

impl CachedHead {
    fn empty(facts: HeadFacts) -> CachedHead {
        CachedHead { bytes: Vec::new(), facts, masks: Vec::new(), whole: None }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn facts(&self) -> &HeadFacts {
        &self.facts
    }

    pub(super) fn whole(&self) -> Option<u64> {
        self.whole
    }

    /// The body's framing for an ordinary request.
    fn framing(&self) -> Framing {
        self.facts.framing.of_answer(self.facts.status, Expect::Usual)
    }

    pub(super) fn view(&self) -> HeadView<'_> {
        HeadView::new(&self.bytes, &self.facts)
    }

    /// Whether `part` is the beginning of this head, including masked values.
    pub(super) fn starts_with(&self, part: &[u8]) -> bool {
        self.bytes.starts_with(part)
    }

    #[inline]
    fn begins(&self, input: &[u8]) -> bool {
        input.len() >= self.bytes.len() && self.equals(&input[..self.bytes.len()])
    }

    fn begins_with_date(&mut self, input: &[u8]) -> bool {
        input.len() >= self.bytes.len() && self.equals_with_date(&input[..self.bytes.len()])
    }

    /// Whether the empty line is where this head has it: cheap to check, and rarely true by chance.
    #[inline]
    fn ends_alike(&self, input: &[u8]) -> bool {
        let end = self.bytes.len();
        let last = end - if self.bytes.ends_with(b"\r\n\r\n") { 4 } else { 2 };
        input.get(last..end) == Some(&self.bytes[last..])
    }

    /// Whether `head`, of the same length, equals this head except for masked values.
    #[inline]
    pub(super) fn matches(&mut self, head: &[u8]) -> bool {
        self.equals(head) || self.equals_with_date(head)
    }

    // Inlined by force: a call costs a third of what the comparison does.
    #[inline(always)]
    fn equals(&self, head: &[u8]) -> bool {
        if self.masks.is_empty() { *head == *self.bytes } else { self.equals_masked(head) }
    }

    fn equals_masked(&self, head: &[u8]) -> bool {
        equal_but(head, &self.bytes, &self.masks, 0..head.len())
    }

    /// As `equals`, but the Date value is masked too, and stored.
    #[cold]
    fn equals_with_date(&mut self, head: &[u8]) -> bool {
        let Some(date) = self.facts.date.clone().filter(|_| self.ends_alike(head)) else { return false };
        let (start, end) = (date.start as usize, date.end as usize);
        let split = self.masks.partition_point(|m| m.start < date.start);
        let same = equal_but(head, &self.bytes, &self.masks[..split], 0..start)
            && equal_but(head, &self.bytes, &self.masks[split..], end..head.len())
            && is_value(&head[start..end]);
        if same {
            self.bytes[start..end].copy_from_slice(&head[start..end]);
        }
        same
    }

    fn replace(&mut self, head: &[u8], facts: HeadFacts, learnt: Differences) {
        self.masks.clear();
        self.masks.extend(learnt.into_iter().flatten());
        if let Some(tag) = facts.tag.clone() {
            let at = self.masks.partition_point(|m| m.start < tag.start);
            self.masks.insert(at, tag);
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.facts = facts;
        self.whole = match self.framing() {
            // One with a flaw is told of each time.
            Framing::Length(n) if self.facts.persistent && self.facts.flaws.is_empty() => Some(n),
            _ => None,
        };
    }

    /// The values in which `head` differs, plus those known to vary. `None` if its shape differs,
    /// if a deciding field differs, or if too many values do.
    fn differences(&self, head: &[u8], facts: &HeadFacts) -> Option<Differences> {
        if head.len() != self.bytes.len() || facts.status != self.facts.status {
            return None;
        }
        let mut learnt = Differences::default();
        let mut count = 0;
        for (a, b) in places(&self.bytes).zip(places(head)) {
            if a.value != b.value || self.bytes[a.name.clone()] != head[b.name] {
                return None;
            }
            let place = a.value.start as u32..a.value.end as u32;
            let masked = Some(&place) == facts.date.as_ref() || Some(&place) == facts.tag.as_ref();
            let varies = self.bytes[a.value] != head[b.value] || self.masks.contains(&place);
            if masked || !varies {
                continue;
            }
            if decides(&self.bytes[a.name]) {
                return None;
            }
            *learnt.get_mut(count)? = Some(place);
            count += 1;
        }
        Some(learnt)
    }
}

/// Whether a field affects framing or persistence; such fields are always compared.
fn decides(name: &[u8]) -> bool {
    const DECIDING: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"connection", b"upgrade"];
    DECIDING.iter().any(|d| name.eq_ignore_ascii_case(d))
}

/// Whether `a` and `b` are equal within `span` except for `masks` (in order, inside it), where `a`
/// must have valid value bytes.
#[inline]
fn equal_but(a: &[u8], b: &[u8], masks: &[Range<u32>], span: Range<usize>) -> bool {
    let mut from = span.start;
    for mask in masks {
        let (start, end) = (mask.start as usize, mask.end as usize);
        if a[from..start] != b[from..start] || !is_value(&a[start..end]) {
            return false;
        }
        from = end;
    }
    a[from..span.end] == b[from..span.end]
}
