//! Faults of packets, by rates and a seed, for the network in memory and for real links.

use std::time::Duration;

use linerate_base::Random;

/// Faults of one direction. The default has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Delay added to every packet.
    pub delay: Duration,
    /// Packets lost, per million.
    pub loss_ppm: u32,
    /// Packets delayed by up to `reorder_by` more than others, per million.
    pub reorder_ppm: u32,
    /// The longest extra delay. Duplicates come late by as much.
    pub reorder_by: Duration,
    /// Packets that arrive twice, per million.
    pub duplicate_ppm: u32,
    /// Packets that arrive with one bit flipped, per million.
    pub corrupt_ppm: u32,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            delay: Duration::ZERO,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_by: Duration::from_millis(1),
            duplicate_ppm: 0,
            corrupt_ppm: 0,
        }
    }
}

impl Faults {
    /// True if no packet is affected.
    pub fn is_nothing(&self) -> bool {
        let shares = self.loss_ppm | self.reorder_ppm | self.duplicate_ppm | self.corrupt_ppm;
        shares == 0 && self.delay.is_zero()
    }
}

/// The fate of a packet that is not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// Index of the bit to flip.
    pub(super) corrupt: Option<usize>,
    /// Delay compared with other packets.
    pub(super) later: Option<Duration>,
    /// Delay of the copy after the packet itself.
    pub(super) copy: Option<Duration>,
}

impl Fate {
    pub(super) fn corrupt(&self, packet: &mut [u8]) {
        if let Some(bit) = self.corrupt
            && let Some(byte) = packet.get_mut(bit / 8)
        {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// The source of random decisions: the same seed and the same calls give the same decisions.
#[derive(Clone, Debug)]
pub(super) struct Dice(Random);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(Random::new(seed))
    }

    fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.0.below(1_000_000) < u64::from(ppm)
    }

    fn some_of(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.0.below(most.as_nanos() as u64))
    }

    pub(super) fn loses(&mut self, faults: &Faults) -> bool {
        self.happens(faults.loss_ppm)
    }

    /// Decides the fate of a packet of `len` bytes that is not lost.
    pub(super) fn fate(&mut self, faults: &Faults, len: usize) -> Fate {
        let corrupt = self.happens(faults.corrupt_ppm).then(|| self.0.below(len.max(1) as u64 * 8) as usize);
        let later = self.happens(faults.reorder_ppm).then(|| self.some_of(faults.reorder_by));
        let copy = self.happens(faults.duplicate_ppm).then(|| self.some_of(faults.reorder_by));
        Fate { corrupt, later, copy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_out_as_asked_and_a_seed_gives_the_same_again() {
        let faults =
            Faults { loss_ppm: 10_000, reorder_ppm: 50_000, duplicate_ppm: 20_000, ..Faults::default() };
        let run = |seed: u64| {
            let mut dice = Dice::new(seed);
            let mut counts = [0; 3];
            for _ in 0..100_000 {
                if dice.loses(&faults) {
                    counts[0] += 1;
                    continue;
                }
                let fate = dice.fate(&faults, 100);
                assert!(fate.later.is_none_or(|by| by < faults.reorder_by));
                counts[1] += u32::from(fate.later.is_some());
                counts[2] += u32::from(fate.copy.is_some());
                assert_eq!(fate.corrupt, None);
            }
            counts
        };
        let counts = run(7);
        for (count, expected) in counts.iter().zip([1000, 4950, 1980]) {
            assert!(count.abs_diff(expected) < expected / 5, "{counts:?}");
        }
        assert_eq!(run(7), counts);
        assert_ne!(run(8), counts);
    }

    #[test]
    fn nothing_is_drawn_where_nothing_goes_wrong() {
        let (mut dice, untouched) = (Dice::new(3), Dice::new(3));
        let nothing = Faults::default();
        assert!(nothing.is_nothing() && !dice.loses(&nothing));
        assert_eq!(dice.fate(&nothing, 1500), Fate::default());
        assert_eq!(dice.0, untouched.0);
    }

    #[test]
    fn one_bit_changes() {
        let mut packet = [0u8; 4];
        Fate { corrupt: Some(17), ..Fate::default() }.corrupt(&mut packet);
        assert_eq!(packet, [0, 0, 2, 0]);
        Fate { corrupt: Some(99), ..Fate::default() }.corrupt(&mut packet);
        assert_eq!(packet, [0, 0, 2, 0]);
    }
}
