//! How maps of the XDP program name a connection.

use std::net::{IpAddr, SocketAddr};

/// Bytes of the peer's address (IPv4: in the first four), its port and ours, as segments have them.
pub(super) const FLOW_KEY: usize = 20;

/// The key of a connection between this peer and a port of ours.
pub(super) fn flow_key(peer: SocketAddr, port: u16) -> [u8; FLOW_KEY] {
    let mut key = [0; FLOW_KEY];
    match peer.ip().to_canonical() {
        IpAddr::V4(v4) => key[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key[..16].copy_from_slice(&v6.octets()),
    }
    key[16..18].copy_from_slice(&peer.port().to_be_bytes());
    key[18..].copy_from_slice(&port.to_be_bytes());
    key
}

/// The peer and our port of a key.
pub(super) fn flow_of(key: &[u8; FLOW_KEY]) -> (SocketAddr, u16) {
    let number = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
    let (v4, v6) = (key.first_chunk::<4>(), key.first_chunk::<16>());
    let is_v4 = key[4..16].iter().all(|byte| *byte == 0);
    let ip = match (v4, v6) {
        (Some(v4), _) if is_v4 => IpAddr::from(*v4),
        (_, Some(v6)) => IpAddr::from(*v6),
        _ => IpAddr::from([0; 4]),
    };
    (SocketAddr::new(ip, number(16)), number(18))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_whose_connection_it_is() {
        for (peer, same) in [
            ("10.0.0.9:40000", "10.0.0.9:40000"),
            ("[fd00::9]:1", "[fd00::9]:1"),
            ("[::ffff:10.0.0.9]:2", "10.0.0.9:2"),
        ] {
            let key = flow_key(peer.parse().expect("one"), 8080);
            assert_eq!(flow_of(&key), (same.parse().expect("one"), 8080));
        }
    }
}
