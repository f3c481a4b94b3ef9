//! A reverse proxy: all requests of a thread share the connections of its client, which sends them without waiting for
//! responses, in the loop that serves. One that is not idempotent and gets no response is 502, never a second attempt.
//!
//! It holds each message as a whole: requests of up to 1 MiB (413 beyond) and responses of up to 16 MiB (502 beyond).
//!
//! `cargo run -p linerate --example proxy 127.0.0.1:8080 http://127.0.0.1:9000`

use std::error::Error;
use std::net::SocketAddr;

use linerate::client::{Client, Error as ClientError};
use linerate::serve::{BodyError, Handle, Request, Response, ServerOptions, spawn_beside};

/// Bytes of a request's body, at most.
const BODY: usize = 1 << 20;

/// Fields of one connection (RFC 9110 section 7.6.1), and those that client and server write.
#[rustfmt::skip]
const OWN: [&str; 11] = ["connection", "content-length", "date", "expect", "host", "keep-alive", "proxy-connection",
                         "te", "trailer", "transfer-encoding", "upgrade"];

/// How it names itself in Via (RFC 9110 section 7.6.3).
const VIA: &str = "1.1 linerate";

enum Failed {
    Body(BodyError),
    Call(ClientError),
    Message(Box<dyn Error>),
}

impl From<Failed> for Response {
    fn from(failed: Failed) -> Response {
        match failed {
            Failed::Body(error) => error.into(),
            Failed::Call(error @ ClientError::Request(_)) => {
                Response::text(format!("{error}\n")).with_status(400)
            }
            Failed::Call(error @ ClientError::Timeout { .. }) => {
                Response::text(format!("{error}\n")).with_status(504)
            }
            Failed::Call(error) => Response::text(format!("{error}\n")).with_status(502),
            Failed::Message(error) => Response::text(format!("{error}\n")).with_status(502),
        }
    }
}

/// The fields that are forwarded: neither of the connection, nor named by a field Connection.
fn passed<'a, V: AsRef<[u8]>, I: Iterator<Item = (&'a str, V)>>(
    fields: impl Fn() -> I,
) -> impl Iterator<Item = (&'a str, V)> {
    let connection = fields().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
    let listed: Vec<u8> = connection.flat_map(|(_, value)| [value.as_ref(), b","].concat()).collect();
    let is_listed = move |name: &str| {
        listed.split(|b| *b == b',').any(|own| own.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    fields()
        .filter(move |(name, _)| !OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) && !is_listed(name))
}

async fn pass(client: Client, mut request: Request) -> Result<Response, Failed> {
    let body = request.body().collect(BODY).await.map_err(Failed::Body)?;
    let head = request.head();
    let mut onward = http::Request::builder().method(head.method_name()).uri(head.target());
    for (name, value) in passed(|| head.fields()) {
        onward = onward.header(name, value);
    }
    let onward = onward.header("via", VIA).body(body).map_err(|e| Failed::Message(e.into()))?;
    let (head, body) = client.send(onward).await.map_err(Failed::Call)?.into_parts();
    let mut response = Response::status(head.status.as_u16()).with_body(body);
    if let Some(length) = head.headers.get("content-length").and_then(|n| n.to_str().ok()?.parse().ok()) {
        // A response to HEAD says how long the content would be.
        response = response.announcing(length);
    }
    for (name, value) in passed(|| head.headers.iter().map(|(name, value)| (name.as_str(), value))) {
        response = response.with_field(name, value).map_err(|e| Failed::Message(e.into()))?;
    }
    response.with_field("via", VIA).map_err(|e| Failed::Message(e.into()))
}

pub(crate) fn start(listen: SocketAddr, origin: &str) -> Result<Handle, Box<dyn Error>> {
    let builder = Client::builder(origin).pipes(8).depth(32);
    let options = ServerOptions { listen: vec![listen.into()], ..ServerOptions::default() };
    Ok(spawn_beside(options, move || {
        let (client, beside) = builder.clone().build_beside().map_err(std::io::Error::other)?;
        Ok((move |request: Request| pass(client.clone(), request), beside))
    })?)
}

#[allow(dead_code, reason = "a test runs the rest")]
fn main() -> Result<(), Box<dyn Error>> {
    let (listen, origin) = (std::env::args().nth(1), std::env::args().nth(2));
    let (listen, origin) = listen.zip(origin).ok_or("hint: give ADDRESS:PORT and the URL of a server")?;
    let proxy = start(listen.parse()?, &origin)?;
    println!("{} passes requests to {origin}", proxy.addr());
    proxy.wait();
    Ok(())
}
