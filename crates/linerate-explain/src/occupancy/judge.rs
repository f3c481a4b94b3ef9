//! The verdict: what keeps a server from more requests a second, and what each cure would allow.
//!
//! A verdict needs two signs that do not come from the same counter. Where they disagree, or one is
//! missing, nothing is claimed.

use std::time::Duration;

use super::{OccupancyTable, unserved};

/// The run as its client saw it, and what the server's processes used meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadFigures {
    /// How long was measured, seconds.
    pub seconds: f64,
    /// Responses that arrived.
    pub answered: u64,
    /// Their mean latency, seconds; `None` if it was not measured.
    pub latency_s: Option<f64>,
    /// Requests that the client may have in flight; `None` in an open loop.
    pub places: Option<u64>,
    /// The shortest round trip, seconds.
    pub round_trip_s: Option<f64>,
    /// Whether the client was the limit.
    pub client_is_limit: bool,
    /// CPU time of the client, seconds.
    pub client_cpu_s: f64,
    /// The share of the run for which its sending threads were ready and had no core.
    pub client_waited: f64,
    /// CPU time of the server's processes, seconds.
    pub cpu_s: f64,
    /// The share of it in its own code, not in the kernel.
    pub own_share: Option<f64>,
    /// Time for which its threads were ready and had no core, seconds.
    pub waited_s: f64,
    /// Context switches of its threads.
    pub switches: u64,
    /// Cores that it may use.
    pub cores: f64,
    /// The share of this machine's processor time that was used, by whomever.
    pub machine_busy: Option<f64>,
}

impl LoadFigures {
    fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds.max(1e-9)
    }

    /// Cores that the server kept busy.
    fn busy(&self) -> f64 {
        self.cpu_s / self.seconds.max(1e-9)
    }

    /// Cores that the server used or was ready for.
    fn wanted(&self) -> f64 {
        (self.cpu_s + self.waited_s) / self.seconds.max(1e-9)
    }

    /// CPU time for each response, seconds.
    fn cost(&self) -> f64 {
        self.cpu_s / self.answered.max(1) as f64
    }

    /// The most that `cores` allow at this cost, a second.
    fn ceiling(&self, cores: f64) -> f64 {
        cores / self.cost().max(1e-9)
    }

    /// Requests in flight on average, by Little's law.
    fn in_flight(&self) -> Option<f64> {
        Some(self.rate() * self.latency_s?)
    }

    /// The part of the time in which its threads wanted a core that they had none.
    fn unserved(&self) -> f64 {
        unserved(self.waited_s, self.cpu_s)
    }

    /// Where other programs had the cores: what that did to the server and to the client.
    fn disturbed(&self) -> Option<String> {
        let machine = self.machine_busy.filter(|busy| *busy >= CROWDED)?;
        let server = self.unserved() >= DISTURBED && self.waited_s >= LEAST_WAITED * self.seconds;
        let late = |who: &str, part: f64, of: &str| {
            format!("{who} were ready without a core for {:.0} % of {of}", 100.0 * part)
        };
        let mut said = vec![format!("this machine was busy ({:.0} % of its CPU time)", 100.0 * machine)];
        if server {
            said.push(late("the server's threads", self.unserved(), "the time they wanted one"));
        }
        if self.client_waited >= CLIENT_WAITED {
            said.push(late("the client's", self.client_waited, "the run"));
        }
        (said.len() > 1).then(|| said.join(", "))
    }
}

/// What keeps a server from more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLimit {
    /// Its own work fills the cores, or the one thread, that it uses.
    CpuBound,
    /// Its cores are full, and context switches fill a large part of them.
    Switching,
    /// Its threads are ready to run, and other programs have the cores.
    WaitingForCore,
    /// All threads of its pool are blocked while requests wait.
    PoolFull,
    /// The one thread that serves is blocked while requests wait.
    Blocked,
    /// Requests wait inside it, for a timer or another server, and hold up no others.
    Waits,
    /// The client was the limit.
    Client,
    /// No limit of it was reached.
    NotReached,
    /// It cannot be told.
    Unknown,
}

impl ServerLimit {
    /// Its name in documents.
    pub fn id(self) -> &'static str {
        match self {
            ServerLimit::CpuBound => "cpu-bound",
            ServerLimit::Switching => "switching",
            ServerLimit::WaitingForCore => "waiting-for-core",
            ServerLimit::PoolFull => "pool-full",
            ServerLimit::Blocked => "blocked",
            ServerLimit::Waits => "waits",
            ServerLimit::Client => "client",
            ServerLimit::NotReached => "not-reached",
            ServerLimit::Unknown => "unknown",
        }
    }
}

/// A change, and the rate that it would allow at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Cure {
    /// What is changed.
    pub change: String,
    /// The rate that it allows at most, a second, by the run's own figures.
    pub rate_rps: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct OccupancyVerdict {
    /// What keeps the server from more.
    pub limit: ServerLimit,
    /// In a sentence.
    pub text: String,
    /// The observations that it rests on.
    pub signs: Vec<String>,
    /// What changes would allow.
    pub cures: Vec<Cure>,
    /// Requests in flight on average, by Little's law.
    pub in_flight: Option<f64>,
    /// CPU time for each response, seconds.
    pub cpu_per_request_s: f64,
    /// The time for which each request kept a thread blocked, seconds.
    pub blocked_per_request_s: f64,
    /// The most that one core allows, a second.
    pub core_rps: f64,
    /// The part of the time in which its threads wanted a core that they had none.
    pub unserved: f64,
}

/// Looks and responses from which on anything is said.
const LEAST_LOOKS: u64 = 8;
const LEAST_ANSWERED: u64 = 20;
/// Share of a core, or of all, from which on it is full.
const FULL: f64 = 0.9;
/// Of the cores that counters say were busy, looks must have found this share of running threads.
const AGREES: f64 = 0.6;
/// Share of the time in which threads wanted to run that they had to wait for a core.
const WAITED: f64 = 0.3;
/// The same from which on a verdict that is not found is put down to the machine.
const DISTURBED: f64 = 0.2;
/// Share of the machine's CPU time from which on its cores may have been full for parts of the run.
const CROWDED: f64 = 0.6;
/// Time that the server's threads must have waited for a core to be disturbed, as a share of the run.
const LEAST_WAITED: f64 = 0.05;
/// Share of the run for which the client's threads must have waited for a core to be disturbed.
const CLIENT_WAITED: f64 = 0.2;
/// Requests that wait, from which on there is a queue.
const QUEUE: f64 = 1.0;
/// Share of the requests in flight that no thread may hold. Reason: client and server are not looked at at
/// the same moments.
const BEYOND: f64 = 0.25;
/// Share of the server's CPU time that threads must own to be those that serve. Reason: runtimes have
/// threads that only sleep.
const OWNED: f64 = 0.4;
/// How often, for each response, threads must have got a core that are known to serve.
const AWAKE: f64 = 0.5;
/// More threads in all than so many times those at a look come and go with their requests.
const COME_AND_GO: f64 = 2.0;
/// Share of their looks at which such threads must be held.
const HELD: f64 = 0.8;
/// Share at which they must be blocked. Reason: on a busy machine a thread waits for a core after each sleep.
const MOSTLY: f64 = 0.5;
/// What a context switch costs, seconds. Reason: 1 to 3 us by `perf bench sched pipe`, without the
/// caches that it empties.
const SWITCH: f64 = 2e-6;
/// Share of CPU time that switches must take by that, and switches for each response.
const SWITCHED: f64 = 0.25;
const SWITCHES: f64 = 2.0;
/// A latency of this many round trips and CPU times is spent waiting inside the server.
const INSIDE: f64 = 4.0;
/// The shortest wait inside that is called one, seconds, also on a machine whose cores are full. Reason:
/// there a client that waits for a core sees responses some milliseconds late.
const LEAST_WAIT: f64 = 0.5e-3;
const LEAST_WAIT_FULL: f64 = 10e-3;
/// Cores, from which and up to which threads of which one runs at a time keep one busy.
const ALONE: f64 = 0.85;
const NOT_ALONE: f64 = 1.15;

/// Judges a run.
pub fn judge(table: &OccupancyTable, run: &LoadFigures) -> OccupancyVerdict {
    // Threads that ended took their waiting along: it is as that of those that were looked at.
    let unserved = table.unserved().min(0.99);
    let waited_s = run.waited_s.max(run.cpu_s * unserved / (1.0 - unserved));
    let run = &LoadFigures { waited_s, ..run.clone() };
    let mut verdict = OccupancyVerdict {
        limit: ServerLimit::Unknown,
        text: String::new(),
        signs: Vec::new(),
        cures: Vec::new(),
        in_flight: run.in_flight(),
        cpu_per_request_s: run.cost(),
        blocked_per_request_s: table.blocked() / run.rate().max(1e-9),
        core_rps: run.ceiling(1.0),
        unserved: run.unserved(),
    };
    if table.looks() == 0 && run.answered >= LEAST_ANSWERED && run.cpu_s > 0.0 {
        verdict.text = format!(
            "cannot be told without its threads (--pid, where it runs on this machine): {} of CPU for each request, {} a core at most",
            ms(run.cost()),
            a_second(run.ceiling(1.0))
        );
        return verdict;
    }
    if table.looks() < LEAST_LOOKS || run.answered < LEAST_ANSWERED || run.cpu_s <= 0.0 {
        let why = run.disturbed().map_or_else(String::new, |busy| format!(", and {busy}"));
        verdict.text = format!(
            "cannot be told: {} looks at its threads, {} responses and {:.2} s of CPU time are too little{why}",
            table.looks(),
            run.answered,
            run.cpu_s
        );
        return verdict;
    }
    let waits = WaitingRequests::of(table, run);
    // The order matters: a server whose cores are full may block, too, and is helped by cores alone.
    let found = full(table, run, &mut verdict)
        || blocked(table, run, &waits, &mut verdict)
        || no_core(table, run, &mut verdict)
        || client(run, &mut verdict)
        || unhurried(table, run, &waits, &mut verdict);
    if !found {
        verdict.limit = ServerLimit::Unknown;
        let why = run.disturbed().unwrap_or_else(|| "no two signs agree".to_owned());
        verdict.text = format!(
            "cannot be told: its CPU is {:.0} % of {} used, {:.1} threads were blocked and {:.1} waited for others, and {why}",
            100.0 * run.busy() / run.cores.max(1e-9),
            cores(run.cores),
            table.blocked(),
            table.waiting()
        );
    }
    verdict
}

/// Requests that wait before a thread takes them.
struct WaitingRequests {
    /// In its sockets.
    in_sockets: Option<f64>,
    /// In flight by Little's law, beyond those that threads hold.
    beyond: Option<f64>,
    in_flight: f64,
}

impl WaitingRequests {
    fn of(table: &OccupancyTable, run: &LoadFigures) -> WaitingRequests {
        let held = table.blocked() + table.running();
        WaitingRequests {
            in_sockets: table.queued(),
            beyond: run.in_flight().map(|all| all - held),
            in_flight: run.in_flight().unwrap_or(0.0),
        }
    }

    fn is_there(&self) -> bool {
        self.in_sockets.is_some_and(|n| n >= QUEUE)
            || self.beyond.is_some_and(|n| n >= QUEUE.max(BEYOND * self.in_flight))
    }

    fn longest(&self) -> f64 {
        self.in_sockets.unwrap_or(0.0).max(self.beyond.unwrap_or(0.0))
    }

    fn says(&self) -> String {
        match (self.in_sockets, self.beyond) {
            (Some(n), _) if n >= QUEUE => {
                format!("{n:.0} connections with a request that was not read, or not accepted")
            }
            _ => format!("{:.0} requests in flight by Little's law that no thread held", self.longest()),
        }
    }
}

fn cores(n: f64) -> String {
    if (n - 1.0).abs() < 0.05 { "1 core".to_owned() } else { format!("{} cores", short(n)) }
}

fn short(n: f64) -> String {
    if n < 0.95 {
        return format!("{n:.2}");
    }
    let text = format!("{n:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn ms(seconds: f64) -> String {
    match seconds * 1e3 {
        n if n < 0.1 => format!("{:.1} µs", n * 1e3),
        n if n < 10.0 => format!("{n:.2} ms"),
        n => format!("{n:.1} ms"),
    }
}

fn a_second(rate: f64) -> String {
    let digits = if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") };
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out + "/s"
}

/// Which cores are full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// All that it may use.
    All,
    /// One, by one thread.
    OneThread,
    /// One, by several threads of which one runs at a time.
    OneAtATime,
}

/// Time in which a core was wanted. If others had it for a large part of that, they are the limit.
fn claimed(ran: f64, waited: f64) -> f64 {
    if waited < WAITED * (ran + waited) { ran + waited } else { ran }
}

fn filled(table: &OccupancyTable, run: &LoadFigures) -> Option<Filled> {
    let seconds = run.seconds.max(1e-9);
    let (ran, waited) = table.busiest();
    if run.busy() >= FULL * run.cores {
        return Some(Filled::All);
    }
    // Where others of its threads want cores, too, one is not what fills up.
    let waited = if run.wanted() <= NOT_ALONE { waited } else { 0.0 };
    if claimed(ran, waited) >= FULL * seconds {
        return Some(Filled::OneThread);
    }
    let one_core = claimed(run.cpu_s, run.waited_s) >= ALONE * seconds && is_one_at_a_time(table, run);
    (one_core && ran < 0.6 * seconds).then_some(Filled::OneAtATime)
}

/// One core's worth in all, by threads of which one runs while others wait.
fn is_one_at_a_time(table: &OccupancyTable, run: &LoadFigures) -> bool {
    let alone = run.busy() <= NOT_ALONE && run.wanted() >= ALONE && table.running() < 1.7;
    run.cores >= 1.9 && alone && table.waiting() >= 1.0
}

fn full(table: &OccupancyTable, run: &LoadFigures, verdict: &mut OccupancyVerdict) -> bool {
    let Some(filled) = filled(table, run) else { return false };
    if table.running() < AGREES * run.busy() {
        return false;
    }
    verdict.signs = vec![
        format!("its threads used {} of {} (schedstat)", cores(run.busy()), cores(run.cores)),
        format!("{:.1} threads ran or were ready at each of {} looks", table.running(), table.looks()),
    ];
    if filled != Filled::OneThread && switches(run, verdict) {
        return true;
    }
    verdict.limit = ServerLimit::CpuBound;
    let cost = ms(run.cost());
    let most = a_second(run.ceiling(1.0));
    let who = match filled {
        Filled::All => format!("{} in use", cores(run.cores)),
        Filled::OneThread => one_thread(table, run),
        Filled::OneAtATime => {
            verdict.signs.push(format!("{:.1} threads waited for another one (futex)", table.waiting()));
            "its threads run one at a time, as a lock makes them (Python's GIL)".to_owned()
        }
    };
    verdict.text = format!(
        "CPU-bound: {who}, {cost} of CPU for each request: {most} a core at most; threads and coroutines cannot help"
    );
    let cure = |change: String, rate_rps: f64| Cure { change, rate_rps };
    let used = if filled == Filled::All { run.cores } else { 1.0 };
    verdict.cures.push(cure("threads or coroutines".to_owned(), run.ceiling(used)));
    if filled == Filled::All {
        verdict.cures.push(cure(format!("{} instead", cores(run.cores * 2.0)), run.ceiling(run.cores * 2.0)));
    } else if run.cores >= 2.0 {
        let n = run.cores.floor();
        verdict.cures.push(cure(format!("{n:.0} processes"), run.ceiling(n)));
    }
    verdict.cures.push(cure("half the CPU for each request".to_owned(), 2.0 * run.ceiling(used)));
    true
}

fn one_thread(table: &OccupancyTable, run: &LoadFigures) -> String {
    let (ran, waited) = table.busiest();
    if ran >= FULL * run.seconds {
        return "one thread fills its core".to_owned();
    }
    let part = 100.0 * waited / (ran + waited);
    format!("one thread always wants its core, which others had for {part:.0} % of that time")
}

/// Cores that are full of switches.
fn switches(run: &LoadFigures, verdict: &mut OccupancyVerdict) -> bool {
    let for_each = run.switches as f64 / run.answered.max(1) as f64;
    let share = run.switches as f64 * SWITCH / run.cpu_s.max(1e-9);
    let Some(own) = run.own_share else { return false };
    if for_each < SWITCHES || share < SWITCHED || own > 0.5 {
        return false;
    }
    verdict.limit = ServerLimit::Switching;
    verdict.signs.push(format!("{for_each:.1} context switches for each response"));
    verdict.signs.push(format!("{:.0} % of its CPU time was spent in the kernel", 100.0 * (1.0 - own)));
    verdict.text = format!(
        "switching: {} in use, {:.0} % of it in the kernel, with {for_each:.1} context switches for each request",
        cores(run.busy()),
        100.0 * (1.0 - own)
    );
    let without = run.cost() * (1.0 - share.min(0.9));
    verdict.cures.push(Cure {
        change: "an event loop or coroutines (no switch for a request)".to_owned(),
        rate_rps: run.cores / without,
    });
    true
}

fn no_core(table: &OccupancyTable, run: &LoadFigures, verdict: &mut OccupancyVerdict) -> bool {
    let share = run.unserved();
    let Some(machine) = run.machine_busy else { return false };
    let wanted = run.wanted();
    // Where it wanted all cores and did not get them, a small share is what is missing.
    let is_short = share >= WAITED || wanted >= FULL * run.cores;
    if !is_short || machine < FULL || wanted < FULL || table.running() < AGREES * run.busy() {
        return false;
    }
    verdict.limit = ServerLimit::WaitingForCore;
    // One thread uses one core, however many there are.
    let usable = table.running().round().clamp(1.0, run.cores.max(1.0));
    let client = run.client_cpu_s / run.seconds.max(1e-9);
    let neighbour = if client >= 0.1 {
        format!("; this client, on the same machine, used {}", cores(client))
    } else {
        String::new()
    };
    verdict.signs = vec![
        format!(
            "its threads were ready without a core for {:.0} % of the time they wanted one",
            100.0 * share
        ),
        format!("this machine was {:.0} % busy", 100.0 * machine),
    ];
    verdict.text = format!(
        "waiting for a core: it got {} and was ready for {}{neighbour}",
        cores(run.busy()),
        cores(wanted.min(usable))
    );
    verdict.cures =
        vec![Cure { change: format!("{} of its own", cores(usable)), rate_rps: run.ceiling(usable) }];
    true
}

fn blocked(
    table: &OccupancyTable,
    run: &LoadFigures,
    queue: &WaitingRequests,
    verdict: &mut OccupancyVerdict,
) -> bool {
    let holders = table.holders();
    let ended = Duration::from_secs_f64(run.cpu_s.max(0.0))
        .saturating_sub(table.by_thread.values().map(super::ThreadTally::ran).sum::<Duration>());
    let owned = (holders.ran + ended).as_secs_f64() / run.cpu_s.max(1e-9);
    let blocked = table.blocked();
    // Each response lets its thread sleep once at least.
    let known = holders.known > 0 && holders.slices as f64 >= AWAKE * run.answered as f64;
    if (owned < OWNED && !known) || holders.held < HELD || holders.blocked < MOSTLY || !queue.is_there() {
        return false;
    }
    // A thread or two for a moment are none that serve.
    if holders.at_a_time < MOSTLY {
        return false;
    }
    let threads = holders.at_a_time.round().max(1.0);
    // A pool's threads outlive their requests.
    if holders.in_all as f64 > COME_AND_GO * threads {
        return false;
    }
    // Threads that are there for nearly all requests are no pool.
    let in_flight = run.in_flight();
    if in_flight.is_some_and(|all| queue.in_sockets.unwrap_or(0.0) < QUEUE && threads >= (1.0 - BEYOND) * all)
    {
        return false;
    }
    let hold = blocked / run.rate().max(1e-9);
    verdict.blocked_per_request_s = hold;
    let call = holders.call;
    let serve = if known {
        "these threads also wait for connections and requests: they serve".to_owned()
    } else {
        format!("these threads used {:.0} % of its CPU time: they serve", 100.0 * owned.min(1.0))
    };
    verdict.signs = vec![
        format!("{blocked:.1} threads were in {call} at each of {} looks", table.looks()),
        serve,
        queue.says(),
    ];
    let one = threads < 1.5;
    verdict.limit = if one { ServerLimit::Blocked } else { ServerLimit::PoolFull };
    let who = if one {
        format!("blocked in its handler: the one thread that serves sits in {call}")
    } else {
        format!("pool full: its {threads:.0} threads sit in {call}")
    };
    verdict.text =
        format!("{who} for {} of each request, and {:.0} requests wait", ms(hold), queue.longest());
    cures_of_blocking(run, hold, threads, &mut verdict.cures);
    true
}

fn cures_of_blocking(run: &LoadFigures, hold: f64, threads: f64, cures: &mut Vec<Cure>) {
    let each = hold + run.cost();
    let all = run.ceiling(run.cores);
    let mut cure = |change: String, rate: f64| cures.push(Cure { change, rate_rps: rate.min(all) });
    if let Some(places) = run.places.filter(|n| *n as f64 > threads) {
        cure(format!("{places} threads, one for each request in flight"), places as f64 / each);
        cure("coroutines that do not block (no thread held)".to_owned(), places as f64 / each);
    } else {
        cure(format!("{:.0} threads", 2.0 * threads), 2.0 * threads / each);
        cure("coroutines that do not block, as far as the CPU allows".to_owned(), all);
    }
    if run.cores >= 2.0 && threads < 1.5 {
        let n = run.cores.floor();
        cure(format!("{n:.0} processes of one thread"), n / each);
    }
}

fn client(run: &LoadFigures, verdict: &mut OccupancyVerdict) -> bool {
    // A client that had no core was not full, and what it measured is late.
    if !run.client_is_limit || run.client_waited * run.seconds > run.client_cpu_s {
        return false;
    }
    verdict.limit = ServerLimit::Client;
    verdict.signs = vec![format!("this client used {}", cores(run.client_cpu_s / run.seconds.max(1e-9)))];
    verdict.text =
        format!("the client was the limit: the server used {} of {}", cores(run.busy()), cores(run.cores));
    verdict.cures = vec![Cure { change: "more clients".to_owned(), rate_rps: run.ceiling(run.cores) }];
    true
}

/// A server that was not full.
fn unhurried(
    table: &OccupancyTable,
    run: &LoadFigures,
    queue: &WaitingRequests,
    verdict: &mut OccupancyVerdict,
) -> bool {
    let (Some(latency), Some(in_flight)) = (run.latency_s, verdict.in_flight) else { return false };
    if run.client_is_limit {
        return false;
    }
    let unread = queue.in_sockets.unwrap_or(0.0);
    let ready = run.waited_s / run.answered.max(1) as f64;
    let own = run.cost() + ready + run.round_trip_s.unwrap_or(0.0);
    // Threads that wait for others while requests are held may be kept out by a lock.
    let can_be_free = table.free() >= 0.5 && !is_one_at_a_time(table, run);
    let is_full = run.machine_busy.is_none_or(|busy| busy >= FULL);
    let least = if is_full { LEAST_WAIT_FULL } else { LEAST_WAIT };
    let waits = latency >= least && latency > INSIDE * own;
    if waits && unread < QUEUE.max(0.2 * in_flight) && (can_be_free || table.blocked() >= 0.5 * in_flight) {
        verdict.limit = ServerLimit::Waits;
        verdict.signs = vec![
            format!("{} of latency, of which {} is CPU time", ms(latency), ms(run.cost())),
            format!("{unread:.1} requests were not read, {:.1} threads were free", table.free()),
        ];
        let threads = if table.blocked() >= 0.5 * in_flight {
            format!("each holds a thread ({:.0} in {})", table.blocked(), table.holders().call)
        } else {
            "none holds a thread".to_owned()
        };
        verdict.text = format!(
            "requests wait inside the server, for a timer or another server: {} of each, {threads}, and nothing queues",
            ms(latency - own)
        );
        more_in_flight(run, latency, &mut verdict.cures);
        return true;
    }
    if can_be_free
        && run.busy() < FULL * run.cores
        && (unread < QUEUE || run.busy() < 0.5 * run.cores)
        && !waits
    {
        verdict.limit = ServerLimit::NotReached;
        verdict.signs = vec![
            format!("its threads used {} of {}", cores(run.busy()), cores(run.cores)),
            format!("{:.1} threads were free, {unread:.1} requests were not read", table.free()),
        ];
        verdict.text = format!(
            "no limit of the server was reached: {} of {} in use",
            cores(run.busy()),
            cores(run.cores)
        );
        more_in_flight(run, latency, &mut verdict.cures);
        return true;
    }
    false
}

fn more_in_flight(run: &LoadFigures, latency: f64, cures: &mut Vec<Cure>) {
    let all = run.ceiling(run.cores);
    if let Some(places) = run.places {
        cures.push(Cure {
            change: format!("{} requests in flight", places * 2),
            rate_rps: (2.0 * places as f64 / latency).min(all),
        });
    }
    cures.push(Cure { change: "all its cores used".to_owned(), rate_rps: all });
}
