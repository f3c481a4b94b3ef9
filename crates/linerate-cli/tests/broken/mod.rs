//! A server that misbehaves as a script says, and counts what it did: for the tests of `load` and for `cargo xtask bench truth`.
//!
//! A thread for each connection, on loopback, on a port that the kernel picks. Everything ends by itself after [`LIFE`].

#![allow(dead_code, reason = "each user takes its part")]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

/// How long a server lives at most.
const LIFE: Duration = Duration::from_secs(60);
/// Connections at once, at most.
const MOST: u64 = 512;
/// How often the listener looks for connections, and for the order to end.
const TICK: Duration = Duration::from_micros(200);

/// A request as the script sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Its number on this server, from 0.
    pub(crate) nth: u64,
    /// Its number on its connection, from 0.
    pub(crate) on_connection: u64,
    /// The connection's number on this server, from 0.
    pub(crate) connection: u64,
    pub(crate) head: &'a str,
    /// Since the server began.
    pub(crate) age: Duration,
}

/// What becomes of the connection after the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Keep,
    Close,
    Reset,
}

/// What is sent in return.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) after: Duration,
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
    /// By the server's own count this request was not served as it should be.
    pub(crate) broken: bool,
}

impl Reply {
    /// A good response.
    pub(crate) fn good() -> Reply {
        Reply { after: Duration::ZERO, bytes: GOOD.to_vec(), then: Then::Keep, broken: false }
    }

    /// These bytes, which are not as they should be.
    pub(crate) fn broken(bytes: impl Into<Vec<u8>>, then: Then) -> Reply {
        Reply { bytes: bytes.into(), then, broken: true, ..Reply::good() }
    }

    /// After these bytes.
    pub(crate) fn then(self, then: Then) -> Reply {
        Reply { then, ..self }
    }
}

/// A whole response.
pub(crate) const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
/// One whose body breaks off.
pub(crate) const CUT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhel";

/// How connections are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    All,
    /// None; so many fit into the queue.
    Never {
        backlog: i32,
    },
}

/// What a server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) broken: u64,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    connections: AtomicU64,
    requests: AtomicU64,
    broken: AtomicU64,
    open: Mutex<HashMap<u64, TcpStream>>,
    /// Since when nobody listens, and for how long it was so before.
    down: Mutex<(Option<Instant>, Duration)>,
}

type Script = Arc<dyn Fn(&Asked<'_>) -> Reply + Send + Sync>;

/// A server. It ends when dropped.
pub(crate) struct Broken {
    address: SocketAddr,
    state: Arc<State>,
    script: Script,
    begun: Instant,
    /// The queue of one that accepts nothing.
    _queue: Option<Socket>,
}

impl Broken {
    /// One that replies as the script says.
    pub(crate) fn start(script: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> Broken {
        Broken::accepting(Accept::All, script)
    }

    pub(crate) fn accepting(
        accept: Accept,
        script: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static,
    ) -> Broken {
        let backlog = match accept {
            Accept::All => 1024,
            Accept::Never { backlog } => backlog,
        };
        let socket = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), backlog).expect("loopback is there");
        let address = socket.local_addr().ok().and_then(|a| a.as_socket()).expect("it is bound");
        let mut broken = Broken {
            address,
            state: Arc::default(),
            script: Arc::new(script),
            begun: Instant::now(),
            _queue: None,
        };
        match accept {
            Accept::All => broken.serve(socket.into()),
            Accept::Never { .. } => broken._queue = Some(socket),
        }
        broken
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn counts(&self) -> Counts {
        let load = |n: &AtomicU64| n.load(Ordering::SeqCst);
        let s = &self.state;
        Counts { connections: load(&s.connections), requests: load(&s.requests), broken: load(&s.broken) }
    }

    /// As if the process were killed: nobody listens, and connections are reset.
    pub(crate) fn kill(&self) {
        self.state.stop.store(true, Ordering::SeqCst);
        // Until the listener is closed.
        let begun = Instant::now();
        while TcpStream::connect_timeout(&self.address, Duration::from_millis(100)).is_ok()
            && begun.elapsed() < Duration::from_secs(5)
        {
            thread::sleep(Duration::from_millis(1));
        }
        for (_, stream) in self.open().drain() {
            reset(&stream);
        }
        self.down().0 = Some(Instant::now());
    }

    /// How long nobody listened.
    pub(crate) fn downtime(&self) -> Duration {
        let down = self.down();
        down.1 + down.0.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn down(&self) -> std::sync::MutexGuard<'_, (Option<Instant>, Duration)> {
        self.state.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same again on the same port.
    pub(crate) fn restart(&self) {
        let socket = listen(self.address, 1024).expect("the port is free again");
        let mut down = self.down();
        let lasted = down.0.take().map_or(Duration::ZERO, |since| since.elapsed());
        down.1 += lasted;
        drop(down);
        self.state.stop.store(false, Ordering::SeqCst);
        self.serve(socket.into());
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<u64, TcpStream>> {
        self.state.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, listener: TcpListener) {
        listener.set_nonblocking(true).expect("a flag");
        let (state, script, begun) = (Arc::clone(&self.state), Arc::clone(&self.script), self.begun);
        thread::spawn(move || {
            while !state.stop.load(Ordering::SeqCst) && begun.elapsed() < LIFE {
                match listener.accept() {
                    Ok((stream, _)) => take(stream, &state, &script, begun),
                    Err(_) => thread::sleep(TICK),
                }
            }
        });
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        for (_, stream) in self.open().drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn listen(at: SocketAddr, backlog: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// Closes at once, with RST.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Read);
}

fn take(stream: TcpStream, state: &Arc<State>, script: &Script, begun: Instant) {
    let connection = state.connections.fetch_add(1, Ordering::SeqCst);
    let mut open = state.open.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(own) = stream.try_clone() else { return };
    if open.len() as u64 >= MOST {
        return;
    }
    open.insert(connection, own);
    drop(open);
    let (state, script) = (Arc::clone(state), Arc::clone(script));
    thread::spawn(move || {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(LIFE));
        let then = converse(&stream, connection, &state, &script, begun);
        let mut open = state.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&connection);
        if then == Then::Reset {
            reset(&stream);
        }
    });
}

/// Answers requests until the script or the peer ends it.
fn converse(mut stream: &TcpStream, connection: u64, state: &State, script: &Script, begun: Instant) -> Then {
    let mut carry = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut on_connection = 0;
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        carry.extend_from_slice(&buffer[..n]);
        while let Some(end) = carry.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&carry[..end + 4]).into_owned();
            if carry.len() < end + 4 + body_length(&head) {
                break;
            }
            carry.drain(..end + 4 + body_length(&head));
            let nth = state.requests.fetch_add(1, Ordering::SeqCst);
            let asked = Asked { nth, on_connection, connection, head: &head, age: begun.elapsed() };
            on_connection += 1;
            let reply = script(&asked);
            state.broken.fetch_add(u64::from(reply.broken), Ordering::SeqCst);
            thread::sleep(reply.after);
            if stream.write_all(&reply.bytes).is_err() {
                return Then::Close;
            }
            if reply.then != Then::Keep {
                return reply.then;
            }
        }
    }
    Then::Close
}

fn body_length(head: &str) -> usize {
    let lower = head.to_ascii_lowercase();
    lower.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0)
}
