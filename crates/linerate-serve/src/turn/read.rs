//! Received bytes: the engine turns them into requests, and runs the handlers that need not wait.

use linerate_net::{After, Close, Conn, Data, Transport};

use super::Server;
use crate::{Handler, limits};

impl<T: Transport, H: Handler> Server<T, H> {
    pub(super) fn readable(&mut self, conn: Conn, data: Data) {
        let Some(mut c) = self.take(conn) else {
            self.transport.receive(data, |_| {});
            return;
        };
        if c.requests == 0 && c.tls.is_none() {
            c.tls = self.transport.about(conn).and_then(|about| about.downcast().ok());
            let agreed = c.tls.as_ref().and_then(|tls| tls.agreed.alpn.as_deref());
            if agreed == Some("h2") && !c.is_http2() {
                self.engine.begin_http2(&mut c);
            }
        }
        let engine = &mut self.engine;
        let before = c.requests;
        match self.transport.receive(data, |bytes| engine.input(&mut c, bytes)) {
            After::Open if c.requests - before >= limits::HELD_REQUESTS => self.hold(c),
            After::Open => self.settle(c),
            After::Ended => {
                c.peer_ended = true;
                // From here on its handler is waited for anew.
                c.progressed = true;
                self.settle(c);
            }
            After::Failed(_) => self.close(c, Close::Abort),
            After::Gone => {
                let left = c.handed - c.unsent as u64;
                self.forget(c, left);
            }
        }
    }
}
