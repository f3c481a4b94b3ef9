//! Metrics in the text format of Prometheus (version 0.0.4). Written without a library: it is a
//! page of code, and counters stay plain numbers of their threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::stats::counts::{Counts, ThreadCounts};
use crate::stats::meter::{BUCKETS, CLASSES, Durations};
use crate::stats::process::ProcessFigures;
use crate::stats::prometheus::{MetricsPage, escaped};
use crate::waits::Waits;

/// The metrics of a server, for Prometheus. Cheap to clone, for another thread or a handler.
///
/// Responses by route and durations need `measure` in the server's options.
#[derive(Clone, Debug)]
pub struct Metrics {
    threads: Arc<Vec<Arc<ThreadCounts>>>,
}

/// Measurements of a route, over all threads.
#[derive(Default)]
struct OfRoute {
    by_class: [u64; CLASSES],
    took: Durations,
}

impl Metrics {
    pub(crate) fn new(threads: Arc<Vec<Arc<ThreadCounts>>>) -> Metrics {
        Metrics { threads }
    }

    pub(crate) fn threads(&self) -> &[Arc<ThreadCounts>] {
        &self.threads
    }

    /// The media type of [`Metrics::to_prometheus`].
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// All metrics at this moment.
    pub fn to_prometheus(&self) -> String {
        let mut counts = Counts::default();
        self.threads.iter().for_each(|thread| counts.add(thread));
        let mut page = MetricsPage::default();
        page.requests(&counts, &self.by_route());
        page.connections(&counts, &self.by_state());
        page.handlers(&counts);
        let (mut turns, mut longest) = (Durations::default(), Duration::ZERO);
        for thread in self.threads.iter() {
            turns.add(&thread.measured.turns);
            longest = longest.max(thread.measured.in_turn());
        }
        page.loops(self.threads.len(), &turns, longest, counts.blocked);
        page.tcp(&counts);
        page.tls(&counts);
        page.process(&ProcessFigures::now());
        page.into_text()
    }

    fn by_route(&self) -> BTreeMap<String, OfRoute> {
        let mut routes: BTreeMap<String, OfRoute> = BTreeMap::new();
        for (route, counts) in self.threads.iter().flat_map(|thread| thread.measured.routes()) {
            let sum = routes.entry(escaped(&route.pattern())).or_default();
            sum.by_class.iter_mut().zip(&counts.by_class).for_each(|(sum, n)| *sum += n.load(Relaxed));
            sum.took.add(&counts.took);
        }
        routes
    }

    fn by_state(&self) -> [u64; Waits::ALL.len()] {
        let mut states = [0; Waits::ALL.len()];
        for thread in self.threads.iter() {
            thread.states().iter().zip(&mut states).for_each(|(n, sum)| *sum += n);
        }
        states
    }
}

/// The families of a server.
impl MetricsPage {
    fn durations(&mut self, name: &str, labels: &str, took: &Durations) {
        let buckets = BUCKETS.iter().copied().zip(took.counts);
        self.histogram(name, labels, buckets, took.count(), took.sum_ns);
    }

    fn requests(&mut self, counts: &Counts, routes: &BTreeMap<String, OfRoute>) {
        self.counter("linerate_requests_total", "Requests whose head was read.", counts.requests);
        self.family("linerate_responses_total", "counter", "Responses by status.");
        for (status, n) in &counts.by_status {
            self.sample("linerate_responses_total", &format!("status=\"{status}\""), n);
        }
        let name = "linerate_requests_by_protocol_total";
        self.family(name, "counter", "Requests by protocol.");
        let (http2, http3) = (counts.http2.requests, counts.http3.requests);
        for (protocol, n) in [("HTTP/1.1", counts.by_http1()), ("HTTP/2.0", http2), ("HTTP/3.0", http3)] {
            self.sample(name, &format!("protocol=\"{protocol}\""), n);
        }
        let help = "Requests whose handler waits or whose response is being made.";
        self.gauge("linerate_requests_in_flight", help, counts.waiting + counts.streaming);
        self.counter("linerate_received_bytes_total", "Bytes received.", counts.bytes_in);
        self.counter("linerate_sent_bytes_total", "Bytes given to the transport to send.", counts.bytes_out);
        if routes.is_empty() {
            return;
        }
        self.family("linerate_http_requests_total", "counter", "Requests by route pattern and status class.");
        for (route, of) in routes {
            for (class, n) in of.by_class.iter().enumerate().filter(|(_, n)| **n > 0) {
                let labels = format!("route=\"{route}\",code=\"{}xx\"", class + 1);
                self.sample("linerate_http_requests_total", &labels, n);
            }
        }
        let name = "linerate_http_request_duration_seconds";
        self.family(name, "histogram", "Time from a request's head to the head of its response.");
        for (route, of) in routes {
            self.durations(name, &format!("route=\"{route}\","), &of.took);
        }
    }

    fn connections(&mut self, counts: &Counts, states: &[u64; Waits::ALL.len()]) {
        self.counter("linerate_connections_accepted_total", "Connections accepted.", counts.accepted);
        self.counter("linerate_connections_refused_total", "Connections over the limit.", counts.refused);
        self.gauge("linerate_connections_open", "Connections open now.", counts.open);
        for (version, of) in [(2, counts.http2), (3, counts.http3)] {
            let name = |what: &str| format!("linerate_http{version}_{what}_total");
            let help = format!("Connections of HTTP/{version}.");
            self.counter(&name("connections"), &help, of.connections);
            let help = format!("HTTP/{version} connections ended because the client exceeded a limit.");
            self.counter(&name("floods"), &help, of.floods);
            let help = format!("HTTP/{version} requests that broke a rule, or whose heads were too large.");
            self.counter(&name("malformed"), &help, of.malformed);
        }
        self.family("linerate_connections", "gauge", "Connections open now by what they wait for.");
        for (state, n) in Waits::ALL.iter().zip(states) {
            self.sample("linerate_connections", &format!("state=\"{}\"", state.name()), n);
        }
    }

    fn handlers(&mut self, counts: &Counts) {
        self.gauge("linerate_handlers_waiting", "Handlers that wait now.", counts.waiting);
        self.counter("linerate_handler_panics_total", "Handlers that panicked.", counts.panics);
    }

    fn loops(&mut self, loops: usize, turns: &Durations, longest: Duration, blocked: u64) {
        self.gauge("linerate_loops", "Event loops, each on a thread of its own.", loops);
        self.counter(
            "linerate_loop_blocked_total",
            "Handlers that held their loop for 5 ms or more.",
            blocked,
        );
        // The first turn may be the one that does not end.
        if turns.count() > 0 || !longest.is_zero() {
            let name = "linerate_loop_turn_seconds";
            self.family(
                name,
                "histogram",
                "Loop lag: how long a turn of a loop held back what came meanwhile.",
            );
            self.durations(name, "", turns);
            let help = "How long the loop has been busy that has been so for longest.";
            self.gauge("linerate_loop_busy_seconds", help, longest.as_secs_f64());
        }
    }

    fn tls(&mut self, counts: &Counts) {
        let Some(tls) = &counts.tls else { return };
        let name = "linerate_tls_handshakes_total";
        self.family(
            name,
            "counter",
            "TLS handshakes that succeeded: full, or resumed from an earlier session.",
        );
        for (kind, n) in [("full", tls.full), ("resumed", tls.resumed)] {
            self.sample(name, &format!("kind=\"{kind}\""), n);
        }
        let name = "linerate_tls_handshakes_failed_total";
        self.family(name, "counter", "TLS handshakes that failed, by reason.");
        for (why, n) in &tls.failed {
            self.sample(name, &format!("reason=\"{}\"", escaped(why)), n);
        }
        let name = "linerate_tls_connections_total";
        self.family(name, "counter", "TLS connections by version and cipher suite.");
        // Any ALPN protocol.
        let mut agreed: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (both, n) in &tls.agreed {
            *agreed.entry((&both.version, &both.cipher)).or_default() += n;
        }
        for ((version, cipher), n) in agreed {
            self.sample(name, &format!("version=\"{version}\",cipher=\"{cipher}\""), n);
        }
    }

    fn tcp(&mut self, counts: &Counts) {
        let Some(tcp) = &counts.tcp else { return };
        for (name, n) in tcp.counters() {
            self.counter(&format!("linerate_tcp_{name}_total"), "Of the server's own TCP.", n);
        }
        for (name, n) in tcp.now() {
            self.gauge(&format!("linerate_tcp_{name}"), "Of the server's own TCP, now.", n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Route;
    use crate::stats::meter::Meter;
    use linerate_net::{TcpTotals, Time};
    use linerate_tls::{AgreedParameters, HandshakeCounts};
    use std::sync::Mutex;

    /// A server of two threads that has done some of everything.
    fn metrics() -> Metrics {
        let threads: Vec<Arc<ThreadCounts>> = (0..2).map(|_| Arc::default()).collect();
        let (mut meter, now) = (Meter::default(), Time::from_nanos(7_000_000_000));
        let route = Route::new("/with \"quotes\" and \\");
        for thread in &threads {
            thread.request();
            thread.answered(200);
            meter.answered(&thread.measured, route, 200, now, now);
            meter.answered(&thread.measured, route, 404, Time::ZERO, now);
            meter.end_turn(&thread.measured, now, now + Duration::from_micros(1500));
            thread.set_states([1, 2, 0, 0, 0]);
            thread.set_tcp(Some(TcpTotals::default()));
            let mut tls = HandshakeCounts { full: 3, resumed: 4, ..HandshakeCounts::default() };
            for alpn in [None, Some("http/1.1".to_owned())] {
                let agreed = AgreedParameters {
                    version: "TLSv1.3".into(),
                    cipher: "TLS13_AES_256_GCM_SHA384".into(),
                    alpn,
                };
                tls.agreed.insert(agreed, 2);
            }
            tls.failed.insert("it said \"no\"".to_owned(), 1);
            thread.set_tls(Arc::new(Mutex::new(tls)));
        }
        Metrics::new(Arc::new(threads))
    }

    #[test]
    fn all_threads_are_summed() {
        let page = metrics().to_prometheus();
        let route = "route=\"/with \\\"quotes\\\" and \\\\\"";
        for line in [
            "linerate_requests_total 2".to_owned(),
            format!("linerate_http_requests_total{{{route},code=\"2xx\"}} 2"),
            format!("linerate_http_requests_total{{{route},code=\"4xx\"}} 2"),
            format!("linerate_http_request_duration_seconds_bucket{{{route},le=\"0.001\"}} 0"),
            format!("linerate_http_request_duration_seconds_bucket{{{route},le=\"0.0025\"}} 2"),
            format!("linerate_http_request_duration_seconds_bucket{{{route},le=\"10\"}} 4"),
            format!("linerate_http_request_duration_seconds_sum{{{route}}} 14.003"),
            "linerate_loop_turn_seconds_count 2".to_owned(),
            "linerate_connections{state=\"idle\"} 2".to_owned(),
            "linerate_connections{state=\"head\"} 4".to_owned(),
            "linerate_loops 2".to_owned(),
            "linerate_tls_handshakes_total{kind=\"resumed\"} 8".to_owned(),
            "linerate_tls_handshakes_failed_total{reason=\"it said \\\"no\\\"\"} 2".to_owned(),
            "linerate_tls_connections_total{version=\"TLSv1.3\",cipher=\"TLS13_AES_256_GCM_SHA384\"} 8"
                .to_owned(),
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
    }

    #[test]
    fn each_family_has_its_help_and_type_once_and_before_its_samples() {
        let page = metrics().to_prometheus();
        let mut known: Vec<&str> = Vec::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().expect("a name");
                assert!(!known.contains(&name), "{name} twice");
                known.push(name);
            } else if !line.starts_with('#') {
                let family = known.last().expect("a family comes first");
                assert!(line.starts_with(family), "{line} under {family}");
                let value = line.rsplit(' ').next().expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}
