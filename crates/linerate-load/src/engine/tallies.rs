//! The shares of request names in what one core measures.

use super::kinds::Kinds;
use crate::histogram::Histogram;
use crate::limits::STEPS_OVER_TIME;
use crate::outcome::{Bad, CourseInterval, NamedFigures, Requests, StepCourse};

/// Shares of the request names, when the plan has several. Kinds of the same name share one: a
/// replayed log has thousands.
#[derive(Debug, Default)]
pub(super) struct NameTallies {
    pub(super) names: Vec<String>,
    of_kind: Vec<usize>,
    pub(super) tallies: Vec<NameTally>,
}

impl NameTallies {
    pub(super) fn new(kinds: &Kinds) -> NameTallies {
        let (names, of_kind) = kinds.names();
        if names.len() < 2 {
            return NameTallies::default();
        }
        let steps = if kinds.journeys().is_some() { STEPS_OVER_TIME } else { 0 };
        let tally =
            |place| NameTally { course: (place < steps).then(StepCourse::default), ..NameTally::default() };
        NameTallies { tallies: (0..names.len()).map(tally).collect(), names, of_kind }
    }

    pub(super) fn get_mut(&mut self, kind: u16) -> Option<&mut NameTally> {
        self.tallies.get_mut(*self.of_kind.get(kind as usize)?)
    }
}

/// One request name's share.
#[derive(Clone, Debug, Default)]
pub(super) struct NameTally {
    /// Responses since measuring began, and those of them until the end of sending.
    pub(super) arrived: u64,
    pub(super) in_window: u64,
    pub(super) requests: Requests,
    pub(super) bad: Bad,
    pub(super) latency: Histogram,
    pub(super) waited: Histogram,
    /// How it goes over time, if it is a step of a flow.
    course: Option<StepCourse>,
}

impl NameTally {
    /// Changes its interval of this time since measuring began, nanoseconds.
    pub(super) fn over_time(&mut self, since: u64, change: impl FnOnce(&mut CourseInterval)) {
        if let Some(course) = &mut self.course {
            change(course.at(since / 1_000_000_000));
        }
    }

    /// Its figures while the run lasts.
    pub(super) fn so_far(&self) -> NamedFigures {
        NameTally { course: None, ..self.clone() }.figures()
    }

    pub(super) fn figures(self) -> NamedFigures {
        let NameTally { requests, bad, latency, waited, in_window, course, .. } = self;
        NamedFigures { requests, bad, latency, waited, in_window, course: course.unwrap_or_default() }
    }
}
