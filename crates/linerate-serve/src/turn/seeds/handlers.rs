//! The handlers of the server under test: every kind, with responses that follow from their
//! requests.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{BodyStream, Handler, IntoResponse, Request, RequestBody, Response, Sleep, sleep, tower};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Job = Pin<Box<dyn Future<Output = ()>>>;

/// The message of every intended panic, so that the hook can hide it.
pub(super) const WANTED: &str = "as the test wants";

thread_local! {
    /// Jobs that are not tasks of the server, as tokio's would be. They are polled between its
    /// turns.
    static ELSEWHERE: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

fn spawn(job: impl Future<Output = ()> + 'static) {
    ELSEWHERE.with_borrow_mut(|jobs| jobs.push(Box::pin(job)));
}

/// Polls all jobs once; returns how many are left.
pub(super) fn work_elsewhere() -> usize {
    let mut jobs = ELSEWHERE.take();
    let mut context = Context::from_waker(Waker::noop());
    jobs.retain_mut(|job| job.as_mut().poll(&mut context).is_pending());
    ELSEWHERE.with_borrow_mut(|left| {
        left.append(&mut jobs);
        left.len()
    })
}

/// The body of request `id`, with this length.
pub(super) fn pattern(id: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| b'a' + ((id.wrapping_mul(7) + at + at / 251) % 26) as u8).collect()
}

/// A small checksum.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, b| (sum * 31 + u64::from(*b)) % 1_000_003)
}

pub(super) fn said_of(id: u64, body: &[u8]) -> Vec<u8> {
    format!("read {id}: {} bytes, {}\n", body.len(), sum(body)).into_bytes()
}

/// The handler: a coroutine for most requests, a tower service for connections that are handed
/// over.
pub(super) fn handler() -> impl Handler {
    let service = Rc::new(tower(tower_service_fn()));
    move |request: Request| -> Pin<Box<dyn Future<Output = Response>>> {
        if request.path() != "/tunnel" {
            return Box::pin(answer(request));
        }
        let response = service.call(request);
        Box::pin(async move { response.await.into_response() })
    }
}

fn tower_service_fn() -> impl tower_service::Service<
    http::Request<crate::TowerBody>,
    Response = http::Response<axum::body::Body>,
    Error = Infallible,
    Future: 'static,
> + Clone {
    Tunnels
}

/// Takes the connection, and echoes everything it receives.
#[derive(Clone)]
struct Tunnels;

impl tower_service::Service<http::Request<crate::TowerBody>> for Tunnels {
    type Response = http::Response<axum::body::Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<crate::TowerBody>) -> Self::Future {
        let taken = hyper::upgrade::on(&mut request);
        spawn(async move {
            if let Ok(io) = taken.await {
                say_back(TokioIo::new(io)).await;
            }
        });
        let answer = http::Response::builder().status(101).header("upgrade", "echo");
        let answer = answer.header("connection", "upgrade").body(axum::body::Body::empty());
        std::future::ready(Ok(answer.expect("well-formed")))
    }
}

/// Echoes everything until the client has ended.
async fn say_back(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; 1500];
    while let Ok(n @ 1..) = io.read(&mut buffer).await {
        if io.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
    // The client may be gone.
    let _ = io.shutdown().await;
}

/// The numbers in the query.
fn numbers(request: &Request) -> [u64; 4] {
    let mut all = [0; 4];
    for (place, text) in all.iter_mut().zip(request.query().unwrap_or_default().split(',')) {
        *place = text.parse().unwrap_or(0);
    }
    all
}

async fn wait(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}

async fn answer(mut request: Request) -> Response {
    let [id, n, k, ms] = numbers(&request);
    match request.path() {
        "/now" => Response::text(format!("now {id}\n")),
        "/wait" => {
            wait(ms).await;
            Response::text(format!("waited {id}\n"))
        }
        "/large" => {
            wait(ms).await;
            Response::text(pattern(id, n as usize))
        }
        "/stream" | "/known" | "/fails" => {
            let path = request.path();
            let known = (path == "/known").then_some(n * k);
            let stream = Pieces { id, each: n, left: k, ms, known, fails: path == "/fails", sleep: None };
            Response::status(200).with_stream(stream)
        }
        "/panic" => panic!("{WANTED}"),
        "/panic-later" => {
            wait(ms + 1).await;
            panic!("{WANTED}")
        }
        "/bye" => {
            wait(ms).await;
            Response::text(format!("bye {id}\n")).closing()
        }
        "/read" | "/sip" => {
            let slow = request.path() == "/sip";
            let mut body = Vec::new();
            while let Some(piece) = request.body().next().await {
                match piece {
                    Ok(piece) => body.extend_from_slice(&piece),
                    Err(_) => return Response::status(400).closing(),
                }
                wait(if slow { ms } else { 0 }).await;
            }
            Response::text(said_of(id, &body))
        }
        "/refuse" => Response::text(format!("refused {id}\n")),
        "/refuse-later" => {
            drop(std::mem::take(request.body()));
            wait(ms + 1).await;
            Response::text(format!("refused {id}\n"))
        }
        "/taste" => {
            let _ = request.body().next().await;
            drop(std::mem::take(request.body()));
            wait(ms).await;
            Response::text(format!("tasted {id}\n"))
        }
        "/echo" => Response::status(200).with_stream(GiveBack(request.into_body())),
        "/taken" => match request.upgrade() {
            Some(upgrade) => upgrade.accept(say_back),
            None => Response::status(404),
        },
        "/elsewhere" => {
            let body = request.into_body();
            spawn(read_elsewhere(body, n, k == 1));
            wait(ms).await;
            Response::text(format!("taken {id}\n"))
        }
        _ => Response::status(404),
    }
}

/// Reads a body whose response is already sent, or drops it after a piece.
async fn read_elsewhere(mut body: RequestBody, pieces: u64, gives_up: bool) {
    let mut read = 0;
    while let Some(Ok(_)) = body.next().await {
        read += 1;
        if gives_up && read >= pieces {
            return;
        }
        for _ in 0..pieces {
            yield_now().await;
        }
    }
}

async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}

/// Pieces of a body, with a wait before each.
struct Pieces {
    id: u64,
    each: u64,
    left: u64,
    ms: u64,
    known: Option<u64>,
    fails: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl BodyStream for Pieces {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if self.left == 0 {
            return Poll::Ready(self.fails.then(|| Err(WANTED.into())));
        }
        if self.ms > 0 {
            let ms = Duration::from_millis(self.ms);
            let wait = self.sleep.get_or_insert_with(|| Box::pin(sleep(ms)));
            std::task::ready!(wait.as_mut().poll(context));
            self.sleep = None;
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Bytes::from(pattern(self.id + self.left, self.each as usize)))))
    }

    fn length(&self) -> Option<u64> {
        self.known
    }
}

/// The bytes of [`Pieces`].
pub(super) fn pieces(id: u64, each: u64, count: u64) -> Vec<u8> {
    (0..count).rev().flat_map(|left| pattern(id + left, each as usize)).collect()
}

/// Echoes a request's body while it arrives.
struct GiveBack(RequestBody);

impl BodyStream for GiveBack {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        self.0.poll_next(context).map_err(Into::into)
    }
}
