//! What `cargo xtask` and the program that measures (`xtask-measure`) share.

pub mod nginx;
pub mod shell;
pub mod table;

use std::path::PathBuf;

/// The interpreter of the virtual environment into which `cargo xtask python` installs the wheel.
pub fn python() -> PathBuf {
    shell::target_dir().join("python-venv/bin/python")
}
