//! The axum app without a server: the cost of a request that has already arrived, for comparison
//! with a server's.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use anyhow::{Result, ensure};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use hyper::body::Body as _;
use tower_service::Service;

const CALLS: u32 = 2_000_000;
const ROUNDS: usize = 5;

/// Prints the median round.
pub(crate) fn measure() -> Result<()> {
    let mut rounds = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<f64>>>()?;
    rounds.sort_by(f64::total_cmp);
    println!("{:.0} ns for a request (median of {ROUNDS} rounds of {CALLS})", rounds[ROUNDS / 2]);
    Ok(())
}

fn round() -> Result<f64> {
    let mut app = crate::hello::app().with_state(());
    let (uri, mut headers) = (Uri::from_static("/"), HeaderMap::new());
    headers.insert("host", HeaderValue::from_static("127.0.0.1:8080"));
    let mut context = Context::from_waker(Waker::noop());
    let (begin, mut bytes) = (Instant::now(), 0);
    for _ in 0..CALLS {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        let mut answering = pin!(app.call(request));
        if let Poll::Ready(Ok(answer)) = answering.as_mut().poll(&mut context)
            && let Poll::Ready(Some(Ok(frame))) = pin!(answer.into_body()).poll_frame(&mut context)
        {
            bytes += frame.data_ref().map_or(0, |data| data.len());
        }
    }
    ensure!(bytes == crate::hello::HELLO.len() * CALLS as usize, "{bytes} bytes of answers");
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(CALLS))
}
