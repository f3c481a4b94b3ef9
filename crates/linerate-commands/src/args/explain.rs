//! The flags of `linerate explain`.

use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use linerate_netbox::LineShape;

use super::request::{AddressFlags, RequestFlags, WHAT, WHERE};
use super::route::ConnectTo;
use super::tls::TlsFlags;
use super::values;
use super::{Http, PassiveArgs};

const HOW: &str = "What may be done";
const RESULTS: &str = "Results";

const AFTER: &str = "\
Examples:
  linerate explain http://127.0.0.1:8080/report                      why is this slow?
  linerate explain -X POST --body '{\"a\":1}' --repeat-unsafe http://127.0.0.1:8080/orders
                                                                     of a call that may be repeated
  linerate explain --writes apart --body x --repeat-unsafe URL       of a client that writes head and body apart
  linerate explain --cacert ca.pem https://localhost:8443/           over TLS; -k checks no certificate
  linerate explain --http2 http://127.0.0.1:8080/                    over HTTP/2, in clear text
  linerate explain --pid 4711 http://127.0.0.1:8080/                 and look at the server's process, too
  linerate explain --html why.html http://127.0.0.1:8080/            as a page with pictures, to be passed on
  linerate explain --origin http://10.0.0.7:8080/report http://www.example.com/report
                                                                     is it the proxy, or the server behind it?
  linerate explain --json - http://127.0.0.1:8080/                   for a script
  linerate explain --json why.json http://127.0.0.1:8080/            keep it, mend what it names, and:
  linerate explain --baseline why.json http://127.0.0.1:8080/        is it gone?
  linerate explain --pipelining http://127.0.0.1:8080/               does pipelining pay here, and what would?
  linerate explain --why server-nagle-delayed-ack                    what is that?
  linerate explain --pcap slow.pcap                                  what a capture shows
  linerate explain --pcap slow.pcap --keylog keys.log                and what is inside TLS
  linerate explain --capture --port 8080                             watch other programs' calls until q or Ctrl-C (needs CAP_NET_RAW)
  linerate explain --capture --port 8080 --json -                    the same as JSON lines, one for every 5 s
  linerate explain --capture --port 8080 --budget 30s                watch for 30 s, then one report

Exit codes: 0 nothing is wrong; 1 a cause was found, something is wrong and no cause can be named, or a cause of --baseline is not
gone; 2 bad input, nothing was run; 3 the server could not be reached; 4 something failed here; 130 interrupted.";

/// Say why a call is slow, and prove it by experiment
///
/// Makes the call some ten times, on new and on kept connections, and looks at where the time goes. What it then suspects it
/// tests: it changes one thing at a time (acknowledge at once, send without Nagle's algorithm, a connection that is warm, ...) and
/// compares with calls in which nothing is changed, in turns. Needs no privileges. At most 60 calls in 15 s; 90 on a
/// busy machine, 200 more over HTTP/2 where segments get lost, 39 more at random times where nothing else is found (69 where many
/// of them are slow), and 19 more where calls on one connection are of two kinds.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = AFTER)]
pub(crate) struct ExplainArgs {
    /// The call: http://HOST[:PORT][/PATH][?QUERY], or https://
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    #[command(flatten)]
    pub(crate) request: RequestFlags,

    /// How your client writes a request with a body: head and body in one write, or apart (with Nagle's algorithm on)
    #[arg(long, value_name = "HOW", value_enum, default_value_t, help_heading = WHAT)]
    pub(crate) writes: Written,

    /// The call may be repeated although its method is not GET or HEAD
    #[arg(long, help_heading = HOW)]
    pub(crate) repeat_unsafe: bool,

    /// Time for all of it [default: 15s; of --capture without a URL: no end]
    #[arg(long, value_name = "TIME", value_parser = values::budget, help_heading = HOW)]
    pub(crate) budget: Option<Duration>,

    /// PID of the server, if it runs on this machine: adds what its threads block on, open files, queues, limits and JVM pauses. Of a
    /// loopback address the process is found by its listening socket (auto); off leaves it
    #[arg(long, value_name = "PID|auto|off", default_value_t, help_heading = HOW)]
    pub(crate) pid: PidArgument,

    /// The same resource at the server behind the proxy: the call is made there, too, and compared with the one through the proxy
    #[arg(long, value_name = "URL", requires = "url", help_heading = HOW)]
    pub(crate) origin: Option<String>,

    /// Compare with the document that --json FILE wrote before a fix: is its cause gone, and was the prediction right?
    #[arg(long, value_name = "FILE", help_heading = HOW)]
    pub(crate) baseline: Option<PathBuf>,

    /// Version of HTTP: auto offers HTTP/2 and HTTP/1.1 over https (ALPN), and is HTTP/1.1 in clear text [default: auto]
    #[arg(long, value_name = "VERSION", value_enum, help_heading = WHAT)]
    pub(crate) http: Option<Http>,

    /// HTTP/2, also in clear text (prior knowledge): the same as --http 2
    #[arg(long, conflicts_with = "http", help_heading = WHAT)]
    pub(crate) http2: bool,

    /// HTTP/2's flow-control window of your client, of each stream and of the connection, bytes [default: 16777216]
    ///
    /// The server may send so many bytes before it hears from us. 65535 is what a client has that announces none.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..=2147483647), help_heading = WHAT)]
    pub(crate) h2_window: Option<u32>,

    #[command(flatten)]
    pub(crate) to: AddressFlags,

    /// For HOST1:PORT1 of the URL connect to HOST2:PORT2, as in curl; empty parts stand for any, or for the same; repeatable
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", value_parser = ConnectTo::parse, help_heading = WHERE)]
    pub(crate) connect_to: Vec<ConnectTo>,

    #[command(flatten)]
    pub(crate) tls: TlsFlags,

    /// Shape the packets to a server of this machine: a rate, a round trip and a loss each way, 100mbit,26ms,loss=1%
    ///
    /// Or a network by its name: telecom (100mbit), lan (1.9ms), regions (26ms). The server runs on this machine already and is named by
    /// an IPv4 address, or is started: 'cmd:COMMAND' in the place of the URL. This takes root and /dev/net/tun.
    #[arg(long, value_name = "RATE,RTT,loss=P", value_parser = values::line, requires = "url", conflicts_with_all = ["pcap", "origin"], help_heading = HOW)]
    pub(crate) line: Option<LineShape>,

    /// Say whether pipelining pays at the server, and what would: one request at a time, ten in a pipeline, ten connections and
    /// HTTP/2, each for one and a half seconds
    #[arg(
        long,
        requires = "url",
        conflicts_with_all = ["pcap", "capture", "baseline", "why", "origin", "writes"],
        help_heading = HOW
    )]
    pub(crate) pipelining: bool,

    /// How much is printed: a screen, or all of it [default: screen]
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        requires = "url",
        conflicts_with_all = ["pcap", "pipelining", "why"],
        help_heading = RESULTS
    )]
    pub(crate) summary: Option<ExplainSummary>,

    #[command(flatten)]
    pub(crate) passive: PassiveArgs,

    /// Explain a cause from the beginning: what it is, a picture, what to change; --html writes it as a page. Without ID: all there are
    #[arg(
        long,
        value_name = "ID",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["url", "pcap", "capture", "baseline", "json"],
        help_heading = RESULTS
    )]
    pub(crate) why: Option<String>,

    /// Write the diagnosis as JSON to FILE, or - for standard output (the text then goes to standard error)
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) json: Option<PathBuf>,

    /// Write the diagnosis as a page to FILE, with the call and the experiments as pictures; it needs nothing else
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub(crate) html: Option<PathBuf>,

    /// No word on what is being tried
    #[arg(short = 'q', long, help_heading = RESULTS)]
    pub(crate) quiet: bool,
}

/// `--pid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PidArgument {
    /// At a loopback address it is found.
    #[default]
    Auto,
    /// It is not looked at.
    Off,
    /// That one.
    Named(u32),
}

impl FromStr for PidArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<PidArgument, String> {
        match text {
            "auto" => Ok(PidArgument::Auto),
            "off" => Ok(PidArgument::Off),
            pid => match pid.parse() {
                Ok(pid @ 1..) => Ok(PidArgument::Named(pid)),
                _ => Err("it is a process's number, auto or off".to_owned()),
            },
        }
    }
}

impl Display for PidArgument {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            PidArgument::Auto => f.write_str("auto"),
            PidArgument::Off => f.write_str("off"),
            PidArgument::Named(pid) => write!(f, "{pid}"),
        }
    }
}

/// `--writes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Written {
    /// In one write
    #[default]
    One,
    /// In a write each
    Apart,
}

/// `--summary` of `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainSummary {
    /// The verdict and what to change, the picture, the places, the limits
    Screen,
    /// Also all evidence and advice, the server's process, what was ruled out
    Full,
}
