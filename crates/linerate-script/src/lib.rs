//! k6 scripts, sans-IO: a user runs JavaScript up to where it wants something ([`UserAction`]), and continues with the
//! reply ([`UserReply`]). Nothing here opens a socket, waits, or reads a file by itself.
//!
//! * [`ScriptProgram`]: a script, and what its users share.
//! * [`ScriptUser`]: a user; each has a runtime and a stack of its own.
//! * [`ScriptExchange`]: a request with its redirects and cookies.
//! * [`ScriptOptions`]: `options`, as scenarios and thresholds.
//! * [`schedule`]: when iterations begin, how many users are wanted.
//! * [`RunMetrics`]: metrics, checks and thresholds.
#![forbid(unsafe_code)]

mod action;
mod duration;
mod error;
mod exchange;
mod jar;
pub mod limits;
mod metrics;
mod options;
mod program;
mod sample;
pub mod schedule;
mod summary;
mod user;

#[doc(hidden)]
pub mod doc;

pub use action::{
    CallEnd, ExchangeTimings, ExpectedStatuses, ResponseKind, ScriptCall, UserAction, UserBatch,
    UserCallPlace, UserReply, UserRequest, UserResponse,
};
pub use error::InvalidOptions;
pub use exchange::{ExchangeStep, ScriptExchange, UserJars};
pub use metrics::{
    MetricId, MetricKind, MetricPart, MetricSink, MetricThresholds, RunMetric, RunMetrics, SampleUnit,
    ScriptCheck, Threshold, built_in,
};
pub use options::{Executor, RateStage, ScriptOptions, UserScenario};
pub use program::{ScriptFiles, ScriptProgram};
pub use sample::{HttpTags, RequestTags, SampleTags, TagLookup};
pub use summary::{JudgedThreshold, judge, summary_data, summary_export, text_summary};
pub use user::{LoadError, RunFacts, ScriptExports, ScriptHost, ScriptUser};
