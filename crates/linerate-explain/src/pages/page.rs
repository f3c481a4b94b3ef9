//! The parts of a page that explains a cause.

use crate::causes::find;
use crate::passive::findings;
use crate::rule::RuleFix;

/// A cause, explained.
#[derive(Clone, Copy, Debug)]
pub struct CausePage {
    /// The cause's stable id.
    pub id: &'static str,
    /// A description of the cause.
    pub what: &'static str,
    /// The two ends of the connection in the picture.
    pub lanes: [&'static str; 2],
    /// The picture, from top to bottom.
    pub picture: &'static [PictureStep],
    /// Fixes beyond those that verdicts advise.
    pub more: &'static [RuleFix],
}

/// A step of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PictureStep {
    /// Sent from left to right.
    To(&'static str),
    /// Sent from right to left.
    From(&'static str),
    /// Sent from left to right, and lost.
    LostTo(&'static str),
    /// Sent from right to left, and lost.
    LostFrom(&'static str),
    /// Nothing for this many milliseconds: the time that the cause costs.
    Wait(f64, &'static str),
    /// Nothing for this many milliseconds, as it must be.
    Then(f64, &'static str),
}

/// Client and server.
const ENDS: [&str; 2] = ["client", "server"];

pub(super) const fn page(
    id: &'static str,
    what: &'static str,
    picture: &'static [PictureStep],
    more: &'static [RuleFix],
) -> CausePage {
    CausePage { id, what, lanes: ENDS, picture, more }
}

pub(super) const fn fix(software: &'static str, change: &'static str) -> RuleFix {
    RuleFix { software, change }
}

impl CausePage {
    /// The cause in one line, as verdicts say it.
    pub fn title(&self) -> &'static str {
        find(self.id).map_or_else(|| findings::title(self.id), |c| c.title)
    }

    /// The fixes: all that verdicts advise, and those for more systems.
    pub fn fixes(&self) -> Vec<RuleFix> {
        let mut fixes: Vec<RuleFix> = find(self.id).map_or_else(Vec::new, |c| c.fixes.to_vec());
        for RuleFix { software, change } in
            findings::advice(self.id).into_iter().chain(self.more.iter().copied())
        {
            if !fixes.iter().any(|f| f.software == software && f.change == change) {
                fixes.push(RuleFix { software, change });
            }
        }
        fixes
    }
}
