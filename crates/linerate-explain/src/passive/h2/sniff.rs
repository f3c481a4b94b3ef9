//! Whether a direction carries HTTP/2: by the client's preface, the server's settings, or, where a
//! capture begins in the middle, by frames.

use linerate_http::h2::{Decoder, FrameHead, PREFACE, flag, kind};

use crate::passive::limits::FIELDS_TABLE;

use super::frames::{fragment, heads};

/// The meaning of a direction's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sniffed {
    /// More of them are needed.
    NotYet,
    /// Not the beginning of HTTP/2.
    No,
    /// A client's.
    Preface,
    /// A server's.
    Settings,
}

/// Holds a direction's first bytes back until they tell.
#[derive(Debug, Default)]
pub(crate) struct Sniff {
    held: Vec<u8>,
    is_over: bool,
}

/// The largest first SETTINGS frame. Reason: there are some ten settings, of six bytes each.
const SETTINGS: u32 = 240;

impl Sniff {
    /// It is known what they are.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends sniffing and returns the bytes held back.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        self.is_over = true;
        std::mem::take(&mut self.held)
    }

    /// The next bytes. They are kept with those before while it is not clear what they are.
    pub(crate) fn look(&mut self, data: &[u8]) -> Sniffed {
        let room = PREFACE.len() - self.held.len().min(PREFACE.len());
        let mut all = self.held.clone();
        all.extend_from_slice(&data[..data.len().min(room)]);
        let sniffed = first(&all);
        if sniffed == Sniffed::NotYet {
            self.held.extend_from_slice(data);
        }
        sniffed
    }
}

fn first(all: &[u8]) -> Sniffed {
    let n = all.len().min(PREFACE.len());
    if all[..n] == PREFACE[..n] {
        return if n == PREFACE.len() { Sniffed::Preface } else { Sniffed::NotYet };
    }
    let Some(bytes) = all.first_chunk() else {
        // A frame of settings is short, so that its length begins with zeros.
        let like = all.iter().zip([0, 0]).all(|(a, b)| *a == b)
            && all.get(3).is_none_or(|k| *k == kind::SETTINGS)
            && all.iter().skip(4).all(|b| *b == 0);
        return if like { Sniffed::NotYet } else { Sniffed::No };
    };
    let FrameHead { len, kind, flags, stream } = FrameHead::read(bytes);
    let is = kind == kind::SETTINGS && flags == 0 && stream == 0 && len % 6 == 0 && len <= SETTINGS;
    if is { Sniffed::Settings } else { Sniffed::No }
}

/// Whether a segment that begins like this belongs to a connection of HTTP/2 whose beginning is not
/// in the capture. Then also whether its sender is the client, where that shows. One frame that is
/// HTTP/2's beyond doubt is needed: of a fixed size, or with fields of a request or a response.
pub(crate) fn begins(data: &[u8]) -> Option<Option<bool>> {
    if data.first() != Some(&0) {
        return None;
    }
    let mut is_sure = false;
    for (head, body) in heads(data)? {
        match head.kind {
            kind::HEADERS => {
                if let Some(is_client) = sender(&head, body) {
                    return Some(Some(is_client));
                }
            }
            kind::PING | kind::WINDOW_UPDATE | kind::RST_STREAM | kind::GOAWAY | kind::SETTINGS => {
                is_sure = true;
            }
            _ => {}
        }
    }
    is_sure.then_some(None)
}

/// Whether whole fields are those of a request (true) or of a response.
fn sender(head: &FrameHead, body: &[u8]) -> Option<bool> {
    if body.len() < head.len as usize || !head.has(flag::END_HEADERS) {
        return None;
    }
    let block = fragment(head, body).ok()?;
    let mut found = None;
    let each = |name: &[u8], _: &[u8]| match name {
        b":method" | b":path" | b":scheme" | b":authority" => found = Some(true),
        b":status" => found = Some(false),
        _ => {}
    };
    Decoder::of_observer(FIELDS_TABLE, true).decode(block, FIELDS_TABLE, each).ok()?;
    found
}
