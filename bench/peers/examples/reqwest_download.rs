//! A download of any size into a file, piece by piece, with its progress.
//!
//! `cargo run -p linerate-bench-peers --example reqwest_download http://127.0.0.1:8080/big FILE`

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

async fn run(url: &str, to: &Path) -> Result<u64, Box<dyn Error>> {
    let mut response = reqwest::get(url).await?.error_for_status()?;
    let (mut file, mut done) = (File::create(to)?, 0);
    while let Some(piece) = response.chunk().await? {
        file.write_all(&piece)?;
        done += piece.len() as u64;
        print!("\r{done} bytes");
    }
    println!();
    Ok(done)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, file) = args.next().zip(args.next()).ok_or("hint: give a URL and a file")?;
    run(&url, file.as_ref()).await.map(drop)
}
