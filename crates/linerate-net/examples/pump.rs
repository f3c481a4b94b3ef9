//! The bare client: moves the bytes of HTTP requests and responses over a transport, and counts
//! responses by their length alone. Its rate is what the transport allows.
//!
//! `cargo run --release -p linerate-net --example pump -- epoll|uring ADDR:PORT CONNECTIONS DEPTH
//! SECONDS [short] [receive=BYTES]`

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use linerate_net::epoll::Epoll;
use linerate_net::uring::Uring;
use linerate_net::{After, Close, ConnectOptions, Event, Lent, Time, Transport, TransportLimits, machine};

struct Options {
    to: SocketAddr,
    connections: usize,
    depth: usize,
    lasts: Duration,
    short: bool,
}

/// Bytes received of the current response.
#[derive(Clone, Copy, Default)]
struct Pipe {
    got: usize,
}

struct Pump<T> {
    net: T,
    options: Options,
    lent: Lent,
    request: usize,
    answer: usize,
    pipes: Vec<Pipe>,
    answered: u64,
    received: u64,
    turns: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [io, to, connections, depth, seconds, rest @ ..] = args.as_slice() else {
        return Err(
            "usage: pump epoll|uring ADDR:PORT CONNECTIONS DEPTH SECONDS [short] [receive=BYTES] [core=N]"
                .into(),
        );
    };
    let mut limits = TransportLimits::default();
    let value = |name: &str| rest.iter().find_map(|word| word.strip_prefix(name)?.parse::<usize>().ok());
    limits.receive_bytes = value("receive=").unwrap_or(limits.receive_bytes);
    if let Some(core) = value("core=") {
        machine::pin_to_core(core)?;
    }
    machine::raise_nofile()?;
    let options = Options {
        to: to.parse()?,
        connections: connections.parse()?,
        depth: depth.parse()?,
        lasts: Duration::from_secs_f64(seconds.parse()?),
        short: rest.iter().any(|word| word == "short"),
    };
    match io.as_str() {
        "epoll" => Pump::new(Epoll::with_limits(limits)?, options)?.run().map(drop),
        "uring" => Pump::new(Uring::with_limits(limits)?, options)?.run().map(drop),
        other => Err(format!("{other}: epoll or uring").into()),
    }
}

impl<T: Transport> Pump<T> {
    fn new(mut net: T, options: Options) -> io::Result<Pump<T>> {
        let close = if options.short { "Connection: close\r\n" } else { "" };
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n{close}\r\n", options.to).into_bytes();
        let answer = learn(options.to, &request)?;
        let lent = net.lend(request.repeat(options.depth).into());
        Ok(Pump {
            net,
            lent,
            request: request.len(),
            answer,
            pipes: vec![Pipe::default(); options.connections * 2],
            options,
            answered: 0,
            received: 0,
            turns: 0,
        })
    }

    fn open(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let how = ConnectOptions { short: self.options.short, ..ConnectOptions::default() };
        let conn = self.net.connect(self.options.to, &how)?;
        if conn.slot() >= self.pipes.len() {
            self.pipes.resize(conn.slot() + 1, Pipe::default());
        }
        self.pipes[conn.slot()] = Pipe::default();
        self.net.send_lent(conn, self.lent, 0..self.options.depth * self.request)?;
        Ok(())
    }

    /// Returns how many responses came.
    fn run(mut self) -> Result<u64, Box<dyn std::error::Error>> {
        let mut events = Vec::new();
        for _ in 0..self.options.connections {
            self.open()?;
        }
        let cpu = machine::thread_cpu_time_ns();
        let start = self.net.now();
        let end = start + self.options.lasts;
        let mut now = start;
        while now < end {
            self.net.turn(Some(end), &mut events)?;
            now = self.net.now();
            self.turns += 1;
            for event in events.drain(..) {
                self.handle(event)?;
            }
        }
        self.report(start, now, machine::thread_cpu_time_ns() - cpu);
        Ok(self.answered)
    }

    fn handle(&mut self, event: Event) -> Result<(), Box<dyn std::error::Error>> {
        match event {
            Event::Readable { conn, data } => {
                let mut n = 0;
                let after = self.net.receive(data, |bytes| n += bytes.len());
                if after == After::Gone {
                    return Ok(());
                }
                self.received += n as u64;
                let pipe = &mut self.pipes[conn.slot()];
                let whole = (pipe.got + n) / self.answer;
                pipe.got = (pipe.got + n) % self.answer;
                self.answered += whole as u64;
                if self.options.short {
                    if whole > 0 || after != After::Open {
                        self.net.close(conn, Close::Now);
                        self.open()?;
                    }
                } else if after != After::Open {
                    return Err(format!("the server closed: {after:?}").into());
                } else {
                    // At once, so that the server has work while the other responses are read.
                    self.net.send_lent(conn, self.lent, 0..whole * self.request)?;
                }
                Ok(())
            }
            Event::Failed { error, .. } => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn report(&self, start: Time, end: Time, cpu_ns: u64) {
        let seconds = (end - start).as_secs_f64();
        println!(
            "{} answered {} rate {:.0}/s bytes {:.0} MB/s cpu {:.3} us each ({:.0} % of a core) {:.1} answers a turn",
            self.net.name(),
            self.answered,
            self.answered as f64 / seconds,
            self.received as f64 / seconds / 1e6,
            cpu_ns as f64 / 1e3 / self.answered as f64,
            cpu_ns as f64 / 1e7 / seconds,
            self.answered as f64 / self.turns as f64,
        );
    }
}

/// Sends one request and returns the length of its response.
fn learn(to: SocketAddr, request: &[u8]) -> io::Result<usize> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request)?;
    let (mut all, mut part) = (Vec::new(), [0u8; 16 << 10]);
    loop {
        let n = stream.read(&mut part)?;
        all.extend_from_slice(&part[..n]);
        if let Some(head) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&all[..head]).to_ascii_lowercase();
            let body =
                text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            let len = head + 4 + body.unwrap_or(0);
            if all.len() >= len {
                return Ok(len);
            }
        }
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers each request with the same bytes, on each connection.
    fn serve(listener: &TcpListener) -> io::Result<()> {
        for stream in listener.incoming() {
            let mut stream = stream?;
            std::thread::spawn(move || -> io::Result<()> {
                // The client sends whole requests of one length each.
                let (mut waiting, mut part) = (Vec::new(), [0; 4096]);
                loop {
                    match stream.read(&mut part)? {
                        0 => return Ok(()),
                        n => waiting.extend_from_slice(&part[..n]),
                    }
                    while let Some(end) = waiting.windows(4).position(|w| w == b"\r\n\r\n") {
                        waiting.drain(..end + 4);
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
                    }
                }
            });
        }
        Ok(())
    }

    #[test]
    fn it_runs() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        std::thread::spawn(move || serve(&listener));
        let lasts = Duration::from_millis(200);
        let options = Options { to, connections: 2, depth: 3, lasts, short: false };
        let net = Epoll::with_limits(TransportLimits::default()).expect("epoll");
        let pump = Pump::new(net, options).expect("a first response");
        assert!(pump.run().expect("it runs") >= 6);
    }
}
