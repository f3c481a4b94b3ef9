//! A client of several servers: a [`Client`] for each origin, within limits.

mod origin;
mod redirects;
mod reference;
mod table;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body as HttpBody;
use tower_service::Service;

use self::origin::HttpOrigin;
pub use self::redirects::Redirects;
use self::redirects::Trail;
use self::table::{OriginLease, OriginTable};
use super::body::{Body, BoxError};
use super::builder::Builder;
use super::connection_limit::ConnectionLimit;
use super::error::Error;
use super::get;
use super::limits::ORIGINS;
use super::options::RequestOptions;
use super::service::service;
use super::timings::FinalUri;

/// A client of several servers. For each origin (scheme, host and port) that it is asked for, it keeps a
/// [`Client`](super::Client), with connections of its own. Clones share all of them.
///
/// ```no_run
/// # extern crate linerate_client as linerate;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use linerate::client::{Hosts, Redirects};
///
/// let hosts = Hosts::builder().each(|client| client.pipes(2)).origins(32).redirects(Redirects::up_to(5)).build()?;
/// let response = hosts.get("https://example.org/").await?;
/// println!("{} {}", response.status(), response.body().len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Hosts(Arc<SharedHosts>);

struct SharedHosts {
    ways: OriginWays,
    redirects: Redirects,
    table: OriginTable,
}

/// How a client of one origin is made.
struct OriginWays {
    each: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
    resolve: HashMap<String, Vec<SocketAddr>>,
    unix: HashMap<String, PathBuf>,
    limit: Option<Arc<ConnectionLimit>>,
}

impl OriginWays {
    fn builder(&self, origin: &HttpOrigin) -> Builder {
        let mut builder = (self.each)(Builder::new(&origin.to_string()));
        if let Some(addresses) = self.resolve.get(origin.host()) {
            builder = builder.resolve(addresses.iter().copied());
        }
        if let Some(path) = self.unix.get(origin.host()) {
            builder = builder.unix_socket(path);
        }
        builder.within(self.limit.clone()).without_unused_tls()
    }
}

/// Builds a [`Hosts`].
#[must_use = "build() makes the client"]
pub struct HostsBuilder {
    ways: OriginWays,
    redirects: Redirects,
    origins: usize,
    connections: Option<u32>,
}

impl HostsBuilder {
    /// How the client of each origin is set up: connections, timeouts, what is trusted. Settings of TLS mean nothing for
    /// an origin of `http`. It is called when an origin is asked for first, and for a call that waits until one has a place, so it
    /// should be quick.
    pub fn each(mut self, each: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> HostsBuilder {
        self.ways.each = Arc::new(each);
        self
    }

    /// Origins with connections at once, at most. By default 64. When another one is asked for, the one that was not
    /// used for longest closes; while all have calls under way, the call waits.
    pub fn origins(mut self, origins: usize) -> HostsBuilder {
        self.origins = origins;
        self
    }

    /// Connections to all origins together, at most, those apart that are closing. By default only
    /// [`origins`](HostsBuilder::origins) and [`Builder::pipes`] limit them. While the limit is reached, an origin with
    /// less than an equal share gets an idle one of another's, or one of an origin that has more than its share once its
    /// responses are there. An origin that has its share gets those that were idle for 100 ms. Not more origins have
    /// connections at once than this. One that waits for a response is not taken from its origin: a call that gets none in
    /// its time ends with [`Phase::Limit`](super::Phase::Limit).
    pub fn connections(mut self, connections: u32) -> HostsBuilder {
        self.connections = Some(connections);
        self
    }

    /// What becomes of redirects. By default up to 10 are followed.
    pub fn redirects(mut self, redirects: Redirects) -> HostsBuilder {
        self.redirects = redirects;
        self
    }

    /// Connects to these addresses instead of looking up this host. The port is in them.
    pub fn resolve(mut self, host: &str, addresses: impl IntoIterator<Item = SocketAddr>) -> HostsBuilder {
        self.ways.resolve.insert(host.to_ascii_lowercase(), addresses.into_iter().collect());
        self
    }

    /// Connects to this Unix socket instead of an address of this host.
    pub fn unix_socket(mut self, host: &str, path: impl Into<PathBuf>) -> HostsBuilder {
        self.ways.unix.insert(host.to_ascii_lowercase(), path.into());
        self
    }

    /// The client. It opens no connection before the first call.
    ///
    /// # Errors
    /// [`Error::Builder`]: a setting makes no sense.
    pub fn build(self) -> Result<Hosts, Error> {
        if self.origins == 0 {
            let words = "origins is 0: no call could be sent\nhint: take 1 or more";
            return Err(Error::Builder(words.to_owned()));
        }
        if self.connections == Some(0) {
            let words = "connections is 0: no call could be sent\nhint: take 1 or more";
            return Err(Error::Builder(words.to_owned()));
        }
        // What is wrong for all origins is wrong here already.
        for url in ["http://localhost", "https://localhost"] {
            let builder = (self.ways.each)(Builder::new(url)).without_unused_tls();
            // Calls to origins of `http` fail then, and those alone.
            if builder.is_possible() {
                builder.build()?;
            }
        }
        let HostsBuilder { mut ways, redirects, origins, connections } = self;
        ways.limit = connections.map(|most| Arc::new(ConnectionLimit::new(most)));
        let origins = origins.min(connections.map_or(usize::MAX, |most| most as usize));
        Ok(Hosts(Arc::new(SharedHosts { ways, redirects, table: OriginTable::new(origins) })))
    }
}

impl fmt::Debug for HostsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostsBuilder").field("origins", &self.origins).finish_non_exhaustive()
    }
}

impl Hosts {
    /// Begins a client of several servers.
    pub fn builder() -> HostsBuilder {
        let (resolve, unix) = (HashMap::new(), HashMap::new());
        let ways = OriginWays { each: Arc::new(|client| client), resolve, unix, limit: None };
        HostsBuilder { ways, redirects: Redirects::default(), origins: ORIGINS, connections: None }
    }

    /// Sends a request, whose URI is whole: `https://HOST[:PORT]/PATH`. Redirects are followed as
    /// [`HostsBuilder::redirects`] says; [`ResponseExt::uri`](super::ResponseExt::uri) of the response says where it came
    /// from in the end. A time of its own ([`RequestOptions`]) is for all of it.
    ///
    /// # Errors
    /// As [`Client::send`](super::Client::send), and [`Error::Redirect`].
    pub fn send(
        &self,
        request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Bytes>, Error>> + Send + 'static + use<> {
        let shared = Arc::clone(&self.0);
        async move { shared.follow(request).await }
    }

    /// Sends a GET. What no URI may have is encoded, as by
    /// [`percent_encoded`](super::percent_encoded).
    ///
    /// # Errors
    /// As [`send`](Hosts::send).
    pub fn get(
        &self,
        url: &str,
    ) -> impl Future<Output = Result<Response<Bytes>, Error>> + Send + 'static + use<> {
        let (shared, request) = (Arc::clone(&self.0), get(url));
        async move { shared.follow(request?).await }
    }

    /// Sends a GET, whose response's body is a stream; see [`send_streaming`](Hosts::send_streaming).
    ///
    /// # Errors
    /// As [`send`](Hosts::send).
    pub fn get_streaming(
        &self,
        url: &str,
    ) -> impl Future<Output = Result<Response<Body>, Error>> + Send + 'static + use<> {
        let (hosts, request) = (self.clone(), get(url));
        async move { hosts.send_streaming(request?.map(Body::from)).await }
    }

    /// Sends a request whose body may be a stream, and hands the response over as it comes; see
    /// [`Client::send_streaming`](super::Client::send_streaming). A redirect is returned, not followed. The origin counts as busy until the head of the
    /// response is there.
    ///
    /// # Errors
    /// As [`send`](Hosts::send).
    pub fn send_streaming<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Body>, Error>> + Send + 'static + use<B>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let shared = Arc::clone(&self.0);
        async move {
            let (uri, mut request) = (request.uri().clone(), request);
            let lease = shared.lease(request.uri(), RequestOptions::of(&request)).await?;
            let mut response = lease.client_for(&mut request).send_streaming(request).await?;
            response.extensions_mut().insert(FinalUri(uri));
            Ok(response)
        }
    }

    /// How many origins have a client now.
    pub fn open_origins(&self) -> usize {
        self.0.table.len()
    }
}

impl SharedHosts {
    /// A client of the origin of `uri`, once one of the places is free for it.
    async fn lease(&self, uri: &Uri, own: RequestOptions) -> Result<OriginLease<'_>, Error> {
        let origin = HttpOrigin::of(uri)?;
        let builder = || self.ways.builder(&origin);
        let patience = || own.timeout.unwrap_or_else(|| builder().call_timeout());
        self.table.lease(&origin, || builder().build(), patience).await
    }

    async fn follow(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, Error> {
        let end = RequestOptions::of(&request).timeout.map(|own| Instant::now() + own);
        let mut trail = Trail::new(self.redirects);
        loop {
            if let Some(end) = end {
                let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                request.extensions_mut().get_or_insert_default::<RequestOptions>().timeout = Some(left);
            }
            let lease = self.lease(request.uri(), RequestOptions::of(&request)).await?;
            let mut sent = request.clone();
            let mut response = lease.client_for(&mut sent).send(sent).await?;
            drop(lease);
            match trail.next(&request, &response)? {
                Some(next) => request = next,
                None => {
                    response.extensions_mut().insert(FinalUri(request.uri().clone()));
                    return Ok(response);
                }
            }
        }
    }
}

service! {
    /// Layers of tower work over it. Redirects are returned, not followed: tower-http's `FollowRedirect` follows them.
    Hosts, Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>, |hosts, request| {
        let (shared, mut request) = (Arc::clone(&hosts.0), request);
        Box::pin(async move {
            let lease = shared.lease(request.uri(), RequestOptions::of(&request)).await?;
            Service::call(&mut &lease.client_for(&mut request), request).await
        })
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("open_origins", &self.open_origins()).finish_non_exhaustive()
    }
}
