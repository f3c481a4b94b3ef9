//! The `linerate` command. What it does is in `linerate-commands`, which is compiled for size. The level of this crate
//! is that of the last step, over all crates.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate_commands::run()
}
