//! A tonic service, unchanged, on this server: `cargo run -p linerate-serve --example grpc
//! 127.0.0.1:50051`, then any gRPC client with `helloworld.proto`, or `linerate load` with a plan
//! (docs/HTTP2-CLIENT.md).

mod helloworld;
mod service;

use helloworld::greeter_server::GreeterServer;
use linerate_serve::{ServerOptions, spawn_with, tower};
use service::MyGreeter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let greeter = GreeterServer::new(MyGreeter);
    let options = ServerOptions { listen: vec![at.parse()?], ..ServerOptions::default() };
    let server = spawn_with(options, move || tower(greeter.clone()))?;
    eprintln!("listening on http://{}", server.addr());
    server.wait();
    Ok(())
}
