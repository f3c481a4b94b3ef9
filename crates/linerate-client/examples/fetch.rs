//! Calls a path ten times without waiting in between, and prints the responses:
//! `cargo run -p linerate-client --features client --example fetch -- http://127.0.0.1:8080 /`.

use std::error::Error;

use bytes::Bytes;
use futures_util::future::join_all;
use linerate_client::client::Client;

/// The bodies of ten responses, in the order of the requests.
async fn fetch(url: &str, path: &str) -> Result<Vec<Bytes>, Box<dyn Error>> {
    let client = Client::builder(url).pipes(1).depth(8).build()?;
    // All calls are handed over at once; none waits for another's response.
    let responses = join_all((0..10).map(|_| client.get(path))).await;
    responses.into_iter().map(|response| Ok(response?.into_body())).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, path] = args.as_slice() else { return Err("usage: fetch URL PATH".into()) };
    for body in fetch(url, path).await? {
        println!("{}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Answers each request with its number, until the client closes.
    fn serve(mut stream: TcpStream) -> std::io::Result<()> {
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        for number in 0.. {
            while !bytes.windows(4).any(|w| w == b"\r\n\r\n") {
                match stream.read(&mut part)? {
                    0 => return Ok(()),
                    n => bytes.extend_from_slice(&part[..n]),
                }
            }
            let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(0) + 4;
            bytes.drain(..end);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}")?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn it_runs() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || listener.accept().and_then(|(stream, _)| serve(stream)));
        let bodies = fetch(&url, "/").await.expect("ten responses");
        assert_eq!(bodies.concat(), b"0123456789");
    }
}
