//! A crawler over several hosts: it follows links up to a number of pages, several at a time.
//!
//! `cargo run -p linerate-bench-peers --example reqwest_links http://127.0.0.1:8080/ 100`

use std::collections::{BTreeMap, HashSet};
use std::error::Error;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use reqwest::Client;

/// The status of each page, or why there is none.
type PageStatuses = BTreeMap<String, Result<u16, String>>;

/// Whole URLs in attributes.
fn links(page: &str) -> impl Iterator<Item = String> {
    page.split("href=\"").skip(1).filter_map(|rest| {
        let url = rest.split(['"', '#']).next()?;
        url.starts_with("http").then(|| url.to_owned())
    })
}

async fn page(client: &Client, url: &str) -> reqwest::Result<(u16, String)> {
    let response = client.get(url).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

async fn run(url: &str, most: usize) -> PageStatuses {
    let client = &Client::new();
    let get = |url: String| async {
        let page = page(client, &url).await;
        (url, page)
    };
    let (mut pages, mut known) = (PageStatuses::new(), HashSet::from([url.to_owned()]));
    let mut calls = FuturesUnordered::from_iter([get(url.to_owned())]);
    while let Some((url, result)) = calls.next().await {
        if let Ok((_, text)) = &result {
            for link in links(text) {
                if known.len() < most && known.insert(link.clone()) {
                    calls.push(get(link));
                }
            }
        }
        pages.insert(url, result.map(|(status, _)| status).map_err(|e| e.to_string()));
    }
    pages
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, most) = args.next().zip(args.next()).ok_or("hint: give a URL and a number of pages")?;
    println!("{:#?}", run(&url, most.parse()?).await);
    Ok(())
}
