//! The client of programs: hand requests over without waiting for responses.
//!
//! A [`Client`] keeps a few connections to one server. On each, requests follow each other before their responses come
//! (RFC 9112 section 9.3.2), and all that are ready leave in one system call.
//!
//! ```no_run
//! # extern crate linerate_client as linerate;
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use bytes::Bytes;
//! use linerate::client::Client;
//!
//! let client = Client::builder("http://127.0.0.1:8080").pipes(4).depth(64).build()?;
//! let response = client.send(http::Request::get("/a").body(Bytes::new())?).await?;
//! println!("{}: {} bytes", response.status(), response.body().len());
//! # Ok(())
//! # }
//! ```
//!
//! The client promises:
//!
//! - Each call ends in exactly one of a response, an error, and [`Error::OutcomeUnknown`].
//! - A request that is not idempotent is sent once, and alone on its connection. If no response comes, its caller gets
//!   it back inside [`Error::OutcomeUnknown`].
//! - An idempotent request whose connection was lost is sent again (RFC 9112 section 9.3.1).
//! - Nothing is pipelined before the server has kept a connection open.
//! - By HTTP/2 (over TLS if the server prefers it, otherwise [`Protocol::Http2`]) each request has a stream. Nothing has
//!   to be alone, and a dropped future resets its stream.
//! - Every queue, buffer and wait has a limit ([`Builder`]).
//!
//! A task of the tokio runtime that polls the first call moves the bytes. It ends with the last [`Client`], and closes
//! all connections. The runtime needs its I/O and time drivers.
//!
//! A [`Runner`] moves them over any transport instead, in the program's own thread and without tokio.
//!
//! [`Calls`] is the same as a state machine over any transport, without tokio.

mod all;
mod alternatives;
mod beside;
mod board;
mod body;
mod builder;
#[cfg(feature = "quic")]
mod by_quic;
mod call;
mod calls;
mod cell;
mod connection;
mod connection_limit;
mod counted;
mod driver;
#[cfg(feature = "quic")]
mod dual;
mod error;
mod exchange;
mod hosts;
mod inner;
mod limits;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
#[path = "no_meter.rs"]
mod meter;
mod moderation;
mod mover;
mod options;
mod path;
mod proxy;
mod runner;
mod secure;
mod service;
mod statistics;
mod stream;
mod target;
mod template;
mod timings;
mod waiting;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use serde::Serialize;

pub use crate::{Failure, Resend};
pub use all::{SendAll, SendAllUnordered};
pub use beside::{Beside, BesideRunning};
pub use body::Body;
pub use builder::Builder;
pub use call::ResponseFuture;
pub use calls::{CallReading, Calls, Done, News, Trailers};
pub use connection::{ConnectionInfo, ConnectionTls};
pub use counted::Counted;
pub use error::{Error, ErrorDetail, ErrorKind, FailedPart, Phase, Unknown};
pub use exchange::{Exchange, Streaming};
pub use hosts::{Hosts, HostsBuilder, Redirects};
pub use options::{CallOptions, Protocol, RequestOptions};
pub use path::percent_encoded;
pub use runner::Runner;
pub use statistics::{PipeStatistics, Statistics};
pub use stream::SendStreaming;
pub use template::Template;
pub use timings::{ResponseExt, StatusError, Timings, Why};

use self::inner::Inner;

/// A client of one server. Clones share its connections. [`Hosts`] has one for each of several servers.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl Client {
    /// Begins a client of the server at `http://HOST[:PORT]` or `https://HOST[:PORT]`.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// Sends a request. Its URI is a path, or a whole URI that names this server. The client adds Host and
    /// Content-Length.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let request = http::Request::put("/items/7").header("content-type", "text/plain").body("a new text".into())?;
    /// let response = client.send(request).await?;
    /// println!("{}", response.status());
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, request: Request<Bytes>) -> ResponseFuture {
        ResponseFuture::new(Arc::clone(&self.0), Ok(request))
    }

    /// Sends a GET. What no URI may have is encoded in the path, as by [`percent_encoded`]: `get("/ü")` asks for `/%C3%BC`.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let response = client.get("/items/7").await?;
    /// println!("{}: {:?}", response.status(), response.body());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, path: &str) -> ResponseFuture {
        self.call(Method::GET, path, None, Bytes::new())
    }

    /// Sends a POST with this body.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// // It is never sent twice: a POST that gets no response comes back inside the error.
    /// let created = client.post("/items", "a new one").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn post(&self, path: &str, body: impl Into<Bytes>) -> ResponseFuture {
        self.call(Method::POST, path, None, body.into())
    }

    /// Sends a POST with this value as JSON.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.json("/items", &vec![("name", "a new one")]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn json(&self, path: &str, value: &impl Serialize) -> ResponseFuture {
        match serde_json::to_vec(value) {
            Ok(body) => self.call(Method::POST, path, Some("application/json"), body.into()),
            Err(error) => {
                let words = format!("the value cannot be written as JSON: {error}");
                let error = Error::Request(ErrorDetail::by(words, error));
                ResponseFuture::new(Arc::clone(&self.0), Err(error))
            }
        }
    }

    /// Sends a request whose body may be a stream, and hands the response over as it comes.
    ///
    /// The future ends with the head of the response. While the caller takes nothing of the body, the server is held
    /// back. A request with a body that is not empty is never sent again, and its trailers are not sent. `timeout` then
    /// counts from the last piece that moved, and [`Builder::max_body`] does not count. By HTTP/1.1 such a call is alone
    /// on its connection.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::future::poll_fn;
    /// use std::pin::Pin;
    ///
    /// use http_body::Body;
    ///
    /// let request = http::Request::post("/upper").body("a body of any kind".to_owned())?;
    /// let mut body = client.send_streaming(request).await?.into_body();
    /// while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
    ///     println!("{:?}", frame?.data_ref());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_streaming<B>(&self, request: Request<B>) -> SendStreaming<B>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        SendStreaming::new(Arc::clone(&self.0), request)
    }

    /// Sends a GET, whose response's body is a stream; see [`send_streaming`](Client::send_streaming).
    ///
    /// # Errors
    /// As [`send`](Client::send).
    pub fn get_streaming(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Response<Body>, Error>> + Send + use<> {
        let (client, request) = (self.clone(), get(path));
        async move { client.send_streaming(request?.map(Body::from)).await }
    }

    /// The client as a service of tower whose responses are streams, of any length: each call is one of
    /// [`send_streaming`](Client::send_streaming). The client itself is a service too, whose responses are whole.
    pub fn streaming(&self) -> Streaming {
        Streaming(Arc::clone(&self.0))
    }

    /// Sends requests as places for them become free, and returns the responses in the order of the requests.
    ///
    /// The stream holds as many calls as two fillings of all connections, so a slow response delays those behind it
    /// and, in the end, the requests. It holds fewer if responses are large: about 64 MiB of them wait for a caller that
    /// pauses.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use bytes::Bytes;
    /// use futures_util::{StreamExt, stream};
    ///
    /// let requests = stream::iter((0..1000).map(|i| http::Request::get(format!("/items/{i}")).body(Bytes::new()).unwrap()));
    /// let mut responses = std::pin::pin!(client.send_all(requests));
    /// while let Some(response) = responses.next().await {
    ///     println!("{}", response?.status());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_all<S: Stream<Item = Request<Bytes>>>(&self, requests: S) -> SendAll<S> {
        SendAll::new(Arc::clone(&self.0), requests)
    }

    /// As [`send_all`](Client::send_all), but returns each response when it comes, with the index of its request.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use bytes::Bytes;
    /// use futures_util::{StreamExt, stream};
    ///
    /// let requests = stream::iter((0..1000).map(|i| http::Request::get(format!("/items/{i}")).body(Bytes::new()).unwrap()));
    /// let mut responses = std::pin::pin!(client.send_all_unordered(requests));
    /// while let Some((index, response)) = responses.next().await {
    ///     println!("{index}: {}", response?.status());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_all_unordered<S: Stream<Item = Request<Bytes>>>(&self, requests: S) -> SendAllUnordered<S> {
        SendAllUnordered::new(Arc::clone(&self.0), requests)
    }

    /// Sends `count` requests made from a template and only counts the responses, at the rate of `linerate load`. It
    /// uses connections of its own.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use linerate::client::Template;
    ///
    /// let counted = client.send_counted(Template::get("/items/{{seq}}")?, 1_000_000).await?;
    /// println!("{} responses in {:?}", counted.responses, counted.elapsed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Request`]: the template is no valid request. [`Error::Connect`]: no connection could be opened.
    pub async fn send_counted(&self, template: Template, count: u64) -> Result<Counted, Error> {
        let Inner { options, target, secure, .. } = &*self.0;
        counted::run(options, target.clone(), secure.as_ref(), &template, count).await
    }

    /// Counts so far, as of the last time the client had nothing to do.
    pub fn statistics(&self) -> Statistics {
        self.0.shared.lock().statistics.clone()
    }

    fn call(&self, method: Method, path: &str, content: Option<&str>, body: Bytes) -> ResponseFuture {
        let mut builder = Request::builder().method(method).uri(&*percent_encoded(path));
        if let Some(content) = content {
            builder = builder.header(CONTENT_TYPE, content);
        }
        let request = builder.body(body);
        let request = request.map_err(|e| Error::Request(ErrorDetail::by(format!("{path:?}: {e}"), e)));
        ResponseFuture::new(Arc::clone(&self.0), request)
    }
}

/// A GET. What no URI may have is encoded.
fn get(uri: &str) -> Result<Request<Bytes>, Error> {
    let request = Request::get(&*percent_encoded(uri)).body(Bytes::new());
    request.map_err(|e| Error::Request(ErrorDetail::by(format!("{uri:?}: {e}"), e)))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.0.target).finish_non_exhaustive()
    }
}
