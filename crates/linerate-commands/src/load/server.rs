//! The server beside the run: its processes on this machine (`--pid`), or its page for Prometheus (`--watch`).

use std::time::{Duration, Instant, SystemTime};

use linerate_explain::driver::listening_processes;
use linerate_explain::occupancy::{LoadFigures, OccupancyLook};
use linerate_lab::servers::{Member, Usage, descendants};
use linerate_load::{Outcome, Plan};
use linerate_report::schema::outcome as schema;

use super::beside::{Look, Looking, SECOND, for_each_request, round, rounded, thin_out};
use super::busy::BusySteps;
use super::endpoint::{self, Endpoint};
use super::occupancy::{self, LoadPlaces, Occupied};
use crate::args::{LoadArgs, ServerProcess};
use crate::fault::CommandFault;

/// Where the server's figures come from.
#[derive(Clone, Debug)]
pub(super) enum FiguresSource {
    Process(FirstProcess),
    Page(Endpoint),
}

/// One of them while it is read.
#[derive(Debug)]
pub(super) enum ProcessReading {
    Process(Watching),
    Page(endpoint::Watching),
}

impl FiguresSource {
    /// What the flags ask for, if anything.
    pub(super) fn of(args: &LoadArgs, plan: &Plan) -> Result<Option<FiguresSource>, CommandFault> {
        match (args.pid, &args.watch) {
            (Some(pid), _) => {
                FirstProcess::find(pid, plan).map(|server| Some(FiguresSource::Process(server)))
            }
            (None, Some(url)) => {
                Endpoint::parse(url, plan.tls.as_ref()).map(|endpoint| Some(FiguresSource::Page(endpoint)))
            }
            (None, None) => Ok(None),
        }
    }

    /// Reads it until [`ProcessReading::finish`].
    pub(super) fn watch(self, from: SystemTime) -> Result<ProcessReading, CommandFault> {
        match self {
            FiguresSource::Process(server) => server.watch(from).map(ProcessReading::Process),
            FiguresSource::Page(endpoint) => endpoint.watch(from).map(ProcessReading::Page),
        }
    }
}

impl ProcessReading {
    /// Ends it, and says what the server used, if that is known.
    pub(super) fn finish(self, outcome: &mut Outcome) -> Option<schema::Server> {
        match self {
            ProcessReading::Process(watching) => Some(watching.finish(outcome)),
            ProcessReading::Page(watching) => watching.finish(outcome),
        }
    }
}

/// The server's first process.
#[derive(Clone, Debug)]
pub(super) struct FirstProcess {
    pid: i32,
    load: LoadPlaces,
    /// Its threads before the load.
    rest: OccupancyLook,
}

impl FirstProcess {
    /// The process that `--pid` means.
    fn find(pid: ServerProcess, plan: &Plan) -> Result<FirstProcess, CommandFault> {
        let pid = match pid {
            ServerProcess::Named(pid) if descendants(pid).is_empty() => {
                return Err(CommandFault::input(format!("--pid {pid}: there is no such process"))
                    .hint("write --pid auto to have it found"));
            }
            ServerProcess::Named(pid) => pid,
            ServerProcess::Auto => listening(plan).ok_or_else(|| {
                CommandFault::input(
                    "--pid auto: no process of this machine that may be looked at listens there",
                )
                .hint("name its process (--pid PID), or run as its user or as root")
            })?,
        };
        let load = LoadPlaces::of(plan);
        Ok(FirstProcess { pid, load, rest: occupancy::at_rest(pid, load) })
    }

    /// Watches it until [`Watching::finish`].
    fn watch(self, from: SystemTime) -> Result<Watching, CommandFault> {
        let looking = Looking::start("server", from, SampledServer::new(self.pid))?;
        let occupied = Occupied::watch(self.pid, self.load, &self.rest, from)?;
        let steps = BusySteps::watch(self.pid, from)?;
        Ok(Watching { looking, occupied, steps, pid: self.pid })
    }
}

/// The process that listens at the target: of several the first that was started.
fn listening(plan: &Plan) -> Option<i32> {
    let to = plan.target.addresses.first()?;
    listening_processes(*to).into_iter().min()?.try_into().ok()
}

/// The server's process, sampled during the run.
#[derive(Debug)]
struct SampledServer {
    pid: i32,
    begun: Instant,
    /// The last look, and the time from it to the next.
    at: Instant,
    step: Duration,
    first: Usage,
    last: Usage,
    peak: u64,
    processes: u32,
    name: String,
    series: Vec<schema::ServerSecond>,
}

fn name_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

impl SampledServer {
    fn new(pid: i32) -> SampledServer {
        let now = Instant::now();
        SampledServer {
            pid,
            begun: now,
            at: now,
            step: SECOND,
            first: Usage::default(),
            last: Usage::default(),
            peak: 0,
            processes: 0,
            name: String::new(),
            series: Vec::new(),
        }
    }

    fn members(&mut self) -> Vec<Member> {
        let members = descendants(self.pid);
        self.processes = self.processes.max(u32::try_from(members.len()).unwrap_or(u32::MAX));
        members
    }
}

impl Look for SampledServer {
    fn begin(&mut self) -> Instant {
        self.begun = Instant::now();
        self.name = name_of(self.pid);
        self.first = Usage::of(&self.members());
        self.last = self.first.clone();
        self.at = self.begun;
        self.at + self.step
    }

    fn look(&mut self, is_last: bool) -> Instant {
        let now = Usage::of(&self.members());
        let lasted = self.at.elapsed().as_secs_f64();
        if !now.is_empty() {
            let busy = now.cpu_since(&self.last).as_secs_f64() / lasted.max(1e-9);
            self.peak = self.peak.max(now.rss);
            // The last piece is a fraction of a second, too short to be one.
            if !is_last || self.series.is_empty() {
                self.series.push(schema::ServerSecond {
                    t_s: self.begun.elapsed().as_secs_f64(),
                    busy: Some(busy),
                    rss_mb: Some(now.rss as f64 / 1e6),
                });
            }
            self.last = now;
        }
        self.at = Instant::now();
        if thin_out(&mut self.series) {
            self.step *= 2;
        }
        self.at + self.step
    }
}

/// A server that is being watched.
#[derive(Debug)]
pub(super) struct Watching {
    looking: Looking<SampledServer>,
    occupied: Occupied,
    steps: BusySteps,
    pid: i32,
}

impl Watching {
    /// Ends it, and says what the server used.
    fn finish(self, outcome: &mut Outcome) -> schema::Server {
        self.steps.finish(&mut outcome.series_fine);
        let seen = self.looking.finish().unwrap_or_else(|| SampledServer::new(self.pid));
        let cpu = seen.last.cpu_since(&seen.first).as_secs_f64();
        let waited = seen.last.waited_since(&seen.first).as_secs_f64();
        let switches = seen.last.switches_since(&seen.first);
        let own = seen.last.own_share_since(&seen.first);
        let concurrency = self.occupied.finish(outcome, |run| LoadFigures {
            seconds: seen.at.duration_since(seen.begun).as_secs_f64(),
            cpu_s: cpu,
            waited_s: waited,
            switches,
            own_share: own,
            ..run
        });
        schema::Server {
            pid: Some(self.pid.unsigned_abs()),
            name: seen.name,
            processes: seen.processes,
            cpu_s: Some(cpu),
            cpu_us_per_request: for_each_request(cpu, outcome.arrived),
            useful_share: own.map(round),
            context_switches: Some(switches),
            run_queue_wait_s: Some(waited),
            rss_mb: Some(round(seen.peak as f64 / 1e6)),
            concurrency,
            series: rounded(&seen.series),
        }
    }
}
