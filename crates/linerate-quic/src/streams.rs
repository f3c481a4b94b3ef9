//! Streams: reading, writing, and their ends.

use quinn_proto::{Connection, Dir, ReadError, ReadableError, Side, StreamId, VarInt, WriteError};

use crate::endpoint::{QuicConn, QuicEndpoint};

/// A stream of a connection: its ID (RFC 9000, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuicStream(pub(crate) StreamId);

impl QuicStream {
    /// The stream of an ID below 2^62.
    pub fn of_id(id: u64) -> QuicStream {
        QuicStream(StreamId::from(code(id)))
    }

    /// The ID as it is on the wire.
    pub fn id(self) -> u64 {
        u64::from(VarInt::from(self.0))
    }

    /// Whether bytes go one way only: from the end that opened it.
    pub fn is_unidirectional(self) -> bool {
        self.0.dir() == Dir::Uni
    }

    /// Whether the client opened it.
    pub fn is_of_client(self) -> bool {
        self.0.initiator() == Side::Client
    }
}

/// State of a stream's receiving side after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRead {
    /// More may come: [`QuicEvent::Readable`](crate::QuicEvent::Readable) tells.
    Open,
    /// The peer ended it, and every byte before was handed over.
    Ended,
    /// The peer reset it with this code.
    Reset(u64),
    /// The end was reported before, the stream was stopped, or the connection is gone.
    Gone,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamWrite {
    /// So many bytes were taken. If that is not all, [`QuicEvent::Writable`](crate::QuicEvent::Writable)
    /// tells when there is room.
    Taken(usize),
    /// The peer wants no more of it: its code.
    Stopped(u64),
    /// The stream was finished or reset before, or the connection is gone.
    Gone,
}

/// A code of the application, as the wire has it. Larger ones than 2^62 - 1 do not exist.
pub(crate) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

/// Whether this end may send on a stream, or receive: of a unidirectional one it can do one of both.
fn has(connection: &Connection, stream: QuicStream, sending: bool) -> bool {
    !stream.is_unidirectional() || (stream.0.initiator() == connection.side()) == sending
}

impl QuicEndpoint {
    /// A connection, to send on a stream; `None`: it is gone, or the stream is the peer's alone.
    fn sender_of(&mut self, conn: QuicConn, stream: QuicStream) -> Option<&mut Connection> {
        self.touch(conn).filter(|connection| has(connection, stream, true))
    }

    /// A connection, to receive on a stream; `None`: it is gone, or the stream is ours alone.
    fn receiver_of(&mut self, conn: QuicConn, stream: QuicStream) -> Option<&mut Connection> {
        self.touch(conn).filter(|connection| has(connection, stream, false))
    }

    /// Opens a stream; `None`: the peer admits no more of them now ([`QuicEvent::Room`](crate::QuicEvent::Room)
    /// tells when it does), or the connection is gone.
    pub fn open(&mut self, conn: QuicConn, unidirectional: bool) -> Option<QuicStream> {
        let dir = if unidirectional { Dir::Uni } else { Dir::Bi };
        self.touch(conn)?.streams().open(dir).map(QuicStream)
    }

    /// Hands over what has come of a stream, in its order, piece by piece.
    pub fn read(&mut self, conn: QuicConn, stream: QuicStream, each: impl FnMut(&[u8])) -> StreamRead {
        self.read_up_to(conn, stream, usize::MAX, each)
    }

    /// The same for at most `most` bytes. Where there may be more, nothing tells of them: read again.
    pub fn read_up_to(
        &mut self,
        conn: QuicConn,
        stream: QuicStream,
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> StreamRead {
        let Some(connection) = self.receiver_of(conn, stream) else { return StreamRead::Gone };
        let mut receiving = connection.recv_stream(stream.0);
        let mut chunks = match receiving.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return StreamRead::Gone,
        };
        let mut left = most;
        let end = loop {
            if left == 0 {
                break StreamRead::Open;
            }
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    left -= chunk.bytes.len();
                    each(&chunk.bytes);
                }
                Ok(None) => break StreamRead::Ended,
                Err(ReadError::Blocked) => break StreamRead::Open,
                Err(ReadError::Reset(code)) => break StreamRead::Reset(code.into_inner()),
            }
        };
        // Every touched connection is asked for what it has to send.
        let _ = chunks.finalize();
        end
    }

    /// Writes bytes of a stream, as many as the windows admit.
    pub fn write(&mut self, conn: QuicConn, stream: QuicStream, bytes: &[u8]) -> StreamWrite {
        let Some(connection) = self.sender_of(conn, stream) else { return StreamWrite::Gone };
        let mut sending = connection.send_stream(stream.0);
        let mut taken = 0;
        // A write that took less must be tried again: only one that took nothing is told of room later.
        while taken < bytes.len() {
            match sending.write(&bytes[taken..]) {
                Ok(len) => taken += len,
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(code)) => return StreamWrite::Stopped(code.into_inner()),
                Err(WriteError::ClosedStream) => return StreamWrite::Gone,
            }
        }
        StreamWrite::Taken(taken)
    }

    /// Ends a stream behind what was written. `false`: the peer wants no more of it, or it is gone.
    pub fn finish(&mut self, conn: QuicConn, stream: QuicStream) -> bool {
        let is_done = self
            .sender_of(conn, stream)
            .is_some_and(|connection| connection.send_stream(stream.0).finish().is_ok());
        if is_done && let Some(held) = self.held_mut(conn) {
            held.finishing += 1;
        }
        is_done
    }

    /// Gives up what was written on a stream and is not acknowledged (RFC 9000, section 19.4). `false`: it
    /// has ended before.
    pub fn reset(&mut self, conn: QuicConn, stream: QuicStream, with: u64) -> bool {
        self.sender_of(conn, stream)
            .is_some_and(|connection| connection.send_stream(stream.0).reset(code(with)).is_ok())
    }

    /// Asks the peer to send no more of a stream (RFC 9000, section 19.5). `false`: it has ended before.
    pub fn stop(&mut self, conn: QuicConn, stream: QuicStream, with: u64) -> bool {
        self.receiver_of(conn, stream)
            .is_some_and(|connection| connection.recv_stream(stream.0).stop(code(with)).is_ok())
    }
}
