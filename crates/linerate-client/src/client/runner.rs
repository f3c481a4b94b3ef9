//! A client on a transport of the program's own, in the program's own thread: `io_uring`, user-space TCP, or memory.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use linerate_net::share::Bell;
use linerate_net::{Time, Transport};

use super::board::SharedBoard;
use super::mover::{Mover, Moving, mover_over};
use super::options::CallOptions;
use super::secure::Secure;
use super::target::Target;

/// Moves the bytes of a client over a transport of the program's own, while it runs the program's future in the same
/// thread. There is no tokio and no other thread, but for looking up the server's name.
///
/// Between two runs nothing moves. Dropping it ends the client: its calls end with
/// [`Error::Closed`](super::Error::Closed).
pub struct Runner<T: Transport> {
    mover: Moving<T>,
    bell: Arc<Bell>,
}

impl<T: Transport> Runner<T> {
    pub(super) fn new(
        transport: T,
        shared: Arc<SharedBoard>,
        options: &CallOptions,
        target: Target,
        secure: Option<&Secure>,
    ) -> Runner<T> {
        let bell = Arc::new(Bell::new(transport.waker()));
        Runner { mover: mover_over(transport, shared, options, target, secure), bell }
    }

    /// Runs a future to its end. Calls of this client that it waits for move on meanwhile.
    ///
    /// # Errors
    /// The transport is broken, or nothing can ever wake the future.
    pub fn run<F: Future>(&mut self, future: F) -> io::Result<F::Output> {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(&self.bell));
        let mut cx = Context::from_waker(&waker);
        let span = self.mover.span.clone();
        self.bell.ring();
        let mut is_open = true;
        loop {
            if self.bell.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                self.mover.publish();
                return Ok(output);
            }
            let _entered = span.enter();
            is_open = is_open && self.mover.is_wanted();
            let is_forced = self.mover.begin(&mut cx)?;
            let now = self.mover.calls.transport().now();
            let until = self.mover.until(now);
            // Without a client there is nothing for the calls to do.
            let is_idle = !is_forced && (!is_open || self.mover.sleep(&waker));
            let rests = is_idle && self.bell.begin_wait();
            let until = if rests { until } else { now };
            let Mover { calls, events, .. } = &mut self.mover;
            calls.transport().turn((until != Time::NEVER).then_some(until), events)?;
            self.bell.end_wait();
            self.mover.end();
        }
    }
}

impl<T: Transport> fmt::Debug for Runner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use linerate_net::mem::{Mem, PeerActions, PeerConn};

    use super::*;
    use crate::client::{Client, Error};

    fn step(runner: &mut Runner<Mem>) {
        step_within(runner, Duration::from_secs(60));
    }

    fn step_within(runner: &mut Runner<Mem>, most: Duration) {
        let mover = &mut runner.mover;
        assert!(mover.is_wanted());
        mover.begin(&mut Context::from_waker(Waker::noop())).unwrap();
        let now = mover.calls.transport().now();
        // A caller that was woken has to be polled again.
        let until = mover.until(now).min(now + most);
        mover.calls.transport().turn(Some(until), &mut mover.events).unwrap();
        mover.end();
    }

    #[test]
    fn a_call_whose_server_is_gone_waits_without_looking_each_millisecond() {
        let builder = Client::builder("http://10.0.0.9:80").connect_attempts(12);
        let (client, mut runner) = builder.build_over(Mem::default()).unwrap();
        let mut call = pin!(client.get("/"));
        let mut cx = Context::from_waker(Waker::noop());
        let mut looks = 0;
        let result = loop {
            if let Poll::Ready(result) = call.as_mut().poll(&mut cx) {
                break result;
            }
            looks += 1;
            step(&mut runner);
        };
        assert!(matches!(result, Err(Error::Connect(_))), "{result:?}");
        let spent = runner.mover.calls.transport().now() - Time::ZERO;
        assert!(looks < 50 && spent.as_millis() > 60, "{looks} looks in {spent:?}");
    }

    /// Far more calls than there are places: each has ended when its time, counted from its first poll, is over.
    #[test]
    fn the_time_of_a_call_runs_while_it_waits_for_a_place() {
        let mut mem = Mem::default();
        let silent = |_: Time, _: PeerConn, _: &[u8], _: &mut PeerActions| ();
        mem.serve("10.0.0.2:80".parse().unwrap(), silent).unwrap();
        let builder = Client::builder("http://10.0.0.2:80").queue(4).timeout(Duration::from_secs(3));
        let (client, mut runner) = builder.build_over(mem).unwrap();
        let mut calls: Vec<_> = (0..40).map(|_| Box::pin(client.get("/"))).collect();
        calls.push(Box::pin(client.get("/").timeout(Duration::from_secs(1))));
        let mut cx = Context::from_waker(Waker::noop());
        let mut ended = vec![None; calls.len()];
        loop {
            for (call, ended) in calls.iter_mut().zip(&mut ended).filter(|(_, ended)| ended.is_none()) {
                if let Poll::Ready(result) = call.as_mut().poll(&mut cx) {
                    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
                    *ended = Some(runner.mover.calls.transport().now() - Time::ZERO);
                }
            }
            if !ended.contains(&None) {
                break;
            }
            step_within(&mut runner, Duration::from_millis(100));
        }
        let within = |ended: Option<Duration>, seconds: u64| {
            let late = ended.unwrap().saturating_sub(Duration::from_secs(seconds));
            assert!(late < Duration::from_millis(200), "{ended:?} instead of {seconds} s");
        };
        within(ended.pop().unwrap(), 1);
        ended.into_iter().for_each(|ended| within(ended, 3));
    }

    /// RFC 9110 section 9.2.2: the server may have acted on the one that left.
    #[test]
    fn when_a_client_ends_a_request_that_left_is_unknown_unless_it_is_idempotent() {
        let mut mem = Mem::default();
        let silent = |_: Time, _: PeerConn, _: &[u8], _: &mut PeerActions| ();
        mem.serve("10.0.0.2:80".parse().unwrap(), silent).unwrap();
        let (client, mut runner) = Client::builder("http://10.0.0.2:80").build_over(mem).unwrap();
        let (mut post, mut get) = (pin!(client.post("/", "x")), pin!(client.get("/")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(post.as_mut().poll(&mut cx).is_pending() && get.as_mut().poll(&mut cx).is_pending());
        for _ in 0..10 {
            step(&mut runner);
        }
        drop(runner);
        let Poll::Ready(Err(Error::OutcomeUnknown(unknown))) = post.as_mut().poll(&mut cx) else {
            panic!("nobody knows")
        };
        assert_eq!(unknown.request.body(), "x");
        assert!(matches!(get.as_mut().poll(&mut cx), Poll::Ready(Err(Error::Closed))));
    }
}
