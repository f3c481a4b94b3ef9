//! A page for each cause, for readers who are new to it: a description, a picture, and the fixes.
//! It shows all that verdicts advise, from the same data.

mod connection;
mod server;
mod tls;

use crate::causes::{Fix, find};
use crate::passive::findings;

/// A cause, explained.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The cause's stable id.
    pub id: &'static str,
    /// A description of the cause.
    pub what: &'static str,
    /// The two ends of the connection in the picture.
    pub lanes: [&'static str; 2],
    /// The picture, from top to bottom.
    pub picture: &'static [Step],
    /// Fixes beyond those that verdicts advise.
    pub more: &'static [Fix],
}

/// A step of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Sent from left to right.
    To(&'static str),
    /// Sent from right to left.
    From(&'static str),
    /// Sent from left to right, and lost.
    LostTo(&'static str),
    /// Sent from right to left, and lost.
    LostFrom(&'static str),
    /// Nothing for so many milliseconds: the time that the cause costs.
    Wait(f64, &'static str),
    /// Nothing for so many milliseconds, as it must be.
    Then(f64, &'static str),
}

/// Client and server.
const ENDS: [&str; 2] = ["client", "server"];

const fn page(id: &'static str, what: &'static str, picture: &'static [Step], more: &'static [Fix]) -> Page {
    Page { id, what, lanes: ENDS, picture, more }
}

const fn fix(software: &'static str, change: &'static str) -> Fix {
    Fix { software, change }
}

/// All pages of causes that are named, by the names of these.
pub fn all() -> Vec<&'static Page> {
    let all = connection::PAGES.iter().chain(server::PAGES).chain(tls::PAGES);
    let mut all: Vec<&Page> = all.filter(|p| !p.title().is_empty()).collect();
    all.sort_by_key(|p| p.id);
    all
}

/// The page of a cause.
pub fn of(id: &str) -> Option<&'static Page> {
    all().into_iter().find(|p| p.id == id)
}

impl Page {
    /// The cause in one line, as verdicts say it.
    pub fn title(&self) -> &'static str {
        find(self.id).map_or_else(|| findings::title(self.id), |c| c.title)
    }

    /// The fixes: all that verdicts advise, and those for more systems.
    pub fn fixes(&self) -> Vec<Fix> {
        let mut fixes: Vec<Fix> = find(self.id).map_or_else(Vec::new, |c| c.fixes.to_vec());
        for Fix { software, change } in findings::advice(self.id).into_iter().chain(self.more.iter().copied())
        {
            if !fixes.iter().any(|f| f.software == software && f.change == change) {
                fixes.push(Fix { software, change });
            }
        }
        fixes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::ALL;
    use crate::passive::cause;

    #[test]
    fn each_cause_has_a_page() {
        let seen =
            [cause::CLIENT_POOL, cause::CLIENT_SLOW_READER, cause::HEAD_OF_LINE, cause::REFUSED, cause::DIED];
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
