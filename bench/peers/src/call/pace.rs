//! An open loop: latency counts from when a call is due. No client has more in flight than IN_FLIGHT, so that none opens a
//! connection for each of a thousand calls after a pause.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::sync::Semaphore;

/// Calls that are due together. Reason: to wake for each would cost more than the calls.
const TICK: Duration = Duration::from_millis(1);

/// Begins `rate` calls a second, of which at most `in_flight` are under way; how many were answered, and the latency that
/// 99 % did not exceed. A thread of its own says when: tokio's clock knows whole milliseconds only.
pub(super) async fn run<F, C>(seconds: f64, rate: u64, in_flight: u32, mut call: C) -> Result<(u64, Duration)>
where
    C: FnMut(Option<u64>) -> F,
    F: Future<Output = Result<usize>> + Send + 'static,
{
    let (ticks, mut due) = tokio::sync::mpsc::unbounded_channel();
    let begin = Instant::now();
    std::thread::spawn(move || {
        let (mut at, mut begun) = (begin, 0);
        while at.duration_since(begin).as_secs_f64() < seconds {
            at += TICK;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let wanted = (at.duration_since(begin).as_secs_f64() * rate as f64) as u64;
            // No server listens: the run has failed.
            if ticks.send((at, wanted - begun)).is_err() {
                return;
            }
            begun = wanted;
        }
    });
    let latencies = Arc::new(Mutex::new(Vec::new()));
    let places = Arc::new(Semaphore::new(in_flight as usize));
    let mut calls = tokio::task::JoinSet::new();
    while let Some((at, count)) = due.recv().await {
        for _ in 0..count {
            let (call, latencies, places) = (call(None), latencies.clone(), places.clone());
            calls.spawn(async move {
                let _place = places.acquire_owned().await?;
                ensure!(call.await? > 0, "an empty response");
                latencies.lock().unwrap_or_else(PoisonError::into_inner).push(at.elapsed());
                Ok(())
            });
        }
        while let Some(ended) = calls.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).context("no call was due")?;
    Ok((latencies.len() as u64, *p99))
}
