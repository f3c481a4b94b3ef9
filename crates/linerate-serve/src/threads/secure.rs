//! TLS between the transport and the loop: which listener uses which configuration.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use linerate_net::Profile;
use linerate_tls::{PLAIN, ServerProfiles, ServerTls, TlsLayer};

use crate::http3::QuicListening;
use crate::limits::Limits;
use crate::options::ServerOptions;

impl ServerOptions {
    /// The TLS of the address at this index of `listen`.
    pub(crate) fn tls_of(&self, index: usize) -> Option<&ServerTls> {
        let own = self.tls_at.iter().find(|(at, _)| *at == index);
        own.map_or(self.tls.as_ref(), |(_, own)| own.as_ref())
    }
}

/// The profiles of a server's listeners. A server that started with plain HTTP only has no TLS
/// layer, and cannot add one.
#[derive(Clone, Debug)]
pub(crate) struct Spoken(Option<ServerProfiles>);

impl Spoken {
    pub(crate) fn new(options: &ServerOptions) -> Spoken {
        let some = options.tls.is_some() || options.tls_at.iter().any(|(_, tls)| tls.is_some());
        Spoken(some.then(ServerProfiles::default))
    }

    /// The profile of a listener.
    pub(crate) fn profile(&self, tls: Option<&ServerTls>) -> io::Result<Profile> {
        match (&self.0, tls) {
            (_, None) => Ok(PLAIN),
            (Some(all), Some(tls)) => {
                all.add(tls).ok_or_else(|| io::Error::other("too many configurations of TLS since the start"))
            }
            (None, Some(_)) => {
                let words = "this server began without TLS; a listener with TLS needs a restart";
                Err(io::Error::new(io::ErrorKind::Unsupported, words))
            }
        }
    }

    /// How QUIC listens on one thread.
    pub(crate) fn quic(&self, limits: Limits) -> QuicListening {
        // Its keys are random, and come from the system.
        let seed = RandomState::new().build_hasher().finish();
        QuicListening { profiles: self.0.clone().unwrap_or_default(), limits, seed }
    }

    /// The layer of one thread.
    pub(crate) fn layer(&self) -> Option<TlsLayer> {
        self.0.clone().map(TlsLayer::of_server)
    }
}
