//! The calls below: system calls without the C library, and the C library's own functions.

mod library;
mod system;

pub(crate) use library::{real, resolve};
pub(crate) use system::*;
