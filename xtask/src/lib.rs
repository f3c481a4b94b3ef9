//! What `cargo xtask` and the program that measures (`xtask-measure`) share.

pub mod jars;
pub mod nginx;
pub mod shell;
pub mod table;

use std::env::JoinPathsError;
use std::ffi::OsString;
use std::path::PathBuf;

/// The interpreter of the virtual environment into which `cargo xtask python` installs the wheel.
pub fn python() -> PathBuf {
    shell::target_dir().join("python-venv/bin/python")
}

/// `PATH` with that environment's programs first.
///
/// # Errors
/// A folder of the path has a colon in its name.
pub fn path_with_python() -> Result<OsString, JoinPathsError> {
    let own = shell::target_dir().join("python-venv/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path)))
}
