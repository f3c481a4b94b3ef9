//! How a client is built.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderName;
use linerate_net::{Transport, TransportLimits};

use super::Client;
use super::beside::Beside;
use super::board::SharedBoard;
use super::connection_limit::ConnectionLimit;
use super::error::Error;
use super::inner::Inner;
use super::limits::{DEPTH, H2_CONNECTIONS, MOST_H2_CONNECTIONS, MOST_PIPES, MOST_STREAMS, PIPES, UNIX_PATH};
use super::mover::{connections, limits};
use super::options::{CallOptions, Protocol};
use super::proxy::ProxySettings;
use super::runner::Runner;
use super::secure::SecureOptions;
use super::target::Target;
use crate::Resend;

/// Builds a [`Client`]. Each setting has a default that suits a server nearby.
///
/// ```
/// # extern crate linerate_client as linerate;
/// use std::time::Duration;
///
/// use linerate::client::{Client, Protocol};
///
/// let client = Client::builder("http://127.0.0.1:8080")
///     .pipes(4)
///     .depth(64)
///     .timeout(Duration::from_secs(5))
///     .protocol(Protocol::Http1)
///     .build()?;
/// assert!(Client::builder("no URL").build().is_err());
/// # Ok::<(), linerate::client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "build() makes the client"]
pub struct Builder {
    url: String,
    tag: Option<String>,
    options: CallOptions,
    secure: SecureOptions,
    addresses: Option<Vec<SocketAddr>>,
    proxy: ProxySettings,
}

impl Builder {
    pub(super) fn new(url: &str) -> Builder {
        let options = CallOptions {
            protocol: Protocol::Either,
            pipes: MOST_PIPES,
            adapts: true,
            streams: MOST_STREAMS,
            h2_connections: MOST_H2_CONNECTIONS,
            h2_adapts: true,
            ..CallOptions::default()
        };
        Builder {
            url: url.to_owned(),
            tag: None,
            options,
            secure: SecureOptions::default(),
            addresses: None,
            proxy: ProxySettings::default(),
        }
    }

    /// Connections, at most; 1 to 1024. The client opens them when calls wait. By default the client decides: quick
    /// responses share 4, and while responses are slow it opens up to 128, one for each call.
    pub fn pipes(mut self, pipes: u32) -> Builder {
        (self.options.pipes, self.options.adapts) = (pipes, false);
        self
    }

    /// Requests in flight on each connection, at most; 1 to 16384. By default 64; 1 turns pipelining off. By HTTP/2 and HTTP/3
    /// these are streams, by default 256, and the server may admit fewer.
    pub fn depth(mut self, depth: u32) -> Builder {
        (self.options.depth, self.options.streams) = (depth, depth);
        self
    }

    /// Calls that wait or are in flight, at most. By default 16384. Further calls wait in their futures, in order.
    pub fn queue(mut self, calls: u32) -> Builder {
        self.options.queue = calls;
        self
    }

    /// From handing a request over to its whole response. By default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.options.timeout = timeout;
        self
    }

    /// For a connection to be established. By default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.options.connect_timeout = timeout;
        self
    }

    /// From the time a request is the oldest on its connection to the first byte of its response. By default 30 s.
    pub fn first_byte_timeout(mut self, timeout: Duration) -> Builder {
        self.options.first_byte_timeout = timeout;
        self
    }

    /// How long a connection stays open without requests. By default 50 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Builder {
        self.options.idle_timeout = timeout;
        self
    }

    /// Bytes of a response's head, at most; 64 KiB by default and at the most. Over HTTP/2 a longer head ends its
    /// stream alone, and up to 1 MiB of it is read before. An endless one ends its connection.
    pub fn max_head(mut self, bytes: usize) -> Builder {
        self.options.max_head = bytes;
        self
    }

    /// Bytes of a response's body, at most. By default 16 MiB.
    pub fn max_body(mut self, bytes: usize) -> Builder {
        self.options.max_body = bytes;
        self
    }

    /// Bytes of a body whose caller has gone that are read to keep its connection. By default 256 KiB; beyond them the
    /// client closes the connection.
    pub fn max_discarded(mut self, bytes: usize) -> Builder {
        self.options.max_discarded = bytes;
        self
    }

    /// Attempts to connect, one after the other, that fail before the calls that wait fail. By default 3. The client
    /// counts them over all calls: while the server stays down, each later call fails after one attempt to each address.
    pub fn connect_attempts(mut self, attempts: u32) -> Builder {
        self.options.connect_attempts = attempts;
        self
    }

    /// Which requests are sent again after their connection was lost. By default [`Resend::Idle`]: idempotent ones, if
    /// the server had responded on that connection (RFC 9112 section 9.3.1).
    pub fn resend(mut self, resend: Resend) -> Builder {
        self.options.resend = resend;
        self
    }

    /// A field that carries a number in each request and that the server copies into the response. The client then
    /// matches responses by it instead of by order. A response whose tag names no request in flight closes its
    /// connection with [`Error::Mismatch`].
    pub fn tag(mut self, field: &str) -> Builder {
        self.tag = Some(field.to_owned());
        self
    }

    /// Which versions of HTTP it speaks. By default what the server prefers over TLS, HTTP/2 or HTTP/1.1, and HTTP/1.1
    /// without. HTTP/3 is spoken where the program says so: [`Protocol::Http3`] or [`Protocol::AltSvc`].
    pub fn protocol(mut self, protocol: Protocol) -> Builder {
        self.options.protocol = protocol;
        self
    }

    /// Connections by HTTP/2 or HTTP/3, at most; 1 to 1024. The client opens another one when those that are open have as many
    /// streams as they may. By default it opens up to 8, while responses are slow.
    pub fn h2_connections(mut self, connections: u32) -> Builder {
        (self.options.h2_connections, self.options.h2_adapts) = (connections, false);
        self
    }

    /// Connects to these addresses instead of looking the URL's host up. Host, and the name that the certificate must
    /// prove, stay those of the URL.
    pub fn resolve(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Builder {
        self.addresses = Some(addresses.into_iter().collect());
        self
    }

    /// Connects to this Unix socket instead of an address; the URL still names host and scheme.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use linerate::client::Client;
    ///
    /// let docker = Client::builder("http://localhost").unix_socket("/run/docker.sock").build()?;
    /// println!("{:?}", docker.get("/version").await?.body());
    /// # Ok(())
    /// # }
    /// ```
    pub fn unix_socket(mut self, path: impl AsRef<Path>) -> Builder {
        self.options.unix = Some(path.as_ref().into());
        self
    }

    /// Connects to this HTTP proxy, `http://[USER:PASSWORD@]HOST[:PORT]`: by CONNECT (RFC 9110 section 9.3.6) for `https`
    /// and for HTTP/2; requests of HTTP/1.1 to `http` are forwarded. An empty text: no proxy, whatever the environment says.
    ///
    /// By default the variables `https_proxy`, `http_proxy` (in small letters only), `all_proxy` and `no_proxy` decide, as
    /// curl reads them, unless the program itself says where connections go ([`resolve`](Builder::resolve),
    /// [`unix_socket`](Builder::unix_socket)). Errors of the proxy are [`Error::Proxy`].
    ///
    /// ```
    /// # extern crate linerate_client as linerate;
    /// use linerate::client::Client;
    ///
    /// let client = Client::builder("https://example.org").proxy("http://ada:secret@127.0.0.1:3128").build()?;
    /// # Ok::<(), linerate::client::Error>(())
    /// ```
    pub fn proxy(mut self, url: &str) -> Builder {
        self.proxy.url = Some(url.to_owned());
        self
    }

    /// Hosts that need no proxy, as `no_proxy` has them: names, which stand for all that is below them too, addresses
    /// and networks, with commas between. `*` is all of them. It takes the place of that variable.
    pub fn no_proxy_for(mut self, hosts: &str) -> Builder {
        self.proxy.excepted = Some(hosts.to_owned());
        self
    }

    /// Its connections count within a limit for several clients.
    pub(super) fn within(mut self, limit: Option<Arc<ConnectionLimit>>) -> Builder {
        self.options.limit = limit;
        self
    }

    /// Without settings that mean nothing to a server without TLS.
    pub(super) fn without_unused_tls(mut self) -> Builder {
        if self.url.starts_with("http:") {
            self.secure = SecureOptions::default();
        }
        self
    }

    pub(super) fn call_timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Whether its URL can be spoken with at all by its protocol: HTTP/3 needs `https`.
    pub(super) fn is_possible(&self) -> bool {
        self.options.protocol != Protocol::Http3 || !self.url.starts_with("http:")
    }

    /// Each response of `send`, `get`, `post`, `json`, `send_all` and of the client as a service tells where its time
    /// went: [`ResponseExt`](super::ResponseExt). That costs two allocations for each.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use linerate::client::{Client, ResponseExt};
    ///
    /// let client = Client::builder("http://127.0.0.1:8080").timings().build()?;
    /// let response = client.get("/items/7").await?;
    /// if let Some(timings) = response.timings() {
    ///     println!("{timings}; first byte after {:?}", timings.total - timings.receive);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn timings(mut self) -> Builder {
        self.options.timings = true;
        self
    }

    /// Each response tells which connection it came on: [`ResponseExt::connection`](super::ResponseExt::connection). That
    /// costs two allocations for each.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use linerate::client::{Client, ResponseExt};
    ///
    /// let client = Client::builder("https://example.org").connection_info().build()?;
    /// let response = client.get("/").await?;
    /// if let Some(connection) = response.connection() {
    ///     println!("connection {} from {:?}: {:?}", connection.number, connection.local, connection.tls);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn connection_info(mut self) -> Builder {
        self.options.connection_info = true;
        self
    }

    /// Trusts these certificates too, beside those that the system trusts: a PEM text.
    pub fn add_root(mut self, pem: impl AsRef<[u8]>) -> Builder {
        self.secure.added.extend_from_slice(pem.as_ref());
        self.secure.added.push(b'\n');
        self
    }

    /// Trusts the certificates of [`add_root`](Builder::add_root) alone, and none of the system's.
    pub fn only_added_roots(mut self) -> Builder {
        self.secure.only_added = true;
        self
    }

    /// The certificate that a server may request, with its chain, and its key: PEM texts.
    pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Builder {
        self.secure.identity = Some((chain.as_ref().to_vec(), key.as_ref().to_vec()));
        self
    }

    /// The name that the server's certificate must prove, also sent to the server (SNI). By default the URL's host.
    pub fn server_name(mut self, name: &str) -> Builder {
        self.secure.name = Some(name.to_owned());
        self
    }

    /// **Dangerous**: accepts every certificate, so that anybody on the way can read and change all that is sent.
    /// For tests of servers whose certificate you cannot name with [`add_root`](Builder::add_root).
    pub fn danger_accept_any_certificate(mut self) -> Builder {
        self.secure.insecure = true;
        self
    }

    /// The client. It opens no connection before the first call.
    ///
    /// # Errors
    /// [`Error::Builder`]: the URL or a setting makes no sense.
    pub fn build(self) -> Result<Client, Error> {
        self.inner().map(|inner| Client(Arc::new(inner)))
    }

    /// The client, over a transport of the program's own (`io_uring`, user-space TCP), made with
    /// [`limits`](Builder::limits). Calls move while the [`Runner`] runs.
    ///
    /// [`Client::send_counted`], and requests whose body is a stream, need a tokio runtime all the same.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// use linerate::client::Client;
    /// use linerate_net::uring::Uring;
    ///
    /// let builder = Client::builder("http://127.0.0.1:8080").pipes(2);
    /// let uring = Uring::with_limits(builder.limits())?;
    /// let (client, mut runner) = builder.build_over(uring)?;
    /// let response = runner.run(client.get("/items/7"))??;
    /// println!("{}", response.status());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Builder::build).
    pub fn build_over<T: Transport>(self, transport: T) -> Result<(Client, Runner<T>), Error> {
        self.refuse_quic("build_over()")?;
        let mut inner = self.inner()?;
        inner.started = Mutex::new(true);
        let Inner { shared, options, target, secure, .. } = &inner;
        let runner = Runner::new(transport, shared.clone(), options, target.clone(), secure.as_ref());
        Ok((Client(Arc::new(inner)), runner))
    }

    /// The client, and what moves its bytes in the thread of a server of ours, over the server's transport: no other
    /// thread, task or lock has to wake up between a request and its response. Give the second part to
    /// `linerate_serve::spawn_beside`.
    ///
    /// [`Client::send_counted`], and requests whose body is a stream, need a tokio runtime all the same. A request
    /// of more than 64 MiB, its head included, fails.
    ///
    /// The example `proxy` of the crate `linerate` does this.
    ///
    /// # Errors
    /// As [`build`](Builder::build).
    pub fn build_beside(self) -> Result<(Client, Beside), Error> {
        self.refuse_quic("build_beside()")?;
        let mut inner = self.inner()?;
        inner.started = Mutex::new(true);
        let Inner { shared, options, target, secure, .. } = &inner;
        let beside = Beside::new(shared.clone(), options.clone(), target.clone(), secure.clone());
        Ok((Client(Arc::new(inner)), beside))
    }

    /// The limits that the transport of [`build_over`](Builder::build_over) needs.
    pub fn limits(&self) -> TransportLimits {
        limits(connections(&self.options))
    }

    /// `what` moves bytes over a transport of TCP.
    fn refuse_quic(&self, what: &str) -> Result<(), Error> {
        if !matches!(self.options.protocol, Protocol::Http3 | Protocol::AltSvc) {
            return Ok(());
        }
        Err(Error::Builder(format!("HTTP/3 is over QUIC, which {what} does not have\nhint: take build()")))
    }

    /// HTTP/3 has no other way than UDP on the URL's port.
    fn check_quic(&self, target: &Target) -> Result<(), Error> {
        let problem = |what: &str| Err(Error::Builder(format!("HTTP/3 is over QUIC, {what}")));
        if !matches!(self.options.protocol, Protocol::Http3 | Protocol::AltSvc) {
            return Ok(());
        }
        if cfg!(not(feature = "quic")) {
            return problem("which this build leaves out\nhint: build linerate with the feature http3");
        }
        if self.options.protocol == Protocol::AltSvc {
            return Ok(());
        }
        if !target.secure {
            return problem("which always has TLS\nhint: write https://");
        }
        if self.options.unix.is_some() {
            return problem("which does not go over a Unix socket\nhint: leave out unix_socket()");
        }
        if let Some(proxy) = &self.options.proxy {
            let words = proxy.words("it carries TCP alone");
            return problem(&format!("and a proxy is set: {words}\nhint: say proxy(\"\") to go without"));
        }
        Ok(())
    }

    /// Where connections go, if not to the URL's host.
    fn place(&mut self, target: &mut Target) -> Result<(), Error> {
        let problem = |what: String| Err(Error::Builder(what));
        let is_placed = self.options.unix.is_some() || self.addresses.is_some();
        let proxy =
            self.proxy.choose(target, self.options.protocol, is_placed, &|name| std::env::var(name).ok());
        if let Some((named, proxy)) = proxy? {
            target.go_through(named.host, named.port);
            self.options.proxy = Some(proxy);
        }
        if let Some(path) = &self.options.unix {
            let len = path.as_os_str().len();
            if len == 0 || len > UNIX_PATH {
                let path = path.display();
                return problem(format!(
                    "the Unix socket {path}: a path has 1 to {UNIX_PATH} bytes, not {len}"
                ));
            }
            // It has no address.
            target.give(vec![SocketAddr::from(([0, 0, 0, 0], 0))]);
        } else if let Some(addresses) = self.addresses.take() {
            if addresses.is_empty() {
                return problem(
                    "resolve() got no address\nhint: leave it out to look the name up".to_owned(),
                );
            }
            target.give(addresses);
        }
        Ok(())
    }

    fn inner(mut self) -> Result<Inner, Error> {
        let problem = |what: String| Err(Error::Builder(what));
        let mut target = Target::parse(&self.url)?;
        self.place(&mut target)?;
        self.check_quic(&target)?;
        let o = &mut self.options;
        let numbers = [
            ("pipes", o.pipes, PIPES),
            ("depth", o.depth, DEPTH),
            ("h2_connections", o.h2_connections, H2_CONNECTIONS),
        ];
        for (name, value, most) in numbers {
            if value == 0 || value > most {
                return problem(format!("{name} is {value}\nhint: take 1 to {most}"));
            }
        }
        if o.queue == 0 {
            return problem("queue is 0: no call would ever be sent\nhint: take 1 or more".to_owned());
        }
        let durations = [o.timeout, o.connect_timeout, o.first_byte_timeout];
        if durations.iter().any(Duration::is_zero) {
            return problem("a timeout is 0: no call could succeed\nhint: take 1 ms or more".to_owned());
        }
        if let Some(tag) = self.tag {
            match HeaderName::try_from(&tag) {
                Ok(name) => o.tag = Some(name),
                Err(_) => return problem(format!("the tag {tag:?} is no field name")),
            }
        }
        if !target.secure && self.secure.is_used() {
            return problem(format!(
                "{} has no TLS, which the client has settings for\nhint: write https://",
                self.url
            ));
        }
        if o.protocol == Protocol::AltSvc && (o.unix.is_some() || o.proxy.is_some()) {
            o.protocol = Protocol::Either;
        }
        if !target.secure && matches!(o.protocol, Protocol::Either | Protocol::AltSvc) {
            o.protocol = Protocol::Http1;
        }
        let secure = match target.secure {
            true => Some(self.secure.build(target.host(), o.protocol)?),
            false => None,
        };
        (o.secure, o.own_host_only) = (target.secure, target.is_given());
        o.host = target.field.clone();
        o.seed = RandomState::new().hash_one(0);
        let window = u64::from(o.usual_pipes()) * u64::from(o.depth) * 2;
        let shared = Arc::new(SharedBoard::new(o.queue as usize));
        let window = window.clamp(2, u64::from(o.queue).max(2));
        let started = Mutex::new(false);
        Ok(Inner { shared, window, options: self.options, target, secure, started })
    }
}
