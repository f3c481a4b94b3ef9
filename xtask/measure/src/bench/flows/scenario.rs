//! What `bench flows` measures, and what is wanted.

use crate::bench::scenario::{Figure, Want};

/// One row.
#[derive(Debug)]
pub(super) struct JourneyScenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) task: JourneyTask,
    pub(super) wants: &'static [Want],
}

/// What the users do.
#[derive(Clone, Copy, Debug)]
pub(super) enum JourneyTask {
    /// The five steps of bench/journey/journey.toml, again and again, by so many users.
    Steps { users: u32 },
    /// Two steps of bench/journey/memory.toml, and then nothing: by few users and by many.
    Thinking { few: u32, many: u32 },
}

/// A flow of a plan file.
pub(super) const DATA: &str = "flow as data";
/// A k6 script by `linerate k6 run`. Each of its users has a JavaScript runtime of its own.
pub(super) const SCRIPT: &str = "k6 script";
pub(super) const K6: &str = "k6";
pub(super) const LOCUST: &str = "Locust";
/// Never measured: it has no program to install, but is a library of a Maven project.
const GATLING: &str = "Gatling";

const fn want(figure: Figure, ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure, ours, against, limit, binds: true }
}

/// All of them, in the table's order.
pub(super) const SCENARIOS: &[JourneyScenario] = &[
    JourneyScenario {
        name: "journey64",
        what: "5 steps with a token, 64 users, no think time",
        task: JourneyTask::Steps { users: 64 },
        wants: &[
            want(Figure::PerCore, DATA, K6, 10.0),
            want(Figure::PerCore, DATA, GATLING, 3.0),
            want(Figure::PerCore, DATA, LOCUST, 20.0),
            want(Figure::PerCore, SCRIPT, K6, 4.0),
        ],
    },
    JourneyScenario {
        name: "journey1000",
        what: "5 steps with a token, 1,000 users, no think time",
        task: JourneyTask::Steps { users: 1_000 },
        wants: &[
            want(Figure::PerCore, DATA, K6, 15.0),
            want(Figure::PerCore, DATA, GATLING, 3.0),
            want(Figure::PerCore, DATA, LOCUST, 20.0),
            want(Figure::PerCore, SCRIPT, K6, 4.0),
        ],
    },
    JourneyScenario {
        name: "memory",
        what: "thinking users, each with two cookies and three taken values",
        task: JourneyTask::Thinking { few: 500, many: 2_500 },
        wants: &[want(Figure::Memory, DATA, K6, 0.05), want(Figure::Memory, SCRIPT, K6, 0.8)],
    },
];
