//! A machine that wakes the thread late, or stops it in the middle of a turn, as busy ones do.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use linerate_net::mem::Mem;
use linerate_net::{
    After, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError, TcpInfo, Time,
    Transport, Waker,
};

use super::peer::Script;
use super::{MS, board, part, plan, seconds, server, wire};
use crate::plan::{Arrival, Pace, Plan, Rate};

thread_local! {
    /// When the last read ended.
    static READ_AT: Cell<Time> = const { Cell::new(Time::ZERO) };
}

/// Each timer is late by as much, and the thread has no core for `stops` before each read.
struct Late {
    mem: Mem,
    by: Duration,
    stops: Duration,
    /// Events of the time without a core.
    held: Vec<Event>,
}

impl Late {
    fn new(script: Script, by: Duration, stops: Duration) -> Late {
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), script).unwrap();
        Late { mem, by, stops, held: Vec::new() }
    }
}

impl Transport for Late {
    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        if !self.held.is_empty() {
            events.append(&mut self.held);
            return Ok(());
        }
        self.mem.turn(until, events)?;
        match until {
            Some(until) if self.mem.now() >= until => self.mem.turn(Some(until + self.by), events),
            _ => Ok(()),
        }
    }

    fn now(&mut self) -> Time {
        self.mem.now()
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        self.mem.listen(at, options)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.mem.unlisten(listener);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        self.mem.connect(to, options)
    }

    fn received_by(turn: Time) -> Time {
        READ_AT.get().max(turn)
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        let until = self.mem.now() + self.stops;
        while self.mem.now() < until {
            self.mem.turn(Some(until), &mut self.held).unwrap();
        }
        READ_AT.set(until);
        self.mem.receive(data, take)
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        self.mem.send(conn, bytes)
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.mem.lend(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        self.mem.send_lent(conn, lent, range)
    }

    fn unsent(&self, conn: Conn) -> usize {
        self.mem.unsent(conn)
    }

    fn pause(&mut self, conn: Conn) {
        self.mem.pause(conn);
    }

    fn resume(&mut self, conn: Conn) {
        self.mem.resume(conn);
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        self.mem.set_low_water(conn, bytes);
    }

    fn close(&mut self, conn: Conn, how: Close) {
        self.mem.close(conn, how);
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        self.mem.info(conn)
    }

    fn name(&self) -> &'static str {
        self.mem.name()
    }

    fn waker(&self) -> Waker {
        self.mem.waker()
    }
}

#[test]
fn what_is_due_before_the_end_leaves_although_we_wake_up_behind_it() {
    for (connections, by) in [(1, MS * 2), (64, MS * 2), (64, MS * 7)] {
        let late = Late::new(Script::new(), by, Duration::ZERO);
        let pace = Pace::Open { rate: Rate::constant(300.0), arrival: Default::default() };
        let plan = Plan { connections, pace, stop: seconds(2), ..plan() };
        let outcome = part().run(&plan, late, board()).unwrap();
        let r = outcome.requests;
        assert_eq!((r.answered, r.unsent), (600, 0), "{connections} connections, {by:?} late: {r:?}");
    }
}

#[test]
fn a_closed_loop_is_held_to_its_most() {
    for per_second in [10, 100, 500] {
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), Script::new()).unwrap();
        let plan = Plan { connections: 4, stop: seconds(3), ..plan() };
        let mut part = part();
        part.gap = Some(Duration::from_secs(1) / per_second);
        let outcome = part.run(&plan, mem, board()).unwrap();
        let answered = outcome.requests.answered;
        let most = u64::from(per_second) * 3;
        // The last is not waited for before the end.
        assert!(answered <= most + 1 && answered >= most * 97 / 100 - 1, "{answered} of {most}");
    }
}

#[test]
fn no_latency_is_shorter_than_the_way_and_back_although_reads_come_late() {
    let script = Script { think: MS * 10, ..Script::new() };
    let late = Late::new(script, Duration::ZERO, Duration::from_micros(900));
    // Some responses come while the one before is about to be read.
    let pace = Pace::Open { rate: Rate::constant(500.0), arrival: Arrival::Poisson };
    let plan = Plan { depth: 64, pace, stop: seconds(2), ..plan() };
    let outcome = part().run(&plan, late, board()).unwrap();
    let r = outcome.requests;
    assert!(r.answered > 800 && r.answered == r.due(), "{r:?}");
    let latency = outcome.latency.from_sent;
    // The histogram has three significant digits.
    assert!(latency.min_ns() >= 11_990_000, "{} us of 12 ms", latency.min_ns() / 1_000);
}
