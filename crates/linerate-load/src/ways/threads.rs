//! Blocking threads, each with its own connection and one request at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linerate_net::{NetError, NetErrorKind, machine};

use super::Works;
use super::caller::{Caller, Desk, Heard, Next, refuse_what_is_not_theirs};
use super::outgoing::Outgoing;
use crate::engine::board::Board;
use crate::outcome::{Client, Failure, Outcome};
use crate::plan::Plan;
use crate::run::{StartError, Work};
use crate::watch::Watch;

/// Stack of a thread. Reason: a thousand of them must fit.
const STACK_BYTES: usize = 128 << 10;

/// How long a read blocks before the order to stop is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// `n` threads that share the plan's requests.
pub(super) fn works(plan: &Plan, n: u32) -> Result<Works, StartError> {
    refuse_what_is_not_theirs(plan)?;
    let board = Arc::new(Board::default());
    let desk = Desk::new(plan, machine::monotonic_now(), Arc::clone(&board))?;
    let (plan, desk) = (plan.clone(), Arc::new(Mutex::new(desk)));
    let work: Work = Box::new(move || run(&plan, desk, n));
    Ok(Works {
        works: vec![work],
        boards: vec![board],
        pinned: false,
        own_descriptors: true,
        warning: None,
        capture: None,
    })
}

/// Starts the threads, waits for them, and gathers what they cost.
fn run(plan: &Plan, desk: Arc<Mutex<Desk>>, n: u32) -> Result<Outcome, String> {
    let mut threads = Vec::new();
    for i in 0..n {
        let caller = Caller::new(Arc::clone(&desk), plan.per_connection);
        let (to, timeout) = (plan.target.addresses[i as usize % plan.target.addresses.len()], plan.timeout);
        let body = move || {
            let watch = Watch::begin();
            drive(caller, to, timeout);
            watch.end()
        };
        let thread = thread::Builder::new().name(format!("caller-{i}")).stack_size(STACK_BYTES).spawn(body);
        threads.push(thread.map_err(|e| format!("a thread could not be started: {e}"))?);
    }
    let mut client = Client::default();
    for thread in threads {
        client.merge(&thread.join().map_err(|_| "a calling thread panicked".to_owned())?);
    }
    let desk = Arc::into_inner(desk).ok_or("a calling thread is still there")?;
    let mut outcome = desk.into_inner().unwrap_or_else(|e| e.into_inner()).into_outcome("threads");
    outcome.client.merge(&client);
    Ok(outcome)
}

fn drive(mut caller: Caller, to: SocketAddr, timeout: Duration) {
    let mut request = Outgoing::default();
    let mut buffer = vec![0; 64 << 10];
    let mut stream: Option<TcpStream> = None;
    loop {
        let Some(open) = &mut stream else {
            let asked = machine::monotonic_now();
            match connect(to, timeout, caller.connect_limit(asked, timeout)) {
                Ok(s) => {
                    caller.connected(asked, machine::monotonic_now());
                    stream = Some(s);
                }
                Err(e) => {
                    thread::sleep(Duration::from_millis(10));
                    if !caller.connect_failed(asked, machine::monotonic_now(), &connect_error(e)) {
                        return;
                    }
                }
            }
            continue;
        };
        if caller.next(machine::monotonic_now(), &mut request) == Next::Done {
            return;
        }
        if !exchange(&mut caller, open, &request, &mut buffer, timeout) {
            if caller.is_over(machine::monotonic_now()) {
                return;
            }
            stream = None;
            caller.disconnected(machine::monotonic_now());
        }
    }
}

/// The standard library's own time limit has no number of the kernel's.
fn connect_error(error: io::Error) -> NetError {
    if is_late(&error) { NetError::of(NetErrorKind::TimedOut) } else { NetError::from(error) }
}

fn connect(to: SocketAddr, timeout: Duration, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, limit)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout.min(SLICE)))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

/// Sends one request and reads its answer. Says whether the connection may carry another.
fn exchange(
    caller: &mut Caller,
    stream: &mut TcpStream,
    request: &Outgoing,
    buffer: &mut [u8],
    timeout: Duration,
) -> bool {
    let begun = machine::monotonic_now();
    let mut step = request.slices().try_for_each(|part| stream.write_all(part)).map(|()| 1);
    loop {
        let now = machine::monotonic_now();
        match step {
            Ok(0) => return ended(caller),
            Ok(_) if now - begun < timeout => {}
            Err(ref e) if is_late(e) && now - begun < timeout && !caller.is_over(now) => {}
            Err(ref e) if is_late(e) && caller.is_over(now) => return false,
            Ok(_) => return timed_out(caller),
            Err(ref e) if is_late(e) => return timed_out(caller),
            Err(_) => {
                caller.lost(now, Failure::Reset, "connection reset by the peer");
                return false;
            }
        }
        step = stream.read(buffer);
        if let Ok(n @ 1..) = step {
            match caller.handle_bytes(machine::monotonic_now(), &buffer[..n]) {
                Heard::More => {}
                Heard::Answered { reusable } => return reusable,
                Heard::Broken => return false,
            }
        }
    }
}

fn ended(caller: &mut Caller) -> bool {
    let words = "the peer closed the connection without an answer";
    caller.lost(machine::monotonic_now(), Failure::ClosedEarly, words);
    false
}

fn timed_out(caller: &mut Caller) -> bool {
    caller.timed_out(machine::monotonic_now());
    false
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
