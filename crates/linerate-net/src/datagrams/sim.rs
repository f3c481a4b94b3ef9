//! A network in memory and in virtual time: sockets here, scripted peers there.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use linerate_base::Random;

use super::{
    DatagramCounts, DatagramOptions, DatagramSocket, Datagrams, DatagramsAfter, DatagramsToSend,
    ReceivedDatagrams,
};
use crate::sys::EventFd;
use crate::table::Table;
use crate::{NetError, NetErrorKind, Time, Waker};

/// Sockets and datagrams under way, at most. Reason: a test that sends for ever has to fail.
const MOST: u32 = 1 << 16;

/// How long `turn` without a deadline waits, in real time, for a waker when nothing is ever going to
/// happen by itself. Reason: a test that waits for nothing has to fail, not to hang.
const REAL_PATIENCE: Duration = Duration::from_secs(5);

/// The first port that the network chooses by itself.
const FIRST_PORT: u16 = 32_768;

/// What the network does to datagrams, both ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathFaults {
    /// How long each is under way.
    pub delay: Duration,
    /// Delays differ by at most this, so that datagrams overtake each other.
    pub jitter: Duration,
    /// The share that is lost.
    pub loss: f64,
    /// The share that comes twice.
    pub duplicates: f64,
    /// The share that comes with the mark of congestion, if it left with ECN.
    pub marked: f64,
    /// The longest datagram that passes, bytes.
    pub most_bytes: usize,
}

impl Default for PathFaults {
    /// A clean path of 10 ms each way, for datagrams of an Ethernet without IPv4's and UDP's heads.
    fn default() -> PathFaults {
        PathFaults {
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicates: 0.0,
            marked: 0.0,
            most_bytes: 1472,
        }
    }
}

/// The other end of a [`SimDatagrams`]: takes datagrams and the time, and sends. Everything that it sends
/// leaves from the address that it serves.
pub trait DatagramPeer {
    /// A datagram came.
    fn receive(&mut self, now: Time, from: SocketAddr, ecn: u8, datagram: &[u8]);

    /// Time has passed or datagrams came: hands out what leaves now, each with its address and ECN.
    fn send(&mut self, now: Time, out: &mut dyn FnMut(SocketAddr, u8, &[u8]));

    /// When it needs to be asked again, if nothing comes before.
    fn deadline(&self) -> Option<Time>;
}

/// A datagram under way.
struct UnderWay {
    from: SocketAddr,
    to: SocketAddr,
    ecn: u8,
    bytes: Vec<u8>,
}

struct SimSocket {
    at: SocketAddr,
    peer: Option<SocketAddr>,
    came: Vec<UnderWay>,
    /// The peer's machine said that nothing listens there.
    refused: bool,
}

/// Datagrams in memory. With the same seed and the same calls everything is the same again.
pub struct SimDatagrams {
    now: Time,
    faults: PathFaults,
    random: Random,
    sockets: Table<SimSocket>,
    by_address: HashMap<SocketAddr, DatagramSocket>,
    peers: BTreeMap<SocketAddr, Box<dyn DatagramPeer>>,
    /// By arrival and number.
    under_way: BTreeMap<(Time, u64), UnderWay>,
    numbers: u64,
    next_port: u16,
    counts: DatagramCounts,
    wake: Arc<EventFd>,
}

impl SimDatagrams {
    /// A network.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new(faults: PathFaults, seed: u64) -> io::Result<SimDatagrams> {
        Ok(SimDatagrams {
            now: Time::ZERO,
            faults,
            random: Random::new(seed),
            sockets: Table::new(MOST),
            by_address: HashMap::new(),
            peers: BTreeMap::new(),
            under_way: BTreeMap::new(),
            numbers: 0,
            next_port: FIRST_PORT,
            counts: DatagramCounts::default(),
            wake: Arc::new(EventFd::new()?),
        })
    }

    /// A scripted peer is at this address from now on, in the place of any before.
    pub fn serve(&mut self, at: SocketAddr, peer: impl DatagramPeer + 'static) {
        self.peers.insert(at, Box::new(peer));
    }

    /// Nobody is at this address any more.
    pub fn end(&mut self, at: SocketAddr) {
        self.peers.remove(&at);
    }

    /// The path changes from now on.
    pub fn set_faults(&mut self, faults: PathFaults) {
        self.faults = faults;
    }

    /// A socket's address becomes another one, as behind a NAT that forgot it.
    pub fn rebind(&mut self, socket: DatagramSocket) {
        let port = self.port();
        let Some(held) = self.sockets.get_mut(socket.0) else { return };
        self.by_address.remove(&held.at);
        held.at.set_port(port);
        self.by_address.insert(held.at, socket);
    }

    fn port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    fn put(&mut self, datagram: UnderWay) {
        let PathFaults { delay, jitter, loss, duplicates, marked, most_bytes } = self.faults;
        if datagram.bytes.len() > most_bytes || self.under_way.len() >= MOST as usize {
            return;
        }
        let copies = u32::from(!self.random.happens(loss)) + u32::from(self.random.happens(duplicates));
        for _ in 0..copies {
            let at = self.now + delay + jitter.mul_f64(self.random.fraction());
            let is_marked = datagram.ecn != 0 && self.random.happens(marked);
            self.numbers += 1;
            let copy = UnderWay {
                ecn: if is_marked { 3 } else { datagram.ecn },
                bytes: datagram.bytes.clone(),
                ..datagram
            };
            self.under_way.insert((at, self.numbers), copy);
        }
    }

    /// Lets peers send.
    fn ask_peers(&mut self) {
        let mut sent = Vec::new();
        for (at, peer) in &mut self.peers {
            peer.send(self.now, &mut |to, ecn, bytes| {
                sent.push(UnderWay { from: *at, to, ecn, bytes: bytes.to_vec() });
            });
        }
        sent.into_iter().for_each(|datagram| self.put(datagram));
    }

    /// What has arrived by now is handed over.
    fn deliver(&mut self, ready: &mut Vec<DatagramSocket>) {
        while let Some(first) = self.under_way.first_entry().filter(|first| first.key().0 <= self.now) {
            let datagram = first.remove();
            if let Some(peer) = self.peers.get_mut(&datagram.to) {
                peer.receive(self.now, datagram.from, datagram.ecn, &datagram.bytes);
                continue;
            }
            // Nobody is there: the sender hears of it.
            let is_ours = self.by_address.contains_key(&datagram.to);
            let at = if is_ours { datagram.to } else { datagram.from };
            let Some(socket) = self.by_address.get(&at).copied() else { continue };
            let Some(held) = self.sockets.get_mut(socket.0) else { continue };
            match is_ours {
                true if held.peer.is_none_or(|peer| peer == datagram.from) => held.came.push(datagram),
                true => continue,
                false => held.refused = held.peer.is_some(),
            }
            if !ready.contains(&socket) {
                ready.push(socket);
            }
        }
    }
}

impl Datagrams for SimDatagrams {
    fn now(&mut self) -> Time {
        self.now
    }

    fn open(&mut self, options: &DatagramOptions) -> Result<(DatagramSocket, SocketAddr), NetError> {
        let mut at = options.at;
        if at.ip().is_unspecified() && at.is_ipv4() {
            at.set_ip(IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)));
        }
        if at.port() == 0 {
            at.set_port(self.port());
        }
        if self.by_address.contains_key(&at) {
            return Err(NetError::of(NetErrorKind::AddressInUse));
        }
        let held = SimSocket { at, peer: options.peer, came: Vec::new(), refused: false };
        let conn = self.sockets.insert(held).map_err(|_| NetError::of(NetErrorKind::NoMemory))?;
        self.by_address.insert(at, DatagramSocket(conn));
        Ok((DatagramSocket(conn), at))
    }

    fn close(&mut self, socket: DatagramSocket) {
        if let Some(held) = self.sockets.remove(socket.0) {
            self.by_address.remove(&held.at);
        }
    }

    fn turn(&mut self, until: Option<Time>, ready: &mut Vec<DatagramSocket>) -> io::Result<()> {
        let before = ready.len();
        loop {
            if self.wake.take() {
                return Ok(());
            }
            self.ask_peers();
            self.deliver(ready);
            self.ask_peers();
            if ready.len() > before || until.is_some_and(|until| until <= self.now) {
                return Ok(());
            }
            let timers = self.peers.values().filter_map(|peer| peer.deadline());
            let next = timers.chain(self.under_way.keys().next().map(|(at, _)| *at)).min();
            match (next, until.filter(|until| *until != Time::NEVER)) {
                (Some(next), until) if until.is_none_or(|until| next <= until) => {
                    self.now = self.now.max(next);
                }
                (_, Some(until)) => self.now = until,
                _ if self.wake.wait(REAL_PATIENCE) => return Ok(()),
                _ => return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing is ever going to happen")),
            }
        }
    }

    fn receive(
        &mut self,
        socket: DatagramSocket,
        mut take: impl FnMut(ReceivedDatagrams<'_>),
    ) -> DatagramsAfter {
        let Some(held) = self.sockets.get_mut(socket.0) else { return DatagramsAfter::Empty };
        for datagram in held.came.drain(..) {
            let UnderWay { from, to, ecn, bytes } = datagram;
            self.counts.receive_calls += 1;
            self.counts.received += 1;
            self.counts.marked += u64::from(ecn == 3);
            let (local, segment) = (Some(to.ip()), bytes.len().max(1));
            take(ReceivedDatagrams { peer: from, local, ecn, segment, bytes: &bytes });
        }
        if std::mem::take(&mut held.refused) {
            return DatagramsAfter::Failed(NetError::of(NetErrorKind::Refused));
        }
        DatagramsAfter::Empty
    }

    fn send(&mut self, socket: DatagramSocket, out: &DatagramsToSend<'_>) -> Result<(), NetError> {
        let Some(held) = self.sockets.get(socket.0) else { return Ok(()) };
        let (from, to) = (held.at, held.peer.unwrap_or(out.to));
        self.counts.send_calls += 1;
        for datagram in out.bytes.chunks(out.segment.max(1)) {
            self.counts.sent += 1;
            self.put(UnderWay { from, to, ecn: out.ecn, bytes: datagram.to_vec() });
        }
        Ok(())
    }

    fn counts(&self) -> DatagramCounts {
        self.counts
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}
