//! Finds where WebSocket frames begin and end (RFC 6455 section 5.2), however their bytes are cut,
//! and inserts a Close frame of the server between those of a handler.

use bytes::Bytes;

/// Longest header: two bytes, a length of eight, a mask of four.
const HEADER: usize = 14;

/// Opcode of the Close frame (RFC 6455 section 5.5.1).
const CLOSE: u8 = 8;

/// A complete Close frame of a server: 1001, "going away" (RFC 6455 section 7.4.1).
pub(crate) const GOING_AWAY: &[u8] = &[0x80 | CLOSE, 2, 0x03, 0xe9];

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    header: [u8; HEADER],
    /// Bytes received of the header.
    have: usize,
    /// Bytes left of the payload.
    left: u64,
    /// A Close frame has begun, which is the last frame.
    closes: bool,
}

impl Frames {
    /// Handles the next bytes. Returns the last position in them, their end included, where a frame
    /// may begin.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut boundary = self.is_between().then_some(0);
        let mut at = 0;
        while at < bytes.len() {
            if self.left > 0 {
                let step = self.left.min((bytes.len() - at) as u64);
                at += step as usize;
                self.left -= step;
            } else {
                self.header[self.have] = bytes[at];
                (self.have, at) = (self.have + 1, at + 1);
                let Some(payload) = self.payload() else { continue };
                self.closes |= self.header[0] & 0xf == CLOSE;
                (self.have, self.left) = (0, payload);
            }
            if self.left == 0 {
                boundary = Some(at);
            }
        }
        boundary
    }

    /// Whether a frame may begin here.
    pub(crate) fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    /// Whether a Close frame has begun.
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    /// Whether a complete Close frame has been seen.
    pub(crate) fn is_closed(&self) -> bool {
        self.closes && self.is_between()
    }

    /// Length of the payload, once the header is complete.
    fn payload(&self) -> Option<u64> {
        let header = self.header.get(..self.have)?;
        let &[_, second, ref rest @ ..] = header else { return None };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        let (short, extended) = match second & 0x7f {
            126 => (0, 2),
            127 => (0, 8),
            short => (u64::from(short), 0),
        };
        if rest.len() < extended + mask {
            return None;
        }
        Some(rest[..extended].iter().fold(short, |length, byte| length << 8 | u64::from(*byte)))
    }
}

/// The bytes that a handler writes on a connection that was handed over, from its response's head on.
#[derive(Debug, Default)]
pub(crate) struct WebSocketBytes {
    /// Bytes seen in a row of the empty line after the head: 4 once the frames begin.
    head: usize,
    frames: Frames,
    /// The server's own Close frame was written.
    closed: bool,
}

impl WebSocketBytes {
    /// For a connection whose head is written elsewhere.
    pub(crate) fn behind_head() -> WebSocketBytes {
        WebSocketBytes { head: 4, ..WebSocketBytes::default() }
    }

    /// The part of the next bytes to send. `due`: insert the server's Close frame where possible,
    /// with nothing after it.
    pub(crate) fn pass(&mut self, bytes: Bytes, due: bool) -> Bytes {
        let mut head = 0;
        while self.head < 4
            && let Some(byte) = bytes.get(head)
        {
            self.head = match (self.head, byte) {
                (0 | 2, b'\r') | (1 | 3, b'\n') => self.head + 1,
                (_, b'\r') => 1,
                _ => 0,
            };
            head += 1;
        }
        let boundary = self.frames.advance(&bytes[head..]);
        match boundary.filter(|_| due && self.may_close()) {
            Some(at) => {
                self.closed = true;
                Bytes::from([&bytes[..head + at], GOING_AWAY].concat())
            }
            None => bytes,
        }
    }

    /// The handler writes nothing now: the server's Close frame, if it may be inserted here.
    pub(crate) fn close(&mut self) -> Option<Bytes> {
        let may = self.may_close() && self.frames.is_between();
        self.closed |= may;
        may.then_some(Bytes::from_static(GOING_AWAY))
    }

    /// Whether the server has written its Close frame.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Not before the frames begin, nor after the handler's own Close frame.
    fn may_close(&self) -> bool {
        self.head == 4 && !self.frames.closes() && !self.closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(opcode: u8, masked: bool, payload: usize) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match payload {
            0..126 => frame.push(mask | payload as u8),
            126..65536 => {
                frame.push(mask | 126);
                frame.extend((payload as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        // Bytes that would be a Close frame if they were mistaken for a header.
        frame.extend(vec![0x88; payload + if masked { 4 } else { 0 }]);
        frame
    }

    #[test]
    fn the_close_frame_is_one() {
        let mut frames = Frames::default();
        assert!(frames.is_between());
        assert_eq!(frames.advance(GOING_AWAY), Some(GOING_AWAY.len()));
        assert!(frames.is_closed());
    }

    #[test]
    fn a_close_frame_is_there_once_all_of_it_is() {
        for masked in [false, true] {
            let bytes = frame(CLOSE, masked, 30);
            let mut frames = Frames::default();
            assert_eq!(frames.advance(&bytes[..bytes.len() - 1]), Some(0));
            assert!(frames.closes() && !frames.is_closed());
            assert_eq!(frames.advance(&bytes[bytes.len() - 1..]), Some(1));
            assert!(frames.is_closed());
        }
    }

    #[test]
    fn a_length_that_no_frame_may_have_does_no_harm() {
        let mut frames = Frames::default();
        let mut bytes = vec![0x82, 127];
        bytes.extend([0xff; 8]);
        assert_eq!(frames.advance(&bytes), Some(0));
        assert_eq!(frames.advance(&[0; 1000]), None);
    }

    const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";

    #[test]
    fn the_server_closes_between_two_frames_and_behind_those_that_are_whole() {
        let text = frame(1, false, 20);
        let all = [HEAD, &text, &text].concat();
        for cut in 0..=all.len() {
            let mut outgoing = WebSocketBytes::default();
            let first = outgoing.pass(Bytes::copy_from_slice(&all[..cut]), true);
            let whole = (cut.saturating_sub(HEAD.len())) / text.len();
            if cut < HEAD.len() {
                assert_eq!(first, all[..cut]);
                assert_eq!(outgoing.close(), None, "{cut}");
                continue;
            }
            assert_eq!(first, [&all[..HEAD.len() + whole * text.len()], GOING_AWAY].concat(), "{cut}");
            assert!(outgoing.is_closed() && outgoing.close().is_none());
        }
        // If the drain comes in the middle of a frame, after the frame's end.
        let mut outgoing = WebSocketBytes::default();
        let (begin, rest) = all.split_at(HEAD.len() + 5);
        assert_eq!(outgoing.pass(Bytes::copy_from_slice(begin), false), begin);
        assert_eq!(outgoing.close(), None);
        let end = outgoing.pass(Bytes::copy_from_slice(&rest[..text.len() - 5]), true);
        assert_eq!(end, [&rest[..text.len() - 5], GOING_AWAY].concat());
    }

    #[test]
    fn a_handler_that_has_closed_has_said_it_all() {
        let mut outgoing = WebSocketBytes::default();
        let said = [HEAD, &frame(CLOSE, false, 2)].concat();
        assert_eq!(outgoing.pass(Bytes::from(said.clone()), true), said);
        assert_eq!(outgoing.close(), None);
        assert!(!outgoing.is_closed());
    }

    #[test]
    fn an_idle_websocket_is_closed_at_once() {
        let mut outgoing = WebSocketBytes::default();
        assert_eq!(outgoing.pass(Bytes::from_static(HEAD), false), HEAD);
        assert_eq!(outgoing.close().as_deref(), Some(GOING_AWAY));
    }

    proptest! {
        #[test]
        fn boundaries_are_where_frames_end_however_they_are_cut(
            sizes in proptest::collection::vec((0u8..8, any::<bool>(), prop_oneof![0usize..300, 65_500..65_600usize]), 1..8),
            cuts in proptest::collection::vec(1usize..2000, 1..60),
        ) {
            let (mut bytes, mut ends) = (Vec::new(), vec![0]);
            for (opcode, masked, size) in sizes {
                bytes.extend(frame(opcode, masked, size));
                ends.push(bytes.len());
            }
            let (mut frames, mut at) = (Frames::default(), 0);
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let to = at + cut.min(bytes.len() - at);
                let expected = ends.iter().rfind(|end| (at..=to).contains(end)).map(|end| end - at);
                prop_assert_eq!(frames.advance(&bytes[at..to]), expected);
                prop_assert_eq!(frames.is_between(), ends.contains(&to));
                at = to;
            }
            prop_assert!(!frames.closes());
        }
    }
}
