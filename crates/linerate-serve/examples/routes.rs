//! The built-in routes on the address given (127.0.0.1:8080), by epoll or io_uring:
//! `cargo run -p linerate-serve --example routes 127.0.0.1:8080 uring`.

use linerate_serve::{Io, ServerOptions, spawn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let io = std::env::args().nth(2).map_or(Ok(Io::Auto), |io| io.parse())?;
    let server = spawn(ServerOptions { listen: vec![at.parse()?], io, ..ServerOptions::default() })?;
    eprintln!("listening on http://{}", server.addr());
    loop {
        std::thread::park();
    }
}
