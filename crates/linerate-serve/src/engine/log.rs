//! Lines of the access log: at once for a response that is written whole, and for others when they have left or broken off.

use super::Engine;
use super::respond::has_no_body;
use crate::Handler;
use crate::access_log::LoggedExchange;
use crate::answer::{Asked, Unlogged};
use crate::connection::ServedConnection;

impl<H: Handler> Engine<H> {
    /// Logs that `bytes` bytes of a response's body have left. Inlined, since most servers keep no log.
    #[inline(always)]
    pub(super) fn log_line(&mut self, asked: &Asked, status: u16, bytes: u64) {
        if self.log.buffer.is_some() {
            self.write_line(asked, status, bytes);
        }
    }

    #[inline(never)]
    fn write_line(&mut self, asked: &Asked, status: u16, bytes: u64) {
        let Some(log) = &mut self.log.buffer else { return };
        let bytes = if asked.head_only || has_no_body(status) { 0 } else { bytes };
        let took = self.log.clock.map_or(self.now, |clock| clock()) - asked.began;
        let (head, first_line) = (asked.head.as_deref(), &*asked.line);
        let tls = asked.tls.as_deref();
        log.add(
            self.now,
            &self.date,
            &LoggedExchange { peer: asked.peer, head, first_line, status, bytes, took, tls },
        );
    }

    /// The line of a response that is handed over piece by piece; its head is in `out` already if `begun`.
    pub(super) fn later(
        &self,
        c: &ServedConnection,
        asked: &Asked,
        status: u16,
        begun: bool,
    ) -> Option<Box<Unlogged>> {
        self.log.buffer.as_ref()?;
        let asked = asked.clone();
        let from = begun.then(|| c.handed + self.out.len() as u64);
        Some(Box::new(Unlogged { asked, status, from, until: None }))
    }

    /// Says of the requests whose handlers wait that they get no response. `why` stands in place of its status.
    pub(crate) fn log_unanswered(&mut self, c: &ServedConnection, why: u16) {
        if self.log.buffer.is_some()
            && let Some(work) = &c.work
        {
            work.queue.unanswered().for_each(|asked| self.log_line(asked, why, 0));
        }
    }

    /// Says of the responses that are among the first `left` bytes of a connection that they are; of all, if it is `over`.
    pub(crate) fn log_left(&mut self, c: &mut ServedConnection, left: u64, over: bool) {
        while let Some(work) = &mut c.work
            && let Some(line) =
                work.unlogged.pop_front_if(|line| over || line.until.is_some_and(|until| until <= left))
        {
            self.log_line(&line.asked, line.status, line.bytes(left));
        }
    }
}
