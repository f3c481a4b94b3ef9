//! The versioned documents that machines read, apart from the types that measure: a field is added
//! freely, none is renamed or dropped within a version. docs/schemas/ has them as JSON Schema, made
//! from these types.

pub mod bypass;
pub mod comparison;
pub mod concurrency;
pub mod diagnosis;
pub mod fine;
pub mod flow;
pub mod lab;
pub mod line;
pub mod live;
pub mod machines;
pub mod outcome;
pub mod passive;
pub mod pipelining;
pub mod plan;
pub mod quic;
#[cfg(test)]
mod tests;
