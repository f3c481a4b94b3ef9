//! Hints for the person who must act when a proxy opens no way to the server.

use linerate_load::Plan;

use crate::tls_hints;

/// Parts of a reason, and the hint for it. The first that fits counts.
const HINTS: [(&str, &str); 7] = [
    (
        "it wants a user",
        "write user and password into the proxy's URL: --proxy http://USER:PASSWORD@HOST:PORT",
    ),
    ("does not accept this user", "check both in --proxy; in a URL, @ is written %40, : is %3A and / is %2F"),
    (
        "does not connect to this host and port",
        "allow it in the proxy's rules (Squid: http_access and SSL_ports, tinyproxy: Allow and ConnectPort); or go around the proxy \
         with --noproxy HOST",
    ),
    (
        "it could not reach the server",
        "check from the proxy's machine that the server's name is known and its port is open: curl -v URL",
    ),
    ("did not answer CONNECT in HTTP", "check the port of --proxy: another protocol is spoken there"),
    ("closed the connection instead", "read the proxy's log: it may admit only some clients"),
    ("CONNECT", "read the proxy's log, or check that --proxy names an HTTP proxy"),
];

/// The hints for a reason that the target of a plan could not be reached.
pub(crate) fn with_tls(plan: &Plan, why: &str) -> impl Iterator<Item = &'static str> {
    let proxy = plan.route.proxy.as_ref().and_then(|_| of(why));
    proxy.into_iter().chain(tls_hints::of_offer(why, plan.http.version))
}

/// The hint for a reason that a server could not be reached through a proxy.
fn of(why: &str) -> Option<&'static str> {
    if let Some((_, hint)) = HINTS.iter().find(|(part, _)| why.contains(part)) {
        return Some(hint);
    }
    // The way to the server is open: the reason is not the proxy's.
    let is_beyond = why.contains("TLS");
    (!is_beyond).then_some("check that the proxy runs there (--proxy); --proxy '' goes around it")
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn what_is_wrong_behind_the_proxy_is_not_its_fault() {
        assert_eq!(of("TLS: the certificate has expired"), None);
        let refused =
            of("the proxy p answered CONNECT h:443 with 403: it does not connect to this host and port");
        assert!(refused.is_some_and(|hint| hint.contains("--noproxy")));
        assert!(of("connection refused").is_some_and(|hint| hint.contains("the proxy runs there")));
    }
}
