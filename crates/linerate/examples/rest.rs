//! A REST API that wants a token: creates an item, changes it, reads it, and deletes it.
//!
//! `cargo run -p linerate --example rest http://127.0.0.1:8080 TOKEN`

use std::error::Error;

use bytes::Bytes;
use http::Request;
use linerate::client::{Client, ResponseExt as _};
use serde_json::{Value, json};

struct Items {
    client: Client,
    token: String,
}

impl Items {
    async fn call(&self, method: &str, path: &str, item: &Value) -> Result<Value, Box<dyn Error>> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let body = if item.is_null() { Bytes::new() } else { item.to_string().into() };
        let response = self.client.send(request.body(body)?).await?.error_for_status()?;
        Ok(serde_json::from_slice(response.body())?)
    }
}

pub(crate) async fn run(url: &str, token: &str) -> Result<Value, Box<dyn Error>> {
    let items = Items { client: Client::builder(url).build()?, token: token.to_owned() };
    let created = items.call("POST", "/items", &json!({ "name": "a new one" })).await?;
    let path = format!("/items/{}", created["id"]);
    items.call("PUT", &path, &json!({ "name": "another one" })).await?;
    let item = items.call("GET", &path, &Value::Null).await?;
    items.call("DELETE", &path, &Value::Null).await?;
    Ok(item)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test runs the rest")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, token) = args.next().zip(args.next()).ok_or("hint: give a URL and a token")?;
    println!("{}", run(&url, &token).await?);
    Ok(())
}
