//! A machine that wakes the thread late, as busy ones do.

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
use crate::plan::{Pace, Plan, Rate};

/// Each timer is late by as much.
struct Late {
    mem: Mem,
    by: Duration,
}

impl Transport for Late {
    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
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

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
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
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), Script::new()).unwrap();
        let pace = Pace::Open { rate: Rate::constant(300.0), arrival: Default::default() };
        let plan = Plan { connections, pace, stop: seconds(2), ..plan() };
        let outcome = part().run(&plan, Late { mem, by }, board()).unwrap();
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
