//! Timeouts of connections, by what they wait for.

use linerate_net::{Close, Time, Transport};

use super::Server;
use crate::Handler;
use crate::answer::Asked;
use crate::connection::ServedConnection;
use crate::waits::Waits;

impl<T: Transport, H: Handler> Server<T, H> {
    pub(super) fn deadline(&self, c: &ServedConnection) -> Time {
        let limits = &self.engine.limits;
        let http2 = c.work.as_ref().and_then(|work| work.http2.as_deref());
        if let Some(session) = http2 {
            let own = match c.waits {
                Waits::Write if c.unsent > 0 => c.since + limits.write_time,
                Waits::Idle if session.is_open() => c.since + limits.idle_time,
                Waits::Idle | Waits::Head => c.since + limits.header_time,
                Waits::Handler if session.fin.is_some() => c.since + limits.idle_time,
                _ => Time::NEVER,
            };
            return own.min(session.deadline(limits));
        }
        match c.waits {
            Waits::Idle if c.requests == 0 => c.since + limits.header_time,
            Waits::Idle => c.since + limits.idle_time,
            Waits::Head => c.since + limits.header_time,
            Waits::Body => match c.work.as_ref().and_then(|w| w.body.as_ref()) {
                Some(body) => body.progress.began.max(c.since) + body.progress.granted(limits),
                None => c.since + limits.body_time,
            },
            // A response that has begun is proof of nothing, and may be all that the client waits for.
            Waits::Handler if c.peer_ended => {
                let time = limits.after_fin().filter(|_| c.waits_for_response());
                c.since + time.unwrap_or(limits.idle_time)
            }
            Waits::Handler => Time::NEVER,
            Waits::Write => c.since + c.write_time(limits.write_time),
        }
    }

    pub(super) fn look_at_deadlines(&mut self) {
        let now = self.engine.now;
        let due = self.timeouts.take_due(now);
        for &slot in &due {
            let Some(c) = self.connections.get_mut(slot as usize).and_then(Option::take) else { continue };
            if self.deadline(&c) <= now {
                self.expired(c);
            } else {
                self.timeouts.arm(slot as usize, self.deadline(&c));
                self.connections[slot as usize] = Some(c);
            }
        }
        self.timeouts.give_back(due);
        if self.engine.drain.everywhere || self.leaving.count > 0 {
            self.close_idle();
        }
    }

    fn expired(&mut self, mut c: ServedConnection) {
        if c.is_http2() {
            return self.expired_streams(c);
        }
        match c.waits {
            Waits::Idle => self.close(c, Close::Now),
            // A client that has sent its FIN may wait for its response, or be gone, which only a
            // send reveals.
            Waits::Handler if c.peer_ended && c.handed == c.left_at_since => self.close(c, Close::Abort),
            Waits::Handler => {
                c.progressed = true;
                self.keep(c);
            }
            Waits::Head => {
                let input = c.work.as_ref().map_or(&[][..], |work| &work.input);
                let asked = Asked::by_none(c.peer, input, c.since);
                self.engine.refuse_with(&mut c, asked, 408, "the request took too long");
                self.settle(c);
            }
            Waits::Body => {
                self.engine.refuse_body(&mut c, 408, "the request's body took too long");
                self.settle(c);
            }
            Waits::Write => self.expired_write(c),
        }
    }

    /// The client reads its response too slowly, or not at all.
    pub(super) fn expired_write(&mut self, mut c: ServedConnection) {
        // Progress after a hand-over is reported only once everything has left, so ask.
        self.look_at_unsent(&mut c);
        let left = c.handed - c.unsent as u64;
        let elapsed = self.engine.now - c.since;
        let least = elapsed.as_secs() * self.engine.limits.least_rate;
        if left - c.left_at_since < least.max(1) {
            return self.close(c, Close::Abort);
        }
        c.progressed = true;
        self.keep(c);
    }
}
