//! Calls at times that were drawn beforehand, each on a connection that no other of them uses.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use linerate_http::client::TemplateError;
use linerate_net::instrument;

use super::{Hands, KeptConnection};
use crate::call::Call;
use crate::probe::{CallProbe, Experiment, Lane};

impl Hands<'_> {
    /// A call at each of these times: on the connection that is free, or on a new one where a call is
    /// still under way. Those that would begin too late are left out.
    pub(super) fn scattered(&mut self, times: &[Duration]) -> Result<Vec<Call>, TemplateError> {
        let probe =
            CallProbe { writes: self.writes, ..CallProbe::plain(Experiment::Scattered, 0, Lane::Fresh) };
        let free = Mutex::new(self.lanes.remove(&0).map(|kept| kept.wire).into_iter().collect::<Vec<_>>());
        let start = instrument::now();
        let (hands, probe, pool) = (&*self, &probe, &free);
        let calls = std::thread::scope(|scope| {
            let mut calls = Vec::with_capacity(times.len());
            for time in times {
                let at = start + *time;
                std::thread::sleep(at - instrument::now());
                if at >= hands.end {
                    break;
                }
                let kept = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
                calls.push(scope.spawn(move || {
                    let (call, wire) = hands.call_on(kept, probe)?;
                    pool.lock().unwrap_or_else(PoisonError::into_inner).extend(wire);
                    Ok(call)
                }));
            }
            calls
                .into_iter()
                .map(|call| call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        // The next call as an ordinary client makes it goes on from there.
        if let Some(wire) = free.into_inner().unwrap_or_else(PoisonError::into_inner).pop() {
            self.lanes.insert(0, KeptConnection { wire });
        }
        calls
    }
}
