//! Two small layers: bytes with one bit pattern changed, and records behind a handshake.

use std::net::SocketAddr;

use linerate_net::layer::{Layer, Progress, Session};
use linerate_net::{Listener, NetError, NetErrorKind, Profile};

const PATTERN: u8 = 0x5a;

/// Inverts some bits of each byte; no handshake and no end of its own.
pub(crate) struct Xor;

pub(crate) struct XorLayer;

impl Layer for XorLayer {
    type Session = Xor;

    fn connect(&mut self, _profile: Profile, _to: SocketAddr) -> Result<Option<Xor>, NetError> {
        Ok(Some(Xor))
    }

    fn accept(&mut self, _listener: Listener, _profile: Profile, _peer: SocketAddr) -> Option<Xor> {
        Some(Xor)
    }
}

impl Session for Xor {
    fn begin(&mut self, _wire: &mut Vec<u8>) {}

    fn open(&mut self, wire: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> Progress {
        wire.iter_mut().for_each(|byte| *byte ^= PATTERN);
        take(wire);
        Progress::Open
    }

    fn reply(&mut self, _wire: &mut Vec<u8>) {}

    fn is_ready(&self) -> bool {
        true
    }

    fn seal(&mut self, bytes: &[u8], wire: &mut Vec<u8>) {
        wire.extend(bytes.iter().map(|byte| byte ^ PATTERN));
    }

    fn sealed_len(&self, len: usize) -> usize {
        len
    }

    fn finish(&mut self, _wire: &mut Vec<u8>) {}

    fn cut(&mut self) -> Progress {
        Progress::Ended
    }
}

/// The largest record.
const RECORD: usize = 1000;
const HEAD: usize = 2;

/// Hello, hello, done; then records: a length, and bytes XORed with the sender's key. A record of
/// length zero is the end.
pub(crate) struct Records {
    is_client: bool,
    key: u8,
    peer: Option<u8>,
    /// The client's last handshake message was sent, or arrived.
    is_done: bool,
    held: Vec<u8>,
    replies: Vec<u8>,
}

pub(crate) struct RecordsLayer;

impl Records {
    fn new(is_client: bool, key: u8) -> Records {
        Records { is_client, key, peer: None, is_done: false, held: Vec::new(), replies: Vec::new() }
    }

    pub(crate) fn wire_len(len: usize) -> usize {
        len + len.div_ceil(RECORD) * HEAD
    }

    fn shake(&mut self, byte: u8) {
        match (self.is_client, self.peer) {
            (true, _) => {
                (self.peer, self.is_done) = (Some(byte), true);
                self.replies.push(byte);
            }
            (false, None) => {
                self.peer = Some(byte);
                self.replies.push(self.key);
            }
            (false, Some(_)) => self.is_done = byte == self.key,
        }
    }
}

impl Layer for RecordsLayer {
    type Session = Records;

    fn connect(&mut self, _profile: Profile, to: SocketAddr) -> Result<Option<Records>, NetError> {
        Ok(Some(Records::new(true, to.port() as u8)))
    }

    fn accept(&mut self, _listener: Listener, _profile: Profile, peer: SocketAddr) -> Option<Records> {
        Some(Records::new(false, peer.port() as u8))
    }
}

impl Session for Records {
    fn begin(&mut self, wire: &mut Vec<u8>) {
        if self.is_client {
            wire.push(self.key);
        }
    }

    fn open(&mut self, wire: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> Progress {
        self.held.extend_from_slice(wire);
        let mut at = 0;
        while !self.is_done && at < self.held.len() {
            self.shake(self.held[at]);
            at += 1;
        }
        let mut progress = Progress::Open;
        while self.is_done && progress == Progress::Open && self.held.len() >= at + HEAD {
            let len = usize::from(u16::from_be_bytes([self.held[at], self.held[at + 1]]));
            if len > RECORD {
                progress = Progress::Failed(NetError::of(NetErrorKind::Other));
            } else if len == 0 {
                progress = Progress::Ended;
            } else if self.held.len() >= at + HEAD + len {
                let record = &mut self.held[at + HEAD..at + HEAD + len];
                let key = self.peer.expect("the handshake is over");
                record.iter_mut().for_each(|byte| *byte ^= key);
                take(record);
                at += HEAD + len;
            } else {
                break;
            }
        }
        self.held.drain(..at);
        progress
    }

    fn reply(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.replies);
    }

    fn is_ready(&self) -> bool {
        self.is_done
    }

    fn seal(&mut self, bytes: &[u8], wire: &mut Vec<u8>) {
        for record in bytes.chunks(RECORD) {
            wire.extend_from_slice(&(record.len() as u16).to_be_bytes());
            wire.extend(record.iter().map(|byte| byte ^ self.key));
        }
    }

    fn sealed_len(&self, len: usize) -> usize {
        Records::wire_len(len)
    }

    fn finish(&mut self, wire: &mut Vec<u8>) {
        wire.extend_from_slice(&[0; HEAD]);
    }

    fn cut(&mut self) -> Progress {
        Progress::Failed(NetError::of(NetErrorKind::Reset))
    }
}
