//! The connections of a user-space TCP, as `ss` would show them.

use std::net::SocketAddr;

use crate::TcpInfo;

/// States of RFC 9293 section 3.3.2. LISTEN, TIME-WAIT and handshakes begun by peers are counted
/// elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// Our SYN is sent.
    SynSent,
    /// Simultaneous open: both SYNs are sent.
    SynReceived,
    /// The handshake is complete; neither side has closed.
    Established,
    /// Our FIN is sent.
    FinWait1,
    /// Our FIN is sent and acknowledged.
    FinWait2,
    /// The peer has closed; our side has not.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// Both have closed, the peer first; our FIN is not acknowledged.
    LastAck,
    /// It failed, and the application has not closed it yet.
    Closed,
}

impl FlowState {
    /// All states, in the order of their declaration.
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

    /// The name that RFC 9293 uses.
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

/// What the handshake agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgreedOptions {
    /// RFC 7323, section 3.
    pub timestamps: bool,
    /// RFC 2018.
    pub sack: bool,
    /// RFC 3168.
    pub ecn: bool,
    /// Shift of the windows that the peer announces (RFC 7323, section 2); `None`: neither side scales.
    pub send_shift: Option<u8>,
    /// Shift of ours.
    pub receive_shift: Option<u8>,
}

/// A snapshot of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The state by RFC 9293 section 3.3.2.
    pub state: FlowState,
    /// Bytes received in order that the application has not read.
    pub unread_bytes: usize,
    /// Bytes that the application handed over and that were not sent yet.
    pub unsent_bytes: usize,
    /// Bytes sent and not acknowledged.
    pub unacked_bytes: usize,
    /// Congestion window (RFC 5681), bytes.
    pub cwnd_bytes: u32,
    /// Slow start threshold (RFC 5681), bytes; `None` before the first congestion event.
    pub ssthresh_bytes: Option<u32>,
    /// The peer's receive window, bytes.
    pub peer_window_bytes: u32,
    /// Payload of a full segment, bytes.
    pub mss_bytes: u16,
    /// What the handshake agreed on.
    pub agreed: AgreedOptions,
    /// Variation of the round-trip time (RTTVAR of RFC 6298), microseconds; 0 before the first sample.
    pub rtt_variation_us: u32,
    /// Current retransmission timeout (RFC 6298), microseconds.
    pub rto_us: u64,
    /// Time since the last send, or since the last sign that the peer is alive, milliseconds.
    pub idle_ms: u64,
    /// Counters and round-trip times.
    pub tcp: TcpInfo,
}
