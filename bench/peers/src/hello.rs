//! The response that every server here gives, and the app and runtime that several share.

use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::routing::get;

/// The body of every server's response.
pub(crate) const HELLO: &str = "Hello, World!\n";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const WAIT: Duration = Duration::from_millis(10);

/// The runtime of servers on tokio.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The app that `axum::serve` and our bridge both run, unchanged.
pub(crate) fn app() -> Router {
    let wait = || async {
        tokio::time::sleep(WAIT).await;
        HELLO
    };
    Router::new().route("/", get(|| async { HELLO })).route("/delay/10", get(wait))
}
