//! Serves a handler and sends it a thousand requests, in one process:
//! `cargo run --release -p linerate --example hello`.

use std::error::Error;

use linerate::load::plan::{Plan, Stop, Target};
use linerate::serve::{Request, Response, ServerOptions, spawn_with};

async fn hello(request: Request) -> Response {
    Response::text(format!("you asked for {}\n", request.path()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = spawn_with(ServerOptions::default(), || hello)?;
    let plan = Plan::get(Target::at(server.addr()), "/");
    let stop = Stop { requests: Some(1000), duration: None };
    let outcome = linerate::load::start(Plan { connections: 4, stop, ..plan })?.join();
    let counted = server.stop();
    println!("{} sent, {} answered", outcome.requests.sent, outcome.requests.answered);
    println!("the server counted {}", counted.requests);
    println!("p99 {} us", outcome.latency.from_sent.percentile_ns(99.0) / 1000);
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("it runs");
}
