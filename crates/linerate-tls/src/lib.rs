//! TLS in memory: a [layer](linerate_net::layer) between any transport and the application, driven
//! by rustls (aws-lc-rs).
//!
//! This crate opens no socket, reads no file and knows no HTTP. [`TlsLayer`] makes a [`TlsSession`]
//! for each connection whose [`Profile`](linerate_net::Profile) has a configuration, from
//! [`ClientOptions`] or [`ServerOptions`]. Connections of [`PLAIN`] pass unchanged. Every session
//! adds the result of its handshake to the layer's [`HandshakeCounts`].
//!
//! ```no_run
//! use linerate_tls::{Identity, ServerOptions};
//!
//! let (certificate, key) = (std::fs::read("cert.pem")?, std::fs::read("key.pem")?);
//! let identity = Identity::from_pem(("cert.pem", &certificate), ("key.pem", &key))?;
//! let server = ServerOptions::new(identity).build()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! TLS 1.3 is RFC 8446, TLS 1.2 RFC 5246, ALPN RFC 7301, SNI RFC 6066 section 3.

mod client;
pub mod fuzz;
mod handshakes;
mod issuer;
mod layer;
mod limits;
mod machine;
mod pem;
mod server;
mod session;
mod tickets;
mod variants;
mod words;
mod x509;

pub use client::{ClientOptions, Roots, is_cipher};
pub use handshakes::{AgreedParameters, ClientCertificate, HandshakeCounts, ServerHandshake, TlsInfo};
pub use layer::{PLAIN, TlsLayer};
pub use pem::{Identity, TlsError};
pub use server::{QuicTls, ServerOptions, ServerProfiles, ServerTls};
pub use session::TlsSession;
pub use variants::{Variant, Variants};
pub use words::describe;
pub use x509::{ServerKey, Validity};

/// The TLS versions that rustls supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl Version {
    fn within(least: Version, most: Version) -> Vec<&'static rustls::SupportedProtocolVersion> {
        let all = [(Version::Tls13, &rustls::version::TLS13), (Version::Tls12, &rustls::version::TLS12)];
        let wanted =
            |(version, supported): (Version, _)| (least..=most).contains(&version).then_some(supported);
        all.into_iter().filter_map(wanted).collect()
    }
}
