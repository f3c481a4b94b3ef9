//! An axum app with a WebSocket, unchanged but for one thing: on SIGTERM it says goodbye (1001)
//! instead of being cut. `cargo run -p linerate-serve --example websocket 127.0.0.1:8080`, then any
//! client on `ws://127.0.0.1:8080/echo`.

use std::error::Error;
use std::pin::pin;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use futures_util::future::{Either, select};
use linerate_serve::{Draining, Handle, ServerOptions, spawn_with, tower};

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

fn start(at: &str) -> Result<Handle, Box<dyn Error>> {
    let app = Router::new().route("/echo", any(upgrade)).route("/", get(|| async { "ws /echo\n" }));
    let options = ServerOptions { listen: vec![at.parse()?], ..ServerOptions::default() };
    Ok(spawn_with(options, move || tower(app.clone()))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let server = start(&at)?;
    eprintln!("listening on http://{}", server.addr());
    signals.forever().next();
    let counts = server.stop();
    eprintln!("answered {} requests; {} connections had to be cut", counts.requests, counts.open);
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::connect_async;
    use tokio_tungstenite::tungstenite::Message;

    use super::*;

    #[tokio::test]
    async fn it_runs() {
        let server = start("127.0.0.1:0").expect("it listens");
        let url = format!("ws://{}/echo", server.addr());
        let (mut client, _) = connect_async(url).await.expect("a WebSocket");
        client.send(Message::text("hello")).await.expect("sent");
        assert_eq!(client.next().await.expect("open").expect("a message"), Message::text("hello"));
        // It says goodbye, and the client's answer to that ends the connection.
        let stopped = tokio::task::spawn_blocking(move || server.stop());
        let goodbye = client.next().await.expect("open").expect("a message");
        assert!(matches!(goodbye, Message::Close(Some(frame)) if frame.reason == "the server is going away"));
        assert!(client.next().await.is_none());
        assert_eq!(stopped.await.expect("stopped").open, 0);
    }
}
