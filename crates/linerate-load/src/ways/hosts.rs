//! Several hosts: in each thread an engine for each of them, on a part of one transport.

use std::sync::Arc;

use linerate_client::{Any, AnyShared, H2Shared, Speaks};
use linerate_http::client::HeadCache;
use linerate_net::epoll::Epoll;
use linerate_net::layer::Layered;
use linerate_net::share::divide;
use linerate_tls::PLAIN;

use super::core_part::{CorePart, limits};
use crate::engine::board::{Board, Common};
use crate::engine::kinds::Kinds;
use crate::engine::responses::ResponseReading;
use crate::engine::several::{merge_hosts, run_together};
use crate::flows::journeys::Journeys;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::route::{Names, RouteLayer, RouteTo};
use crate::start::StartError;

/// A host beside the plan's target, for all threads.
#[derive(Clone)]
pub(super) struct HostOfThreads {
    /// The plan as it is for this host.
    plan: Arc<Plan>,
    route: Option<RouteTo>,
    names: Option<Arc<Names>>,
    /// One for each thread.
    pub(super) boards: Vec<Arc<Board>>,
}

/// A host beside the plan's target, for one thread.
pub(super) struct ThreadHost {
    plan: Arc<Plan>,
    route: Option<RouteTo>,
    names: Option<Arc<Names>>,
    board: Arc<Board>,
}

/// All hosts beside the plan's target.
pub(super) fn others(
    plan: &Plan,
    common: &Arc<Common>,
    threads: u32,
) -> Result<Vec<HostOfThreads>, StartError> {
    let host = |number: usize| {
        let (plan, common) = (Arc::new(plan.at_host(number)), Arc::new(common.of_another_host()));
        let boards = (0..threads).map(|_| Arc::new(Board::sharing(&common))).collect();
        Ok(HostOfThreads { route: RouteTo::of(&plan)?, names: Names::of(&plan), plan, boards })
    };
    (1..plan.host_count()).map(host).collect()
}

/// The same for one thread.
pub(super) fn of_thread(hosts: &[HostOfThreads], thread: usize) -> Vec<ThreadHost> {
    let host = |host: &HostOfThreads| ThreadHost {
        plan: Arc::clone(&host.plan),
        route: host.route.clone(),
        names: host.names.clone(),
        board: Arc::clone(&host.boards[thread]),
    };
    hosts.iter().map(host).collect()
}

/// Runs a core's part of a plan with several hosts.
pub(super) fn run(
    part: CorePart,
    plan: &Arc<Plan>,
    board: Arc<Board>,
    others: Vec<ThreadHost>,
) -> Result<Outcome, String> {
    let mut limits = limits(plan, &part);
    let parts = others.len() + 1;
    limits.connections = limits.connections.saturating_mul(parts as u32);
    let epoll = Epoll::with_limits(limits).map_err(|e| format!("epoll: {e}"))?;
    let first =
        ThreadHost { plan: Arc::clone(plan), route: part.route.clone(), names: part.names.clone(), board };
    let (mut engines, mut counts) = (Vec::with_capacity(parts), Vec::with_capacity(parts));
    let mut users = None;
    for (number, (host, wire)) in std::iter::once(first).chain(others).zip(divide(epoll, parts)).enumerate() {
        let (transport, profile) = match &host.route {
            Some(route) => route.over(wire, limits),
            None => (Layered::new(wire, RouteLayer::plain(None), limits), PLAIN),
        };
        counts.push(host.route.map(|route| (route, transport.layer().counts())));
        let part = CorePart { names: host.names, ..part.clone() };
        let shared_users: Option<Journeys> = users.as_ref().map(|users: &Journeys| users.at_host(number));
        let kinds = Kinds::with_users(&host.plan, (part.core, part.cores), shared_users);
        let kinds = kinds.map_err(|e| e.to_string())?;
        users = users.or_else(|| kinds.journeys().cloned());
        let heads = HeadCache::new();
        // Where there is no TLS, peers agree on nothing, which means HTTP/1.1.
        let speaks = host.plan.speaks().unwrap_or(Speaks::Either);
        let shared = AnyShared::new(speaks, heads, H2Shared::new(plan.http.h2_window));
        engines.push(part.engine::<_, Any<ResponseReading>>(
            &host.plan,
            transport,
            profile,
            (kinds, host.board),
            shared,
        ));
    }
    let mut outcomes = run_together(engines);
    for (outcome, counts) in outcomes.iter_mut().zip(counts) {
        if let Some((route, counts)) = counts {
            route.count(&counts, outcome);
        }
    }
    Ok(merge_hosts(outcomes))
}
