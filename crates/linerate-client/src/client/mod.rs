//! HTTP calls of a program, pipelined.

mod calls;
mod error;
mod limits;
mod options;
mod statistics;

pub use calls::{CallReading, Calls, Done};
pub use error::{Error, Part, Phase, Unknown};
pub use options::CallOptions;
pub use statistics::{PipeStatistics, Statistics};
