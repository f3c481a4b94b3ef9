//! Makes calls while the connections of the server's process to servers behind it are watched.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_http::client::TemplateError;
use linerate_net::Time;
use linerate_net::instrument;
use linerate_net::sock_diag::{SocketState, TcpSocket, TimedSocket, tcp_sockets_that, timed_sockets_that};

use super::view::{descriptors, read_link};
use super::{Hands, KeptConnection};
use crate::call::Call;
use crate::limits::{LOOKS_BEHIND, SOCKETS, SOCKETS_BEHIND};
use crate::probe::{BehindProbe, CallProbe, Experiment, Lane, Variation};
use crate::upstream::{RawLook, UpstreamSeen, UpstreamSocket, behind};

/// Between two looks at first. Reason: the kernel's clock for them ticks once in 1 to 10 ms.
const BETWEEN: Duration = Duration::from_millis(1);
/// Looks after which they are made less often.
const MANY: usize = LOOKS_BEHIND / 4;
/// Between two looks then.
const SELDOM: Duration = Duration::from_millis(10);
/// A pause before the calls. Reason: connections that were used by calls before are seen to be idle.
const SETTLES: Duration = Duration::from_millis(25);
/// The other target that is called: a name that is reserved (RFC 8615), and of which no server knows.
const ELSEWHERE: &str = "/.well-known/linerate-explain";

/// The sockets of a process towards other servers.
struct UpstreamWatcher {
    pid: u32,
    to: SocketAddr,
    /// Ports that somebody listens on: connections there were accepted.
    listening: HashSet<u16>,
    own: HashSet<u32>,
    foreign: HashSet<u32>,
}

impl UpstreamWatcher {
    /// `None`: the process is in another network namespace, or belongs to somebody else.
    fn new(pid: u32, to: SocketAddr) -> Option<UpstreamWatcher> {
        if read_link("self", "ns/net")? != read_link(&pid.to_string(), "ns/net")? {
            return None;
        }
        let (_, own) = descriptors(pid).ok()?;
        let (listeners, _) = tcp_sockets_that(SOCKETS, |s| s.state == SocketState::LISTEN).ok()?;
        let listening = listeners.iter().map(|s| s.local.port()).collect();
        Some(UpstreamWatcher { pid, to, listening, own, foreign: HashSet::new() })
    }

    fn look(&mut self, at: Duration) -> Option<RawLook> {
        let is_at_port = |s: &TcpSocket| s.local.port() == self.to.port();
        let goes_out = |s: &TcpSocket| {
            matches!(s.state.name(), "established" | "syn-sent") && !self.listening.contains(&s.local.port())
        };
        let (all, _) = timed_sockets_that(SOCKETS, |s| is_at_port(s) || goes_out(s)).ok()?;
        let (here, out): (Vec<TimedSocket>, Vec<TimedSocket>) =
            all.into_iter().partition(|t| is_at_port(&t.socket));
        let unread = here.iter().filter(|t| t.socket.receive_queue > 0).map(|t| match t.socket.state {
            SocketState::LISTEN => t.socket.receive_queue,
            _ => 1,
        });
        let unread = u16::try_from(unread.sum::<u32>()).unwrap_or(u16::MAX);
        let is_new = |t: &&TimedSocket| {
            t.socket.inode != 0
                && !self.own.contains(&t.socket.inode)
                && !self.foreign.contains(&t.socket.inode)
        };
        let new: Vec<u32> = out.iter().filter(is_new).map(|t| t.socket.inode).collect();
        if !new.is_empty() {
            let (_, now) = descriptors(self.pid).ok()?;
            let (own, foreign): (Vec<u32>, Vec<u32>) = new.into_iter().partition(|inode| now.contains(inode));
            self.own.extend(own);
            self.foreign.extend(foreign);
        }
        let own = out.iter().filter(|t| self.own.contains(&t.socket.inode));
        Some(RawLook { at, sockets: own.take(SOCKETS_BEHIND).map(upstream).collect(), unread })
    }

    /// Looks until it is `over`. `start`: when the calls begin.
    fn watch(&mut self, start: Time, over: &AtomicBool) -> Vec<RawLook> {
        let mut looks = Vec::new();
        while looks.len() < LOOKS_BEHIND && !over.load(Ordering::Acquire) {
            let begun = instrument::now();
            looks.extend(self.look(begun - start));
            let between = if looks.len() < MANY { BETWEEN } else { SELDOM };
            // It is the server that is to use the processor.
            std::thread::sleep(between.max(instrument::now() - begun));
        }
        looks
    }
}

fn upstream(timed: &TimedSocket) -> UpstreamSocket {
    let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
    UpstreamSocket {
        local: plain(timed.socket.local),
        peer: plain(timed.socket.peer),
        connecting: timed.socket.state.name() == "syn-sent",
        sent_ago_ms: timed.sent_ago_ms,
        received_ago_ms: timed.received_ago_ms,
        acked_ago_ms: timed.acked_ago_ms,
        unacked: timed.unacked,
        received: timed.data_segs_in,
        sent: timed.data_segs_out,
        rtt_us: timed.rtt_us,
    }
}

impl Hands<'_> {
    /// `None`: the process's connections cannot be seen.
    pub(super) fn behind(&mut self, probe: BehindProbe) -> Result<Option<UpstreamSeen>, TemplateError> {
        let pid = self.process.as_ref().and_then(super::process::ProcessCounters::only);
        let watcher = pid.and_then(|pid| UpstreamWatcher::new(pid, self.address(self.chosen)));
        let Some(mut watcher) = watcher else { return Ok(None) };
        std::thread::sleep(SETTLES.min(self.left()));
        let mut looks: Vec<RawLook> = watcher.look(Duration::ZERO).into_iter().collect();
        let (over, start) = (AtomicBool::new(false), instrument::now());
        let (calls, beside) = std::thread::scope(|scope| {
            let looker = scope.spawn(|| watcher.watch(start, &over));
            let made = self.beside(probe);
            over.store(true, Ordering::Release);
            looks.extend(looker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            made
        })?;
        Ok(Some(behind(&looks, calls, beside)))
    }

    /// The calls, in the order they ended, and the one to another target.
    fn beside(&mut self, probe: BehindProbe) -> Result<(Vec<Call>, Option<Call>), TemplateError> {
        let elsewhere = CallProbe {
            variation: Variation::Target(ELSEWHERE.to_owned()),
            ..CallProbe::plain(Experiment::Behind, 1, Lane::Fresh)
        };
        let single = probe.calls == 1;
        let kept = if single && !probe.fresh { self.lanes.remove(&0).map(|kept| kept.wire) } else { None };
        if probe.calls == 0 && probe.beside.is_none() {
            std::thread::sleep(probe.time.min(self.left()));
        }
        let plain = CallProbe { writes: self.writes, ..CallProbe::plain(Experiment::Behind, 0, Lane::Fresh) };
        let hands = &*self;
        let (mut kept, plain, elsewhere) = (kept, &plain, &elsewhere);
        let (made, beside) = std::thread::scope(|scope| {
            let all: Vec<_> = (0..probe.calls)
                .map(|_| {
                    let kept = kept.take();
                    scope.spawn(move || hands.call_on(kept, plain).map(|made| (instrument::now(), made)))
                })
                .collect();
            let beside = probe.beside.map(|after| {
                std::thread::sleep(after.min(hands.left()));
                hands.call_on(None, elsewhere).map(|(call, _)| call)
            });
            let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (all.into_iter().map(join).collect::<Result<Vec<_>, _>>(), beside.transpose())
        });
        let mut made = made?;
        made.sort_by_key(|(ended, _)| *ended);
        let mut calls = Vec::with_capacity(made.len());
        for (_, (call, wire)) in made {
            calls.push(call);
            if let Some(wire) = wire.filter(|_| single && !probe.fresh) {
                self.lanes.insert(0, KeptConnection { wire });
            }
        }
        Ok((calls, beside?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_connections_that_go_out_are_watched() {
        let here = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = here.local_addr().expect("an address");
        let mut caller = TcpStream::connect(to).expect("connected");
        caller.write_all(b"unread").expect("sent");
        let accepted = here.accept().expect("accepted");
        let behind = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = behind.local_addr().expect("an address");
        let mut watcher = UpstreamWatcher::new(std::process::id(), to).expect("our own process");
        // It is opened once we watch.
        let out = TcpStream::connect(peer).expect("connected");
        let look = watcher.look(Duration::ZERO).expect("sock_diag is there");
        let local = out.local_addr().expect("an address");
        assert!(look.sockets.iter().any(|s| (s.peer, s.local) == (peer, local)), "{look:?}");
        assert!(look.sockets.iter().all(|s| s.local != to && s.local != peer), "{look:?}");
        assert_eq!(look.unread, 1, "{accepted:?}");
    }
}
