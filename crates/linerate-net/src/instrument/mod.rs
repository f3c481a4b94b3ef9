//! A TCP connection as a measuring instrument: one at a time, blocking with a deadline. It sets the
//! kernel's socket options and records a time for every event. It finds out why a call is slow and
//! is not built for speed.
//!
//! ```no_run
//! use std::time::Duration;
//! use linerate_net::instrument::{Levers, Probe};
//!
//! let deadline = linerate_net::instrument::now() + Duration::from_secs(1);
//! let levers = Levers { quick_ack: true, ..Levers::default() };
//! let mut probe = Probe::connect(([127, 0, 0, 1], 8080).into(), &levers, deadline)?;
//! probe.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", false, deadline)?;
//! let mut buffer = vec![0; 4096];
//! let read = probe.read(&mut buffer, deadline)?;
//! println!("{} bytes after {:?}", read.bytes, read.at - probe.asked());
//! # Ok::<(), linerate_net::instrument::ProbeError>(())
//! ```

mod facts;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use facts::Facts;

use crate::Time;
use crate::sys::{instrument as sys, socket};

/// The clock of all times in this module.
pub fn now() -> Time {
    crate::clock::monotonic()
}

/// Options that change how a connection behaves. The default is an ordinary client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levers {
    /// TCP_NODELAY: switches Nagle's algorithm off (RFC 9293, section 3.7.4).
    pub nodelay: bool,
    /// TCP_QUICKACK, set again after each receive: the kernel acknowledges received data at once.
    pub quick_ack: bool,
    /// TCP_DELACK_MAX_US: the longest delay of an acknowledgement (Linux 6.16).
    pub delayed_ack: Option<Duration>,
    /// TCP_MAXSEG: largest segment offered to the peer, bytes.
    pub max_segment: Option<u32>,
    /// SO_RCVBUF, bytes (the kernel doubles it).
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF, bytes (the kernel doubles it).
    pub send_buffer: Option<u32>,
    /// SO_TIMESTAMPING: the kernel stamps when bytes are sent and when they are acknowledged.
    pub stamps: bool,
    /// The source address.
    pub from: Option<IpAddr>,
    /// The source port.
    pub source_port: Option<u16>,
}

/// The step at which a probe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStage {
    /// A lever could not be set: this kernel lacks it.
    Lever(&'static str),
    /// While connecting.
    Connect,
    /// While sending.
    Send,
    /// While receiving.
    Receive,
}

/// Why a probe had to stop.
#[derive(Debug, thiserror::Error)]
#[error("{stage:?}: {error}")]
pub struct ProbeError {
    /// The step that failed.
    pub stage: ProbeStage,
    /// The cause; `TimedOut` if the deadline passed.
    pub error: io::Error,
    /// The time of the failure.
    pub at: Time,
    /// The kernel's counters of the connection at that time.
    pub facts: Box<Facts>,
}

/// The result of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When the last byte arrived at this machine, by the kernel's stamp; without a stamp, when it
    /// was read. A thread that waits for a CPU reads late, and the peer must not be blamed for
    /// that. Bytes that arrived before a lost segment count from when they could be read.
    pub at: Time,
    /// When the application read it.
    pub read: Time,
    /// Bytes received; 0 if the peer has closed.
    pub bytes: usize,
}

/// The events that the kernel stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stamped {
    /// TCP passed the bytes to the packet scheduler.
    Sent,
    /// The peer's kernel acknowledged them.
    Acknowledged,
}

/// A stamp that the kernel put on written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The stamped event.
    pub what: Stamped,
    /// The last byte it covers, counted from 0 over all bytes written on the connection.
    pub last_byte: u32,
    /// The time of the event.
    pub at: Time,
}

/// Stamps read at a time, at most. Reason: each write leaves two, and a call has few writes.
const STAMPS: usize = 256;

/// A byte that is read sooner than this after its stamp was not held up. Reason: it saves asking the
/// kernel for its counters after each receive.
const AT_ONCE: Duration = Duration::from_micros(500);

/// A connection with levers.
#[derive(Debug)]
pub struct Probe {
    fd: OwnedFd,
    levers: Levers,
    asked: Time,
    connected: Time,
    /// When the last bytes arrived.
    last: Time,
    /// Segments that had come out of order when the call began.
    disordered: u32,
}

impl Probe {
    /// Connects.
    ///
    /// # Errors
    /// This kernel lacks a lever, or the connection was not established before `deadline`.
    pub fn connect(to: SocketAddr, levers: &Levers, deadline: Time) -> Result<Probe, ProbeError> {
        let fail = |stage, error, facts| ProbeError { stage, error, at: now(), facts: Box::new(facts) };
        let fd = socket::tcp(to).map_err(|e| fail(ProbeStage::Connect, e, Facts::default()))?;
        if let Some(port) = levers.source_port {
            let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
            socket::bind_port(&fd, SocketAddr::new(levers.from.unwrap_or(any), port))
                .map_err(|e| fail(ProbeStage::Lever("the source port"), e, Facts::default()))?;
        } else if let Some(from) = levers.from {
            socket::bind_source(&fd, from).map_err(|e| fail(ProbeStage::Connect, e, Facts::default()))?;
        }
        set_levers(&fd, levers).map_err(|(name, e)| fail(ProbeStage::Lever(name), e, Facts::default()))?;
        // Kernels without this option give no stamps.
        let _ = sys::set_arrival_stamps(&fd);
        let asked = now();
        let failed = |e| fail(ProbeStage::Connect, e, sys::facts(&fd).unwrap_or_default());
        if !socket::connect(&fd, to).map_err(failed)? {
            wait(&fd, sys::InstrumentEvent::Write, deadline).map_err(failed)?;
            if let Some(error) = socket::take_error(&fd) {
                return Err(failed(io::Error::from_raw_os_error(error)));
            }
        }
        let connected = now();
        if levers.stamps {
            // The kernel numbers bytes from here on, so the option needs an established connection.
            sys::set_stamps(&fd)
                .map_err(|e| fail(ProbeStage::Lever("SO_TIMESTAMPING"), e, Facts::default()))?;
        }
        if levers.quick_ack {
            // Fails only on a socket that is not TCP.
            let _ = sys::set_quick_ack(&fd);
        }
        Ok(Probe { fd, levers: *levers, asked, connected, last: asked, disordered: 0 })
    }

    /// When `connect` was called.
    pub fn asked(&self) -> Time {
        self.asked
    }

    /// When it was established.
    pub fn connected(&self) -> Time {
        self.connected
    }

    /// A call begins. Returns what the kernel knows of the connection. Segments that came out of
    /// order before hold up no byte of this call.
    pub fn begin(&mut self) -> Facts {
        let facts = self.facts();
        self.disordered = facts.rcv_ooopack;
        facts
    }

    /// Switches Nagle's algorithm off from now on.
    pub fn set_nodelay(&mut self) {
        // Fails only on a socket that is not TCP.
        let _ = socket::set_nodelay(&self.fd);
        self.levers.nodelay = true;
    }

    /// Hands `bytes` to the kernel and returns when it had taken the last of them. `more`:
    /// MSG_MORE, a partial segment waits for the rest.
    ///
    /// # Errors
    /// The connection failed, or bytes were left at the deadline.
    pub fn write(&mut self, mut bytes: &[u8], more: bool, deadline: Time) -> Result<Time, ProbeError> {
        while !bytes.is_empty() {
            match sys::send(&self.fd, bytes, more) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.fd, sys::InstrumentEvent::Write, deadline)
                        .map_err(|e| self.failed(ProbeStage::Send, e))?;
                }
                Err(e) => return Err(self.failed(ProbeStage::Send, e)),
            }
        }
        Ok(now())
    }

    /// Receives what is there, or waits for bytes until the deadline.
    ///
    /// # Errors
    /// The connection failed, or the deadline came with nothing received.
    pub fn read(&mut self, buffer: &mut [u8], deadline: Time) -> Result<Read, ProbeError> {
        loop {
            match sys::recv_stamped(&self.fd, buffer) {
                Ok((bytes, arrived)) => {
                    let read = now();
                    // Converting between clocks has an error of some hundred nanoseconds.
                    let at = arrived.filter(|_| bytes > 0).map_or(read, |at| at.clamp(self.last, read));
                    // The stamp of a segment that came before a lost one tells when it arrived, and
                    // TCP hands it on when the lost one was sent again.
                    let late = read - at > AT_ONCE && self.facts().rcv_ooopack != self.disordered;
                    let at = if late { read } else { at };
                    self.last = at;
                    if self.levers.quick_ack {
                        // The kernel leaves quick-ACK mode by itself, so it is set after each
                        // receive.
                        let _ = sys::set_quick_ack(&self.fd);
                    }
                    return Ok(Read { at, read, bytes });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.fd, sys::InstrumentEvent::Read, deadline)
                        .map_err(|e| self.failed(ProbeStage::Receive, e))?;
                }
                Err(e) => return Err(self.failed(ProbeStage::Receive, e)),
            }
        }
    }

    /// The kernel's counters of the connection.
    pub fn facts(&self) -> Facts {
        sys::facts(&self.fd).unwrap_or_default()
    }

    /// The kernel's stamps since the last call, in their order; needs [`Levers::stamps`]. Unread
    /// stamps fill the receive buffer, so callers must take them.
    pub fn stamps(&mut self) -> Vec<Stamp> {
        let mut stamps = Vec::new();
        while self.levers.stamps && stamps.len() < STAMPS {
            match sys::take_stamp(&self.fd) {
                Ok(Some(stamp)) => stamps.push(stamp),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        stamps
    }

    /// The peer's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        sys::peer(&self.fd)
    }

    /// The local address.
    pub fn local(&self) -> Option<SocketAddr> {
        sys::local(&self.fd)
    }

    fn failed(&self, stage: ProbeStage, error: io::Error) -> ProbeError {
        ProbeError { stage, error, at: now(), facts: Box::new(self.facts()) }
    }
}

fn set_levers(fd: &OwnedFd, levers: &Levers) -> Result<(), (&'static str, io::Error)> {
    let named = |name| move |e| (name, e);
    if levers.nodelay {
        socket::set_nodelay(fd).map_err(named("TCP_NODELAY"))?;
    }
    if let Some(time) = levers.delayed_ack {
        sys::set_delayed_ack(fd, time).map_err(named("TCP_DELACK_MAX_US"))?;
    }
    if let Some(bytes) = levers.max_segment {
        sys::set_max_segment(fd, bytes).map_err(named("TCP_MAXSEG"))?;
    }
    if let Some(bytes) = levers.receive_buffer {
        sys::set_receive_buffer(fd, bytes).map_err(named("SO_RCVBUF"))?;
    }
    if let Some(bytes) = levers.send_buffer {
        sys::set_send_buffer(fd, bytes).map_err(named("SO_SNDBUF"))?;
    }
    Ok(())
}

fn wait(fd: &OwnedFd, what: sys::InstrumentEvent, deadline: Time) -> io::Result<()> {
    loop {
        let left = deadline - now();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if sys::wait(fd, what, left)? {
            return Ok(());
        }
    }
}

/// Whether this kernel lets a client limit the delay of its acknowledgements.
pub fn has_delayed_ack_lever() -> bool {
    socket::tcp(([127, 0, 0, 1], 0).into())
        .and_then(|fd| sys::set_delayed_ack(&fd, Duration::from_millis(20)))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn soon() -> Time {
        now() + Duration::from_secs(10)
    }

    #[test]
    fn a_call_with_stamps_is_told_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut buffer = [0; 5];
            stream.read_exact(&mut buffer).expect("five bytes");
            stream.write_all(b"world").expect("sent");
        });
        let levers = Levers { stamps: true, quick_ack: true, ..Levers::default() };
        let mut probe = Probe::connect(to, &levers, soon()).expect("connected");
        let written = probe.write(b"hello", false, soon()).expect("written");
        let mut buffer = [0; 16];
        let read = probe.read(&mut buffer, soon()).expect("an answer");
        // The response may arrive before a thread that waits for a CPU has noted when it wrote.
        assert_eq!((&buffer[..read.bytes], read.at > probe.connected()), (&b"world"[..], true));
        assert!(probe.asked() <= probe.connected() && probe.connected() <= written);
        let facts = probe.facts();
        assert_eq!((facts.total_retrans, facts.data_segs_in), (0, 1));
        let stamps = probe.stamps();
        let sent = stamps.iter().find(|s| s.what == Stamped::Sent).expect("a stamp");
        assert_eq!(sent.last_byte, 4);
        assert!(sent.at <= read.at && sent.at + Duration::from_secs(1) > written, "{stamps:?}");
        assert_eq!(probe.read(&mut buffer, soon()).expect("the end").bytes, 0);
        peer.join().expect("done");
    }

    #[test]
    fn what_is_read_late_arrived_when_it_arrived() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let mut probe = Probe::connect(to, &Levers::default(), soon()).expect("connected");
        let (mut stream, _) = listener.accept().expect("a connection");
        // The kernel enables its stamps a moment after the first socket asks for them.
        let mut late = Duration::ZERO;
        for _ in 0..20 {
            stream.write_all(b"hello").expect("sent");
            thread::sleep(Duration::from_millis(20));
            let read = probe.read(&mut [0; 16], soon()).expect("five bytes");
            assert_eq!(read.bytes, 5);
            late = read.read - read.at;
            if late > Duration::from_millis(10) {
                break;
            }
        }
        assert!(late > Duration::from_millis(10), "it lay there for 20 ms: {late:?}");
    }

    #[test]
    fn a_deadline_ends_a_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let mut probe = Probe::connect(to, &Levers::default(), soon()).expect("connected");
        let error = probe.read(&mut [0; 4], now() + Duration::from_millis(5)).expect_err("nobody answers");
        assert_eq!((error.stage, error.error.kind()), (ProbeStage::Receive, io::ErrorKind::TimedOut));
        drop(listener);
        let error = Probe::connect(to, &Levers::default(), soon()).expect_err("nobody listens");
        assert_eq!(error.error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
