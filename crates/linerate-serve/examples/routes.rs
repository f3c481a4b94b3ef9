//! The built-in routes on the address given (127.0.0.1:8080): `cargo run -p linerate-serve --example routes 127.0.0.1:8080`.

use linerate_serve::{ServerOptions, spawn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = spawn(ServerOptions { listen: vec![at.parse()?], ..ServerOptions::default() })?;
    eprintln!("listening on http://{}", server.addr());
    loop {
        std::thread::park();
    }
}
