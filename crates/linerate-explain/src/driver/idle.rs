//! How long the server behind the proxy keeps an idle connection, and what becomes of others that are idle.

use std::time::Duration;

use linerate_http::client::TemplateError;
use linerate_net::instrument;

use super::Hands;
use crate::limits::IDLE_PATIENCE;
use crate::probe::{CallProbe, Experiment, IdleSpan, IdleTrial, Lane, OriginIdleLimit, Variation};

/// How often it is looked whether the connection is still there. Reason: calls that come a few milliseconds
/// before its end are made later.
const EVERY: Duration = Duration::from_millis(1);

impl Hands<'_> {
    /// Connections side by side, each idle in its own way.
    pub(super) fn idle_spans(&self, spans: &[IdleSpan]) -> Result<Vec<IdleTrial>, TemplateError> {
        let lanes = spans.iter().map(|span| {
            let plain = CallProbe::plain(Experiment::IdleSpans, 0, Lane::Kept(0));
            let first = CallProbe { writes: self.writes, patience: IDLE_PATIENCE, ..plain };
            let later = CallProbe { pause: span.pause, ..first.clone() };
            let mut calls = vec![first];
            calls.extend(std::iter::repeat_n(later, usize::from(span.times)));
            calls
        });
        let calls = self.side_by_side(&lanes.collect::<Vec<_>>())?;
        Ok(spans.iter().zip(calls).map(|(span, calls)| IdleTrial { span: *span, calls }).collect())
    }

    /// A call there, then nothing until the server closes, for so long at most.
    pub(super) fn idle_limit(&self, time: Duration) -> Result<OriginIdleLimit, TemplateError> {
        let probe = CallProbe {
            variation: Variation::Origin,
            ..CallProbe::plain(Experiment::IdleOrder, 0, Lane::Fresh)
        };
        let (call, wire) = self.call_on(None, &probe)?;
        let start = instrument::now();
        let until = self.end.min(start + time);
        let mut closed = None;
        if let Some(wire) = wire {
            while closed.is_none() && instrument::now() < until {
                std::thread::sleep(EVERY);
                closed = wire.look().facts().peer_closed().then(|| instrument::now() - start);
            }
        }
        Ok(OriginIdleLimit { call, closed, watched: instrument::now() - start })
    }
}
