//! A page for each cause, for readers who are new to it: a description, a picture, and the fixes.
//! It shows all that verdicts advise, from the same data.

mod connection;
mod page;
mod server;
mod streams;
mod tls;

pub use page::{CausePage, PictureStep};

/// All pages of causes that are named, by the names of these.
pub fn all() -> Vec<&'static CausePage> {
    let all = connection::PAGES.iter().chain(server::PAGES).chain(streams::PAGES).chain(tls::PAGES);
    let mut all: Vec<&CausePage> = all.filter(|p| !p.title().is_empty()).collect();
    all.sort_by_key(|p| p.id);
    all
}

/// The page of a cause.
///
/// ```
/// let page = linerate_explain::pages::of("server-think").expect("it has a page");
/// assert!(!page.title().is_empty() && !page.fixes().is_empty());
/// ```
pub fn of(id: &str) -> Option<&'static CausePage> {
    all().into_iter().find(|p| p.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::ALL;
    use crate::passive::{cause, findings};

    #[test]
    fn each_cause_has_a_page() {
        let seen = [
            cause::CLIENT_POOL,
            cause::CLIENT_SLOW_READER,
            cause::HEAD_OF_LINE,
            cause::REFUSED,
            cause::DIED,
            cause::RESPONSE_CUT,
        ];
        for id in ALL.iter().map(|c| c.id).chain(seen) {
            let page = of(id).unwrap_or_else(|| panic!("{id} has no page"));
            assert!(!page.title().is_empty() && page.what.len() > 100 && page.what.ends_with('.'), "{id}");
            assert!(page.picture.len() >= 2, "{id} has no picture");
            assert!(!page.fixes().is_empty(), "{id}");
        }
        let ids: Vec<&str> = all().iter().map(|p| p.id).collect();
        assert!(ids.windows(2).all(|w| w[0] < w[1]), "one page each: {ids:?}");
    }

    #[test]
    fn every_fix_of_a_verdict_comes_from_its_page() {
        for cause in ALL {
            let page = of(cause.id).expect("a page").fixes();
            for fix in cause.fixes {
                assert!(page.contains(fix), "{}: {}", cause.id, fix.software);
            }
        }
        for (id, fix) in findings::all_advice() {
            assert!(of(id).expect("a page").fixes().contains(&fix), "{id}: {}", fix.software);
        }
    }
}
