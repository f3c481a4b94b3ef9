//! The event loops: an engine for each core, on the transport that was asked for or found best.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use linerate_net::link::xdp::Steer;
use linerate_net::open::{PrepareError, Prepared, ThreadOptions, Unopened, UseTransport};
use linerate_net::{Io, IoOptions, Probe, Transport, machine};

use super::core_part::{CorePart, Joining, limits};
use super::works::Works;
use super::{hosts, quic};
use crate::engine::board::{Board, Common};
use crate::outcome::Outcome;
use crate::plan::{Pace, Plan};
use crate::route::{Names, RouteTo};
use crate::start::{RunPlace, StartError, Work};

/// From this depth on epoll is cheaper: a read brings many responses at once, and one large buffer takes them better
/// than a row of provided ones. docs/PERFORMANCE.md has the figures.
const DEEP: u32 = 8;

/// Which transport a plan is best served by on this kernel, or must be by its own word; and what the user should know of it.
fn choose(plan: &Plan) -> Result<(Io, Option<String>), StartError> {
    let by_choice =
        plan.io == Io::Auto && (plan.depth >= DEEP || plan.pace != Pace::Closed || plan.throughput);
    if plan.io == Io::Epoll || by_choice || plan.is_quic() || plan.host_count() > 1 {
        return Ok((Io::Epoll, None));
    }
    if plan.io.is_user_space() {
        return Ok((plan.io, None));
    }
    match (Probe::run().uring(), plan.io) {
        (Ok(()), _) => Ok((Io::Uring, None)),
        (Err(missing), Io::Uring) => {
            Err(StartError::Machine(format!("{missing}; --io epoll works on every kernel")))
        }
        (Err(missing), _) => Ok((Io::Epoll, Some(format!("sent by epoll: {missing}")))),
    }
}

/// How long threads have to get ready. Reason: all begin at the same moment, so that an open loop's first requests are
/// not late.
const HEAD_START: Duration = Duration::from_millis(5);

/// One engine's work for each core.
pub(super) fn works(plan: &Plan, place: Option<RunPlace>, common: &Arc<Common>) -> Result<Works, StartError> {
    let (io, mut warning) = choose(plan)?;
    let cores = u32::try_from(machine::allowed_cores().len()).unwrap_or(1);
    let most = plan.flows.as_ref().map_or(plan.connections, |flows| flows.users);
    let threads = plan.threads.unwrap_or(cores).clamp(1, most);
    let prepared = prepare(plan, io, threads)?;
    if !prepared.notes.is_empty() {
        warning = warning.or_else(|| Some(prepared.notes.join("; ")));
    }
    let threads = prepared.transports.len() as u32;
    let plan = Arc::new(plan.clone());
    let (first, all) = place.map_or((0, threads), |p| (p.first_thread, p.all_threads));
    // Each thread sends its part of what all of them may.
    let gap = place.and_then(|p| p.gap).map(|gap| gap.saturating_mul(threads));
    let route = RouteTo::of(&plan)?;
    // Past the kernel, the way to an address is looked for before the run.
    let names = if io.is_user_space() { None } else { Names::of(&plan) };
    if plan.all_tls().next().is_some() {
        warning = warning.or_else(crate::plan::tls::TargetTls::key_log_trouble);
    }
    let mut boards: Vec<_> = (0..threads).map(|_| Arc::new(Board::sharing(common))).collect();
    let others = hosts::others(&plan, common, threads)?;
    // Certificates are read and random numbers seeded by now, which takes longer.
    let earliest = machine::monotonic_now() + HEAD_START;
    let start = place.and_then(|p| p.start).map_or(earliest, |at| at.max(earliest));
    // A part that joins keeps the run's times, although it starts later.
    let join = place.and_then(|p| p.join);
    let run_start = join.and(place.and_then(|p| p.start)).unwrap_or(start);
    let start = join.map_or(start, |join| (run_start + join.at).max(earliest));
    let work = |((core, board), transport): ((u32, &Arc<Board>), Unopened)| -> Work {
        let (plan, board) = (Arc::clone(&plan), Arc::clone(board));
        let joining = join.map(|join| Joining { join, run_start, thread: core, threads });
        let (route, names) = (route.clone(), names.clone());
        let part = CorePart { core: first + core, cores: all, start, route, names, joining, gap };
        let others = hosts::of_thread(&others, core as usize);
        Box::new(move || match others.is_empty() {
            true => run_on(part, &plan, transport, board),
            false => hosts::run(part, &plan, board, others),
        })
    };
    let works = (0..threads).zip(&boards).zip(prepared.transports).map(work).collect();
    boards.extend(others.iter().flat_map(|host| host.boards.iter().cloned()));
    // A link was opened by the thread that starts them all, whose descriptors it shares.
    let own_descriptors = !io.is_user_space();
    Ok(Works { works, boards, pinned: true, own_descriptors, warning, capture: prepared.capture, names })
}

/// Prepares the threads' transports.
fn prepare(plan: &Plan, io: Io, threads: u32) -> Result<Prepared, StartError> {
    let fault = plan.fault.as_deref().map(str::parse).transpose().map_err(StartError::Plan)?;
    let options = IoOptions {
        io,
        interface: plan.interface.clone(),
        busy_poll: plan.busy_poll,
        pcap_out: plan.pcap_out.clone(),
        fault,
    };
    options.prepare(threads as usize, || Steer::From(plan.from.clone())).map_err(|e| match e {
        PrepareError::Interface(missing) => StartError::Interface(missing),
        other => StartError::Machine(other.to_string()),
    })
}

/// A core's part of a plan, until it has its transport.
struct CoreRun<'a> {
    part: CorePart,
    plan: &'a Plan,
    board: Arc<Board>,
}

impl UseTransport for CoreRun<'_> {
    type Output = Result<Outcome, String>;

    fn with<T: Transport>(self, transport: T) -> Self::Output {
        self.part.run(self.plan, transport, self.board)
    }
}

/// Opens the transport, and runs a core's part on it.
fn run_on(
    part: CorePart,
    plan: &Plan,
    mut transport: Unopened,
    board: Arc<Board>,
) -> Result<Outcome, String> {
    let peers: Vec<_> = plan.target.addresses.iter().map(SocketAddr::ip).collect();
    if let Err(unreachable) = transport.look_for(&peers) {
        return Ok(Outcome { unreachable: Some(unreachable.to_string()), ..Outcome::default() });
    }
    if plan.is_quic() {
        return quic::run_over_udp(part, plan, board);
    }
    let options = ThreadOptions { limits: limits(plan, &part), addresses: plan.from.clone() };
    let name = transport.kernel_name();
    let opened = transport.open(options, CoreRun { part, plan, board });
    opened.unwrap_or_else(|e| Err(format!("{name}: {e}")))
}
