//! One driver for both sides of rustls' unbuffered connections.

use std::cell::Cell;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, Error};

use crate::limits::{RECORD, RECORD_OVERHEAD};

/// A rustls connection, either side.
pub(crate) enum TlsMachine {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The result of processing bytes.
pub(crate) struct Walk {
    /// Bytes processed, from the front.
    pub(crate) used: usize,
    /// The peer sent `close_notify`.
    pub(crate) ended: bool,
    pub(crate) error: Option<Error>,
}

impl TlsMachine {
    pub(crate) fn state(&self) -> &CommonState {
        match self {
            TlsMachine::Client(conn) => conn,
            TlsMachine::Server(conn) => conn,
        }
    }

    /// Processes all complete records in `bytes`: application data goes to `take`, and replies to
    /// the peer go to `out`.
    pub(crate) fn walk(
        &mut self,
        bytes: &mut [u8],
        out: &mut Vec<u8>,
        take: &mut dyn FnMut(&mut [u8]),
    ) -> Walk {
        let mut walk = Walk { used: 0, ended: false, error: None };
        // After an error only the alert is still due; rustls must not process more.
        while walk.error.is_none() || self.state().wants_write() {
            let rest = &mut bytes[walk.used..];
            let (discard, step) = match self {
                TlsMachine::Client(conn) => step(conn.process_tls_records(rest), out, take),
                TlsMachine::Server(conn) => step(conn.process_tls_records(rest), out, take),
            };
            walk.used += discard;
            match step {
                TlsStep::Again => {}
                TlsStep::Ended => walk.ended = true,
                TlsStep::Enough => return walk,
                TlsStep::Failed(error) => walk.error = Some(error),
            }
        }
        walk
    }

    /// Appends the records of the application's bytes. `held` are the bytes that the last walk left
    /// over: rustls keeps offsets into them, and panics without them.
    pub(crate) fn seal(&mut self, held: &mut [u8], bytes: &[u8], out: &mut Vec<u8>) {
        self.write(held, out, sealed_len(bytes.len()), Write::Bytes(bytes));
    }

    /// Appends `close_notify`.
    pub(crate) fn finish(&mut self, held: &mut [u8], out: &mut Vec<u8>) {
        self.write(held, out, RECORD_OVERHEAD, Write::End);
    }

    /// rustls' own messages leave first; during the handshake, application data cannot be sent.
    fn write(&mut self, held: &mut [u8], out: &mut Vec<u8>, room: usize, what: Write<'_>) {
        loop {
            let done = match self {
                TlsMachine::Client(conn) => write(conn.process_tls_records(held), out, room, what),
                TlsMachine::Server(conn) => write(conn.process_tls_records(held), out, room, what),
            };
            if done {
                return;
            }
        }
    }
}

/// Bytes on the wire for this many bytes of plaintext, at most.
pub(crate) fn sealed_len(len: usize) -> usize {
    len + len.div_ceil(RECORD).max(1) * RECORD_OVERHEAD
}

enum TlsStep {
    Again,
    Ended,
    Enough,
    Failed(Error),
}

fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    out: &mut Vec<u8>,
    take: &mut dyn FnMut(&mut [u8]),
) -> (usize, TlsStep) {
    let step = match status.state {
        Err(error) => TlsStep::Failed(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => lend(record.payload, take),
                Some(Err(error)) => break TlsStep::Failed(error),
                None => break TlsStep::Again,
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            append(out, RECORD_OVERHEAD, |free| data.encode(free).map_err(missing_to_encode));
            TlsStep::Again
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            TlsStep::Again
        }
        Ok(ConnectionState::PeerClosed) => TlsStep::Ended,
        // Our servers never offer early data.
        Ok(_) => TlsStep::Enough,
    };
    (status.discard, step)
}

thread_local! {
    /// A record's bytes while the application reads them. One buffer serves all connections of a
    /// thread, so idle ones hold none.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// rustls lends its bytes read-only, but the application may write to what it is lent.
fn lend(bytes: &[u8], take: &mut dyn FnMut(&mut [u8])) {
    let mut scratch = SCRATCH.take();
    scratch.clear();
    scratch.extend_from_slice(bytes);
    take(&mut scratch);
    SCRATCH.set(scratch);
}

#[derive(Clone, Copy)]
enum Write<'a> {
    Bytes(&'a [u8]),
    End,
}

/// Returns whether nothing is left to do.
fn write<D>(status: UnbufferedStatus<'_, '_, D>, out: &mut Vec<u8>, room: usize, what: Write<'_>) -> bool {
    match status.state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            append(out, RECORD_OVERHEAD, |free| data.encode(free).map_err(missing_to_encode));
            false
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            false
        }
        Ok(ConnectionState::PeerClosed) => false,
        Ok(ConnectionState::WriteTraffic(traffic)) => {
            put(traffic, out, room, what);
            true
        }
        _ => true,
    }
}

fn put<D>(mut traffic: WriteTraffic<'_, D>, out: &mut Vec<u8>, room: usize, what: Write<'_>) {
    append(out, room, |free| {
        let written = match what {
            Write::Bytes(bytes) => traffic.encrypt(bytes, free),
            Write::End => traffic.queue_close_notify(free),
        };
        written.map_err(|error| match error {
            EncryptError::InsufficientSize(needed) => Some(needed.required_size),
            EncryptError::EncryptExhausted => None,
        })
    });
}

fn missing_to_encode(error: EncodeError) -> Option<usize> {
    match error {
        EncodeError::InsufficientSize(needed) => Some(needed.required_size),
        EncodeError::AlreadyEncoded => None,
    }
}

/// Lets `fill` write after the end of `out`. It returns how much it wrote, or how much room it
/// needs; `None`: it cannot write.
fn append(out: &mut Vec<u8>, room: usize, mut fill: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>) {
    let start = out.len();
    out.resize(start + room, 0);
    let mut written = fill(&mut out[start..]);
    if let Err(Some(needed)) = written {
        out.resize(start + needed, 0);
        written = fill(&mut out[start..]);
    }
    out.truncate(start + written.unwrap_or(0));
}
