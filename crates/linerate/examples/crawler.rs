//! A polite crawler: it follows the links of one server, keeps a pause between batches, and asks for each page once.
//!
//! `cargo run -p linerate --example crawler http://127.0.0.1:8080`

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use linerate::client::Client;

/// Pages, at most.
const PAGES: usize = 10_000;
/// Pages asked for together. A server that is not ours gets no more at once.
const BATCH: usize = 32;

pub(crate) async fn run(url: &str, pause: Duration) -> Result<BTreeSet<String>, Box<dyn Error>> {
    // One connection and few requests in flight: the server decides the pace.
    let client = Client::builder(url).pipes(1).depth(8).max_body(1 << 20).build()?;
    let forbidden = forbidden(client.get("/robots.txt").await);
    let mut known = BTreeSet::from(["/".to_owned()]);
    let mut wanted = vec!["/".to_owned()];
    while !wanted.is_empty() {
        let batch: Vec<String> = wanted.drain(..wanted.len().min(BATCH)).collect();
        let requests: Vec<_> = batch
            .iter()
            .map(|path| http::Request::get(path).header("user-agent", "polite-crawler").body(Bytes::new()))
            .collect::<Result<_, _>>()?;
        let mut pages = client.send_all_unordered(futures_util::stream::iter(requests));
        while let Some((index, page)) = pages.next().await {
            match page {
                Ok(page) => {
                    for link in links(page.body()) {
                        let allowed = !forbidden.iter().any(|prefix| link.starts_with(prefix));
                        if allowed && known.len() < PAGES && known.insert(link.clone()) {
                            wanted.push(link);
                        }
                    }
                }
                Err(error) => println!("{}: {error}", batch[index as usize]),
            }
        }
        tokio::time::sleep(pause).await;
    }
    println!("{} pages", known.len());
    Ok(known)
}

/// The paths that `robots.txt` forbids to everybody (RFC 9309).
fn forbidden(robots: Result<http::Response<Bytes>, linerate::client::Error>) -> Vec<String> {
    let Ok(robots) = robots else { return Vec::new() };
    if robots.status() != http::StatusCode::OK {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(robots.body()).into_owned();
    let paths = text.lines().filter_map(|line| line.strip_prefix("Disallow: "));
    paths.map(|path| path.trim().to_owned()).filter(|path| !path.is_empty()).collect()
}

/// Links to this server.
fn links(page: &[u8]) -> Vec<String> {
    let page = String::from_utf8_lossy(page).into_owned();
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split(['"', '#']).next());
    links.filter(|link| link.starts_with('/') && !link.starts_with("//")).map(str::to_owned).collect()
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test runs the rest")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("hint: give the URL of a server")?;
    run(&url, Duration::from_millis(200)).await.map(drop)
}
