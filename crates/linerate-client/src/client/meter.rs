//! Reports a client's figures to the recorder of the crate `metrics`, if there is one.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::error::Error;
use super::options::CallOptions;
use super::statistics::Statistics;

/// A counter of the recorder, and the count last reported to it.
struct MeteredCount {
    counter: Counter,
    last: u64,
}

impl MeteredCount {
    fn new(counter: Counter) -> MeteredCount {
        MeteredCount { counter, last: 0 }
    }

    /// Clients of one server share their counters, so that each reports its increments.
    fn tell(&mut self, count: u64) {
        if count > self.last {
            self.counter.increment(count - self.last);
            self.last = count;
        }
    }
}

/// The connections that had one place, one after the other.
struct PipeMeter {
    requests: MeteredCount,
    responses: MeteredCount,
    in_flight: Gauge,
}

/// Counts of calls and connections, in the order of `counts`.
const COUNTERS: [&str; 13] = [
    "linerate_client_calls_total",
    "linerate_client_responses_total",
    "linerate_client_discarded_total",
    "linerate_client_cancelled_total",
    "linerate_client_resent_total",
    "linerate_client_head_of_line_total",
    "linerate_client_out_of_order_total",
    "linerate_client_unsolicited_total",
    "linerate_client_connections_total",
    "linerate_client_connect_failures_total",
    "linerate_client_connections_lost_total",
    "linerate_client_connections_retired_total",
    "linerate_client_connections_given_up_total",
];

fn counts(s: &Statistics) -> [u64; 13] {
    [
        s.calls,
        s.responses,
        s.discarded,
        s.cancelled,
        s.resent,
        s.head_of_line,
        s.out_of_order,
        s.unsolicited,
        s.connected,
        s.connect_failures,
        s.lost,
        s.retired,
        s.given_up,
    ]
}

/// Tells the recorder.
pub(super) struct Meter {
    server: String,
    counters: Vec<MeteredCount>,
    waiting: Gauge,
    connections: Gauge,
    latency: Histogram,
    pipes: Vec<PipeMeter>,
}

impl Meter {
    /// Whether a recorder may be there.
    pub(super) const TELLS: bool = true;

    pub(super) fn new(options: &CallOptions) -> Meter {
        let scheme = if options.secure { "https" } else { "http" };
        let server = format!("{scheme}://{}", String::from_utf8_lossy(options.host.as_bytes()));
        let of = |name: &'static str| MeteredCount::new(counter!(name, "server" => server.clone()));
        Meter {
            counters: COUNTERS.into_iter().map(of).collect(),
            waiting: gauge!("linerate_client_waiting", "server" => server.clone()),
            connections: gauge!("linerate_client_connections", "server" => server.clone()),
            latency: histogram!("linerate_client_latency_seconds", "server" => server.clone()),
            pipes: Vec::new(),
            server,
        }
    }

    /// A response came, so long after its call was handed over.
    pub(super) fn answered(&self, after: Duration) {
        self.latency.record(after);
    }

    pub(super) fn failed(&self, error: &Error) {
        let kind = match error {
            Error::Builder(_) | Error::Request(_) => "request",
            Error::Connect(_) => "connect",
            Error::Proxy { .. } => "proxy",
            Error::Timeout { .. } => "timeout",
            Error::Failed { .. } => "failed",
            Error::TooLarge { .. } => "too_large",
            Error::Redirect(_) => "redirect",
            Error::Mismatch(_) => "mismatch",
            Error::OutcomeUnknown(_) => "unknown",
            Error::Closed => "closed",
        };
        counter!("linerate_client_errors_total", "server" => self.server.clone(), "kind" => kind)
            .increment(1);
    }

    /// `pipes`: requests and responses so far, and requests in flight, by place.
    pub(super) fn tell(&mut self, statistics: &Statistics, pipes: impl Iterator<Item = (u64, u64, u32)>) {
        self.counters.iter_mut().zip(counts(statistics)).for_each(|(told, count)| told.tell(count));
        self.waiting.set(statistics.waiting as f64);
        let established = statistics.pipes.iter().filter(|pipe| pipe.established).count();
        self.connections.set(established as f64);
        for (place, (requests, responses, in_flight)) in pipes.enumerate() {
            if self.pipes.len() <= place {
                let of = |name: &'static str| counter!(name, "server" => self.server.clone(), "pipe" => place.to_string());
                let labels = [("server", self.server.clone()), ("pipe", place.to_string())];
                self.pipes.push(PipeMeter {
                    requests: MeteredCount::new(of("linerate_client_pipe_requests_total")),
                    responses: MeteredCount::new(of("linerate_client_pipe_responses_total")),
                    in_flight: gauge!("linerate_client_pipe_in_flight", &labels),
                });
            }
            let pipe = &mut self.pipes[place];
            pipe.requests.tell(requests);
            pipe.responses.tell(responses);
            pipe.in_flight.set(f64::from(in_flight));
        }
    }
}

/// The connections of a client that has ended are closed, and nothing waits.
impl Drop for Meter {
    fn drop(&mut self) {
        self.waiting.set(0.0);
        self.connections.set(0.0);
        self.pipes.iter().for_each(|pipe| pipe.in_flight.set(0.0));
    }
}
