//! HTTP/2 frames by hand, so that they can be wrong (RFC 9113).

/// Frame types (RFC 9113, section 6).
pub mod kind {
    #![allow(missing_docs)]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags (RFC 9113, section 6).
pub mod flag {
    #![allow(missing_docs)]
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
}

/// The field block of a response 200.
pub const OK: &[u8] = b"\x88";

/// Frames, one after the other. Nothing checks that they make sense.
#[derive(Clone, Debug, Default)]
pub struct FrameBytes(pub Vec<u8>);

impl FrameBytes {
    /// None yet.
    pub fn new() -> FrameBytes {
        FrameBytes::default()
    }

    /// Any frame.
    #[must_use]
    pub fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> FrameBytes {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        self.0.extend_from_slice(&[a, b, c, kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
        self
    }

    /// HEADERS with a whole field block.
    #[must_use]
    pub fn headers(self, stream: u32, block: &[u8]) -> FrameBytes {
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, block)
    }

    /// HEADERS with a whole field block, behind which nothing follows.
    #[must_use]
    pub fn last_headers(self, stream: u32, block: &[u8]) -> FrameBytes {
        self.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, block)
    }

    /// DATA of which more follows.
    #[must_use]
    pub fn data(self, stream: u32, content: &[u8]) -> FrameBytes {
        self.frame(kind::DATA, 0, stream, content)
    }

    /// DATA that ends the response.
    #[must_use]
    pub fn last_data(self, stream: u32, content: &[u8]) -> FrameBytes {
        self.frame(kind::DATA, flag::END_STREAM, stream, content)
    }

    /// A whole response of status 200.
    #[must_use]
    pub fn good(self, stream: u32) -> FrameBytes {
        self.headers(stream, &with(OK, "content-length", "6")).last_data(stream, b"hello\n")
    }

    /// A whole response of another status.
    #[must_use]
    pub fn status(self, stream: u32, status: u16) -> FrameBytes {
        self.last_headers(stream, &block_of(status))
    }

    /// RST_STREAM.
    #[must_use]
    pub fn reset(self, stream: u32, code: u32) -> FrameBytes {
        self.frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
    }

    /// GOAWAY.
    #[must_use]
    pub fn go_away(self, last: u32, code: u32) -> FrameBytes {
        self.frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
    }

    /// WINDOW_UPDATE.
    #[must_use]
    pub fn window(self, stream: u32, bytes: u32) -> FrameBytes {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// SETTINGS.
    #[must_use]
    pub fn settings(self, settings: &[(u16, u32)]) -> FrameBytes {
        let each =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        self.frame(kind::SETTINGS, 0, 0, &each.collect::<Vec<u8>>())
    }
}

/// The field block of a response's status.
pub fn block_of(status: u16) -> Vec<u8> {
    // Literal without indexing, the name of entry 8 (RFC 7541, section 6.2.2).
    [&[0x08, 3][..], status.to_string().as_bytes()].concat()
}

/// A field block and one field more: literal, not indexed, no Huffman code.
pub fn with(block: &[u8], name: &str, value: &str) -> Vec<u8> {
    let mut out = [block, &[0]].concat();
    for text in [name, value] {
        // RFC 7541, section 5.1: seven bits, then seven in each further byte.
        match text.len() {
            len @ ..127 => out.push(len as u8),
            len => {
                out.push(127);
                let mut left = len - 127;
                while left >= 128 {
                    out.push((left % 128) as u8 | 128);
                    left /= 128;
                }
                out.push(left as u8);
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_fields_are_laid_out_as_the_rfcs_say() {
        assert_eq!(FrameBytes::new().reset(5, 7).0, b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\x07");
        assert_eq!(FrameBytes::new().settings(&[(3, 1)]).0, b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x01");
        assert_eq!(with(OK, "a", "b"), b"\x88\0\x01a\x01b");
        let long = with(OK, "a", &"x".repeat(300));
        assert_eq!(&long[4..7], [127, 128 + 45, 1]);
        assert_eq!(block_of(503), b"\x08\x03503");
    }
}
