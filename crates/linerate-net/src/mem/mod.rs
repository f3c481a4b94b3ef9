//! Connections in memory and in virtual time: scripted peers, and connections between listeners and clients of one
//! instance. Everything that happens is a happening with a time in one queue; `turn` takes the next and advances the
//! clock to it. With the same seed and the same calls everything is the same again.

mod host;
mod options;
mod peer;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use self::host::PeerHost;
pub use self::options::{Cut, MemOptions};
pub use self::peer::{Accept, Peer, PeerActions, PeerConn};
use self::wire::MemoryWire;
use crate::outbox::LentTable;
use crate::sys::EventFd;
use crate::{
    After, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError, NetErrorKind,
    TcpInfo, Time, Transport, Waker,
};

/// How long `turn` without a deadline waits, in real time, for a waker when nothing is ever going to happen by itself.
/// Reason: a test that waits for nothing has to fail, not to hang.
const REAL_PATIENCE: Duration = Duration::from_secs(5);

/// The transport in memory.
pub struct Mem {
    wire: MemoryWire,
    wake: Arc<EventFd>,
    lent: LentTable,
    sends: u64,
}

impl Mem {
    /// With these options.
    pub fn new(options: MemOptions) -> io::Result<Mem> {
        Ok(Mem {
            wire: MemoryWire::new(options),
            wake: Arc::new(EventFd::new()?),
            lent: LentTable::default(),
            sends: 0,
        })
    }

    /// A scripted peer answers at this address.
    pub fn serve(&mut self, at: SocketAddr, peer: impl Peer + 'static) -> Result<(), NetError> {
        self.wire.serve(at, Box::new(peer))
    }

    /// A scripted peer connects to a listener of this instance.
    pub fn dial(&mut self, to: SocketAddr, peer: impl Peer + 'static) -> PeerConn {
        self.wire.dial(to, Box::new(peer))
    }

    fn hand_over(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        if !self.wire.is_live(conn) {
            return Ok(());
        }
        self.sends += 1;
        if self.wire.options.fail_send_every.is_some_and(|n| self.sends.is_multiple_of(n.max(1))) {
            return Err(NetError::from_errno(libc::ENOBUFS));
        }
        self.wire.send(conn, bytes)
    }
}

impl Default for Mem {
    /// A perfect wire. Panics when the process is out of file descriptors: tests have no better use for that error.
    fn default() -> Self {
        Mem::new(MemOptions::default()).expect("one descriptor for the waker")
    }
}

impl Transport for Mem {
    fn now(&mut self) -> Time {
        self.wire.now
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        _options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        self.wire.listen(at)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.wire.unlisten(listener);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        if options.unix.is_some() {
            return Err(NetError::from_errno(libc::EOPNOTSUPP));
        }
        self.wire.connect(to, options.from)
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        self.wire.local(conn)
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        loop {
            if self.wake.take() {
                events.push(Event::Woken);
            }
            self.wire.happen(events);
            if events.len() > before || until.is_some_and(|until| until <= self.wire.now) {
                return Ok(());
            }
            match (self.wire.next(), until) {
                (Some(next), until) if until.is_none_or(|until| next <= until) => self.wire.now = next,
                (_, Some(until)) if until != Time::NEVER => self.wire.now = until,
                _ if self.wake.wait(REAL_PATIENCE) => events.push(Event::Woken),
                _ => return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing is ever going to happen")),
            }
        }
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        self.wire.receive(data.conn, take)
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        self.hand_over(conn, bytes)
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.lent.add(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        let bytes = self.lent.range(lent, &range)?.to_vec();
        self.hand_over(conn, &bytes)
    }

    fn unsent(&self, conn: Conn) -> usize {
        self.wire.unsent(conn)
    }

    fn pause(&mut self, conn: Conn) {
        self.wire.pause(conn);
    }

    fn resume(&mut self, conn: Conn) {
        self.wire.resume(conn);
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        self.wire.set_low_water(conn, bytes);
    }

    fn close(&mut self, conn: Conn, how: Close) {
        self.wire.close(conn, how);
    }

    fn info(&mut self, _conn: Conn) -> Option<TcpInfo> {
        None
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn name(&self) -> &'static str {
        "mem"
    }
}

fn refused() -> NetError {
    NetError::of(NetErrorKind::Refused)
}

fn reset() -> NetError {
    NetError::of(NetErrorKind::Reset)
}
