//! A conversation over TCP, HTTP/1.1 or HTTP/2, or over QUIC, HTTP/3.

use bytes::Bytes;
use linerate_net::{Ahead, Close, NetError, Time};

use crate::conversation::{Conversation, Facts, Fate, Out, ProtocolRefused, Requests, Responses, Unsent};
use crate::{Any, AnyShared, H3, H3Shared, Loss, Run};

/// The name of HTTP/3 in ALPN.
const H3_NAME: &[u8] = b"h3";

/// State that the connections of a client share, by the way they go.
#[derive(Debug)]
pub(crate) struct DualShared {
    /// Of those over TCP.
    pub(crate) tcp: AnyShared,
    /// Of those over QUIC.
    pub(crate) quic: H3Shared,
}

/// HTTP/1.1, HTTP/2 or HTTP/3 on one connection.
#[derive(Debug)]
pub(crate) enum DualConversation<R> {
    /// Also before the peers have agreed on a protocol.
    Tcp(Any<R>),
    /// HTTP/3.
    Quic(Box<H3<R>>),
}

/// The same call on either.
macro_rules! on {
    ($self:ident, |$conversation:ident| $call:expr) => {
        match $self {
            DualConversation::Tcp($conversation) => $call,
            DualConversation::Quic($conversation) => $call,
        }
    };
}

impl<R: Default> Conversation for DualConversation<R> {
    type Reading = R;
    type Shared = DualShared;

    fn new(shared: &DualShared) -> DualConversation<R> {
        DualConversation::Tcp(Conversation::new(&shared.tcp))
    }

    fn agreed(&mut self, protocol: Option<&[u8]>, shared: &mut DualShared) -> Result<(), ProtocolRefused> {
        if protocol == Some(H3_NAME) {
            let mut quic: H3<R> = Conversation::new(&shared.quic);
            quic.agreed(protocol, &mut shared.quic)?;
            *self = DualConversation::Quic(Box::new(quic));
            return Ok(());
        }
        match self {
            DualConversation::Tcp(tcp) => tcp.agreed(protocol, &mut shared.tcp),
            DualConversation::Quic(_) => Ok(()),
        }
    }

    fn room(&self) -> u32 {
        on!(self, |either| either.room())
    }

    fn room_for(&self, body: bool) -> u32 {
        on!(self, |either| either.room_for(body))
    }

    fn in_flight(&self) -> u32 {
        on!(self, |either| either.in_flight())
    }

    fn answers(&self) -> u32 {
        on!(self, |either| either.answers())
    }

    fn in_response(&self) -> bool {
        on!(self, |either| either.in_response())
    }

    fn oldest(&self) -> Option<Run> {
        on!(self, |either| either.oldest())
    }

    fn begin(
        &mut self,
        run: Run,
        last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        on!(self, |either| either.begin(run, last, requests, out))
    }

    fn handle_bytes<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        shared: &mut DualShared,
        events: &mut E,
    ) -> Result<(), Loss> {
        match self {
            DualConversation::Tcp(tcp) => tcp.handle_bytes(now, bytes, &mut shared.tcp, events),
            DualConversation::Quic(quic) => quic.handle_bytes(now, bytes, &mut shared.quic, events),
        }
    }

    fn ahead<E: Responses<Reading = R>>(&self, events: &E) -> Ahead {
        on!(self, |either| either.ahead(events))
    }

    fn handle_discarded<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: u64,
        shared: &mut DualShared,
        events: &mut E,
    ) -> Result<(), Loss> {
        match self {
            DualConversation::Tcp(tcp) => tcp.handle_discarded(now, bytes, &mut shared.tcp, events),
            DualConversation::Quic(quic) => quic.handle_discarded(now, bytes, &mut shared.quic, events),
        }
    }

    fn handle_end<E: Responses<Reading = R>>(&mut self, now: Time, events: &mut E) -> Loss {
        on!(self, |either| either.handle_end(now, events))
    }

    fn send_pending(&mut self, requests: &mut impl Requests, out: &mut impl Out) -> Result<u64, NetError> {
        on!(self, |either| either.send_pending(requests, out))
    }

    fn given_back(&mut self, each: impl FnMut(Run, Fate)) {
        on!(self, |either| either.given_back(each));
    }

    fn has_streams(&self) -> bool {
        on!(self, |either| either.has_streams())
    }

    fn is_leaving(&self) -> bool {
        on!(self, |either| either.is_leaving())
    }

    fn held_back(&self) -> usize {
        on!(self, |either| either.held_back())
    }

    fn unsent(&self) -> Vec<Unsent> {
        on!(self, |either| either.unsent())
    }

    fn shut_since(&self) -> Option<Time> {
        on!(self, |either| either.shut_since())
    }

    fn hold(&mut self, first: u64, held: bool) {
        on!(self, |either| either.hold(first, held));
    }

    fn upload_backlog(&self, first: u64) -> Option<usize> {
        on!(self, |either| either.upload_backlog(first))
    }

    fn give(&mut self, first: u64, piece: Bytes) {
        on!(self, |either| either.give(first, piece));
    }

    fn give_end(&mut self, first: u64) {
        on!(self, |either| either.give_end(first));
    }

    fn cancel(&mut self, first: u64) -> Option<Run> {
        on!(self, |either| either.cancel(first))
    }

    fn cancel_oldest(&mut self) -> Option<Run> {
        on!(self, |either| either.cancel_oldest())
    }

    fn why(&self, loss: Loss) -> Loss {
        on!(self, |either| either.why(loss))
    }

    fn abandon(&mut self, each: impl FnMut(Run, Fate)) {
        on!(self, |either| either.abandon(each));
    }

    fn leave(&mut self, out: &mut impl Out) -> Close {
        on!(self, |either| either.leave(out))
    }

    fn facts(shared: &DualShared) -> Facts {
        let mut facts = Any::<R>::facts(&shared.tcp);
        facts.merge(&H3::<R>::facts(&shared.quic));
        facts
    }

    fn usual_response(shared: &DualShared) -> Option<usize> {
        Any::<R>::usual_response(&shared.tcp)
    }
}
