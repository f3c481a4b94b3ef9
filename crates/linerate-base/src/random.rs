//! Reproducible random numbers: SplitMix64 (Steele, Lea, Flood 2014), whose n-th number is computed directly, without
//! the ones before it.

/// The step between two states: 2^64 divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles 64 bits: each bit of the input changes about half the bits of the output.
#[inline]
fn scramble(state: u64) -> u64 {
    let a = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

/// The first number of the stream that `seed` begins: a hash that spreads small differences over all bits.
#[inline]
pub fn mix(seed: u64) -> u64 {
    scramble(seed.wrapping_add(GOLDEN))
}

/// The `n`-th number of the stream that `seed` begins: a pure function, the same on every machine.
pub fn nth(seed: u64, n: u64) -> u64 {
    scramble(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// A separate seed for each `stream` (a thread, a use), so that streams of one plan are
/// independent.
pub fn derive(seed: u64, stream: u64) -> u64 {
    scramble(scramble(seed ^ GOLDEN).wrapping_add(stream.wrapping_mul(0xd134_2543_de82_ef95)))
}

/// A stream of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream that `seed` begins.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        scramble(self.state)
    }

    /// The next number below `n`, which is at least 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n.max(1)
    }

    /// Zero half of the time, otherwise below `most`.
    pub fn few(&mut self, most: u64) -> u64 {
        if self.next_u64() & 1 == 0 { 0 } else { self.below(most) }
    }

    /// True with this probability. It always draws a number, so that another probability changes no other decision.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// The next number, from 0 up to but not including 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts things into random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for i in (1..things.len()).rev() {
            things.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// The next number, greater than 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// The next gap of a Poisson process that has one arrival per unit of time on average.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_access_agrees_with_the_stream() {
        let mut stream = Random::new(7);
        for n in 0..1000 {
            assert_eq!(stream.next_u64(), nth(7, n));
        }
    }

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs of SplitMix64 for the seed 1234567, as published with the algorithm.
        let mut stream = Random::new(1_234_567);
        let got = [stream.next_u64(), stream.next_u64(), stream.next_u64()];
        assert_eq!(got, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn exponential_gaps_have_mean_and_variance_one() {
        let mut random = Random::new(42);
        let gaps: Vec<f64> = (0..200_000).map(|_| random.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.03, "variance {variance}");
        assert!(gaps.iter().all(|g| *g >= 0.0 && g.is_finite()));
    }

    #[test]
    fn derived_seeds_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            for stream in 0..50 {
                assert!(seen.insert(derive(seed, stream)));
            }
        }
    }

    #[test]
    fn an_order_is_a_permutation_and_repeats_with_its_seed() {
        let mut a: Vec<u32> = (0..50).collect();
        let mut b = a.clone();
        Random::new(7).shuffle(&mut a);
        Random::new(7).shuffle(&mut b);
        assert_eq!(a, b);
        assert_ne!(a, (0..50).collect::<Vec<_>>());
        a.sort_unstable();
        assert_eq!(a, (0..50).collect::<Vec<_>>());
    }
}
