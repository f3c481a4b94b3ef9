//! What users want, and what they are told.

use std::time::Duration;

use crate::sample::RequestTags;

/// What a user wants next.
#[derive(Debug)]
pub enum UserAction {
    /// These requests are to be sent, as many at a time as [`UserBatch`] says. [`UserReply::Responses`] follows.
    Send(UserBatch),
    /// To pause. [`UserReply::Slept`] follows.
    Sleep(Duration),
    /// The call is over.
    Ended(CallEnd),
}

/// Requests of one call of a script.
#[derive(Debug)]
pub struct UserBatch {
    /// In their order.
    pub requests: Vec<UserRequest>,
    /// At a time, at most.
    pub at_once: usize,
    /// At a time to one host, at most.
    pub per_host: usize,
}

/// A request, as it is to leave.
#[derive(Clone, Debug)]
pub struct UserRequest {
    /// GET, POST ...
    pub method: String,
    /// `http://` or `https://`, without a fragment.
    pub url: url::Url,
    /// Fields, in their order, without Host and Content-Length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// From sending it to its whole response, redirects not included.
    pub timeout: Duration,
    /// Redirects to follow, at most.
    pub redirects: u32,
    /// What its samples are tagged with.
    pub tags: RequestTags,
    /// Statuses that are not failures; `None`: no `http_req_failed` is told.
    pub expected: Option<ExpectedStatuses>,
    /// What becomes of the body of its response.
    pub response: ResponseKind,
    /// Cookies of this request alone: name, value, and whether it takes the place of the jar's.
    pub cookies: Vec<(String, String, bool)>,
    /// The jar that its cookies come from, by its number in the user.
    pub jar: u32,
}

/// A request that is to be sent, or one that cannot be, and what its script gets.
pub(crate) type QueuedRequest = Result<UserRequest, Box<(UserRequest, UserResponse)>>;

/// What a script gets of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseKind {
    /// As text.
    #[default]
    Text,
    /// As an `ArrayBuffer`.
    Binary,
    /// Nothing.
    Nothing,
}

/// Statuses that are expected, as inclusive ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedStatuses(pub Vec<(u16, u16)>);

impl Default for ExpectedStatuses {
    fn default() -> ExpectedStatuses {
        ExpectedStatuses(vec![(200, 399)])
    }
}

impl ExpectedStatuses {
    /// Whether a response with this status is no failure.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

/// The response to a request, or how it failed: then `status` is 0.
#[derive(Clone, Debug, Default)]
pub struct UserResponse {
    /// 0: none came.
    pub status: u16,
    /// `HTTP/1.1`
    pub proto: String,
    /// Fields in their order.
    pub headers: Vec<(String, String)>,
    /// Its body, decoded.
    pub body: Vec<u8>,
    /// Why none came; empty: one came.
    pub error: String,
    /// Its number among k6's codes; 0: none.
    pub error_code: u32,
    /// Where its time went.
    pub timings: ExchangeTimings,
    /// The address that it came from.
    pub remote: Option<std::net::SocketAddr>,
    /// Bytes that were sent and received, about.
    pub bytes: (u64, u64),
}

/// Where the time of a request went, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExchangeTimings {
    /// For a connection.
    pub blocked: f64,
    /// TCP's handshake.
    pub connecting: f64,
    /// TLS's.
    pub tls_handshaking: f64,
    /// Until the request had left.
    pub sending: f64,
    /// From then to the first byte.
    pub waiting: f64,
    /// From then to the last.
    pub receiving: f64,
}

impl ExchangeTimings {
    /// What k6 calls duration.
    pub fn duration(&self) -> f64 {
        self.sending + self.waiting + self.receiving
    }
}

/// What a user is told.
#[derive(Debug)]
pub enum UserReply {
    /// Run this.
    Call(ScriptCall),
    /// The ends of the requests, in their order: of each the response, and the request that it came to.
    Responses(Vec<(UserRequest, UserResponse)>),
    /// The pause is over.
    Slept,
    /// The time is over: what runs is cut off.
    Stop,
}

/// A function of a script to be called.
#[derive(Clone, Debug, Default)]
pub struct ScriptCall {
    /// Exported under this name.
    pub function: String,
    /// JSON of its argument.
    pub argument: Option<std::sync::Arc<str>>,
    /// `__ITER`
    pub iteration: u64,
    /// Where it runs.
    pub place: UserCallPlace,
}

/// The place of a call in the run.
#[derive(Clone, Debug, Default)]
pub struct UserCallPlace {
    /// The scenario's name; empty in setup and teardown.
    pub scenario: std::sync::Arc<str>,
    /// Its executor.
    pub executor: std::sync::Arc<str>,
    /// From the start of the run to the start of the scenario.
    pub after: Duration,
    /// Number of the iteration in its scenario, over all users.
    pub in_scenario: u64,
    /// Tags of all its samples.
    pub tags: std::sync::Arc<[(String, String)]>,
    /// Variables of the scenario, in place of those of the run.
    pub env: std::sync::Arc<[(String, String)]>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned; the JSON of its value.
    Returned(Option<String>),
    /// It threw this, with where.
    Threw(String),
    /// It called `exec.test.abort`, with this reason.
    Aborted(String),
    /// It was cut off.
    Stopped,
}
