//! A bulk uploader: it puts many documents, and tells those that are there from those that are not, also when the server
//! closes connections meanwhile. PUT is idempotent, so the client sends again what got no response.
//!
//! `cargo run -p linerate --example uploader http://127.0.0.1:8080 FILE...`

use std::error::Error;

use bytes::Bytes;
use futures_util::StreamExt;
use linerate::client::Client;

/// What became of the documents.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Uploaded {
    pub(crate) stored: usize,
    pub(crate) refused: Vec<(String, u16)>,
    pub(crate) failed: Vec<String>,
}

pub(crate) async fn run(url: &str, documents: Vec<(String, Bytes)>) -> Result<Uploaded, Box<dyn Error>> {
    let client = Client::builder(url).pipes(4).depth(16).build()?;
    let names: Vec<String> = documents.iter().map(|(name, _)| name.clone()).collect();
    let requests: Vec<_> = documents
        .into_iter()
        .map(|(name, body)| http::Request::put(format!("/documents/{name}")).body(body))
        .collect::<Result<_, _>>()?;
    let mut uploaded = Uploaded::default();
    let mut ended = client.send_all_unordered(futures_util::stream::iter(requests));
    while let Some((index, result)) = ended.next().await {
        let name = &names[index as usize];
        match result {
            Ok(response) if response.status().is_success() => uploaded.stored += 1,
            Ok(response) => uploaded.refused.push((name.clone(), response.status().as_u16())),
            Err(error) => {
                println!("{name}: {error}");
                uploaded.failed.push(name.clone());
            }
        }
    }
    println!("{} stored, {} sent again", uploaded.stored, client.statistics().resent);
    Ok(uploaded)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test runs the rest")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("hint: give the URL of a server, then files")?;
    let mut documents = Vec::new();
    for file in args {
        let name = file.rsplit('/').next().unwrap_or(&file).to_owned();
        documents.push((name, Bytes::from(std::fs::read(&file)?)));
    }
    run(&url, documents).await.map(drop)
}
