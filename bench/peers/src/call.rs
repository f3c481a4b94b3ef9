//! `linerate-bench-peers call NAME URL SECONDS IN_FLIGHT`: a client on one tokio thread that keeps so many calls in
//! flight, each way with what it offers for that. It prints its count as JSON.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use linerate_client::client::{Client, Template};

/// Requests of a counted run at a time. Reason: it is asked whether time is up between two.
const COUNTED_AT_ONCE: u64 = 200_000;

/// When to stop. A flag costs less than a look at the clock for each call.
#[derive(Clone)]
struct Clock {
    over: Arc<AtomicBool>,
    begun: Instant,
}

impl Clock {
    fn start(seconds: f64) -> Clock {
        let clock = Clock { over: Arc::default(), begun: Instant::now() };
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

pub(crate) fn run(words: &[String]) -> Result<()> {
    let [name, url, seconds, in_flight] = words else {
        bail!("usage: linerate-bench-peers call NAME URL SECONDS IN_FLIGHT")
    };
    let seconds: f64 = seconds.parse().context("SECONDS is no number")?;
    let in_flight: u32 = in_flight.parse().context("IN_FLIGHT is no number")?;
    let uri: http::Uri = url.parse()?;
    let origin = format!("http://{}", uri.authority().context("the URL names no host")?);
    crate::runtime()?.block_on(async {
        let clock = Clock::start(seconds);
        let answered = match name.as_str() {
            "send" => send(&client(&origin, in_flight)?, &clock, in_flight).await?,
            "send_all" => send_all(&client(&origin, in_flight)?, &clock).await?,
            "send_counted" => send_counted(&client(&origin, in_flight)?, &clock).await?,
            "hyper-util" => hyper(&uri, &clock, in_flight).await?,
            "reqwest" => reqwest(url, &clock, in_flight).await?,
            _ => bail!("no client {name}"),
        };
        let rate = answered as f64 / clock.begun.elapsed().as_secs_f64();
        println!("{{\"rate\": {rate:.1}, \"answered\": {answered}}}");
        Ok(())
    })
}

/// Four connections, which together have room for all calls.
fn client(origin: &str, in_flight: u32) -> Result<Client> {
    Ok(Client::builder(origin).pipes(4).depth(in_flight.div_ceil(4).max(1)).build()?)
}

/// So many tasks, each of which calls again when its response is there.
async fn tasks<F, C>(clock: &Clock, in_flight: u32, make: impl Fn() -> C) -> Result<u64>
where
    C: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<usize>> + Send,
{
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let (clock, mut call) = (clock.clone(), make());
            tokio::spawn(async move {
                let mut answered = 0;
                while !clock.is_over() {
                    ensure!(call().await? > 0, "an empty response");
                    answered += 1;
                }
                Ok(answered)
            })
        })
        .collect();
    let mut answered = 0;
    for task in tasks {
        answered += task.await??;
    }
    Ok(answered)
}

fn get() -> http::Request<Bytes> {
    let mut request = http::Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static("/");
    request
}

async fn send(client: &Client, clock: &Clock, in_flight: u32) -> Result<u64> {
    tasks(clock, in_flight, || {
        let client = client.clone();
        move || {
            let call = client.send(get());
            async { Ok(call.await?.body().len()) }
        }
    })
    .await
}

async fn send_all(client: &Client, clock: &Clock) -> Result<u64> {
    let requests = futures_util::stream::iter(std::iter::from_fn(|| (!clock.is_over()).then(get)));
    let (mut responses, mut answered) = (client.send_all(requests), 0);
    while let Some(response) = responses.next().await {
        ensure!(!response?.body().is_empty(), "an empty response");
        answered += 1;
    }
    Ok(answered)
}

async fn send_counted(client: &Client, clock: &Clock) -> Result<u64> {
    let mut answered = 0;
    while !clock.is_over() {
        let counted = client.send_counted(Template::get("/")?, COUNTED_AT_ONCE).await?;
        ensure!(counted.responses == COUNTED_AT_ONCE, "{counted:?}");
        answered += counted.responses;
    }
    Ok(answered)
}

async fn hyper(uri: &http::Uri, clock: &Clock, in_flight: u32) -> Result<u64> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    tasks(clock, in_flight, || {
        let (client, uri) = (client.clone(), uri.clone());
        move || {
            let call = client.get(uri.clone());
            async { Ok(call.await?.into_body().collect().await?.to_bytes().len()) }
        }
    })
    .await
}

async fn reqwest(url: &str, clock: &Clock, in_flight: u32) -> Result<u64> {
    let client = reqwest::Client::builder().tcp_nodelay(true).no_proxy().build()?;
    let url: reqwest::Url = url.parse()?;
    tasks(clock, in_flight, || {
        let (client, url) = (client.clone(), url.clone());
        move || {
            let call = client.get(url.clone()).send();
            async { Ok(call.await?.bytes().await?.len()) }
        }
    })
    .await
}
