//! TLS between the transport and the loop: which listener uses which configuration.

use std::io;

use linerate_net::Profile;
use linerate_tls::{PLAIN, ServerProfiles, ServerTls, TlsLayer};

use crate::http3::QuicListening;
use crate::options::ServerOptions;
use crate::unpredictable::unpredictable;

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
pub(crate) struct Spoken {
    profiles: Option<ServerProfiles>,
    /// What hides the number of a thread in QUIC's connection IDs.
    key: u32,
}

impl Spoken {
    pub(crate) fn new(options: &ServerOptions) -> Spoken {
        let some = options.tls.is_some() || options.tls_at.iter().any(|(_, tls)| tls.is_some());
        // Odd: each thread has connection IDs.
        Spoken { profiles: some.then(ServerProfiles::default), key: unpredictable() as u32 | 1 }
    }

    /// The profile of a listener.
    pub(crate) fn profile(&self, tls: Option<&ServerTls>) -> io::Result<Profile> {
        match (&self.profiles, tls) {
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
    pub(crate) fn quic(&self, options: &ServerOptions, thread: usize) -> QuicListening {
        // Sockets of other processes would be among ours.
        let threads = if options.share_port { 1 } else { options.threads };
        QuicListening {
            profiles: self.profiles.clone().unwrap_or_default(),
            limits: options.limits,
            seed: unpredictable(),
            thread: (thread as u32, threads as u32, self.key),
        }
    }

    /// The layer of one thread.
    pub(crate) fn layer(&self) -> Option<TlsLayer> {
        self.profiles.clone().map(TlsLayer::of_server)
    }
}
