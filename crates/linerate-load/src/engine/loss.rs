//! What the loss of a connection means for the figures; what becomes of the requests on it is the
//! pool's to say.

use linerate_client::{Conversation, Loss, connect_words};
use linerate_net::{Close, Conn, NetError, NetErrorKind, Time, Transport};

use super::Engine;
use super::recorder::Lacking;
use super::responses::{Recording, ResponseReading};

impl<T: Transport, C: Conversation<Reading = ResponseReading>> Engine<T, C> {
    /// The server agreed to no protocol that we want to speak.
    pub(crate) fn refuse(&mut self, conn: Conn, why: String, now: Time) {
        let Some(connection) = self.pool.remove(conn) else { return };
        self.transport.close(conn, Close::Abort);
        let to = connection.beside.to;
        self.connect_failed((Some(connection), to), NetErrorKind::Handshake, why, now);
    }

    /// For as long as a request may take, the server has admitted none on a connection.
    #[cold]
    pub(crate) fn give_up_shut(&mut self, conn: Conn, now: Time) {
        let Some(connection) = self.pool.get_mut(conn) else { return };
        let why = match connection.conversation.shut_since() {
            Some(since) => {
                let seconds = (now - since).as_secs_f64();
                format!(
                    "the server has admitted no streams for {seconds:.1} s (its SETTINGS_MAX_CONCURRENT_STREAMS is 0)"
                )
            }
            None => "the connection takes no requests any more".to_owned(),
        };
        self.pool.note_shut(now);
        self.disconnected(now);
        self.refuse(conn, why.clone(), now);
        if self.recorder.last_answer() == Time::ZERO {
            self.board.say_shut(true);
            self.shut_out = Some(why);
        }
    }

    /// A response came: the server does admit requests.
    #[cold]
    pub(crate) fn let_in(&mut self) {
        self.shut_out = None;
        self.board.say_shut(false);
    }

    /// A connection is lost: sorts what was in flight on it, and closes our end.
    pub(crate) fn lose(&mut self, conn: Conn, loss: Loss, now: Time) {
        let Some(mut connection) = self.pool.remove(conn) else { return };
        let loss = connection.conversation.why(loss);
        let reason = self.transport.reason(conn);
        if !connection.established {
            self.transport.close(conn, Close::Abort);
            let error = match loss {
                Loss::Net(error) => error,
                _ => NetError::of(NetErrorKind::TimedOut),
            };
            let detail = reason.unwrap_or_else(|| connect_words(&error));
            let to = connection.beside.to;
            return self.connect_failed((Some(connection), to), error.kind, detail, now);
        }
        self.disconnected(now);
        self.look_at_last(&connection, connection.is_fresh() && self.is_short());
        self.transport.close(conn, loss.close());
        let detail = reason.filter(|_| matches!(loss, Loss::Net(_))).unwrap_or_else(|| loss.words());
        let as_planned = self.orders.per_connection.is_some() && connection.is_done();
        let ended = self.is_time_over();
        let Engine { pool, recorder, kinds, judge, board, .. } = self;
        let measuring = recorder.measuring(now);
        let mut events = Recording { recorder, kinds, judge, board, ended, now, measuring };
        let by_peer = pool.settle(&mut connection, &loss, &detail, now, &mut events);
        self.recorder.connections.closed_by_peer += u64::from(by_peer);
        if self.reach.is_alone() {
            self.pool.opening.alone(now);
        }
        if as_planned {
            self.open_some(now);
        }
    }

    /// What requests that are due wait for.
    pub(super) fn lacking(&mut self) -> Lacking {
        let (wanted, mut full, mut open, mut shut) = (self.orders.connections, 0, 0, 0);
        for slot in 0..self.pool.slots() {
            let Some(connection) = self.pool.at(slot) else { continue };
            let carries = connection.conversation.in_flight() > 0;
            open += u32::from(connection.established || carries);
            let is_full = if connection.established { connection.room() == 0 } else { carries };
            full += u32::from(is_full);
            shut += u32::from(connection.conversation.shut_since().is_some());
        }
        match () {
            () if full == open && shut > open / 2 => Lacking::Streams,
            () if full >= wanted - wanted / 10 => Lacking::Places,
            () if full == open => Lacking::Connections,
            () => Lacking::Nothing,
        }
    }
}
