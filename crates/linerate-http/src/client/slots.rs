//! The slots of a template: parsed from text, filled into bytes.

use std::ops::Range;
use std::sync::Arc;

use linerate_base::mix;

use super::fill::Made;
use super::request::{Rendered, Values};

/// A part of a compiled request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePiece {
    Literal(Box<[u8]>),
    /// A large literal, which is not copied.
    Shared(Arc<[u8]>, Range<usize>),
    Slot(TemplateSlot),
}

/// A part that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplateSlot {
    Seq,
    NowMs,
    /// `index`: the slot's number among the random ones of its template, so that two of them
    /// differ.
    Random {
        low: u64,
        high: u64,
        index: u64,
    },
    Column(usize),
    Made(Box<Made>),
}

impl TemplatePiece {
    pub(super) fn literal(text: impl Into<Vec<u8>>) -> TemplatePiece {
        TemplatePiece::Literal(text.into().into_boxed_slice())
    }

    #[inline]
    pub(super) fn render(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        match self {
            TemplatePiece::Literal(bytes) => out.extend_from_slice(bytes),
            TemplatePiece::Slot(slot) => slot.render(v, out),
            TemplatePiece::Shared(bytes, range) => copied(&bytes[range.clone()], out),
        }
    }

    /// As `render`, but shared stretches go to `each`, after the bytes copied before them.
    pub(super) fn render_part(&self, v: &Values<'_>, out: &mut Vec<u8>, each: &mut impl FnMut(Rendered<'_>)) {
        let TemplatePiece::Shared(bytes, range) = self else { return self.render(v, out) };
        if !out.is_empty() {
            each(Rendered::Copied(out));
            out.clear();
        }
        each(Rendered::Shared(bytes, range.clone()));
    }

    /// Bytes that `render` appends.
    #[inline]
    pub(super) fn len(&self, v: &Values<'_>) -> usize {
        match self {
            TemplatePiece::Literal(bytes) => bytes.len(),
            TemplatePiece::Slot(TemplateSlot::Column(column)) => cell(v, *column).len(),
            TemplatePiece::Slot(TemplateSlot::Made(made)) => {
                let mut text = Vec::new();
                made.render(v, &mut text);
                text.len()
            }
            TemplatePiece::Slot(slot) => digits(slot.number(v)),
            TemplatePiece::Shared(_, range) => range.len(),
        }
    }

    /// The length of a literal, or a likely length of a slot.
    pub(super) fn len_hint(&self) -> usize {
        match self {
            TemplatePiece::Literal(bytes) => bytes.len(),
            TemplatePiece::Shared(_, range) => range.len(),
            TemplatePiece::Slot(TemplateSlot::Column(_)) => 16,
            TemplatePiece::Slot(_) => 20,
        }
    }
}

/// Kept out of line, so that requests without large bodies do not pay for it.
#[cold]
fn copied(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
}

impl TemplateSlot {
    /// The column that it uses.
    pub(super) fn column(&self) -> Option<usize> {
        match self {
            TemplateSlot::Column(column) => Some(*column),
            TemplateSlot::Made(made) => made.column(),
            _ => None,
        }
    }

    /// Whether its text must be a number of JSON.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, TemplateSlot::Made(made) if made.is_number())
    }

    #[inline]
    pub(super) fn render(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        match self {
            TemplateSlot::Column(column) => out.extend_from_slice(cell(v, *column)),
            TemplateSlot::Made(made) => made.render(v, out),
            slot => decimal(slot.number(v), out),
        }
    }

    #[inline]
    fn number(&self, v: &Values<'_>) -> u64 {
        match self {
            TemplateSlot::Seq => v.seq,
            TemplateSlot::NowMs => v.now_ms,
            TemplateSlot::Random { low, high, index } => {
                let noise = mix(v.seed ^ mix(v.seq ^ mix(*index)));
                // The high half of the product spreads over the span; its bias is below 2^-64 times
                // the span.
                let span = u128::from(high - low) + 1;
                low + ((u128::from(noise) * span) >> 64) as u64
            }
            TemplateSlot::Column(_) | TemplateSlot::Made(_) => 0,
        }
    }
}

fn cell<'v>(v: &Values<'v>, column: usize) -> &'v [u8] {
    v.row.get(column).map_or(&[][..], |cell| &**cell)
}

#[inline]
fn digits(n: u64) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends `n` in decimal.
#[inline]
pub(super) fn decimal(mut n: u64, out: &mut Vec<u8>) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    while n >= 100 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(pair(n % 100));
        n /= 100;
    }
    if n >= 10 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(pair(n));
    } else {
        at -= 1;
        buffer[at] = b'0' + n as u8;
    }
    out.extend_from_slice(&buffer[at..]);
}

/// The two digits of a number below 100.
#[inline]
fn pair(n: u64) -> &'static [u8] {
    &PAIRS[2 * n as usize..2 * n as usize + 2]
}

const PAIRS: [u8; 200] = {
    let mut table = [0; 200];
    let mut n = 0;
    while n < 100 {
        table[2 * n] = b'0' + (n / 10) as u8;
        table[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    table
};

/// Joins consecutive literals and removes empty ones.
pub(super) fn join(pieces: Vec<TemplatePiece>) -> Vec<TemplatePiece> {
    let mut joined: Vec<TemplatePiece> = Vec::new();
    let mut text = Vec::new();
    for piece in pieces {
        match piece {
            TemplatePiece::Literal(bytes) => text.extend_from_slice(&bytes),
            slot => {
                if !text.is_empty() {
                    joined.push(TemplatePiece::literal(std::mem::take(&mut text)));
                }
                joined.push(slot);
            }
        }
    }
    if !text.is_empty() {
        joined.push(TemplatePiece::literal(text));
    }
    joined
}
