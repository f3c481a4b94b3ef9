//! Fetches one URL with the client side of this crate over a plain socket, and prints the result as
//! a line of JSON: `{"outcome":"accept","status":200,"body_sha":"...","error":null}`.
//!
//! `cargo run -p linerate-http --example read_answer -- http://127.0.0.1:8080/ GET`

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use linerate_http::client::{
    CompleteResponse, HeadCache, RequestSpec, ResponseLimits, ResponsePart, ResponseReader, Template, Values,
};
use sha2::{Digest, Sha256};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(url), method) = (args.first(), args.get(1).map_or("GET", String::as_str)) else {
        eprintln!("usage: read_answer URL [METHOD]");
        std::process::exit(2);
    };
    let mut body = Sha256::new();
    let (status, error) = match fetch(url, method, &mut body) {
        Ok(end) => (end.status, None),
        Err(error) => (0, Some(error)),
    };
    let outcome = if error.is_none() { "accept" } else { "reject" };
    let sha = if error.is_none() { format!("\"{:x}\"", body.finalize()) } else { "null".to_owned() };
    let error = error.map_or("null".to_owned(), |e| format!("{e:?}"));
    println!(r#"{{"outcome":"{outcome}","status":{status},"body_sha":{sha},"error":{error}}}"#);
}

fn fetch(url: &str, method: &str, body: &mut Sha256) -> Result<CompleteResponse, String> {
    let rest = url.strip_prefix("http://").ok_or("only http:// is read here")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let spec = RequestSpec {
        method: method.to_owned(),
        target: if path.is_empty() { "/" } else { path }.to_owned(),
        fields: vec![("Host".to_owned(), authority.to_owned()), ("Accept".to_owned(), "*/*".to_owned())],
        body: Default::default(),
    };
    let template = Template::compile(&spec, &[]).map_err(|e| e.to_string())?;
    let mut request = Vec::new();
    template.render(&Values { seq: 0, now_ms: 0, seed: 0, row: &[] }, &mut request);
    let mut socket = TcpStream::connect(authority).map_err(|e| e.to_string())?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).map_err(|e| e.to_string())?;
    socket.write_all(&request).map_err(|e| e.to_string())?;
    read(&mut socket, &template, body)
}

fn read(socket: &mut TcpStream, template: &Template, body: &mut Sha256) -> Result<CompleteResponse, String> {
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let mut buffer = [0; 16 << 10];
    loop {
        let n = socket.read(&mut buffer).map_err(|e| e.to_string())?;
        if n == 0 {
            return reader.finish().map_err(|e| e.to_string())?.ok_or("closed without an answer".to_owned());
        }
        let mut input = &buffer[..n];
        while let Some(part) =
            reader.next(&mut cache, &mut input, template.expect()).map_err(|e| e.to_string())?
        {
            match part {
                ResponsePart::Body(bytes) => body.update(bytes),
                ResponsePart::End(end) => return Ok(end),
                ResponsePart::Interim(_) | ResponsePart::Head(_) | ResponsePart::Trailers(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("an address");
        let served = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a client");
            let n = stream.read(&mut [0; 4096]).expect("a request");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("written");
            n
        });
        let mut body = Sha256::new();
        let end = fetch(&format!("http://{at}/"), "GET", &mut body).expect("a response");
        assert_eq!((end.status, body.finalize()), (200, Sha256::digest(b"ok")));
        assert!(served.join().expect("the server ends") > 0);
    }
}
