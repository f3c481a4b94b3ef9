//! The connections of a TCP of our own, as `ss` would show them.

use std::net::SocketAddr;

use crate::TcpInfo;

/// States of RFC 9293 section 3.3.2, without those that are only counted: LISTEN, TIME-WAIT, and handshakes that peers have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// We asked for it.
    SynSent,
    /// Both ends asked for it at once.
    SynReceived,
    /// Open.
    Established,
    /// Our FIN is sent.
    FinWait1,
    /// ... and acknowledged.
    FinWait2,
    /// The peer has ended; our side has not.
    CloseWait,
    /// Both have ended at once; our FIN is not acknowledged.
    Closing,
    /// Both have ended, the peer first; our FIN is not acknowledged.
    LastAck,
    /// It failed, and the application has not closed it yet.
    Closed,
}

impl FlowState {
    /// All of them, in the order of their declaration.
    pub const ALL: [FlowState; 9] = [
        FlowState::SynSent,
        FlowState::SynReceived,
        FlowState::Established,
        FlowState::FinWait1,
        FlowState::FinWait2,
        FlowState::CloseWait,
        FlowState::Closing,
        FlowState::LastAck,
        FlowState::Closed,
    ];

    /// RFC 9293's name, as documents write it.
    pub fn name(self) -> &'static str {
        match self {
            FlowState::SynSent => "syn_sent",
            FlowState::SynReceived => "syn_received",
            FlowState::Established => "established",
            FlowState::FinWait1 => "fin_wait_1",
            FlowState::FinWait2 => "fin_wait_2",
            FlowState::CloseWait => "close_wait",
            FlowState::Closing => "closing",
            FlowState::LastAck => "last_ack",
            FlowState::Closed => "closed",
        }
    }
}

/// A connection as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// RFC 9293 section 3.3.2.
    pub state: FlowState,
    /// Bytes received in order that nobody has read.
    pub unread_bytes: usize,
    /// Bytes handed over that have not left yet.
    pub unsent_bytes: usize,
    /// Bytes sent that are not acknowledged.
    pub unacked_bytes: usize,
    /// Congestion window (RFC 5681), bytes.
    pub cwnd_bytes: u32,
    /// Slow start threshold (RFC 5681), bytes; `None`: nothing has limited it yet.
    pub ssthresh_bytes: Option<u32>,
    /// The peer's receive window, bytes.
    pub peer_window_bytes: u32,
    /// Payload of a full segment, bytes.
    pub mss_bytes: u16,
    /// Retransmission time-out (RFC 6298) as it would be set now, microseconds.
    pub rto_us: u64,
    /// Since something was sent, or last came that showed the peer alive, milliseconds.
    pub idle_ms: u64,
    /// Counters and round-trip times.
    pub tcp: TcpInfo,
}
