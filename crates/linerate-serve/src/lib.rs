//! An HTTP server with an event loop per core and async handlers.
//!
//! ```
//! use linerate_serve::{Request, Response, ServerOptions, spawn_with};
//!
//! async fn hello(request: Request) -> Response {
//!     Response::text(format!("you asked for {}\n", request.path()))
//! }
//!
//! let server = spawn_with(ServerOptions::default(), || hello)?;
//! println!("listening on http://{}", server.addr());
//! server.stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A handler that never awaits is never scheduled and costs no allocation. One that waits is parked
//! beside its connection, and pipelined responses keep their order. All responses ready in one loop
//! turn leave in one send.

mod access_log;
mod address;
mod allowance;
mod answer;
mod blocking;
mod clients;
mod connection;
mod content;
mod draining;
mod engine;
mod flows;
mod handler;
mod http2;
mod http3;
mod limits;
mod listening;
mod message;
#[cfg(feature = "misbehave")]
pub mod misbehave;
mod notice;
mod options;
mod orders;
mod queue;
mod route;
mod stats;
mod tasks;
pub mod testing;
mod threads;
mod timers;
mod tower;
mod turn;
mod unpredictable;
mod upload;
mod waits;
mod watch;

pub use access_log::{AccessLog, LogFormat, LogTarget};
pub use address::Address;
pub use blocking::{Blocking, BlockingError, blocking};
pub use clients::{BadNetwork, ClientRules, Network, NetworkAccess};
pub use content::extra_fields::ExtraFields;
pub use content::files::{FileOptions, FileRoot, Files};
pub use content::host_name::{BadHostName, HostName};
pub use content::https::{BadHsts, Hsts};
pub use content::routes::Routes;
pub use content::service::ServiceState;
pub use content::site::{Content, Contents, Host, SharedContent, Site, SitePlan};
pub use content::table::{Action, BadRule, BadTable, RouteTable, Rule};
pub use content::users::{BadUsers, Users};
pub use draining::Draining;
pub use handler::{Handler, IntoResponse, RouteLimits};
pub use http::Method;
pub use limits::Limits;
pub use linerate_http::server::{BadField, CheckedFields, HttpDate, RequestHead, Version};
pub use linerate_net::Io;
pub use linerate_tls::{
    AgreedParameters as TlsAgreed, ClientCertificate, HandshakeCounts, Identity as TlsIdentity,
    ServerOptions as TlsOptions, ServerTls, TlsError, TlsInfo, Validity,
};
pub use listening::ListeningSocket;
pub use message::body::{BodyError, RequestBody, Trailers};
pub use message::request::Request;
pub use message::request_builder::{BadRequest, RequestBuilder};
pub use message::response::Response;
pub use message::stream::BodyStream;
pub use message::upgrade::{Tunnel, Upgrade};
pub use notice::{Notice, Notices};
pub use options::ServerOptions;
pub use route::Route;
pub use stats::counts::{Counts, StreamCounts};
pub use stats::live_stats::LiveStats;
pub use stats::metrics::Metrics;
pub use stats::process::ProcessFigures;
pub use stats::prometheus::MetricsPage;
pub use threads::handle::{Handle, Stopper};
pub use threads::runtime::TokioRuntime;
pub use threads::spawn::{spawn, spawn_beside, spawn_boxed, spawn_site, spawn_with};
pub use timers::{Sleep, sleep};
pub use tower::{Peer, TowerBody, tower, tower_with_peer};
pub use turn::{Server, Wall};

/// Compiles the page's examples with those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/HTTP-SERVER.md")]
struct HttpServerPage;

/// Compiles the guide's examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/SERVE-LIBRARY.md")]
struct LibraryGuide;
