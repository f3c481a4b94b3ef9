//! HTTP/1.1 or HTTP/2 on one connection, as the owner says or the peers agree (ALPN, RFC 7301).

use bytes::Bytes;
use linerate_http::client::HeadCache;
use linerate_net::{Ahead, Close, NetError, Time};

use crate::conversation::{Conversation, Facts, Fate, Out, ProtocolRefused, Requests, Responses, Unsent};
use crate::{H1, H2, H2Shared, Loss, Run};

/// The protocols that a connection may speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/2, without asking: in clear text.
    Http2,
    /// HTTP/2, on which the peers have to agree.
    AgreedHttp2,
    /// HTTP/2 if the peers agree on it, otherwise HTTP/1.1.
    #[default]
    Either,
}

/// The name of HTTP/2 in ALPN.
const H2: &[u8] = b"h2";

/// State that all connections of a core share.
#[derive(Debug)]
pub struct AnyShared {
    /// The protocols they may speak.
    pub speaks: Speaks,
    /// HTTP/1.1's.
    pub h1: HeadCache,
    /// HTTP/2's.
    pub h2: H2Shared,
    h1_connections: u64,
}

impl AnyShared {
    /// Nothing is known yet.
    pub fn new(speaks: Speaks, h1: HeadCache, h2: H2Shared) -> AnyShared {
        AnyShared { speaks, h1, h2, h1_connections: 0 }
    }
}

/// HTTP/1.1 or HTTP/2 on one connection.
#[derive(Debug)]
pub struct Any<R> {
    protocol: Protocol<R>,
    /// Requests that were to leave before the protocol was known, and whether each is the last.
    waiting: Vec<(Run, bool)>,
}

#[derive(Debug)]
enum Protocol<R> {
    Undecided,
    H1(Box<H1<R>>),
    H2(Box<H2<R>>),
}

/// The same call whatever the connection speaks, or what it would be before the peers have agreed.
macro_rules! on {
    ($protocol:expr, $undecided:expr, |$conversation:ident| $call:expr) => {
        match $protocol {
            Protocol::H1($conversation) => $call,
            Protocol::H2($conversation) => $call,
            Protocol::Undecided => $undecided,
        }
    };
}

impl<R: Default> Conversation for Any<R> {
    type Reading = R;
    type Shared = AnyShared;

    fn new(shared: &AnyShared) -> Any<R> {
        let protocol = match shared.speaks {
            Speaks::Http2 => Protocol::H2(Box::new(Conversation::new(&shared.h2))),
            Speaks::AgreedHttp2 | Speaks::Either => Protocol::Undecided,
        };
        Any { protocol, waiting: Vec::new() }
    }

    fn agreed(&mut self, protocol: Option<&[u8]>, shared: &mut AnyShared) -> Result<(), ProtocolRefused> {
        match (shared.speaks, protocol) {
            (Speaks::Http2, _) | (_, Some(H2)) => {
                let mut h2: Box<H2<R>> = match std::mem::replace(&mut self.protocol, Protocol::Undecided) {
                    Protocol::H2(h2) => h2,
                    _ => Box::new(Conversation::new(&shared.h2)),
                };
                h2.agreed(protocol, &mut shared.h2)?;
                self.protocol = Protocol::H2(h2);
            }
            (Speaks::AgreedHttp2, other) => {
                let other = other.map_or("nothing".into(), String::from_utf8_lossy);
                return Err(ProtocolRefused { agreed: other.into_owned() });
            }
            (Speaks::Either, _) => {
                shared.h1_connections += 1;
                self.protocol = Protocol::H1(Box::new(Conversation::new(&shared.h1)));
            }
        }
        Ok(())
    }

    #[inline]
    fn room(&self) -> u32 {
        on!(&self.protocol, 0, |agreed| agreed.room())
    }

    #[inline]
    fn room_for(&self, body: bool) -> u32 {
        on!(&self.protocol, 0, |agreed| agreed.room_for(body))
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        let waiting: u32 = self.waiting.iter().map(|(run, _)| run.count).sum();
        waiting + on!(&self.protocol, 0, |agreed| agreed.in_flight())
    }

    #[inline]
    fn answers(&self) -> u32 {
        on!(&self.protocol, 0, |agreed| agreed.answers())
    }

    #[inline]
    fn in_response(&self) -> bool {
        on!(&self.protocol, false, |agreed| agreed.in_response())
    }

    fn oldest(&self) -> Option<Run> {
        let oldest = on!(&self.protocol, None, |agreed| agreed.oldest());
        oldest.or_else(|| self.waiting.first().map(|(run, _)| *run))
    }

    #[inline]
    fn begin(
        &mut self,
        run: Run,
        last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        match &mut self.protocol {
            Protocol::H1(h1) => h1.begin(run, last, requests, out),
            Protocol::H2(h2) => h2.begin(run, last, requests, out),
            Protocol::Undecided => {
                self.waiting.push((run, last));
                Ok(0)
            }
        }
    }

    #[inline]
    fn handle_bytes<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        shared: &mut AnyShared,
        events: &mut E,
    ) -> Result<(), Loss> {
        match &mut self.protocol {
            Protocol::H1(h1) => h1.handle_bytes(now, bytes, &mut shared.h1, events),
            Protocol::H2(h2) => h2.handle_bytes(now, bytes, &mut shared.h2, events),
            Protocol::Undecided => Ok(()),
        }
    }

    #[inline]
    fn ahead<E: Responses<Reading = R>>(&self, events: &E) -> Ahead {
        on!(&self.protocol, Ahead::default(), |agreed| agreed.ahead(events))
    }

    fn handle_discarded<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: u64,
        shared: &mut AnyShared,
        events: &mut E,
    ) -> Result<(), Loss> {
        match &mut self.protocol {
            Protocol::H1(h1) => h1.handle_discarded(now, bytes, &mut shared.h1, events),
            Protocol::H2(_) | Protocol::Undecided => Ok(()),
        }
    }

    fn handle_end<E: Responses<Reading = R>>(&mut self, now: Time, events: &mut E) -> Loss {
        on!(&mut self.protocol, Loss::Closed, |agreed| agreed.handle_end(now, events))
    }

    #[inline]
    fn send_pending(&mut self, requests: &mut impl Requests, out: &mut impl Out) -> Result<u64, NetError> {
        let mut bytes = on!(&mut self.protocol, return Ok(0), |agreed| agreed.send_pending(requests, out)?);
        for (run, last) in std::mem::take(&mut self.waiting) {
            bytes += self.begin(run, last, requests, out)?;
        }
        Ok(bytes)
    }

    #[inline]
    fn given_back(&mut self, each: impl FnMut(Run, Fate)) {
        on!(&mut self.protocol, (), |agreed| agreed.given_back(each));
    }

    #[inline]
    fn has_streams(&self) -> bool {
        matches!(self.protocol, Protocol::H2(_))
    }

    #[inline]
    fn is_leaving(&self) -> bool {
        on!(&self.protocol, false, |agreed| agreed.is_leaving())
    }

    #[inline]
    fn held_back(&self) -> usize {
        on!(&self.protocol, 0, |agreed| agreed.held_back())
    }

    fn unsent(&self) -> Vec<Unsent> {
        on!(&self.protocol, Vec::new(), |agreed| agreed.unsent())
    }

    fn shut_since(&self) -> Option<Time> {
        on!(&self.protocol, None, |agreed| agreed.shut_since())
    }

    fn hold(&mut self, first: u64, held: bool) {
        on!(&mut self.protocol, (), |agreed| agreed.hold(first, held));
    }

    fn upload_backlog(&self, first: u64) -> Option<usize> {
        on!(&self.protocol, None, |agreed| agreed.upload_backlog(first))
    }

    fn give(&mut self, first: u64, piece: Bytes) {
        on!(&mut self.protocol, (), |agreed| agreed.give(first, piece));
    }

    fn give_end(&mut self, first: u64) {
        on!(&mut self.protocol, (), |agreed| agreed.give_end(first));
    }

    fn cancel(&mut self, first: u64) -> Option<Run> {
        on!(&mut self.protocol, None, |agreed| agreed.cancel(first))
    }

    fn cancel_oldest(&mut self) -> Option<Run> {
        on!(&mut self.protocol, None, |agreed| agreed.cancel_oldest())
    }

    fn why(&self, loss: Loss) -> Loss {
        on!(&self.protocol, loss, |agreed| agreed.why(loss))
    }

    fn abandon(&mut self, mut each: impl FnMut(Run, Fate)) {
        on!(&mut self.protocol, (), |agreed| agreed.abandon(&mut each));
        self.waiting.drain(..).for_each(|(run, _)| each(run, Fate::Unknown));
    }

    fn leave(&mut self, out: &mut impl Out) -> Close {
        on!(&mut self.protocol, Close::AfterPeer, |agreed| agreed.leave(out))
    }

    fn facts(shared: &AnyShared) -> Facts {
        Facts { h1: shared.h1_connections, ..shared.h2.facts().clone() }
    }

    fn usual_response(shared: &AnyShared) -> Option<usize> {
        match shared.h2.facts().h2 {
            0 => H1::<R>::usual_response(&shared.h1),
            _ => H2::<R>::usual_response(&shared.h2),
        }
    }
}
