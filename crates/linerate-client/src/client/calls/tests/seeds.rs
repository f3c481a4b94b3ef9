//! Calls to a server that does anything, by seed, over HTTP/1.1, HTTP/2 and TLS. Each ends in exactly one of response,
//! error and unknown; no response reaches another caller; nothing that is not idempotent is sent twice; nothing hangs;
//! memory is bounded, and nothing is left behind.
//!
//! A seed is a bug report: `LINERATE_SEED=n` runs one. `LINERATE_SEEDS=n` runs this many (`cargo xtask soak client`:
//! 10,000), starting at `LINERATE_FROM`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use http::{HeaderName, Method, Request};
use linerate_base::Random;
use linerate_http::client::HeadCache;
use linerate_net::layer::Layered;
use linerate_net::mem::{Cut, Mem, MemOptions, Peer};
use linerate_net::{Time, Transport, TransportLimits};

use super::super::CallReading;
use super::random_up_to;
use super::server::{Arrivals, Faults, Server, TAG, body_of};
use super::server_h2::{StreamFaults, StreamServer};
use super::wire::{Hostile, NAME, Tls, Wire, certificate};
use super::{Program, Result, address, options};
use crate::client::error::{Error, Phase};
use crate::client::limits::{H2_WINDOW, LEAVING};
use crate::client::options::{CallOptions, Protocol};
use crate::client::secure::{Secure, SecureOptions};
use crate::conversation::Conversation;
use crate::{Any, AnyShared, H1, H2Shared, Speaks};

const SEEDS: u64 = 1_000;
/// Requests of one seed.
const REQUESTS: u64 = 60;
/// No call takes longer than its timeout, and its last attempt to connect.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that client and server of one seed hold at once, at most. Reason: the bodies of all requests that may be in
/// flight, and their responses.
const MEMORY: u64 = 24 << 20;

/// The choices that a seed makes before its first request.
struct Drawn {
    seed: u64,
    random: Random,
    options: CallOptions,
    wire: MemOptions,
    arrivals: Arrivals,
    /// From then on the server does nothing wrong.
    well_from: Time,
}

impl Drawn {
    fn new(seed: u64, protocol: Protocol) -> Drawn {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed);
        let tagged = random_up_to(&mut random, 1) == 0;
        let options = CallOptions {
            pipes: 1 + random_up_to(&mut random, 4) as u32,
            depth: 1 + random_up_to(&mut random, 30) as u32,
            h2_connections: 1 + random_up_to(&mut random, 2) as u32,
            max_body: 100_000,
            max_discarded: 10_000,
            tag: tagged.then(|| HeaderName::from_static(TAG)),
            protocol,
            seed,
            ..options()
        };
        let well_from = Time::from_nanos(random_up_to(&mut random, 20_000_000_000));
        let wire = wire(seed, &mut random);
        Drawn { seed, random, options, wire, arrivals: Arrivals::default(), well_from }
    }

    fn h1_server(&mut self) -> Server {
        let faults = Faults::of(&mut self.random, self.options.tag.is_some());
        Server::new(Random::new(self.seed), faults, &self.arrivals, self.well_from)
    }

    fn h2_server(&mut self) -> StreamServer {
        let faults = StreamFaults::of(&mut self.random, self.options.tag.is_some());
        StreamServer::new(Random::new(self.seed), faults, &self.arrivals, self.well_from)
    }

    fn mem(&self, server: impl Peer + 'static) -> Mem {
        let mut mem = Mem::new(self.wire).unwrap();
        mem.serve(address(), server).unwrap();
        mem
    }

    fn start<T: Transport, C: Conversation<Reading = CallReading>>(
        self,
        transport: T,
        shared: C::Shared,
    ) -> Seed<T, C> {
        let Drawn { random, mut options, arrivals, seed, .. } = self;
        options.streams = options.depth;
        // Half of them decide for themselves how many connections they open.
        (options.adapts, options.h2_adapts) = (seed % 2 == 1, seed % 2 == 1);
        let (pipes, depth) = (options.pipes.max(options.h2_connections), options.depth);
        let program = Program::over(transport, options, shared);
        Seed { random, program, arrivals, cancelled: Vec::new(), pipes, depth, counts: [0; 4] }
    }
}

fn wire(seed: u64, random: &mut Random) -> MemOptions {
    let cut = match random_up_to(random, 3) {
        0 => Cut::Every(1 + random_up_to(random, 40) as usize),
        1 => Cut::Random(1 + random_up_to(random, 3_000) as usize),
        _ => Cut::Whole,
    };
    let some = |random: &mut Random, n, of: u64| (random_up_to(random, of) == 0).then_some(n);
    MemOptions {
        seed,
        cut,
        latency: Duration::from_micros(random_up_to(random, 3) * random_up_to(random, 10_000)),
        window: 1 << (7 + random_up_to(random, 11)),
        refuse_every: some(random, 5, 8),
        fail_send_every: some(random, 37, 8),
        reset_after_bytes: some(random, 100_000, 8),
        ..MemOptions::default()
    }
}

fn shared(speaks: Speaks) -> AnyShared {
    AnyShared::new(speaks, HeadCache::new(), H2Shared::new(H2_WINDOW))
}

fn http1(seed: u64) -> [u64; 4] {
    let mut drawn = Drawn::new(seed, Protocol::Http1);
    let mem = Wire::new(drawn.h1_server(), None);
    let mem = drawn.mem(mem);
    drawn.start::<_, H1<CallReading>>(mem, HeadCache::new()).run()
}

fn http2(seed: u64) -> [u64; 4] {
    let mut drawn = Drawn::new(seed, Protocol::Http2);
    let server = Wire::new(drawn.h2_server(), None);
    let mem = drawn.mem(server);
    drawn.start::<_, Any<CallReading>>(mem, shared(Speaks::Http2)).run()
}

/// The server prefers HTTP/2 or HTTP/1.1, by the seed.
fn tls(seed: u64) -> [u64; 4] {
    let mut drawn = Drawn::new(seed, Protocol::Either);
    match random_up_to(&mut drawn.random, 1) {
        0 => {
            let server = drawn.h1_server();
            over_tls(drawn, server, b"http/1.1")
        }
        _ => {
            let server = drawn.h2_server();
            over_tls(drawn, server, b"h2")
        }
    }
}

fn over_tls(mut drawn: Drawn, server: impl Hostile + 'static, alpn: &[u8]) -> [u64; 4] {
    let secure = SecureOptions {
        added: certificate().as_bytes().to_vec(),
        only_added: true,
        ..SecureOptions::default()
    };
    let secure = secure.build(NAME, Protocol::Either).unwrap();
    let (layer, profile) = Secure::layer(Some(&secure), None);
    (drawn.options.profile, drawn.options.secure) = (profile, true);
    let tls = Tls::of(&mut drawn.random, alpn, drawn.well_from);
    let mem = drawn.mem(Wire::new(server, Some(tls)));
    let transport = Layered::new(mem, layer, TransportLimits::default());
    drawn.start::<_, Any<CallReading>>(transport, shared(Speaks::Either)).run()
}

struct Seed<T: Transport, C: Conversation<Reading = CallReading>> {
    random: Random,
    program: Program<T, C>,
    arrivals: Arrivals,
    cancelled: Vec<u64>,
    pipes: u32,
    depth: u32,
    counts: [u64; 4],
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Seed<T, C> {
    fn chance(&mut self, one_in: u64) -> bool {
        random_up_to(&mut self.random, one_in - 1) == 0
    }

    fn request(&mut self, number: u64) -> Request<Bytes> {
        let method = match random_up_to(&mut self.random, 19) {
            0 => Method::POST,
            1 => Method::PUT,
            2 => Method::HEAD,
            3 => Method::DELETE,
            4 => Method::PATCH,
            _ => Method::GET,
        };
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
        let len = if has_body {
            random_up_to(&mut self.random, 2) * random_up_to(&mut self.random, 20_000)
        } else {
            0
        };
        let body = Bytes::from(vec![b'b'; len as usize]);
        Request::builder().method(method).uri(format!("/{number}")).body(body).unwrap()
    }

    fn run(mut self) -> [u64; 4] {
        let mut number = 0;
        while number < REQUESTS {
            for _ in 0..=random_up_to(&mut self.random, 40) {
                let request = self.request(number);
                self.program.send(number, request);
                number += 1;
            }
            if self.chance(4) {
                self.cancel_some();
            }
            let pause = Duration::from_micros(
                random_up_to(&mut self.random, 2) * random_up_to(&mut self.random, 50_000),
            );
            self.program.wait(pause);
            self.check_bounds();
        }
        self.program.run(PATIENCE);
        self.check_ends(number);
        self.check_nothing_stays();
        self.counts
    }

    fn cancel_some(&mut self) {
        for _ in 0..random_up_to(&mut self.random, 10) {
            let at = random_up_to(&mut self.random, self.program.open.len() as u64) as usize;
            let Some((&id, &number)) = self.program.open.iter().nth(at) else { return };
            self.program.cancel(id);
            self.cancelled.push(number);
        }
    }

    fn check_bounds(&mut self) {
        let open = self.program.open.len();
        let calls = &mut self.program.calls;
        // Connections by HTTP/2 that only finish their responses are beside the others.
        let most = self.pipes + if calls.streams == Some(true) { LEAVING } else { 0 };
        assert!(calls.open() <= most, "{} pipes", calls.open());
        assert_eq!(calls.unfinished(), open);
        assert!(calls.waiting() <= 4 * open + 200, "{} wait of {open}", calls.waiting());
        assert!(calls.pool.in_flight() <= u64::from(most * self.depth));
    }

    fn check_ends(&mut self, numbers: u64) {
        assert_eq!(self.program.calls.unfinished(), 0);
        for number in 0..numbers {
            let cancelled = self.cancelled.contains(&number);
            let end = self.program.ended.remove(&number);
            assert_eq!(end.is_none(), cancelled, "request {number}: {end:?}");
            let arrived = self.arrivals.lock().unwrap().get(&number).cloned();
            if let Some(end) = end {
                self.check_end(number, end, arrived.as_ref().map_or(0, |(_, times)| *times));
            }
            if let Some((method, times)) = arrived {
                let once = ["POST", "PATCH"].contains(&method.as_str());
                assert!(!once || times == 1, "{method} {number} arrived {times} times");
            }
        }
    }

    fn check_end(&mut self, number: u64, end: Result, arrived: u32) {
        let which = match end {
            Ok(response) => {
                assert!(arrived > 0, "{number} was answered and never arrived");
                assert_eq!(response.status(), 200);
                assert_eq!(response.headers()["x-number"], number.to_string().as_str());
                let body = response.into_body();
                // That to HEAD has none.
                assert!(body.is_empty() || body == body_of(number), "the body of {number} is another's");
                0
            }
            Err(Error::OutcomeUnknown(unknown)) => {
                assert_eq!(unknown.request.uri().path(), format!("/{number}"));
                assert!([Method::POST, Method::PATCH].contains(unknown.request.method()));
                1
            }
            Err(Error::Connect(_) | Error::Timeout { phase: Phase::Queue, .. }) => 2,
            Err(Error::Request(problem)) => panic!("{number}: {problem}"),
            Err(_) => 3,
        };
        self.counts[which] += 1;
    }

    /// Connections that are idle close in the end, and so do those that are closing.
    fn check_nothing_stays(&mut self) {
        self.program.wait(Duration::from_secs(100));
        let calls = &mut self.program.calls;
        assert_eq!((calls.open(), calls.pool.in_flight(), calls.waiting()), (0, 0, 0), "it stays");
        assert_eq!(calls.transport().unfinished(), 0, "connections stay");
    }
}

fn play(run: fn(u64) -> [u64; 4], seed: u64) -> std::result::Result<([u64; 4], u64), String> {
    let mut counts = [0; 4];
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let memory = measure(|| counts = run(seed));
        assert!(memory.bytes_max <= MEMORY, "{} bytes at once", memory.bytes_max);
        memory.bytes_max
    }));
    ran.map(|bytes| (counts, bytes)).map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        words.unwrap_or_default()
    })
}

fn play_all(run: fn(u64) -> [u64; 4]) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let from = number("LINERATE_FROM").unwrap_or(1);
    let seeds = match number("LINERATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + number("LINERATE_SEEDS").unwrap_or(SEEDS),
    };
    let (mut failed, mut counts, mut memory) = (Vec::new(), [0; 4], 0);
    let are_many = seeds.end - seeds.start >= 100;
    for seed in seeds {
        match play(run, seed) {
            Ok((of_seed, bytes)) => {
                counts.iter_mut().zip(of_seed).for_each(|(sum, n)| *sum += n);
                memory = memory.max(bytes);
            }
            Err(why) => failed.push(format!("LINERATE_SEED={seed}: {why}")),
        }
        if failed.len() == 10 {
            break;
        }
    }
    let [answered, unknown, unsent, other] = counts;
    println!("{answered} responses, {unknown} unknown, {unsent} not sent, {other} other errors");
    println!("{memory} bytes at once at most");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(!are_many || answered > unknown + unsent + other, "most calls are answered");
}

#[test]
fn each_call_ends_once_and_none_gets_the_response_of_another() {
    play_all(http1);
}

#[test]
fn each_call_over_http2_ends_once_and_none_gets_the_response_of_another() {
    play_all(http2);
}

#[test]
fn each_call_over_tls_ends_once_and_none_gets_the_response_of_another() {
    play_all(tls);
}
