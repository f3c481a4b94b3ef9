//! A diagnosis as people and machines read it.

mod json;
mod sequence;
mod text;

pub use json::{document, to_json};
pub use text::to_string;
