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
