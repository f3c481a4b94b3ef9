//! Calls that are cut in the middle of their responses, for how much of these comes in a time.

use std::time::Duration;

use linerate_http::client::TemplateError;
use linerate_net::instrument::Levers;

use super::{Hands, exchange};
use crate::call::Call;
use crate::probe::{CallProbe, Experiment, Lane};

impl Hands<'_> {
    /// All at once, each on a connection of its own, for so long.
    pub(super) fn rate(&self, n: u8, cut: Duration) -> Result<Vec<Call>, TemplateError> {
        let plain = CallProbe::plain(Experiment::Rate, 0, Lane::Fresh);
        let plan = self.plan(&CallProbe { writes: self.writes, patience: cut, ..plain })?;
        let to = self.address(self.chosen);
        Ok(std::thread::scope(|scope| {
            let one = || {
                let starved = exchange::waited_here();
                let (mut call, _) = exchange::anew(to, &Levers::default(), self.speak(), &plan, self.end);
                call.starved = exchange::waited_here().saturating_sub(starved);
                call
            };
            let all: Vec<_> = (0..n).map(|_| scope.spawn(one)).collect();
            all.into_iter()
                .map(|call| call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        }))
    }
}
