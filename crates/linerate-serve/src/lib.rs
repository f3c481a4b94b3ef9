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
mod blocking;
mod body;
mod clients;
mod connection;
mod counts;
mod draining;
mod engine;
mod extra_fields;
mod file_body;
mod files;
mod flows;
mod gate;
mod handler;
mod host_name;
mod http2;
mod https;
mod limits;
mod listening;
mod live_stats;
mod meter;
mod metrics;
pub mod misbehave;
mod notice;
mod process;
mod prometheus;
mod queue;
mod reload;
mod request;
mod request_builder;
mod response;
mod route;
mod routes;
mod runtime;
mod secure;
mod server;
mod service;
mod site;
mod spawn;
mod table;
mod tasks;
pub mod testing;
mod timers;
mod tower;
mod trim;
mod tunnel;
mod upgrade;
mod users;
mod watch;
mod websocket;

pub use access_log::{AccessLog, LogFormat, LogTarget};
pub use address::Address;
pub use blocking::{Blocking, BlockingError, blocking};
pub use body::{BodyError, RequestBody, Trailers};
pub use clients::{BadNetwork, ClientRules, Network};
pub use counts::Counts;
pub use draining::Draining;
pub use extra_fields::ExtraFields;
pub use files::{FileOptions, FileRoot, Files};
pub use handler::{Handler, IntoResponse};
pub use host_name::{BadHostName, HostName};
pub use https::{BadHsts, Hsts};
pub use limits::Limits;
pub use linerate_http::server::{BadField, Fields, HttpDate, Method, RequestHead, Version};
pub use linerate_tls::{
    Agreed as TlsAgreed, ClientCertificate, Handshakes, Identity as TlsIdentity, ServerOptions as TlsOptions,
    ServerTls, TlsError, TlsInfo, Validity,
};
pub use listening::ListeningSocket;
pub use live_stats::LiveStats;
pub use metrics::Metrics;
pub use notice::{Notice, Notices};
pub use process::Process;
pub use prometheus::Page;
pub use request::Request;
pub use request_builder::{BadRequest, RequestBuilder};
pub use response::{BodyStream, Response};
pub use route::Route;
pub use routes::Routes;
pub use runtime::TokioRuntime;
pub use server::{Server, Wall};
pub use service::ServiceState;
pub use site::{Content, Contents, Host, SharedContent, Site, SitePlan};
pub use spawn::{Handle, Io, ServerOptions, spawn, spawn_site, spawn_with};
pub use table::{Action, BadRule, BadTable, RouteTable, Rule};
pub use timers::{Sleep, sleep};
pub use tower::{Peer, TowerBody, tower, tower_with_peer};
pub use upgrade::{Tunnel, Upgrade};
pub use users::{BadUsers, Users};

/// Compiles the page's examples with those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/HTTP-SERVER.md")]
struct HttpServerPage;

/// Compiles the guide's examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/SERVE-LIBRARY.md")]
struct LibraryGuide;
