//! What a service manager is told (sd_notify(3)), as far as it asked for it.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use linerate_net::machine;

/// How long the service manager may take to hear it. Reason: one that stands still must not hold the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// A state that a service manager waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It has started, or has read its configuration again.
    Ready,
    /// It reads its configuration again.
    Reloading,
    /// It ends.
    Stopping,
}

impl ServiceState {
    /// Tells the service manager that `NOTIFY_SOCKET` names; whether there is one (systemd: `Type=notify` or `notify-reload`).
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn notify(self) -> io::Result<bool> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(false);
        };
        let to = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.send_to_addr(self.message().as_bytes(), &to)?;
        Ok(true)
    }

    fn message(self) -> String {
        match self {
            ServiceState::Ready => "READY=1\n".to_owned(),
            ServiceState::Stopping => "STOPPING=1\n".to_owned(),
            // The time tells a reload that was asked for from the one before.
            ServiceState::Reloading => {
                let micros = machine::monotonic_now().as_nanos() / 1000;
                format!("RELOADING=1\nMONOTONIC_USEC={micros}\n")
            }
        }
    }
}
