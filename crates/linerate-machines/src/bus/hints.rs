//! What to do about a NATS server that does not serve us.

/// Whether a server is there and refuses us.
pub(super) fn is_refusal(why: &str) -> bool {
    let why = why.to_lowercase();
    why.contains("authorization violation") || why.contains("authentication")
}

/// About an attempt to connect that failed.
pub(super) fn of_connecting(why: &str) -> &'static str {
    let has = |text: &str| why.to_lowercase().contains(text);
    if is_refusal(why) {
        "name a user that it knows: --nkey FILE or --creds FILE; its configuration has the public key"
    } else if has("unknownissuer") || has("unknown issuer") {
        "name the certificate of the authority that signed the server's: --nats-ca FILE"
    } else if has("notvalidforname") || has("not valid for name") {
        "use the name that the server's certificate has in --nats"
    } else if has("certificaterequired") || has("certificate required") {
        "show a certificate that it accepts: --nats-cert FILE --nats-key FILE"
    } else if has("invalidcontenttype") {
        // What a TLS client makes of a plain greeting.
        "write nats:// for a server without TLS"
    } else if has("timed out") || has("within") {
        "is the address right, and does a firewall let the port through?"
    } else {
        "start one with nats-server -js, or try --agents-local"
    }
}

/// About JetStream that is not offered.
pub(super) fn of_jetstream(why: &str) -> &'static str {
    let has = |text: &str| why.to_lowercase().contains(text);
    if has("temporarily unavailable") || has("no leader") {
        "its servers elect a leader: wait until most of them are there, and try again"
    } else if has("permission") {
        "give this user the permissions of docs/MACHINES.md"
    } else if has("timed out") {
        "the server is there and does not answer: look at its log, and whether most servers of its cluster are there"
    } else {
        "start it with -js, and give this user the permissions of docs/MACHINES.md"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_fit_what_is_wrong() {
        for (why, hint) in [
            ("authorization violation: nats: authorization violation", "--nkey FILE"),
            ("IO error: invalid peer certificate: UnknownIssuer", "--nats-ca FILE"),
            ("IO error: received corrupt message of type InvalidContentType", "nats://"),
            ("no connection within 10 s", "firewall"),
            ("IO error: Connection refused (os error 111)", "nats-server -js"),
        ] {
            assert!(of_connecting(why).contains(hint), "{why}: {}", of_connecting(why));
        }
        let elects = of_jetstream("jetstream error: JetStream system temporarily unavailable (code 503)");
        assert!(elects.contains("elect a leader"), "{elects}");
        assert!(of_jetstream("JetStream not enabled for account").contains("-js"));
    }
}
