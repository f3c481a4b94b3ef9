//! The engines of a plan's hosts in one thread, on parts of one transport. What one of them does for a user may make a
//! request due at another, in the same turn.

use std::io;
use std::time::Duration;

use linerate_client::Conversation;
use linerate_net::{Time, Transport};

use super::Engine;
use super::responses::ResponseReading;
use crate::limits::LONGEST_WAIT;
use crate::outcome::{Outcome, Spans};

/// Runs the engines of all hosts to the end, that of the plan's target first. The first transport's turns wait for all,
/// and all connections are closed when the last engine ends.
/// Returns what each of them measured.
pub(crate) fn run_together<T, C>(mut engines: Vec<Engine<T, C>>) -> Vec<Outcome>
where
    T: Transport,
    C: Conversation<Reading = ResponseReading>,
{
    let broken = turn_together(&mut engines).err();
    let mut outcomes = Vec::with_capacity(engines.len());
    let now = engines.first_mut().map_or(Time::ZERO, |engine| engine.transport.now());
    for engine in engines {
        let authority = engine.orders.authority.clone();
        let mut outcome = engine.end(now, broken.is_some());
        if let (Some(why), Some(host)) = (&mut outcome.unreachable, authority) {
            *why = format!("{host}: {}", why.trim_end_matches(&format!(", at {host}")));
        }
        if let Some(error) = &broken {
            outcome.warnings.push(format!("the run ended early: {error}"));
            outcome.broken = Some(error.to_string());
        }
        outcomes.push(outcome);
    }
    outcomes
}

/// What the engines of one thread measured, together.
pub(crate) fn merge_hosts(outcomes: Vec<Outcome>) -> Outcome {
    let mut all = Outcome::default();
    let mut down: Option<Spans> = None;
    for (host, mut outcome) in outcomes.into_iter().enumerate() {
        if host > 0 {
            // The first engine has told it of the thread.
            outcome.client.stood_still_in_all = Duration::ZERO;
        }
        // Of cores, one that reaches its server is enough. Each host has to be reached.
        if let Some(own) = &outcome.down {
            down = Some(down.take().unwrap_or_default().union(&own.spans));
        }
        all.unreachable = all.unreachable.or_else(|| outcome.unreachable.take());
        all.merge(&outcome);
    }
    if let (Some(all), Some(spans)) = (&mut all.down, down) {
        all.spans = spans;
    }
    all
}

fn turn_together<T, C>(engines: &mut [Engine<T, C>]) -> io::Result<()>
where
    T: Transport,
    C: Conversation<Reading = ResponseReading>,
{
    let mut events = Vec::with_capacity(1024);
    let Some(first) = engines.first_mut() else { return Ok(()) };
    let mut now = first.transport.now();
    while now < first.start {
        first.transport.turn(Some(first.start), &mut events)?;
        now = first.transport.now();
    }
    first.start_late = now - first.start;
    let users = first.kinds.journeys().cloned();
    loop {
        if let Some(users) = users.as_ref().filter(|_| engines[0].supply.stop_at() > now) {
            users.sort_out(now);
        }
        engines.iter_mut().for_each(|engine| engine.tick(now));
        if are_finished(engines, now) {
            return Ok(());
        }
        let earliest = engines.iter_mut().map(|engine| engine.deadline(now)).min().unwrap_or(now);
        let until = earliest.max(now).min(now + LONGEST_WAIT);
        for (host, engine) in engines.iter_mut().enumerate() {
            engine.transport.turn(Some(if host == 0 { until } else { Time::ZERO }), &mut events)?;
            if host == 0 {
                now = engine.transport.now();
            }
            engine.gaps.note(until, now, engine.recorder.measuring(now));
            now = engine.handle_all(&mut events, now);
        }
    }
}

/// Whether all have ended, or one of them gives its host up.
fn are_finished<T, C>(engines: &mut [Engine<T, C>], now: Time) -> bool
where
    T: Transport,
    C: Conversation<Reading = ResponseReading>,
{
    let mut all = true;
    for engine in engines {
        let has_ended = engine.finished(now);
        if has_ended && engine.stopping.is_none() {
            return true;
        }
        all &= has_ended;
    }
    all
}
