//! What one core does of a plan: the engine for it, on any transport.

use std::sync::Arc;
use std::time::Duration;

use linerate_client::{Any, AnyShared, Conversation, H1, H2Shared};
use linerate_http::client::{Body, HeadCache};
use linerate_net::{Profile, Time, Transport, machine};
use linerate_tls::PLAIN;

use super::works::share;
use crate::engine::board::Board;
use crate::engine::kinds::Kinds;
use crate::engine::responses::ResponseReading;
use crate::engine::supply::Supply;
use crate::engine::{Engine, Orders};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::plan::schedule::Schedule;
use crate::route::{Addresses, Names, RouteTo};
use crate::start::Join;

/// Events taken in one turn. Reason: a thousand at once cost 5 % less than four times a quarter of them, and the clock is
/// read every few events anyway.
const EVENTS_PER_TURN: u32 = 1024;

/// Descriptors that are not for connections, at most. Reason: a thread has a few for itself, and shares those for the
/// terminal, the plan's files and the log.
const OTHER_DESCRIPTORS: u64 = 64;

pub(super) fn limits(plan: &Plan, part: &CorePart) -> linerate_net::TransportLimits {
    let own = u32::try_from(connections(plan, (part.core, part.cores))).unwrap_or(u32::MAX);
    let usual = linerate_net::TransportLimits::default();
    // Connections that linger after their last response come on top. Beyond it, the one that has
    // lingered longest gives its place to the next.
    let connections = own.saturating_mul(2).saturating_add(1024).saturating_add(usual.closing_connections);
    let connections = connections.min(descriptors(plan).max(own.saturating_add(1)));
    // Large bodies wait where they are and cost no memory, however many of them do.
    let largest = plan.requests.iter().map(|r| r.body.as_ref().map_or(0, Body::len)).max().unwrap_or(0);
    let unsent_bytes = usual.unsent_bytes.saturating_add(largest.saturating_mul(plan.depth as usize));
    linerate_net::TransportLimits { connections, events_per_turn: EVENTS_PER_TURN, unsent_bytes, ..usual }
}

/// Connections of core number `core` of `cores`, where users are dealt out with all of theirs.
fn connections(plan: &Plan, (core, cores): (u32, u32)) -> u64 {
    let share = |all: u32| share(u64::from(all), core, cores);
    match &plan.flows {
        Some(flows) => share(flows.users) * u64::from(plan.connections_each()),
        None => share(plan.connections),
    }
}

/// Descriptors of a thread that are for connections.
fn descriptors(plan: &Plan) -> u32 {
    if plan.io.is_user_space() {
        return u32::MAX;
    }
    // An unknown limit is found where it ends.
    let limit = machine::nofile().unwrap_or(u64::MAX);
    u32::try_from(limit.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(u32::MAX)
}

/// Which of the cores this is.
#[derive(Clone)]
pub(crate) struct CorePart {
    pub(crate) core: u32,
    pub(crate) cores: u32,
    pub(crate) start: Time,
    /// The layers below HTTP, if any: preamble and TLS.
    pub(crate) route: Option<RouteTo>,
    /// The target's name, if it can be looked up again.
    pub(crate) names: Option<Arc<Names>>,
    /// How it joins a run that has started.
    pub(crate) joining: Option<Joining>,
    /// Requests of a closed loop leave at least so far apart.
    pub(crate) gap: Option<Duration>,
}

/// How a thread joins a run that has started.
#[derive(Clone, Copy)]
pub(crate) struct Joining {
    pub(super) join: Join,
    /// When the run started.
    pub(super) run_start: Time,
    /// Number of the thread among the `threads` of this part.
    pub(super) thread: u32,
    pub(super) threads: u32,
}

impl CorePart {
    /// Runs this core's part of a plan on a transport, with what goes over it before HTTP begins.
    pub(crate) fn run<T: Transport>(
        self,
        plan: &Plan,
        transport: T,
        board: Arc<Board>,
    ) -> Result<Outcome, String> {
        let Some(route) = self.route.clone() else { return self.run_engine(plan, transport, PLAIN, board) };
        let (transport, profile) = route.over(transport, limits(plan, &self));
        let counts = transport.layer().counts();
        let mut outcome = self.run_engine(plan, transport, profile, board)?;
        route.settle(&counts, &mut outcome);
        Ok(outcome)
    }

    fn run_engine<T: Transport>(
        self,
        plan: &Plan,
        transport: T,
        profile: Profile,
        board: Arc<Board>,
    ) -> Result<Outcome, String> {
        let heads = plan.tag.as_deref().map_or_else(HeadCache::new, HeadCache::with_tag);
        match plan.speaks() {
            None => self.run_by::<T, H1<ResponseReading>>(plan, transport, profile, board, heads),
            Some(speaks) => {
                let shared = AnyShared::new(speaks, heads, H2Shared::new(plan.http.h2_window));
                self.run_by::<T, Any<ResponseReading>>(plan, transport, profile, board, shared)
            }
        }
    }

    /// By a protocol; `shared`: what its conversations share.
    pub(crate) fn run_by<T: Transport, C: Conversation<Reading = ResponseReading>>(
        self,
        plan: &Plan,
        transport: T,
        profile: Profile,
        board: Arc<Board>,
        shared: C::Shared,
    ) -> Result<Outcome, String> {
        let kinds = Kinds::new(plan, self.core, self.cores).map_err(|e| e.to_string())?;
        Ok(self.engine::<T, C>(plan, transport, profile, (kinds, board), shared).run())
    }

    /// The engine for a plan's target.
    pub(super) fn engine<T: Transport, C: Conversation<Reading = ResponseReading>>(
        self,
        plan: &Plan,
        transport: T,
        profile: Profile,
        (kinds, board): (Kinds, Arc<Board>),
        shared: C::Shared,
    ) -> Engine<T, C> {
        let run_start = self.joining.map_or(self.start, |joining| joining.run_start);
        let measure_from = run_start + plan.warm_up;
        let requests = plan.stop.requests.map_or(u64::MAX, |n| share(n, self.core, self.cores));
        let stop_at = plan.stop.duration.map_or(Time::NEVER, |d| measure_from + d);
        let schedule = Schedule::new(&plan.pace, plan.seed, self.core, self.cores);
        let mut supply = Supply::new(schedule, requests, run_start, measure_from, stop_at);
        if let Some(users) = kinds.journeys() {
            supply.follow(users.clone(), plan.flows.as_ref().map_or(Duration::ZERO, |flows| flows.graceful));
        }
        if let Some(gap) = self.gap {
            supply.hold(gap);
        }
        if let Some(Joining { join, run_start, thread, threads }) = self.joining {
            let sent = share(join.sent, thread, threads);
            supply.join(run_start + join.accounted, run_start + join.at, sent);
        }
        let connections = connections(plan, (self.core, self.cores)).min(requests.max(1));
        let orders = Orders {
            addresses: Addresses::new(&plan.target, self.names.clone()),
            unix: plan.route.unix.as_deref().map(Arc::from),
            from: plan.from.clone(),
            profile,
            connections: u32::try_from(connections).unwrap_or(u32::MAX),
            depth: plan.depth,
            per_connection: plan.per_connection,
            timeout: plan.timeout,
            tag: plan.tag.clone(),
            resend: plan.resend,
            throughput: plan.throughput,
            save_responses: plan.save_responses,
            start: self.start,
            open_loop: plan.counts_from_due(),
            one_of_several: plan.host_count() > 1,
            authority: kinds
                .journeys()
                .filter(|users| users.host() > 0)
                .map(|_| plan.target.authority.clone()),
            tells_names: plan.aborts_by_name(),
            wall_offset_ns: machine::wall_offset_ns(),
        };
        Engine::new(transport, orders, kinds, supply, measure_from, board, shared)
    }
}
