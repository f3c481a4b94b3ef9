//! `--pid`: looks at the server's threads while the run lasts, and what they say.

use std::time::{Duration, Instant, SystemTime};

use linerate_explain::driver::OccupancyWatch;
use linerate_explain::occupancy::{LoadFigures, OccupancyLook, OccupancyTable, judge};
use linerate_lab::servers::descendants;
use linerate_load::plan::Pace;
use linerate_load::{Outcome, Plan};
use linerate_net::machine;
use linerate_report::load_page;
use linerate_report::schema::concurrency::ServerConcurrency;

use super::beside::{Look, Looking, SECOND, next_look};
use crate::fault::CommandFault;

/// Between two looks. Reason: 3 s have 30 of them.
const BETWEEN: Duration = Duration::from_millis(100);

/// What the plan says of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadPlaces {
    port: u16,
    /// Requests that may be in flight; `None` in an open loop.
    places: Option<u64>,
}

impl LoadPlaces {
    pub(super) fn of(plan: &Plan) -> LoadPlaces {
        let places = u64::from(plan.connections) * u64::from(plan.depth);
        LoadPlaces {
            port: plan.target.addresses.first().map_or(0, std::net::SocketAddr::port),
            places: (plan.pace == Pace::Closed).then_some(places),
        }
    }
}

/// A look at the server before the load. A server that still has the requests of an earlier run is given a
/// second to respond to them.
pub(super) fn at_rest(pid: i32, load: LoadPlaces) -> OccupancyLook {
    let (watch, pids, begun) = (OccupancyWatch::new(load.port), processes(pid), Instant::now());
    let mut look = watch.look(&pids);
    let mut is_late = false;
    while (is_late || look.queued.is_some_and(|n| n > 0)) && begun.elapsed() < SECOND {
        // The last of them was read, and may still be in its handler.
        is_late = look.queued.is_some_and(|n| n > 0);
        std::thread::sleep(BETWEEN);
        look = watch.look(&pids);
    }
    look
}

fn processes(pid: i32) -> Vec<u32> {
    descendants(pid).iter().map(|m| m.pid.unsigned_abs()).collect()
}

/// A server whose threads are looked at.
#[derive(Debug)]
pub(super) struct Occupied {
    looking: Looking<ThreadLooks>,
    pid: i32,
    load: LoadPlaces,
}

#[derive(Debug)]
struct ThreadLooks {
    pid: i32,
    port: u16,
    watch: OccupancyWatch,
    table: OccupancyTable,
    pids: Vec<u32>,
    /// When its processes were found.
    found: Instant,
    machine_busy: Option<f64>,
}

impl ThreadLooks {
    fn find(&mut self) {
        self.pids = processes(self.pid);
        self.found = Instant::now();
    }
}

impl Look for ThreadLooks {
    fn begin(&mut self) -> Instant {
        self.watch = OccupancyWatch::new(self.port);
        self.find();
        self.table.add(&self.watch.look(&self.pids));
        Instant::now() + BETWEEN
    }

    fn look(&mut self, is_last: bool) -> Instant {
        self.machine_busy = self.watch.machine_busy();
        let (began, used) = (Instant::now(), machine::thread_cpu_time_ns());
        // The run is over: its threads are idle already.
        if is_last {
            return began;
        }
        if self.found.elapsed() >= SECOND {
            self.find();
        }
        self.table.add(&self.watch.look(&self.pids));
        next_look(BETWEEN, used)
    }
}

impl Occupied {
    /// Looks from then on; `rest`: [`at_rest`].
    pub(super) fn watch(
        pid: i32,
        load: LoadPlaces,
        rest: &OccupancyLook,
        from: SystemTime,
    ) -> Result<Occupied, CommandFault> {
        let looks = ThreadLooks {
            pid,
            port: load.port,
            watch: OccupancyWatch::new(load.port),
            table: OccupancyTable::after_rest(rest),
            pids: Vec::new(),
            found: Instant::now(),
            machine_busy: None,
        };
        Ok(Occupied { looking: Looking::start("threads", from, looks)?, pid, load })
    }

    /// Ends it, and judges. `with` adds what the server's processes used.
    pub(super) fn finish(
        self,
        outcome: &Outcome,
        with: impl FnOnce(LoadFigures) -> LoadFigures,
    ) -> Option<ServerConcurrency> {
        let cores = OccupancyWatch::cores(self.pid.unsigned_abs());
        let seen = self.looking.finish()?;
        let latency = &outcome.latency.from_sent;
        let run = with(LoadFigures {
            answered: outcome.arrived,
            latency_s: (latency.count() > 0).then(|| latency.mean_ns() / 1e9),
            places: self.load.places,
            round_trip_s: outcome.tcp.rtt_min_us.map(|us| f64::from(us) / 1e6),
            client_is_limit: outcome.client.saturated,
            client_cpu_s: outcome.client.cpu.as_secs_f64(),
            client_waited: outcome.client.waited_share(outcome.duration),
            cores: f64::from(cores?),
            machine_busy: seen.machine_busy,
            ..LoadFigures::default()
        });
        Some(load_page::concurrency(&seen.table, &run, judge(&seen.table, &run)))
    }
}
