//! Tasks on an async runtime (tokio, one thread), each with its own connection and one request at a time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::{NetError, machine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Works;
use super::caller::{Caller, Desk, Heard, Next, refuse_what_is_not_theirs};
use super::outgoing::Outgoing;
use crate::engine::board::Board;
use crate::outcome::{Failure, Outcome};
use crate::plan::Plan;
use crate::run::{StartError, Work};

/// Receive buffer of a task. Reason: a thousand of them must fit.
const BUFFER_BYTES: usize = 16 << 10;

/// How long the end is waited for before the order to stop is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// As many tasks as the plan has connections.
pub(super) fn works(plan: &Plan) -> Result<Works, StartError> {
    refuse_what_is_not_theirs(plan)?;
    let board = Arc::new(Board::default());
    let desk = Desk::new(plan, machine::monotonic_now(), Arc::clone(&board))?;
    let (plan, desk) = (plan.clone(), Arc::new(Mutex::new(desk)));
    let work: Work = Box::new(move || run(&plan, desk));
    Ok(Works {
        works: vec![work],
        boards: vec![board],
        pinned: true,
        own_descriptors: true,
        warning: None,
        capture: None,
    })
}

fn run(plan: &Plan, desk: Arc<Mutex<Desk>>) -> Result<Outcome, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let stop = Caller::new(Arc::clone(&desk), None);
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..plan.connections as usize {
            let caller = Caller::new(Arc::clone(&desk), plan.per_connection);
            let to = plan.target.addresses[i % plan.target.addresses.len()];
            tasks.spawn(drive(caller, to, plan.timeout));
        }
        loop {
            match timeout(SLICE, tasks.join_next()).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                // Whoever is dropped says what became of its request.
                Err(_) if stop.is_over(machine::monotonic_now()) => tasks.abort_all(),
                Err(_) => {}
            }
        }
    });
    drop(stop);
    let desk = Arc::into_inner(desk).ok_or("a task is still there")?;
    Ok(desk.into_inner().unwrap_or_else(|e| e.into_inner()).into_outcome("async"))
}

async fn drive(mut caller: Caller, to: SocketAddr, limit: Duration) {
    let mut request = Outgoing::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut stream: Option<TcpStream> = None;
    loop {
        let Some(open) = &mut stream else {
            let asked = machine::monotonic_now();
            match connect(to, caller.connect_limit(asked, limit)).await {
                Ok(s) => {
                    caller.connected(asked, machine::monotonic_now());
                    stream = Some(s);
                }
                Err(e) => {
                    sleep(Duration::from_millis(10)).await;
                    if !caller.connect_failed(asked, machine::monotonic_now(), &e) {
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
            stream = None;
            caller.disconnected(machine::monotonic_now());
        }
    }
}

async fn connect(to: SocketAddr, limit: Duration) -> Result<TcpStream, NetError> {
    let timed_out = |_| NetError::of(linerate_net::NetErrorKind::TimedOut);
    let stream = timeout(limit, TcpStream::connect(to)).await.map_err(timed_out)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn write(stream: &mut TcpStream, request: &Outgoing) -> std::io::Result<()> {
    for part in request.slices() {
        stream.write_all(part).await?;
    }
    Ok(())
}

/// Sends one request and reads its answer. Says whether the connection may carry another.
async fn exchange(
    caller: &mut Caller,
    stream: &mut TcpStream,
    request: &Outgoing,
    buffer: &mut [u8],
) -> bool {
    let mut step = write(stream, request).await.map(|()| 1);
    loop {
        match step {
            Ok(0) => {
                let words = "the peer closed the connection without an answer";
                caller.lost(machine::monotonic_now(), Failure::ClosedEarly, words);
                return false;
            }
            Ok(_) => {}
            Err(_) => {
                caller.lost(machine::monotonic_now(), Failure::Reset, "connection reset by the peer");
                return false;
            }
        }
        step = stream.read(buffer).await;
        if let Ok(n @ 1..) = step {
            match caller.handle_bytes(machine::monotonic_now(), &buffer[..n]) {
                Heard::More => {}
                Heard::Answered { reusable } => return reusable,
                Heard::Broken => return false,
            }
        }
    }
}
