//! An axum app, unchanged, on this server: `cargo run -p linerate-serve --example axum
//! 127.0.0.1:8080`. With the name of an interface after the address, it runs on user-space TCP
//! (docs/XDP.md): `... --example axum 10.0.0.5:8080 eth0`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use linerate_serve::{Io, ServerOptions, spawn_with, tower};

#[derive(Clone, Default)]
struct App {
    visits: Arc<AtomicU64>,
}

/// The router, as for `axum::serve`.
fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "Hello, World!\n" }))
        .route("/visits", get(|State(app): State<App>| async move { app.visits.fetch_add(1, Ordering::Relaxed).to_string() }))
        .route("/greet/{name}", get(|Path(name): Path<String>| async move { format!("Hello, {name}!\n") }))
        .route("/sum", get(|Query(parts): Query<Vec<(String, u64)>>| async move { parts.iter().map(|p| p.1).sum::<u64>().to_string() }))
        .route("/json", post(|Json(value): Json<serde_json::Value>| async move { Json(value) }))
        .route("/sleep", get(|| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            "slept\n"
        }))
        .with_state(App::default())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let app = router();
    let interface = std::env::args().nth(2);
    let io = if interface.is_some() { Io::Xdp } else { Io::Auto };
    let options = ServerOptions { listen: vec![at.parse()?], io, interface, ..ServerOptions::default() };
    let server = spawn_with(options, move || tower(app.clone()))?;
    eprintln!("listening on http://{}", server.addr());
    loop {
        std::thread::park();
    }
}
