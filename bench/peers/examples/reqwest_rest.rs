//! A REST API that wants a token: creates an item, changes it, reads it, and deletes it.
//!
//! `cargo run -p linerate-bench-peers --example reqwest_rest http://127.0.0.1:8080 TOKEN`

use std::error::Error;

use reqwest::{Client, Method};
use serde_json::{Value, json};

struct Items {
    client: Client,
    url: String,
    token: String,
}

impl Items {
    async fn call(&self, method: Method, path: &str, item: &Value) -> Result<Value, Box<dyn Error>> {
        let request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        let request = if item.is_null() { request } else { request.json(item) };
        Ok(request.send().await?.error_for_status()?.json().await?)
    }
}

async fn run(url: &str, token: &str) -> Result<Value, Box<dyn Error>> {
    let items = Items { client: Client::new(), url: url.to_owned(), token: token.to_owned() };
    let created = items.call(Method::POST, "/items", &json!({ "name": "a new one" })).await?;
    let path = format!("/items/{}", created["id"]);
    items.call(Method::PUT, &path, &json!({ "name": "another one" })).await?;
    let item = items.call(Method::GET, &path, &Value::Null).await?;
    items.call(Method::DELETE, &path, &Value::Null).await?;
    Ok(item)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, token) = args.next().zip(args.next()).ok_or("hint: give a URL and a token")?;
    println!("{}", run(&url, &token).await?);
    Ok(())
}
