//! Decides the next step of a connection: send, continue with received bytes, wait, or end.

use linerate_net::{Close, Transport};

use super::Server;
use super::respond::Gone;
use crate::connection::ServedConnection;
use crate::limits::{TURN_BYTES, TURN_ROUNDS};
use crate::{Handler, limits};

impl<T: Transport, H: Handler> Server<T, H> {
    /// Sends and continues as far as possible, and decides what the connection waits for next.
    pub(super) fn settle(&mut self, mut c: ServedConnection) {
        if c.is_plain() {
            // By far the most common case: all requests have responses, and those are in `out`.
            return match self.flush(&mut c) {
                Ok(()) => self.keep(c),
                Err(Gone) => self.close(c, Close::Abort),
            };
        }
        if c.is_http2() {
            return self.settle_streams(c);
        }
        let mut budget = TURN_BYTES;
        for round in 0.. {
            match self.pump(&mut c, &mut budget) {
                Ok(()) if self.is_the_last(&c) => return self.send_last(c),
                pumped => match pumped.and_then(|()| self.flush(&mut c)) {
                    Ok(()) => {}
                    Err(Gone) => return self.close(c, Close::Abort),
                },
            }
            let stuck = !c.reads() || c.is_blocked(0, &self.engine.allowance) || !has_news(&c);
            if budget == 0 || round >= TURN_ROUNDS {
                // Others get their turn first; while the wire is full there is no reason to return.
                let more = !stuck || (!c.queue_is_empty() && c.unsent < self.engine.allowance.each());
                if more && !c.dirty {
                    c.dirty = true;
                    self.unsettled.add_to_next(c.conn);
                }
                break;
            }
            if stuck {
                break;
            }
            self.engine.advance(&mut c);
        }
        if c.peer_ended && !c.is_blocked(0, &self.engine.allowance) && !has_news(&c) {
            c.cut_body();
            c.closing.get_or_insert(Close::Now);
        }
        if let Some(how) = c.closing
            && c.queue_is_empty()
            && c.unsent <= limits::UNSENT_CLOSED
            // A reset would destroy unsent bytes.
            && (how != Close::Abort || c.unsent == 0)
        {
            // A body that no handler reads to its end is still arriving: it must not destroy the
            // response.
            let how = if c.is_reading_body() && !c.peer_ended { Close::Lingering } else { how };
            return self.close(c, how);
        }
        self.keep(c);
    }

    /// Puts a connection back, with the right reading state and deadline.
    pub(super) fn keep(&mut self, mut c: ServedConnection) {
        let pause = c.reads() && c.is_blocked(0, &self.engine.allowance);
        if pause != c.paused {
            c.paused = pause;
            if pause {
                self.transport.pause(c.conn);
            } else {
                self.transport.resume(c.conn);
            }
        }
        let left = c.handed - c.unsent as u64;
        self.engine.log_left(&mut c, left, false);
        self.engine.rest(&mut c);
        let state = c.state(&self.engine.allowance);
        if state != c.waits || c.progressed {
            self.engine.states[c.waits as usize] -= 1;
            self.engine.states[state as usize] += 1;
            c.waits = state;
            c.progressed = false;
            c.since = self.engine.now;
            c.left_at_since = c.handed - c.unsent as u64;
        }
        self.timeouts.arm(c.conn.slot(), self.deadline(&c));
        let slot = c.conn.slot();
        self.connections[slot] = Some(c);
    }
}

/// Whether kept input was not examined yet.
fn has_news(c: &ServedConnection) -> bool {
    c.work.as_ref().is_some_and(|w| w.seen < w.input.len())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use bytes::Bytes;
    use linerate_base::Time;
    use linerate_net::mem::{Mem, MemOptions, Peer, PeerActions, PeerConn};
    use linerate_net::{ListenOptions, Transport};

    use super::Server;
    use crate::limits::{PIECE_COUNTS_AS, TURN_BYTES};
    use crate::message::stream::Failure;
    use crate::turn::Wall;
    use crate::{BodyStream, Limits, Request, Response};

    thread_local! {
        /// How often a stream was asked for a piece. Each test is a thread.
        static POLLED: Cell<usize> = const { Cell::new(0) };
    }

    /// Pieces of one byte.
    struct Letters(usize);

    impl BodyStream for Letters {
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            POLLED.set(POLLED.get() + 1);
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            self.0 -= 1;
            Poll::Ready(Some(Ok(Bytes::from_static(b"x"))))
        }
    }

    /// Asks once.
    struct Once;

    impl Peer for Once {
        fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
            out.send(conn, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec());
        }

        fn received(&mut self, _: Time, _: PeerConn, _: &[u8], _: &mut PeerActions) {}
    }

    /// A stream of short pieces does not keep the loop for as many as its turn has bytes.
    #[test]
    fn a_stream_of_short_pieces_lets_others_have_their_turn() {
        const PIECES: usize = 100_000;
        let handler = |_: Request| async { Response::status(200).with_stream(Letters(PIECES)) };
        let mem = Mem::new(MemOptions::default()).unwrap();
        let mut server = Server::new(mem, handler, Limits::default()).with_wall(Wall::Virtual(0));
        let at = "10.0.0.1:80".parse().unwrap();
        server.listen(at, &ListenOptions::default()).unwrap();
        server.transport().dial(at, Once);
        let until = server.transport().now() + Duration::from_secs(60);
        let mut most = 0;
        while POLLED.get() <= PIECES {
            let before = POLLED.get();
            server.turn(Some(until)).unwrap();
            most = most.max(POLLED.get() - before);
            assert!(server.transport().now() < until, "{} pieces came", POLLED.get());
        }
        assert!(most <= 2 * TURN_BYTES / PIECE_COUNTS_AS, "{most} pieces in one turn");
    }
}
