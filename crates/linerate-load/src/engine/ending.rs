//! The end of a run: every connection is closed.

use linerate_client::Conversation;
use linerate_net::{Close, Conn, Event, Time, Transport};

use super::Engine;
use super::responses::ResponseReading;
use crate::limits::{CLOSED_AT_ONCE, CLOSING_PATIENCE, LETTING_ALL_GO, LETTING_GO, RESETS};

impl<T: Transport, C: Conversation<Reading = ResponseReading>> Engine<T, C> {
    /// Whatever is still in flight is unknown, and every connection is closed.
    pub(crate) fn give_up_all(&mut self, now: Time) {
        let mut leaving = Vec::new();
        for slot in 0..self.pool.slots() {
            let Some(conn) = self.pool.at_mut(slot).map(|connection| connection.conn) else { continue };
            let Some(mut connection) = self.pool.remove(conn) else { continue };
            self.pool.abandon(&mut connection, |run| self.recorder.unknown(run, now));
            if connection.established {
                self.look_at_last(&connection, false);
            }
            leaving.push(conn);
        }
        self.close_all(&leaving);
        let interrupted = self.board.stop_asked();
        let Engine { pool, recorder, kinds, .. } = self;
        pool.give_up_again(|run, why| match interrupted {
            true => recorder.unknown(run, now),
            false => recorder.failed(run, now, (why, None), kinds),
        });
    }

    /// Closes connections, some at a time: the FINs of a hundred thousand, and the peer's answers, are
    /// more than a link has room for.
    fn close_all(&mut self, leaving: &[Conn]) -> Option<()> {
        let mut events = Vec::new();
        let mut left = leaving.len();
        for some in leaving.chunks(CLOSED_AT_ONCE) {
            some.iter().for_each(|conn| self.transport.close(*conn, Close::Now));
            left -= some.len();
            let until = self.transport.now() + CLOSING_PATIENCE;
            while left > 0 && self.transport.now() < until {
                let closing =
                    (self.transport.unfinished() + self.transport.half_closed()).saturating_sub(left);
                if closing <= CLOSED_AT_ONCE / 2 {
                    break;
                }
                self.last_turn(until, &mut events)?;
            }
        }
        Some(())
    }

    /// A user-space TCP ends with us: its last segments leave, and the peers' FINs get their ACKs. Those that have not ended
    /// after a moment are reset, or the peers would keep half-open connections.
    pub(crate) fn let_go(&mut self) -> Option<()> {
        let begun = self.transport.now();
        let (mut fewest, mut last) = (usize::MAX, begun);
        let mut events = Vec::new();
        loop {
            let now = self.transport.now();
            let open = self.transport.unfinished() + self.transport.half_closed();
            if open < fewest {
                (fewest, last) = (open, now);
            }
            if open == 0 || now - last >= LETTING_GO || now - begun >= LETTING_ALL_GO {
                break;
            }
            self.last_turn(now + LETTING_GO / 16, &mut events)?;
        }
        // Each time some, so that they have room to leave.
        for _ in 0..=fewest.div_ceil(RESETS) {
            if self.transport.reset_closed(RESETS) + self.transport.half_closed() == 0 {
                break;
            }
            self.last_turn(Time::ZERO, &mut events)?;
        }
        Some(())
    }

    /// A turn of which only the transport wants something.
    fn last_turn(&mut self, until: Time, events: &mut Vec<Event>) -> Option<()> {
        self.transport.turn(Some(until), events).ok()?;
        for event in events.drain(..) {
            if let Event::Readable { data, .. } = event {
                self.transport.receive(data, |_| ());
            }
        }
        Some(())
    }
}
