//! Blocking threads, each with its own connection and one request at a time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linerate_net::{NetError, NetErrorKind, Time, dial_unix, machine};

use super::caller::{Caller, Desk, Next, refuse_what_is_not_theirs};
use super::channel::{Channel, NotOpened};
use super::outgoing::RenderedRequest;
use super::towards::{CallersShared, ConnectPlace, Towards, own_end};
use super::works::Works;
use crate::engine::board::{Board, Common};
use crate::outcome::{ClientFigures, Failure, Outcome};
use crate::plan::Plan;
use crate::route::Names;
use crate::start::{StartError, Work};
use crate::watch::ThreadWatch;

/// Stack of a thread. Reason: a thousand of them must fit.
const STACK_BYTES: usize = 128 << 10;

/// ... that checks certificates. Reason: signatures are computed on it.
const DEEP_STACK_BYTES: usize = 1 << 20;

/// How long a read blocks before the order to stop is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// `n` threads that share the plan's requests.
pub(super) fn works(plan: &Plan, n: u32, common: &Arc<Common>) -> Result<Works, StartError> {
    refuse_what_is_not_theirs(plan)?;
    let board = Arc::new(Board::sharing(common));
    let desk = Desk::new(plan, machine::monotonic_now(), Arc::clone(&board))?;
    let names = Names::of(plan);
    let way = CallersShared::of(plan, names.clone())?;
    let (plan, desk) = (plan.clone(), Arc::new(Mutex::new(desk)));
    let work: Work = Box::new(move || run(&plan, &way, desk, n));
    Ok(Works {
        works: vec![work],
        boards: vec![board],
        pinned: false,
        own_descriptors: true,
        warning: None,
        capture: None,
        names,
    })
}

/// Starts the threads, waits for them, and gathers what they cost.
fn run(plan: &Plan, way: &CallersShared, desk: Arc<Mutex<Desk>>, n: u32) -> Result<Outcome, String> {
    let mut threads = Vec::new();
    for i in 0..n {
        let caller = Caller::new(Arc::clone(&desk), plan.per_connection);
        let (towards, timeout) = (way.towards(u64::from(i)), plan.timeout);
        let body = move || {
            let watch = ThreadWatch::begin();
            drive(caller, towards, timeout);
            watch.end()
        };
        let stack = if way.is_deep() { DEEP_STACK_BYTES } else { STACK_BYTES };
        let thread = thread::Builder::new().name(format!("caller-{i}")).stack_size(stack).spawn(body);
        threads.push(thread.map_err(|e| format!("a thread could not be started: {e}"))?);
    }
    let mut client = ClientFigures::default();
    for thread in threads {
        client.merge(&thread.join().map_err(|_| "a calling thread panicked".to_owned())?);
    }
    let desk = Arc::into_inner(desk).ok_or("a calling thread is still there")?;
    let mut outcome = desk.into_inner().unwrap_or_else(|e| e.into_inner()).into_outcome("threads");
    outcome.client.merge(&client);
    way.settle(&mut outcome);
    Ok(outcome)
}

/// An open connection.
struct Open {
    stream: TcpStream,
    channel: Channel,
}

fn drive(mut caller: Caller, mut towards: Towards, timeout: Duration) {
    let mut request = RenderedRequest::default();
    let mut buffer = vec![0; 64 << 10];
    let mut connection: Option<Open> = None;
    loop {
        let Some(open) = &mut connection else {
            let asked = machine::monotonic_now();
            if !caller.has_more(asked) {
                return;
            }
            let limit = caller.connect_limit(asked, timeout);
            match connect(&mut towards, &mut buffer, timeout, limit) {
                Ok((open, tcp_at)) => {
                    towards.reached();
                    caller.connected(asked, tcp_at, machine::monotonic_now());
                    connection = Some(open);
                }
                Err(error) => {
                    thread::sleep(Duration::from_millis(10));
                    let now = machine::monotonic_now();
                    let error = towards.failed(error, now);
                    if !caller.connect_failed(asked, now, &error) {
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
            connection = None;
            caller.disconnected(machine::monotonic_now());
        }
    }
}

/// The standard library's own time limit has no number of the kernel's.
fn connect_error(error: io::Error) -> NetError {
    if is_late(&error) { NetError::of(NetErrorKind::TimedOut) } else { NetError::from(error) }
}

/// Opens a connection, up to where requests may pass. And when it was established.
fn connect(
    towards: &mut Towards,
    buffer: &mut [u8],
    timeout: Duration,
    limit: Duration,
) -> Result<(Open, Time), NotOpened> {
    let until = machine::monotonic_now() + limit;
    let (place, mut channel) = towards.next()?;
    let mut local = None;
    let mut stream = match place {
        ConnectPlace::Address(to) => {
            let stream = TcpStream::connect_timeout(&to, limit).map_err(connect_error)?;
            stream.set_nodelay(true)?;
            local = own_end(stream.local_addr().ok(), to)?;
            stream
        }
        ConnectPlace::Unix(path) => dial(&path, until)?,
    };
    stream.set_read_timeout(Some(timeout.min(SLICE)))?;
    stream.set_write_timeout(Some(timeout))?;
    let tcp_at = machine::monotonic_now();
    channel.begin(local);
    loop {
        stream.write_all(&channel.wire()).map_err(|e| channel.lost(connect_error(e)))?;
        if channel.is_ready() {
            return Ok((Open { stream, channel }, tcp_at));
        }
        match stream.read(buffer) {
            Ok(n) => channel.shake(&mut buffer[..n])?,
            Err(e) if is_late(&e) && machine::monotonic_now() < until => {}
            Err(e) => return Err(channel.lost(connect_error(e))),
        }
    }
}

/// A Unix socket, which has no time limit of its own while its accept queue is full. As a `TcpStream`: what reads and writes is the
/// same for both, and nothing else is asked of it.
fn dial(path: &Path, until: Time) -> Result<TcpStream, NetError> {
    loop {
        match dial_unix(path) {
            Ok(stream) => {
                stream.set_nonblocking(false)?;
                return Ok(TcpStream::from(OwnedFd::from(stream)));
            }
            Err(e) if is_late(&e) && machine::monotonic_now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(connect_error(e)),
        }
    }
}

/// Sends one request and reads its response. Says whether the connection may carry another.
fn exchange(
    caller: &mut Caller,
    open: &mut Open,
    request: &RenderedRequest,
    buffer: &mut [u8],
    timeout: Duration,
) -> bool {
    let Open { stream, channel } = open;
    let begun = machine::monotonic_now();
    let mut step = request.slices().try_for_each(|part| stream.write_all(channel.seal(part))).map(|()| 1);
    let unwritten = step.as_ref().is_err_and(|e| !is_late(e));
    // The server may have answered before it closed.
    let mut has_unread = unwritten;
    loop {
        let now = machine::monotonic_now();
        match step {
            Ok(_) if now - begun < timeout => {}
            Err(ref e) if is_late(e) && now - begun < timeout && !caller.is_over(now) => {}
            Err(ref e) if is_late(e) && caller.is_over(now) => return false,
            Ok(_) => return timed_out(caller),
            Err(ref e) if is_late(e) => return timed_out(caller),
            Err(_) if std::mem::take(&mut has_unread) => {}
            Err(_) => {
                caller.lost(now, Failure::Reset, "connection reset by the peer");
                return false;
            }
        }
        step = stream.read(buffer);
        if unwritten && matches!(step, Ok(0)) {
            // The write took the error.
            step = Err(io::ErrorKind::ConnectionReset.into());
        }
        if let Ok(n) = step {
            let (plain, opened) = channel.open(&mut buffer[..n]);
            if let Some(reusable) = caller.take(machine::monotonic_now(), plain, opened) {
                return reusable && !unwritten;
            }
            // The session's own bytes; a connection that cannot take them says so when it is read.
            let _ = stream.write_all(&channel.wire());
        }
    }
}

fn timed_out(caller: &mut Caller) -> bool {
    caller.timed_out(machine::monotonic_now());
    false
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
