//! `linerate-bench-peers call NAME URL SECONDS IN_FLIGHT [RATE [POST_EVERY]]`: a client on one tokio thread that keeps
//! IN_FLIGHT calls in flight, each way with what it offers for that; or, with a RATE other than 0, that begins RATE calls
//! a second whatever becomes of earlier ones. Every n-th call is a POST to `/post/NUMBER`. It prints its counts as JSON.

mod pace;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use linerate_client::client::{Client, Protocol, Template};

/// Requests of a counted run at a time. Reason: it is asked whether time is up between two.
const COUNTED_AT_ONCE: u64 = 200_000;

/// Calls at once whose latency is noted in a closed loop. Reason: with more of them, two looks at the clock would be a part of
/// what a call costs.
const FEW_CALLS: u32 = 10;

/// When to stop. A flag costs less than a look at the clock for each call.
#[derive(Clone)]
struct StopClock {
    over: Arc<AtomicBool>,
    begun: Instant,
    seconds: f64,
}

impl StopClock {
    fn start(seconds: f64) -> StopClock {
        let clock = StopClock { over: Arc::default(), begun: Instant::now(), seconds };
        let over = clock.over.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            over.store(true, Ordering::Relaxed);
        });
        clock
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// What to do.
struct PeerTask {
    clock: StopClock,
    in_flight: u32,
    /// Calls that begin each second; 0: as earlier ones end.
    rate: u64,
    /// Every n-th call is a POST; 0: none.
    post_every: u64,
    /// POST requests begun.
    posts: Arc<AtomicU64>,
}

/// What became of the calls.
#[derive(Default)]
struct CallCounts {
    answered: u64,
    /// POST requests that ended in an error.
    unsettled: u64,
    p99_us: Option<u64>,
    /// Sockets at the end.
    connections: u64,
}

/// Sockets of this process.
fn sockets() -> Result<u64> {
    let links =
        std::fs::read_dir("/proc/self/fd")?.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy().starts_with("socket:")).count() as u64)
}

pub(crate) fn run(words: &[String]) -> Result<()> {
    let (name, url, seconds, in_flight, more) = match words {
        [name, url, seconds, in_flight, more @ ..] if more.len() <= 2 => {
            (name, url, seconds, in_flight, more)
        }
        _ => bail!("usage: linerate-bench-peers call NAME URL SECONDS IN_FLIGHT [RATE [POST_EVERY]]"),
    };
    let seconds: f64 = seconds.parse().context("SECONDS is no number")?;
    let in_flight: u32 = in_flight.parse().context("IN_FLIGHT is no number")?;
    let number = |at: usize| more.get(at).map_or(Ok(0), |word| word.parse::<u64>());
    let rate = number(0).context("RATE is no number")?;
    let post_every = number(1).context("POST_EVERY is no number")?;
    let uri: http::Uri = url.parse()?;
    let origin = format!("http://{}", uri.authority().context("the URL names no host")?);
    crate::hello::runtime()?.block_on(async {
        let posts = Arc::<AtomicU64>::default();
        let task = PeerTask { clock: StopClock::start(seconds), in_flight, rate, post_every, posts };
        let counts = match name.as_str() {
            "send-h2" => send(&streams(&origin, in_flight)?, &task).await?,
            "hyper-util-h2" => hyper(&uri, &origin, &task, true).await?,
            "default" => send(&Client::builder(&origin).build()?, &task).await?,
            "send" => send(&client(&origin, in_flight)?, &task).await?,
            "send_all" => send_all(&client(&origin, in_flight)?, &task.clock).await?,
            "send_counted" => send_counted(&client(&origin, in_flight)?, &task.clock).await?,
            "hyper-util" => hyper(&uri, &origin, &task, false).await?,
            "reqwest" => reqwest(url, &origin, &task).await?,
            _ => bail!("no client {name}"),
        };
        let per_second = counts.answered as f64 / task.clock.begun.elapsed().as_secs_f64();
        let (posts, p99) = (task.posts.load(Ordering::Relaxed), counts.p99_us.unwrap_or(0));
        println!(
            "{{\"rate\": {per_second:.1}, \"answered\": {}, \"posts\": {posts}, \"unsettled\": {}, \"p99_us\": {p99}, \
             \"connections\": {}}}",
            counts.answered, counts.unsettled, counts.connections
        );
        Ok(())
    })
}

/// Four connections, which together have room for all calls.
fn client(origin: &str, in_flight: u32) -> Result<Client> {
    Ok(Client::builder(origin).pipes(4).depth(in_flight.div_ceil(4).max(1)).build()?)
}

/// One connection by HTTP/2, with room for all calls.
fn streams(origin: &str, in_flight: u32) -> Result<Client> {
    Ok(Client::builder(origin).protocol(Protocol::Http2).depth(in_flight).build()?)
}

/// `in_flight` tasks, each of which calls again when its response is there. A call with a number is a POST.
async fn tasks<F, C>(task: &PeerTask, make: impl Fn() -> C) -> Result<CallCounts>
where
    C: FnMut(Option<u64>) -> F + Send + 'static,
    F: Future<Output = Result<usize>> + Send + 'static,
{
    if task.rate > 0 {
        let (answered, p99) = pace::run(task.clock.seconds, task.rate, task.in_flight, make()).await?;
        let p99_us = Some(p99.as_micros() as u64);
        return Ok(CallCounts { answered, p99_us, ..CallCounts::default() });
    }
    let is_timed = task.in_flight <= FEW_CALLS;
    let tasks: Vec<_> = (0..task.in_flight)
        .map(|_| {
            let (clock, every, posts) = (task.clock.clone(), task.post_every, task.posts.clone());
            let mut call = make();
            tokio::spawn(async move {
                let (mut counts, mut turn, mut latencies) = (CallCounts::default(), 0, Vec::new());
                while !clock.is_over() {
                    turn += 1;
                    if every > 0 && turn % every == 0 {
                        match call(Some(posts.fetch_add(1, Ordering::Relaxed))).await {
                            Ok(_) => counts.answered += 1,
                            Err(_) => counts.unsettled += 1,
                        }
                        continue;
                    }
                    let begun = is_timed.then(Instant::now);
                    ensure!(call(None).await? > 0, "an empty response");
                    latencies.extend(begun.map(|begun| begun.elapsed()));
                    counts.answered += 1;
                }
                Ok((counts, latencies))
            })
        })
        .collect();
    let (mut all, mut latencies) = (CallCounts::default(), Vec::new());
    for task in tasks {
        let (counts, own) = task.await??;
        all.answered += counts.answered;
        all.unsettled += counts.unsettled;
        latencies.extend(own);
    }
    latencies.sort_unstable();
    all.p99_us = latencies.get(latencies.len() * 99 / 100).map(|p99| p99.as_micros() as u64);
    all.connections = sockets()?;
    Ok(all)
}

fn get() -> http::Request<Bytes> {
    let mut request = http::Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static("/");
    request
}

async fn send(client: &Client, task: &PeerTask) -> Result<CallCounts> {
    tasks(task, || {
        let client = client.clone();
        move |post| {
            let call = match post {
                Some(number) => client.post(&format!("/post/{number}"), Bytes::new()),
                None => client.send(get()),
            };
            async { Ok(call.await?.body().len()) }
        }
    })
    .await
}

async fn send_all(client: &Client, clock: &StopClock) -> Result<CallCounts> {
    let requests = futures_util::stream::iter(std::iter::from_fn(|| (!clock.is_over()).then(get)));
    let (mut responses, mut answered) = (client.send_all(requests), 0);
    while let Some(response) = responses.next().await {
        ensure!(!response?.body().is_empty(), "an empty response");
        answered += 1;
    }
    Ok(CallCounts { answered, ..CallCounts::default() })
}

async fn send_counted(client: &Client, clock: &StopClock) -> Result<CallCounts> {
    let mut answered = 0;
    while !clock.is_over() {
        let counted = client.send_counted(Template::get("/")?, COUNTED_AT_ONCE).await?;
        ensure!(counted.responses == COUNTED_AT_ONCE, "{counted:?}");
        answered += counted.responses;
    }
    Ok(CallCounts { answered, ..CallCounts::default() })
}

async fn hyper(uri: &http::Uri, origin: &str, task: &PeerTask, http2: bool) -> Result<CallCounts> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client =
        legacy::Client::builder(TokioExecutor::new()).http2_only(http2).build::<_, Empty<Bytes>>(connector);
    tasks(task, || {
        let (client, uri, origin) = (client.clone(), uri.clone(), origin.to_owned());
        move |post| {
            let request = match post {
                Some(number) => http::Request::post(format!("{origin}/post/{number}")).body(Empty::new()),
                None => http::Request::get(uri.clone()).body(Empty::new()),
            };
            let call = request.map(|request| client.request(request));
            async { Ok(call?.await?.into_body().collect().await?.to_bytes().len()) }
        }
    })
    .await
}

async fn reqwest(url: &str, origin: &str, task: &PeerTask) -> Result<CallCounts> {
    let client = reqwest::Client::builder().tcp_nodelay(true).no_proxy().build()?;
    let url: reqwest::Url = url.parse()?;
    tasks(task, || {
        let (client, url, origin) = (client.clone(), url.clone(), origin.to_owned());
        move |post| {
            let call = match post {
                Some(number) => client.post(format!("{origin}/post/{number}")).send(),
                None => client.get(url.clone()).send(),
            };
            async { Ok(call.await?.bytes().await?.len()) }
        }
    })
    .await
}
