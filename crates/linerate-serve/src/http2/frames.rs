//! Counts the kinds of frames of a client: the limit of those that ask for work and carry none.
//!
//! `linerate_http::h2` reads the frames. This only follows their headers (RFC 9113 section 4.1).

use std::time::Duration;

use linerate_http::h2::{FRAME_HEAD, FrameHead, PREFACE, flag, kind};
use linerate_net::Time;

use crate::limits::{H2_CONTROL_EARNED, H2_CONTROL_FRAMES, H2_CONTROL_RATE, H2_RESET_COST};

/// A DATA frame of this many bytes is worth a control frame. Reason: clients announce progress now
/// and then; tiny frames are not progress.
const DATA_WORTH: u32 = 256;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(crate) struct Frames {
    header: [u8; FRAME_HEAD],
    have: usize,
    /// Bytes until the next frame header.
    skip: u32,
    /// The next byte is the length of a DATA frame's padding, and this is the frame's.
    padded: Option<u32>,
    /// A header block has begun and not ended: since when.
    block_since: Option<Time>,
    in_block_frame: bool,
    /// Control frames that the client may still send, and when that was last refilled.
    allowed: u32,
    refilled: Time,
}

/// The client sends more frames without content than any use of HTTP/2 needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flood;

impl Frames {
    pub(crate) fn new(now: Time) -> Frames {
        Frames {
            header: [0; FRAME_HEAD],
            have: 0,
            skip: PREFACE.len() as u32,
            padded: None,
            block_since: None,
            in_block_frame: false,
            allowed: H2_CONTROL_FRAMES,
            refilled: now,
        }
    }

    /// Follows received bytes.
    pub(crate) fn follow(&mut self, mut bytes: &[u8], now: Time) -> Result<(), Flood> {
        self.refill(now);
        while !bytes.is_empty() {
            if let Some(len) = self.padded.take() {
                // Content is what neither the padding is nor its length (RFC 9113 section 6.1).
                self.data(len.saturating_sub(1 + u32::from(bytes[0])), false)?;
            }
            if self.skip > 0 {
                let len = bytes.len().min(self.skip as usize);
                bytes = &bytes[len..];
                self.skip -= len as u32;
                continue;
            }
            self.in_block_frame = false;
            let len = bytes.len().min(FRAME_HEAD - self.have);
            self.header[self.have..self.have + len].copy_from_slice(&bytes[..len]);
            self.have += len;
            bytes = &bytes[len..];
            if self.have == FRAME_HEAD {
                self.have = 0;
                self.frame(now)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, now: Time) -> Result<(), Flood> {
        let head = FrameHead::read(&self.header);
        self.skip = head.len;
        let cost = match head.kind {
            kind::HEADERS | kind::CONTINUATION => {
                self.in_block_frame = true;
                let ends = head.has(flag::END_HEADERS);
                self.block_since = (!ends).then(|| self.block_since.unwrap_or(now));
                u32::from(head.kind == kind::CONTINUATION)
            }
            kind::DATA if head.has(flag::PADDED) && head.len > 0 && !head.has(flag::END_STREAM) => {
                self.padded = Some(head.len);
                0
            }
            kind::DATA => return self.data(head.len, head.has(flag::END_STREAM)),
            kind::RST_STREAM => H2_RESET_COST,
            _ => 1,
        };
        self.spend(cost)
    }

    /// So many frames without content have come, and so many requests were given up.
    pub(crate) fn counted(&mut self, frames: u32, resets: u32, now: Time) -> Result<(), Flood> {
        self.refill(now);
        self.spend(frames.saturating_add(resets.saturating_mul(H2_RESET_COST)))
    }

    /// A DATA frame has come, with so many bytes of content.
    fn data(&mut self, content: u32, ends: bool) -> Result<(), Flood> {
        if content >= DATA_WORTH {
            self.earn(1);
        }
        self.spend(u32::from(content == 0 && !ends))
    }

    fn spend(&mut self, frames: u32) -> Result<(), Flood> {
        self.allowed = self.allowed.checked_sub(frames).ok_or(Flood)?;
        Ok(())
    }

    /// A response, or a piece of one, was sent.
    pub(crate) fn sent(&mut self) {
        self.earn(H2_CONTROL_EARNED);
    }

    fn earn(&mut self, frames: u32) {
        self.allowed = (self.allowed + frames).min(H2_CONTROL_FRAMES);
    }

    fn refill(&mut self, now: Time) {
        let each = Duration::from_secs(1) / H2_CONTROL_RATE;
        let frames = (now - self.refilled).as_nanos() / each.as_nanos();
        if frames > 0 {
            self.earn(u32::try_from(frames).unwrap_or(u32::MAX).min(H2_CONTROL_FRAMES));
            self.refilled = now;
        }
    }

    /// When a header block began that is not complete.
    pub(crate) fn block_since(&self) -> Option<Time> {
        self.block_since
    }

    /// Whether the head of a request is arriving.
    pub(crate) fn is_in_head(&self) -> bool {
        self.block_since.is_some() || (self.in_block_frame && self.skip > 0) || self.have > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let head = FrameHead { len: payload.len() as u32, kind, flags, stream: 1 };
        [&head.bytes(), payload].concat()
    }

    fn begun() -> Frames {
        let mut frames = Frames::new(Time::ZERO);
        frames.follow(PREFACE, Time::ZERO).expect("no frame");
        frames
    }

    #[test]
    fn any_cut_counts_the_same() {
        let mut stream = Vec::new();
        for i in 0..300 {
            stream.extend(frame(kind::DATA, 0, &vec![9; i % 7]));
            stream.extend(frame(kind::PING, 0, &[0; 8]));
            stream.extend(frame(kind::RST_STREAM, 0, &[0; 4]));
        }
        let left = |cut: usize| {
            let mut frames = begun();
            for piece in stream.chunks(cut) {
                if frames.follow(piece, Time::ZERO).is_err() {
                    return 0;
                }
            }
            frames.allowed
        };
        let whole = left(stream.len());
        for cut in 1..40 {
            assert_eq!(left(cut), whole);
        }
    }

    #[test]
    fn control_frames_run_out_and_come_back() {
        let ping = frame(kind::PING, 0, &[0; 8]);
        let mut frames = begun();
        for _ in 0..H2_CONTROL_FRAMES {
            frames.follow(&ping, Time::ZERO).expect("allowed");
        }
        let later = Time::ZERO + Duration::from_secs(1);
        for _ in 0..H2_CONTROL_RATE {
            frames.follow(&ping, later).expect("refilled");
        }
        frames.sent();
        for _ in 0..H2_CONTROL_EARNED {
            frames.follow(&ping, later).expect("earned");
        }
        assert_eq!(frames.follow(&ping, later), Err(Flood));
    }

    #[test]
    fn uploads_and_requests_cost_nothing() {
        let mut frames = begun();
        for _ in 0..H2_CONTROL_FRAMES * 2 {
            frames.follow(&frame(kind::HEADERS, flag::END_HEADERS, &[0; 30]), Time::ZERO).expect("a request");
            frames.follow(&frame(kind::DATA, 0, &[0; 5]), Time::ZERO).expect("its body");
            frames.follow(&frame(kind::DATA, flag::END_STREAM, &[]), Time::ZERO).expect("its end");
        }
        assert_eq!(frames.allowed, H2_CONTROL_FRAMES);
    }

    /// Padding is no content (CVE-2019-9518).
    #[test]
    fn frames_of_padding_alone_run_out() {
        let padding = frame(kind::DATA, flag::PADDED, &[[255].as_slice(), &[0; 255]].concat());
        let content = frame(kind::DATA, flag::PADDED, &[[1].as_slice(), &[7; 300], &[0]].concat());
        for cut in [1, 7, 600] {
            let mut frames = begun();
            let mut send = |bytes: &[u8]| bytes.chunks(cut).try_for_each(|b| frames.follow(b, Time::ZERO));
            for _ in 0..H2_CONTROL_FRAMES * 2 {
                send(&content).expect("content costs nothing");
            }
            for _ in 0..H2_CONTROL_FRAMES {
                send(&padding).expect("allowed");
            }
            assert_eq!(send(&padding), Err(Flood));
        }
    }

    #[test]
    fn a_header_block_lasts_until_its_last_frame() {
        let mut frames = begun();
        frames.follow(&frame(kind::HEADERS, 0, &[0; 3]), Time::from_nanos(5)).expect("allowed");
        frames.follow(&frame(kind::CONTINUATION, 0, &[0; 3]), Time::from_nanos(7)).expect("allowed");
        assert_eq!(frames.block_since(), Some(Time::from_nanos(5)));
        frames
            .follow(&frame(kind::CONTINUATION, flag::END_HEADERS, &[0; 3]), Time::from_nanos(9))
            .expect("allowed");
        assert_eq!((frames.block_since(), frames.is_in_head()), (None, false));
        frames
            .follow(&frame(kind::HEADERS, flag::END_HEADERS, &[0; 3])[..10], Time::from_nanos(9))
            .expect("allowed");
        assert!(frames.is_in_head());
    }
}
