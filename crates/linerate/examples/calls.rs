//! The ways to call a server: one request, many in order, many as they come, and counts only.
//!
//! `cargo run -p linerate --example calls http://127.0.0.1:8080`

use std::error::Error;

use bytes::Bytes;
use futures_util::StreamExt;
use linerate::client::{Client, Template};

pub(crate) async fn run(url: &str) -> Result<u64, Box<dyn Error>> {
    let client = Client::builder(url).pipes(4).depth(64).build()?;
    let response = client.send(http::Request::get("/a").body(Bytes::new())?).await?;
    println!("{}, {} bytes", response.status(), response.body().len());

    let requests = |n: u32| (0..n).map(|i| http::Request::get(format!("/item/{i}")).body(Bytes::new()));
    let requests: Vec<http::Request<Bytes>> = requests(1000).collect::<Result<_, _>>()?;
    let mut ordered = client.send_all(futures_util::stream::iter(requests.clone()));
    let mut bytes = 0;
    while let Some(response) = ordered.next().await {
        bytes += response?.body().len();
    }
    println!("1000 responses in order, {bytes} bytes");

    let mut unordered = client.send_all_unordered(futures_util::stream::iter(requests));
    while let Some((index, response)) = unordered.next().await {
        if let Err(error) = response {
            println!("request {index}: {error}");
        }
    }

    let counted = client.send_counted(Template::get("/item/{{seq}}")?, 100_000).await?;
    println!("{} responses in {:?}", counted.responses, counted.elapsed);
    Ok(counted.responses)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test runs the rest")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("hint: give the URL of a server")?;
    run(&url).await.map(drop)
}
