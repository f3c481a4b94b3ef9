//! A server that keeps what it was sent, for tests of requests with bodies.

#![allow(dead_code, reason = "each user takes its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::common;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Upload {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Requests in the order in which they were whole.
pub(crate) type Uploads = Arc<Mutex<Vec<Upload>>>;

/// Answers each request with 200 when it is whole; of the bodies it keeps `keep` bytes, and their
/// lengths in a field `Got`.
pub(crate) fn server(keep: usize) -> (SocketAddr, Uploads) {
    let uploads = Uploads::default();
    let kept = Arc::clone(&uploads);
    let address = common::server(move |stream| {
        let mut reader = BufReader::with_capacity(1 << 16, stream.try_clone().expect("the same"));
        let mut stream = stream;
        while let Some(upload) = upload(&mut reader, keep) {
            kept.lock().expect("sound").push(upload);
            if stream.write_all(common::HELLO.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, uploads)
}

fn upload(from: &mut impl BufRead, keep: usize) -> Option<Upload> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap_or("0");
    let mut left: u64 = length.trim().parse().ok()?;
    let mut body = Vec::new();
    while left > 0 {
        let buffer = from.fill_buf().ok()?;
        if buffer.is_empty() {
            return None;
        }
        let n = buffer.len().min(usize::try_from(left).ok()?);
        body.extend_from_slice(&buffer[..n.min(keep.saturating_sub(body.len()))]);
        from.consume(n);
        left -= n as u64;
    }
    Some(Upload { head, body })
}

/// The rest of a stream.
pub(crate) fn drain(mut from: impl Read) {
    let _ = std::io::copy(&mut from, &mut std::io::sink());
}
