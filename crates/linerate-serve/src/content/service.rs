//! Notifications to a service manager (sd_notify(3)), if it asked for them.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use linerate_net::machine;

/// Timeout of the notification. Reason: a hanging service manager must not block the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// A state that a service manager waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It has started, or has reloaded its configuration.
    Ready,
    /// It is reloading its configuration.
    Reloading,
    /// It is stopping.
    Stopping,
}

impl ServiceState {
    /// Notifies the service manager that `NOTIFY_SOCKET` names; returns whether there is one
    /// (systemd: `Type=notify` or `notify-reload`).
    ///
    /// # Errors
    /// It cannot be reached.
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
            // The time distinguishes this reload from the previous one.
            ServiceState::Reloading => {
                let micros = machine::monotonic_now().as_nanos() / 1000;
                format!("RELOADING=1\nMONOTONIC_USEC={micros}\n")
            }
        }
    }
}
