//! HTTP/2's frames (RFC 9113 section 4.1), as far as a bare server and a raw client need them.

/// Bytes of a frame's head.
pub(crate) const HEAD: usize = 9;
/// A client's first bytes.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest window, and all of it that a connection does not have from the beginning.
pub(crate) const WINDOW: u32 = (1 << 31) - 1;
/// See [`WINDOW`].
pub(crate) const MORE_WINDOW: u32 = WINDOW - 65_535;

/// Kinds of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// Flags: of DATA and HEADERS, of SETTINGS and PING, of HEADERS.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Settings.
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// A frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

impl RawFrame<'_> {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Takes the first frame, if all of it is there.
#[inline]
pub(crate) fn next<'a>(bytes: &mut &'a [u8]) -> Option<RawFrame<'a>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let (payload, behind) = rest.split_at_checked(len)?;
    *bytes = behind;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & WINDOW;
    Some(RawFrame { kind: head[3], flags: head[4], stream, payload })
}

/// Appends a frame.
pub(crate) fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends SETTINGS.
pub(crate) fn put_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    put(SETTINGS, 0, 0, &payload, out);
}

/// Appends a field as a literal that enters no table, with a name of the static table (RFC 7541
/// section 6.2.2). Value: up to 126 bytes.
pub(crate) fn put_field(name: u8, value: &str, out: &mut Vec<u8>) {
    const FIRST: u8 = 15;
    match name.checked_sub(FIRST) {
        Some(rest) => out.extend_from_slice(&[FIRST, rest]),
        None => out.push(name),
    }
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
}

/// Writes the stream's number into a frame that begins at `at`.
#[inline]
pub(crate) fn number(frame: &mut [u8], at: usize, stream: u32) {
    frame[at + 5..at + HEAD].copy_from_slice(&stream.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        let mut bytes = Vec::new();
        put_settings(&[(MAX_CONCURRENT_STREAMS, 100)], &mut bytes);
        put(HEADERS, END_STREAM, 7, b"ab", &mut bytes);
        let mut rest = &bytes[..];
        let settings = next(&mut rest).expect("whole");
        assert_eq!((settings.kind, settings.payload), (SETTINGS, &[0, 3, 0, 0, 0, 100][..]));
        let headers = next(&mut rest).expect("whole");
        assert_eq!((headers.stream, headers.payload, headers.has(END_STREAM)), (7, &b"ab"[..], true));
        assert!(rest.is_empty());
        assert!(next(&mut &bytes[..bytes.len() - 1].split_at(15).1[..]).is_none());
    }

    #[test]
    fn fields_are_literals() {
        let mut block = Vec::new();
        put_field(1, "h", &mut block);
        put_field(33, "d", &mut block);
        assert_eq!(block, [1, 1, b'h', 15, 18, 1, b'd']);
    }
}
