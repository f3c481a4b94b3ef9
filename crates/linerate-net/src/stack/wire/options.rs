//! TCP options: maximum segment size, window scale (RFC 7323), selective acknowledgements (RFC
//! 2018), timestamps (RFC 7323).

use super::Seq;
use super::malformed::Malformed;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The largest shift allowed (RFC 7323 section 2.3).
const MAX_SHIFT: u8 = 14;
/// Blocks that fit into the 40 bytes of options.
const MAX_BLOCKS: usize = 4;

/// Ranges received out of order, the most recent one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sack {
    blocks: [(Seq, Seq); MAX_BLOCKS],
    len: u8,
}

impl Sack {
    /// Adds a block; returns whether there was room.
    pub(crate) fn push(&mut self, start: Seq, end: Seq) -> bool {
        let room = usize::from(self.len) < MAX_BLOCKS;
        if room {
            self.blocks[usize::from(self.len)] = (start, end);
            self.len += 1;
        }
        room
    }

    pub(crate) fn blocks(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// The options of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// TSval and TSecr.
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) sack: Sack,
}

impl Options {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<Options, Malformed> {
        // Fast path: the options of nearly every segment of an established connection.
        if let [NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h] = *bytes {
            let timestamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            return Ok(Options { timestamps, ..Options::default() });
        }
        Options::parse_any(bytes)
    }

    fn parse_any(mut bytes: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::default();
        loop {
            let (kind, len) = match *bytes {
                [] | [END, ..] => return Ok(options),
                [NOP, ..] => {
                    bytes = &bytes[1..];
                    continue;
                }
                [kind, len, ..] => (kind, usize::from(len)),
                [_] => return Err(Malformed::Header),
            };
            if len < 2 || len > bytes.len() {
                return Err(Malformed::Header);
            }
            let (option, rest) = bytes.split_at(len);
            options.take(kind, &option[2..]);
            bytes = rest;
        }
    }

    /// Options of an unexpected length are ignored like unknown ones.
    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            // A size of 0 is ignored, as in Linux: the default applies then (RFC 9293 section
            // 3.7.1).
            (MSS, &[0, 0]) => {}
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_SHIFT)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            (SACK, blocks) if blocks.len() % 8 == 0 => {
                for block in blocks.chunks_exact(8) {
                    let seq = |at: usize| block[at..].first_chunk().map_or(0, |c| u32::from_be_bytes(*c));
                    self.sack.push(Seq(seq(0)), Seq(seq(4)));
                }
            }
            _ => {}
        }
    }

    /// How many blocks fit, with or without timestamps.
    pub(crate) fn sack_room(with_timestamps: bool) -> usize {
        if with_timestamps { 3 } else { MAX_BLOCKS }
    }

    /// Bytes, a multiple of 4.
    pub(crate) fn len(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        // The order below: "SACK permitted" takes the place of the padding before timestamps.
        if self.timestamps.is_some() {
            len += 12;
        } else if self.sack_permitted {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        match self.sack.len {
            0 => len,
            n => len + 4 + 8 * usize::from(n),
        }
    }

    pub(crate) fn emit(&self, mut out: &mut [u8]) {
        // Fast path: the options of nearly every segment of an established connection.
        if let Some((value, echo)) = self.timestamps
            && !self.sack_permitted
            && let Ok(all) = <&mut [u8; 12]>::try_from(&mut *out)
        {
            let ([a, b, c, d], [e, f, g, h]) = (value.to_be_bytes(), echo.to_be_bytes());
            *all = [NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h];
            return;
        }
        let mut put = |bytes: &[u8]| {
            let (head, rest) = std::mem::take(&mut out).split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            out = rest;
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => put(&[SACK_PERMITTED, 2]),
            (true, false) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, true) => put(&[NOP, NOP]),
            (false, false) => {}
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if self.sack.len > 0 {
            put(&[NOP, NOP, SACK, 2 + 8 * self.sack.len]);
            for (start, end) in self.sack.blocks() {
                put(&start.0.to_be_bytes());
                put(&end.0.to_be_bytes());
            }
        }
    }
}
