//! A reverse proxy by axum: one that is not idempotent and gets no response is 502, never a second attempt.
//!
//! It holds each message as a whole: requests of up to 1 MiB (413 beyond) and responses of up to 16 MiB (502 beyond).
//!
//! `cargo run -p linerate-bench-peers --example reqwest_proxy 127.0.0.1:8080 http://127.0.0.1:9000`

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, VIA};
use http::{Method, StatusCode};
use reqwest::Client;

/// Bytes of bodies, at most.
const REQUEST_BODY: usize = 1 << 20;
const RESPONSE_BODY: usize = 16 << 20;

/// Fields of one connection (RFC 9110 section 7.6.1), and those that client and server write.
#[rustfmt::skip]
const OWN: [&str; 11] = ["connection", "content-length", "date", "expect", "host", "keep-alive", "proxy-connection",
                         "te", "trailer", "transfer-encoding", "upgrade"];

struct ProxiedOrigin {
    client: Client,
    url: String,
}

/// Why there is no response of the origin.
struct NoResponse(StatusCode, String);

impl From<reqwest::Error> for NoResponse {
    fn from(error: reqwest::Error) -> NoResponse {
        let status = match () {
            () if error.is_builder() => StatusCode::BAD_REQUEST,
            () if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            () => StatusCode::BAD_GATEWAY,
        };
        NoResponse(status, error.to_string())
    }
}

impl IntoResponse for NoResponse {
    fn into_response(self) -> Response {
        (self.0, format!("{}\n", self.1)).into_response()
    }
}

/// The fields that are forwarded: neither of the connection, nor named by a field Connection.
fn passed(fields: &HeaderMap) -> HeaderMap {
    let named = fields.get_all("connection").into_iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<_> = named.flat_map(|names| names.split(',').map(str::trim)).collect();
    let is_passed =
        |name: &str| !OWN.contains(&name) && !listed.iter().any(|own| own.eq_ignore_ascii_case(name));
    let kept = fields.iter().filter(|(name, _)| is_passed(name.as_str()));
    let mut kept: HeaderMap = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    kept.append(VIA, HeaderValue::from_static("1.1 axum"));
    kept
}

async fn pass(State(origin): State<Arc<ProxiedOrigin>>, request: Request) -> Result<Response, NoResponse> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, REQUEST_BODY).await;
    let body = body.map_err(|e| NoResponse(StatusCode::PAYLOAD_TOO_LARGE, e.to_string()))?;
    let is_head = head.method == Method::HEAD;
    let url = format!("{}{}", origin.url, head.uri.path_and_query().map_or("/", |path| path.as_str()));
    let onward = origin.client.request(head.method, url).headers(passed(&head.headers)).body(body);
    let (head, body) = http::Response::<reqwest::Body>::from(onward.send().await?).into_parts();
    let body = to_bytes(Body::new(body), RESPONSE_BODY).await;
    let body = body.map_err(|e| NoResponse(StatusCode::BAD_GATEWAY, e.to_string()))?;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = passed(&head.headers);
    if let Some(length) = head.headers.get(CONTENT_LENGTH).filter(|_| is_head) {
        // A response to HEAD says how long the content would be.
        response.headers_mut().insert(CONTENT_LENGTH, length.clone());
    }
    Ok(response)
}

async fn serve(listen: SocketAddr, url: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::builder().retry(reqwest::retry::never()).build()?;
    let origin = Arc::new(ProxiedOrigin { client, url: url.trim_end_matches('/').to_owned() });
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("{} passes requests to {url}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().fallback(pass).with_state(origin)).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (listen, origin) = (std::env::args().nth(1), std::env::args().nth(2));
    let (listen, origin) = listen.zip(origin).ok_or("hint: give ADDRESS:PORT and the URL of a server")?;
    serve(listen.parse()?, &origin).await
}
