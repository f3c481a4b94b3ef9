//! An axum app with a WebSocket, unchanged but for one thing: on SIGTERM it says goodbye (1001)
//! instead of being cut. `cargo run -p linerate-serve --example websocket 127.0.0.1:8080`, then any
//! client on `ws://127.0.0.1:8080/echo`.

use std::pin::pin;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use futures_util::future::{Either, select};
use linerate_serve::{Draining, ServerOptions, spawn_with, tower};

async fn upgrade(ws: WebSocketUpgrade, Extension(draining): Extension<Draining>) -> Response {
    ws.on_upgrade(move |socket| echo(socket, draining))
}

/// Echoes each message until either side closes.
async fn echo(mut socket: WebSocket, draining: Draining) {
    loop {
        let next = match select(pin!(socket.recv()), pin!(draining.begun())).await {
            Either::Left((next, _)) => next,
            Either::Right(_) => break,
        };
        match next {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            // axum has answered it already.
            Some(Ok(Message::Close(_)) | Err(_)) | None => return,
        }
    }
    let goodbye = CloseFrame { code: close_code::AWAY, reason: "the server is going away".into() };
    if socket.send(Message::Close(Some(goodbye))).await.is_ok() {
        // Until the client has closed too; the server's drain limits the wait.
        while let Some(Ok(_)) = socket.recv().await {}
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let app = Router::new().route("/echo", any(upgrade)).route("/", get(|| async { "ws /echo\n" }));
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let server =
        spawn_with(ServerOptions { listen: vec![at.parse()?], ..ServerOptions::default() }, move || {
            tower(app.clone())
        })?;
    eprintln!("listening on http://{}", server.addr());
    signals.forever().next();
    let counts = server.stop();
    eprintln!("answered {} requests; {} connections had to be cut", counts.requests, counts.open);
    Ok(())
}
