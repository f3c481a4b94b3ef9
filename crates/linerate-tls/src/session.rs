//! One connection's TLS.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_net::layer::{Progress, Session};
use linerate_net::{NetError, NetErrorKind};
use rustls::{AlertDescription, CommonState, Error};

use crate::handshakes::{HandshakeCounts, ServerHandshake, TlsInfo};
use crate::limits::{HELD, HELD_KEPT};
use crate::machine::{TlsMachine, sealed_len};
use crate::words::{describe, describe_client, describe_on_working, is_of_handshake, other_protocol};

/// The response to a client that speaks HTTP to a TLS port. It is not encrypted, since the client
/// is not.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 53\r\n\
Connection: close\r\n\r\nThis port speaks HTTPS. Use https:// instead of http\n";

/// A record's type (RFC 8446 section 5.1).
const ALERT: u8 = 21;
/// An alert's level (RFC 8446 section 6).
const FATAL: u8 = 2;

/// TLS for one connection, either side.
pub struct TlsSession {
    machine: TlsMachine,
    counts: Arc<Mutex<HandshakeCounts>>,
    /// Bytes of an incomplete record or handshake message.
    held: Vec<u8>,
    /// Bytes that must leave before anything else.
    replies: Vec<u8>,
    /// The handshake was counted, as ready or failed.
    is_counted: bool,
    is_ready: bool,
    /// Bytes were received.
    has_begun: bool,
    /// Why it failed; nothing is sent any more.
    why: Option<String>,
    /// Application data was received.
    has_carried: bool,
    /// Records were sent.
    has_spoken: bool,
}

impl TlsSession {
    pub(crate) fn new(machine: TlsMachine, counts: Arc<Mutex<HandshakeCounts>>) -> TlsSession {
        TlsSession {
            machine,
            counts,
            held: Vec::new(),
            replies: Vec::new(),
            is_counted: false,
            is_ready: false,
            has_begun: false,
            why: None,
            has_carried: false,
            has_spoken: false,
        }
    }

    /// rustls' state: version, cipher, certificates of the peer.
    pub fn state(&self) -> &CommonState {
        self.machine.state()
    }

    /// What a client saw of the server, once the handshake is over.
    pub fn seen(&self) -> Option<ServerHandshake> {
        let state = self.machine.state();
        (!state.is_handshaking()).then(|| ServerHandshake::by(state))
    }

    /// Bytes of a record that is not complete yet.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn count(&mut self, note: impl FnOnce(&mut HandshakeCounts, &CommonState)) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            note(&mut counts, self.machine.state());
        }
    }

    /// It failed. `kind`: how, once requests may pass.
    fn fail(&mut self, why: String, kind: Option<NetErrorKind>) -> Progress {
        let why = self.counts.lock().unwrap_or_else(PoisonError::into_inner).told(why);
        self.why = Some(why.clone());
        if let Some(kind) = kind.filter(|_| self.is_ready) {
            return Progress::Failed(NetError::of(kind));
        }
        // A TLS 1.3 server refuses a client's certificate after the client's handshake is complete
        // (RFC 8446 section 4.4.2.4).
        if self.has_carried {
            return Progress::Failed(NetError::of(NetErrorKind::Garbled));
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.is_counted, self.is_ready) {
            (true, true) => counts.refused(self.machine.state(), why),
            (false, _) => counts.failed(why),
            (true, false) => {}
        }
        drop(counts);
        self.is_counted = true;
        Progress::Failed(NetError::of(NetErrorKind::Handshake))
    }

    /// A client whose first byte is a letter speaks HTTP: a TLS record begins with its type, which
    /// is not a letter.
    fn is_plain_http(&mut self, wire: &[u8]) -> bool {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        is_first && matches!(self.machine, TlsMachine::Server(_)) && wire[0].is_ascii_uppercase()
    }

    fn walk(&mut self, bytes: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> (usize, Progress) {
        let has_carried = &mut self.has_carried;
        let walk = self.machine.walk(bytes, &mut self.replies, &mut |plain: &mut [u8]| {
            *has_carried = true;
            take(plain);
        });
        if !self.is_ready && !self.machine.state().is_handshaking() {
            self.is_ready = true;
            self.count(HandshakeCounts::ready);
        }
        let progress = match walk.error {
            Some(error) => {
                self.alert(&error);
                let why = match self.machine {
                    _ if self.is_ready && !is_of_handshake(&error) => describe_on_working(&error),
                    TlsMachine::Client(_) if self.machine.state().protocol_version().is_none() => {
                        other_protocol(&bytes[walk.used..]).unwrap_or_else(|| describe(&error))
                    }
                    TlsMachine::Client(_) => describe(&error),
                    TlsMachine::Server(_) => describe_client(&error),
                };
                self.fail(why, of_working(&error))
            }
            None if walk.ended => Progress::Ended,
            None => Progress::Open,
        };
        self.has_spoken |= !self.replies.is_empty();
        (walk.used, progress)
    }

    /// For some faults of a ClientHello rustls sends no alert (RFC 8446 sections 5.1 and 6.2). A server
    /// that has sent nothing has no keys either, so an alert can be made here.
    fn alert(&mut self, error: &Error) {
        let is_server = matches!(self.machine, TlsMachine::Server(_));
        let what = match error {
            Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
            Error::InvalidMessage(_) => AlertDescription::DecodeError,
            _ => return,
        };
        if is_server && !self.has_spoken && self.replies.is_empty() {
            self.replies.extend_from_slice(&[ALERT, 3, 3, 0, 2, FATAL, what.into()]);
        }
    }
}

/// What an error is on a connection on which requests may pass; `None`: it still concerns the handshake.
fn of_working(error: &Error) -> Option<NetErrorKind> {
    match error {
        error if is_of_handshake(error) => None,
        Error::AlertReceived(_) => Some(NetErrorKind::Cut),
        _ => Some(NetErrorKind::Garbled),
    }
}

impl Session for TlsSession {
    fn begin(&mut self, wire: &mut Vec<u8>) {
        self.walk(&mut [], &mut |_| ());
        wire.append(&mut self.replies);
    }

    fn open(&mut self, wire: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> Progress {
        if wire.is_empty() {
            return Progress::Open;
        }
        if self.is_plain_http(wire) {
            self.replies.extend_from_slice(PLAIN_HTTP);
            return self.fail("plain HTTP to a TLS port".to_owned(), None);
        }
        // Complete records are decrypted in place; only the rest is kept.
        if self.held.is_empty() {
            let (used, progress) = self.walk(wire, take);
            self.held.extend_from_slice(&wire[used..]);
            return progress;
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(wire);
        let (used, progress) = self.walk(&mut held, take);
        held.drain(..used);
        if held.capacity() > HELD_KEPT.max(2 * held.len()) {
            held.shrink_to(HELD_KEPT);
        }
        self.held = held;
        if progress == Progress::Open && self.held.len() > HELD {
            return self.fail("a message without an end".to_owned(), Some(NetErrorKind::Garbled));
        }
        progress
    }

    fn reply(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.replies);
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn seal(&mut self, bytes: &[u8], wire: &mut Vec<u8>) {
        if self.why.is_none() {
            self.machine.seal(&mut self.held, bytes, wire);
        }
    }

    fn sealed_len(&self, len: usize) -> usize {
        sealed_len(len)
    }

    fn finish(&mut self, wire: &mut Vec<u8>) {
        if self.why.is_none() {
            self.machine.finish(&mut self.held, wire);
        }
    }

    fn cut(&mut self) -> Progress {
        if !self.is_ready {
            return self.fail("the peer closed the connection during the handshake".to_owned(), None);
        }
        match self.machine {
            TlsMachine::Client(_) => Progress::Failed(NetError::of(NetErrorKind::Cut)),
            // Requests have their own end, and a client that has sent its FIN may still read.
            TlsMachine::Server(_) => Progress::Ended,
        }
    }

    fn lost(&mut self, error: NetError) {
        if self.why.is_none() {
            let what = match error.kind {
                NetErrorKind::Reset => "the peer reset the connection".to_owned(),
                _ => error.to_string(),
            };
            self.fail(format!("{what} during the handshake"), None);
        }
    }

    fn reason(&self) -> Option<String> {
        let unfinished = || (!self.is_ready).then_some("the handshake did not end in time");
        self.why.as_deref().or_else(unfinished).map(|why| format!("TLS: {why}"))
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.machine.state().alpn_protocol()
    }

    fn about(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let state = self.machine.state();
        (!state.is_handshaking()).then(|| Arc::new(TlsInfo::of(state)) as Arc<dyn Any + Send + Sync>)
    }
}

impl Drop for TlsSession {
    /// A server gives up a handshake by closing the connection; a client counts what became of its
    /// requests.
    fn drop(&mut self) {
        if matches!(self.machine, TlsMachine::Server(_)) {
            self.count(|counts, _| {
                counts.failed(
                    "the handshake was given up: it took too long, or the connection was reset".to_owned(),
                )
            });
        }
    }
}
