//! QUIC (RFC 9000) in memory, sans-IO, driven by quinn-proto.
//!
//! A [`QuicEndpoint`] holds all connections of one thread. Its owner hands it datagrams
//! ([`QuicEndpoint::receive`]) and the time ([`QuicEndpoint::run_timers`]), takes events
//! ([`QuicEndpoint::next_event`]), reads and writes streams, and sends what
//! [`QuicEndpoint::next_transmit`] hands out. This crate opens no socket and reads no clock, and
//! knows no HTTP.
//!
//! ```
//! # use std::sync::Arc;
//! use linerate_base::Time;
//! use linerate_quic::{QuicEndpoint, QuicOptions};
//!
//! let mut tls = rustls::ClientConfig::builder()
//!     .with_root_certificates(rustls::RootCertStore::empty())
//!     .with_no_client_auth();
//! tls.alpn_protocols = vec![b"h3".to_vec()];
//! let mut end = QuicEndpoint::client(&QuicOptions::default(), Arc::new(tls), 1)?;
//! let now = Time::ZERO;
//! end.connect(now, "192.0.2.1:443".parse()?, "a.example")?;
//! let mut out = Vec::new();
//! while let Some(transmit) = end.next_transmit(now, 16, &mut out) {
//!     println!("{} bytes to {}", transmit.len, transmit.to);
//!     out.clear();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod endpoint;
mod error;
mod options;
mod serving;
mod streams;
#[cfg(test)]
mod tests;

pub use endpoint::{QuicConn, QuicEndpoint, QuicEvent, QuicStats, QuicTransmit};
pub use error::{QuicError, QuicLost};
pub use options::{CongestionControl, QuicOptions, QuicSteering};
pub use serving::QuicAgreed;
pub use streams::{QuicStream, StreamRead, StreamWrite};
