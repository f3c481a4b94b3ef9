//! HTTP/2 in one direction of a captured connection: where it begins, its frames, its fields.

mod fields;
mod frames;
mod sniff;
#[cfg(test)]
mod tests;

pub(crate) use fields::{BlockFields, FieldReader};
pub(crate) use frames::{Frame, FrameReader, Spot};
pub(crate) use sniff::{Sniff, Sniffed, begins};
