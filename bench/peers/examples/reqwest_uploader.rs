//! A bulk uploader: it puts many documents, and tells those that are there from those that are not, also when the server
//! closes connections meanwhile. PUT is idempotent, so it sends again what got no response.
//!
//! `cargo run -p linerate-bench-peers --example reqwest_uploader http://127.0.0.1:8080 FILE...`

use std::error::Error;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::{Client, StatusCode};

/// What became of the documents.
#[derive(Debug, Default)]
struct UploadedDocuments {
    stored: usize,
    refused: Vec<(String, u16)>,
    failed: Vec<String>,
}

async fn put(client: &Client, url: String, body: Bytes) -> reqwest::Result<StatusCode> {
    let mut attempts = 3;
    loop {
        attempts -= 1;
        match client.put(&url).body(body.clone()).send().await {
            Err(_) if attempts > 0 => {}
            result => return Ok(result?.status()),
        }
    }
}

async fn run(url: &str, documents: Vec<(String, Bytes)>) -> UploadedDocuments {
    let client = Client::new();
    let mut uploaded = UploadedDocuments::default();
    let calls = documents.into_iter().map(|(name, body)| {
        let call = put(&client, format!("{url}/documents/{name}"), body);
        async { (name, call.await) }
    });
    let mut ended = stream::iter(calls).buffer_unordered(64);
    while let Some((name, result)) = ended.next().await {
        match result {
            Ok(status) if status.is_success() => uploaded.stored += 1,
            Ok(status) => uploaded.refused.push((name, status.as_u16())),
            Err(error) => {
                println!("{name}: {error}");
                uploaded.failed.push(name);
            }
        }
    }
    println!(
        "{} stored, {} refused, {} failed",
        uploaded.stored,
        uploaded.refused.len(),
        uploaded.failed.len()
    );
    uploaded
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("hint: give the URL of a server, then files")?;
    let mut documents = Vec::new();
    for file in args {
        let name = file.rsplit('/').next().unwrap_or(&file).to_owned();
        documents.push((name, Bytes::from(std::fs::read(&file)?)));
    }
    run(&url, documents).await;
    Ok(())
}
