//! A client without tokio: it moves its bytes by `io_uring`, in the thread of the program.
//!
//! `cargo run -p linerate --example own_loop http://127.0.0.1:8080`

use std::error::Error;

use futures_util::future::join_all;
use linerate::client::Client;
use linerate::net::uring::Uring;

/// The bodies of `/0` to `/99`, all called at once.
pub(crate) fn run(url: &str) -> Result<Vec<bytes::Bytes>, Box<dyn Error>> {
    let builder = Client::builder(url).pipes(2);
    let uring = Uring::with_limits(builder.limits())?;
    let (client, mut runner) = builder.build_over(uring)?;
    let called = runner.run(async {
        // Nothing is pipelined before the first response.
        client.get("/").await?;
        let responses = join_all((0..100).map(|n| client.get(&format!("/{n}")))).await;
        responses.into_iter().map(|r| r.map(http::Response::into_body)).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(called?)
}

#[allow(dead_code, reason = "a test runs the rest")]
fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("hint: give the URL of a server")?;
    println!("{} bytes", run(&url)?.iter().map(bytes::Bytes::len).sum::<usize>());
    Ok(())
}
