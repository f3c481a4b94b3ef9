//! Selects request number n by a pure function of the seed and n, so that threads need no
//! coordination.

use std::sync::Arc;

use super::{Order, Plan, Request};
use linerate_base::{derive, nth};

/// Stream of the seed that choices draw from; arrivals of thread t draw from stream t.
const CHOICES: u64 = u64::MAX;

/// Chooses the plan's requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Picker(PickKind);

#[derive(Clone, Debug)]
enum PickKind {
    Only,
    Weighted { seed: u64, table: Arc<[AliasSlot]> },
    Listed(Arc<[u32]>),
}

/// A slot of an alias table: itself with a probability, otherwise the other.
#[derive(Clone, Copy, Debug)]
struct AliasSlot {
    /// Itself below this 2^64-th part.
    below: u64,
    other: u32,
}

impl Picker {
    /// For the requests and the order of a plan.
    pub fn new(plan: &Plan) -> Picker {
        Picker::of(&plan.requests, &plan.order, plan.seed)
    }

    /// As [`Picker::new`], of its parts.
    pub fn of(requests: &[Request], order: &Order, seed: u64) -> Picker {
        let known = |index: &u32| (*index as usize) < requests.len();
        Picker(match order {
            _ if requests.len() < 2 => PickKind::Only,
            Order::Listed(list) if list.iter().any(known) => {
                PickKind::Listed(list.iter().copied().filter(known).collect())
            }
            Order::Listed(_) => PickKind::Only,
            Order::Weighted => {
                let weights: Vec<f64> = requests.iter().map(|r| r.weight).collect();
                PickKind::Weighted { seed: derive(seed, CHOICES), table: alias_table(&weights) }
            }
        })
    }

    /// Index of the request that is number `seq` of the run.
    #[inline]
    pub fn pick(&self, seq: u64) -> usize {
        match &self.0 {
            PickKind::Only => 0,
            PickKind::Listed(list) => list[(seq % list.len() as u64) as usize] as usize,
            PickKind::Weighted { seed, table } => {
                let scaled = u128::from(nth(*seed, seq)) * table.len() as u128;
                let (index, part) = ((scaled >> 64) as usize, scaled as u64);
                let slot = table[index];
                if part < slot.below { index } else { slot.other as usize }
            }
        }
    }
}

/// Walker's alias method: each slot is shared by at most two requests, so a choice costs one look,
/// however many there are.
fn alias_table(weights: &[f64]) -> Arc<[AliasSlot]> {
    let usable = |w: f64| if w.is_finite() && w > 0.0 { w } else { 0.0 };
    let sum: f64 = weights.iter().map(|w| usable(*w)).sum();
    let mut scaled: Vec<f64> = weights.iter().map(|w| usable(*w) / sum * weights.len() as f64).collect();
    let mut table: Vec<AliasSlot> =
        (0..weights.len() as u32).map(|other| AliasSlot { below: u64::MAX, other }).collect();
    if sum.is_nan() || sum <= 0.0 {
        return table.into();
    }
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|i| scaled[*i] < 1.0);
    while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
        // The cast saturates at 2^64 - 1.
        table[less] =
            AliasSlot { below: (scaled[less] * 18_446_744_073_709_551_616.0) as u64, other: more as u32 };
        scaled[more] -= 1.0 - scaled[less];
        if scaled[more] < 1.0 { small.push(more) } else { large.push(more) }
    }
    table.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Expectation;

    fn request(weight: f64) -> Request {
        Request {
            name: String::new(),
            weight,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            fields: Vec::new(),
            body: None,
            expect: Expectation::default(),
        }
    }

    fn shares(weights: &[f64], seed: u64) -> Vec<f64> {
        const N: u64 = 300_000;
        let requests: Vec<Request> = weights.iter().map(|w| request(*w)).collect();
        let picker = Picker::of(&requests, &Order::Weighted, seed);
        let mut counts = vec![0.0; weights.len()];
        for seq in 0..N {
            counts[picker.pick(seq)] += 1.0 / N as f64;
        }
        counts
    }

    #[test]
    fn shares_follow_the_weights() {
        for weights in [&[1.0, 1.0][..], &[9.0, 1.0], &[1.0, 2.0, 3.0, 4.0], &[0.001, 5.0, 0.7, 100.0, 20.0]]
        {
            let sum: f64 = weights.iter().sum();
            for (share, weight) in shares(weights, 11).into_iter().zip(weights) {
                // Six standard deviations of a share among 300,000 are at most 0.0055.
                assert!((share - weight / sum).abs() < 0.0055, "{weights:?}: {share} for {weight}");
            }
        }
    }

    #[test]
    fn a_weight_of_zero_is_never_chosen() {
        assert_eq!(shares(&[1.0, 0.0, 1.0, f64::NAN], 3)[1], 0.0);
        assert_eq!(shares(&[1.0, 0.0, 1.0, f64::NAN], 3)[3], 0.0);
    }

    #[test]
    fn the_same_seed_chooses_the_same_again() {
        let requests = [request(1.0), request(1.0), request(1.0)];
        let picks = |seed| {
            let picker = Picker::of(&requests, &Order::Weighted, seed);
            (0..200).map(|seq| picker.pick(seq)).collect::<Vec<_>>()
        };
        assert_eq!(picks(1), picks(1));
        assert_ne!(picks(1), picks(2));
    }

    #[test]
    fn a_list_goes_round() {
        let requests = [request(1.0), request(1.0), request(1.0)];
        let picker = Picker::of(&requests, &Order::Listed(vec![2, 0, 0]), 1);
        assert_eq!((0..7).map(|seq| picker.pick(seq)).collect::<Vec<_>>(), [2, 0, 0, 2, 0, 0, 2]);
        let one = Picker::of(&requests[..1], &Order::Weighted, 1);
        assert_eq!(one.pick(12345), 0);
    }

    #[test]
    fn a_list_that_names_nothing_known_is_harmless() {
        let requests = [request(1.0), request(1.0)];
        assert_eq!(Picker::of(&requests, &Order::Listed(vec![7]), 1).pick(3), 0);
        assert_eq!(Picker::of(&requests, &Order::Listed(Vec::new()), 1).pick(3), 0);
    }
}
