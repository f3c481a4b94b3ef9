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

/// About a request to a server that is there, if it is the server's state that matters.
pub(super) fn of_request(why: &str) -> Option<&'static str> {
    let has = |text: &str| why.to_lowercase().contains(text);
    if has("temporarily unavailable") || has("no leader") {
        Some("its servers elect a leader: wait until most of them are there, and try again")
    } else if has("timed out") {
        Some("look at its log, and whether most servers of its cluster are there")
    } else {
        None
    }
}

/// About JetStream that is not offered.
pub(super) fn of_jetstream(why: &str) -> &'static str {
    of_request(why).unwrap_or(match why.to_lowercase().contains("permission") {
        true => "give this user the permissions of docs/MACHINES.md",
        false => "start it with -js, and give this user the permissions of docs/MACHINES.md",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BusError;

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
        for (why, what, hint) in [
            ("timed out", "the NATS server is there and does not answer: timed out", "look at its log"),
            ("JetStream system temporarily unavailable", "JetStream system", "elect a leader"),
        ] {
            let error = BusError::new(why);
            assert!(error.what.starts_with(what), "{error}");
            assert!(error.hint.as_ref().is_some_and(|said| said.contains(hint)), "{error:?}");
        }
    }
}
