//! A page for each cause, for readers who are new to it: a description, a picture, and the fixes.
//! It shows all that verdicts advise, from the same data.

use crate::causes::{ALL, PACKETS_ALONE};
use crate::rule::Cause;

/// All causes, by their names. [`Cause::page`] explains each.
pub fn all() -> Vec<&'static Cause> {
    let mut all: Vec<&Cause> = ALL.iter().chain(&PACKETS_ALONE).copied().collect();
    all.sort_by_key(|cause| cause.id);
    all
}

/// The cause of that name.
///
/// ```
/// let cause = linerate_explain::pages::of("server-think").expect("it has a page");
/// assert!(!cause.title.is_empty() && !cause.all_fixes().is_empty());
/// ```
pub fn of(id: &str) -> Option<&'static Cause> {
    crate::causes::find(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_page() {
        for cause in all() {
            let (id, page) = (cause.id, &cause.page);
            assert!(!cause.title.is_empty() && page.what.len() > 100 && page.what.ends_with('.'), "{id}");
            assert!(page.picture.len() >= 2, "{id} has no picture");
            assert!(!cause.all_fixes().is_empty(), "{id}");
        }
        let ids: Vec<&str> = all().iter().map(|p| p.id).collect();
        assert!(ids.windows(2).all(|w| w[0] < w[1]), "one page each: {ids:?}");
    }

    #[test]
    fn every_fix_of_a_verdict_or_a_finding_comes_from_its_page() {
        for cause in all() {
            let page = cause.all_fixes();
            for fix in cause.fixes.iter().chain(cause.packets.map_or(&[][..], |p| p.fixes)) {
                assert!(page.contains(fix), "{}: {}", cause.id, fix.software);
            }
        }
    }
}
