//! A connection, over TLS or not: what the request and the response pass.

use std::time::Duration;

use linerate_net::Time;
use linerate_net::instrument::{self, Probe as Socket, ProbeError};
use linerate_net::layer::{Progress, Session};
use linerate_net::{NetError, NetErrorKind};
use linerate_tls::{ClientOptions, TlsError, TlsSession, Variant, Variants};

use super::http::Http;
use super::talk::Streams;
use crate::handshake::{Handshake, Trip};

/// TLS towards a server: plain data, beside the sessions that it gave.
#[derive(Clone, Debug)]
pub struct ProbeTls {
    variants: Variants,
    /// The server's certificate is not checked.
    insecure: bool,
    /// Sessions are resumed, as browsers do.
    resumes: bool,
    /// The highest version that is offered is an old one.
    limited: bool,
}

impl ProbeTls {
    /// With these options, towards the server of this name or address.
    ///
    /// # Errors
    /// The name is none that a certificate can have, or the options do not fit together.
    pub fn of(options: &ClientOptions, name: &str) -> Result<ProbeTls, TlsError> {
        Ok(ProbeTls {
            variants: Variants::of(options, name)?,
            insecure: matches!(options.roots, linerate_tls::Roots::Insecure),
            resumes: options.resume,
            limited: options.most < linerate_tls::Version::Tls13,
        })
    }

    /// The settings that a diagnosis needs.
    pub(crate) fn settings(&self) -> crate::record::TlsSettings {
        crate::record::TlsSettings { insecure: self.insecure, resumes: self.resumes, limited: self.limited }
    }
}

/// How a connection's TLS is to be spoken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speak<'a> {
    pub(super) tls: &'a ProbeTls,
    pub(super) variant: Variant,
}

/// A session that is about to begin: its keys are made before the connection is opened, so that this
/// work of ours is in no time.
pub(super) struct Prepared {
    session: Result<Box<TlsSession>, String>,
    hello: Vec<u8>,
}

impl Speak<'_> {
    pub(super) fn prepare(&self) -> Prepared {
        let mut hello = Vec::new();
        let session =
            self.tls.variants.session(self.variant).map_err(|error| error.to_string()).map(|session| {
                let mut session = Box::new(session);
                session.begin(&mut hello);
                session
            });
        Prepared { session, hello }
    }
}

/// Why nothing more passes.
#[derive(Debug)]
pub(super) enum LostWire {
    /// The connection failed, or the time was over.
    Socket(ProbeError),
    /// TLS failed: why, in words.
    Tls(String),
}

impl From<ProbeError> for LostWire {
    fn from(error: ProbeError) -> LostWire {
        LostWire::Socket(error)
    }
}

/// A connection.
pub(super) struct ProbeWire {
    socket: Socket,
    session: Option<Box<TlsSession>>,
    /// The session's own bytes: they leave with the next request.
    out: Vec<u8>,
    /// Receives since a whole record of the response came: they belong to the next one.
    pending: Vec<(Time, usize)>,
    /// Bytes of the response that came in the handshake.
    early: Vec<u8>,
    /// The peer said that nothing more follows.
    ended: bool,
    /// It carries HTTP/2.
    pub(super) streams: Option<Box<Streams>>,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Came {
    /// Bytes of the response are in the buffer; these receives carried them over the wire.
    Bytes(Vec<(Time, usize)>),
    /// Bytes, and none of the response's yet.
    Nothing,
    /// The peer sends nothing more. `cut`: by TLS it had not said so.
    Ended { at: Time, cut: bool },
}

impl ProbeWire {
    pub(super) fn plain(socket: Socket) -> ProbeWire {
        ProbeWire {
            socket,
            session: None,
            out: Vec::new(),
            pending: Vec::new(),
            early: Vec::new(),
            ended: false,
            streams: None,
        }
    }

    /// Settles which HTTP it carries, by what was agreed on in its handshake.
    pub(super) fn agree(&mut self, http: Http, window: u32) -> Result<(), String> {
        let agreed = self.session.as_ref().map(|session| session.protocol() == Some(b"h2"));
        let streams = match (http, agreed) {
            (Http::One, _) | (Http::Auto, None | Some(false)) => false,
            (_, Some(true)) | (Http::Two, None) => true,
            (Http::Two, Some(false)) => {
                return Err("the server does not speak HTTP/2 over TLS (it does not choose h2 by ALPN): leave out --http2, or --http 2"
                    .to_owned());
            }
        };
        self.streams = streams.then(|| Box::new(Streams::new(window)));
        Ok(())
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    pub(super) fn look(&self) -> &Socket {
        &self.socket
    }

    /// Hands bytes to the kernel, in one write. Returns when that began.
    pub(super) fn write(&mut self, bytes: &[u8], deadline: Time) -> Result<Time, LostWire> {
        let Some(session) = &mut self.session else {
            let began = instrument::now();
            self.socket.write(bytes, false, deadline)?;
            return Ok(began);
        };
        session.seal(bytes, &mut self.out);
        let out = std::mem::take(&mut self.out);
        let began = instrument::now();
        self.socket.write(&out, false, deadline)?;
        Ok(began)
    }

    /// Receives; what came of the response is then in `plain`.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        plain: &mut Vec<u8>,
        deadline: Time,
    ) -> Result<Came, LostWire> {
        plain.clear();
        if !self.early.is_empty() {
            std::mem::swap(plain, &mut self.early);
            return Ok(Came::Bytes(vec![(instrument::now(), plain.len())]));
        }
        let read = self.socket.read(buffer, deadline)?;
        let Some(session) = &mut self.session else {
            if read.bytes == 0 {
                return Ok(Came::Ended { at: read.at, cut: false });
            }
            plain.extend_from_slice(&buffer[..read.bytes]);
            return Ok(Came::Bytes(vec![(read.at, read.bytes)]));
        };
        if read.bytes == 0 || self.ended {
            return Ok(Came::Ended { at: read.at, cut: !self.ended });
        }
        self.pending.push((read.at, read.bytes));
        let progress = session.open(&mut buffer[..read.bytes], &mut |piece| plain.extend_from_slice(piece));
        session.reply(&mut self.out);
        match progress {
            Progress::Failed(_) => {
                return Err(LostWire::Tls(session.reason().unwrap_or_else(|| "TLS failed".to_owned())));
            }
            Progress::Ended => self.ended = true,
            Progress::Open => {}
        }
        if !plain.is_empty() {
            return Ok(Came::Bytes(std::mem::take(&mut self.pending)));
        }
        if self.ended {
            return Ok(Came::Ended { at: read.at, cut: false });
        }
        if session.held() == 0 {
            // They were tickets, or another message that is no part of the response.
            self.pending.clear();
        }
        Ok(Came::Nothing)
    }

    /// Makes the TLS handshake on a connection that took so long to open; what it was so far, if it
    /// fails.
    pub(super) fn shake(
        &mut self,
        speak: &Speak<'_>,
        prepared: Prepared,
        connect: Duration,
        deadline: Time,
    ) -> (Handshake, Result<(), LostWire>) {
        let began = instrument::now();
        let start = Time::from_nanos(began.as_nanos().saturating_sub(connect.as_nanos() as u64));
        let given_before = speak.tls.variants.given() > 0;
        let variant = speak.variant;
        let mut shaking = Shaking {
            start,
            deadline,
            seen: Handshake { variant, given_before, given: given_before, ..Handshake::default() },
            first: Vec::new(),
        };
        let end = match prepared.session {
            Ok(session) => shaking.run(self, session, prepared.hello),
            Err(why) => Err(LostWire::Tls(format!("TLS: {why}"))),
        };
        let mut seen = shaking.seen;
        seen.took = instrument::now() - began;
        seen.seen = self.session.as_ref().filter(|_| end.is_ok()).and_then(|s| s.seen());
        (seen, end)
    }

    /// Whether the server has given anything to resume a session by.
    pub(super) fn given(speak: &Speak<'_>) -> bool {
        speak.tls.variants.given() > 0
    }
}

/// A handshake that is being made.
struct Shaking {
    start: Time,
    deadline: Time,
    seen: Handshake,
    /// The first bytes that the server sent.
    first: Vec<u8>,
}

/// A ChangeCipherSpec alone, which TLS 1.3 has for the sake of middleboxes (RFC 8446 appendix D.4):
/// no server waits for it, so it leaves with what follows.
fn is_for_middleboxes(out: &[u8]) -> bool {
    matches!(out, [0x14, _, _, 0, 1, 1])
}

/// Bytes that suffice to recognize another protocol.
const FIRST: usize = 8;

impl Shaking {
    fn run(
        &mut self,
        wire: &mut ProbeWire,
        mut session: Box<TlsSession>,
        mut out: Vec<u8>,
    ) -> Result<(), LostWire> {
        let mut buffer = vec![0; 64 << 10];
        while !session.is_ready() {
            if !out.is_empty() && !is_for_middleboxes(&out) {
                self.seen.trips.push(Trip { sent: instrument::now() - self.start, ..Trip::default() });
                let written = wire.socket.write(&std::mem::take(&mut out), false, self.deadline);
                written.map_err(|error| self.unanswered(error, &mut session))?;
            }
            let read = wire.socket.read(&mut buffer, self.deadline);
            let read = read.map_err(|error| self.unanswered(error, &mut session))?;
            if read.bytes == 0 {
                let _ = session.cut();
                return Err(self.failed(&session));
            }
            self.note(read.at, &buffer[..read.bytes]);
            let own = instrument::now();
            let early = &mut wire.early;
            let progress =
                session.open(&mut buffer[..read.bytes], &mut |piece| early.extend_from_slice(piece));
            session.reply(&mut out);
            self.seen.own += instrument::now() - own;
            match progress {
                Progress::Open => {}
                Progress::Ended => {
                    let _ = session.cut();
                    return Err(self.failed(&session));
                }
                Progress::Failed(_) => {
                    // The alert that says why; whether it arrives matters no more.
                    let _ = wire.socket.write(&out, false, self.deadline);
                    return Err(self.failed(&session));
                }
            }
        }
        wire.out = out;
        wire.session = Some(session);
        Ok(())
    }

    /// Bytes of the server's flight.
    fn note(&mut self, at: Time, bytes: &[u8]) {
        let room = FIRST.saturating_sub(self.first.len());
        self.first.extend(bytes.iter().take(room));
        let at = at - self.start;
        let Some(trip) = self.seen.trips.last_mut() else { return };
        if trip.bytes == 0 {
            trip.begun = at;
        } else {
            trip.pause = trip.pause.max(at.saturating_sub(trip.ended));
        }
        trip.ended = at;
        trip.bytes += bytes.len() as u64;
    }

    fn failed(&self, session: &TlsSession) -> LostWire {
        if self.first.starts_with(b"HTTP/") {
            return LostWire::Tls("it speaks plain HTTP there: write http:// instead of https://".to_owned());
        }
        LostWire::Tls(session.reason().unwrap_or_else(|| "TLS: the handshake failed".to_owned()))
    }

    /// Time-outs stay what they are; a reset is one of the handshake.
    fn unanswered(&self, error: ProbeError, session: &mut TlsSession) -> LostWire {
        use std::io::ErrorKind as K;
        match error.error.kind() {
            K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted => {
                session.lost(NetError::of(NetErrorKind::Reset));
                self.failed(session)
            }
            _ => LostWire::Socket(error),
        }
    }
}
