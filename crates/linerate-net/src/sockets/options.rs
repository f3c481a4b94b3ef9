//! Options of sockets (socket(7), tcp(7)).

use std::time::Duration;

/// Options that change what a socket does here. Connections inherit those of their listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_SNDBUF, bytes: how many may wait for the wire or an acknowledgement. `None`: what the
    /// windows are worth.
    pub sndbuf: Option<u32>,
    /// SO_RCVLOWAT, bytes: with fewer a socket is not ready for reading, unless the peer has ended.
    pub rcvlowat: u32,
    /// SO_LINGER with a time of zero: `close` resets the connection.
    pub resets_at_close: bool,
    /// SO_RCVTIMEO: for how long a [`WaitingCall`](super::WaitingCall) waits for bytes; `None`: for any
    /// time.
    pub receive_timeout: Option<Duration>,
    /// SO_SNDTIMEO: for how long one waits for room to send.
    pub send_timeout: Option<Duration>,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions {
            sndbuf: None,
            rcvlowat: 1,
            resets_at_close: false,
            receive_timeout: None,
            send_timeout: None,
        }
    }
}
