//! The built-in routes on the address given (127.0.0.1:8080), by epoll or io_uring:
//! `cargo run -p linerate-serve --example routes 127.0.0.1:8080 uring`.

use std::error::Error;

use linerate_serve::{Handle, Io, ServerOptions, spawn};

fn start(at: &str, io: Io) -> Result<Handle, Box<dyn Error>> {
    Ok(spawn(ServerOptions { listen: vec![at.parse()?], io, ..ServerOptions::default() })?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = start(&at, std::env::args().nth(2).map_or(Ok(Io::Auto), |io| io.parse())?)?;
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
        let server = start("127.0.0.1:0", Io::Epoll).expect("it listens");
        assert!(get(server.addr(), "/").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(get(server.addr(), "/status/418").starts_with("HTTP/1.1 418 "));
        server.stop();
    }
}
