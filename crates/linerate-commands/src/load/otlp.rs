//! `--otlp URL`: the run's figures for an OpenTelemetry collector, over OTLP/HTTP with protobuf.
//!
//! One thread takes a snapshot each second, as a scrape of `--metrics` does. Another one sends. The
//! queue between them is short, so a slow collector costs old points and never the run its time.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_load::outcome::Failure;
use linerate_load::{Outcome, Plan, Snapshot, Watcher};
use linerate_tls::{ClientOptions, Roots};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::beside::{Look, Looking, SECOND};
use super::capture::Counted;
use super::exchange::{PATIENCE, Peer, Secure};
use super::metrics::BUCKETS;
use super::target::Url;
use crate::args::tls::pem;
use crate::fault::{CommandFault, said};
use crate::sources::decode_percent;

/// How long the results wait for the last figures to be delivered.
const FLUSH: Duration = Duration::from_secs(3);
/// Requests that wait to be sent. Reason: each has all figures since the run began, so what is newer
/// makes up for what is dropped.
const WAITING: usize = 16;
/// Where a collector takes metrics.
const PATH: &str = "/v1/metrics";
/// Headers for the collector, as OpenTelemetry's specification names the variable.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// A PEM file of the authorities that are trusted for the collector, likewise.
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// The collector's address, and what each request to it says.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    url: Url,
    secure: Option<Secure>,
    head: String,
}

impl Collector {
    /// From `--otlp`.
    pub(super) fn parse(text: &str) -> Result<Collector, CommandFault> {
        let headers = std::env::var(HEADERS).unwrap_or_default();
        let certificate = std::env::var_os(CERTIFICATE).filter(|path| !path.is_empty());
        Collector::with(text, &headers, certificate.as_deref().map(Path::new))
    }

    fn with(text: &str, headers: &str, certificate: Option<&Path>) -> Result<Collector, CommandFault> {
        let mut url = Url::parse_with(text, 4318)?;
        let refused = |why: &str, hint: &str| Err(CommandFault::input(why.to_owned()).hint(hint.to_owned()));
        if url.user.is_some() {
            return refused(
                "--otlp: the URL must not contain credentials",
                "put headers in OTEL_EXPORTER_OTLP_HEADERS",
            );
        }
        if !url.path.ends_with(PATH) {
            url.path = format!("{}{PATH}", url.path.trim_end_matches('/'));
        }
        let mut head = format!(
            "POST {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: linerate\r\nContent-Type: application/x-protobuf\r\n\
             Connection: close\r\n",
            url.path, url.authority
        );
        for pair in headers.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let decoded =
                pair.split_once('=').map(|(name, value)| (name.trim(), decode_percent(value.trim())));
            let is_token = |name: &str| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            };
            let header = decoded.and_then(|(name, value)| {
                let value =
                    String::from_utf8(value).ok().filter(|v| !v.contains(|c: char| c.is_control()))?;
                is_token(name).then(|| format!("{name}: {value}\r\n"))
            });
            let Some(header) = header else {
                // Its text may be a secret.
                return refused(
                    &format!("{HEADERS} has a part that is no header"),
                    "write NAME=VALUE,NAME=VALUE, with values percent-encoded",
                );
            };
            head += &header;
        }
        let secure = url.is_https().then(|| Secure::towards("--otlp", &url, &trusting(certificate)?));
        Ok(Collector { url, secure: secure.transpose()?, head })
    }

    /// Sends a request until `until`. What the collector rejects, in data points.
    fn send(&self, body: &[u8], peer: &mut Peer, until: Instant) -> io::Result<u64> {
        let head = format!("{}Content-Length: {}\r\n\r\n", self.head, body.len());
        let response = peer.exchange(&[head.as_bytes(), body], until)?;
        // A response that cannot be read is still a 200.
        let told = ExportMetricsServiceResponse::decode(&*response).ok().and_then(|r| r.partial_success);
        Ok(told.map_or(0, |partial| partial.rejected_data_points.max(0).cast_unsigned()))
    }

    /// Exports a run until [`Exporting::finish`].
    pub(super) fn export(
        self,
        plan: &Plan,
        from: SystemTime,
        run: (Watcher, Option<Counted>),
    ) -> Result<Exporting, CommandFault> {
        let name = self.url.shown();
        let queue = Arc::new(Queue::default());
        let sender = {
            let queue = Arc::clone(&queue);
            let send = move || {
                let mut peer = Peer::new(&self.url, self.secure.clone());
                while let Some((batch, until)) = queue.next() {
                    queue.done(batch.points, self.send(&batch.body, &mut peer, until));
                }
            };
            thread::Builder::new()
                .name("otlp".to_owned())
                .spawn(send)
                .map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))?
        };
        let now = Instant::now();
        let target = plan.target.addresses.first().copied();
        let looks = Looks { queue: Arc::clone(&queue), run, target, from, next: now };
        Ok(Exporting { looking: Looking::start("otlp looks", from, looks)?, queue, sender, name })
    }
}

/// TLS towards a collector: the machine's own authorities are trusted, or those of a file.
fn trusting(certificate: Option<&Path>) -> Result<ClientOptions, CommandFault> {
    let mut options = ClientOptions::default();
    options.alpn = vec![b"http/1.1".to_vec()];
    if let Some(path) = certificate {
        let file = pem(CERTIFICATE, path)?;
        options.roots = Roots::Pem(file.path, file.text.into_bytes());
    }
    Ok(options)
}

/// Figures of one moment, ready to be sent.
#[derive(Debug)]
struct OtlpBatch {
    points: u64,
    body: Vec<u8>,
}

/// Batches that wait, and what became of the others.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<OtlpBatch>,
    /// Nothing more is added, and this is when sending ends.
    until: Option<Instant>,
    /// Points that were made, delivered, and rejected by the collector.
    points: u64,
    delivered: u64,
    why: String,
}

impl Queue {
    fn add(&self, batch: OtlpBatch) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.points += batch.points;
        state.batches.push_back(batch);
        if state.batches.len() > WAITING {
            state.batches.pop_front();
            "the collector is slower than the run".clone_into(&mut state.why);
        }
        self.changed.notify_one();
    }

    /// The next batch, and until when it may be sent. `None`: there will be no more.
    fn next(&self) -> Option<(OtlpBatch, Instant)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            if state.until.is_some_and(|until| now >= until) {
                return None;
            }
            // At the end the last figures matter most; they include all earlier ones.
            let batch =
                if state.until.is_some() { state.batches.pop_back() } else { state.batches.pop_front() };
            if let Some(batch) = batch {
                let until = now + PATIENCE;
                return Some((batch, state.until.map_or(until, |end| end.min(until))));
            }
            if state.until.is_some() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, points: u64, sent: io::Result<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match sent {
            Ok(rejected) => {
                state.delivered += points.saturating_sub(rejected);
                if rejected > 0 {
                    "the collector rejected them".clone_into(&mut state.why);
                }
            }
            Err(e) => state.why = said(&e),
        }
    }

    fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.until = Some(Instant::now() + FLUSH);
        self.changed.notify_one();
    }
}

/// Takes the figures of a run each second.
struct Looks {
    queue: Arc<Queue>,
    run: (Watcher, Option<Counted>),
    target: Option<SocketAddr>,
    from: SystemTime,
    next: Instant,
}

impl Look for Looks {
    fn begin(&mut self) -> Instant {
        self.next = Instant::now() + SECOND;
        self.next
    }

    fn look(&mut self, is_last: bool) -> Instant {
        self.next = (self.next + SECOND).max(Instant::now());
        // The last figures are those of the whole outcome.
        if is_last {
            return self.next;
        }
        let mut snapshot = self.run.0.snapshot();
        if let Some(counted) = &self.run.1 {
            counted.show_in(&mut snapshot);
        }
        self.queue.add(batch(&snapshot, self.target, (self.from, SystemTime::now())));
        self.next
    }
}

/// A run that is being exported.
pub(super) struct Exporting {
    looking: Looking<Looks>,
    queue: Arc<Queue>,
    sender: JoinHandle<()>,
    name: String,
}

impl Exporting {
    /// Delivers the last figures, and says what could not be delivered.
    pub(super) fn finish(self, outcome: &mut Outcome) {
        if let Some(looks) = self.looking.finish() {
            let snapshot = at_the_end(looks.run.0.snapshot(), outcome);
            self.queue.add(batch(&snapshot, looks.target, (looks.from, SystemTime::now())));
        }
        self.queue.end();
        let _ = self.sender.join();
        let state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.delivered < state.points {
            let lost = state.points - state.delivered;
            let (points, name) = (state.points, &self.name);
            let why = if state.why.is_empty() { "the run ended first" } else { &state.why };
            outcome
                .warnings
                .push(format!("--otlp {name}: {lost} of {points} data points were not delivered: {why}"));
        }
    }
}

/// The last figures. Threads publish theirs now and then, so a snapshot may lack the very last ones.
fn at_the_end(snapshot: Snapshot, outcome: &Outcome) -> Snapshot {
    Snapshot {
        requests: outcome.requests,
        failures: outcome.failures.clone(),
        status: outcome.status.clone(),
        bytes: outcome.bytes,
        connections: outcome.connections,
        latency: outcome.latency.from_due.as_ref().unwrap_or(&outcome.latency.from_sent).clone(),
        in_flight: 0,
        open: 0,
        ..snapshot
    }
}

/// Metrics of one moment.
struct Moment {
    from_ns: u64,
    now_ns: u64,
    metrics: Vec<Metric>,
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Attribute::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

impl Moment {
    fn point(&self, attributes: Vec<KeyValue>, n: u64) -> NumberDataPoint {
        NumberDataPoint {
            attributes,
            start_time_unix_nano: self.from_ns,
            time_unix_nano: self.now_ns,
            value: Some(Value::AsInt(i64::try_from(n).unwrap_or(i64::MAX))),
            ..NumberDataPoint::default()
        }
    }

    fn add(&mut self, (name, unit, about): (&str, &str, &str), data: Data) {
        self.metrics.push(Metric {
            name: format!("linerate.load.{name}"),
            description: about.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        });
    }

    /// A counter since the run began.
    fn sum(&mut self, what: (&str, &str, &str), data_points: Vec<NumberDataPoint>) {
        let aggregation_temporality = AggregationTemporality::Cumulative as i32;
        self.add(what, Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true }));
    }

    fn gauge(&mut self, what: (&str, &str, &str), n: u64) {
        let data_points = vec![NumberDataPoint { start_time_unix_nano: 0, ..self.point(Vec::new(), n) }];
        self.add(what, Data::Gauge(Gauge { data_points }));
    }
}

/// The figures of a moment as a request to the collector.
fn batch(
    snapshot: &Snapshot,
    target: Option<SocketAddr>,
    (from, now): (SystemTime, SystemTime),
) -> OtlpBatch {
    let nanoseconds = |t: SystemTime| {
        t.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    };
    let mut moment = Moment { from_ns: nanoseconds(from), now_ns: nanoseconds(now), metrics: Vec::new() };
    let m = &mut moment;
    let (r, c) = (&snapshot.requests, &snapshot.connections);
    for (name, unit, about, n) in [
        ("requests.sent", "{request}", "Requests that left, or failed to.", r.sent),
        ("requests.resent", "{request}", "Times that a request went out again.", r.resent),
        ("requests.unknown", "{request}", "Requests that left and whose end nobody can know.", r.unknown),
        ("requests.unsent", "{request}", "Requests that were due in an open loop and never left.", r.unsent),
        ("sent", "By", "Bytes of requests.", snapshot.bytes.sent),
        ("received", "By", "Bytes of responses.", snapshot.bytes.received),
        ("connections.opened", "{connection}", "Connections opened.", c.opened),
        ("connections.failed", "{connection}", "Connections that could not be opened.", c.failed),
        (
            "connections.closed_by_peer",
            "{connection}",
            "Connections that the server ended.",
            c.closed_by_peer,
        ),
        (
            "tcp.retransmits",
            "{segment}",
            "Segments sent again, on the connections looked at.",
            snapshot.tcp.retransmits,
        ),
    ] {
        let point = m.point(Vec::new(), n);
        m.sum((name, unit, about), vec![point]);
    }
    let by_status =
        |(status, n): (&u16, &u64)| m.point(vec![text("http.response.status_code", &status.to_string())], *n);
    let points = snapshot.status.iter().map(by_status).collect();
    m.sum(("responses", "{response}", "Responses by status."), points);
    let by_reason = |why: Failure| m.point(vec![text("reason", why.name())], snapshot.failures.count(why));
    let points = Failure::ALL.into_iter().map(by_reason).collect();
    m.sum(("failures", "{request}", "Requests that failed, by reason."), points);
    m.gauge(("requests.in_flight", "{request}", "Requests in flight now."), snapshot.in_flight);
    m.gauge(("connections.open", "{connection}", "Connections open now."), snapshot.open);
    latency(m, snapshot);
    let points = moment.metrics.iter().map(points_of).sum();
    let mut attributes =
        vec![text("service.name", "linerate"), text("service.version", env!("CARGO_PKG_VERSION"))];
    if let Some(target) = target {
        attributes.push(text("server.address", &target.ip().to_string()));
        attributes.push(text("server.port", &target.port().to_string()));
    }
    let scope = InstrumentationScope { name: "linerate".to_owned(), ..InstrumentationScope::default() };
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope), metrics: moment.metrics, ..ScopeMetrics::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let all = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
    OtlpBatch { points, body: ExportMetricsServiceRequest { resource_metrics: vec![all] }.encode_to_vec() }
}

fn points_of(metric: &Metric) -> u64 {
    match &metric.data {
        Some(Data::Sum(sum)) => sum.data_points.len() as u64,
        _ => 1,
    }
}

fn latency(m: &mut Moment, snapshot: &Snapshot) {
    let latency = &snapshot.latency;
    let mut bucket_counts = vec![0; BUCKETS.len() + 1];
    for (ns, n) in latency.iter_recorded() {
        bucket_counts[BUCKETS.partition_point(|end| *end < ns)] += n;
    }
    // Requests without a good response are in the last bucket: a quantile of them is beyond every limit.
    let all = snapshot.ranked();
    if let Some(last) = bucket_counts.last_mut() {
        *last += all.waited.count();
    }
    let sum = all.good.mean_ns() * all.good.count() as f64 + all.waited.mean_ns() * all.waited.count() as f64;
    let point = HistogramDataPoint {
        start_time_unix_nano: m.from_ns,
        time_unix_nano: m.now_ns,
        count: bucket_counts.iter().sum(),
        sum: Some(sum / 1e9),
        bucket_counts,
        explicit_bounds: BUCKETS.iter().map(|ns| *ns as f64 / 1e9).collect(),
        ..HistogramDataPoint::default()
    };
    let data = Histogram {
        data_points: vec![point],
        aggregation_temporality: AggregationTemporality::Cumulative as i32,
    };
    m.add(
        ("latency", "s", "Latency: from due in an open loop, from sent in a closed one."),
        Data::Histogram(data),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_and_headers_are_as_the_specification_has_them() {
        let shown = |text| Collector::with(text, "", None).map(|c| c.url.shown());
        assert_eq!(shown("http://h").unwrap(), "http://h:4318/v1/metrics");
        assert_eq!(shown("h:9/base/").unwrap(), "http://h:9/base/v1/metrics");
        assert_eq!(shown("http://h:80/v1/metrics").unwrap(), "http://h/v1/metrics");
        assert_eq!(
            shown("http://h").map(|_| Collector::with("http://h", "", None).unwrap().url.port()).unwrap(),
            4318
        );
        assert_eq!(shown("https://h").unwrap(), "https://h/v1/metrics");
        assert!(shown("http://a:b@h").is_err());
        let head = Collector::with("http://h", "api-key=a%20b, x=1", None).unwrap().head;
        assert!(head.contains("\r\napi-key: a b\r\nx: 1\r\n"), "{head}");
        for headers in ["a", "a b=1", "a=%0d%0ab: c", "=1"] {
            let fault = Collector::with("http://h", headers, None).unwrap_err().to_string();
            assert!(fault.contains(HEADERS), "{headers}: {fault}");
        }
    }

    #[test]
    fn counts_of_a_batch_are_exact() {
        let mut snapshot = Snapshot { status: [(200, 7), (503, 1)].into(), ..Snapshot::default() };
        snapshot.requests.sent = 9;
        snapshot.latency.record(1_500_000, 8);
        snapshot.latency.record(20_000_000_000, 1);
        snapshot.waited.record(100, 2);
        let batch = batch(&snapshot, None, (UNIX_EPOCH, UNIX_EPOCH + SECOND));
        let read = ExportMetricsServiceRequest::decode(&*batch.body).unwrap();
        let metrics = &read.resource_metrics[0].scope_metrics[0].metrics;
        let data = |name: &str| metrics.iter().find(|m| m.name == name).and_then(|m| m.data.clone()).unwrap();
        let Data::Sum(sent) = data("linerate.load.requests.sent") else { panic!() };
        assert!(sent.is_monotonic && sent.data_points[0].value == Some(Value::AsInt(9)));
        assert_eq!(sent.data_points[0].time_unix_nano, 1_000_000_000);
        let Data::Sum(responses) = data("linerate.load.responses") else { panic!() };
        assert_eq!(responses.data_points[1].value, Some(Value::AsInt(1)));
        let Data::Histogram(latency) = data("linerate.load.latency") else { panic!() };
        let point = &latency.data_points[0];
        assert_eq!((point.count, point.bucket_counts[5], point.bucket_counts[17]), (11, 8, 3));
        assert_eq!(point.explicit_bounds.len() + 1, point.bucket_counts.len());
        assert_eq!(batch.points, metrics.iter().map(points_of).sum::<u64>());
    }

    #[test]
    fn a_full_queue_loses_the_oldest_and_the_last_goes_first() {
        let queue = Queue::default();
        for i in 0..=WAITING {
            queue.add(OtlpBatch { points: 10, body: vec![i as u8] });
        }
        assert_eq!(queue.next().unwrap().0.body, [1]);
        queue.done(10, Ok(3));
        queue.end();
        assert_eq!(queue.next().unwrap().0.body, [WAITING as u8]);
        queue.done(10, Err(io::Error::other("no")));
        let state = queue.state.lock().unwrap();
        assert_eq!((state.points, state.delivered, &*state.why), (170, 7, "no"));
    }
}
