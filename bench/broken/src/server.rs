//! The threads of a server: one that accepts, and one for each connection.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::limits::{CLOSING, CONNECTIONS, LIFE, REQUEST_BYTES, TICK};
use crate::line::BrokenConnection;
use crate::reply::{RepeatedBytes, Reply, ScriptRequest, Then};
use crate::streams::{BrokenStreams, StreamBehaviour};
use crate::tally::{BrokenCounts, Numbers, RequestTally};
use crate::tls::{Broke, BrokenTls};

/// Default backlog.
const BACKLOG: i32 = 1024;

/// How connections are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptMode {
    /// All at once.
    #[default]
    All,
    /// None.
    Never {
        /// The backlog.
        backlog: i32,
    },
    /// All, after this pause.
    After(Duration),
}

/// What a server does besides replying.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// How connections are accepted.
    pub accept: AcceptMode,
    /// Bytes sent on each connection before any request.
    pub greeting: &'static [u8],
    /// Bytes sent on a connection that was idle for this long, before it is closed.
    pub when_idle: Option<(Duration, &'static [u8])>,
    /// It speaks HTTP/2: on every connection in clear text, and by TLS where the client does.
    pub http2: Option<StreamBehaviour>,
    /// It speaks TLS.
    pub tls: Option<BrokenTls>,
}

#[derive(Default)]
struct BrokenServerState {
    stop: AtomicBool,
    listening: AtomicBool,
    connections: AtomicU64,
    requests: AtomicU64,
    broken: AtomicU64,
    open: Mutex<HashMap<u64, TcpStream>>,
    tally: Mutex<RequestTally>,
    first: OnceLock<Instant>,
    /// Since when the server has been down, and its total downtime before.
    down: Mutex<(Option<Instant>, Duration)>,
}

type Script = Arc<dyn Fn(&ScriptRequest<'_>) -> Reply + Send + Sync>;

/// A running server. Dropping it stops it.
pub struct Broken {
    address: SocketAddr,
    state: Arc<BrokenServerState>,
    script: Script,
    manner: Manner,
    config: Option<Arc<rustls::ServerConfig>>,
    begun: Instant,
    /// The listening socket of a server that accepts nothing.
    _queue: Option<Socket>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broken").field("address", &self.address).field("counts", &self.counts()).finish()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Broken {
    /// Starts a server that replies as the script says.
    pub fn start(script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static) -> Broken {
        Broken::with(Manner::default(), script)
    }

    /// Starts a server with its own way of accepting connections.
    pub fn accepting(
        accept: AcceptMode,
        script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static,
    ) -> Broken {
        Broken::with(Manner { accept, ..Manner::default() }, script)
    }

    /// Starts a server that does more than reply.
    ///
    /// # Panics
    /// Loopback has no free port.
    pub fn with(
        manner: Manner,
        script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static,
    ) -> Broken {
        let backlog = match manner.accept {
            AcceptMode::Never { backlog } => backlog,
            AcceptMode::All | AcceptMode::After(_) => BACKLOG,
        };
        let socket = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), backlog).expect("loopback is there");
        let address = socket.local_addr().ok().and_then(|a| a.as_socket()).expect("it is bound");
        let mut broken = Broken {
            address,
            state: Arc::default(),
            script: Arc::new(script),
            config: manner.tls.as_ref().map(BrokenTls::config),
            manner,
            begun: Instant::now(),
            _queue: None,
        };
        match broken.manner.accept {
            AcceptMode::Never { .. } => broken._queue = Some(socket),
            AcceptMode::All | AcceptMode::After(_) => broken.serve(socket.into()),
        }
        broken
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the listening address.
    pub fn url(&self) -> String {
        let scheme = if self.manner.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// The counters so far.
    pub fn counts(&self) -> BrokenCounts {
        let load = |n: &AtomicU64| n.load(Ordering::SeqCst);
        let s = &self.state;
        BrokenCounts {
            connections: load(&s.connections),
            requests: load(&s.requests),
            broken: load(&s.broken),
        }
    }

    /// Counts requests by their numbers.
    pub fn numbers(&self) -> Numbers {
        lock(&self.state.tally).numbers()
    }

    /// When the first connection was accepted.
    pub fn first_connection(&self) -> Option<Instant> {
        self.state.first.get().copied()
    }

    /// Acts like a killed process: stops listening and resets connections.
    pub fn kill(&self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while self.state.listening.load(Ordering::SeqCst) && begun.elapsed() < CLOSING {
            thread::sleep(TICK / 4);
        }
        for (_, stream) in lock(&self.state.open).drain() {
            reset(&stream);
        }
        lock(&self.state.down).0 = Some(Instant::now());
    }

    /// Total time without a listener.
    pub fn downtime(&self) -> Duration {
        self.downtime_until(Instant::now())
    }

    /// The downtime as of `end`.
    pub fn downtime_until(&self, end: Instant) -> Duration {
        let down = lock(&self.state.down);
        down.1 + down.0.map_or(Duration::ZERO, |since| end.saturating_duration_since(since))
    }

    /// Starts listening again on the same port.
    ///
    /// # Panics
    /// Another process has taken the port.
    pub fn restart(&self) {
        self.state.stop.store(false, Ordering::SeqCst);
        let socket = listen(self.address, BACKLOG).expect("the port is free again");
        let mut down = lock(&self.state.down);
        let lasted = down.0.take().map_or(Duration::ZERO, |since| since.elapsed());
        down.1 += lasted;
        drop(down);
        self.serve(socket.into());
    }

    fn serve(&self, listener: TcpListener) {
        listener.set_nonblocking(true).expect("a flag");
        self.state.listening.store(true, Ordering::SeqCst);
        let (state, script, begun) = (Arc::clone(&self.state), Arc::clone(&self.script), self.begun);
        let (manner, config) = (Arc::new(self.manner.clone()), self.config.clone());
        thread::spawn(move || {
            if let AcceptMode::After(pause) = manner.accept {
                thread::sleep(pause.min(LIFE));
            }
            while !state.stop.load(Ordering::SeqCst) && begun.elapsed() < LIFE {
                match listener.accept() {
                    Ok((stream, _)) => take(stream, &state, (&script, config.as_ref()), &manner),
                    Err(_) => thread::sleep(TICK),
                }
            }
            drop(listener);
            state.listening.store(false, Ordering::SeqCst);
        });
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        for (_, stream) in lock(&self.state.open).drain() {
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

/// Closes at once, with a reset.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Read);
}

fn take(
    stream: TcpStream,
    state: &Arc<BrokenServerState>,
    (script, config): (&Script, Option<&Arc<rustls::ServerConfig>>),
    manner: &Arc<Manner>,
) {
    let connection = state.connections.fetch_add(1, Ordering::SeqCst);
    state.first.get_or_init(Instant::now);
    let mut open = lock(&state.open);
    let Ok(own) = stream.try_clone() else { return };
    if open.len() as u64 >= CONNECTIONS {
        return;
    }
    open.insert(connection, own);
    drop(open);
    let config = config.cloned();
    let talk =
        Talk { connection, state: Arc::clone(state), script: Arc::clone(script), manner: Arc::clone(manner) };
    thread::spawn(move || {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(talk.manner.when_idle.map_or(LIFE, |(idle, _)| idle)));
        let _ = stream.set_write_timeout(Some(LIFE));
        let then = talk.meet(&stream, config.as_ref());
        let mut open = lock(&talk.state.open);
        open.remove(&talk.connection);
        if then == Then::Reset {
            reset(&stream);
        }
    });
}

/// The state of one connection.
pub(crate) struct Talk {
    connection: u64,
    state: Arc<BrokenServerState>,
    script: Script,
    manner: Arc<Manner>,
}

impl Talk {
    /// The whole life of a connection. Says how TCP ends.
    fn meet(&self, stream: &TcpStream, config: Option<&Arc<rustls::ServerConfig>>) -> Then {
        let mut line = match (&self.manner.tls, config) {
            (Some(tls), Some(config)) => match tls.shake(config, stream, self.connection) {
                Ok(line) => line,
                Err(broke) => {
                    let ours = broke != Broke::Client;
                    self.state.broken.fetch_add(u64::from(ours), Ordering::SeqCst);
                    return if broke == Broke::Reset { Then::Reset } else { Then::Close };
                }
            },
            _ => BrokenConnection::plain(stream),
        };
        let then = match self.manner.http2 {
            Some(http2) if self.manner.tls.is_none() || line.speaks_http2() => {
                BrokenStreams::new(self, http2).converse(&mut line)
            }
            _ => self.converse(&mut line),
        };
        line.end(then);
        if then == Then::Reset { Then::Reset } else { Then::Close }
    }

    /// Responds to requests until the script or the peer ends the connection.
    fn converse(&self, stream: &mut BrokenConnection<'_>) -> Then {
        if stream.write(self.manner.greeting).is_err() {
            return Then::Close;
        }
        let mut carry = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        let mut on_connection = 0;
        while carry.len() <= REQUEST_BYTES {
            match stream.read(&mut buffer) {
                Ok(n @ 1..) => carry.extend_from_slice(&buffer[..n]),
                Ok(_) => return Then::Close,
                Err(_) => {
                    let words = self.manner.when_idle.map_or(&[][..], |(_, words)| words);
                    let _ = stream.write(words);
                    return Then::Close;
                }
            }
            while let Some(head) = take_request(&mut carry) {
                let then = self.reply(stream, &head, on_connection);
                on_connection += 1;
                if then != Then::Keep {
                    return then;
                }
            }
        }
        Then::Close
    }

    /// Asks the script. Returns its reply, and the request's own number.
    pub(crate) fn ask(&self, head: &str, on_connection: u64, stream: u32) -> (Reply, Option<u64>) {
        let state = &self.state;
        let nth = state.requests.fetch_add(1, Ordering::SeqCst);
        let age = state.first.get().map_or(Duration::ZERO, Instant::elapsed);
        let asked = ScriptRequest { nth, on_connection, connection: self.connection, stream, head, age };
        let reply = (self.script)(&asked);
        state.broken.fetch_add(u64::from(reply.broken), Ordering::SeqCst);
        // Counted before the reply, which may outlast the client.
        self.note(asked.number(), false);
        (reply, asked.number())
    }

    /// The head of a request has come, and not its body.
    pub(crate) fn arrived(&self, head: &str) {
        let asked =
            ScriptRequest { nth: 0, on_connection: 0, connection: 0, stream: 0, head, age: Duration::ZERO };
        self.note(asked.number(), false);
    }

    /// Notes a request, and whether it was served.
    pub(crate) fn note(&self, number: Option<u64>, served: bool) {
        if let Some(number) = number {
            lock(&self.state.tally).note(number, served);
        }
    }

    fn reply(&self, stream: &mut BrokenConnection<'_>, head: &str, on_connection: u64) -> Then {
        let (reply, number) = self.ask(head, on_connection, 0);
        thread::sleep(reply.after);
        let sent = self.send(stream, &reply);
        self.note(number, reply.served && sent);
        if sent { reply.then } else { Then::Close }
    }

    /// Returns whether all of it was sent.
    fn send(&self, stream: &mut BrokenConnection<'_>, reply: &Reply) -> bool {
        let mut sent = stream.write(&reply.bytes).is_ok();
        let begun = Instant::now();
        let Some(RepeatedBytes { bytes, pause, times }) = &reply.again else { return sent };
        for _ in 0..*times {
            if !sent || self.state.stop.load(Ordering::SeqCst) || begun.elapsed() >= LIFE {
                return false;
            }
            thread::sleep(*pause);
            sent = stream.write(bytes).is_ok();
        }
        sent
    }
}

/// The head of the next complete request. Its body is dropped.
fn take_request(carry: &mut Vec<u8>) -> Option<String> {
    let end = carry.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&carry[..end]).into_owned();
    let whole = end.saturating_add(body_length(&head));
    if carry.len() < whole {
        return None;
    }
    carry.drain(..whole);
    Some(head)
}

fn body_length(head: &str) -> usize {
    let lower = head.to_ascii_lowercase();
    lower.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0)
}
