//! Tells clients of HTTP/1.1 and HTTP/2 that the same address speaks HTTP/3 (RFC 7838).

use std::net::SocketAddr;

use linerate_net::Listener;

use crate::Response;

/// How long a client may remember it, seconds. Reason: a day, as others say; a server that stops speaking
/// HTTP/3 costs such a client one failed try.
const MAX_AGE: u32 = 86_400;

/// The listeners that speak HTTP/3 too, with the value of `Alt-Svc`.
#[derive(Debug, Default)]
pub(crate) struct Alternatives(Vec<(Listener, String)>);

impl Alternatives {
    pub(crate) fn add(&mut self, listener: Listener, at: SocketAddr) {
        self.0.retain(|(known, _)| *known != listener);
        self.0.push((listener, format!("h3=\":{}\"; ma={MAX_AGE}", at.port())));
    }

    /// Adds the field to a response, unless its handler has said something else.
    #[inline]
    pub(super) fn tell(&self, listener: Listener, response: &mut Response) {
        if !self.0.is_empty() {
            self.add_field(listener, response);
        }
    }

    fn add_field(&self, listener: Listener, response: &mut Response) {
        let Some((_, value)) = self.0.iter().find(|(known, _)| *known == listener) else { return };
        if !response.fields.has("alt-svc") {
            // A number in quotes is a sound value.
            let _ = response.fields.add("alt-svc", value);
        }
    }
}
