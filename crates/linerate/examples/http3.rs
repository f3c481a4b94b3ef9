//! A client that speaks HTTP/3, over QUIC: `http3 https://localhost:8443 CERTIFICATE.pem`.
//!
//! `linerate serve --listen 127.0.0.1:8443 --tls-self-signed --http3` is a server for it.

use std::error::Error;

use linerate::client::{Client, Error as CallError, Protocol, ResponseExt as _};

pub(crate) async fn run(url: &str, certificate: &[u8]) -> Result<String, Box<dyn Error>> {
    let builder = Client::builder(url).protocol(Protocol::Http3).add_root(certificate);
    let client = builder.timings().connection_info().build()?;
    match client.get("/").await {
        Ok(response) => {
            let (timings, connection) = response.timings().zip(response.connection()).ok_or("no timings")?;
            let place = format!("{:?} to {:?}", connection.local, connection.peer);
            Ok(format!("{:?} {}, {place}, {timings}", response.version(), response.status()))
        }
        // Nothing listens on the UDP port, or no QUIC answers there. TCP may.
        Err(CallError::Connect(why)) => Ok(format!("no HTTP/3: {why}")),
        Err(error) => Err(error.into()),
    }
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test runs the rest")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, file) = args.next().zip(args.next()).ok_or("hint: give a URL and a certificate's file")?;
    println!("{}", run(&url, &std::fs::read(file)?).await?);
    Ok(())
}
