//! What a recorder of the crate `metrics` hears.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use linerate::client::{Client, Error};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use crate::server::{Does, Server, ok};

#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

/// Keeps everything by its name and labels, without that of the server.
#[derive(Default)]
struct Heard {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    values: Mutex<BTreeMap<String, Arc<Values>>>,
    servers: Mutex<Vec<String>>,
}

impl Heard {
    fn name(&self, key: &Key) -> String {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            match label.key() {
                "server" => self.servers.lock().unwrap().push(label.value().to_owned()),
                _ => name += &format!(" {}={}", label.key(), label.value()),
            }
        }
        name
    }

    fn count(&self, name: &str) -> u64 {
        let counters = self.counters.lock().unwrap();
        counters.get(name).unwrap_or_else(|| panic!("no {name}: {counters:?}")).load(Ordering::Relaxed)
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.gauges.lock().unwrap()[name].load(Ordering::Relaxed))
    }

    /// Over all connections.
    fn sum(&self, name: &str) -> u64 {
        let counters = self.counters.lock().unwrap();
        let ours = counters.iter().filter(|(n, _)| n.starts_with(name));
        ours.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }
}

impl Recorder for Heard {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let name = self.name(key);
        Counter::from_arc(self.counters.lock().unwrap().entry(name).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let name = self.name(key);
        Gauge::from_arc(self.gauges.lock().unwrap().entry(name).or_default().clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let name = self.name(key);
        Histogram::from_arc(self.values.lock().unwrap().entry(name).or_default().clone())
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

/// The recorder hears what `statistics` counts, and more.
#[test]
fn a_recorder_hears_what_is_counted() {
    let server = Server::start(|request| match (request.path(), request.nth) {
        ("/lost", _) | (_, 9) => Does::Closes(Vec::new()),
        ("/slow", _) => {
            std::thread::sleep(Duration::from_millis(50));
            ok("slow")
        }
        _ => ok("ok"),
    });
    let heard = Heard::default();
    with_local_recorder(&heard, || {
        block_on(async {
            let client = Client::builder(&server.url()).pipes(2).depth(8).build().unwrap();
            for response in join_all((0..40).map(|n| client.get(&format!("/{n}")))).await {
                response.unwrap();
            }
            client.get("/slow").await.unwrap();
            let lost = client.post("/lost", Bytes::from_static(b"x")).await.unwrap_err();
            assert!(matches!(lost, Error::OutcomeUnknown(_)), "{lost}");
            let bad = client.get("http://other/").await.unwrap_err();
            assert!(matches!(bad, Error::Request(_)), "{bad}");
            tokio::task::yield_now().await;
            let counted = client.statistics();
            assert_eq!(heard.count("linerate_client_calls_total"), counted.calls);
            assert_eq!(heard.count("linerate_client_responses_total"), 41);
            assert_eq!(heard.count("linerate_client_resent_total"), counted.resent);
            assert!(counted.resent > 0, "{counted:?}");
            assert_eq!(heard.count("linerate_client_head_of_line_total"), counted.head_of_line);
            assert_eq!(heard.count("linerate_client_connections_total"), counted.connected);
            assert_eq!(heard.count("linerate_client_connections_lost_total"), counted.lost);
            assert_eq!(heard.count("linerate_client_errors_total kind=unknown"), 1);
            assert_eq!(heard.count("linerate_client_errors_total kind=request"), 1);
            assert_eq!(heard.sum("linerate_client_pipe_responses_total"), 41);
            assert_eq!(heard.sum("linerate_client_pipe_requests_total"), 42 + counted.resent);
            let open = counted.pipes.iter().filter(|pipe| pipe.established).count();
            assert_eq!(heard.gauge("linerate_client_connections"), open as f64);
            assert_eq!(heard.gauge("linerate_client_pipe_in_flight pipe=0"), 0.0);
            // Another client of the same server adds to the same counters.
            Client::builder(&server.url()).build().unwrap().get("/again").await.unwrap();
            tokio::task::yield_now().await;
            assert_eq!(heard.count("linerate_client_responses_total"), 42);
        });
    });
    assert_eq!(heard.gauge("linerate_client_connections"), 0.0);
    assert!(heard.servers.lock().unwrap().iter().all(|name| *name == server.url()));
    let latencies = heard.values.lock().unwrap()["linerate_client_latency_seconds"].clone();
    let latencies = latencies.0.lock().unwrap();
    assert_eq!(latencies.len(), 42);
    let longest = latencies.iter().copied().fold(0.0, f64::max);
    assert!((0.05..5.0).contains(&longest), "{longest}");
}
