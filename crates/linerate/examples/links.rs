//! A crawler over several hosts: it follows links up to a number of pages, several at a time.
//!
//! `cargo run -p linerate --example links http://127.0.0.1:8080/ 100`

use std::collections::{BTreeMap, HashSet};
use std::error::Error;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use linerate::client::Hosts;

/// The status of each page, or why there is none.
pub(crate) type Pages = BTreeMap<String, Result<u16, String>>;

/// Whole URLs in attributes.
fn links(page: &str) -> impl Iterator<Item = String> {
    page.split("href=\"").skip(1).filter_map(|rest| {
        let url = rest.split(['"', '#']).next()?;
        url.starts_with("http").then(|| url.to_owned())
    })
}

pub(crate) async fn run(url: &str, most: usize) -> Result<Pages, Box<dyn Error>> {
    let hosts = Hosts::builder().each(|client| client.pipes(2)).origins(16).build()?;
    let get = |url: String| {
        let call = hosts.get(&url);
        async move { (url, call.await) }
    };
    let (mut pages, mut known) = (Pages::new(), HashSet::from([url.to_owned()]));
    let mut calls = FuturesUnordered::from_iter([get(url.to_owned())]);
    while let Some((url, result)) = calls.next().await {
        if let Ok(response) = &result {
            for link in links(&String::from_utf8_lossy(response.body())) {
                if known.len() < most && known.insert(link.clone()) {
                    calls.push(get(link));
                }
            }
        }
        pages.insert(url, result.map(|r| r.status().as_u16()).map_err(|e| e.to_string()));
    }
    Ok(pages)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test runs the rest")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, most) = args.next().zip(args.next()).ok_or("hint: give a URL and a number of pages")?;
    println!("{:#?}", run(&url, most.parse()?).await?);
    Ok(())
}
