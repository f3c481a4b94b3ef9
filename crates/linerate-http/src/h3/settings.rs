//! Settings (RFC 9114, section 7.2.4; RFC 9204, section 5).

use super::frame::{frame_kind, put_frame};
use super::varint::{put_varint, varint};
use super::{H3Code, H3Error};

/// Settings of one end of a connection. The default is what holds before any came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct H3Settings {
    /// `SETTINGS_QPACK_MAX_TABLE_CAPACITY`: bytes of the dynamic table of whoever decodes.
    pub table_capacity: u64,
    /// `SETTINGS_QPACK_BLOCKED_STREAMS`: streams that may wait for entries of the table.
    pub blocked_streams: u64,
    /// `SETTINGS_MAX_FIELD_SECTION_SIZE`: bytes of a message's fields, each with 32 more than its
    /// own; `None`: no limit was announced.
    pub field_section_bytes: Option<u64>,
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 9220).
    pub extended_connect: bool,
}

/// Settings in one frame. Reason: real ones have fewer than ten.
const MOST_SETTINGS: usize = 256;

mod id {
    pub(super) const TABLE_CAPACITY: u64 = 1;
    pub(super) const FIELD_SECTION_BYTES: u64 = 6;
    pub(super) const BLOCKED_STREAMS: u64 = 7;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u64 = 8;
    /// Settings of HTTP/2 that no connection of HTTP/3 may have (RFC 9114, section 7.2.4.1).
    pub(super) const OF_HTTP2: std::ops::RangeInclusive<u64> = 2..=5;
}

impl H3Settings {
    /// Reads a SETTINGS frame's payload.
    ///
    /// # Errors
    /// It breaks the rules.
    pub fn read(payload: &[u8]) -> Result<H3Settings, H3Error> {
        let short = || H3Error::new(H3Code::FRAME_ERROR, "a SETTINGS frame breaks off");
        let broken = |why: String| H3Error::new(H3Code::SETTINGS_ERROR, why);
        let mut settings = H3Settings::default();
        let mut seen = Vec::new();
        let mut input = payload;
        while !input.is_empty() {
            let id = varint(&mut input).ok_or_else(short)?;
            let value = varint(&mut input).ok_or_else(short)?;
            if seen.contains(&id) {
                return Err(broken(format!("setting {id:#x} is there twice")));
            }
            if seen.len() == MOST_SETTINGS {
                let why = format!("a SETTINGS frame of more than {MOST_SETTINGS} settings");
                return Err(H3Error::new(H3Code::EXCESSIVE_LOAD, why));
            }
            seen.push(id);
            match id {
                0 => return Err(broken("setting 0 is reserved".to_owned())),
                id::TABLE_CAPACITY => settings.table_capacity = value,
                id::FIELD_SECTION_BYTES => settings.field_section_bytes = Some(value),
                id::BLOCKED_STREAMS => settings.blocked_streams = value,
                id::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return Err(broken(format!("SETTINGS_ENABLE_CONNECT_PROTOCOL is {value}")));
                }
                id::ENABLE_CONNECT_PROTOCOL => settings.extended_connect = value == 1,
                id if id::OF_HTTP2.contains(&id) => {
                    return Err(broken(format!("setting {id:#x} is one of HTTP/2")));
                }
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Appends a SETTINGS frame with what differs from the default.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(32);
        let mut put = |id: u64, value: u64| {
            put_varint(id, &mut payload);
            put_varint(value, &mut payload);
        };
        if self.table_capacity > 0 {
            put(id::TABLE_CAPACITY, self.table_capacity);
        }
        if let Some(bytes) = self.field_section_bytes {
            put(id::FIELD_SECTION_BYTES, bytes);
        }
        if self.blocked_streams > 0 {
            put(id::BLOCKED_STREAMS, self.blocked_streams);
        }
        if self.extended_connect {
            put(id::ENABLE_CONNECT_PROTOCOL, 1);
        }
        put_frame(frame_kind::SETTINGS, &payload, out);
    }
}
