//! The ends of connections and what happens to them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use linerate_base::Random;

use super::options::{Cut, MemOptions};
use super::peer::{Accept, Action, Peer, PeerActions, PeerConn};
use super::{refused, reset};
use crate::closing::Closing;
use crate::sys::socket::unknown_address;
use crate::table::Table;
use crate::{After, Close, Conn, Data, Event, Listener, NetError, NetErrorKind, Time};

/// Whose end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    App,
    Peer { script: usize, number: PeerConn },
}

/// One end of a connection.
struct MemoryEnd {
    owner: Owner,
    /// Our address, as the other end sees it.
    name: SocketAddr,
    /// The other end; `None` while connecting.
    remote: Option<Conn>,
    /// The end that accepted the connection, while this end does not know yet.
    answered_by: Option<Conn>,
    /// It holds a local port (was asked for by the application).
    port: bool,
    outbox: VecDeque<u8>,
    /// Some of the outbox had to wait.
    waited: bool,
    /// Bytes the other end has not read yet, or that are in flight to it.
    in_flight: usize,
    inbox: VecDeque<Vec<u8>>,
    inbox_bytes: usize,
    low_water: usize,
    /// Bytes were left over by the last claim: they are reported whatever the mark is.
    left_over: bool,
    carried: u64,
    fin_in: bool,
    fin_out: bool,
    /// It sends nothing more: its FIN follows what is in the outbox.
    half_closed: bool,
    error: Option<NetError>,
    paused: bool,
    reported: bool,
    /// The end was handed over.
    ended: bool,
    closing: Option<Closing>,
    /// Bytes discarded since the application has closed it.
    discarded: u64,
}

impl MemoryEnd {
    fn new(owner: Owner, remote: Option<Conn>, name: SocketAddr) -> MemoryEnd {
        MemoryEnd {
            owner,
            name,
            remote,
            answered_by: None,
            port: false,
            outbox: VecDeque::new(),
            waited: false,
            in_flight: 0,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            low_water: 1,
            left_over: false,
            carried: 0,
            fin_in: false,
            fin_out: false,
            half_closed: false,
            error: None,
            paused: false,
            reported: false,
            ended: false,
            closing: None,
            discarded: 0,
        }
    }

    fn has_something(&self, window: usize) -> bool {
        // A mark the window cannot reach would never be passed.
        let mark = if self.left_over { 1 } else { self.low_water.min(window) };
        self.inbox_bytes >= mark || (self.fin_in && !self.ended) || self.error.is_some()
    }
}

/// A scheduled event, and the end it concerns.
#[derive(Debug)]
enum Happening {
    /// A connection request arrives.
    Syn {
        from: Conn,
        to: SocketAddr,
    },
    /// The other side took it.
    Established {
        end: Conn,
    },
    Refused {
        end: Conn,
    },
    Bytes {
        end: Conn,
        from: Option<Conn>,
        bytes: Vec<u8>,
    },
    Fin {
        end: Conn,
    },
    Rst {
        end: Conn,
    },
    /// The other end has read this many bytes.
    Window {
        end: Conn,
        bytes: usize,
    },
    /// Something waits to be reported or handled.
    Look {
        end: Conn,
    },
    /// A closing end has waited long enough.
    Overdue {
        end: Conn,
        what: Closing,
    },
    /// A peer does what it said.
    Acts {
        number: PeerConn,
        action: Action,
    },
}

struct Scheduled {
    at: Time,
    /// Events scheduled for the same moment happen in the order of scheduling.
    sequence: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[derive(Clone, Copy)]
enum Answers {
    App(Listener),
    Script(usize),
}

pub(super) struct MemoryWire {
    pub(super) now: Time,
    pub(super) options: MemOptions,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    ends: Table<MemoryEnd>,
    addresses: Vec<(SocketAddr, Answers)>,
    listeners: u32,
    scripts: Vec<Option<Box<dyn Peer>>>,
    /// The ends of scripted connections, by number.
    numbers: Vec<Conn>,
    random: Random,
    /// Connections asked for that came through.
    asked: u64,
    ports_used: u32,
    next_port: u16,
}

impl MemoryWire {
    pub(super) fn new(options: MemOptions) -> MemoryWire {
        MemoryWire {
            now: Time::ZERO,
            queue: BinaryHeap::new(),
            sequence: 0,
            // Both ends of a connection may be here.
            ends: Table::new(options.limits.connections.saturating_mul(2)),
            addresses: Vec::new(),
            listeners: 0,
            scripts: Vec::new(),
            numbers: Vec::new(),
            random: Random::new(options.seed),
            asked: 0,
            ports_used: 0,
            next_port: 40_000,
            options,
        }
    }

    fn schedule(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled { at, sequence: self.sequence, what }));
    }

    fn travel(&mut self, what: Happening) {
        self.schedule(self.now + self.options.latency, what);
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse(s)| s.at)
    }

    /// Lets everything happen whose time has come.
    pub(super) fn happen(&mut self, events: &mut Vec<Event>) {
        // An event may cause more for this moment; those are for the next turn once there is something to report.
        let last = self.sequence;
        while let Some(Reverse(first)) = self.queue.peek()
            && first.at <= self.now
            && (first.sequence <= last || events.is_empty())
        {
            let Some(Reverse(first)) = self.queue.pop() else { return };
            self.handle(first.what, events);
        }
    }

    // Handling of events.

    fn handle(&mut self, what: Happening, events: &mut Vec<Event>) {
        match what {
            Happening::Syn { from, to } => self.on_syn(from, to, events),
            Happening::Established { end } => self.on_established(end, events),
            Happening::Refused { end } => self.on_failed(end, refused(), events),
            Happening::Bytes { end, from, bytes } => self.on_bytes(end, from, bytes, events),
            Happening::Fin { end } => {
                if let Some(e) = self.ends.get_mut(end) {
                    e.fin_in = true;
                    self.look(end, events);
                }
            }
            Happening::Rst { end } => self.on_failed(end, reset(), events),
            Happening::Window { end, bytes } => {
                if let Some(e) = self.ends.get_mut(end) {
                    e.in_flight -= bytes;
                    self.pump(end, events);
                }
            }
            Happening::Look { end } => self.look(end, events),
            Happening::Overdue { end, what } => {
                if self.ends.get(end).is_some_and(|e| e.closing == Some(what)) {
                    self.finish(end);
                }
            }
            Happening::Acts { number, action } => self.act(number, action, events),
        }
    }

    fn on_syn(&mut self, from: Conn, to: SocketAddr, events: &mut Vec<Event>) {
        let Some(asking) = self.ends.get(from) else { return };
        let asker = asking.name;
        let answers = self
            .addresses
            .iter()
            .find(|(at, _)| at.port() == to.port() && (at.ip() == to.ip() || at.ip().is_unspecified()));
        self.asked += 1;
        let refuse_every = self.options.refuse_every;
        let refuse = refuse_every.is_some_and(|n| self.asked.is_multiple_of(n.max(1)));
        let Some(&(_, answers)) = answers.filter(|_| !refuse) else {
            return self.travel(Happening::Refused { end: from });
        };
        match answers {
            Answers::App(listener) => {
                let Some(conn) = self.establish(from, Owner::App, self.now) else { return };
                events.push(Event::Accepted { listener, conn, peer: asker });
            }
            Answers::Script(script) => {
                let now = self.now;
                let accept = self.scripts[script].as_mut().map_or(Accept::Refuse, |peer| peer.accept(now));
                let at = match accept {
                    Accept::Now => now,
                    Accept::After(delay) => now + delay,
                    Accept::Refuse => return self.travel(Happening::Refused { end: from }),
                    Accept::Ignore => return,
                };
                let owner = self.peer_owner(script);
                if let Some(end) = self.establish(from, owner, at) {
                    self.numbers.push(end);
                    self.schedule(at, Happening::Established { end });
                }
            }
        }
    }

    /// The end that accepts `from`, which learns of it at `at` plus the latency.
    fn establish(&mut self, from: Conn, owner: Owner, at: Time) -> Option<Conn> {
        match self.ends.insert(MemoryEnd::new(owner, Some(from), unknown_address())) {
            Ok(end) => {
                if let Some(asking) = self.ends.get_mut(from) {
                    asking.answered_by = Some(end);
                }
                self.schedule(at + self.options.latency, Happening::Established { end: from });
                Some(end)
            }
            Err(_) => {
                self.travel(Happening::Refused { end: from });
                None
            }
        }
    }

    fn on_established(&mut self, end: Conn, events: &mut Vec<Event>) {
        let Some(e) = self.ends.get_mut(end) else { return };
        if let Some(remote) = e.answered_by.take() {
            e.remote = Some(remote);
        }
        match e.owner {
            Owner::App => events.push(Event::connected(end, self.now)),
            Owner::Peer { script, number } => {
                self.call(script, events, |peer, now, out| peer.connected(now, number, out));
            }
        }
        self.pump(end, events);
        self.look(end, events);
    }

    fn on_failed(&mut self, end: Conn, error: NetError, events: &mut Vec<Event>) {
        let Some(e) = self.ends.get_mut(end) else { return };
        e.error = Some(error);
        e.outbox.clear();
        let connecting = e.remote.is_none();
        match e.owner {
            _ if e.closing.is_some() => self.finish(end),
            Owner::App if connecting || e.paused => events.push(Event::Failed { conn: end, error }),
            Owner::App => self.look(end, events),
            Owner::Peer { script, number } => {
                self.call(script, events, |peer, now, out| peer.failed(now, number, out));
                self.remove(end);
            }
        }
    }

    fn on_bytes(&mut self, end: Conn, from: Option<Conn>, bytes: Vec<u8>, events: &mut Vec<Event>) {
        let reset_after = self.options.reset_after_bytes;
        let discards = |what| what != Closing::Flush;
        let Some(e) = self.ends.get_mut(end).filter(|e| e.closing.is_none_or(discards) && e.error.is_none())
        else {
            // No end is there to take them.
            if let Some(from) = from {
                self.travel(Happening::Rst { end: from });
            }
            return;
        };
        let count = bytes.len();
        e.carried += count as u64;
        let too_much = reset_after.is_some_and(|limit| e.carried > limit);
        if e.closing.is_some() && e.discarded < self.options.limits.closing_bytes {
            e.discarded += count as u64;
            return self.give_room(end, count);
        }
        e.inbox_bytes += count;
        e.inbox.push_back(bytes);
        if too_much {
            self.schedule(self.now, Happening::Rst { end });
            if let Some(from) = from {
                self.travel(Happening::Rst { end: from });
            }
        }
        self.look(end, events);
    }

    /// Tells the other end that `bytes` were read.
    fn give_room(&mut self, end: Conn, bytes: usize) {
        if let Some(remote) = self.ends.get(end).and_then(|e| e.remote) {
            self.travel(Happening::Window { end: remote, bytes });
        }
    }

    /// Reports or handles what waits at an end.
    fn look(&mut self, end: Conn, events: &mut Vec<Event>) {
        let window = self.options.window.max(1);
        let Some(e) = self.ends.get_mut(end) else { return };
        match e.owner {
            _ if e.closing.is_some() => {
                let waits = matches!(e.closing, Some(Closing::Linger | Closing::AfterPeer));
                if e.error.is_some() || (waits && e.fin_in) {
                    self.finish(end);
                }
            }
            Owner::App if e.has_something(window) && !e.paused && !e.reported && e.remote.is_some() => {
                e.reported = true;
                events.push(Event::Readable { conn: end, data: Data { conn: end, token: 0 } });
            }
            Owner::App => {}
            Owner::Peer { script, number } => self.feed(end, script, number, events),
        }
    }

    /// Gives a peer what came for it.
    fn feed(&mut self, end: Conn, script: usize, number: PeerConn, events: &mut Vec<Event>) {
        while let Some(e) = self.ends.get_mut(end).filter(|e| !e.paused)
            && let Some(whole) = e.inbox.pop_front()
        {
            e.inbox_bytes -= whole.len();
            self.give_room(end, whole.len());
            for piece in self.pieces(&whole) {
                self.call(script, events, |peer, now, out| peer.received(now, number, piece, out));
            }
        }
        let Some(e) = self.ends.get_mut(end).filter(|e| !e.paused && e.fin_in && !e.ended) else { return };
        e.ended = true;
        self.call(script, events, |peer, now, out| peer.ended(now, number, out));
    }

    /// Cuts as the options say.
    fn pieces<'a>(&mut self, mut whole: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !whole.is_empty() {
            let (piece, rest) = whole.split_at(self.piece_len(whole.len()));
            pieces.push(piece);
            whole = rest;
        }
        pieces
    }

    fn piece_len(&mut self, whole: usize) -> usize {
        match self.options.cut {
            Cut::Whole => whole,
            Cut::Every(n) => n.clamp(1, whole),
            Cut::Random(most) => (1 + self.random.below(most as u64) as usize).min(whole),
        }
    }

    // Actions of peers.

    fn peer_owner(&self, script: usize) -> Owner {
        Owner::Peer { script, number: PeerConn(self.numbers.len() as u64) }
    }

    fn call(
        &mut self,
        script: usize,
        events: &mut Vec<Event>,
        f: impl FnOnce(&mut dyn Peer, Time, &mut PeerActions),
    ) {
        let mut out = PeerActions::default();
        // Taken out while it is called, so that nothing it causes can call it again meanwhile.
        let Some(mut peer) = self.scripts[script].take() else { return };
        f(&mut *peer, self.now, &mut out);
        self.scripts[script] = Some(peer);
        for (after, number, action) in out.list {
            if after.is_zero() {
                self.act(number, action, events);
            } else {
                self.schedule(self.now + after, Happening::Acts { number, action });
            }
        }
    }

    fn act(&mut self, number: PeerConn, action: Action, events: &mut Vec<Event>) {
        let Some(&end) = self.numbers.get(number.0 as usize) else { return };
        let Some(e) = self.ends.get_mut(end).filter(|e| e.closing.is_none()) else { return };
        let Owner::Peer { script, .. } = e.owner else { return };
        match action {
            Action::Send(bytes) => {
                e.outbox.extend(bytes);
                self.pump(end, events);
            }
            Action::End => {
                e.half_closed = true;
                self.pump(end, events);
            }
            Action::Close => self.close(end, Close::Now),
            Action::Reset => self.close(end, Close::Abort),
            Action::Pause => e.paused = true,
            Action::Resume => {
                e.paused = false;
                self.schedule(self.now, Happening::Look { end });
            }
            Action::Call => self.call(script, events, |peer, now, out| peer.called(now, number, out)),
        }
    }

    // Sending.

    /// Sends what the window allows.
    fn pump(&mut self, end: Conn, events: &mut Vec<Event>) {
        let window = self.options.window.max(1);
        let Some(e) = self.ends.get_mut(end) else { return };
        let Some(remote) = e.remote else { return };
        let count = e.outbox.len().min(window.saturating_sub(e.in_flight));
        if count > 0 {
            e.in_flight += count;
            let bytes = take_first(&mut e.outbox, count);
            self.travel(Happening::Bytes { end: remote, from: Some(end), bytes });
        }
        let Some(e) = self.ends.get_mut(end).filter(|e| e.outbox.is_empty()) else { return };
        if mem::take(&mut e.waited) && e.owner == Owner::App && e.closing.is_none() {
            events.push(Event::Drained { conn: end });
        }
        match e.closing {
            None if e.half_closed => self.send_fin(end),
            Some(Closing::Flush) => self.finish(end),
            Some(what) if what.is_flush() => self.begin_closing(end, what.after_flush().unwrap_or(what)),
            _ => {}
        }
    }

    fn send_fin(&mut self, end: Conn) {
        let Some(e) = self.ends.get_mut(end) else { return };
        if let Some(remote) = e.remote
            && !mem::replace(&mut e.fin_out, true)
        {
            self.travel(Happening::Fin { end: remote });
        }
    }

    fn begin_closing(&mut self, end: Conn, what: Closing) {
        if let Some(e) = self.ends.get_mut(end) {
            e.closing = Some(what);
        }
        if what != Closing::Flush {
            self.discard(end);
        }
        if what == Closing::Linger {
            self.send_fin(end);
        }
        let limits = &self.options.limits;
        let patience = if what.is_flush() { limits.flush_time } else { limits.closing_time };
        self.schedule(self.now + patience, Happening::Overdue { end, what });
        self.schedule(self.now, Happening::Look { end });
    }

    fn discard(&mut self, end: Conn) {
        if let Some(e) = self.ends.get_mut(end) {
            e.inbox.clear();
            let bytes = mem::take(&mut e.inbox_bytes);
            self.give_room(end, bytes);
        }
    }

    /// `close(2)`: FIN, or RST when bytes were not read.
    fn finish(&mut self, end: Conn) {
        let Some(e) = self.ends.get(end) else { return };
        match e.remote {
            Some(remote) if e.inbox_bytes > 0 => self.travel(Happening::Rst { end: remote }),
            _ => self.send_fin(end),
        }
        self.remove(end);
    }

    fn remove(&mut self, end: Conn) {
        if self.ends.remove(end).is_some_and(|e| e.port) {
            self.ports_used -= 1;
        }
    }

    // Calls of the application, or of a peer.

    pub(super) fn serve(&mut self, at: SocketAddr, peer: Box<dyn Peer>) -> Result<(), NetError> {
        if self.addresses.iter().any(|(taken, _)| *taken == at) {
            return Err(NetError::of(NetErrorKind::AddressInUse));
        }
        self.scripts.push(Some(peer));
        self.addresses.push((at, Answers::Script(self.scripts.len() - 1)));
        Ok(())
    }

    pub(super) fn dial(&mut self, to: SocketAddr, peer: Box<dyn Peer>) -> PeerConn {
        self.scripts.push(Some(peer));
        let owner = self.peer_owner(self.scripts.len() - 1);
        let number = PeerConn(self.numbers.len() as u64);
        let name = self.local_name(to, None);
        if let Ok(end) = self.ends.insert(MemoryEnd::new(owner, None, name)) {
            self.numbers.push(end);
            self.travel(Happening::Syn { from: end, to });
        }
        number
    }

    pub(super) fn listen(&mut self, mut at: SocketAddr) -> Result<(Listener, SocketAddr), NetError> {
        if at.port() == 0 {
            self.next_port += 1;
            at.set_port(self.next_port);
        }
        if self.addresses.iter().any(|(taken, _)| *taken == at) {
            return Err(NetError::of(NetErrorKind::AddressInUse));
        }
        let listener = Listener(self.listeners);
        self.listeners += 1;
        self.addresses.push((at, Answers::App(listener)));
        Ok((listener, at))
    }

    pub(super) fn unlisten(&mut self, listener: Listener) {
        self.addresses.retain(|(_, answers)| !matches!(answers, Answers::App(l) if *l == listener));
    }

    fn local_name(&mut self, to: SocketAddr, from: Option<IpAddr>) -> SocketAddr {
        let any = if to.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        self.next_port = if self.next_port == u16::MAX { 40_000 } else { self.next_port + 1 };
        SocketAddr::new(from.unwrap_or(any), self.next_port)
    }

    pub(super) fn connect(&mut self, to: SocketAddr, from: Option<IpAddr>) -> Result<Conn, NetError> {
        if self.options.ports.is_some_and(|ports| self.ports_used >= ports) {
            return Err(NetError::of(NetErrorKind::PortsExhausted));
        }
        let name = self.local_name(to, from);
        let end = MemoryEnd { port: true, ..MemoryEnd::new(Owner::App, None, name) };
        let conn = self.ends.insert(end).map_err(|_| NetError::of(NetErrorKind::NoMemory))?;
        self.ports_used += 1;
        self.travel(Happening::Syn { from: conn, to });
        Ok(conn)
    }

    /// An end the application holds.
    fn live(&mut self, conn: Conn) -> Option<&mut MemoryEnd> {
        self.ends.get_mut(conn).filter(|e| e.owner == Owner::App && e.closing.is_none())
    }

    pub(super) fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        Some(self.live(conn)?.name)
    }

    pub(super) fn is_live(&mut self, conn: Conn) -> bool {
        self.live(conn).is_some()
    }

    pub(super) fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        let (limit, window) = (self.options.limits.unsent_bytes, self.options.window.max(1));
        let Some(e) = self.live(conn) else { return Ok(()) };
        match e.error {
            // The failure of a connection that we opened is reported by its event.
            Some(_) if e.remote.is_none() => return Ok(()),
            Some(error) => return Err(error),
            None => {}
        }
        if e.outbox.len() + bytes.len() > limit {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        e.outbox.extend(bytes);
        // Bytes that fit the window leave at once, so there is nothing to report: no event can come of this.
        e.waited |= e.remote.is_none() || e.outbox.len() > window.saturating_sub(e.in_flight);
        self.pump(conn, &mut Vec::new());
        Ok(())
    }

    pub(super) fn receive(&mut self, conn: Conn, mut take: impl FnMut(&mut [u8])) -> After {
        let random_share = matches!(self.options.cut, Cut::Random(_));
        let Some(e) = self.live(conn) else { return After::Gone };
        e.reported = false;
        if e.paused {
            return After::Open;
        }
        let mut inbox = e.inbox.pop_front().unwrap_or_default();
        e.inbox.drain(..).for_each(|more| inbox.extend_from_slice(&more));
        let most = inbox.len();
        let share = if random_share { (1 + self.random.below(most as u64) as usize).min(most) } else { most };
        let rest = inbox.split_off(share);
        let mut from = 0;
        while from < inbox.len() {
            let len = self.piece_len(inbox.len() - from);
            take(&mut inbox[from..from + len]);
            from += len;
        }
        let Some(e) = self.live(conn) else { return After::Gone };
        e.inbox_bytes = rest.len();
        e.left_over = !rest.is_empty();
        let (error, ended, more) = (e.error, e.fin_in, !rest.is_empty());
        if more {
            e.inbox.push_back(rest);
            self.schedule(self.now, Happening::Look { end: conn });
        }
        if share > 0 {
            self.give_room(conn, share);
        }
        match error {
            _ if more => After::Open,
            Some(error) => After::Failed(error),
            None if ended => {
                if let Some(e) = self.live(conn) {
                    e.ended = true;
                }
                After::Ended
            }
            None => After::Open,
        }
    }

    pub(super) fn unsent(&self, conn: Conn) -> usize {
        self.ends.get(conn).filter(|e| e.closing.is_none()).map_or(0, |e| e.outbox.len())
    }

    pub(super) fn pause(&mut self, conn: Conn) {
        if let Some(e) = self.live(conn) {
            e.paused = true;
        }
    }

    pub(super) fn resume(&mut self, conn: Conn) {
        if let Some(e) = self.live(conn) {
            e.paused = false;
            self.schedule(self.now, Happening::Look { end: conn });
        }
    }

    pub(super) fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        if let Some(e) = self.live(conn) {
            e.low_water = bytes.max(1);
            self.schedule(self.now, Happening::Look { end: conn });
        }
    }

    /// Closes an end of the application's or of a peer's.
    pub(super) fn close(&mut self, end: Conn, how: Close) {
        let Some(e) = self.ends.get_mut(end).filter(|e| e.closing.is_none()) else { return };
        let given_up = e.remote.is_none() || e.error.is_some();
        match how {
            Close::Abort => {
                if let Some(remote) = e.remote.or(e.answered_by) {
                    self.travel(Happening::Rst { end: remote });
                }
                self.remove(end);
            }
            _ if given_up => {
                if let Some(remote) = e.answered_by {
                    self.travel(Happening::Fin { end: remote });
                }
                self.finish(end);
            }
            _ => match Closing::first(how, e.outbox.is_empty(), e.ended, e.fin_in) {
                Some(state) => self.begin_closing(end, state),
                None => self.finish(end),
            },
        }
    }
}

/// The first bytes of a queue, as pieces and not one by one.
fn take_first(queue: &mut VecDeque<u8>, count: usize) -> Vec<u8> {
    let (front, back) = queue.as_slices();
    let from_front = count.min(front.len());
    let mut bytes = Vec::with_capacity(count);
    bytes.extend_from_slice(&front[..from_front]);
    bytes.extend_from_slice(&back[..count - from_front]);
    queue.drain(..count);
    bytes
}
