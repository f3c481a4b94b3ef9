//! Sends the requests of scripts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use linerate_client::client::{Client, Error, Phase, RequestOptions, ResponseExt};
use linerate_net::machine;
use linerate_script::{
    ExchangeStep, ExchangeTimings, ScriptExchange, ScriptOptions, ScriptUser, UserBatch, UserRequest,
    UserResponse,
};

/// Users that share connections to one server. Reason: a client looks at all its connections in each turn.
const USERS_TOGETHER: usize = 128;

/// For a connection to be established. Reason: k6 waits as long.
const CONNECT_TIME: Duration = Duration::from_secs(30);

/// Bytes of a body, at most. Reason: a script holds it as one text.
const BODY_BYTES: usize = 256 << 20;

/// The connections of one thread.
#[derive(Debug)]
pub(super) struct ScriptClients {
    options: Arc<ScriptOptions>,
    clients: RefCell<HashMap<(url::Origin, usize), Result<Client, String>>>,
}

/// The end of one request: the one sent last, and its response.
pub(super) type ExchangeEnd = (UserRequest, UserResponse);

/// A request of a batch, under way.
type BatchPart<'a> = Pin<Box<dyn Future<Output = ExchangeEnd> + 'a>>;

impl ScriptClients {
    pub(super) fn new(options: Arc<ScriptOptions>) -> ScriptClients {
        ScriptClients { options, clients: RefCell::default() }
    }

    /// The client for a URL.
    fn client(&self, url: &url::Url, user: usize) -> Result<Client, String> {
        let key = (url.origin(), user / USERS_TOGETHER);
        if let Some(known) = self.clients.borrow().get(&key) {
            return known.clone();
        }
        let made = self.make(url);
        self.clients.borrow_mut().insert(key, made.clone());
        made
    }

    fn make(&self, url: &url::Url) -> Result<Client, String> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(80);
        let pipes = (USERS_TOGETHER * self.options.batch_per_host.min(8)).min(1024) as u32;
        let mut builder = Client::builder(&url.origin().ascii_serialization())
            .pipes(pipes)
            .depth(1)
            .timeout(Duration::from_secs(3600))
            .connect_timeout(CONNECT_TIME)
            .connect_attempts(1)
            .max_body(BODY_BYTES)
            .timings();
        if self.options.insecure && url.scheme() == "https" {
            builder = builder.danger_accept_any_certificate();
        }
        let whole = format!("{host}:{port}");
        let mapped = self.options.hosts.iter().find(|(name, _)| *name == host || *name == whole);
        if let Some((_, to)) = mapped {
            let address = to.parse().or_else(|_| to.parse().map(|ip| std::net::SocketAddr::new(ip, port)));
            let address = address.map_err(|_| format!("options.hosts: {to:?} is no address"))?;
            builder = builder.resolve([address]);
        }
        builder.build().map_err(|e| e.to_string())
    }

    /// Sends all requests of a batch, each with its redirects.
    pub(super) async fn send(&self, vu: &ScriptUser, number: usize, batch: UserBatch) -> Vec<ExchangeEnd> {
        let UserBatch { mut requests, at_once, per_host } = batch;
        if requests.len() == 1
            && let Some(request) = requests.pop()
        {
            return vec![self.exchange(vu, number, request).await];
        }
        let hosts: Vec<_> = requests.iter().map(|request| request.url.origin()).collect();
        let mut waiting: Vec<_> = requests.into_iter().map(Some).collect();
        let mut ended: Vec<Option<ExchangeEnd>> = waiting.iter().map(|_| None).collect();
        let mut under_way: Vec<(usize, BatchPart<'_>)> = Vec::new();
        poll_fn(|cx| {
            loop {
                for (at, request) in waiting.iter_mut().enumerate() {
                    let of_host = under_way.iter().filter(|(other, _)| hosts[*other] == hosts[at]).count();
                    if under_way.len() < at_once
                        && of_host < per_host
                        && let Some(request) = request.take()
                    {
                        under_way.push((at, Box::pin(self.exchange(vu, number, request))));
                    }
                }
                let before = under_way.len();
                under_way.retain_mut(|(at, exchange)| match exchange.as_mut().poll(cx) {
                    Poll::Ready(end) => {
                        ended[*at] = Some(end);
                        false
                    }
                    Poll::Pending => true,
                });
                if under_way.is_empty() && waiting.iter().all(Option::is_none) {
                    return Poll::Ready(());
                }
                if under_way.len() == before {
                    return Poll::Pending;
                }
            }
        })
        .await;
        drop(under_way);
        ended.into_iter().flatten().collect()
    }

    async fn exchange(&self, vu: &ScriptUser, number: usize, request: UserRequest) -> ExchangeEnd {
        let mut exchange = ScriptExchange::new(request, vu.jars());
        loop {
            let cookie = exchange.cookie(machine::monotonic_now());
            let response = self.once(exchange.request(), number, cookie).await;
            vu.record(exchange.request(), &response);
            if let ExchangeStep::Ended(response) = exchange.take(response, machine::monotonic_now()) {
                return (exchange.into_request(), response);
            }
        }
    }

    /// Sends one request.
    async fn once(&self, request: &UserRequest, number: usize, cookie: Option<String>) -> UserResponse {
        let client = match self.client(&request.url, number) {
            Ok(client) => client,
            Err(why) => return failed(why, 1000),
        };
        let (message, sent) = match self.message(request, cookie) {
            Ok(message) => message,
            Err(why) => return failed(why, 1000),
        };
        let begun = machine::monotonic_now();
        match client.send(message).await {
            Ok(response) => taken(request, response, sent),
            Err(error) => {
                let mut response = failed(error.to_string(), code_of(&error));
                // As in k6: what was never answered was waited for, so that it is in percentiles.
                if !matches!(error, Error::Connect(_) | Error::Request(_)) {
                    let waited = machine::monotonic_now() - begun;
                    response.timings.waiting = waited.as_secs_f64() * 1e3;
                }
                response
            }
        }
    }

    /// The message, and about how many bytes it has.
    fn message(
        &self,
        request: &UserRequest,
        cookie: Option<String>,
    ) -> Result<(Request<Bytes>, u64), String> {
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_| format!("{:?} is no method", request.method))?;
        let path = &request.url[url::Position::BeforePath..];
        let mut sent = path.len() + request.method.len() + 12 + request.body.len();
        let mut message = Request::new(Bytes::copy_from_slice(&request.body));
        *message.method_mut() = method;
        *message.uri_mut() = path.parse().map_err(|e| format!("{path:?}: {e}"))?;
        let fields = message.headers_mut();
        let cookie = cookie.iter().map(|cookie| ("Cookie", cookie.as_str()));
        let given = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in given.chain(cookie) {
            let name_of = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("{name:?} is no field's name"))?;
            let value_of = HeaderValue::from_bytes(value.as_bytes());
            sent += name.len() + value.len() + 4;
            fields.append(name_of, value_of.map_err(|_| format!("{value:?} is no value of {name}"))?);
        }
        if self.options.no_connection_reuse {
            fields.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        message.extensions_mut().insert(RequestOptions::default().timeout(request.timeout));
        Ok((message, sent as u64))
    }
}

fn failed(error: String, error_code: u32) -> UserResponse {
    UserResponse { error, error_code, ..UserResponse::default() }
}

/// k6's number for an error.
fn code_of(error: &Error) -> u32 {
    let words = error.to_string();
    match error {
        Error::Timeout { phase: Phase::Queue | Phase::FirstByte | Phase::Response, .. } => 1050,
        Error::Connect(_) if words.contains("refused") => 1212,
        Error::Connect(_) if words.contains("certificate") => 1310,
        Error::Connect(_) if words.contains("timed out") => 1211,
        Error::Connect(_) if words.contains("name") => 1101,
        Error::Connect(_) => 1210,
        Error::Failed { .. } | Error::OutcomeUnknown(_) => 1220,
        _ => 1000,
    }
}

fn taken(request: &UserRequest, response: Response<Bytes>, sent: u64) -> UserResponse {
    let mut timings = ExchangeTimings::default();
    let mut remote = None;
    if let Some(t) = response.timings() {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        timings = ExchangeTimings {
            blocked: ms(t.queue),
            connecting: ms(t.connect.unwrap_or_default()),
            tls_handshaking: ms(t.tls.unwrap_or_default()),
            sending: 0.0,
            waiting: ms(t.behind + t.server),
            receiving: ms(t.receive),
        };
        remote = t.address;
    }
    let status = response.status().as_u16();
    let mut received = 17 + response.body().len();
    let mut headers = Vec::with_capacity(response.headers().len());
    for (name, value) in response.headers() {
        received += name.as_str().len() + value.len() + 4;
        headers.push((name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    let wants_body = request.response != linerate_script::ResponseKind::Nothing;
    let coding = response.headers().get(http::header::CONTENT_ENCODING).filter(|_| wants_body);
    let decoded = match coding.filter(|_| !response.body().is_empty()) {
        Some(coding) => linerate_load::decode_body(coding.as_bytes(), response.body()),
        None if wants_body => Ok(response.body().to_vec()),
        None => Ok(Vec::new()),
    };
    let (body, error) = match decoded {
        Ok(body) => (body, String::new()),
        Err(why) => (Vec::new(), format!("the body cannot be decoded: {why}")),
    };
    UserResponse {
        status,
        proto: match response.version() {
            http::Version::HTTP_2 => "HTTP/2.0".to_owned(),
            http::Version::HTTP_10 => "HTTP/1.0".to_owned(),
            _ => "HTTP/1.1".to_owned(),
        },
        headers,
        body,
        error_code: match status {
            400.. => 1000 + u32::from(status),
            _ => {
                if error.is_empty() {
                    0
                } else {
                    1701
                }
            }
        },
        error,
        timings,
        remote,
        bytes: (sent, received as u64),
    }
}
