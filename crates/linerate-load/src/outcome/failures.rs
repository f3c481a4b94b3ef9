//! Failures as they are serialised: by the names of their reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Failure, Failures};

/// Counts and details under the names of JSON. Reasons that this version does not know are dropped.
#[derive(Serialize, Deserialize)]
pub(super) struct Plain {
    counts: BTreeMap<String, u64>,
    details: BTreeMap<String, String>,
    in_detail: BTreeMap<String, BTreeMap<String, u64>>,
    #[serde(default)]
    codes: BTreeMap<String, u64>,
}

impl From<Failures> for Plain {
    fn from(failures: Failures) -> Plain {
        let counted = Failure::ALL.into_iter().filter(|why| failures.count(*why) > 0);
        Plain {
            counts: counted.map(|why| (why.name().to_owned(), failures.count(why))).collect(),
            details: failures.details.into_iter().map(|(why, text)| (why.to_owned(), text)).collect(),
            in_detail: failures.in_detail.into_iter().map(|(why, of)| (why.to_owned(), of)).collect(),
            codes: failures.codes,
        }
    }
}

impl From<Plain> for Failures {
    fn from(mut plain: Plain) -> Failures {
        let mut failures = Failures { codes: std::mem::take(&mut plain.codes), ..Failures::default() };
        for why in Failure::ALL {
            let name = why.name();
            failures.add(why, plain.counts.get(name).copied().unwrap_or(0));
            if let Some(detail) = plain.details.remove(name) {
                failures.details.insert(name, detail);
            }
            for (detail, n) in plain.in_detail.remove(name).into_iter().flatten() {
                failures.explain(why, &detail, n);
            }
        }
        failures
    }
}

impl Failures {
    /// Says the details anew: the whole run may refute what was supposed when a request failed.
    pub(super) fn retell(&mut self, told: impl Fn(String) -> String) {
        for detail in self.details.values_mut() {
            *detail = told(std::mem::take(detail));
        }
        for details in self.in_detail.values_mut() {
            for (detail, n) in std::mem::take(details) {
                *details.entry(told(detail)).or_default() += n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_tls::HandshakeCounts;

    use super::*;
    use crate::Outcome;

    #[test]
    fn a_handshake_that_succeeded_later_refutes_what_was_supposed() {
        let supposed = "TLS: the peer refused: handshake_failure (alert 40), often for no cipher, curve or certificate in common";
        let told = "TLS: the peer refused: handshake_failure (alert 40), while other handshakes succeed";
        let mut part = Outcome { tls: Some(HandshakeCounts::default()), ..Outcome::default() };
        part.failures.details.insert("connect", supposed.to_owned());
        part.failures.add(Failure::Connect, 3);
        part.failures.explain(Failure::Connect, supposed, 1);
        part.failures.explain(Failure::Connect, told, 2);
        let details = |outcome: &Outcome| {
            (outcome.failures.details["connect"].clone(), outcome.failures.in_detail()["connect"].len())
        };
        let mut all = Outcome::default();
        all.merge(&part);
        assert_eq!(details(&all), (supposed.to_owned(), 2));
        // Another core had more luck.
        let tls = Some(HandshakeCounts { full: 1, ..HandshakeCounts::default() });
        all.merge(&Outcome { tls, ..Outcome::default() });
        assert_eq!(details(&all), (told.to_owned(), 1));
        assert_eq!(all.failures.in_detail()["connect"][told], 3);
    }
}
