//! The Python that has `linerate`, aiohttp and httpx.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use xtask::shell;

/// The script whose first argument names a client. Clients run in a folder of their own, so its path is whole.
pub(super) fn script() -> PathBuf {
    shell::root().join("bench/peers/python/call.py")
}

/// Why the clients in Python cannot be measured, with what would help.
pub(super) fn missing() -> Option<String> {
    let interpreter = xtask::python();
    let mut probe = Command::new(&interpreter);
    probe.args(["-c", "import linerate, aiohttp, httpx"]).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return None;
    }
    Some(format!(
        "{0} lacks linerate, aiohttp or httpx\nhint: cargo xtask python --release && {0} -m pip install aiohttp httpx sniffio",
        interpreter.display()
    ))
}
