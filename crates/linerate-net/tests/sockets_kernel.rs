//! The same random calls of both peers on sockets of the kernel (loopback) and on [`Sockets`] over a
//! simulated link. After each call both run until nothing moves; then these must agree:
//!
//! * what the call returned: bytes and errno;
//! * readiness of both peers, and how many bytes each can read;
//! * edges: after a change for the better (new readiness, more bytes) both report the peer; ours
//!   reports none that the kernel does not. The kernel may report more: it also does when its FIN is
//!   acknowledged, at a moment of its own.
//!
//! Calls of `send` are small enough for every buffer. `Fill` is the exception: each side takes what it
//! takes, at least [`LEAST`] and at most [`MOST`] bytes, and EAGAIN behind it. The reader gets exactly
//! as many, and then the writer is writable again.
//!
//! `LINERATE_SEED=n` runs one seed, `LINERATE_SEEDS=n` this many (`cargo xtask soak sockets`), starting
//! at `LINERATE_FROM`. The script of a seed that fails is made as short as it can be, and printed.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_base::Random;
use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::sockets::{
    CallFlags, ERR, HUP, IN, OUT, PollEntry, PollSetId, RDHUP, Shutdown, SocketId, Sockets,
};
use linerate_net::stack::{Stack, StackOptions};
use rustix::event::{PollFd, PollFlags, epoll};

const SEEDS: u64 = 300;
/// What a send buffer and the peer's window together take before EAGAIN, bytes: both ends have
/// 64 KiB at least, and ten times the kernel's largest default.
const LEAST: usize = 64 << 10;
const MOST: usize = 64 << 20;
/// Bytes of one direction that the script leaves unread.
const UNREAD: usize = 16 << 10;
/// A script fails if it fails this often in a row. Reason: on a machine without an idle core the kernel may
/// handle an ACK after a call that depends on it.
const TRIES: usize = 3;
/// How long the kernel may need for what a call causes.
const PATIENCE: Duration = Duration::from_secs(5);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Send(usize, usize),
    Receive(usize, usize),
    Peek(usize, usize),
    Shutdown(usize, Shutdown),
    Close(usize),
    Reset(usize),
    TakeError(usize),
    Peer(usize),
    /// Has the set that tells once tell again.
    Rearm(usize),
    Fill(usize),
}

/// What a call returned: bytes or a count, or an errno.
type Answer = Result<Vec<u8>, i32>;

/// A peer at rest: readiness, bytes to read, and whether it was reported by an edge since.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AtRest {
    readiness: u32,
    unread: usize,
    edge: bool,
}

impl AtRest {
    /// Whether both agree, when this was our state `before`.
    fn is_as(&self, kernels: &AtRest, before: Option<AtRest>) -> bool {
        let changed = before
            .is_none_or(|before| self.readiness & !before.readiness != 0 || self.unread > before.unread);
        let same = (self.readiness, self.unread) == (kernels.readiness, kernels.unread);
        same && (self.edge || !changed) && (kernels.edge || !self.edge)
    }
}

trait World {
    fn send(&mut self, peer: usize, bytes: &[u8]) -> Result<usize, i32>;
    fn receive(&mut self, peer: usize, len: usize, peek: bool) -> Answer;
    fn shutdown(&mut self, peer: usize, how: Shutdown) -> Result<(), i32>;
    fn close(&mut self, peer: usize, resets: bool);
    fn take_error(&mut self, peer: usize) -> Option<i32>;
    fn has_peer(&mut self, peer: usize) -> Result<(), i32>;
    /// Lets what was begun take effect.
    fn run(&mut self);
    fn readiness(&mut self, peer: usize) -> u32;
    fn unread(&mut self, peer: usize) -> usize;
    /// The peers reported by edges since the last call.
    fn edges(&mut self) -> [bool; 2];
    fn rearm(&mut self, peer: usize);
    /// What the set that tells once has told of each peer since the last call.
    fn told_once(&mut self) -> [u32; 2];
}

/// What that set waits for. Reason: neither ends by itself.
const ONCE: u32 = IN | RDHUP | libc::EPOLLONESHOT as u32;

struct Ours {
    net: Sockets<SimEnd>,
    set: PollSetId,
    once: PollSetId,
    peers: [Option<SocketId>; 2],
}

impl Ours {
    fn new(seed: u64) -> Ours {
        let link = Sim::alone(SimOptions { seed, ..SimOptions::default() }).expect("a link");
        let options = StackOptions { addresses: vec![HOST], seed: Some(seed), ..StackOptions::default() };
        let mut net = Sockets::new(Stack::new(link, options));
        let (listener, client) = (net.socket().expect("one"), net.socket().expect("one"));
        net.bind(listener, SocketAddr::new(HOST, 80)).expect("free");
        net.listen(listener, 4).expect("free");
        let (set, once) = (net.poll_set(), net.poll_set());
        net.watch(set, client, EDGES, 0).expect("new");
        net.watch(once, client, ONCE, 0).expect("new");
        let asked = net.connect(client, SocketAddr::new(HOST, 80)).expect_err("it takes time");
        assert_eq!(asked.errno, libc::EINPROGRESS);
        let mut ours = Ours { net, set, once, peers: [Some(client), None] };
        ours.run();
        assert_eq!(ours.net.readiness(listener).expect("open"), IN);
        let (server, _) = ours.net.accept(listener).expect("connected");
        ours.net.watch(set, server, EDGES, 1).expect("new");
        ours.net.watch(once, server, ONCE, 1).expect("new");
        ours.net.close(listener).expect("open");
        ours.peers[1] = Some(server);
        ours
    }

    fn peer(&self, peer: usize) -> SocketId {
        self.peers[peer].expect("open")
    }
}

const EDGES: u32 = IN | OUT | RDHUP | libc::EPOLLET as u32;
const FLAGS: CallFlags = CallFlags { peek: false, truncate: false, no_signal: true };

impl World for Ours {
    fn send(&mut self, peer: usize, bytes: &[u8]) -> Result<usize, i32> {
        self.net.send(self.peer(peer), bytes, FLAGS).map_err(|e| e.errno)
    }

    fn receive(&mut self, peer: usize, len: usize, peek: bool) -> Answer {
        let mut bytes = vec![0; len];
        let got = self.net.recv(self.peer(peer), &mut bytes, CallFlags { peek, ..FLAGS });
        got.map(|len| bytes[..len].to_vec()).map_err(|e| e.errno)
    }

    fn shutdown(&mut self, peer: usize, how: Shutdown) -> Result<(), i32> {
        self.net.shutdown(self.peer(peer), how).map_err(|e| e.errno)
    }

    fn close(&mut self, peer: usize, resets: bool) {
        let id = self.peers[peer].take().expect("open");
        self.net.options_mut(id).expect("open").resets_at_close = resets;
        self.net.close(id).expect("open");
    }

    fn take_error(&mut self, peer: usize) -> Option<i32> {
        self.net.take_error(self.peer(peer)).expect("open")
    }

    fn has_peer(&mut self, peer: usize) -> Result<(), i32> {
        self.net.peer(self.peer(peer)).map(drop).map_err(|e| e.errno)
    }

    fn run(&mut self) {
        let until = self.net.now() + Duration::from_millis(500);
        while self.net.now() < until {
            self.net.turn(Some(until)).expect("a turn");
        }
    }

    fn readiness(&mut self, peer: usize) -> u32 {
        self.net.readiness(self.peer(peer)).expect("open")
    }

    fn unread(&mut self, peer: usize) -> usize {
        self.net.queued(self.peer(peer)).expect("open").0
    }

    fn edges(&mut self) -> [bool; 2] {
        let mut found: Vec<PollEntry> = Vec::new();
        self.net.poll(self.set, 16, &mut found).expect("a set");
        [0, 1].map(|token| found.iter().any(|entry| entry.token == token))
    }

    fn rearm(&mut self, peer: usize) {
        self.net.rewatch(self.once, self.peer(peer), ONCE, peer as u64).expect("there");
    }

    fn told_once(&mut self) -> [u32; 2] {
        let mut found: Vec<PollEntry> = Vec::new();
        self.net.poll(self.once, 16, &mut found).expect("a set");
        [0, 1].map(|token| found.iter().filter(|e| e.token == token).fold(0, |all, e| all | e.readiness))
    }
}

struct Kernel {
    epoll: OwnedFd,
    once: OwnedFd,
    peers: [Option<TcpStream>; 2],
}

impl Kernel {
    fn new() -> Kernel {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let [epoll, once] = [(); 2].map(|()| epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll"));
        for (token, peer) in [&client, &server].into_iter().enumerate() {
            peer.set_nonblocking(true).expect("set");
            peer.set_nodelay(true).expect("set");
            let flags = epoll::EventFlags::from_bits_retain(EDGES);
            let data = epoll::EventData::new_u64(token as u64);
            epoll::add(&epoll, peer, data, flags).expect("added");
            epoll::add(&once, peer, data, epoll::EventFlags::from_bits_retain(ONCE)).expect("added");
        }
        Kernel { epoll, once, peers: [Some(client), Some(server)] }
    }

    fn peer(&self, peer: usize) -> &TcpStream {
        self.peers[peer].as_ref().expect("open")
    }
}

fn errno(error: std::io::Error) -> i32 {
    error.raw_os_error().expect("the kernel's")
}

impl World for Kernel {
    fn send(&mut self, peer: usize, bytes: &[u8]) -> Result<usize, i32> {
        self.peer(peer).write(bytes).map_err(errno)
    }

    fn receive(&mut self, peer: usize, len: usize, peek: bool) -> Answer {
        let mut bytes = vec![0; len];
        let mut stream = self.peer(peer);
        let got = if peek { stream.peek(&mut bytes) } else { stream.read(&mut bytes) };
        got.map(|len| bytes[..len].to_vec()).map_err(errno)
    }

    fn shutdown(&mut self, peer: usize, how: Shutdown) -> Result<(), i32> {
        let how = match how {
            Shutdown::Read => std::net::Shutdown::Read,
            Shutdown::Write => std::net::Shutdown::Write,
            Shutdown::Both => std::net::Shutdown::Both,
        };
        self.peer(peer).shutdown(how).map_err(errno)
    }

    fn close(&mut self, peer: usize, resets: bool) {
        let stream = self.peers[peer].take().expect("open");
        let linger = resets.then_some(Duration::ZERO);
        socket2::SockRef::from(&stream).set_linger(linger).expect("set");
    }

    fn take_error(&mut self, peer: usize) -> Option<i32> {
        self.peer(peer).take_error().expect("an option").map(errno)
    }

    fn has_peer(&mut self, peer: usize) -> Result<(), i32> {
        self.peer(peer).peer_addr().map(drop).map_err(errno)
    }

    fn run(&mut self) {
        std::thread::yield_now();
    }

    fn readiness(&mut self, peer: usize) -> u32 {
        let all = PollFlags::from_bits_retain((IN | OUT | RDHUP) as u16);
        let mut polled = [PollFd::from_borrowed_fd(self.peer(peer).as_fd(), all)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
            .expect("polled");
        u32::from(polled[0].revents().bits()) & (IN | OUT | RDHUP | HUP | ERR)
    }

    fn unread(&mut self, peer: usize) -> usize {
        // The kernel's count includes a FIN behind the bytes only while there are any.
        let mut bytes = vec![0; 2 * UNREAD];
        match self.peer(peer).peek(&mut bytes) {
            Ok(len) => len,
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::NotConnected => 0,
            Err(e) => panic!("peeked: {e}"),
        }
    }

    fn edges(&mut self) -> [bool; 2] {
        let mut events = Vec::with_capacity(16);
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&zero)).expect("waited");
        [0, 1].map(|token| events.iter().any(|event| event.data.u64() == token))
    }

    fn rearm(&mut self, peer: usize) {
        let flags = epoll::EventFlags::from_bits_retain(ONCE);
        let data = epoll::EventData::new_u64(peer as u64);
        epoll::modify(&self.once, self.peer(peer), data, flags).expect("there");
    }

    fn told_once(&mut self) -> [u32; 2] {
        let mut events = Vec::with_capacity(16);
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.once, rustix::buffer::spare_capacity(&mut events), Some(&zero)).expect("waited");
        [0, 1].map(|token| {
            let of_peer = events.iter().filter(|event| event.data.u64() == token);
            of_peer.fold(0, |all, event| all | { event.flags }.bits())
        })
    }
}

fn script(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let count = 4 + random.below(28);
    let mut step = || {
        let peer = random.below(2) as usize;
        match random.below(40) {
            0..14 => Step::Send(peer, 1 + random.few(3000) as usize),
            14..25 => Step::Receive(peer, 1 + random.few(6000) as usize),
            25..28 => Step::Peek(peer, 1 + random.few(6000) as usize),
            28 => Step::Shutdown(peer, Shutdown::Read),
            29..31 => Step::Shutdown(peer, Shutdown::Write),
            31 => Step::Shutdown(peer, Shutdown::Both),
            32..34 => Step::Close(peer),
            34 => Step::Reset(peer),
            35..37 => Step::TakeError(peer),
            37 => Step::Peer(peer),
            38 => Step::Rearm(peer),
            _ => Step::Fill(peer),
        }
    };
    (0..count).map(|_| step()).collect()
}

/// Bytes of one direction, by position.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

/// Both worlds under one script.
struct Pair {
    ours: Ours,
    kernel: Kernel,
    open: [bool; 2],
    sent: [usize; 2],
    before: [Option<AtRest>; 2],
}

impl Pair {
    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        call: impl Fn(&mut dyn World) -> T,
    ) -> Result<T, String> {
        let (ours, kernels) = (call(&mut self.ours), call(&mut self.kernel));
        let short = |answer: &T| format!("{answer:?}").chars().take(60).collect::<String>();
        if ours == kernels {
            return Ok(ours);
        }
        Err(format!("ours {}, the kernel's {}", short(&ours), short(&kernels)))
    }

    fn unread(&mut self, peer: usize) -> usize {
        if self.open[peer] { self.ours.unread(peer) } else { 0 }
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        let (Step::Send(peer, _)
        | Step::Receive(peer, _)
        | Step::Peek(peer, _)
        | Step::Shutdown(peer, _)
        | Step::Close(peer)
        | Step::Reset(peer)
        | Step::TakeError(peer)
        | Step::Peer(peer)
        | Step::Rearm(peer)
        | Step::Fill(peer)) = step;
        if !self.open[peer] {
            return Ok(());
        }
        match step {
            Step::Send(_, len) => {
                if self.unread(1 - peer) + len > UNREAD {
                    return Ok(());
                }
                let bytes = pattern(self.sent[peer], len);
                if let Ok(len) = self.both(|world| world.send(peer, &bytes))? {
                    self.sent[peer] += len;
                }
            }
            Step::Receive(_, len) => drop(self.both(|world| world.receive(peer, len, false))?),
            Step::Peek(_, len) => drop(self.both(|world| world.receive(peer, len, true))?),
            Step::Shutdown(_, how) => drop(self.both(|world| world.shutdown(peer, how))?),
            Step::Close(_) | Step::Reset(_) => {
                self.both(|world| world.close(peer, matches!(step, Step::Reset(_))))?;
                self.open[peer] = false;
            }
            Step::TakeError(_) => drop(self.both(|world| world.take_error(peer))?),
            Step::Peer(_) => drop(self.both(|world| world.has_peer(peer))?),
            Step::Rearm(_) => self.both(|world| world.rearm(peer))?,
            Step::Fill(_) => {
                // Of connections that work alone: all others are compared by the other steps.
                let works = self.open == [true; 2] && (0..2).all(|p| self.ours.readiness(p) & !IN == OUT);
                if works && self.unread(1 - peer) == 0 {
                    fill(&mut self.ours, peer)?;
                    fill(&mut self.kernel, peer)?;
                }
            }
        }
        self.rest()
    }

    /// Both peers of both worlds, once nothing moves.
    fn rest(&mut self) -> Result<(), String> {
        self.ours.run();
        let edges = self.ours.edges();
        let at_rest = |world: &mut dyn World, open: [bool; 2], edges: [bool; 2]| {
            [0, 1].map(|peer| {
                open[peer].then(|| AtRest {
                    // Reading what is there may take an error, so readiness comes first.
                    readiness: world.readiness(peer),
                    unread: 0,
                    edge: edges[peer],
                })
            })
        };
        let mut ours = at_rest(&mut self.ours, self.open, edges);
        for (peer, state) in ours.iter_mut().enumerate() {
            if let Some(state) = state {
                state.unread = self.ours.unread(peer);
            }
        }
        let begun = Instant::now();
        let mut edges = [false; 2];
        loop {
            let more = self.kernel.edges();
            edges = [0, 1].map(|peer| edges[peer] || more[peer]);
            let mut kernels = at_rest(&mut self.kernel, self.open, edges);
            for (peer, state) in kernels.iter_mut().enumerate() {
                // A pending error would be taken by looking.
                if let Some(state) = state {
                    let fails = state.readiness & ERR != 0;
                    state.unread =
                        if fails { ours[peer].map_or(0, |o| o.unread) } else { self.kernel.unread(peer) };
                }
            }
            let agree = (0..2).all(|peer| match (&ours[peer], &kernels[peer]) {
                (Some(ours), Some(kernels)) => ours.is_as(kernels, self.before[peer]),
                (ours, kernels) => ours == kernels,
            });
            if agree {
                self.before = ours;
                // At rest, both tell at once.
                return self.both(|world| world.told_once()).map(drop).map_err(|why| format!("once: {why}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("at rest: ours {ours:x?}, the kernel's {kernels:x?}"));
            }
            self.kernel.run();
        }
    }
}

/// Sends until EAGAIN, and reads all of it at the other end.
fn fill(world: &mut dyn World, peer: usize) -> Result<(), String> {
    let (mut sent, mut got) = (0, 0);
    let piece = pattern(0, 64 << 10);
    let blocked = loop {
        match world.send(peer, &piece) {
            Ok(len) => sent += len,
            Err(errno) => break errno,
        }
        world.run();
        if sent > MOST {
            return Err(format!("it takes more than {sent} bytes"));
        }
    };
    if blocked != libc::EAGAIN || sent < LEAST {
        return Err(format!("errno {blocked} after {sent} bytes"));
    }
    let begun = Instant::now();
    while got < sent || world.readiness(peer) & OUT == 0 {
        match world.receive(1 - peer, 100_000, false) {
            Ok(bytes) => got += bytes.len(),
            Err(libc::EAGAIN) => world.run(),
            Err(errno) => return Err(format!("errno {errno} after {got} of {sent} bytes")),
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{got} of {sent} bytes came"));
        }
    }
    if got == sent { Ok(()) } else { Err(format!("{got} of {sent} bytes came")) }
}

fn check(seed: u64, steps: &[Step]) -> Result<(), String> {
    let mut pair = Pair {
        ours: Ours::new(seed),
        kernel: Kernel::new(),
        open: [true; 2],
        sent: [0; 2],
        before: [None; 2],
    };
    pair.rest().map_err(|why| format!("at the beginning: {why}"))?;
    for (i, step) in steps.iter().enumerate() {
        pair.take(*step).map_err(|why| format!("step {i}, {step:?}: {why}"))?;
    }
    Ok(())
}

/// The shortest script that still fails.
fn shrink(seed: u64, mut steps: Vec<Step>) -> (Vec<Step>, String) {
    let mut i = steps.len();
    while i > 0 {
        i -= 1;
        let mut fewer = steps.clone();
        fewer.remove(i);
        if check(seed, &fewer).is_err() {
            steps = fewer;
        }
    }
    let why = check(seed, &steps).err().unwrap_or_else(|| "not every time".to_owned());
    (steps, why)
}

fn run(seed: u64) {
    let steps = script(seed);
    let failures: Vec<String> = (0..TRIES).map_while(|_| check(seed, &steps).err()).collect();
    if let (TRIES, Some(why)) = (failures.len(), failures.first()) {
        let (steps, shorter) = shrink(seed, steps);
        panic!("seed {seed}: {why}\nshortest: {steps:?}\n{shorter}");
    }
}

#[test]
fn calls_answer_as_the_kernels() {
    let of = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    if let Some(seed) = of("LINERATE_SEED") {
        return run(seed);
    }
    let first = of("LINERATE_FROM").unwrap_or(1);
    for seed in first..first.saturating_add(of("LINERATE_SEEDS").unwrap_or(SEEDS)) {
        run(seed);
        if seed.is_multiple_of(500) {
            println!("up to seed {seed}: the same");
        }
    }
}
