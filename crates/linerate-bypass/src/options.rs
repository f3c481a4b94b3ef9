//! Options of sockets (socket(7), tcp(7)): what they change here, and what is only remembered.

use std::time::Duration;

use linerate_net::sockets::SocketBytes;
use linerate_net::sockets::SocketOptions;
use linerate_net::{AgreedOptions, FlowInfo, FlowState};

use crate::kernel;
use crate::messages::tell_once;

/// An address family of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketFamily {
    V4,
    /// AF_INET6, whose IPv4 addresses are mapped.
    V6,
}

impl SocketFamily {
    /// The number of Linux.
    pub(crate) fn number(self) -> i32 {
        match self {
            SocketFamily::V4 => libc::AF_INET,
            SocketFamily::V6 => libc::AF_INET6,
        }
    }
}

/// Options with their values, as the program set them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredOptions(Vec<(i32, i32, Vec<u8>)>);

/// The longest value that is remembered. Reason: that of TCP_CONGESTION is 16 bytes.
const LONGEST: usize = 64;
const RCVTIMEO_NEW: i32 = 66;
const SNDTIMEO_NEW: i32 = 67;
const TCP_ULP: i32 = 31;

fn int(value: &[u8]) -> Result<i32, i32> {
    Ok(i32::from_ne_bytes(*value.first_chunk().ok_or(libc::EINVAL)?))
}

/// A `timeval`; zero is no limit.
fn time(value: &[u8]) -> Result<Option<Duration>, i32> {
    let (seconds, rest) = value.split_first_chunk().ok_or(libc::EINVAL)?;
    let micros = i64::from_ne_bytes(*rest.first_chunk().ok_or(libc::EINVAL)?);
    let seconds = i64::from_ne_bytes(*seconds);
    if !(0..1_000_000).contains(&micros) {
        return Err(libc::EDOM);
    }
    let time = Duration::from_micros(micros as u64) + Duration::from_secs(seconds.max(0) as u64);
    Ok(Some(time).filter(|time| !time.is_zero()))
}

impl StoredOptions {
    fn store(&mut self, level: i32, name: i32, value: &[u8]) {
        self.0.retain(|(l, n, _)| (*l, *n) != (level, name));
        self.0.push((level, name, value[..value.len().min(LONGEST)].to_vec()));
    }

    /// What the program set.
    pub(crate) fn get(&self, level: i32, name: i32) -> Option<&[u8]> {
        self.0.iter().find(|(l, n, _)| (*l, *n) == (level, name)).map(|(_, _, value)| value.as_slice())
    }

    /// setsockopt(2).
    pub(crate) fn set(
        &mut self,
        level: i32,
        name: i32,
        value: &[u8],
        options: &mut SocketOptions,
    ) -> Result<(), i32> {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (on, seconds) = (int(value)?, int(value.get(4..).unwrap_or_default())?);
                options.resets_at_close = on != 0 && seconds == 0;
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO | RCVTIMEO_NEW) => options.receive_timeout = time(value)?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO | SNDTIMEO_NEW) => options.send_timeout = time(value)?,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                let bytes = int(value)?.clamp(2304, 1 << 29) * 2;
                options.sndbuf = Some(bytes as u32);
                self.store(level, name, &bytes.to_ne_bytes());
                return Ok(());
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                let bytes = int(value)?.clamp(1152, 1 << 29) * 2;
                self.store(level, name, &bytes.to_ne_bytes());
                return Ok(());
            }
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
                let least = int(value)?;
                options.rcvlowat = if least < 0 { i32::MAX as u32 } else { least.max(1) as u32 };
            }
            (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_TYPE | libc::SO_ACCEPTCONN | libc::SO_DOMAIN) => {
                return Err(libc::ENOPROTOOPT);
            }
            (libc::IPPROTO_TCP, TCP_ULP) => {
                tell_once("TLS in the kernel (TCP_ULP) is not there for connections in user space");
                return Err(libc::ENOENT);
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {}
            (libc::SOL_SOCKET | libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => {
                int(value)?;
            }
            _ => return Err(libc::ENOPROTOOPT),
        }
        self.store(level, name, value);
        Ok(())
    }

    /// Takes over what the program set on the kernel's listener before it was ours.
    pub(crate) fn inherit(&mut self, listener: i32, family: SocketFamily, options: &mut SocketOptions) {
        let fresh = kernel::tcp_socket(family.number());
        let socket = libc::SOL_SOCKET;
        let inherited = [
            (socket, libc::SO_LINGER),
            (socket, libc::SO_RCVTIMEO),
            (socket, libc::SO_SNDTIMEO),
            (socket, libc::SO_SNDBUF),
            (socket, libc::SO_RCVLOWAT),
            (socket, libc::SO_KEEPALIVE),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        ];
        for (level, name) in inherited {
            let (mut set, mut default) = ([0; 16], [0; 16]);
            let Ok(len) = kernel::option(listener, level, name, &mut set) else { continue };
            let is_default =
                fresh.is_ok_and(|fresh| kernel::option(fresh, level, name, &mut default).is_ok());
            if is_default && set == default {
                continue;
            }
            // The kernel tells twice what was set.
            if name == libc::SO_SNDBUF
                && let Ok(doubled) = int(&set)
            {
                set[..4].copy_from_slice(&(doubled / 2).to_ne_bytes());
            }
            // The kernel took the same value before.
            let _ = self.set(level, name, &set[..len.min(16)], options);
        }
        if let Ok(fresh) = fresh {
            let _ = kernel::close(fresh);
        }
    }
}

/// Bytes of `struct tcp_info` that are told: to `tcpi_rcv_wnd`.
const TCP_INFO_BYTES: usize = 236;

/// The state's number in the kernel (net/tcp_states.h).
fn state_number(state: FlowState) -> u8 {
    match state {
        FlowState::Established => 1,
        FlowState::SynSent => 2,
        FlowState::SynReceived => 3,
        FlowState::FinWait1 => 4,
        FlowState::FinWait2 => 5,
        FlowState::Closed => 7,
        FlowState::CloseWait => 8,
        FlowState::LastAck => 9,
        FlowState::Closing => 11,
    }
}

/// The options of TCPI_OPT (linux/tcp.h), and the shifts of both windows.
fn agreed(options: AgreedOptions) -> [u8; 2] {
    let AgreedOptions { timestamps, sack, ecn, send_shift, receive_shift } = options;
    let flags = [timestamps, sack, send_shift.is_some(), ecn];
    let flags = flags.iter().enumerate().map(|(bit, is_set)| u8::from(*is_set) << bit).sum();
    [flags, send_shift.unwrap_or(0) | receive_shift.unwrap_or(0) << 4]
}

/// TCP_INFO. The book of what is told is docs/BYPASS.md.
pub(crate) fn tcp_info(flow: &FlowInfo, bytes: SocketBytes) -> Vec<u8> {
    let mut info = vec![0; TCP_INFO_BYTES];
    info[0] = state_number(flow.state);
    info[5..7].copy_from_slice(&agreed(flow.agreed));
    let (mss, tcp) = (u32::from(flow.mss_bytes).max(1), &flow.tcp);
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let own_window = tcp.own_window.unwrap_or(0);
    let fields = [
        (8, short(flow.rto_us)),
        (16, mss),
        (20, mss),
        (24, (flow.unacked_bytes as u32).div_ceil(mss)),
        (44, short(flow.idle_ms)),
        (64, own_window),
        (68, tcp.rtt_us),
        (72, flow.rtt_variation_us),
        (76, flow.ssthresh_bytes.map_or(i32::MAX as u32, |bytes| bytes / mss)),
        (80, (flow.cwnd_bytes / mss).max(1)),
        (84, mss),
        (96, own_window),
        (100, tcp.retransmits),
        (144, short(flow.unsent_bytes as u64)),
        (148, tcp.min_rtt_us),
        (152, tcp.data_segs_in),
        (156, tcp.data_segs_out),
        (216, tcp.dsack_dups),
        (220, tcp.reordered),
        (224, tcp.out_of_order),
        (228, tcp.peer_window.unwrap_or(0)),
        (232, own_window),
    ];
    for (at, value) in fields {
        info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let unsent = flow.unsent_bytes as u64;
    let long = [
        (120, bytes.taken.saturating_sub(unsent + flow.unacked_bytes as u64)),
        (128, bytes.read + flow.unread_bytes as u64),
        (176, tcp.rwnd_limited_us),
        (184, tcp.sndbuf_limited_us),
        (200, bytes.taken.saturating_sub(unsent)),
    ];
    for (at, value) in long {
        info[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    info
}
