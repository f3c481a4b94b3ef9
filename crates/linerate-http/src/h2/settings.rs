//! The peer's settings (RFC 9113, section 6.5).

use super::limits::{FIRST_STREAMS, FIRST_WINDOW, FRAME_BYTES, LARGEST_WINDOW};
use super::{Code, H2Error};

/// Settings that the peer has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`; `None`: any number, or nothing was said yet.
    pub max_concurrent_streams: Option<u32>,
    /// `SETTINGS_INITIAL_WINDOW_SIZE`.
    pub initial_window_size: u32,
    /// `SETTINGS_MAX_FRAME_SIZE`.
    pub max_frame_size: u32,
    /// The peer's settings have come.
    pub come: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_concurrent_streams: None,
            initial_window_size: FIRST_WINDOW,
            max_frame_size: FRAME_BYTES,
            come: false,
        }
    }
}

/// Numbers of settings.
pub(super) mod id {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const ENABLE_PUSH: u16 = 2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(in super::super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

impl Settings {
    /// Streams that may be open at once.
    #[inline]
    pub fn streams(&self) -> u32 {
        match self.max_concurrent_streams {
            Some(most) => most,
            None if self.come => u32::MAX,
            None => FIRST_STREAMS,
        }
    }

    /// Takes a SETTINGS frame's payload, setting by setting in its order. `most_push`: the largest
    /// `SETTINGS_ENABLE_PUSH` that this peer may send.
    pub(super) fn read(&mut self, payload: &[u8], most_push: u32) -> Result<(), H2Error> {
        if !payload.len().is_multiple_of(6) {
            return Err(H2Error::new(Code::FRAME_SIZE_ERROR, "a SETTINGS frame breaks off"));
        }
        self.come = true;
        for setting in payload.chunks_exact(6) {
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                id::ENABLE_PUSH if value > most_push => {
                    return Err(H2Error::protocol(format!("SETTINGS_ENABLE_PUSH is {value}")));
                }
                id::MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = Some(value),
                id::INITIAL_WINDOW_SIZE if value > LARGEST_WINDOW => {
                    let why = format!("SETTINGS_INITIAL_WINDOW_SIZE is {value}");
                    return Err(H2Error::new(Code::FLOW_CONTROL_ERROR, why));
                }
                id::INITIAL_WINDOW_SIZE => self.initial_window_size = value,
                id::MAX_FRAME_SIZE if !(FRAME_BYTES..1 << 24).contains(&value) => {
                    return Err(H2Error::protocol(format!("SETTINGS_MAX_FRAME_SIZE is {value}")));
                }
                id::MAX_FRAME_SIZE => self.max_frame_size = value,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends a setting of ours.
pub(super) fn put(id: u16, value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&value.to_be_bytes());
}
