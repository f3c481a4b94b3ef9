//! A server of a few lines on threads, so that nothing of what is tested serves it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// How many came on its connection before.
    pub(crate) nth: usize,
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap()
    }
}

/// What to do with a request.
pub(crate) enum Does {
    Says(Vec<u8>),
    /// Closes after these bytes.
    Closes(Vec<u8>),
    /// Says nothing, ever.
    Nothing,
}

/// A response with this body.
pub(crate) fn ok(body: impl AsRef<[u8]>) -> Does {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\nServer: test\r\nContent-Length: {}\r\n\r\n", body.len());
    Does::Says([head.as_bytes(), body].concat())
}

#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    /// Requests that each read brought whole.
    per_read: Vec<usize>,
    connections: usize,
}

/// A running server; dropping it ends it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(does: impl Fn(&Request) -> Does + Send + Sync + 'static) -> Server {
        Server::on(TcpListener::bind("127.0.0.1:0").unwrap(), does)
    }

    pub(crate) fn on(
        listener: TcpListener,
        does: impl Fn(&Request) -> Does + Send + Sync + 'static,
    ) -> Server {
        let address = listener.local_addr().unwrap();
        let (seen, over) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let server = Server { address, seen: seen.clone(), over: over.clone() };
        let does = Arc::new(does);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (seen, over, does) = (seen.clone(), over.clone(), does.clone());
                std::thread::spawn(move || {
                    // A client that leaves is no fault.
                    let _ = carry(stream.unwrap(), &seen, &over, &*does);
                });
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub(crate) fn per_read(&self) -> Vec<usize> {
        self.seen.lock().unwrap().per_read.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Ends the wait for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn carry(
    mut stream: TcpStream,
    seen: &Mutex<Seen>,
    over: &AtomicBool,
    does: &dyn Fn(&Request) -> Does,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    seen.lock().unwrap().connections += 1;
    let (mut received, mut buffer, mut nth) = (Vec::new(), vec![0; 256 << 10], 0);
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        }
        let (mut says, mut closes, before) = (Vec::new(), false, nth);
        while let Some((head, body)) = parse(&mut received).filter(|_| !closes) {
            let request = Request { head, body, nth };
            nth += 1;
            seen.lock().unwrap().requests.push(request.clone());
            match does(&request) {
                Does::Says(bytes) => says.extend(bytes),
                Does::Closes(bytes) => {
                    says.extend(bytes);
                    closes = true;
                }
                Does::Nothing => {}
            }
        }
        seen.lock().unwrap().per_read.push(nth - before);
        stream.write_all(&says)?;
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

fn parse(received: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = received.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(received[..end].to_vec()).unwrap();
    let fields = head.to_ascii_lowercase();
    let len =
        fields.split("content-length: ").nth(1).and_then(|n| n.lines().next()?.parse().ok()).unwrap_or(0);
    if received.len() < end + len {
        return None;
    }
    let body = received[end..end + len].to_vec();
    received.drain(..end + len);
    Some((head, body))
}
