//! `tower` services that axum's router does not show: those that are not always ready, and fail.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::Full;
use linerate_serve::{ServerOptions, TowerBody, spawn_with, tower};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

type Acquiring = Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>;

/// At most one request at a time, and panics when it is called without having been ready, as services may.
struct OneAtATime {
    semaphore: Arc<Semaphore>,
    acquiring: Option<Acquiring>,
    permit: Option<OwnedSemaphorePermit>,
}

impl OneAtATime {
    fn new(semaphore: &Arc<Semaphore>) -> OneAtATime {
        OneAtATime { semaphore: Arc::clone(semaphore), acquiring: None, permit: None }
    }
}

impl Clone for OneAtATime {
    fn clone(&self) -> OneAtATime {
        OneAtATime::new(&self.semaphore)
    }
}

impl Service<http::Request<TowerBody>> for OneAtATime {
    type Response = http::Response<Full<bytes::Bytes>>;
    type Error = String;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, String>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        if self.permit.is_none() {
            let semaphore = Arc::clone(&self.semaphore);
            let acquiring = self
                .acquiring
                .get_or_insert_with(|| Box::pin(async { semaphore.acquire_owned().await.unwrap() }));
            let Poll::Ready(permit) = acquiring.as_mut().poll(context) else { return Poll::Pending };
            (self.permit, self.acquiring) = (Some(permit), None);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<TowerBody>) -> Self::Future {
        let permit = self.permit.take().unwrap();
        let path = request.uri().path().to_owned();
        Box::pin(async move {
            // Requests that arrive meanwhile find it not ready.
            tokio::task::yield_now().await;
            drop(permit);
            if path == "/fails" {
                Err("no luck".to_owned())
            } else {
                Ok(http::Response::new(Full::from(path)))
            }
        })
    }
}

#[test]
fn a_service_that_is_not_ready_makes_its_requests_wait() {
    let semaphore = Arc::new(Semaphore::new(1));
    let make = move || tower(OneAtATime::new(&semaphore));
    let server = spawn_with(ServerOptions::default(), make).unwrap();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let mut stream = TcpStream::connect(server.addr()).unwrap();
            std::thread::spawn(move || {
                for n in 0..20 {
                    write!(stream, "GET /{client}-{n}. HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
                }
                stream.write_all(b"GET /fails HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut answers = String::new();
                stream.read_to_string(&mut answers).unwrap();
                answers
            })
        })
        .collect();
    for (client, answers) in clients.into_iter().enumerate() {
        let answers = answers.join().unwrap();
        let order: Vec<_> = (0..20).map(|n| answers.find(&format!("/{client}-{n}.")).unwrap()).collect();
        assert!(order.is_sorted(), "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 20, "{answers}");
        assert!(answers.contains("HTTP/1.1 500 ") && answers.ends_with("no luck\n"), "{answers}");
    }
}
