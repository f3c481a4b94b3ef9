//! One transport, two users in one thread: its owner waits for events, a guest uses it between the owner's turns.
//!
//! A server that calls other servers needs no second event loop for that. [`share`] splits a transport into the [`Owner`]'s
//! part and the [`Guest`]'s. Both are transports. Each sees the events of its own connections alone. Only the owner waits:
//!
//! 1. The guest's [`CompanionStep`] handles the events of the last turn, and says by its [`Rest`] when it wants another step though
//!    nothing happens.
//! 2. [`Owner::turn`](Transport::turn) waits, for the guest's events and its [`Bell`] too.
//!
//! The guest steps before each of the owner's turns, because a claim on received bytes ends with the next turn. A guest
//! opens connections; it does not listen. Its connections have slots of their own: they stay few though the owner has many
//! connections.
//!
//! [`divide`] makes any number of equal parts that only open connections.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use bytes::Bytes;

use crate::table::Table;
use crate::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, FlowInfo, Lent, ListenOptions, Listener,
    NetError, Profile, ReceivedPiece, TcpInfo, TcpTotals, Time, Transport, Waker,
};

/// Something that works in a thread beside the owner of its transport.
pub trait Companion {
    /// The owner's part of the transport.
    type Owned<T: Transport>: Transport;
    /// The companion, with its part of the transport.
    type Running<T: Transport>: CompanionStep;

    /// Takes its part of a transport.
    fn join<T: Transport>(self, transport: T) -> (Self::Owned<T>, Self::Running<T>);
}

/// A companion that runs.
pub trait CompanionStep {
    /// Does what there is to do without waiting. Call it before each turn of the owner.
    ///
    /// # Errors
    /// The transport is broken.
    fn step(&mut self) -> io::Result<()>;
}

/// No companion: the transport is the owner's alone.
impl Companion for () {
    type Owned<T: Transport> = T;
    type Running<T: Transport> = ();

    fn join<T: Transport>(self, transport: T) -> (T, ()) {
        (transport, ())
    }
}

impl CompanionStep for () {
    fn step(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Wakes a thread that waits in a transport. While it does not wait there, ringing costs no system call.
#[derive(Debug)]
pub struct Bell {
    has_rung: AtomicBool,
    waits: AtomicBool,
    transport: Waker,
}

impl Bell {
    /// The bell of a thread that waits in the transport of this waker. It has rung already.
    pub fn new(transport: Waker) -> Bell {
        Bell { has_rung: AtomicBool::new(true), waits: AtomicBool::new(false), transport }
    }

    /// Rings.
    pub fn ring(&self) {
        self.has_rung.store(true, Ordering::SeqCst);
        if self.waits.swap(false, Ordering::SeqCst) {
            self.transport.wake();
        }
    }

    /// Whether it has rung since the last call.
    pub fn take(&self) -> bool {
        self.has_rung.swap(false, Ordering::SeqCst)
    }

    /// Whether it has rung since the last [`take`](Bell::take).
    pub fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::SeqCst)
    }

    /// The thread is about to wait; says whether it may, because the bell has not rung.
    pub fn begin_wait(&self) -> bool {
        self.waits.store(true, Ordering::SeqCst);
        if self.has_rung() {
            self.waits.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// The thread waits no more.
    pub fn end_wait(&self) {
        self.waits.store(false, Ordering::SeqCst);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// No transport has this connection.
const NOBODY: Conn = Conn { slot: u32::MAX, generation: u32::MAX };

struct ShareState<T> {
    transport: T,
    /// The guest's open connections as the guest knows them, with the transport's.
    guests: Table<Conn>,
    /// The other way, by the transport's slot.
    by_slot: Vec<Option<Conn>>,
    /// The guest's events of the last turn.
    events: Vec<Event>,
}

impl<T> ShareState<T> {
    /// The transport's connection, for one of the owner's.
    fn of_owner(&self, conn: Conn) -> Conn {
        conn
    }

    /// The transport's connection, for one of the guest's.
    fn of_guest(&self, conn: Conn) -> Conn {
        self.guests.get(conn).copied().unwrap_or(NOBODY)
    }

    /// The guest's connection, if this one of the transport's is the guest's.
    fn guests(&self, conn: Conn) -> Option<Conn> {
        let guests = (*self.by_slot.get(conn.slot())?)?;
        (self.guests.get(guests) == Some(&conn)).then_some(guests)
    }

    fn opened(&mut self, conn: Conn) -> Option<Conn> {
        let guests = self.guests.insert(conn).ok()?;
        let slot = conn.slot();
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(guests);
        Some(guests)
    }

    /// Forgets one of the guest's.
    fn closed(&mut self, guests: Conn) {
        if let Some(conn) = self.guests.remove(guests) {
            self.by_slot[conn.slot()] = None;
        }
    }

    /// The guest's event, or the owner's.
    fn sort(&self, event: Event) -> Result<Event, Event> {
        let conn = match &event {
            Event::Accepted { .. } | Event::Woken => return Err(event),
            Event::Readable { conn, .. }
            | Event::Connected { conn, .. }
            | Event::Drained { conn }
            | Event::Failed { conn, .. } => *conn,
        };
        let Some(conn) = self.guests(conn) else { return Err(event) };
        Ok(match event {
            Event::Readable { data, .. } => Event::Readable { conn, data: Data { conn, ..data } },
            Event::Connected { at, tcp_at, .. } => Event::Connected { conn, at, tcp_at },
            Event::Failed { error, .. } => Event::Failed { conn, error },
            _ => Event::Drained { conn },
        })
    }
}

/// State that the two share.
#[derive(Debug)]
struct Between {
    /// When the guest wants its next step.
    until: Cell<Time>,
    has_events: Cell<bool>,
    /// The guest is dropped: its bell has no listener.
    is_gone: Cell<bool>,
    bell: Arc<Bell>,
}

/// The owner's part: all listeners, and the connections that are accepted. Its turns wait for the guest too.
pub struct Owner<T> {
    state: Rc<RefCell<ShareState<T>>>,
    between: Rc<Between>,
    told: Vec<Event>,
}

/// The guest's part: the connections that it opens. Its turns never wait, and return the events of the owner's last one.
///
/// Dropping it closes its connections.
pub struct Guest<T: Transport> {
    state: Rc<RefCell<ShareState<T>>>,
    between: Rc<Between>,
}

/// When a guest steps again.
#[derive(Clone, Debug)]
pub struct Rest(Rc<Between>);

impl Rest {
    /// The next step is due then, or earlier if something happens.
    pub fn until(&self, until: Time) {
        self.0.until.set(until);
    }

    /// When the next step is due though nothing happens.
    pub fn next(&self) -> Time {
        self.0.until.get()
    }

    /// Whether the last turn of the owner brought something for the guest.
    pub fn has_events(&self) -> bool {
        self.0.has_events.get()
    }

    /// The bell that ends the owner's wait.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.0.bell
    }
}

/// Splits a transport between an owner and a guest in the same thread.
pub fn share<T: Transport>(transport: T) -> (Owner<T>, Guest<T>) {
    let bell = Arc::new(Bell::new(transport.waker()));
    let between = Between {
        until: Cell::new(Time::ZERO),
        has_events: Cell::new(false),
        is_gone: Cell::new(false),
        bell,
    };
    let between = Rc::new(between);
    let guests = Table::new(u32::MAX);
    let state = ShareState { transport, guests, by_slot: Vec::new(), events: Vec::new() };
    let state = Rc::new(RefCell::new(state));
    let owner = Owner { state: Rc::clone(&state), between: Rc::clone(&between), told: Vec::new() };
    (owner, Guest { state, between })
}

impl<T: Transport> Drop for Guest<T> {
    fn drop(&mut self) {
        let state = &mut *self.state.borrow_mut();
        for guests in state.guests.conns() {
            state.transport.close(state.of_guest(guests), Close::Now);
            state.closed(guests);
        }
        state.events.clear();
        self.between.has_events.set(false);
        self.between.is_gone.set(true);
    }
}

impl<T: Transport> Guest<T> {
    /// By which it says when it steps again.
    pub fn rest(&self) -> Rest {
        Rest(Rc::clone(&self.between))
    }
}

/// The methods that do the same for both; `$of`: from their connections to the transport's.
macro_rules! passed_on {
    ($of:ident) => {
        fn now(&mut self) -> Time {
            self.state.borrow_mut().transport.now()
        }

        fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
            let state = &mut *self.state.borrow_mut();
            state.transport.local(state.$of(conn))
        }

        fn received_by(turn: Time) -> Time {
            T::received_by(turn)
        }

        fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
            let state = &mut *self.state.borrow_mut();
            state.transport.receive(Data { conn: state.$of(data.conn), ..data }, take)
        }

        fn receive_or_discard(&mut self, data: Data, take: impl FnMut(ReceivedPiece<'_>) -> Ahead) -> After {
            let state = &mut *self.state.borrow_mut();
            state.transport.receive_or_discard(Data { conn: state.$of(data.conn), ..data }, take)
        }

        fn unread(&mut self, conn: Conn) -> Option<Data> {
            let state = &mut *self.state.borrow_mut();
            Some(Data { conn, ..state.transport.unread(state.$of(conn))? })
        }

        fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
            let state = &mut *self.state.borrow_mut();
            state.transport.send(state.$of(conn), bytes)
        }

        fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
            let state = &mut *self.state.borrow_mut();
            state.transport.send_shared(state.$of(conn), bytes)
        }

        fn gathers(&self) -> bool {
            self.state.borrow().transport.gathers()
        }

        fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
            self.state.borrow_mut().transport.lend(bytes)
        }

        fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
            let state = &mut *self.state.borrow_mut();
            state.transport.send_lent(state.$of(conn), lent, range)
        }

        fn send_file(
            &mut self,
            conn: Conn,
            head: &[u8],
            file: &Arc<File>,
            range: Range<u64>,
        ) -> Result<(), NetError> {
            let state = &mut *self.state.borrow_mut();
            state.transport.send_file(state.$of(conn), head, file, range)
        }

        fn sends_files(&self) -> bool {
            self.state.borrow().transport.sends_files()
        }

        fn unsent(&self, conn: Conn) -> usize {
            let state = self.state.borrow();
            state.transport.unsent(state.$of(conn))
        }

        fn pause(&mut self, conn: Conn) {
            let state = &mut *self.state.borrow_mut();
            state.transport.pause(state.$of(conn));
        }

        fn resume(&mut self, conn: Conn) {
            let state = &mut *self.state.borrow_mut();
            state.transport.resume(state.$of(conn));
        }

        fn set_low_water(&mut self, conn: Conn, bytes: usize) {
            let state = &mut *self.state.borrow_mut();
            state.transport.set_low_water(state.$of(conn), bytes);
        }

        fn reason(&self, conn: Conn) -> Option<String> {
            let state = self.state.borrow();
            state.transport.reason(state.$of(conn))
        }

        fn about(&self, conn: Conn) -> Option<Arc<dyn Any + Send + Sync>> {
            let state = self.state.borrow();
            state.transport.about(state.$of(conn))
        }

        fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
            let state = &mut *self.state.borrow_mut();
            state.transport.info(state.$of(conn))
        }

        fn watch(&mut self, descriptor: OwnedFd) -> Result<(), NetError> {
            self.state.borrow_mut().transport.watch(descriptor)
        }

        fn waker(&self) -> Waker {
            self.state.borrow().transport.waker()
        }

        fn totals(&self) -> Option<TcpTotals> {
            self.state.borrow().transport.totals()
        }

        fn name(&self) -> &'static str {
            self.state.borrow().transport.name()
        }
    };
}

mod parts;
pub use parts::{Part, divide};

impl<T: Transport> Owner<T> {
    /// The transport itself, for tests that script it.
    pub fn transport<R>(&mut self, does: impl FnOnce(&mut T) -> R) -> R {
        does(&mut self.state.borrow_mut().transport)
    }
}

impl<T: Transport> Transport for Owner<T> {
    passed_on!(of_owner);

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        self.state.borrow_mut().transport.listen(at, options)
    }

    fn adopt(&mut self, socket: OwnedFd) -> Result<Listener, NetError> {
        self.state.borrow_mut().transport.adopt(socket)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.state.borrow_mut().transport.unlisten(listener);
    }

    fn refuse_new(&mut self, listener: Listener) -> bool {
        self.state.borrow_mut().transport.refuse_new(listener)
    }

    fn set_defer(&mut self, listener: Listener, defer: Option<Duration>) {
        self.state.borrow_mut().transport.set_defer(listener, defer);
    }

    fn set_profile(&mut self, listener: Listener, profile: Profile) {
        self.state.borrow_mut().transport.set_profile(listener, profile);
    }

    fn accept_trouble(&self) -> Option<NetError> {
        self.state.borrow().transport.accept_trouble()
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        self.state.borrow_mut().transport.connect(to, options)
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        debug_assert!(state.events.is_empty(), "the guest steps before each turn");
        state.events.clear();
        if self.between.is_gone.get() {
            return state.transport.turn(until, events);
        }
        let next = self.between.until.get();
        let until = until.into_iter().chain((next != Time::NEVER).then_some(next)).min();
        let until = if self.between.bell.begin_wait() { until } else { Some(Time::ZERO) };
        let turned = state.transport.turn(until, &mut self.told);
        self.between.bell.end_wait();
        for event in self.told.drain(..) {
            match state.sort(event) {
                Ok(event) => state.events.push(event),
                Err(event) => events.push(event),
            }
        }
        self.between.has_events.set(!state.events.is_empty());
        turned
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        self.state.borrow_mut().transport.send_last(conn, bytes, how)
    }

    fn close(&mut self, conn: Conn, how: Close) {
        self.state.borrow_mut().transport.close(conn, how);
    }

    /// Without the guest's connections: a server that ends does not wait for them.
    fn unfinished(&self) -> usize {
        let state = self.state.borrow();
        state.transport.unfinished().saturating_sub(state.guests.len())
    }

    fn half_closed(&self) -> usize {
        self.state.borrow().transport.half_closed()
    }

    fn reset_closed(&mut self, most: usize) -> usize {
        self.state.borrow_mut().transport.reset_closed(most)
    }

    fn news(&mut self) -> Option<String> {
        self.state.borrow_mut().transport.news()
    }

    fn flows(&self, from: usize, most: usize, each: impl FnMut(FlowInfo)) -> Option<usize> {
        self.state.borrow().transport.flows(from, most, each)
    }
}

impl<T: Transport> Transport for Guest<T> {
    passed_on!(of_guest);

    /// Fails: the owner listens.
    fn listen(&mut self, _: SocketAddr, _: &ListenOptions) -> Result<(Listener, SocketAddr), NetError> {
        Err(NetError::from_errno(libc::EOPNOTSUPP))
    }

    fn unlisten(&mut self, _: Listener) {}

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        let state = &mut *self.state.borrow_mut();
        let conn = state.transport.connect(to, options)?;
        // The transport has fewer connections than the table has room.
        state.opened(conn).ok_or_else(|| {
            state.transport.close(conn, Close::Now);
            NetError::from_errno(libc::EMFILE)
        })
    }

    fn turn(&mut self, _: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.between.has_events.set(false);
        events.append(&mut self.state.borrow_mut().events);
        Ok(())
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        let state = &mut *self.state.borrow_mut();
        state.transport.send_last(state.of_guest(conn), bytes, how)?;
        state.closed(conn);
        Ok(())
    }

    fn close(&mut self, conn: Conn, how: Close) {
        let state = &mut *self.state.borrow_mut();
        state.transport.close(state.of_guest(conn), how);
        state.closed(conn);
    }

    /// Open ones. Those that close are the owner's to wait for.
    fn unfinished(&self) -> usize {
        self.state.borrow().guests.len()
    }
}

#[cfg(test)]
mod tests {
    use linerate_base::Random;

    use super::*;
    use crate::mem::{Mem, PeerActions, PeerConn};

    fn echo(_: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        out.send_after(Duration::from_millis(5), conn, bytes.to_vec());
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn read<T: Transport>(transport: &mut T, event: Event) -> Vec<u8> {
        let Event::Readable { data, .. } = event else { panic!("{event:?}") };
        let mut all = Vec::new();
        transport.receive(data, |bytes| all.extend_from_slice(bytes));
        all
    }

    #[test]
    fn each_sees_its_own_connections() {
        let mut mem = Mem::default();
        mem.serve(at("10.0.0.2:80"), echo).expect("a peer");
        let (mut owner, mut guest) = share(mem);
        let (_, to) = owner.listen(at("10.0.0.1:80"), &ListenOptions::default()).expect("it listens");
        owner.transport(|mem| mem.dial(to, |_, _, _: &[u8], _: &mut PeerActions| ()));
        let conn = guest.connect(at("10.0.0.2:80"), &ConnectOptions::default()).expect("under way");
        guest.send(conn, b"hello").expect("taken");
        let (mut owners, mut guests, mut said) = (Vec::new(), Vec::new(), Vec::new());
        let rest = guest.rest();
        rest.until(Time::NEVER);
        rest.bell().take();
        while owner.now() < Time::ZERO + Duration::from_millis(900) {
            owner.turn(Some(Time::ZERO + Duration::from_secs(1)), &mut owners).expect("a turn");
            assert_eq!(rest.has_events(), !guest.state.borrow().events.is_empty());
            guest.turn(None, &mut guests).expect("a turn");
            assert!(!rest.has_events());
            for event in guests.drain(..) {
                match event {
                    Event::Connected { conn: which, .. } | Event::Drained { conn: which } => {
                        assert_eq!(which, conn);
                    }
                    other => said = read(&mut guest, other),
                }
            }
        }
        assert_eq!(said, b"hello");
        assert!(matches!(owners[..], [Event::Accepted { .. }]), "{owners:?}");
        // In memory nothing is unfinished.
        assert_eq!((guest.unfinished(), owner.unfinished()), (1, 0));
        assert!(guest.listen(to, &ListenOptions::default()).is_err());
        // Connections that end with the guest are none of the owner's.
        drop(guest);
        owner.turn(Some(Time::ZERO + Duration::from_secs(1)), &mut owners).expect("a turn");
        assert_eq!(owners.len(), 1);
    }

    #[test]
    fn the_guests_slots_are_few_and_its_closed_connections_unknown() {
        let mut mem = Mem::default();
        mem.serve(at("10.0.0.2:80"), echo).expect("a peer");
        let (mut owner, mut guest) = share(mem);
        let to = at("10.0.0.2:80");
        let mut open = || owner.connect(to, &ConnectOptions::default()).expect("under way");
        let owners: Vec<Conn> = (0..1000).map(|_| open()).collect();
        let mut open = || guest.connect(to, &ConnectOptions::default()).expect("under way");
        let (first, second) = (open(), open());
        assert_eq!((first.slot(), second.slot()), (0, 1));
        guest.close(first, Close::Now);
        let third = guest.connect(to, &ConnectOptions::default()).expect("under way");
        assert_eq!(third.slot(), 0);
        // The closed one has no owner: neither the owner's first nor the guest's third.
        assert_ne!(first, third);
        guest.send(first, b"lost").expect("it goes nowhere");
        guest.close(first, Close::Now);
        assert_eq!(guest.unsent(first), 0);
        let data = Data { conn: first, token: 0 };
        assert_eq!(guest.receive(data, |_| ()), After::Gone);
        assert!(guest.local(first).is_none() && guest.local(third).is_some());
        assert!(owner.local(owners[0]).is_some() && guest.unfinished() == 2);
        assert!(guest.send(third, b"kept").is_ok() && guest.send_last(third, b"!", Close::Now).is_ok());
        assert!(guest.local(third).is_none() && guest.unfinished() == 1);
    }

    /// The connections of one of the two: the letter that each sends, and the bytes that came back.
    #[derive(Default)]
    struct Known(Vec<(Conn, u8, Vec<u8>)>);

    impl Known {
        fn act<T: Transport>(&mut self, transport: &mut T, random: &mut Random, letter: u8) {
            let nth = random.below(self.0.len() as u64) as usize;
            match (random.below(4), self.0.get(nth)) {
                (0, _) | (_, None) => {
                    let conn = transport.connect(at("10.0.0.2:80"), &ConnectOptions::default());
                    self.0.push((conn.expect("under way"), letter, Vec::new()));
                }
                (1, Some((conn, ..))) => {
                    transport.close(*conn, if random.below(2) == 0 { Close::Now } else { Close::AfterPeer });
                    self.0.swap_remove(nth);
                }
                (_, Some((conn, letter, _))) => transport.send(*conn, &[*letter; 7]).expect("taken"),
            }
        }

        fn hear<T: Transport>(&mut self, transport: &mut T, events: &mut Vec<Event>) {
            for event in events.drain(..) {
                let Event::Readable { conn, data } = event else { continue };
                assert_eq!(data.conn(), conn);
                let Some((_, letter, heard)) = self.0.iter_mut().find(|(known, ..)| *known == conn) else {
                    // Closed since the turn.
                    assert_eq!(transport.receive(data, |_| panic!("its bytes are gone")), After::Gone);
                    continue;
                };
                transport.receive(data, |bytes| heard.extend_from_slice(bytes));
                assert!(heard.iter().all(|byte| byte == letter), "{letter}: {heard:?}");
            }
        }
    }

    #[test]
    fn whatever_order_they_act_in_each_hears_its_own() {
        let mut heard = 0;
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut mem = Mem::default();
            mem.serve(at("10.0.0.2:80"), echo).expect("a peer");
            let (mut owner, mut guest) = share(mem);
            guest.rest().until(Time::NEVER);
            guest.rest().bell().take();
            let (mut owners, mut guests) = (Known::default(), Known::default());
            let mut events = Vec::new();
            for letter in 0..200_u8 {
                match random.below(3) {
                    0 => owners.act(&mut owner, &mut random, letter),
                    1 => guests.act(&mut guest, &mut random, letter),
                    _ => {
                        guest.turn(None, &mut events).expect("a turn");
                        guests.hear(&mut guest, &mut events);
                        let until = owner.now() + Duration::from_millis(random.below(4));
                        owner.turn(Some(until), &mut events).expect("a turn");
                        owners.hear(&mut owner, &mut events);
                    }
                }
                assert_eq!(guest.unfinished(), guests.0.len());
                assert!(guests.0.iter().all(|(conn, ..)| conn.slot() < 200));
            }
            heard += owners.0.iter().chain(&guests.0).map(|(.., heard)| heard.len()).sum::<usize>();
        }
        assert!(heard > 10_000, "{heard}");
    }

    #[test]
    fn the_owner_waits_for_the_guest_too() {
        let (mut owner, guest) = share(Mem::default());
        let (second, mut events) = (Time::ZERO + Duration::from_secs(1), Vec::new());
        let rest = guest.rest();
        rest.until(second);
        assert!(rest.bell().take(), "the guest steps first");
        owner.turn(Some(second + Duration::from_secs(1)), &mut events).expect("a turn");
        assert_eq!(owner.now(), second);
        // Rung before it waits.
        rest.until(Time::NEVER);
        rest.bell().ring();
        owner.turn(Some(second + Duration::from_secs(1)), &mut events).expect("a turn");
        assert_eq!(owner.now(), second);
        assert!(rest.bell().take() && !rest.bell().take());
        // Rung meanwhile, from elsewhere.
        let bell = Arc::clone(rest.bell());
        let ringer = std::thread::spawn(move || {
            while !bell.waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            bell.ring();
        });
        owner.turn(None, &mut events).expect("a turn");
        ringer.join().expect("it rang");
        assert_eq!((&events[..], rest.bell().has_rung()), (&[Event::Woken][..], true));
    }
}
