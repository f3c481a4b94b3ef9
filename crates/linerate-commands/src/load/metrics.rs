//! `--metrics`: serves a run to Prometheus and `linerate top`, from a thread that sends no
//! requests.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use linerate_load::histogram::Histogram;
use linerate_load::outcome::{Failure, Requests, SegmentCounts, SegmentEvent};
use linerate_load::plan::Io;
use linerate_load::{Plan, Snapshot, Watcher};
use linerate_net::{FlowInfo, machine, sock_diag};
use linerate_report::live::Scene;
use linerate_report::top::{Flow, Flows, Load, Loop, Loops, TopProcess as Shown};
use linerate_serve::{
    Address, Handle, Metrics, MetricsPage, ProcessFigures, Request, Response, ServerOptions, sleep,
    spawn_boxed,
};
use serde::Serialize;

use super::capture::Counted;
use crate::fault::{CommandFault, said};
use crate::serve::cannot_listen;

/// How long a scrape is waited for at the end. Reason: it is small; the results are what the user
/// waits for.
const DRAIN: Duration = Duration::from_millis(100);
/// Sockets of this machine that are looked through for those of the run. Reason: the kernel lists
/// this many in 10 to 100 ms.
const SOCKETS_LISTED: usize = 20_000;
/// Connections told. Reason: a screen, or two.
const FLOWS: usize = 100;
/// How long the sending threads may take to show their connections. Reason: they look through them
/// a thirtieth of a second apart.
const PATIENCE: Duration = Duration::from_secs(2);
/// Ends of the buckets of latencies, nanoseconds: those of a server's durations, and one below.
pub(super) const BUCKETS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The address responds from now on. Its figures begin with the run.
pub(super) struct Serving {
    _server: Handle,
    run: Arc<OnceLock<Run>>,
}

/// Sources of the run's figures.
type Run = (Watcher, Option<Counted>);

/// Listens at `at`, and says where.
pub(super) fn serve(at: &Address, plan: &Plan) -> Result<Serving, CommandFault> {
    let run: Arc<OnceLock<Run>> = Arc::default();
    let told = RunSnapshot { run: Arc::clone(&run), plan: Arc::new(plan.clone()) };
    let options =
        ServerOptions { listen: vec![at.clone()], threads: 1, drain: DRAIN, ..ServerOptions::default() };
    let server = spawn_boxed(options, move || {
        let told = told.clone();
        move |request: Request| {
            let told = told.clone();
            async move {
                match (request.path(), told.plan.io) {
                    ("/stats/flows", Io::Xdp) => told.own_flows().await,
                    (path, _) => told.answer(path),
                }
            }
        }
    })
    .map_err(|e| {
        let text = said(&e);
        let why = text.strip_prefix(&format!("{at}: ")).unwrap_or(&text);
        cannot_listen(&io::Error::new(e.kind(), format!("{at} (--metrics): {why}")))
    })?;
    let place = match server.addrs() {
        [at @ Address::Unix(_)] => at.to_string(),
        _ => format!("http://{}/metrics", server.addr()),
    };
    // The port may have been chosen.
    let _ = writeln!(io::stderr(), "metrics on {place}");
    Ok(Serving { _server: server, run })
}

impl Serving {
    /// The run has begun.
    pub(super) fn watch(&self, watcher: Watcher, counted: Option<Counted>) {
        // It begins once.
        let _ = self.run.set((watcher, counted));
    }
}

/// A snapshot, and the run that it is of.
#[derive(Clone)]
struct RunSnapshot {
    run: Arc<OnceLock<Run>>,
    plan: Arc<Plan>,
}

impl RunSnapshot {
    fn answer(&self, path: &str) -> Response {
        match path {
            "/metrics" | "/" => {
                Response::text(page(&self.snapshot())).with_content_type(Metrics::CONTENT_TYPE)
            }
            "/stats/loops" => json(&loops(&self.plan, &self.snapshot(), &ProcessFigures::now())),
            "/stats/flows" => match flows(&self.plan.target.addresses) {
                Ok(flows) => json(&flows),
                Err(_) => Response::status(503),
            },
            _ => Response::status(404),
        }
    }

    /// The connections of our own TCP, as its threads show them.
    async fn own_flows(&self) -> Response {
        let Some((watcher, _)) = self.run.get() else { return json(&Flows::default()) };
        watcher.ask_for_flows();
        let begun = Instant::now();
        let mut shown = loop {
            match watcher.flows() {
                Some(flows) => break flows,
                None if begun.elapsed() > PATIENCE => break Vec::new(),
                None => sleep(Duration::from_millis(10)).await,
            }
        };
        let queued = |f: &FlowInfo| f.unread_bytes + f.unsent_bytes + f.unacked_bytes;
        shown.sort_by_key(|flow| std::cmp::Reverse(queued(flow)));
        let flow = |f: &FlowInfo| Flow {
            local: f.local.to_string(),
            remote: f.remote.to_string(),
            state: f.state.name().to_owned(),
            unread_bytes: f.unread_bytes as u64,
            unsent_bytes: f.unsent_bytes as u64,
            unacked_bytes: f.unacked_bytes as u64,
        };
        let total = watcher.snapshot().stack.map_or(0, |stack| stack.connections);
        json(&Flows { total, flows: shown.iter().take(FLOWS).map(flow).collect(), ..Flows::default() })
    }

    fn snapshot(&self) -> Snapshot {
        let Some((watcher, counted)) = self.run.get() else { return Snapshot::default() };
        let mut snapshot = watcher.snapshot();
        if let Some(counted) = counted {
            counted.show_in(&mut snapshot);
        }
        snapshot
    }
}

fn json(document: &impl Serialize) -> Response {
    // Serialisation fails only for maps whose keys are not text, and these have none.
    serde_json::to_string(document).map_or_else(|_| Response::status(500), Response::json)
}

fn loops(plan: &Plan, snapshot: &Snapshot, process: &ProcessFigures) -> Loops {
    let core = |core: &linerate_load::outcome::Core| {
        let cpu = core.thread.and_then(machine::sched_stat_of);
        Loop::of_core(core, cpu.map_or(0, |stat| stat.on_cpu_ns))
    };
    Loops {
        loops: snapshot.cores.iter().map(core).collect(),
        process: Shown {
            cpu_s: process.cpu_seconds.unwrap_or(0.0),
            started_at: process.started_at.unwrap_or(0.0),
            resident_bytes: process.resident_bytes.unwrap_or(0),
            open_files: process.open_files.unwrap_or(0),
            most_files: process.most_files.unwrap_or(0),
        },
        load: Some(Load::of(&Scene::of(plan), snapshot)),
        ..Loops::default()
    }
}

/// The kernel's connections to these servers: those with the longest queues first. Ports that connections of earlier runs have left
/// in TIME-WAIT are none.
fn flows(servers: &[SocketAddr]) -> io::Result<Flows> {
    let servers: BTreeSet<SocketAddr> = servers.iter().copied().collect();
    let to_servers =
        |s: &sock_diag::TcpSocket| s.state != sock_diag::SocketState::TIME_WAIT && servers.contains(&s.peer);
    let (mut sockets, _) = sock_diag::tcp_sockets_that(SOCKETS_LISTED, to_servers)?;
    let total = sockets.len() as u64;
    sockets.sort_by_key(|s| std::cmp::Reverse(s.receive_queue.saturating_add(s.send_queue)));
    let flow = |s: &sock_diag::TcpSocket| Flow {
        local: s.local.to_string(),
        remote: s.peer.to_string(),
        state: s.state.name().to_owned(),
        unread_bytes: u64::from(s.receive_queue),
        unacked_bytes: u64::from(s.send_queue),
        ..Flow::default()
    };
    Ok(Flows { total, flows: sockets.iter().take(FLOWS).map(flow).collect(), ..Flows::default() })
}

/// A run in the text format of Prometheus.
fn page(snapshot: &Snapshot) -> String {
    let mut page = MetricsPage::default();
    let p = &mut page;
    p.gauge("linerate_load_elapsed_seconds", "Time since sending began.", snapshot.elapsed.as_secs_f64());
    let measuring = u8::from(snapshot.measuring);
    p.gauge("linerate_load_measuring", "1 when the warm-up is over: before, nothing is counted.", measuring);
    requests(p, snapshot);
    latency(p, snapshot);
    machines(p, snapshot);
    connections(p, snapshot);
    tcp(p, snapshot);
    threads(p, snapshot);
    p.process(&ProcessFigures::now());
    page.into_text()
}

fn requests(p: &mut MetricsPage, snapshot: &Snapshot) {
    let r = &snapshot.requests;
    for (name, help, n) in [
        ("requests_sent", "Requests that left, or failed to.", r.sent),
        ("requests_resent", "Times that a request went out again.", r.resent),
        ("requests_unknown", "Requests that left and whose end nobody can know.", r.unknown),
        ("requests_unsent", "Requests that were due in an open loop and never left.", r.unsent),
        ("responses_unsolicited", "Responses that no request had asked for.", r.unsolicited_responses),
        ("sent_bytes", "Bytes of requests.", snapshot.bytes.sent),
        ("received_bytes", "Bytes of responses.", snapshot.bytes.received),
    ] {
        p.counter(&format!("linerate_load_{name}_total"), help, n);
    }
    p.family("linerate_load_responses_total", "counter", "Responses by status.");
    for (status, n) in &snapshot.status {
        p.sample("linerate_load_responses_total", &format!("status=\"{status}\""), n);
    }
    p.family("linerate_load_failures_total", "counter", "Requests that failed, by reason.");
    for why in Failure::ALL {
        let labels = format!("reason=\"{}\"", why.name());
        p.sample("linerate_load_failures_total", &labels, snapshot.failures.count(why));
    }
    let bad = &snapshot.bad;
    p.family("linerate_load_bad_responses_total", "counter", "Responses that were not as expected.");
    for (what, n) in [
        ("status", bad.status),
        ("body", bad.body),
        ("tag", bad.tag),
        ("trailer", bad.trailer),
        ("take", bad.take),
        ("expect", bad.expect),
    ] {
        p.sample("linerate_load_bad_responses_total", &format!("by=\"{what}\""), n);
    }
    p.gauge("linerate_load_requests_in_flight", "Requests in flight now.", snapshot.in_flight);
}

fn latency(p: &mut MetricsPage, snapshot: &Snapshot) {
    let latency = &snapshot.latency;
    let mut counts = [0; BUCKETS.len()];
    for (ns, n) in latency.iter_recorded() {
        if let Some(bucket) = BUCKETS.iter().position(|end| ns <= *end) {
            counts[bucket] += n;
        }
    }
    let name = "linerate_load_latency_seconds";
    p.family(name, "histogram", "Latency: from due in an open loop, from sent in a closed one. Requests without a good response are in +Inf alone.");
    // Requests without a good response are in no bucket but the last: a quantile of them is beyond every limit.
    let all = snapshot.ranked();
    let sum = |of: &Histogram| of.mean_ns() * of.count() as f64;
    let sum_ns = (sum(all.good) + sum(all.waited)).round() as u64;
    p.histogram(name, "", BUCKETS.into_iter().zip(counts), all.count(), sum_ns);
}

/// What agents on other machines report, one by one, and how old it is.
fn machines(p: &mut MetricsPage, snapshot: &Snapshot) {
    if snapshot.machines.is_empty() {
        return;
    }
    let old = snapshot.old.unwrap_or_default().as_secs_f64();
    p.gauge(
        "linerate_load_figures_late_seconds",
        "How late the agents' reports are: 0 while they come.",
        old,
    );
    type Of = fn(&Requests) -> u64;
    let families: [(&str, &str, Of); 3] = [
        ("answered", "Responses of each agent.", |r| r.answered),
        ("failed", "Requests of each agent that failed or whose end nobody can know.", |r| {
            r.failed + r.unknown
        }),
        ("unsent", "Requests of each agent that were due and never left.", |r| r.unsent),
    ];
    for (what, help, of) in families {
        let name = format!("linerate_load_agent_requests_{what}_total");
        p.family(&name, "counter", help);
        for machine in &snapshot.machines {
            p.sample(&name, &format!("agent=\"{}\"", machine.name), of(&machine.requests));
        }
    }
}

fn connections(p: &mut MetricsPage, snapshot: &Snapshot) {
    let c = &snapshot.connections;
    p.gauge("linerate_load_connections_open", "Connections open now.", snapshot.open);
    for (name, help, n) in [
        ("opened", "Connections opened.", c.opened),
        ("failed", "Connections that could not be opened.", c.failed),
        ("refused", "Of these, connections that the server refused.", c.refused),
        ("closed_by_peer", "Connections that the server ended.", c.closed_by_peer),
    ] {
        p.counter(&format!("linerate_load_connections_{name}_total"), help, n);
    }
}

fn tcp(p: &mut MetricsPage, snapshot: &Snapshot) {
    let e = &snapshot.tcp;
    for (name, help, n) in [
        ("retransmits", "Segments sent again, on the connections looked at.", e.retransmits),
        ("duplicates_reported", "Segments that the server had received before.", e.duplicates_reported),
        ("reordered", "Times that segments of ours had overtaken one another.", e.reordered),
        ("out_of_order", "Segments received out of order.", e.out_of_order),
        ("looks", "Looks at connections.", e.looks),
        ("looks_peer_window_closed", "Looks that found the server's window closed.", e.peer_window_closed),
        ("looks_own_window_closed", "Looks that found our window closed.", e.own_window_closed),
    ] {
        p.counter(&format!("linerate_load_tcp_{name}_total"), help, n);
    }
    for (name, help, us) in [
        (
            "rwnd_limited",
            "Time that the server's window held requests back, of all connections.",
            e.rwnd_limited_us,
        ),
        ("sndbuf_limited", "Time that our send buffer held requests back.", e.sndbuf_limited_us),
    ] {
        p.counter(&format!("linerate_load_tcp_{name}_seconds_total"), help, us as f64 / 1e6);
    }
    let Some(segments) = &snapshot.segments else { return };
    let ways: [(&str, &SegmentCounts); 2] = [("sent", &segments.sent), ("received", &segments.received)];
    p.family("linerate_load_segments_total", "counter", "Segments, counted one by one.");
    for (way, counts) in ways {
        p.sample("linerate_load_segments_total", &format!("way=\"{way}\""), counts.segments);
    }
    let name = "linerate_load_segment_events_total";
    p.family(name, "counter", "What segments were, by the names of Wireshark's TCP analysis.");
    for (way, counts) in ways {
        counts.iter().for_each(|(event, n): (SegmentEvent, u64)| {
            p.sample(name, &format!("way=\"{way}\",event=\"{}\"", event.name()), n);
        });
    }
}

fn threads(p: &mut MetricsPage, snapshot: &Snapshot) {
    p.gauge("linerate_load_cores", "Sending threads that have a core each.", snapshot.cores.len());
    let name = "linerate_load_thread_cpu_seconds_total";
    let told = |thread: Option<u32>| thread.and_then(machine::sched_stat_of);
    let known: Vec<_> = snapshot.cores.iter().map(|core| told(core.thread)).collect();
    if known.iter().all(Option::is_none) {
        return;
    }
    p.family(name, "counter", "CPU time of each sending thread.");
    for (i, stat) in known.into_iter().enumerate() {
        if let Some(stat) = stat {
            p.sample(name, &format!("core=\"{i}\""), stat.on_cpu_ns as f64 / 1e9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_load::outcome::{Core, Segments};

    #[test]
    fn connections_of_earlier_runs_are_no_load() {
        use std::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let server = listener.local_addr().expect("an address");
        let open = || {
            let client = TcpStream::connect(server).expect("a connection");
            (client, listener.accept().expect("accepted").0)
        };
        let kept = open();
        for _ in 0..3 {
            let (client, accepted) = open();
            // The side that closes first keeps the port in TIME-WAIT.
            drop(client);
            drop(accepted);
        }
        let found = flows(&[server]).expect("sockets");
        assert_eq!((found.total, found.flows.len()), (1, 1), "{found:?}");
        assert_eq!(found.flows[0].local, kept.0.local_addr().expect("an address").to_string());
    }

    #[test]
    fn each_family_has_its_head_once_and_counts_are_exact() {
        let mut snapshot = Snapshot { status: [(200, 7), (503, 1)].into(), ..Snapshot::default() };
        snapshot.requests.sent = 9;
        snapshot.failures.add(Failure::Timeout, 1);
        snapshot.latency.record(1_500_000, 8);
        snapshot.latency.record(20_000_000_000, 1);
        snapshot.waited.record(100, 2);
        snapshot.cores = vec![Core { thread: machine::thread_id(), ..Core::default() }];
        let mut segments = Segments::default();
        segments.received.add(SegmentEvent::ZeroWindow, 33);
        snapshot.segments = Some(segments);
        let page = page(&snapshot);
        for line in [
            "linerate_load_requests_sent_total 9",
            "linerate_load_responses_total{status=\"503\"} 1",
            "linerate_load_failures_total{reason=\"timeout\"} 1",
            "linerate_load_latency_seconds_bucket{le=\"0.001\"} 0",
            "linerate_load_latency_seconds_bucket{le=\"0.0025\"} 8",
            "linerate_load_latency_seconds_bucket{le=\"10\"} 8",
            "linerate_load_latency_seconds_bucket{le=\"+Inf\"} 11",
            "linerate_load_segment_events_total{way=\"received\",event=\"zero_window\"} 33",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
        let heads: Vec<&str> = page.lines().filter(|l| l.starts_with("# TYPE")).collect();
        assert_eq!(heads.iter().collect::<BTreeSet<_>>().len(), heads.len());
        assert!(page.contains("linerate_load_thread_cpu_seconds_total{core=\"0\"}"), "{page}");
    }
}
