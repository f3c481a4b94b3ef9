//! Plans for this crate's tests.

use linerate_load::Plan;

use crate::args::LoadArgs;

/// The plan that a URL alone means.
pub(super) fn plan(url: &str) -> Plan {
    let args = LoadArgs { url: Some(url.to_owned()), ..LoadArgs::default() };
    super::plan::of(&args).expect("a plan").plan
}
