//! A diagnosis for people and machines: as text ([`to_string`], [`to_screen`]), as a page ([`page`]), as a
//! document ([`to_json`]).

pub mod baseline;
mod chart;
mod json;
pub mod page;
mod picture;
mod process;
#[cfg(test)]
mod tests;
mod text;
pub mod why;
mod words;

pub use baseline::{Baseline, Since};
pub use json::{document, to_json};
pub use text::{to_screen, to_string};
