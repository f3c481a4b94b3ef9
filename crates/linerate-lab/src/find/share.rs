//! The share of requests over a limit, and how sure it is.

use crate::stats::t_quantile;

/// A piece of a step: requests that came late do so together, so single requests are no
/// independent witnesses, and pieces are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareSlice {
    /// Requests.
    pub all: u64,
    /// Of these, over the limit.
    pub over: u64,
}

/// A look at so many times the allowed share is above it for certain.
pub(super) const FAR: f64 = 20.0;

/// Pieces that a share's interval rests on at least.
const LEAST: usize = 4;

/// Pieces that it rests on at most.
const MOST: usize = 8;

impl ShareSlice {
    /// Several as one.
    fn sum(slices: &[ShareSlice]) -> ShareSlice {
        let sum = |of: fn(&ShareSlice) -> u64| slices.iter().map(of).sum();
        ShareSlice { all: sum(|s| s.all), over: sum(|s| s.over) }
    }
}

/// A share of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestShare {
    slices: Vec<ShareSlice>,
}

impl RequestShare {
    /// Of these pieces.
    pub fn of(slices: &[ShareSlice]) -> RequestShare {
        RequestShare { slices: slices.iter().copied().filter(|s| s.all > 0).collect() }
    }

    /// Adds another look.
    pub fn add(&mut self, other: &RequestShare) {
        self.slices.extend(&other.slices);
    }

    fn sums(&self) -> (f64, f64) {
        let (all, over) = self.slices.iter().fold((0, 0), |(a, o), s| (a + s.all, o + s.over));
        (all as f64, over as f64)
    }

    /// Requests that it rests on.
    pub fn requests(&self) -> u64 {
        self.slices.iter().map(|s| s.all).sum()
    }

    /// The share; 1 where nothing was seen: what never came is over any limit.
    pub fn value(&self) -> f64 {
        let (all, over) = self.sums();
        if all > 0.0 { over / all } else { 1.0 }
    }

    /// The share, never 0 and never 1.
    pub fn smoothed(&self) -> f64 {
        let (all, over) = self.sums();
        (over + 0.5) / (all + 1.0)
    }

    /// Whether it is below this for certain (at 95 %).
    pub fn is_below(&self, share: f64) -> bool {
        let (all, over) = self.sums();
        if over == 0.0 {
            // The rule of three: none in 3/share would be chance in one of 20 cases.
            return all * share >= 3.0;
        }
        self.margin().is_some_and(|margin| self.value() + margin < share)
    }

    /// Whether it is above this for certain (at 95 %).
    pub fn is_above(&self, share: f64) -> bool {
        let (all, over) = self.sums();
        if over == all && all >= 1.0 {
            // All of them: chance in less than one of 100 cases.
            return all >= 3.0 || share.powf(all) < 0.01;
        }
        // Whatever comes together: a share that is this on average is so many times as large in one of
        // 20 cases at most (Markov).
        let is_far = over >= 3.0 && over >= FAR * share * all;
        is_far || self.margin().is_some_and(|margin| self.value() - margin > share)
    }

    /// Half of a 90 % interval: 95 % to one side. `None` for too few pieces.
    fn margin(&self) -> Option<f64> {
        if self.slices.len() < LEAST {
            return None;
        }
        // Neighbours see the same queue, so longer pieces are better witnesses.
        let size = self.slices.len().div_ceil(MOST);
        let pieces: Vec<ShareSlice> = self.slices.chunks(size).map(ShareSlice::sum).collect();
        let (all, _) = self.sums();
        let share = self.value();
        let off = |s: &ShareSlice| (s.over as f64 - share * s.all as f64).powi(2);
        let count = pieces.len() as f64;
        let variance = pieces.iter().map(off).sum::<f64>() * count / (count - 1.0) / (all * all);
        let chance = share * (1.0 - share) / all;
        Some(t_quantile(0.95, count - 1.0) * variance.max(chance).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(slices: &[(u64, u64)]) -> RequestShare {
        RequestShare::of(
            &slices.iter().map(|(all, over)| ShareSlice { all: *all, over: *over }).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn few_requests_prove_little() {
        assert!(!share(&[(100, 0)]).is_below(0.01));
        assert!(share(&[(100, 0), (200, 0)]).is_below(0.01));
        assert!(!share(&[(100, 10)]).is_above(0.01), "one piece");
        assert!(share(&[(100, 20)]).is_above(0.01), "twenty times as many");
        assert!(share(&[(100, 50), (100, 40), (100, 60), (100, 50)]).is_above(0.01));
        assert!(share(&[(5, 5)]).is_above(0.5));
        assert!(share(&[]).value() == 1.0 && !share(&[]).is_below(0.5) && !share(&[]).is_above(0.5));
    }

    #[test]
    fn lateness_that_comes_in_one_piece_proves_less_than_as_much_of_it_spread_out() {
        let together = share(&[(100, 24), (100, 0), (100, 0), (100, 0), (100, 0), (100, 0)]);
        let spread = share(&[(100, 4); 6]);
        assert_eq!(together.value(), spread.value());
        assert!(spread.is_above(0.01) && !together.is_above(0.01));
    }
}
