//! When users come.

use crate::plan::flow::UserPace;
use crate::plan::schedule::Schedule;
use crate::plan::{Pace, Rate};

#[derive(Debug)]
pub(super) enum Comings {
    Always,
    Stages(Rate),
    Arriving(Schedule),
}

impl Comings {
    /// Those of core number `core` of `cores`.
    pub(super) fn of(pace: &UserPace, seed: u64, (core, cores): (u64, u64)) -> Comings {
        match pace {
            UserPace::Always => Comings::Always,
            UserPace::Stages(stages) => Comings::Stages(stages.clone()),
            UserPace::Arriving(rate, arrival) => {
                let pace = Pace::Open { rate: rate.clone(), arrival: *arrival };
                let part = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                let schedule = Schedule::new(&pace, seed, part(core), part(cores));
                schedule.map_or(Comings::Always, Comings::Arriving)
            }
        }
    }
}
