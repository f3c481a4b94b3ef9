//! Continues handlers that waited and were woken.

use linerate_net::Transport;

use super::Server;
use crate::tasks::ROOM_MADE;
use crate::{Handler, limits};

impl<T: Transport, H: Handler> Server<T, H> {
    pub(super) fn run_woken(&mut self) {
        self.woken.refill();
        for _ in 0..limits::WOKEN_PER_TURN {
            let Some(task) = self.woken.next() else { break };
            self.engine.tasks.unqueue(task);
            if task == ROOM_MADE {
                self.go_on_reading();
                continue;
            }
            let Some(conn) = self.engine.owner(task) else { continue };
            let Some(mut c) = self.take(conn) else { continue };
            self.engine.poll_task(&mut c, task);
            if self.engine.out.is_empty() {
                // Several handlers of one connection may wake in one turn: it sends once.
                if !c.dirty {
                    c.dirty = true;
                    self.unsettled.add(conn);
                }
                self.connections[conn.slot()] = Some(c);
            } else {
                self.settle(c);
            }
        }
    }

    /// A body was read after its response. Its connection must continue, but it is not known which
    /// one that is.
    fn go_on_reading(&mut self) {
        for conn in std::mem::take(&mut self.engine.read_elsewhere) {
            let Some(mut c) = self.take(conn) else { continue };
            c.read_elsewhere =
                c.is_reading_body() || c.http2().is_some_and(|session| session.is_read_elsewhere());
            if c.read_elsewhere {
                self.engine.read_elsewhere.push(conn);
            }
            self.settle(c);
        }
    }
}
