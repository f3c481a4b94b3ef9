//! Which hosts go without a proxy: the rules of curl for `no_proxy`.

use std::net::IpAddr;

const SEPARATORS: [char; 3] = [',', ' ', '\t'];

/// Whether a list of names, domains, addresses and networks covers this host. `*` alone covers all.
pub fn covers(list: &str, host: &str) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let host = host.trim_end_matches('.');
    let mut entries = list.split(SEPARATORS).filter(|entry| !entry.is_empty());
    match host.parse::<IpAddr>() {
        Ok(address) => entries.any(|entry| covers_address(entry, address)),
        Err(_) => entries.any(|entry| covers_name(entry, host)),
    }
}

/// The first entry that looks like a network and is none: it would cover nothing, and connections
/// would take the proxy that they were to avoid.
pub fn impossible(list: &str) -> Option<&str> {
    list.split(SEPARATORS).find(|entry| {
        let Some((own, bits)) = entry.split_once('/') else { return false };
        let most = match own.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return true,
        };
        !bits.parse::<u32>().is_ok_and(|bits| bits <= most)
    })
}

/// A name covers itself and what ends in it, behind a dot. A dot before or behind it changes nothing.
fn covers_name(entry: &str, host: &str) -> bool {
    let entry = entry.strip_suffix('.').unwrap_or(entry);
    let entry = entry.strip_prefix('.').unwrap_or(entry);
    let Some(before) = host.len().checked_sub(entry.len()) else { return false };
    let (Some(start), Some(end)) = (host.get(..before), host.get(before..)) else { return false };
    !entry.is_empty() && end.eq_ignore_ascii_case(entry) && (start.is_empty() || start.ends_with('.'))
}

fn covers_address(entry: &str, address: IpAddr) -> bool {
    let (own, bits) = entry.split_once('/').map_or((entry, None), |(own, bits)| (own, Some(bits)));
    let Ok(own) = own.trim_matches(['[', ']']).parse::<IpAddr>() else { return false };
    let (own, address, width) = match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            (u128::from(own.to_bits()), u128::from(address.to_bits()), 32)
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => (own.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let bits = match bits.map(str::parse::<u32>) {
        None => width,
        Some(Ok(bits)) if bits <= width => bits,
        Some(_) => return false,
    };
    (own ^ address).checked_shr(width - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_cannot_be() {
        for (list, expected) in [
            ("a,10.0.0.0/8 ::1/128,[::1]/64,*", None),
            ("10.0.0.0/33,b", Some("10.0.0.0/33")),
            ("a ::1/129", Some("::1/129")),
            ("10.0.0.0/", Some("10.0.0.0/")),
            ("10.0.0.0/8/8", Some("10.0.0.0/8/8")),
            ("10.0.0/8", Some("10.0.0/8")),
            ("example.com/8", Some("example.com/8")),
        ] {
            assert_eq!(impossible(list), expected, "{list}");
        }
    }

    /// From curl's own test of its function (tests/unit/unit1614.c), and its manual.
    #[test]
    fn as_curl_does_it() {
        for (host, list, expected) in [
            ("www.example.com", "localhost,.example.com,.example.de", true),
            ("www.example.com.", "localhost,.example.com,.example.de", true),
            ("example.com", "localhost,.example.com,.example.de", true),
            ("www.example.com", "localhost .example.com .example.de", true),
            ("www.example.com", "localhost,.example.com.,.example.de", true),
            ("WWW.example.COM", "localhost,.example.com", true),
            ("www.example.com", "localhost,example.co", false),
            ("notexample.com", "example.com", false),
            ("example.com", "www.example.com", false),
            ("anything", "*", true),
            ("anything", "*,other", false),
            ("anything", "", false),
            ("anything", " . ,", false),
            ("192.168.1.1", "192.168.0.0/16", true),
            ("192.168.1.1", "foo, bar, 192.168.0.0/24", false),
            ("192.168.1.1", "192.168.1.1", true),
            ("192.168.1.1", "168.1.1", false),
            ("192.168.1.1", "0.0.0.0/0", true),
            ("192.168.1.1", "192.168.0.0/33", false),
            ("192.168.1.1", "192.168.1.1/32", true),
            ("::1", "foo, bar, ::1/64", true),
            ("::1", "[::1]", true),
            ("bar", "foo, bar, ::1/64", true),
            ("2001:db8::1", "2001:db8::/32", true),
            ("2001:db9::1", "2001:db8::/32", false),
        ] {
            assert_eq!(covers(list, host), expected, "{host} in {list}");
        }
    }
}
