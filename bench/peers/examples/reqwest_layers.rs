//! A service of tower with layers around the client: it traces calls, repeats those that met a busy server, ends those
//! that take too long, and unpacks bodies. reqwest follows redirects itself.
//!
//! `cargo run -p linerate-bench-peers --example reqwest_layers http://127.0.0.1:8080 PATH...`

use std::error::Error;
use std::future::{Ready, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use reqwest::{Body, Client};
use tower::retry::{Policy, RetryLayer};
use tower::{Service as _, ServiceBuilder, ServiceExt as _};
use tower_http::decompression::DecompressionLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

#[derive(Clone)]
struct BusyAgain(u32);

impl<B, E> Policy<Request<Full<Bytes>>, Response<B>, E> for BusyAgain {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Ready<()>> {
        let is_busy = result.as_ref().is_ok_and(|r| r.status() == StatusCode::SERVICE_UNAVAILABLE);
        self.0 = self.0.checked_sub(1)?;
        is_busy.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

/// Requests and responses have the types of http above the client, and those of reqwest below.
async fn call(client: Client, request: Request<Full<Bytes>>) -> reqwest::Result<Response<Body>> {
    let request = reqwest::Request::try_from(request.map(Body::wrap))?;
    Ok(client.execute(request).await?.into())
}

async fn run(url: &str, paths: &[String]) -> Result<Vec<Bytes>, Box<dyn Error>> {
    let client = Client::new();
    let mut service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(RetryLayer::new(BusyAgain(3)))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5)))
        .layer(DecompressionLayer::new())
        .service_fn(move |request| call(client.clone(), request));
    let mut bodies = Vec::new();
    for path in paths {
        let request = Request::get(format!("{url}{path}")).body(Full::default())?;
        let response = service.ready().await?.call(request).await?;
        bodies.push(response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes());
    }
    Ok(bodies)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("hint: give the URL of a server, then paths")?;
    let bodies = run(&url, &args.collect::<Vec<_>>()).await?;
    bodies.iter().for_each(|body| println!("{body:?}"));
    Ok(())
}
