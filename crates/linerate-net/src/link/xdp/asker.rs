//! Ends connections that nobody has any more, and of which only the addresses are known. A segment that
//! does not fit a connection makes its peer answer with an acknowledgement (RFC 9293 section 3.10.7.4).
//! Whoever gets that here knows no such connection and answers with a reset, which fits.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::offload::{fold, sum};

const HEADER: usize = 20;
const TCP: u8 = 6;
const ACK: u8 = 0x10;

/// Sends such segments, from one address at a time.
#[derive(Default)]
pub(super) struct PeerAsker {
    socket: Option<(IpAddr, Socket)>,
}

impl PeerAsker {
    /// Makes the peer of a connection answer. Without an answer it learns of the end when it next sends.
    pub(super) fn ask(&mut self, ours: SocketAddr, peer: SocketAddr) {
        if self.socket.as_ref().is_none_or(|(address, _)| *address != ours.ip()) {
            self.socket = raw(ours.ip()).ok().map(|socket| (ours.ip(), socket));
        }
        if let Some((_, socket)) = &self.socket {
            // A full queue or a peer without a route are as a lost segment.
            let _ = socket.send_to(&segment(ours, peer), &SocketAddr::new(peer.ip(), 0).into());
        }
    }
}

fn raw(address: IpAddr) -> io::Result<Socket> {
    let at = SocketAddr::new(address, 0);
    let socket =
        Socket::new(Domain::for_address(at), Type::RAW.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// An acknowledgement of nothing, with a sequence number of no connection in particular.
fn segment(ours: SocketAddr, peer: SocketAddr) -> [u8; HEADER] {
    let mut segment = [0; HEADER];
    segment[..2].copy_from_slice(&ours.port().to_be_bytes());
    segment[2..4].copy_from_slice(&peer.port().to_be_bytes());
    segment[12] = (HEADER as u8 / 4) << 4;
    segment[13] = ACK;
    let sum = checksum(ours.ip(), peer.ip(), &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// The checksum with the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8; HEADER]) -> u16 {
    let of = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    !fold(of(from) + of(to) + sum(&[0, TCP, 0, HEADER as u8]) + sum(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_with_its_checksum_sums_up_to_zero() {
        for (ours, peer) in [("10.0.0.1:80", "10.0.0.2:40000"), ("[fd00::1]:443", "[fd00::2]:50000")] {
            let (ours, peer): (SocketAddr, SocketAddr) =
                (ours.parse().expect("one"), peer.parse().expect("one"));
            let segment = segment(ours, peer);
            assert_eq!(checksum(ours.ip(), peer.ip(), &segment), 0);
            assert_eq!((segment[3], segment[13]), (peer.port().to_be_bytes()[1], ACK));
        }
    }
}
