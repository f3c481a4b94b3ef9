//! Tasks on an async runtime (tokio, one thread), each with its own connection and one request at a time.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::{NetError, NetErrorKind, Time, dial_unix, machine};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::caller::{Caller, Desk, Next, refuse_what_is_not_theirs};
use super::channel::{Channel, NotOpened};
use super::outgoing::RenderedRequest;
use super::towards::{CallersShared, ConnectPlace, Towards, own_end};
use super::works::Works;
use crate::engine::board::{Board, Common};
use crate::outcome::{Failure, Outcome};
use crate::plan::Plan;
use crate::route::Names;
use crate::start::{StartError, Work};

/// Receive buffer of a task. Reason: a thousand of them must fit.
const BUFFER_BYTES: usize = 16 << 10;

/// How long the end is waited for before the order to stop is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// As many tasks as the plan has connections.
pub(super) fn works(plan: &Plan, common: &Arc<Common>) -> Result<Works, StartError> {
    refuse_what_is_not_theirs(plan)?;
    let board = Arc::new(Board::sharing(common));
    let desk = Desk::new(plan, machine::monotonic_now(), Arc::clone(&board))?;
    let names = Names::of(plan);
    let way = CallersShared::of(plan, names.clone())?;
    let (plan, desk) = (plan.clone(), Arc::new(Mutex::new(desk)));
    let work: Work = Box::new(move || run(&plan, &way, desk));
    Ok(Works {
        works: vec![work],
        boards: vec![board],
        pinned: true,
        own_descriptors: true,
        warning: None,
        capture: None,
        names,
    })
}

fn run(plan: &Plan, way: &CallersShared, desk: Arc<Mutex<Desk>>) -> Result<Outcome, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let stop = Caller::new(Arc::clone(&desk), None);
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..plan.connections as usize {
            let caller = Caller::new(Arc::clone(&desk), plan.per_connection);
            tasks.spawn(drive(caller, way.towards(i as u64), plan.timeout));
        }
        loop {
            match timeout(SLICE, tasks.join_next()).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                // A dropped caller records the outcome of its request in flight.
                Err(_) if stop.is_over(machine::monotonic_now()) => tasks.abort_all(),
                Err(_) => {}
            }
        }
    });
    drop(stop);
    let desk = Arc::into_inner(desk).ok_or("a task is still there")?;
    let mut outcome = desk.into_inner().unwrap_or_else(|e| e.into_inner()).into_outcome("async");
    way.settle(&mut outcome);
    Ok(outcome)
}

/// An open connection.
struct Open {
    stream: Stream,
    channel: Channel,
}

/// TCP's, or a Unix one.
type Stream = Box<dyn CallerStream>;

/// The traits that both kinds of stream have.
trait CallerStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> CallerStream for T {}

async fn drive(mut caller: Caller, mut towards: Towards, limit: Duration) {
    let mut request = RenderedRequest::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut connection: Option<Open> = None;
    loop {
        let Some(open) = &mut connection else {
            let asked = machine::monotonic_now();
            if !caller.has_more(asked) {
                return;
            }
            let timed_out = |_| NetError::of(NetErrorKind::TimedOut).into();
            let patience = caller.connect_limit(asked, limit);
            let opened = timeout(patience, connect(&mut towards, &mut buffer)).await;
            match opened.map_err(timed_out).and_then(|opened| opened) {
                Ok((open, tcp_at)) => {
                    towards.reached();
                    caller.connected(asked, tcp_at, machine::monotonic_now());
                    connection = Some(open);
                }
                Err(error) => {
                    sleep(Duration::from_millis(10)).await;
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
        let reusable = match timeout(limit, exchange(&mut caller, open, &request, &mut buffer)).await {
            Ok(reusable) => reusable,
            Err(_) => {
                caller.timed_out(machine::monotonic_now());
                false
            }
        };
        if !reusable {
            connection = None;
            caller.disconnected(machine::monotonic_now());
        }
    }
}

/// Opens a connection, up to where requests may pass. And when it was established.
async fn connect(towards: &mut Towards, buffer: &mut [u8]) -> Result<(Open, Time), NotOpened> {
    let (place, mut channel) = towards.next()?;
    let (mut stream, local): (Stream, _) = match place {
        ConnectPlace::Address(to) => {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            let local = own_end(stream.local_addr().ok(), to)?;
            (Box::new(stream), local)
        }
        ConnectPlace::Unix(path) => (Box::new(dial(&path).await?), None),
    };
    let tcp_at = machine::monotonic_now();
    channel.begin(local);
    loop {
        stream.write_all(&channel.wire()).await.map_err(|e| channel.lost(e.into()))?;
        if channel.is_ready() {
            return Ok((Open { stream, channel }, tcp_at));
        }
        let n = stream.read(buffer).await.map_err(|e| channel.lost(e.into()))?;
        channel.shake(&mut buffer[..n])?;
    }
}

/// A Unix socket; while its accept queue is full, it is tried again.
async fn dial(path: &Path) -> Result<UnixStream, NetError> {
    loop {
        match dial_unix(path) {
            Ok(stream) => return Ok(UnixStream::from_std(stream)?),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => sleep(Duration::from_millis(1)).await,
            Err(e) => return Err(e.into()),
        }
    }
}

async fn write(open: &mut Open, request: &RenderedRequest) -> std::io::Result<()> {
    for part in request.slices() {
        open.stream.write_all(open.channel.seal(part)).await?;
    }
    Ok(())
}

/// Sends one request and reads its response. Says whether the connection may carry another.
async fn exchange(
    caller: &mut Caller,
    open: &mut Open,
    request: &RenderedRequest,
    buffer: &mut [u8],
) -> bool {
    // What the server answered before it closed is read even so.
    let unwritten = write(open, request).await.is_err();
    loop {
        match open.stream.read(buffer).await {
            // After a write that failed, the end is that of a connection that was reset: the write
            // took the error.
            Ok(n) if n > 0 || !unwritten => {
                let (plain, opened) = open.channel.open(&mut buffer[..n]);
                if let Some(reusable) = caller.take(machine::monotonic_now(), plain, opened) {
                    return reusable && !unwritten;
                }
                // The session's own bytes; a connection that cannot take them says so when it is read.
                let _ = open.stream.write_all(&open.channel.wire()).await;
            }
            _ => {
                caller.lost(machine::monotonic_now(), Failure::Reset, "connection reset by the peer");
                return false;
            }
        }
    }
}
