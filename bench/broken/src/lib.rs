//! A server that misbehaves as a script says, and counts what it did: for the tests of `load` and
//! for `cargo xtask bench truth`.
//!
//! ```
//! use linerate_broken::{Broken, CUT, Reply, Then};
//!
//! // Three responses in ten are truncated.
//! let server = Broken::start(|asked| match asked.nth % 10 {
//!     0..3 => Reply::broken(CUT, Then::Close),
//!     _ => Reply::good(),
//! });
//! println!("{}", server.url());
//! assert_eq!(server.counts().requests, 0);
//! ```
//!
//! It listens on loopback, on a port that the kernel picks, with a thread for each connection.
//! Everything ends by itself after a minute.
#![forbid(unsafe_code)]

pub mod frames;
pub mod limits;
mod line;
mod reply;
mod server;
mod streams;
mod tally;
mod tls;

pub use reply::{CUT, GOOD, RepeatedBytes, Reply, ScriptRequest, Then};
pub use server::{AcceptMode, Broken, Manner};
pub use streams::{Bytes, StreamBehaviour};
pub use tally::{BrokenCounts, Numbers};
pub use tls::{BrokenTls, Certificate, HandshakeFault};
