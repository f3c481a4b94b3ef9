//! The built-in routes of `linerate serve` and the demo, as load generators, test suites and people
//! use them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use linerate_http::server::{Form, Method, push_decimal, reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::flows::Desk;
use crate::message::body::BodyError;
use crate::message::responding::{Responding, Waits};
use crate::message::stream::BodyStream;
use crate::stats::counts::Counts;
use crate::{Request, Response, Route, blocking, sleep};

/// Largest body of `/bytes/N`, bytes. Reason: a terabyte requested by mistake keeps a wire busy for
/// hours.
const BYTES: u64 = 1 << 33;
/// Bodies of `/bytes/N` up to this size share one block of memory. Reason: it is made once per
/// server.
const BLOCK: usize = 1 << 20;
/// Longest wait of `/delay/MS`. Reason: a handler that waits forever is a leak.
const DELAY: u64 = 3_600_000;
/// Most of `/compute/N`, thousands of steps. Reason: it holds the thread of the connection, for a
/// quarter of a second then.
const COMPUTE: u64 = 100_000;
/// Longest `/stream/N`, in lines. Reason: as for bytes.
const LINES: u64 = 1 << 30;

/// Bytes of a body to send back that are kept without a share. Reason: small bodies wait for nobody.
const UNCOUNTED: usize = 16 << 10;
/// KiB of larger bodies that a thread keeps. Reason: a thousand clients with 16 MiB each would take
/// 16 GB.
const KEPT_TOGETHER: usize = 64 << 10;
/// The share of a body of unknown length, bytes. Reason: the usual limit of a body.
const ANY: u64 = 16 << 20;

thread_local! {
    /// What is left of `KEPT_TOGETHER`.
    static KEPT: Arc<Semaphore> = Arc::new(Semaphore::new(KEPT_TOGETHER));
}

/// The path that shows the connections of a user-space TCP.
const FLOWS: &str = "/stats/flows";

const ALLOW: &str = "GET, HEAD, POST, OPTIONS";

/// The built-in routes. Cheap to clone: one per thread.
#[derive(Clone)]
pub struct Routes {
    block: Bytes,
    counts: Arc<dyn Fn() -> Counts + Send + Sync>,
    flows: Option<Desk>,
    patterns: Patterns,
}

/// The routes as metrics name them.
#[derive(Clone, Copy)]
struct Patterns {
    root: Route,
    plain: [(&'static str, Route); 4],
    counted: [(&'static str, Route); 7],
}

impl Patterns {
    fn new() -> Patterns {
        let plain = |name| (name, Route::new(&format!("/{name}")));
        let counted = |name, argument| (name, Route::new(&format!("/{name}/{{{argument}}}")));
        Patterns {
            root: Route::new("/"),
            plain: [plain("echo"), plain("upper"), plain("stats"), plain("stats/flows")],
            counted: [
                counted("bytes", "n"),
                counted("delay", "ms"),
                counted("block", "ms"),
                counted("threads", "ms"),
                counted("compute", "n"),
                counted("status", "code"),
                counted("stream", "n"),
            ],
        }
    }

    fn of(&self, path: &str) -> Route {
        if path == "/" {
            return self.root;
        }
        let of = |name: &str, among: &[(&str, Route)]| {
            among.iter().find(|(known, _)| *known == name).map(|(_, route)| *route)
        };
        let route = match split(path) {
            ("", _) => of(path.trim_start_matches('/'), &self.plain),
            (name, None) => of(name, &self.plain),
            (name, Some(_)) => of(name, &self.counted),
        };
        route.unwrap_or_default()
    }
}

impl Routes {
    /// `counts` provides the figures of `/stats`.
    pub fn new(counts: Arc<dyn Fn() -> Counts + Send + Sync>) -> Routes {
        let block: Vec<u8> = (0..BLOCK)
            .map(|i| b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-\n"[i % 64])
            .collect();
        Routes { block: Bytes::from(block), counts, flows: None, patterns: Patterns::new() }
    }

    /// Adds connections for `/stats/flows`.
    pub(crate) fn with_flows(self, flows: Desk) -> Routes {
        Routes { flows: Some(flows), ..self }
    }

    /// Responds to a request.
    pub fn answer(&self, request: Request) -> impl Future<Output = Response> + use<> {
        self.respond(request)
    }

    pub(crate) fn respond(&self, request: Request) -> Responding {
        let route = self.patterns.of(request.path());
        match self.at_once(request) {
            Ok(response) => Responding::ready(response.with_route(route)),
            Err(waits) => Responding::waits(async move { waits.await.with_route(route) }),
        }
    }

    /// The response, or the future of one that may have to wait.
    fn at_once(&self, request: Request) -> Result<Response, Waits> {
        let method = request.head().method();
        match method {
            Method::Get | Method::Head | Method::Post => {}
            Method::Options => return Ok(allow(Response::status(204))),
            Method::Put | Method::Delete | Method::Patch | Method::Trace => return Ok(not_allowed()),
            Method::Connect => return Ok(Response::no_tunnel()),
            Method::Other => return Ok(status_page(501)),
        }
        if request.head().form() == Form::Asterisk {
            return Ok(not_allowed());
        }
        let path = request.path();
        if path == "/" {
            return if method == Method::Post { Err(Box::pin(echo(request, false))) } else { Ok(hello()) };
        }
        let (name, argument) = split(path);
        Ok(match (name, argument) {
            ("echo", None) if method == Method::Post => return Err(Box::pin(echo(request, false))),
            ("echo", None) => head_dump(&request),
            ("upper", None) if method == Method::Post => return Err(Box::pin(echo(request, true))),
            ("upper", None) => not_allowed(),
            ("bytes", Some(n)) => self.bytes(n),
            ("delay", Some(ms)) if ms <= DELAY => return Err(Box::pin(delayed(ms))),
            ("block", Some(ms)) if ms <= DELAY => {
                std::thread::sleep(Duration::from_millis(ms));
                Response::text("blocked\n")
            }
            ("threads", Some(ms)) if ms <= DELAY => return Err(Box::pin(on_a_thread(ms))),
            ("compute", Some(n)) if n <= COMPUTE => computed(n * 1_000),
            ("status", Some(code)) if (200..=599).contains(&code) => status_page(code as u16),
            ("stream", Some(n)) if n <= LINES => Response::status(200)
                .with_content_type("text/plain; charset=utf-8")
                .with_stream(Lines { next: 0, end: n }),
            ("stats", None) => Response::json((self.counts)().to_json()),
            ("", None) if path == FLOWS => match self.flows.clone() {
                Some(desk) => return Err(Box::pin(async move { desk.answer(request).await })),
                None => Response::explained(404, "TCP is the kernel's here: ss -tine shows its connections"),
            },
            _ => status_page(404),
        })
    }

    /// Whether a path is one of these routes.
    pub(crate) fn knows(path: &str) -> bool {
        let (name, argument) = split(path);
        match argument {
            None => matches!(name, "echo" | "upper" | "stats") || path == FLOWS,
            Some(_) => {
                matches!(name, "bytes" | "delay" | "block" | "threads" | "compute" | "status" | "stream")
            }
        }
    }

    fn bytes(&self, n: u64) -> Response {
        let response = Response::status(200).with_content_type("application/octet-stream");
        if n <= BLOCK as u64 {
            return response.with_body(self.block.slice(..n as usize));
        }
        if n > BYTES {
            return status_page(404);
        }
        response.with_stream(Repeat { block: self.block.clone(), left: n })
    }
}

/// Waits as a coroutine.
async fn delayed(ms: u64) -> Response {
    sleep(Duration::from_millis(ms)).await;
    Response::text("waited\n")
}

/// Waits on a thread beside the event loop.
async fn on_a_thread(ms: u64) -> Response {
    match blocking(move || std::thread::sleep(Duration::from_millis(ms))).await {
        Ok(()) => Response::text("waited\n"),
        Err(busy) => busy.into(),
    }
}

/// Steps of Marsaglia's xorshift with 32 bits, which every language can do; the last state.
fn computed(steps: u64) -> Response {
    let mut state: u32 = 2_463_534_242;
    for _ in 0..steps {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    let mut text = Vec::new();
    push_decimal(&mut text, u64::from(state));
    text.push(b'\n');
    Response::text(text)
}

fn hello() -> Response {
    Response::text(Bytes::from_static(b"Hello, World!\n"))
}

/// `/name` or `/name/number`.
fn split(path: &str) -> (&str, Option<u64>) {
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.split_once('/') {
        None => (path, None),
        Some((name, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().map_or(("", None), |n| (name, Some(n)))
        }
        Some(_) => ("", None),
    }
}

/// A body that is kept whole, with its share of what may be.
struct Kept {
    body: Bytes,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// The whole body of a request, `upper` or as it is. A large one waits, unread, for its share of what
/// the thread keeps, which it holds until it is sent back.
async fn kept(mut request: Request, upper: bool) -> Result<Bytes, BodyError> {
    let announced = request.field("content-length").and_then(|bytes| bytes.parse::<u64>().ok());
    let (mut pieces, mut bytes, mut share) = (Vec::new(), 0, None);
    while let Some(piece) = request.body().next().await {
        let piece = piece?;
        bytes += piece.len();
        pieces.push(piece);
        if bytes > UNCOUNTED && share.is_none() {
            let units = announced.unwrap_or(ANY).div_ceil(1 << 10).min(KEPT_TOGETHER as u64) as u32;
            // It is never closed.
            share = KEPT.with(Arc::clone).acquire_many_owned(units).await.ok();
        }
    }
    let body = match &mut pieces[..] {
        [one] if !upper => std::mem::take(one),
        pieces => {
            let mut all = pieces.concat();
            if upper {
                all.make_ascii_uppercase();
            }
            all.into()
        }
    };
    Ok(match share {
        Some(share) => Bytes::from_owner(Kept { body, _share: share }),
        None => body,
    })
}

/// Echoes the body, or reports what became of it.
async fn echo(request: Request, upper: bool) -> Response {
    match kept(request, upper).await {
        Ok(body) if upper => Response::text(body),
        Ok(body) => Response::status(200).with_content_type("application/octet-stream").with_body(body),
        Err(BodyError::TooLarge { .. }) => status_page(413).closing(),
        Err(_) => status_page(400).closing(),
    }
}

/// The parsed head, one field per line.
fn head_dump(request: &Request) -> Response {
    let head = request.head();
    let mut dump = format!("{} {}\n", head.method_name(), head.target()).into_bytes();
    for (name, value) in head.fields() {
        dump.extend_from_slice(name.as_bytes());
        dump.extend_from_slice(b": ");
        dump.extend_from_slice(value);
        dump.push(b'\n');
    }
    Response::text(dump)
}

fn status_page(code: u16) -> Response {
    let mut text = Vec::new();
    push_decimal(&mut text, u64::from(code));
    text.push(b' ');
    text.extend_from_slice(reason(code).as_bytes());
    text.push(b'\n');
    Response { status: code, ..Response::text(text) }
}

fn not_allowed() -> Response {
    allow(status_page(405))
}

fn allow(response: Response) -> Response {
    match response.with_field("allow", ALLOW) {
        Ok(response) => response,
        Err(_) => Response::status(500),
    }
}

/// `line 1`, `line 2`, ... as chunks.
struct Lines {
    next: u64,
    end: u64,
}

impl BodyStream for Lines {
    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        if self.next == self.end {
            return Poll::Ready(None);
        }
        self.next += 1;
        Poll::Ready(Some(Ok(Bytes::from(format!("line {}\n", self.next)))))
    }
}

/// Repeats a block.
struct Repeat {
    block: Bytes,
    left: u64,
}

impl BodyStream for Repeat {
    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let n = self.left.min(self.block.len() as u64).min(64 << 10);
        self.left -= n;
        Poll::Ready(Some(Ok(self.block.slice(..n as usize))))
    }

    fn length(&self) -> Option<u64> {
        Some(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Large bodies that wait to be sent back take no more than their thread may have for them.
    #[test]
    fn large_bodies_to_send_back_wait_for_their_share() {
        let large = || {
            let pieces = vec![Bytes::from(vec![b'x'; 10_000]); 2];
            let request = Request::builder("POST", "/upper").body_in_pieces(pieces).build().unwrap();
            Box::pin(kept(request, true))
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut ready = Vec::new();
        while let Poll::Ready(body) = large().as_mut().poll(&mut context) {
            ready.push(body.unwrap());
        }
        // Of unknown length, each counts as the longest.
        assert_eq!(ready.len() as u64, (KEPT_TOGETHER as u64 * 1024) / ANY);
        let mut waits = large();
        assert!(waits.as_mut().poll(&mut context).is_pending());
        // Small ones wait for nobody.
        let small = Request::builder("POST", "/echo").body("abc").build().unwrap();
        assert!(
            matches!(Box::pin(kept(small, false)).as_mut().poll(&mut context), Poll::Ready(Ok(body)) if body == "abc")
        );
        // A part of a body has its share too.
        let part = ready.pop().map(|body| body.slice(..3));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(part);
        assert!(
            matches!(waits.as_mut().poll(&mut context), Poll::Ready(Ok(body)) if body == "X".repeat(20_000))
        );
    }
}
