//! Addresses and networks, as `10.0.0.0/8`.

use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all addresses with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// The text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address or a network is needed, as in 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32")]
pub struct BadNetwork;

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Network, BadNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let bits = match bits {
            Some(bits) if digits(bits) => bits.parse().map_err(|_| BadNetwork)?,
            Some(_) => return Err(BadNetwork),
            None => most,
        };
        match (bits, address.to_canonical()) {
            (bits, _) if bits > most => Err(BadNetwork),
            (bits @ 96.., address @ IpAddr::V4(_)) => Ok(Network { address, bits: bits - 96 }),
            (bits, _) => Ok(Network { address, bits }),
        }
    }
}

impl Network {
    /// How many bits its addresses have in common.
    pub(super) fn bits(&self) -> u8 {
        self.bits
    }

    /// An IPv4-mapped IPv6 address counts as IPv4.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.bits);
                (u64::from(own.to_bits()) >> shift) == (u64::from(ip.to_bits()) >> shift)
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let differ = own.to_bits() ^ ip.to_bits();
                u32::from(self.bits) <= differ.leading_zeros()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let has = |network: &str, ip: &str| {
            network.parse::<Network>().expect(network).contains(ip.parse().expect(ip))
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(
            has("10.0.0.7", "10.0.0.7") && has("10.0.0.7", "::ffff:10.0.0.7") && !has("10.0.0.7", "10.0.0.6")
        );
        assert!(
            has("0.0.0.0/0", "255.1.2.3") && !has("0.0.0.0/0", "2001:db8::1") && has("::/0", "2001:db8::1")
        );
        assert!(has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1"));
        assert!(has("::ffff:10.0.0.0/104", "10.1.2.3") && !has("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(has("::1", "::1") && !has("::1", "::2"));
        for wrong in [
            "",
            "10",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "proxy",
            "10.0.0.0/ 8",
        ] {
            assert_eq!(wrong.parse::<Network>(), Err(BadNetwork), "{wrong}");
        }
    }
}
