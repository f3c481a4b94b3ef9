//! An axum app, unchanged, on this server: `cargo run -p linerate-serve --example axum
//! 127.0.0.1:8080`. With the name of an interface after the address, it runs on user-space TCP
//! (docs/XDP.md): `... --example axum 10.0.0.5:8080 eth0`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use linerate_serve::{Handle, Io, ServerOptions, spawn_with, tower};

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

fn start(at: &str, interface: Option<String>) -> Result<Handle, Box<dyn Error>> {
    let app = router();
    let io = if interface.is_some() { Io::Xdp } else { Io::Auto };
    let options = ServerOptions { listen: vec![at.parse()?], io, interface, ..ServerOptions::default() };
    Ok(spawn_with(options, move || tower(app.clone()))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = start(&at, std::env::args().nth(2))?;
    eprintln!("listening on http://{}", server.addr());
    server.wait();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    fn get(from: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(from).expect("connected");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        text
    }

    #[test]
    fn it_runs() {
        let server = start("127.0.0.1:0", None).expect("it listens");
        assert!(get(server.addr(), "/greet/you").ends_with("\r\n\r\nHello, you!\n"));
        assert!(get(server.addr(), "/sum?a=1&b=2").ends_with("\r\n\r\n3"));
        assert!(get(server.addr(), "/sleep").ends_with("slept\n"));
        server.stop();
    }
}
