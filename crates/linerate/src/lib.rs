//! HTTP as fast as the wire allows, and the reason why when it isn't: the library.
//!
//! This is the paved path; each part is a crate of its own, behind a feature of its name. `client`, `load` and `serve`
//! are on by default; with `default-features = false` a program builds what it names. `http3`, on by default too, lets the
//! client speak HTTP/3.
//!
//! * [`load`]: send requests as fast as the network takes them, or at an exact rate, and measure honestly.
//! * [`serve`]: respond to requests on an event loop per core.
//! * [`client`]: call a server from a program, pipelined.
//! * `explain`: say why a call is slow, and prove it.
//! * `report`: print outcomes and diagnoses, as text, JSON and pages.
//! * `tls`: roots, identities and sessions.
//! * [`http`]: HTTP/1.1 as bytes and messages, without I/O.
//! * [`net`]: bytes and the wire, without HTTP.
//!
//! ```no_run
//! use linerate::load::plan::{Plan, Target};
//!
//! let plan = Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/");
//! let outcome = linerate::load::start(Plan { depth: 16, ..plan })?.join();
//! println!("{} answered, p99 {} ns", outcome.requests.answered, outcome.latency.from_sent.percentile_ns(99.0));
//! # Ok::<(), linerate::load::StartError>(())
//! ```

#[cfg(feature = "client")]
pub use linerate_client::client;
#[cfg(feature = "explain")]
pub use linerate_explain as explain;
pub use linerate_http as http;
#[cfg(feature = "load")]
pub use linerate_load as load;
pub use linerate_net as net;
#[cfg(feature = "report")]
pub use linerate_report as report;
#[cfg(feature = "serve")]
pub use linerate_serve as serve;
#[cfg(feature = "tls")]
pub use linerate_tls as tls;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
