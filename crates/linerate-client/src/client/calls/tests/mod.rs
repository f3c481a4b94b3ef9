//! A program's calls in memory and in virtual time.

#[cfg(feature = "quic")]
mod alternatives;
mod deadlines;
mod errors;
#[cfg(feature = "quic")]
mod http3;
mod idle;
mod pace;
mod reaching;
mod rules;
mod seeds;
mod server;
mod server_h2;
mod streams;
mod timings;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use linerate_http::client::HeadCache;
use linerate_net::mem::{Mem, MemOptions, Peer};
use linerate_net::{Time, Transport};

use super::*;
use crate::H1;
use crate::client::error::Error;

type Result = std::result::Result<http::Response<Bytes>, Error>;

/// From 0 to `most`.
fn random_up_to(random: &mut Random, most: u64) -> u64 {
    random.below(most.saturating_add(1))
}

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

fn options() -> CallOptions {
    CallOptions {
        host: http::HeaderValue::from_static("server"),
        timeout: Duration::from_secs(8),
        first_byte_timeout: Duration::from_secs(4),
        connect_timeout: Duration::from_secs(2),
        ..CallOptions::default()
    }
}

/// A program in virtual time. It numbers its calls, and gives their places to later ones.
struct Program<T: Transport = Mem, C: Conversation<Reading = CallReading> = H1<CallReading>> {
    calls: Calls<T, C>,
    free: Vec<u32>,
    generation: u32,
    places: u32,
    /// The numbers of requests by those of calls that have not ended.
    open: BTreeMap<u64, u64>,
    ended: BTreeMap<u64, Result>,
    events: Vec<Event>,
}

impl Program {
    fn new(wire: MemOptions, options: CallOptions, peer: impl Peer + 'static) -> Program {
        let mut mem = Mem::new(wire).unwrap();
        mem.serve(address(), peer).unwrap();
        Program::over(mem, options, HeadCache::new())
    }
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Program<T, C> {
    fn over(transport: T, options: CallOptions, shared: C::Shared) -> Program<T, C> {
        Program {
            calls: Calls::new(transport, options, vec![address()], shared),
            free: Vec::new(),
            generation: 0,
            places: 0,
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    fn now(&mut self) -> Time {
        self.calls.transport().now()
    }

    fn new_id(&mut self, number: u64) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.generation += 1;
        let id = u64::from(self.generation) << 32 | u64::from(place);
        self.open.insert(id, number);
        id
    }

    fn send(&mut self, number: u64, request: Request<Bytes>) -> u64 {
        let id = self.new_id(number);
        let now = self.now();
        self.calls.submit(id, request, now);
        id
    }

    fn get(&mut self, number: u64) -> u64 {
        self.send(number, Request::get(format!("/{number}")).body(Bytes::new()).unwrap())
    }

    fn get_all(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.get(number);
        }
    }

    fn post(&mut self, number: u64) -> u64 {
        self.send(number, Request::post(format!("/{number}")).body(Bytes::from_static(b"bbb")).unwrap())
    }

    /// A request without a body whose response comes piece by piece.
    fn stream(&mut self, number: u64) -> u64 {
        let id = self.new_id(number);
        let request = Request::get(format!("/{number}")).body(Bytes::new()).unwrap();
        let now = self.now();
        self.calls.submit_streaming(id, request, None, now);
        id
    }

    /// A request whose body follows.
    fn put(&mut self, number: u64, length: Option<u64>) -> u64 {
        let id = self.new_id(number);
        let request = Request::put(format!("/{number}")).body(Bytes::new()).unwrap();
        let now = self.now();
        self.calls.submit_streaming(id, request, Some(length), now);
        id
    }

    fn give(&mut self, id: u64, bytes: usize) {
        let now = self.now();
        self.calls.give(id, Bytes::from(vec![b'u'; bytes]), now);
    }

    /// Abandons the call.
    fn cancel(&mut self, id: u64) {
        if self.open.remove(&id).is_some() {
            self.calls.cancel(id);
            self.free.push(id as u32);
        }
    }

    /// One turn, until `until` at most.
    fn turn(&mut self, until: Time) {
        let now = self.now();
        self.calls.tick(now);
        self.collect();
        let until = until.min(self.calls.deadline());
        let mut events = std::mem::take(&mut self.events);
        self.calls.transport().turn(Some(until), &mut events).unwrap();
        for event in events.drain(..) {
            let now = self.now();
            self.calls.handle(event, now);
        }
        self.events = events;
        let now = self.now();
        self.calls.tick(now);
        self.collect();
    }

    fn collect(&mut self) {
        for Done { id, result } in std::mem::take(self.calls.done()) {
            // Those that were cancelled are not among them.
            let number =
                self.open.remove(&id).unwrap_or_else(|| panic!("call {id:x} ended twice: {result:?}"));
            self.free.push(id as u32);
            assert!(self.ended.insert(number, result).is_none(), "request {number} ended twice");
        }
    }

    /// Until all calls have ended.
    fn run(&mut self, patience: Duration) {
        let until = self.now() + patience;
        for _ in 0..1_000_000 {
            if self.open.is_empty() {
                return;
            }
            assert!(self.now() < until, "hangs: {:?}\n{:?}", self.open, self.calls.statistics());
            self.turn(until);
        }
        panic!("time stands still: {:?}", self.calls.statistics());
    }

    /// For so long, whatever ends.
    fn wait(&mut self, how_long: Duration) {
        let until = self.now() + how_long;
        while self.now() < until {
            self.turn(until);
        }
    }

    fn status(&self, number: u64) -> u16 {
        match &self.ended[&number] {
            Ok(response) => response.status().as_u16(),
            Err(error) => panic!("{number}: {error}"),
        }
    }

    fn error(&self, number: u64) -> &Error {
        match &self.ended[&number] {
            Ok(response) => panic!("{number}: {response:?}"),
            Err(error) => error,
        }
    }
}
