//! Text with slots, parsed to pieces.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use super::body::Body;
use super::fill::{DatePart, Filter, Made, SlotSource, date_parts, text_count};
use super::limits::SHARED_BYTES;
use super::request::{RequestPart, RequestSpec, TemplateError};
use super::slots::{TemplatePiece, TemplateSlot, join};
use super::spec;

/// Parses text with slots. `random` counts the random slots of the template; `check` reports
/// invalid literal bytes.
fn parse(
    place: &RequestPart,
    text: &[u8],
    columns: &[String],
    random: &mut u64,
    check: impl Fn(u8) -> Option<&'static str>,
) -> Result<Vec<TemplatePiece>, TemplateError> {
    for_each_piece(place, text, columns, random, check, |literal, range| {
        literal.extend_from_slice(&text[range]);
        None
    })
}

/// Parses the parts of a request that may have slots, in their order: the target, each field's value
/// and the body. A slot at random draws by its number among them, so both protocols send the same.
pub(super) struct Parser<'a> {
    columns: &'a [String],
    random: u64,
}

impl<'a> Parser<'a> {
    pub(super) fn new(columns: &'a [String]) -> Parser<'a> {
        Parser { columns, random: 0 }
    }

    pub(super) fn target(&mut self, spec: &RequestSpec) -> Result<Vec<TemplatePiece>, TemplateError> {
        let target = spec.target.as_bytes();
        let target =
            parse(&RequestPart::Target, target, self.columns, &mut self.random, spec::target_problem)?;
        spec::check_target(spec, &target)?;
        Ok(target)
    }

    /// Without the white space around the value.
    pub(super) fn value(&mut self, name: &str, value: &str) -> Result<Vec<TemplatePiece>, TemplateError> {
        let place = RequestPart::Field(name.to_owned());
        let start = value.len() - value.trim_start_matches([' ', '\t']).len();
        let text = value.trim_matches([' ', '\t']).as_bytes();
        parse(&place, text, self.columns, &mut self.random, spec::value_problem)
            .map_err(|e| TemplateError { at: e.at + start, ..e })
    }

    pub(super) fn body(&mut self, spec: &RequestSpec) -> Result<Vec<TemplatePiece>, TemplateError> {
        parse_body(&spec.body, self.columns, &mut self.random)
    }
}

/// Parses a body. Large constant stretches are not copied.
pub(super) fn parse_body(
    body: &Body,
    columns: &[String],
    random: &mut u64,
) -> Result<Vec<TemplatePiece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut before = 0;
    for part in body.parts() {
        let bytes = &part.bytes;
        let keep = |literal: &mut Vec<u8>, range: Range<usize>| {
            if range.len() >= SHARED_BYTES {
                return Some(TemplatePiece::Shared(Arc::clone(bytes), range));
            }
            literal.extend_from_slice(&bytes[range]);
            None
        };
        if part.slots {
            let read = for_each_piece(&RequestPart::Body, bytes, columns, random, |_| None, keep);
            pieces.extend(read.map_err(|e| TemplateError { at: e.at + before, ..e })?);
        } else {
            let mut literal = Vec::new();
            let shared = keep(&mut literal, 0..bytes.len());
            pieces.push(shared.unwrap_or_else(|| TemplatePiece::literal(literal)));
        }
        before += bytes.len();
    }
    Ok(join(pieces))
}

/// Parses text with slots. `keep` gets each literal stretch, and appends it to the current literal
/// or makes a piece of it.
fn for_each_piece(
    place: &RequestPart,
    text: &[u8],
    columns: &[String],
    random: &mut u64,
    check: impl Fn(u8) -> Option<&'static str>,
    keep: impl Fn(&mut Vec<u8>, Range<usize>) -> Option<TemplatePiece>,
) -> Result<Vec<TemplatePiece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let until = memmem::find(&text[at..], b"{{").map_or(text.len(), |n| at + n);
        if *place != RequestPart::Body
            && let Some((n, problem)) =
                text[at..until].iter().enumerate().find_map(|(n, b)| Some((n, check(*b)?)))
        {
            return Err(TemplateError::new(place, at + n, problem));
        }
        if let Some(piece) = keep(&mut literal, at..until) {
            pieces.push(TemplatePiece::literal(std::mem::take(&mut literal)));
            pieces.push(piece);
        }
        at = until;
        match text[at..].iter().take_while(|b| **b == b'{').count() {
            0 => {}
            2 => {
                let inner = &text[at + 2..];
                let end = memmem::find(inner, b"}}").ok_or_else(|| {
                    TemplateError::new(
                        place,
                        at,
                        "a slot is opened by {{ and not closed by }}; {{{{ means {{ itself",
                    )
                })?;
                pieces.push(TemplatePiece::literal(std::mem::take(&mut literal)));
                let slot = slot(place, at, &inner[..end], columns, random)?;
                if let Some(problem) = written(&slot).find_map(&check) {
                    return Err(TemplateError::new(place, at, problem));
                }
                pieces.push(TemplatePiece::Slot(slot));
                at += end + 4;
            }
            // Of three, the first is literal and the others open a slot: {{{seq}} is a brace and a
            // number.
            3 => {
                literal.push(b'{');
                at += 1;
            }
            _ => {
                literal.extend_from_slice(b"{{");
                at += 4;
            }
        }
    }
    pieces.push(TemplatePiece::literal(literal));
    Ok(join(pieces))
}

/// Columns that a message names. Reason: a person reads it.
const COLUMNS_NAMED: usize = 20;

/// The literal bytes in a slot, which are sent as written.
fn written(slot: &TemplateSlot) -> impl Iterator<Item = u8> {
    let parts: &[DatePart] = match slot {
        TemplateSlot::Made(made) => match &made.source {
            SlotSource::Date(parts) if made.filters.is_empty() => parts,
            _ => &[],
        },
        _ => &[],
    };
    parts.iter().filter_map(|part| if let DatePart::Byte(byte) = part { Some(*byte) } else { None })
}

/// Parses the text between the braces.
fn slot(
    place: &RequestPart,
    at: usize,
    inner: &[u8],
    columns: &[String],
    random: &mut u64,
) -> Result<TemplateSlot, TemplateError> {
    let text = String::from_utf8_lossy(inner);
    let mut name = text.trim();
    let mut filters = Vec::new();
    while !columns.iter().any(|c| c == name)
        && let Some((before, filter)) = name.rsplit_once('|')
    {
        let filter = Filter::named(filter.trim()).ok_or_else(|| {
            let problem = format!("{filter:?} is no filter of a slot: known are json, url, base64, number");
            TemplateError::new(place, at, problem)
        })?;
        filters.insert(0, filter);
        name = before.trim_end();
    }
    let source = source(place, at, name, columns, random)?;
    Ok(match source {
        SlotSource::Plain(slot) if filters.is_empty() => slot,
        source => TemplateSlot::Made(Box::new(Made { source, filters: filters.into() })),
    })
}

/// Parses a slot without its filters.
fn source(
    place: &RequestPart,
    at: usize,
    name: &str,
    columns: &[String],
    random: &mut u64,
) -> Result<SlotSource, TemplateError> {
    if let Some(column) = columns.iter().position(|c| c == name) {
        return Ok(SlotSource::Plain(TemplateSlot::Column(column)));
    }
    match name {
        "seq" => return Ok(SlotSource::Plain(TemplateSlot::Seq)),
        "now_ms" => return Ok(SlotSource::Plain(TemplateSlot::NowMs)),
        "uuid" => {
            *random += 1;
            return Ok(SlotSource::Uuid { index: *random });
        }
        _ => {}
    }
    let bad = |problem: String| TemplateError::new(place, at, problem);
    if let Some(format) = name.strip_prefix("date:") {
        let parts = date_parts(format).map_err(|why| bad(format!("{{{{{name}}}}}: {why}")))?;
        return Ok(SlotSource::Date(parts));
    }
    if let Some(count) = name.strip_prefix("rand_text:") {
        let count = text_count(count)
            .ok_or_else(|| bad(format!("{{{{{name}}}}}: write a number of characters, 1 to 65536")))?;
        *random += 1;
        return Ok(SlotSource::Text { count, index: *random });
    }
    if let Some(span) = name.strip_prefix("rand:") {
        let bounds = span.split_once('-').and_then(|(a, b)| {
            Some((a.trim().parse::<u64>().ok()?, b.trim().parse::<u64>().ok()?)).filter(|(a, b)| a <= b)
        });
        let (low, high) = bounds.ok_or_else(|| {
            TemplateError::new(
                place,
                at,
                format!("{{{{{name}}}}} has no valid range: write {{{{rand:LOW-HIGH}}}}, whole numbers, LOW not above HIGH"),
            )
        })?;
        *random += 1;
        return Ok(SlotSource::Plain(TemplateSlot::Random { low, high, index: *random }));
    }
    let known = match columns {
        [] => "there are no data columns".to_owned(),
        _ => format!("columns are {}", columns[..columns.len().min(COLUMNS_NAMED)].join(", ")),
    };
    Err(TemplateError::new(
        place,
        at,
        format!(
            "unknown slot {{{{{name}}}}}: known are seq, now_ms, rand:LOW-HIGH, rand_text:N, uuid, date:FORMAT, env.NAME; {known}; {{{{{{{{ means {{{{ itself"
        ),
    ))
}
