//! The flags of `linerate load`. A flag that is `None` was not typed: a plan file or the default decides.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use linerate_load::plan::abort::AbortOn;
use linerate_load::plan::flow::UserCount;
use linerate_load::plan::{self, Check, Rate};
use linerate_netbox::LineShape;
use linerate_report::summary::SummaryLength;

use super::request::{AddressFlags, RequestFlags, WHAT, WHERE};
use super::route::RouteFlags;
use super::tls::TlsFlags;
use super::values::{self, Addresses, DataFile, Statuses};

const HOW: &str = "How to send";
const WHEN: &str = "How much, how fast";
const FROM: &str = "A plan from elsewhere";
const GOOD: &str = "Checks";
const RESULTS: &str = "Results";

const AFTER: &str = "\
Units: numbers may end in k, M or G (10k, 1.5M); times in us, ms, s, m or h (500ms, 1m30s; a plain number means seconds).

Examples:
  linerate load http://127.0.0.1:8080/                     as fast as 64 connections go, for 10s
  linerate load -c 8 -p 100 http://127.0.0.1:8080/         100 requests in flight on each of 8 connections
  linerate load --rate 5k -d 1m http://127.0.0.1:8080/     exactly 5000 requests/s; latency from when each was due
  linerate load --per-connection 1 http://127.0.0.1:8080/  a new connection for each request
  linerate load -X PUT --body '{\"n\":{{seq}}}' -H 'Content-Type: application/json' http://127.0.0.1:8080/items/{{seq}}
  linerate load --check 'p99<50ms' --check 'errors<0.1%' --json out.json http://127.0.0.1:8080/   in a pipeline

Exit codes: 0 done and fine; 1 a check failed, a response was not as --expect-* wants it, not one response was good, or
the server was unreachable for a second or at the end; 2 bad input, nothing was run; 3 the target was never reached; 4 something failed here (a full disk, a missing capability); 130 interrupted (the first Ctrl-C reports, a
second one ends at once).";

/// Send requests as fast as the network takes them, or at an exact rate; measure honestly
///
/// Sends HTTP/1.1 requests over many connections and reports how fast they were answered and how long each took.
/// Without --rate the next request leaves as soon as an answer frees its place (a closed loop). With --rate each
/// request is due at a time of its own, and its latency counts from then: a stall of the server is not hidden.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = AFTER)]
pub(crate) struct LoadArgs {
    /// What to ask for: http://HOST[:PORT][/PATH][?QUERY], or https://
    ///
    /// 'cmd:COMMAND' starts a server for the run: {port} in it stands for a free port; without it the server prints its URL.
    /// A plan file can name it too. User and password in it become an Authorization header. In path and query
    /// {{seq}}, {{now_ms}}, {{date:%F}}, {{rand:1-1000}}, {{rand_text:8}}, {{uuid}}, {{csv.COLUMN}} and {{env.VARIABLE}} are filled in
    /// for each request, as in header fields and the body; filters are |json, |url and |base64: {{csv.COLUMN|url}}. A name that has addresses of both kinds is reached by IPv4, unless -6 or --from says otherwise.
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Connections held open [default: 64]
    #[arg(short = 'c', long, value_name = "N", value_parser = values::connections, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) connections: Option<u32>,

    /// Requests in flight on each connection: HTTP/2's concurrent streams, HTTP/1.1's pipeline [default: 1]
    ///
    /// Over HTTP/2 it is limited by what the server admits (SETTINGS_MAX_CONCURRENT_STREAMS). Over HTTP/1.1, with more than 1, requests are pipelined: sent without waiting for the answers before them (RFC 9112 section
    /// 9.3.2). Should the server close early, idempotent requests go out again (--resend); others end as "unknown".
    #[arg(short = 'p', long, value_name = "D", value_parser = values::depth, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) pipeline: Option<u32>,

    /// Close a connection after N requests: 1 for short connections [default: as many as the server allows]
    #[arg(long, value_name = "N", value_parser = values::per_connection, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) per_connection: Option<u32>,

    /// Stop after this time [default: 10s, without -n]; with -n, whichever comes first
    #[arg(short = 'd', long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, help_heading = WHEN)]
    pub(crate) duration: Option<Duration>,

    /// Stop after N requests
    #[arg(short = 'n', long, value_name = "N", value_parser = values::requests, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) requests: Option<u64>,

    /// Open loop: R requests/s in total, whatever the answers do
    ///
    /// A number (500, 50k), or steps: 0..5000@30s,5000@60s goes from 0 to 5000 in 30s, then stays there for 60s.
    #[arg(short = 'r', long, value_name = "R", value_parser = values::rate, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) rate: Option<Rate>,

    /// Spacing of requests with --rate: even, or as many independent users send [default: constant]
    #[arg(long, value_name = "HOW", value_enum, help_heading = WHEN)]
    pub(crate) arrival: Option<Arrival>,

    /// Users of the plan's flows at the same time, or stages: 1..50@10s,50@60s
    ///
    /// With --user-rate, the most users at the same time [default: 10000].
    #[arg(long, value_name = "N|STAGES", value_parser = values::users, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) users: Option<UserCount>,

    /// New users of the plan's flows per second, each for one iteration, whatever those before them do
    ///
    /// A number, or steps as in --rate. Each is new: no cookies, a connection of its own, and no TLS session to resume.
    #[arg(long, value_name = "R", value_parser = values::rate, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) user_rate: Option<Rate>,

    /// Redirects that each step of the plan's flows follows, at most 20
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) follow: Option<u32>,

    /// Find the highest rate at which this holds, within 80s: p99<50ms, errors<0.1%
    ///
    /// Tries rates, from that of --rate (or 100/s) on, and looks longest where the limit should be. EXPR is a percentile or a share of
    /// errors; a request without a good response counts as over the limit. Says what gave way above it: a core of the server, its queue, our
    /// connections (-c), the link, errors, or this client. Every look is an open loop, unless --find-by says otherwise.
    #[arg(long, value_name = "EXPR", value_parser = Check::parse, conflicts_with_all = ["requests", "duration", "warm_up", "explain", "abort_on", "save_responses", "capture", "metrics", "throughput", "pid", "csv", "csv_fine", "log_requests", "watch", "open", "otlp"], help_heading = WHEN)]
    pub(crate) find: Option<Check>,

    /// What --find raises: the rate of an open loop, or the connections of a closed one [default: rate]
    ///
    /// With connections, -c says where it begins (1 otherwise), and each connection sends its next request when the last one is answered.
    #[arg(long, value_name = "WHAT", value_enum, requires = "find", help_heading = WHEN)]
    pub(crate) find_by: Option<FindBy>,

    /// Time at the start that is not in the figures [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_hyphen_values = true, help_heading = WHEN)]
    pub(crate) warm_up: Option<Duration>,

    /// Time an answer may take before its request counts as failed [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::timeout, allow_hyphen_values = true, help_heading = WHEN)]
    pub(crate) timeout: Option<Duration>,

    /// Threads to send from, each on a core of its own [default: one per core]
    #[arg(short = 't', long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true, help_heading = WHEN)]
    pub(crate) threads: Option<u32>,

    #[command(flatten)]
    pub(crate) request: RequestFlags,

    /// Body from a file in which slots are filled in, as they are in --body TEXT
    #[arg(long, value_name = "@FILE", conflicts_with = "body", help_heading = WHAT)]
    pub(crate) body_template: Option<String>,

    /// Field of a form, as in curl: NAME=VALUE, NAME=@FILE;type=TYPE;filename=NAME or NAME=<FILE; repeatable
    ///
    /// The body is multipart/form-data (RFC 7578). Slots are filled in values, files are sent as they are. A value with a semicolon
    /// stands in double quotes.
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["body", "body_template"], help_heading = WHAT)]
    pub(crate) form: Vec<String>,

    /// Send the bytes of FILE as they are, head and all, also malformed ones; - is standard input
    ///
    /// Nothing is filled in and nothing is added. One response is expected each time; it is read as usual.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "body_template", "form"], help_heading = WHAT)]
    pub(crate) raw: Option<String>,

    /// CSV file whose columns fill {{NAME.COLUMN}}; the name is "csv" without one; repeatable
    #[arg(long, value_name = "[NAME=]FILE", value_parser = values::data_file, help_heading = WHAT)]
    pub(crate) data: Vec<DataFile>,

    /// Number each request in this header and check that the answer echoes it
    #[arg(long, value_name = "HEADER", value_parser = values::field_name, help_heading = WHAT)]
    pub(crate) tag: Option<String>,

    /// Seed of everything random: the same seed asks for the same again [default: 1]
    #[arg(long, value_name = "N", value_parser = values::seed, allow_negative_numbers = true, help_heading = WHAT)]
    pub(crate) seed: Option<u64>,

    /// Plan file (TOML): several requests with weights, data, checks; flags given here override it
    #[arg(long, value_name = "FILE", group = "made_from", help_heading = FROM)]
    pub(crate) plan: Option<PathBuf>,

    /// Make the plan from a curl command, as browsers copy it
    #[arg(long, value_name = "CMD", group = "made_from", help_heading = FROM)]
    pub(crate) curl: Option<String>,

    /// Make it from a recorded page load: the requests to one server, in their order
    #[arg(long, value_name = "FILE", group = "made_from", help_heading = FROM)]
    pub(crate) har: Option<PathBuf>,

    /// Make it from an OpenAPI 3 description: a request for each operation that is safe
    #[arg(long, value_name = "FILE", group = "made_from", help_heading = FROM)]
    pub(crate) openapi: Option<PathBuf>,

    /// With --openapi: also operations that change something (POST, PUT, PATCH, DELETE)
    #[arg(long, requires = "openapi", help_heading = FROM)]
    pub(crate) unsafe_methods: bool,

    /// Send an access log again, at its times: common or combined format, or the JSON of linerate serve; also as .gz
    #[arg(long, value_name = "LOG", group = "made_from", help_heading = FROM)]
    pub(crate) replay: Option<PathBuf>,

    /// With --replay: so many times as fast [default: 1]
    #[arg(long, value_name = "X", requires = "replay", help_heading = FROM)]
    pub(crate) speed: Option<f64>,

    /// Print the plan and the first request, and stop
    #[arg(long, help_heading = FROM)]
    pub(crate) dry_run: bool,

    /// What must hold at the end, else exit code 1: p99<50ms, errors<0.1%, rate>10k; repeatable
    ///
    /// Measured are p50, p99, p99.9 and so on, mean, min, max (from due with --rate), rate, errors (failed, unknown, bad,
    /// unsent and unsolicited: a count, or with % a share of the requests due), answered, unsolicited and out_of_order. The
    /// name of a request before it means that request alone: login.p99<50ms.
    /// Comparisons are <, <=, > and >=. A request that never left is later than any limit.
    #[arg(long, value_name = "EXPR", value_parser = Check::parse, help_heading = GOOD)]
    pub(crate) check: Vec<Check>,

    /// End the run, with exit code 1, when EXPR holds over the last TIME: errors>5%@10s; repeatable
    ///
    /// EXPR is written as for --check, TIME is 1s to 1h. Nothing ends before that time is over.
    #[arg(long, value_name = "EXPR@TIME", value_parser = AbortOn::parse, help_heading = GOOD)]
    pub(crate) abort_on: Vec<AbortOn>,

    /// Good statuses: 200,204 or 2xx [default: below 400]
    #[arg(long, value_name = "LIST", value_parser = values::statuses, help_heading = GOOD)]
    pub(crate) expect_status: Option<Statuses>,

    /// Text that the body of a good answer contains
    #[arg(long, value_name = "TEXT", help_heading = GOOD)]
    pub(crate) expect_body: Option<String>,

    /// Afterwards look at the worst request of the tail: call it again, alone, and say why it is slow
    ///
    /// At most 99 calls in at most 15 s; a request that is not GET or HEAD is called once. See linerate explain.
    #[arg(long, help_heading = GOOD)]
    pub(crate) explain: bool,

    /// Write the results as JSON to FILE, or - for standard output (the summary then goes to standard error)
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as one page to FILE or -: curves, heat map, histogram, percentiles
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) html: Option<PathBuf>,

    /// Write the figures of each second as CSV to FILE or -
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) csv: Option<PathBuf>,

    /// Write the figures of small steps as CSV to FILE or -: 10 ms each, in runs of more than 2s 100 ms
    ///
    /// Rate, bytes both ways, requests in flight and busy cores of the client. Agents count whole seconds alone.
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) csv_fine: Option<PathBuf>,

    /// Write a line for each request to FILE: CSV, or JSON lines if its name ends in .jsonl
    ///
    /// A line says when the request was due and left, how long its response took, its status, and what was wrong. Requests of
    /// the warm-up are not in it. A file that is written more slowly than responses come lacks some, and the summary says how many.
    /// docs/OUTPUTS.md has the columns.
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) log_requests: Option<PathBuf>,

    /// Write the checks as JUnit XML to FILE or -, for the test report of a pipeline
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) junit: Option<PathBuf>,

    /// Print checks that failed, and warnings, as annotations of a pipeline's page
    #[arg(long, value_name = "FOR", value_enum, help_heading = RESULTS)]
    pub(crate) annotations: Option<Annotations>,

    /// Watch the server's processes on this machine: CPU, memory, context switches, waits for a core
    ///
    /// PID is its first process; auto finds it by its listening socket. Processes that it started are watched with it.
    #[arg(long, value_name = "PID|auto", value_parser = server_process, help_heading = RESULTS)]
    pub(crate) pid: Option<ServerProcess>,

    /// Read the server's page for Prometheus once a second: its CPU time for each request and its memory
    ///
    /// The URL is http://HOST:PORT[/PATH], by default /metrics, such as that of linerate serve --metrics. If it cannot be read, the
    /// summary says so, and the run goes on.
    #[arg(long, value_name = "URL", conflicts_with = "pid", help_heading = RESULTS)]
    pub(crate) watch: Option<String>,

    /// Show the run as a page on this machine while it lasts: its address is printed, and opened in a browser
    ///
    /// At the end the report takes the page's place. Up to 8 pages may show it.
    #[arg(long, help_heading = RESULTS)]
    pub(crate) open: bool,

    /// Keep responses as files in DIR, a new or an empty folder: the first 100, and the first 100 bad ones after them
    ///
    /// Each has the head as it came and the body without its transfer coding, up to 1 MiB. It costs speed.
    #[arg(long, value_name = "DIR", help_heading = RESULTS)]
    pub(crate) save_responses: Option<PathBuf>,

    /// How much of a summary: a few lines, a screen, or all of it; failures, notes and checks are in each [default: screen]
    #[arg(long, value_name = "HOW", value_enum, help_heading = RESULTS)]
    pub(crate) summary: Option<Summary>,

    /// While the run lasts: counters for Prometheus at this address, or at a Unix socket; linerate top shows them
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", value_parser = crate::serve::place, help_heading = RESULTS)]
    pub(crate) metrics: Option<linerate_serve::Address>,

    /// Send the run's figures to an OpenTelemetry collector once a second: OTLP/HTTP, protobuf, to URL/v1/metrics
    ///
    /// The URL is http://HOST[:PORT], by default port 4318. Headers come from OTEL_EXPORTER_OTLP_HEADERS. If figures cannot be delivered, the
    /// summary says how many and why, and the run goes on. At its end the last ones have 3 s.
    #[arg(long, value_name = "URL", help_heading = RESULTS)]
    pub(crate) otlp: Option<String>,

    /// No live view and no progress lines, only the summary
    #[arg(short = 'q', long, help_heading = RESULTS)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) tls: TlsFlags,

    /// Version of HTTP: auto offers HTTP/2 and HTTP/1.1 over https (ALPN), and is HTTP/1.1 in clear text [default: auto]
    #[arg(long, value_name = "VERSION", value_enum, help_heading = HOW)]
    pub(crate) http: Option<LoadHttp>,

    /// HTTP/2, also in clear text (prior knowledge): the same as --http 2
    #[arg(long, conflicts_with = "http", help_heading = HOW)]
    pub(crate) http2: bool,

    /// HTTP/2's flow-control window of each stream and of the connection, bytes [default: 16777216]
    ///
    /// The server may send so many bytes before it hears from us. 65535 is what a client has that announces none.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..=2147483647), help_heading = HOW)]
    pub(crate) h2_window: Option<u32>,

    /// Which requests go out again when their connection or stream ends without a byte of their response [default: idle]
    #[arg(long, value_name = "WHICH", value_enum, help_heading = HOW)]
    pub(crate) resend: Option<Resend>,

    /// Way of sending: ours, or a baseline to compare with [default: loop]
    #[arg(long, value_name = "WAY", value_enum, help_heading = HOW)]
    pub(crate) way: Option<Way>,

    /// Which interface to the kernel moves the bytes [default: auto, the better one this kernel has]
    #[arg(long, value_name = "IO", value_enum, help_heading = HOW)]
    pub(crate) io: Option<Io>,

    /// May delay when answers are seen to go faster; latencies are then not reported
    #[arg(long, help_heading = HOW)]
    pub(crate) throughput: bool,

    /// Count segments one by one, from packets: duplicate ACKs, closed windows, retransmissions, reordering [default: off]
    ///
    /// It costs work for every packet, and needs the capability CAP_NET_RAW; without it the run goes on and says so. Over --io xdp
    /// segments are counted anyway. docs/LOAD-TCP.md says what is known without it.
    #[arg(long, value_name = "WHEN", value_enum, help_heading = HOW)]
    pub(crate) capture: Option<When>,

    /// Shape the packets to a server of this machine: a rate, a round trip and a loss each way, 100mbit,26ms,loss=1%
    ///
    /// Or a network by its name: telecom (100mbit), lan (1.9ms), regions (26ms); parts behind a name change it: telecom,20ms. The server
    /// runs on this machine already and is named by an IPv4 address, or is started: 'cmd:COMMAND' in the place of the URL. It sees a client
    /// with another address than 127.0.0.1. This takes root and /dev/net/tun.
    #[arg(long, value_name = "RATE,RTT,loss=P", value_parser = values::line, conflicts_with_all = ["interface", "from", "metrics", "otlp", "watch", "open", "proxy", "unix_socket", "nats", "agents_local"], help_heading = HOW)]
    pub(crate) line: Option<LineShape>,

    /// Interface for --io xdp: the one that leads to the target
    #[arg(long, value_name = "IF", help_heading = HOW)]
    pub(crate) interface: Option<String>,

    /// With --io xdp: poll the interface's queue instead of waiting for its interrupts, for TIME at a time, such as 50us
    ///
    /// Interrupts stay away only where the interface was told so; docs/XDP.md has the two settings.
    #[arg(long, value_name = "TIME", value_parser = values::busy_poll, help_heading = HOW)]
    pub(crate) busy_poll: Option<Duration>,

    /// With --io xdp: write every packet into FILE, for tcpdump, Wireshark or linerate explain --pcap (at most 1 GiB)
    #[arg(long, value_name = "FILE", help_heading = HOW)]
    pub(crate) pcap_out: Option<PathBuf>,

    /// With --io xdp: let packets be lost, doubled, late, overtaken or changed: loss=1%,delay=20ms
    ///
    /// Keys are loss, dup, reorder and corrupt (shares), delay and reorder-by (times) and seed; with in: or out: before a key it is
    /// for packets that come in or go out alone.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = values::fault, help_heading = HOW)]
    pub(crate) fault: Option<String>,

    /// Source addresses to spread connections over; each brings its own local ports
    ///
    /// With --io xdp: addresses that nothing else uses, free ones of the interface's network. The interface has them for as
    /// long as the run lasts.
    #[arg(long, value_name = "ADDR[,ADDR]", value_parser = values::addresses, help_heading = WHERE)]
    pub(crate) from: Option<Addresses>,

    #[command(flatten)]
    pub(crate) to: AddressFlags,

    #[command(flatten)]
    pub(crate) route: RouteFlags,

    #[command(flatten)]
    pub(crate) machines: super::machines::MachineFlags,
}

/// `--find-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindBy {
    /// Requests per second of an open loop
    Rate,
    /// Connections of a closed loop
    Connections,
}

/// `--way`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Event loops, one per core
    Loop,
    /// One request at a time, on one connection
    Poll,
    /// A blocking thread for each connection
    Threads,
    /// A task for each connection, on an async runtime
    Async,
}

/// `--capture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// Where this process may
    Auto,
    /// Not at all
    Off,
}

/// `--pid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerProcess {
    /// It is found.
    Auto,
    /// That one.
    Named(i32),
}

fn server_process(text: &str) -> Result<ServerProcess, String> {
    match (text, text.parse::<i32>()) {
        ("auto", _) => Ok(ServerProcess::Auto),
        (_, Ok(pid @ 1..)) => Ok(ServerProcess::Named(pid)),
        _ => Err("it is a process's number, or auto".to_owned()),
    }
}

/// `--annotations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Annotations {
    /// GitHub Actions
    Github,
}

/// `--summary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Summary {
    /// The figure, the percentiles in a line, what went wrong
    Short,
    /// Percentiles by row, and all that is out of the ordinary
    Screen,
    /// All sections, with bars
    Full,
}

impl Summary {
    /// What was asked for, or what fits a screen.
    pub(crate) fn length(asked: Option<Self>) -> SummaryLength {
        match asked {
            Some(Summary::Short) => SummaryLength::Short,
            Some(Summary::Full) => SummaryLength::Full,
            Some(Summary::Screen) | None => SummaryLength::Screen,
        }
    }
}

/// `--resend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resend {
    /// Idempotent ones if the server had answered on that connection before; all that it certainly did not process
    Idle,
    /// None: they fail
    Never,
    /// Every idempotent one, up to 3 times
    Idempotent,
}

impl From<Resend> for plan::Resend {
    fn from(resend: Resend) -> Self {
        match resend {
            Resend::Idle => plan::Resend::Idle,
            Resend::Never => plan::Resend::Never,
            Resend::Idempotent => plan::Resend::Idempotent,
        }
    }
}

/// `--io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Io {
    /// The better one this kernel has
    Auto,
    /// epoll
    Epoll,
    /// io_uring
    Uring,
    /// Kernel bypass, with TCP in user space (AF_XDP): needs --interface, --from and privileges
    Xdp,
}

/// `--http` of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadHttp {
    /// HTTP/2 or HTTP/1.1 over https, as the server chooses; HTTP/1.1 in clear text
    Auto,
    /// HTTP/1.1
    #[value(name = "1.1")]
    One,
    /// HTTP/2
    #[value(name = "2")]
    Two,
    /// HTTP/3, over QUIC: https:// alone
    #[value(name = "3")]
    Three,
}

/// `--http` of explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Http {
    /// HTTP/2 or HTTP/1.1 over https, as the server chooses; HTTP/1.1 in clear text
    Auto,
    /// HTTP/1.1
    #[value(name = "1.1")]
    One,
    /// HTTP/2
    #[value(name = "2")]
    Two,
}

impl From<LoadHttp> for plan::http::Http {
    fn from(version: LoadHttp) -> Self {
        match version {
            LoadHttp::Auto => plan::http::Http::Auto,
            LoadHttp::One => plan::http::Http::One,
            LoadHttp::Two => plan::http::Http::Two,
            LoadHttp::Three => plan::http::Http::Three,
        }
    }
}

/// `--arrival`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arrival {
    /// Evenly spaced
    Constant,
    /// A Poisson process
    Poisson,
}

impl From<Way> for plan::Way {
    fn from(way: Way) -> Self {
        match way {
            Way::Loop => plan::Way::Loop,
            Way::Poll => plan::Way::Poll,
            Way::Threads => plan::Way::Threads,
            Way::Async => plan::Way::Async,
        }
    }
}

impl From<Io> for plan::Io {
    fn from(io: Io) -> Self {
        match io {
            Io::Auto => plan::Io::Auto,
            Io::Epoll => plan::Io::Epoll,
            Io::Uring => plan::Io::Uring,
            Io::Xdp => plan::Io::Xdp,
        }
    }
}

impl From<Arrival> for plan::Arrival {
    fn from(arrival: Arrival) -> Self {
        match arrival {
            Arrival::Constant => plan::Arrival::Constant,
            Arrival::Poisson => plan::Arrival::Poisson,
        }
    }
}
